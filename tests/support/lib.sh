# shellcheck shell=bash
# Helpers of the test scripts. A script sets -euo pipefail, sources this, and works in $SLUICE_WORK.
# Everything a script starts is ended by its pid at exit.
: "${SLUICE_BUILD:?}" "${SLUICE_WORK:?}" "${SLUICE_ROOT:?}"
# PostgreSQL of the version that tests/run asks for, else 15
pg_version=${SLUICE_PG_VERSION:-15}
pg_home=$("$SLUICE_ROOT/tests/support/get_server.sh" "pg$pg_version" 2>&1) || {
  echo "PostgreSQL $pg_version cannot be had: ${pg_home##*$'\n'}"
  exit 77
}
pg_bin=$pg_home/bin
export PATH="$SLUICE_BUILD/bin:$pg_bin:$PATH"
unset SLUICE_CONFIG SLUICE_STANZA PGHOST PGPORT PGUSER PGDATABASE PGDATA
tools=$SLUICE_BUILD/tests
work=$SLUICE_WORK
mkdir -p "$work"
started_pids=()
at_exit=()

finish() {
  local status=$? command
  trap - EXIT
  for command in "${at_exit[@]:-}"; do [ -z "$command" ] || eval "$command" || true; done
  for pid in "${started_pids[@]:-}"; do [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

say() { printf '%s\n' "$*"; }
die() { printf 'FAILED: %s\n' "$*"; exit 1; }
skip() { printf '%s\n' "$*"; exit 77; }
expect() { # STATUS COMMAND…: runs it, output to $work/out, and wants that exit status
  local want=$1 got=0
  shift
  "$@" >"$work/out" 2>&1 || got=$?
  if [ "$got" != "$want" ]; then
    cat "$work/out"
    die "wanted exit status $want, got $got: $*"
  fi
}
free_port() { # a port of 127.0.0.1 that nobody listens on, with the next one free too (RDMA's)
  local port
  while :; do
    port=$((${SLUICE_TEST_PORTS:-20000} + RANDOM % 6000)) # tests/run: a range for each lane
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || (exec 3<>"/dev/tcp/127.0.0.1/$((port + 1))") 2>/dev/null || break
  done
  echo "$port"
}

# pki: certificates in $work/pki for localhost, db1, db2
make_pki() {
  [ -d "$work/pki" ] && return
  sluice cert init "$work/pki" >/dev/null
  local host
  for host in localhost db1 db2; do sluice cert issue "$host" --dir "$work/pki" >/dev/null; done
}

# start_target NAME REPO [ENV=VALUE…]: a sluiced on REPO; sets port and target_pid. Its log is
# $work/NAME.log. Stanza "main" belongs to db1 and db2.
start_target() {
  local name=$1 repo=$2
  shift 2
  make_pki
  port=${target_port:-$(free_port)}
  cat >"$work/$name.conf" <<EOF
[global]
repo-path = $repo
listen-address = 127.0.0.1
port = $port
tls-cert = $work/pki/localhost.crt
tls-key = $work/pki/localhost.key
tls-ca = $work/pki/ca.crt
${target_extra:-}

[main]
clients = db1, db2

[other]
clients = db2
EOF
  : >"$work/$name.log"
  env "$@" sluiced --config "$work/$name.conf" >>"$work/$name.log" 2>&1 &
  target_pid=$!
  started_pids+=("$target_pid")
  local i
  for i in $(seq 200); do
    grep -q listening "$work/$name.log" && return 0
    kill -0 "$target_pid" 2>/dev/null || break
    sleep 0.05
  done
  [ -n "${target_may_fail:-}" ] && return 1
  cat "$work/$name.log"
  die "sluiced did not start"
}
stop_target() { # by SIGTERM, and wait
  kill -TERM "$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}
# the client's options for a target on $port
remote() { echo "--repo-host=localhost:$port --tls-cert=$work/pki/db1.crt --tls-key=$work/pki/db1.key --tls-ca=$work/pki/ca.crt"; }

remote_conf() { # the same as lines of a configuration
  printf '%s\n' "repo-host = localhost:$port" "tls-cert = $work/pki/db1.crt" "tls-key = $work/pki/db1.key" "tls-ca = $work/pki/ca.crt"
}

# --- archives without a server ----------------------------------------------------------------
# fake_cluster: a data directory of a real initdb (1 MB segments) in $work/data that never runs; sets
# system_id. Commands can archive for it.
fake_cluster() {
  [ -d "$work/data" ] || {
    mkdir -p "$work/data"
    if [ "$(id -u)" = 0 ]; then
      chown postgres: "$work/data"
      (cd / && setpriv --reuid=postgres --regid=postgres --init-groups initdb -D "$work/data" --wal-segsize=1 -A trust --no-sync >/dev/null)
    else
      initdb -D "$work/data" --wal-segsize=1 -A trust --no-sync >/dev/null
    fi
  }
  system_id=$(LC_ALL=C pg_controldata "$work/data" | sed -n 's/^Database system identifier: *//p')
}
# make_wal DIR FIRST COUNT [SEED]: segments of 1 MB for the fake cluster
make_wal() {
  mkdir -p "$1"
  "$SLUICE_ROOT/tests/support/make_wal.py" "$1" "$system_id" 1048576 "${@:2}"
}
