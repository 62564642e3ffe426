#!/bin/bash
# What a base backup costs the database host in instructions, checksum and cipher aside: per byte
# and per file. DESIGN's bar: fewer than 0.05 a byte and 20,000 a file.
#
#   tests/bench/instructions.sh [MEGABYTES [FILES]]     (400, 4000)
#
# Callgrind counts what `sluice backup` executes in user space while it sends to a sluiced over TCP,
# blocks not encrypted: over RDMA the adapter does the sending, so this is no less than there. Three
# backups: of a fresh cluster, with a table of MEGABYTES more, with FILES small tables more; the
# differences are what a byte and what a file costs, whatever a start costs. Apart are counted the
# digests (libxxhash; libcrypto: SHA-256 of the manifest, TLS of the control connection), CRC-32C and
# the search for zeros (libisal), and page checksums (sum_rows). Not a test.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${SLUICE_BUILD:-$root/build/release}/bin
pg=/usr/lib/postgresql/15/bin
megabytes=${1:-400} files=${2:-4000}
# shellcheck source=tests/support/packages.sh
. "$root/tests/support/packages.sh"
packages_need run bench
work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-instructions.XXXXXX")
run_as=()
if [ "$(id -u)" = 0 ]; then
  run_as=(setpriv --reuid postgres --regid postgres --init-groups env "HOME=$work")
  chown postgres: "$work"
fi
as() { (cd "$work" && "${run_as[@]}" "$@"); }
target=
clean_up() {
  trap - EXIT
  [ ! -f "$work/data/postmaster.pid" ] || as $pg/pg_ctl -D "$work/data" -m immediate -w stop >/dev/null 2>&1 || true
  [ -z "$target" ] || kill "$target" 2>/dev/null || true
  wait
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

port=$((20000 + RANDOM % 10000)) daemon_port=$((30000 + RANDOM % 10000))
as $pg/initdb -D "$work/data" -A trust -U postgres --locale=C.UTF-8 >/dev/null
printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$work'" "port = $port" "fsync = off" \
  "autovacuum = off" "max_locks_per_transaction = 10000" >>"$work/data/postgresql.conf"
as $pg/pg_ctl -D "$work/data" -l "$work/server.log" -w start >/dev/null
sql() { as psql -h "$work" -p $port -U postgres -XAtq -v ON_ERROR_STOP=1 postgres "$@"; }
as "$bin/sluice" cert init "$work/pki" >/dev/null
for name in localhost db1; do as "$bin/sluice" cert issue $name --dir "$work/pki" >/dev/null; done
tls() { printf 'tls-cert = %s\ntls-key = %s\ntls-ca = %s\n' "$work/pki/$1.crt" "$work/pki/$1.key" "$work/pki/ca.crt"; }
{
  printf '%s\n' '[global]' "repo-path = $work/repo" 'listen-address = 127.0.0.1' "port = $daemon_port" 'transport = tcp'
  tls localhost
  printf '%s\n' '[main]' 'clients = db1'
} >"$work/sluiced.conf"
{
  printf '%s\n' '[global]' "repo-host = localhost:$daemon_port" 'transport = tcp' 'wire-encryption = off'
  tls db1
  printf '%s\n' '[main]' "pg-host = $work" "pg-port = $port" 'pg-user = postgres'
} >"$work/sluice.conf"
(cd "$work" && exec "${run_as[@]}" "$bin/sluiced" --config "$work/sluiced.conf") >"$work/sluiced.log" 2>&1 &
target=$!
for _ in $(seq 100); do grep -q listening "$work/sluiced.log" && break; sleep 0.1; done
as "$bin/sluice" --config "$work/sluice.conf" stanza-create >/dev/null

# One backup under callgrind: bytes, files, instructions, those of digests and checksums.
backup() {
  sql -c checkpoint
  as valgrind -q --tool=callgrind --callgrind-out-file="$work/profile" \
    "$bin/sluice" --config "$work/sluice.conf" --output=json --progress=none --jobs=2 --compress-type=none --no-archive-check backup \
    >"$work/result.json" 2>"$work/backup.log" || { cat "$work/backup.log" >&2; exit 1; }
  callgrind_annotate --auto=no --threshold=100 "$work/profile" >"$work/functions" 2>/dev/null
  cp "$work/functions" "$work/functions-$1"
  python3 - "$work/result.json" "$work/functions" <<'PY'
import json, re, sys
result = json.load(open(sys.argv[1]))
total = aside = 0
for line in open(sys.argv[2]):
    m = re.match(r"\s*([\d,]+) \([^)]*\)\s+(.*)", line)
    if not m:
        continue
    count = int(m.group(1).replace(",", ""))
    if "PROGRAM TOTALS" in line:
        total = count
    elif re.search(r"libxxhash|libisal|libcrypto|sum_rows|XXH|crc32_iscsi|zero_detect", m.group(2)):
        aside += count
print(result["bytes"], result["files"], total, aside)
PY
}

first=$(backup start)
sql -c "create table big as select md5(g::text) || md5((g + 1)::text) t, repeat(md5(g::text), 20) r
        from generate_series(1, $megabytes * 1300) g"
second=$(backup bytes)
sql -c "do \$\$ begin for i in 1..$files loop execute 'create table small' || i || ' as select 1 as n'; end loop; end \$\$"
third=$(backup files)
[ -z "${SLUICE_KEEP:-}" ] || cp "$work"/functions-* "$SLUICE_KEEP/"
echo "$first $second $third" | awk '{
  a_byte = ($7 - $8 - $3 + $4) / ($5 - $1)
  a_file = ($11 - $12 - $7 + $8 - a_byte * ($9 - $5)) / ($10 - $6)
  printf "a start, with %d files of %d bytes: %.1f million instructions\n", $2, $1, ($3 - $4) / 1e6
  printf "a byte: %.4f instructions (bar 0.05), and %.3f of digests and checksums\n", a_byte, ($8 - $4) / ($5 - $1)
  printf "a file: %d instructions (bar 20000)\n", a_file }'
