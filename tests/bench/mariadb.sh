#!/bin/bash
# A MariaDB backup through Sluice beside `mariadb-backup | socat (TLS, 256 KiB) | mbstream`, over loopback TCP with
# TLS and the same certificates, in turns of one run, all synced to the same disk.
#
#   tests/bench/mariadb.sh [--rounds N] [--megabytes N] [--json FILE]
#
# Wall time, and CPU seconds (user and system, children included) apart for the database host (server, tool,
# sender) and the backup host; both are control groups, so this needs root. The tool alone into /dev/null is
# the floor. A server is made once and kept in SLUICE_BENCH_DIR (/tmp/sluice-mariadb). SLUICE_BUILD:
# build/release.
#
# Not a test: how fast a machine is, is no fault of the code.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/packages.sh
. "$root/tests/support/packages.sh"
rounds=3 megabytes=1000 json=
while [ $# -gt 0 ]; do
  case $1 in
    --rounds) rounds=$2; shift ;;
    --megabytes) megabytes=$2; shift ;;
    --json) json=$2; shift ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 2 ;;
  esac
  shift
done
[ "$(id -u)" = 0 ] || { echo "mariadb.sh: needs root, for control groups" >&2; exit 77; }
packages_need mariadb bench
bin=${SLUICE_BUILD:-$root/build/release}/bin
[ -x "$bin/sluice" ] || { cmake --preset release -S "$root" && cmake --build "$root/build/release"; } >/dev/null
work=${SLUICE_BENCH_DIR:-${TMPDIR:-/tmp}/sluice-mariadb}
export PATH=$PATH:/usr/sbin
data=$work/db/data socket=$work/db/sock sluice_port=47534 copy_port=47537
user=nobody group=$(id -gn nobody)

