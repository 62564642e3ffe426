#!/bin/bash
# timeout: 300
# archive-push and archive-get with their whole contract, without a running server: names, headers,
# sizes, the same file again, another file under a name, two pushers, exit statuses, gaps, the
# standby's rule, signals. The repository is a folder.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
fake_cluster
data=$work/data wal=$work/wal
cd "$work"
s() { sluice --repo-path="$work/repo" --stanza=main "$@"; }
push() { s archive-push "$1"; }
get() { s archive-get "$@"; }
# status COMMAND…: its exit status, whatever it is
status() { local got=0; "$@" >"$work/out" 2>&1 || got=$?; echo "$got"; }
wal_of() { "$SLUICE_ROOT/tests/support/make_wal.py" "$@"; } # DIR SYSTEM BYTES FIRST COUNT [SEED]
name() { printf '%08X%08X%08X' "$1" 0 "$2"; }

say "stanza-create"
make_wal "$wal" 5 4
got=$(status push "$wal/$(name 1 5)") # no repository yet
[ "$got" -ge 1 ] && [ "$got" -le 125 ] || die "archive-push without a repository: $got"
expect 0 s stanza-create --no-online --pg-path="$data" --dry-run
grep -q 'stanza "main" would be created: PostgreSQL' "$work/out" || { cat "$work/out"; die "it does not say what it would do"; }
[ ! -e "$work/repo/main/stanza.json" ] || die "--dry-run made a stanza"
expect 0 s stanza-create --no-online --pg-path="$data"
grep -q 'stanza "main" created: PostgreSQL' "$work/out" || { cat "$work/out"; die "it does not say what it did"; }
expect 0 s stanza-create --no-online --pg-path="$data"
grep -q 'stanza "main" is there already' "$work/out" || { cat "$work/out"; die "it does not say that it is there"; }
grep -q . "$work/repo/main/stanza.json"
mkdir -p "$work/other/global"
cp "$data/PG_VERSION" "$work/other/"
head -c 8192 /dev/zero >"$work/other/global/pg_control"
expect 26 s stanza-create --no-online --pg-path="$work/other" --timeout=300ms # torn for good
python3 - "$data/global/pg_control" "$work/other/global/pg_control" <<'PY'
import struct, sys
def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
bytes_ = bytearray(open(sys.argv[1], 'rb').read())
assert crc32c(bytes_[:288]) == struct.unpack_from('<I', bytes_, 288)[0], 'pg_control of 15'
struct.pack_into('<Q', bytes_, 0, 12345)
struct.pack_into('<I', bytes_, 288, crc32c(bytes_[:288]))
open(sys.argv[2], 'wb').write(bytes_)
PY
expect 44 s stanza-create --no-online --pg-path="$work/other"
grep -q 12345 "$work/out"

say "push: the same again, another content, wrong files"
for i in 5 6 7 8; do expect 0 push "$wal/$(name 1 $i)"; done
expect 0 push "$wal/$(name 1 5)"
(cd "$data" && mkdir -p pg_wal && cp "$wal/$(name 1 6)" pg_wal/ && expect 0 push "pg_wal/$(name 1 6)")
make_wal "$work/forked" 5 1 forked
expect 45 push "$work/forked/$(name 1 5)"
[ "$(grep -oE '[0-9a-f]{32}' "$work/out" | sort -u | wc -l)" -ge 2 ] || { cat "$work/out"; die "both digests are not named"; }
grep -q 'they differ from page [0-9]* of 128 on (0/5[0-9A-F]*)' "$work/out" || { cat "$work/out"; die "the page is not named"; }
grep -q ' by "local:.*" at 20' "$work/out" || { cat "$work/out"; die "it does not say who and when"; }
head -c 500000 "$wal/$(name 1 5)" >"$work/forked/$(name 1 5)" # the same, its tail never written: a torn copy
truncate -s 1048576 "$work/forked/$(name 1 5)"
expect 45 push "$work/forked/$(name 1 5)"
grep -q 'from page 61 of 128 on (0/57A000), this one is zero from there' "$work/out" || { cat "$work/out"; die "the tail is not explained"; }
expect 0 get "$(name 1 5)" "$work/got"
cmp "$work/got" "$wal/$(name 1 5)" || die "the first content was overwritten"
mkdir -p "$work/bad"
wal_of "$work/bad" 999 1048576 9 1
expect 44 push "$work/bad/$(name 1 9)"
cp "$wal/$(name 1 8)" "$work/bad/$(name 1 10)"
expect 29 push "$work/bad/$(name 1 10)" # of another place
head -c 1000000 "$wal/$(name 1 8)" >"$work/bad/$(name 1 8)"
expect 29 push "$work/bad/$(name 1 8)" # too short
head -c 1048576 /dev/zero >"$work/bad/$(name 1 11)"
expect 29 push "$work/bad/$(name 1 11)"
: >"$work/bad/$(name 1 12)"
expect 29 push "$work/bad/$(name 1 12)"
expect 41 push "$work/bad/$(name 1 13)"
for odd in 00000001000000000000000 000000010000000000000002x RECOVERYXLOG 00000000.history \
  000000010000000000000002.tmp archive_status 0000000100000000000000020 00000001000000000000000a; do
  touch "$work/bad/$odd"
  expect 31 push "$work/bad/$odd"
