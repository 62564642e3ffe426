#!/bin/bash
# timeout: 300
# Increments of the MariaDB engine by the tool's LSN, restored in one command; several streams of one backup.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/mariadb.sh"
cd "$work"
new_mariadb m1
s() { sluice --engine=mysql --repo-path="$work/repo" --stanza=main "$@"; }
backup() { s backup --my-defaults-file="$m1_defaults" "$@"; }
newest() { s info --output=json | jq -r '.stanza[0].backup[-1].label'; }
sums() { "$1" -e "CHECKSUM TABLE $(m1_sql -e "SELECT GROUP_CONCAT(CONCAT('shop.', table_name) ORDER BY table_name) FROM information_schema.tables
  WHERE table_schema = 'shop'") EXTENDED"; }
served() { mariadb --no-defaults -u root -S "$work/again.sock" -N -B "$@"; }
# restored SUMS OPTION…: the server on the restored folder has these tables, and is ended
restored() {
  local want=$1
  shift
  rm -rf "$work/back"
  expect 0 s restore --datadir="$work/back" "$@"
  [ -z "$(find "$work" -maxdepth 1 -name 'back.sluice-*')" ] || die "something was left"
  [ "$(id -u)" != 0 ] || chown -R 65534:65534 back
  start_mariadb again "$work/back"
  local got
  got=$(served -e "CHECKSUM TABLE $(cut -f1 <<<"$want" | paste -sd,) EXTENDED") || { cat again.log; die "the restored server"; }
  [ "$want" = "$got" ] || { diff <(echo "$want") <(echo "$got") || true; die "the restored tables differ"; }
  kill "$again_pid"
  wait "$again_pid" || true
}
expect 0 s stanza-create --my-defaults-file="$m1_defaults"
m1_sql -e "CREATE DATABASE shop; CREATE TABLE shop.a (i INT PRIMARY KEY AUTO_INCREMENT, x VARCHAR(200)) ENGINE=InnoDB;
  CREATE TABLE shop.b (i INT, x TEXT) ENGINE=Aria; CREATE TABLE shop.gone (i INT PRIMARY KEY) ENGINE=InnoDB;
  INSERT INTO shop.b VALUES (1, 'aria')"
m1_sql shop -e "INSERT INTO a (x) SELECT REPEAT(MD5(seq), 5) FROM seq_1_to_20000"
kill "$m1_pid" # a checkpoint, so that the increments are small
wait "$m1_pid" || true
start_mariadb m1 "$m1_data" --log-bin=binlog --server-id=7

say "without a full one an increment is one"
expect 0 backup --type=incr
grep -q 'nothing to build on: this backup is a full one' out || { cat out; die "it does not say that"; }
full=$(newest)
[[ $full == *F ]] || die "$full"
sum_full=$(sums m1_sql)

say "an increment, another on it, a differential one"
m1_sql shop -e "UPDATE a SET x = REPEAT(MD5(i + 1), 5) WHERE i % 100 = 0; INSERT INTO b VALUES (2, 'more'); DROP TABLE gone;
  CREATE TABLE c (i INT PRIMARY KEY, x BLOB) ENGINE=InnoDB; INSERT INTO c SELECT seq, REPEAT(CHAR(seq % 256), 100) FROM seq_1_to_1000"
sum_1=$(sums m1_sql)
expect 0 backup --type=incr
grep -q "builds on $full" out || { cat out; die "it does not say what it builds on"; }
incr1=$(newest)
[[ $incr1 == ${full}_*I ]] || die "$incr1"
m1_sql shop -e "INSERT INTO a (x) SELECT MD5(seq) FROM seq_1_to_500; RENAME TABLE c TO d; DELETE FROM d WHERE i < 100; ALTER TABLE a ADD y INT DEFAULT 7"
sum_2=$(sums m1_sql)
expect 0 backup --type=incr
incr2=$(newest)
m1_sql shop -e "INSERT INTO b VALUES (3, 'diff'); INSERT INTO a (x) VALUES ('last')"
sum_3=$(sums m1_sql)
expect 0 backup --type=diff
diff=$(newest)
[[ $diff == ${full}_*D ]] || die "$diff"
s info --output=json >info.json
jq -e --arg full "$full" --arg i1 "$incr1" --arg i2 "$incr2" '.stanza[0].backup as $b
  | ($b | length == 4) and $b[1].type == "incr" and $b[1].prior == $full and $b[2].prior == $i1
  and $b[2].references == [$full, $i1] and $b[3].type == "diff" and $b[3].references == [$full]
  and $b[1].from_lsn == $b[0].to_lsn and $b[2].from_lsn == $b[1].to_lsn and $b[3].from_lsn == $b[0].to_lsn
  and $b[2].incremental and ($b[1].bytes < $b[0].bytes / 2)' info.json >/dev/null || { cat info.json; die "info"; }
expect 0 s info
grep -q "builds on $incr1, from lsn" out || { cat out; die "info in text"; }
expect 0 s verify

say "each of them restores, in one command"
expect 0 s restore --datadir="$work/back" --set="$incr2" --dry-run
grep -q "would be restored to .*, from 3 backups" out && [ ! -e back ] || { cat out; die "--dry-run"; }
restored "$sum_full" --set="$full"
restored "$sum_1" --set="$incr1"
restored "$sum_2" --set="$incr2"
restored "$sum_3" # the newest: the differential one
tool() { printf '#!/bin/bash\n%s\n' "$2" >"$work/$1"; chmod +x "$work/$1"; } # NAME BODY
# shellcheck disable=SC2016
tool second 'case "$*" in *incremental-dir*) echo "[ERROR] no" >&2; exit 1 ;; esac; exec mariadb-backup "$@"'
expect 42 s restore --datadir="$work/never" --set="$incr2" --my-backup-command="$work/second"
grep -q "backup $incr1: " out && [ ! -e never ] || { cat out; die "an increment that cannot be applied"; }
rm -r never.sluice-*

