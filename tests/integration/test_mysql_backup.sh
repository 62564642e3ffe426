#!/bin/bash
# timeout: 400
# The MariaDB engine against a real server: stanza-create, backup, info; the stored stream restores to
# the same database. A tool or stream that is not right makes no backup.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/mariadb.sh"
cd "$work"
new_mariadb m1
echo "$(mariadbd --version)"
local_=(sluice --engine=mysql --repo-path="$work/repo" --stanza=main)
s() { "${local_[@]}" "$@"; }
backup() { s backup --my-defaults-file="$m1_defaults" "$@"; }
count_of() { { find "$work/repo" -name "$1" 2>/dev/null || true; } | wc -l; }
manifests() { count_of manifest; }
# refused STATUS WORDS COMMAND…: that status, these words in the output, and no backup more than before
refused() {
  local status=$1 words=$2 before
  shift 2
  before=$(manifests)
  expect "$status" "$@"
  grep -q -- "$words" out || { cat out; die "it does not say \"$words\""; }
  [ "$(manifests)" = "$before" ] || die "there is a backup after: $words"
  [ "$(count_of xbstream)" = "$before" ] || die "there is a stream after: $words"
}
tool() { printf '#!/bin/bash\n%s\n' "$2" >"$work/$1"; chmod +x "$work/$1"; } # NAME BODY
m1_sql -e "CREATE DATABASE shop; CREATE TABLE shop.a (i INT PRIMARY KEY AUTO_INCREMENT, x VARCHAR(200)) ENGINE=InnoDB;
  CREATE TABLE shop.b (i INT, x TEXT) ENGINE=Aria; INSERT INTO shop.b VALUES (1, 'aria')"
m1_sql shop -e "INSERT INTO a (x) SELECT REPEAT(MD5(seq), 5) FROM seq_1_to_20000"
sum=$(m1_sql -e "CHECKSUM TABLE shop.a, shop.b EXTENDED")

say "stanza-create"
expect 56 s stanza-create --my-socket="$work/no.sock"
expect 0 s stanza-create --my-defaults-file="$m1_defaults" --dry-run
[ ! -e repo ] || die "--dry-run made a repository"
expect 0 s stanza-create --my-defaults-file="$m1_defaults"
grep -q 'created: MariaDB 1[0-9.]*, server 7@' out || { cat out; die "it does not say whose stanza it is"; }
expect 0 s stanza-create --my-defaults-file="$m1_defaults"
grep -q 'there already' out
m1_sql -e "SET GLOBAL server_id = 8"
expect 44 s stanza-create --my-defaults-file="$m1_defaults"
refused 44 'not of 8@' backup
m1_sql -e "SET GLOBAL server_id = 7"
! grep -rq secret repo || die "the password is in the repository"

say "backup, and the database that it holds"
expect 0 backup --compress-type=none --my-backup-command="mariadb-backup --parallel=2"
grep -q 'binlog binlog.0*1, position [0-9]*, GTID 0-7-' out || { cat out; die "the coordinates are not named"; }
s info --output=json >info.json
read -r label bytes file position gtid < <(python3 - info.json <<'PY'
import json, sys
b = json.load(open(sys.argv[1]))['stanza'][0]['backup'][0]
assert b['tool'] == 'mariadb-backup' and b['to_lsn'] > 0 and not b['partial'], b
print(b['label'], b['stream_bytes'], b['binlog']['file'], b['binlog']['position'], b['binlog']['gtid'])
PY
)
read -r server_file server_position _ < <(m1_sql -e "SHOW MASTER STATUS")
[ "$file $position" = "$server_file $server_position" ] || die "$file $position is not $server_file $server_position"
[ "$gtid" = "$(m1_sql -e 'SELECT @@gtid_binlog_pos')" ] || die "$gtid"
mkdir restored
head -c "$bytes" "repo/main/backup/$label/xbstream" | mbstream -x -C restored # stored plain: docs/repository.md
mariadb-backup --prepare --target-dir="$work/restored" >prepare.log 2>&1 || { cat prepare.log; die "prepare"; }
[ "$(id -u)" != 0 ] || chown -R 65534:65534 restored
start_mariadb m2 "$work/restored"
again=$(mariadb --no-defaults -u root -S "$work/m2.sock" -N -B -e "CHECKSUM TABLE shop.a, shop.b EXTENDED")
[ "$sum" = "$again" ] || die "the restored tables differ: $sum, $again"
expect 0 s info
grep -q "full backup: $label" out && grep -q "position $position" out || { cat out; die "info"; }
expect 0 backup
[ "$(manifests)" = 2 ]
expect 0 s verify