done
mkdir -p "$work/bad/$(name 1 14)"
expect 31 push "$work/bad/$(name 1 14)" # a folder
mkfifo "$work/bad/$(name 1 15)"
expect 31 push "$work/bad/$(name 1 15)"
[ -z "$(find "$work/repo/main/wal" -name "$(name 1 9)*" -o -name "$(name 1 1)[0-5]*")" ] || die "a wrong file was stored"

say "partial, history, backup; timelines"
cp "$wal/$(name 1 8)" "$work/$(name 1 8).partial"
expect 0 push "$work/$(name 1 8).partial"
printf '1\t0/800100\tno recovery target specified\n' >"$work/00000002.history"
expect 0 push "$work/00000002.history"
expect 0 push "$work/00000002.history"
printf '1\t0/700100\tanother life\n' >"$work/bad/00000002.history"
expect 45 push "$work/bad/00000002.history"
printf 'what\n' >"$work/bad/00000003.history"
expect 29 push "$work/bad/00000003.history"
printf 'START WAL LOCATION: 0/500028 (file %s)\nCHECKPOINT LOCATION: 0/500060\n' "$(name 1 5)" >"$work/$(name 1 5).00000028.backup"
expect 0 push "$work/$(name 1 5).00000028.backup"
cp "$wal/$(name 1 8)" "$work/$(name 2 8)" # the copy made at the switch: its first page is of timeline 1
expect 0 push "$work/$(name 2 8)"
python3 - "$wal/$(name 1 8)" "$work/$(name 1 16)" <<'PY'
import struct, sys
b = bytearray(open(sys.argv[1], 'rb').read())
struct.pack_into('<I', b, 4, 9)                # a page of a later timeline
struct.pack_into('<Q', b, 8, 16 << 20)
open(sys.argv[2], 'wb').write(b)
PY
expect 29 push "$work/$(name 1 16)"
for f in "$(name 1 8).partial" 00000002.history "$(name 1 5).00000028.backup" "$(name 2 8)"; do
  expect 0 get "$f" "$work/got"
  cmp "$work/got" "$work/$f" || die "$f came back different"
done