say "what an increment may not be"
count() { { find repo -name manifest || true; } | wc -l; }
before=$(count)
# shellcheck disable=SC2016
tool whole 'for w; do [[ $w == --incremental-lsn=* ]] || a+=("$w"); done; exec mariadb-backup "${a[@]}"'
expect 44 backup --type=incr --my-backup-command="$work/whole"
grep -q "not an increment from" out || { cat out; die "a full one for an increment"; }
# shellcheck disable=SC2016
tool later 'for w; do [[ $w == --incremental-lsn=* ]] && w=--incremental-lsn=$((${w#*=} + 512)); a+=("$w"); done; exec mariadb-backup "${a[@]}"'
expect 44 backup --type=incr --my-backup-command="$work/later"
expect 44 backup --my-backup-command="mariadb-backup --incremental-lsn=40000"
grep -q "not a full backup" out || { cat out; die "an increment for a full one"; }
expect 31 backup --type=other
[ "$(count)" = "$before" ] || die "there is a backup more"
python3 - "repo/main/backup/$full/xbstream" <<'PY' # in stored bytes, not in a hole or padding
import sys
with open(sys.argv[1], 'r+b') as f:
    data = f.read()
    at = next(i for i in range(len(data) // 2) if 0 not in data[i:i + 16])
    f.seek(at)
    f.write(bytes([data[at] ^ 1]))
PY
expect 26 s restore --datadir="$work/never" --set="$incr1"
[ ! -e never ] || die "restored from a damaged full one"
rm -r never.sluice-*
expect 26 s verify

say "another server: a full one again"
m1_sql -e "SET GLOBAL server_id = 8"
expect 0 s stanza-upgrade --my-defaults-file="$m1_defaults"
expect 0 backup --type=incr
grep -q 'of another server.*full one' out || { cat out; die "it does not say why"; }

say "several streams through named pipes (as XtraBackup's --fifo-streams makes them, from a real backup)"
# Files go to the streams in turn, each whole; the tool makes the pipes in its target folder, waits for their
# readers, and leaves them there.
cat >split.py <<'PY'
import os, re, struct, subprocess, sys
words = sys.argv[1:]
streams = next(int(w.split('=')[1]) for w in words if w.startswith('--fifo-streams='))
folder = next(w.split('=')[1] for w in words if w.startswith('--target-dir='))
lie = os.environ.get('LIE', '')
inner = folder + '.inner'
real = ['mariadb-backup'] + [w.replace(folder, inner) for w in words if not w.startswith('--fifo')]
run = subprocess.run(real, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
data, at, out, where = run.stdout, 0, [bytearray() for _ in range(streams)], {}
while at < len(data):
    begin, n = at, struct.unpack_from('<I', data, at + 10)[0]
    kind, path, at = data[at + 9:at + 10], data[at + 14:at + 14 + n], at + 14 + n
    if kind == b'P':
        at += 20 + struct.unpack_from('<Q', data, at)[0]
    out[where.setdefault(path, len(where) % streams)] += data[begin:at]
if lie == 'nopipes':
    sys.exit(3)
for i in range(streams):
    os.mkfifo(f'{folder}/thread_{i}', 0o600)
if lie == 'die':
    os.kill(os.getpid(), 9)
pipes = [os.open(f'{folder}/thread_{i}', os.O_WRONLY) for i in range(streams)]
if lie == 'cut':
    del out[1][len(out[1]) // 2:]
if lie == 'flip':
    out[1][len(out[1]) // 2] ^= 1
if lie == 'empty':
    out[1] = bytearray()
todo = [memoryview(bytes(o)) for o in out]
while any(todo):
    for i, part in enumerate(todo):
        if part:
            os.write(pipes[i], part[:65536])
            todo[i] = part[65536:]
            if lie == 'kill' and len(todo[i]) < len(out[i]) // 2:
                os.kill(os.getpid(), 9)
for fd in pipes:
    os.close(fd)
sys.stderr.write(run.stderr.decode())
sys.exit(run.returncode)
PY
tool fifos "exec python3 '$work/split.py' \"\$@\""
before=$(count)
sum=$(sums m1_sql)
expect 0 backup --my-backup-command="$work/fifos --fifo-streams=3"
label=$(newest)
[ "$(cd "repo/main/backup/$label" && echo *)" = "manifest open xbstream xbstream-02 xbstream-03" ] || die "the objects are not three streams"
restored "$sum" --set="$label"
m1_sql shop -e "INSERT INTO a (x) VALUES ('in three streams')"
sum=$(sums m1_sql)
expect 0 backup --type=incr --my-backup-command="$work/fifos --fifo-streams=3"
restored "$sum"
expect 0 backup --my-backup-command="$work/fifos --fifo-streams=64"
restored "$sum"
before=$(count)
objects=$(find repo -name 'xbstream*' | wc -l)
for lie in cut:29 flip:26 empty:29 kill:42 die:42 nopipes:42; do
  LIE=${lie%:*} expect "${lie#*:}" backup --my-backup-command="$work/fifos --fifo-streams=3"
  [ "$(count)" = "$before" ] && [ "$(find repo -name 'xbstream*' | wc -l)" = "$objects" ] || die "something was published after $lie"
done
expect 27 backup --my-backup-command="$work/fifos --fifo-streams=65"
[ -z "$(find /tmp -maxdepth 1 -name 'sluice-backup-*' -newer split.py)" ] || die "a folder was left in /tmp"
say ok
