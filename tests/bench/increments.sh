#!/bin/bash
# What increments read, send and store, beside pgBackRest's: a full backup, then one of what changed
# since, after 1 % and after 10 % of a table's pages changed, scattered evenly over it (the worst case),
# and after 10 % in one place.
#
#   tests/bench/increments.sh [--megabytes N] [VERSION…]      (250; 15 17)
#
# The table to standard output is for docs/performance.md. Nothing is timed. Counted are
#   read    what read(2) and its like returned of files in the data directory (strace)
#   sent    what went through the loopback interface, both ways, with headers: all runs in a network
#           namespace of its own, the server is asked over its socket, WAL is archived without network
#   stored  blocks that the repository's backups take more than before
# Neither tool compresses. Needs root, strace, and pgBackRest 2.46 or later for block incremental: Debian's
# own of this host is used only if tests/support/get_server.sh has no later one, and the table says so.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
megabytes=250 versions=()
while [ $# -gt 0 ]; do
  case $1 in
    --megabytes) megabytes=$2; shift ;;
    [0-9]*) versions+=("$1") ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 2 ;;
  esac
  shift
done
[ ${#versions[@]} -gt 0 ] || versions=(15 17)
# shellcheck source=tests/support/packages.sh
. "$root/tests/support/packages.sh"
# shellcheck source=tests/bench/hosts.sh
. "$root/tests/bench/hosts.sh"
if [ -z "${SLUICE_BENCH_ALONE:-}" ]; then # fetches first: there is no network in there
  packages_need run bench
  for version in "${versions[@]}"; do "$root/tests/support/get_server.sh" "pg$version" >/dev/null; done
  "$root/tests/support/get_server.sh" pgbackrest >/dev/null || echo "this host's pgBackRest is taken" >&2
  SLUICE_BENCH_ALONE=1 exec unshare --net "$0" --megabytes "$megabytes" "${versions[@]}"
fi
bin=${SLUICE_BUILD:-$root/build/release}/bin
work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-increments.XXXXXX")
peer=$("$root/tests/support/get_server.sh" pgbackrest 2>/dev/null)/bin/pgbackrest || true
[ -x "$peer" ] || peer=$(command -v pgbackrest)
peer_version=$("$peer" version)
block=y
[ "$(printf '%s\n' "pgBackRest 2.46" "$peer_version" | sort -V | head -n 1)" = "pgBackRest 2.46" ] || block=n
chmod 755 "$work"
chown postgres: "$work"
ip link set lo up
pids=()
finish() {
  local status=$? pid
  trap - EXIT
  [ ! -f "$work/data/postmaster.pid" ] || as_pg "$home/bin/pg_ctl" -D "$work/data" -m immediate -w stop >/dev/null 2>&1 || true
  for pid in "${pids[@]:-}"; do [ -z "$pid" ] || kill "$pid" 2>/dev/null || true; done
  [ -n "${SLUICE_KEEP:-}" ] || rm -rf "$work"
  exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM
become_pg() { cd "$work" && exec setpriv --reuid=postgres --regid=postgres --init-groups env HOME="$work" "$@"; }
as_pg() { (become_pg "$@"); }
sql() { as_pg "$home/bin/psql" -h "$work/run" -U postgres -XAtq -v ON_ERROR_STOP=1 postgres "$@"; }

# --- what is measured with ----------------------------------------------------------------------
port=47440 peer_port=47442
write_config() {
  write_sluiced_conf "$work/repo/sluice" $port
  write_sluice_conf $port "pg-path = $work/data" "pg-host = $work/run" "pg-user = postgres"
  sed "s,^repo-host = .*,repo-path = $work/repo/sluice," "$work/sluice.conf" | grep -v '^t' >"$work/embedded.conf"
  local kind
  for kind in files blocks; do # the repository's host, with the way to the database's; for archive-push
    cat >"$work/$kind.conf" <<CONF
[global]
repo1-path=$work/repo/$kind
repo1-retention-full=9
log-level-file=off
log-level-console=warn
log-level-stderr=off
start-fast=y
compress-type=none
compress-level-network=0
lock-path=$work/lock
$([ $kind = files ] || printf 'repo1-bundle=y\nrepo1-block=y\n')
[main]
pg1-path=$work/data
pg1-socket-path=$work/run
CONF
    cp "$work/$kind.conf" "$work/$kind-repo.conf"
    cat >>"$work/$kind-repo.conf" <<CONF
pg1-host=localhost
pg1-host-type=tls
pg1-host-port=$peer_port
pg1-host-config=$work/db.conf
pg1-host-cert-file=$work/pki/db1.crt
pg1-host-key-file=$work/pki/db1.key
pg1-host-ca-file=$work/pki/ca.crt
CONF
  done
  cat >"$work/db.conf" <<CONF
[global]
log-level-file=off
lock-path=$work/lock-db
tls-server-address=127.0.0.1
tls-server-port=$peer_port
tls-server-cert-file=$work/pki/localhost.crt
tls-server-key-file=$work/pki/localhost.key
tls-server-ca-file=$work/pki/ca.crt
tls-server-auth=db1=*
[main]
pg1-path=$work/data
pg1-socket-path=$work/run
CONF
  cat >"$work/archive-to-sluice-and-pgbackrest" <<SH
#!/bin/sh
'$bin/sluice' --config='$work/embedded.conf' archive-push "\$1" || exit 1
for kind in $kinds; do '$peer' --config="$work/\$kind.conf" --stanza=main archive-push "\$1" || exit 1; done
SH
  chmod 755 "$work/archive-to-sluice-and-pgbackrest"
}
traced() { # FILE COMMAND…: becomes postgres; what is read goes to FILE
  local file=$1
  shift
  become_pg strace -f -qq -y -s 0 -e trace=read,pread64,readv,preadv,preadv2 -e signal=none -o "$file" "$@"
}
as_traced() { (traced "$@"); }
read_of_data() { # FILE: sum of what was read in the data directory; calls that others interrupted are in two lines
  python3 - "$1" "$work/data/" <<'PY'
import re, sys
total, waiting = 0, {}
for line in open(sys.argv[1], errors='replace'):
    pid, _, rest = line.partition(' ')
    rest = rest.strip()
    if rest.endswith('<unfinished ...>'):
        waiting[pid] = '<' + sys.argv[2] in rest
        continue
    ours = waiting.pop(pid, False) if rest.startswith('<...') else '<' + sys.argv[2] in rest
    result = re.search(r'= (\d+)$', rest)
    if ours and result:
        total += int(result.group(1))
print(total)
PY
}
sent_by_now() { awk '$1 == "lo:" { print $10 }' /proc/net/dev; } # not /sys/class/net: that is the host's
measure() { # WHAT TOOL REPOSITORY COMMAND…: one line of the table
  local what=$1 tool=$2 repository=$work/repo/$3 sent stored server='' tries=0
  shift 3
  if [ "$tool" = sluice ]; then set -- as_traced "$work/trace" "$@"; else
    traced "$work/trace" "$peer" --config="$work/db.conf" server >"$work/server.log" 2>&1 &
    server=$!
    pids+=("$server")
    until (exec 3<>"/dev/tcp/127.0.0.1/$peer_port") 2>/dev/null || [ $((tries++)) = 100 ]; do sleep 0.1; done
    set -- as_pg "$@"
  fi
  sent=$(sent_by_now) stored=$({ du -s --block-size=1 "$repository" 2>/dev/null || true; } | cut -f1)
  "$@" >"$work/out" 2>&1 || { cat "$work/out" "$work/server.log" >&2; exit 1; }
  sent=$(($(sent_by_now) - sent))
  sync -f "$repository"
  stored=$(($(du -s --block-size=1 "$repository" | cut -f1) - ${stored:-0}))
  if [ -n "$server" ]; then # the one that strace runs
    kill "$(pgrep -f "^$peer --config=$work/db.conf server" | head -n 1)"
    wait "$server" || true
  fi
  awk -v v="$version" -v w="$what" -v t="$tool" -v r="$(read_of_data "$work/trace")" -v s="$sent" -v d="$stored" \
    'BEGIN { printf "| %s | %s | %s | %.1f | %.1f | %.1f |\n", v, w, t, r / 1e6, s / 1e6, d / 1e6 }'
}
all_measured() { # WHAT TYPE
  measure "$1" sluice sluice/main/backup "$bin/sluice" --config="$work/sluice.conf" --progress=none --compress-type=none backup --type="$2"
  local kind
  for kind in $kinds; do
    measure "$1" "pgBackRest, $kind" "$kind/backup" "$peer" --config="$work/$kind-repo.conf" --stanza=main --type="$2" backup
  done
}

# --- the cluster ---------------------------------------------------------------------------------
new_cluster() {
  rm -rf "$work"/{data,run,repo,lock,lock-db}
  as_pg mkdir -p "$work"/{run,repo/sluice,repo/files/backup,repo/blocks/backup,lock,lock-db}
  as_pg "$home/bin/initdb" -D "$work/data" -k -A trust -U postgres --locale=C.UTF-8 --no-sync >/dev/null
  cat >>"$work/data/postgresql.conf" <<CONF
listen_addresses = ''
unix_socket_directories = '$work/run'
autovacuum = off
max_wal_size = 4GB
checkpoint_timeout = 1h
archive_mode = on
archive_command = '$work/archive-to-sluice-and-pgbackrest %p'
$([ "$version" -lt 17 ] || echo 'summarize_wal = on')
CONF
  as_pg "$home/bin/pg_ctl" -D "$work/data" -l "$work/postgres.log" -w start >/dev/null
  as_pg "$bin/sluice" --config="$work/embedded.conf" stanza-create >/dev/null
  local kind
  for kind in $kinds; do as_pg "$peer" --config="$work/$kind.conf" --stanza=main stanza-create; done
  # 72 rows a page, and room on each for some more
  sql -c "create table big (id int, v text) with (fillfactor = 90)" \
    -c "insert into big select i, md5(i::text) || md5((i * 7)::text) from generate_series(1, $megabytes * 9216) i" \
    -c "vacuum freeze" -c checkpoint
  pages=$(sql -c "select pg_relation_size('big') / 8192")
}
change() { # FIRST LAST STEP: a row of every STEPth page
  sql -c "update big set v = reverse(v) where ctid in (select format('(%s,1)', p)::tid from generate_series($1, $2, $3) p)" \
    -c checkpoint
}
serve() {
  become_pg "$bin/sluiced" --config "$work/sluiced.conf" >"$work/sluiced.log" 2>&1 & # $! is sluiced's
  daemon=$!
  pids+=("$daemon")
  local i
  for i in $(seq 100); do grep -q listening "$work/sluiced.log" && return; sleep 0.1; done
  cat "$work/sluiced.log" >&2
  return 1
}

as_pg "$bin/sluice" cert init "$work/pki" >/dev/null
for name in localhost db1; do as_pg "$bin/sluice" cert issue $name --dir "$work/pki" >/dev/null; done
kinds="files blocks"
[ $block = y ] || kinds=files
write_config
echo "$peer_version$([ $block = y ] || echo ', which has no block incremental'); $megabytes MB; MB"
echo
echo "| PostgreSQL | backup | tool | read | sent | stored |"
echo "|---|---|---|---|---|---|"
for version in "${versions[@]}"; do
  home=$("$root/tests/support/get_server.sh" "pg$version")
  new_cluster
  serve
  all_measured full full
  change 0 $((pages - 1)) 100
  all_measured "1 % changed, scattered" diff
  change 0 $((pages - 1)) 10
  all_measured "10 % changed, scattered" diff
  all_measured full full
  change 0 $((pages / 10)) 1
  all_measured "10 % changed, in one place" diff
  kill "$daemon"
  wait "$daemon" 2>/dev/null || true
  as_pg "$home/bin/pg_ctl" -D "$work/data" -m fast -w stop >/dev/null
done