say "get: there, surely not there, a gap, and what cannot be known"
expect 0 get "$(name 1 7)" "$work/got"
cmp "$work/got" "$wal/$(name 1 7)"
[ ! -e "$work/got.sluice-tmp" ] || die "a temporary was left"
expect 1 get "$(name 1 9)" "$work/none" # the end of the timeline
expect 1 get 00000003.history "$work/none"
expect 1 get "$(name 3 1)" "$work/none"
expect 200 get "$(name 1 4)" "$work/none" # 5 is there
make_wal "$wal" 4000 1                    # the first of another folder: 1 MB segments, 4096 a folder
make_wal "$wal" 4100 1
expect 0 push "$wal/000000010000000100000004"
expect 200 get "$(name 1 9)" "$work/none" # a gap, seen over the folder's end
expect 1 get 000000010000000100000005 "$work/none"
expect 200 get pg_wal/RECOVERYXLOG "$(name 1 5)" # arguments the wrong way round must not promote
expect 200 get "$(name 1 5)" "$work/no/such/folder/x"
expect 200 s archive-get "$(name 1 5)"
expect 200 get --no-such-option x y
expect 200 sluice --repo-path="$work/nowhere" --stanza=main archive-get "$(name 1 9)" "$work/none"
expect 200 sluice --repo-path="$work/repo" --stanza=none archive-get "$(name 1 9)" "$work/none"
expect 200 sluice --repo-host="localhost:$(free_port)" --stanza=main --tls-cert=x --tls-key=x --tls-ca=x archive-get "$(name 1 9)" "$work/none"
[ ! -e "$work/none" ] || die "a file came from nowhere"
victim=$(find "$work/repo/main/wal" -name "$(name 1 6)")
cp "$victim" "$work/saved"
printf x | dd of="$victim" bs=1 seek=500000 conv=notrunc status=none
expect 200 get "$(name 1 6)" "$work/none"
[ ! -e "$work/none" ] || die "damage was handed out"
cp "$work/saved" "$victim"
expect 0 get "$(name 1 6)" "$work/got"
cmp "$work/got" "$wal/$(name 1 6)"

say "a folder moved away and linked, or replaced by a file: what cannot be seen is not absent"
folder=$(dirname "$victim")
mv "$folder" "$work/moved"
for link in "$work/moved" "$work/not-mounted"; do
  ln -s "$link" "$folder"
  for i in 6 9 4090; do # there; the end; in another folder
    expect 200 get "$(name 1 $i)" "$work/none"
  done
  grep -q 'HINT: a repository is made of folders and files only' "$work/out" || { cat "$work/out"; die "no hint"; }
  rm "$folder"
done
touch "$folder"
expect 200 get "$(name 1 9)" "$work/none"
rm "$folder"
mv "$work/moved" "$folder"
mv "$work/repo/main/wal" "$work/moved"
ln -s "$work/not-mounted" "$work/repo/main/wal"
expect 200 get "$(name 1 6)" "$work/none"
expect 200 get 00000009.history "$work/none"
rm "$work/repo/main/wal"
mv "$work/moved" "$work/repo/main/wal"
expect 0 get "$(name 1 6)" "$work/got"
expect 1 get 00000009.history "$work/none"

say "a destination that is no file stays what it is"
mkfifo "$work/fifo"
ln -s "$work/got" "$work/link"
for odd in fifo link; do
  expect 200 get "$(name 1 6)" "$work/$odd"
  grep -q 'not a regular file' "$work/out"
done
[ -p "$work/fifo" ] && [ -L "$work/link" ] || die "it was replaced"

say "a limit on the size of files is an error, not the signal's death"
expect 200 bash -c "ulimit -f 100; exec sluice --repo-path='$work/repo' --stanza=main archive-get $(name 1 6) '$work/none'"
[ ! -e "$work/none" ] && [ ! -e "$work/none.sluice-tmp" ] || die "a file was left"

say "asking for help is not archiving"
for asked in -h --help -V --version; do
  expect 31 s archive-push $asked backup1 "$wal/$(name 1 6)"
  expect 31 s archive-push "$wal/$(name 1 6)" $asked
done
expect 0 s archive-push --help

say "a configuration file that nobody writes to"
expect 41 timeout -s KILL 60 sluice --config="$work/fifo" --stanza=main archive-push "$wal/$(name 1 6)"
grep -q 'configuration file .* is not a regular file' "$work/out"

say "a standby: every failure is 1, soon; recovery.signal does not change that"
for sig in standby.signal recovery.signal; do
  touch "$data/$sig"
  (
    cd "$data"
    expect 0 get "$(name 1 5)" "$work/got"
    expect 1 get "$(name 1 9)" "$work/none"
    expect 1 get "$(name 1 4)" "$work/none"
    expect 1 get nonsense "$work/none"
    expect 1 sluice --repo-path="$work/nowhere" --stanza=main archive-get "$(name 1 9)" "$work/none"
    expect 1 get --no-such-option x y
  )