say "restore"
restore() { s restore --set="$label" "$@"; }
expect 31 restore
expect 0 restore --datadir="$work/back"
[ ! -e back.sluice-partial ] || die "the partial folder was left"
[ "$(id -u)" != 0 ] || chown -R 65534:65534 back
kill "$m2_pid"
wait "$m2_pid" || true
start_mariadb m3 "$work/back"
again=$(mariadb --no-defaults -u root -S "$work/m3.sock" -N -B -e "CHECKSUM TABLE shop.a, shop.b EXTENDED")
[ "$sum" = "$again" ] || die "the restored tables differ: $sum, $again"
expect 40 restore --datadir="$work/back"
mkdir owned
[ "$(id -u)" != 0 ] || chown 65534:65534 owned
expect 0 s restore --datadir=owned/ # the newest, into a folder that is there
[ "$(stat -c %u owned/ibdata1)" = "$(stat -c %u "$m1_data")" ] || die "the files have another owner"
expect 55 s restore --set=20200101-000000F --datadir="$work/never"
tool bad 'cat >/dev/null; exit 1'
expect 42 restore --datadir="$work/never" --my-extract-command="$work/bad"
expect 40 restore --datadir="$work/never" # what is left of it
grep -q sluice-partial out
rm -r never.sluice-partial
tool bad 'head -c 100 >/dev/null'
expect 64 restore --datadir="$work/never" --my-extract-command="$work/bad"
rm -r never.sluice-partial
tool bad 'echo "[ERROR] something" >&2'
expect 42 restore --datadir="$work/never" --my-backup-command="$work/bad"
grep -q 'it said: .*something' out || { cat out; die "what the tool said is not told"; }
rm -r never.sluice-partial
cp "repo/main/backup/$label/xbstream" saved
printf x | dd of="repo/main/backup/$label/xbstream" bs=1 seek="$(grep -abo XBSTCK01 saved | tail -n 1 | cut -d : -f 1)" conv=notrunc status=none
expect 26 restore --datadir="$work/never"
[ ! -e never ] || die "a damaged backup was restored"
rm -r never.sluice-partial
cp saved "repo/main/backup/$label/xbstream"

say "tools and streams that are not right"
mariadb-backup --defaults-file="$m1_defaults" --backup --stream=xbstream --target-dir="$work/none" >good.xb 2>good.err
size=$(stat -c %s good.xb)
tool good 'cat good.xb; cat good.err >&2'
expect 0 backup --my-backup-command="$work/good"
tool bad 'cat good.xb; cat good.err >&2; exit 1'
refused 42 'failed with status 1' backup --my-backup-command="$work/bad"
tool bad 'cat good.xb; head -n -1 good.err >&2'
refused 42 'did not say' backup --my-backup-command="$work/bad"
tool bad 'cat good.xb; cat good.err >&2; echo "after that" >&2'
refused 42 'did not say' backup --my-backup-command="$work/bad"
tool bad "head -c $((size / 2)) good.xb; cat good.err >&2"
refused 29 'ends in the middle of a chunk\|without the end of' backup --my-backup-command="$work/bad"
python3 - good.xb <<'PY'
import struct, sys
data, at, cuts, open_files = open(sys.argv[1], 'rb').read(), 0, {}, set()
while at < len(data):
    kind, n = data[at + 9:at + 10], struct.unpack_from('<I', data, at + 10)[0]
    path, at = data[at + 14:at + 14 + n], at + 14 + n
    if kind == b'P':
        at += 20 + struct.unpack_from('<Q', data, at)[0]
        open_files.add(path)
    else:
        open_files.discard(path)
    if at < len(data):
        cuts['between' if open_files else 'clean'] = at
print(cuts)
for name, at in cuts.items():
    open('cut.' + name, 'wb').write(data[:at])
flipped = bytearray(data)
flipped[len(data) // 3] ^= 1
open('flipped', 'wb').write(flipped)
PY
tool bad 'cat cut.between; cat good.err >&2'
refused 29 'without the end of' backup --my-backup-command="$work/bad"
tool bad 'cat cut.clean; cat good.err >&2' # no file is open there: the tool's last file is what lacks
refused 29 'without xtrabackup_info\|without mariadb_backup_info' backup --my-backup-command="$work/bad"
tool bad 'cat flipped; cat good.err >&2'
refused 26 'CRC' backup --my-backup-command="$work/bad"
tool bad 'cat good.err >&2'
refused 29 'no file' backup --my-backup-command="$work/bad"
tool bad 'head -c 1000000 /dev/urandom; cat good.err >&2'
refused 29 'it is none' backup --my-backup-command="$work/bad"
tool bad 'head -c 1000000 good.xb; kill -9 $$'
refused 42 'signal 9' backup --my-backup-command="$work/bad"
refused 41 'could not start' backup --my-backup-command="$work/nothing"

say "wrong rights, a signal"
m1_sql -e "REVOKE RELOAD ON *.* FROM sluice@localhost"
refused 42 'status' backup
m1_sql -e "GRANT RELOAD ON *.* TO sluice@localhost"
tool slow 'echo $$ >child; head -c 1000000 good.xb; exec sleep 1000'
before=$(manifests)
"${local_[@]}" backup --my-defaults-file="$m1_defaults" --my-backup-command="$work/slow" >out 2>&1 &
pid=$!
for _ in $(seq 600); do [ ! -s child ] || break; sleep 0.05; done
kill -TERM $pid
got=0
wait $pid || got=$?
[ $got = 70 ] || { cat out; die "backup ended by SIGTERM: $got"; }
! kill -0 "$(cat child)" 2>/dev/null || die "the tool was left running"
[ "$(manifests)" = "$before" ]
[ -z "$(find /tmp -maxdepth 1 -name 'sluice-backup-*' -newer good.xb)" ] || die "a folder was left in /tmp"
expect 0 s info
expect 0 s verify
say "ok"
