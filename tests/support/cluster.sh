# shellcheck shell=bash
# Throw-away PostgreSQL clusters for the test scripts. Source after lib.sh.
#
# new_cluster NAME [FOLDER]: with the programs in FOLDER ($pg_bin); makes, configures (archive_command to $work/repo, or to what
# NAME_repo_options says; NAME_archive replaces archive_command) and starts one; sets NAME_conn ("-h … -p … -U postgres -d postgres"),
# NAME_data, NAME_port and the functions NAME_sluice (sluice with its options, as the server's user)
# and NAME_psql. Everything is ended at exit.
pg_user=
[ "$(id -u)" != 0 ] || pg_user=postgres
chmod 755 "$work"
as_pg() {
  if [ -n "$pg_user" ]; then
    (cd "$work" && setpriv --reuid=postgres --regid=postgres --init-groups env HOME="$work" "$@")
  else
    (cd "$work" && "$@")
  fi
}
# The server's user must be able to run what was built.
if [ -n "$pg_user" ] && ! as_pg test -x "$SLUICE_BUILD/bin/sluice"; then
  mkdir -p "$work/tree"
  cp -r "$SLUICE_BUILD/bin" "$SLUICE_BUILD/lib" "$work/tree/"
  SLUICE_BUILD=$work/tree PATH=$work/tree/bin:$PATH
fi
new_cluster() {
  local name=$1 bin=${2:-$pg_bin} data=$work/$1-data socket=$work/$1-socket cport
  cport=$(free_port)
  mkdir -p "$socket" "$work/repo" "$data"
  [ -z "$pg_user" ] || chown postgres: "$data" "$socket" "$work/repo" "$work"
  as_pg "$bin/initdb" -D "$data" -k -A trust -U postgres --locale=C.UTF-8 --no-sync ${initdb_options:-} >/dev/null
  local repo_var=${name}_repo_options archive_var=${name}_archive
  cat >"$work/$name.conf" <<EOF
[global]
${!repo_var:-repo-path = $work/repo}

[${stanza:-main}]
pg-path = $data
pg-host = $socket
pg-port = $cport
pg-user = postgres
EOF
  cat >>"$data/postgresql.conf" <<EOF
listen_addresses = ''
unix_socket_directories = '$socket'
port = $cport
archive_mode = on
${!archive_var:-archive_command = '$SLUICE_BUILD/bin/sluice --config=$work/$name.conf archive-push %p'}
archive_timeout = 1h
fsync = off
max_wal_size = 256MB
EOF
  at_exit+=("as_pg $bin/pg_ctl -D '$data' -m immediate -w stop >/dev/null 2>&1")
  as_pg "$bin/pg_ctl" -D "$data" -l "$work/$name-server.log" -w start >/dev/null || { cat "$work/$name-server.log"; die "$name did not start"; }
  printf -v "${name}_conn" '%s' "-h $socket -p $cport -U postgres -d postgres"
  printf -v "${name}_data" '%s' "$data"
  printf -v "${name}_port" '%s' "$cport"
  eval "${name}_sluice() { as_pg sluice --config='$work/$name.conf' \"\$@\"; }"
  eval "${name}_psql() { as_pg '$bin/psql' -X -q -A -t -v ON_ERROR_STOP=1 -h '$socket' -p $cport -U postgres -d postgres \"\$@\"; }"
}
stop_cluster() { as_pg "${2:-$pg_bin}/pg_ctl" -D "$work/$1-data" -m "${3:-fast}" -w stop >/dev/null; } # NAME [FOLDER [MODE]]

# start_restored DIR [RECOVERING]: starts a restored folder on a port of its own beside cluster c1 (or $beside), with psql
# as r_psql, and waits until pg_is_in_recovery() is f (or what RECOVERING says)
start_restored() {
  local dir=$1 want=${2:-f} rport i
  rport=$(free_port)
  as_pg sh -c "printf 'port = %s\n' $rport >>'$dir/postgresql.auto.conf'"
  at_exit+=("as_pg pg_ctl -D '$dir' -m immediate -w stop >/dev/null 2>&1")
  as_pg pg_ctl -D "$dir" -l "$dir.log" -w -t 120 start >/dev/null || { cat "$dir.log"; die "the restored server does not start"; }
  eval "r_psql() { as_pg psql -X -q -A -t -v ON_ERROR_STOP=1 -h '$work/${beside:-c1}-socket' -p $rport -U postgres -d postgres \"\$@\"; }"
  for i in $(seq 300); do
    [ "$(r_psql -c 'select pg_is_in_recovery()')" = "$want" ] && return
    sleep 0.2
  done
  cat "$dir.log"
  die "the restored server does not leave recovery"
}
stop_restored() { as_pg pg_ctl -D "$1" -m "${2:-fast}" -w stop >/dev/null; } # DIR [MODE]