done
rm "$data/standby.signal"
(cd "$data" && expect 200 get "$(name 1 4)" "$work/none" && expect 1 get 00000009.history "$work/none")
rm "$data/recovery.signal"

say "other segment sizes"
for mb in 2 64; do
  wal_of "$work" "$system_id" $((mb << 20)) $((mb * 100)) 1
  n=$(find "$work" -maxdepth 1 -size "$((mb << 20))c" -name '00000001*' -printf '%f\n')
  expect 0 push "$work/$n"
  expect 0 get "$n" "$work/got"
  cmp "$work/got" "$work/$n"
  rm "$work/$n"
done

say "statuses stay below 126: bad options, signals"
expect 31 s archive-push
for args in "--no-such-option x" "--timeout=never x" "--repo-path"; do
  got=$(status s archive-push $args)
  [ "$got" -ge 1 ] && [ "$got" -le 125 ] || die "archive-push $args: $got"
done
if grep -q pg.push_read "$SLUICE_BUILD/lib/sluice/sluice-postgres.so" && grep -q SLUICE_FAULT "$SLUICE_BUILD/bin/sluice"; then
  make_wal "$wal" 20 2
  for sig in TERM INT HUP; do
    SLUICE_FAULT="pg.push_read:sleep=5000@2" sluice --repo-path="$work/repo" --stanza=main archive-push "$wal/$(name 1 20)" >"$work/out" 2>&1 &
    pid=$!
    sleep 0.7
    kill -$sig $pid
    got=0
    wait $pid || got=$?
    [ "$got" -ge 1 ] && [ "$got" -le 125 ] || die "archive-push ended by SIG$sig: $got"
  done
  got=$(status env SLUICE_FAULT="pg.push_read:sleep=60000@2" sluice --repo-path="$work/repo" --stanza=main archive-push --timeout=1s "$wal/$(name 1 20)")
  [ "$got" -ge 1 ] && [ "$got" -le 125 ] || die "archive-push past its deadline: $got"
  for point in pg.push_open pg.push_read posix.link posix.fdatasync posix.pwrite posix.syncdir; do
    got=$(status env SLUICE_FAULT="$point:EIO" sluice --repo-path="$work/repo" --stanza=main archive-push --timeout=5s "$wal/$(name 1 21)")
    [ "$got" -le 125 ] || die "archive-push with $point failing: $got"
  done
  for point in pg.get_open pg.get_write pg.get_rename; do
    expect 200 env SLUICE_FAULT="$point:ENOSPC" sluice --repo-path="$work/repo" --stanza=main archive-get "$(name 1 5)" "$work/none"
    [ ! -e "$work/none" ] && [ ! -e "$work/none.sluice-tmp" ] || die "a file was left after $point"
  done
fi

say "two pushers of one name"
for round in $(seq 30 41); do
  make_wal "$work/a" "$round" 1 a
  make_wal "$work/b" "$round" 1 b
  n=$(name 1 "$round")
  push "$work/a/$n" >"$work/out.a" 2>&1 & one=$!
  push "$work/b/$n" >"$work/out.b" 2>&1 & two=$!
  got1=0 got2=0
  wait $one || got1=$?
  wait $two || got2=$?
  case "$got1 $got2" in
    "0 45") winner=a ;;
    "45 0") winner=b ;;
    *) cat "$work/out.a" "$work/out.b"; die "two pushers ended with $got1 and $got2" ;;
  esac
  expect 0 get "$n" "$work/got"
  cmp "$work/got" "$work/$winner/$n" || die "the loser's content was stored"
done
expect 0 s verify
expect 0 s info
grep -q GAP "$work/out" || die "info does not show the gaps"
s info --output=json >"$work/out" 2>"$work/err"
python3 - "$work/out" <<'PY'
import json, sys
info = json.load(open(sys.argv[1]))
stanza = info['stanza'][0]
assert stanza['status']['code'] == 2, stanza['status']
assert any(a['gaps'] for a in stanza['archive']), stanza['archive']
PY
say "ok"
