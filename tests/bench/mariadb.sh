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
# shellcheck source=tests/bench/hosts.sh
. "$root/tests/bench/hosts.sh"
bench_user=nobody
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

sql() { mariadb --no-defaults -u root -S "$socket" -N -B "$@"; }
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

groups=$(cgroup_root)/sluice-mariadb-$$
mkdir "$groups-db" "$groups-target"
trap clean_up EXIT
trap 'exit 130' INT TERM
mkdir -p "$work"/{log,db,target}
chmod 755 "$work"
chown "$bench_user": "$work" "$work"/{log,db,target}
[ -d "$work/pki" ] || make_certificates
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
write_sluiced_conf "$work/target/sluice" $sluice_port
write_sluice_conf $sluice_port "engine = mysql" "my-socket = $socket" "my-user = root"
bytes=$(du -sb --exclude='binlog.*' --exclude='ib_logfile*' "$data" | cut -f1)
runs=$work/runs.jsonl
: >"$runs"
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
    start_sluiced
    on db "$bin/sluice" --config="$work/sluice.conf" stanza-create >/dev/null
    measure backup "$([ $codec = none ] && echo sluice || echo "sluice $codec")" "$bytes" "$work/target/sluice" by_sluice $codec
  done
  measure backup "socat(TLS)" "$bytes" "$work/target/copy" by_socat
  rm -rf "$work/target/copy"
  measure backup "tool alone" "$bytes" "" on db bash -c "$the_tool >/dev/null"
done
python3 "$root/tests/bench/peers_report.py" "$runs" ${json:+"$json"}