calc() { awk "BEGIN { printf \"%.4f\", $* }"; }
enter() { # HOST COMMAND…
  local host=$1
  shift
  # shellcheck disable=SC2016
  exec bash -c 'echo $$ > "$0/cgroup.procs" && exec setpriv --reuid nobody --regid '"$group"' --clear-groups env HOME=/tmp "$@"' \
    "$groups-$host" "$@"
}
on() { (enter "$@"); }
used() { awk '$1 == "usage_usec" { printf "%.4f", $2 / 1e6 }' "$groups-$1/cpu.stat"; }
used_by_all() { awk -v hz="$(getconf CLK_TCK)" '$1 == "cpu" { printf "%.2f", ($2 + $3 + $4 + $6 + $7 + $8) / hz }' /proc/stat; }
sql() { mariadb --no-defaults -u root -S "$socket" -N -B "$@"; }
serve() { # HOST NAME COMMAND…
  local host=$1 name=$2
  shift 2
  enter "$host" "$@" >"$work/log/$name.log" 2>&1 &
  echo $! >"$work/$name.pid"
}
unserve() { # NAME
  local pid
  [ -f "$work/$1.pid" ] || return 0
  pid=$(cat "$work/$1.pid")
  rm -f "$work/$1.pid"
  kill "$pid" 2>/dev/null || return 0
  wait "$pid" 2>/dev/null || true
}
clean_up() {
  local status=$?
  trap - EXIT INT TERM
  unserve sluiced
  unserve copy
  unserve mariadbd
  rm -rf "$work"/target/*
  sleep 0.2
  rmdir "$groups-db" "$groups-target" 2>/dev/null || true
  exit $status
}
fresh() { rm -rf "$1"; on target mkdir -m 700 "$1"; }

groups=/sys/fs/cgroup/sluice-mariadb-$$
[ -f /sys/fs/cgroup/cgroup.procs ] || groups=/sys/fs/cgroup/unified/sluice-mariadb-$$
mkdir "$groups-db" "$groups-target"
trap clean_up EXIT
trap 'exit 130' INT TERM
mkdir -p "$work"/{log,db,target}
chmod 755 "$work"
chown "$user": "$work" "$work"/{log,db,target}
if [ ! -d "$work/pki" ]; then
  on db "$bin/sluice" cert init "$work/pki" >/dev/null
  for name in localhost db1; do on db "$bin/sluice" cert issue $name --dir "$work/pki" >/dev/null; done
fi
[ -f "$work/made-$megabytes" ] || { rm -rf "$data"; on db mkdir "$data"
  on db mariadb-install-db --no-defaults --datadir="$data" --auth-root-authentication-method=normal --skip-test-db >"$work/log/install" 2>&1; }
serve db mariadbd mariadbd --no-defaults --datadir="$data" --socket="$socket" --skip-networking --log-bin=binlog --server-id=1 \
  --innodb-buffer-pool-size=256M --innodb-log-file-size=512M
for _ in $(seq 600); do sql -e "select 1" >/dev/null 2>&1 && break; sleep 0.1; done
if [ ! -f "$work/made-$megabytes" ]; then # text as in peers.sh: JSON, hex, base64
  echo "making $megabytes MB (once)" >&2
  sql -e "DROP DATABASE IF EXISTS shop; CREATE DATABASE shop; USE shop; CREATE TABLE mixed (id BIGINT PRIMARY KEY, u CHAR(36), doc JSON, hex TEXT, b64 TEXT);
    SET sql_log_bin = 0; INSERT INTO mixed SELECT seq, UUID(), JSON_OBJECT('order', seq, 'sku', LEFT(MD5(seq), 8), 'note', MD5(RAND())),
    REPEAT(MD5(RAND()), 8), TO_BASE64(SHA2(seq, 512)) FROM seq_1_to_$((megabytes * 1250))"
  touch "$work/made-$megabytes"
fi
cat >"$work/sluiced.conf" <<CONF
[global]
repo-path = $work/target/sluice
listen-address = 127.0.0.1
port = $sluice_port
transport = tcp
tls-cert = $work/pki/localhost.crt
tls-key = $work/pki/localhost.key
tls-ca = $work/pki/ca.crt

[main]
clients = db1
CONF
cat >"$work/sluice.conf" <<CONF
[global]
repo-host = localhost:$sluice_port
transport = tcp
tls-cert = $work/pki/db1.crt
tls-key = $work/pki/db1.key
tls-ca = $work/pki/ca.crt

[main]
engine = mysql
my-socket = $socket
my-user = root
CONF
bytes=$(du -sb --exclude='binlog.*' --exclude='ib_logfile*' "$data" | cut -f1)
runs=$work/runs.jsonl
: >"$runs"
measure() { # TOOL STORED COMMAND…
  local tool=$1 stored=$2 status=0 wall db target others all
  shift 2
  sync
  sleep 0.5
  wall=$EPOCHREALTIME db=$(used db) target=$(used target) all=$(used_by_all)
  "$@" >"$work/log/$tool.log" 2>&1 || status=$?
  wall=$(calc "$EPOCHREALTIME - $wall")
  sleep 0.2
  db=$(calc "$(used db) - $db") target=$(calc "$(used target) - $target")
  others=$(calc "($(used_by_all) - $all - $db - $target) / $wall")
  if [ $status != 0 ]; then
    echo "mariadb.sh: $tool failed:" >&2
    tail -n 5 "$work/log/$tool.log" >&2
    exit 1
  fi
  printf '{"what":"backup","tool":"%s","round":%d,"wall_s":%s,"db_cpu_s":%s,"target_cpu_s":%s,"bytes":%s,"stored":%s,"others_cores":%s}\n' \
    "$tool" "$round" "$wall" "$db" "$target" "$bytes" "$([ -z "$stored" ] && echo 0 || du -s --block-size=1 "$stored" | cut -f1)" "$others" >>"$runs"
  printf '%-16s wall %6.2f s  cpu: database %6.2f s, target %6.2f s\n' "$tool" "$wall" "$db" "$target" >&2
}
the_tool="mariadb-backup --no-defaults --backup --stream=xbstream --socket=$socket --user=root --target-dir=/tmp/none"
by_sluice() { on db "$bin/sluice" --config="$work/sluice.conf" --progress=none --compress-type="$1" backup; }
by_socat() { # both ends in this shell, as the pipe's two hosts; the tool's status and mbstream's count
  fresh "$work/target/copy"
  serve target copy bash -c "set -o pipefail; socat -u -b 262144 OPENSSL-LISTEN:$copy_port,bind=127.0.0.1,reuseaddr,cert=$work/pki/localhost.crt,key=$work/pki/localhost.key,cafile=$work/pki/ca.crt - | mbstream -x -C '$work/target/copy' && sync -f '$work/target/copy'"
  on db bash -c "set -o pipefail; $the_tool | socat -u -b 262144 - OPENSSL:localhost:$copy_port,retry=50,interval=0.02,cert=$work/pki/db1.crt,key=$work/pki/db1.key,cafile=$work/pki/ca.crt"
  wait "$(cat "$work/copy.pid")"
  rm -f "$work/copy.pid"
}
for round in $(seq "$rounds"); do
  for codec in none zstd; do
    unserve sluiced
    fresh "$work/target/sluice"
    serve target sluiced "$bin/sluiced" --config "$work/sluiced.conf"
    for _ in $(seq 100); do grep -q listening "$work/log/sluiced.log" && break; sleep 0.1; done
    on db "$bin/sluice" --config="$work/sluice.conf" stanza-create >/dev/null
    measure "$([ $codec = none ] && echo sluice || echo "sluice $codec")" "$work/target/sluice" by_sluice $codec
  done
  measure "socat(TLS)" "$work/target/copy" by_socat
  rm -rf "$work/target/copy"
  measure "tool alone" "" on db bash -c "$the_tool >/dev/null"
done
python3 "$root/tests/bench/peers_report.py" "$runs" ${json:+"$json"}
