#!/bin/bash
# timeout: 300
# sluice push and sluice pull with real pipes, to a folder and to a sluiced: what comes back is what
# went in; a failed command, a signal, a lost target, a reader that goes away leave nothing behind.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
fake_cluster
cd "$work"
local_=(sluice --repo-path="$work/repo" --stanza=main) # in the background: its own pid, not a shell's
s() { "${local_[@]}" "$@"; }
stored() { find "$work/repo/main/stream" -type f 2>/dev/null | sort; }
# nothing NAME: no such stream, and no temporary with content of it
nothing() { [ ! -e "$work/repo/main/stream/$1" ] || die "$1 was published: $2"; }
faults() { grep -q SLUICE_FAULT "$SLUICE_BUILD/bin/sluice"; }
# waits until FILE matches
until_in() { for _ in $(seq 600); do grep -q "$2" "$1" 2>/dev/null && return; sleep 0.05; done; cat "$1"; die "\"$2\" did not come"; }
head -c 5000003 /dev/urandom >a
{ head -c 3000000 a; head -c 9000000 /dev/zero; head -c 7000001 /dev/zero | tr '\0' x; } >b

say "before there is a repository, or the stanza"
got=0
s push x <a >out 2>&1 || got=$?
[ $got != 0 ] && grep -q stanza-create out || { cat out; die "push without a repository: $got"; }
expect 0 s stanza-create --no-online --pg-path="$work/data"
expect 55 sluice --repo-path="$work/repo" --stanza=mian push x <a
grep -q 'stanza "mian" is not in the repository' out || { cat out; die "the stanza is not named"; }

say "there and back"
for f in a b; do
  cat $f | s push "$f.xb" >out 2>&1 || { cat out; die "push"; }
  s pull "$f.xb" | cmp - $f || die "$f came back different"
  s pull "$f.xb" >got
  cmp got $f
done
head -c 1 a | s push one >out
[ "$(s pull one | wc -c)" = 1 ]
head -c 2097152 a | s push exact >out # whole blocks
head -c 2097152 a | cmp - <(s pull exact)
(sleep 1; cat a; sleep 2; cat b) | s push slow >out # silence is no failure
cat a b | cmp - <(s pull slow)
s push --compress-type=none file <a >out 2>&1 # a file as standard input
s pull file | cmp - a
cat a | s push part 3 >out
s pull part 3 | cmp - a
s pull part.3 | cmp - a
cat a | s push --output=json json >out
python3 - out <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
assert r['name'] == 'json' and r['bytes'] == 5000003 and r['created'] is True, r
PY
s pull --output=json json | cmp - a # standard output is the stream's alone

say "the same again, another content, names"
expect 0 s push a.xb <a
grep -q already out || { cat out; die "it does not say that it is there"; }
expect 45 s push a.xb <b
s pull a.xb | cmp - a
for bad in .x a/b "" "a b" ../x "$(printf 'x%.0s' $(seq 201))" ä; do expect 31 s push "$bad" <a; done
expect 31 s push x y <a
expect 31 s push x 1 2 <a
expect 31 s push x --
expect 31 s push x --dry-run <a
expect 55 s pull none
[ ! -s out ] || grep -q none out
expect 42 s push empty </dev/null
nothing empty "an empty stream"

say "a command: its status decides"
expect 0 s push cmd -- cat a
s pull cmd | cmp - a
expect 0 s push shell -- sh -c 'cat "$1"; echo "$2"' sh a --help # which is not ours
s pull shell | cmp - <(cat a; echo --help)
expect 0 s push words 7 -- sh -c 'cat a'
s pull words 7 | cmp - a
expect 42 s push failed -- sh -c 'cat a; exit 3'
grep -q 'status 3' out || { cat out; die "the status is not named"; }
nothing failed "its command ended with 3"
expect 42 s push killed -- sh -c 'cat a; kill -9 $$'
grep -q 'signal 9' out || { cat out; die "the signal is not named"; }
nothing killed "its command was killed"
expect 42 s push silent -- true
nothing silent "its command wrote nothing"
expect 41 s push nocmd -- /no/such/program
expect 41 s push nocmd -- no-such-program
nothing nocmd "there is no such command"
expect 66 s push --timeout=1s lingers -- sh -c 'cat a; echo $$ >child; exec >&-; exec sleep 60'
nothing lingers "its command did not end"
! kill -0 "$(cat child)" 2>/dev/null || die "the command was left running"
rm child

say "signals: SIGTERM, SIGINT, kill -9"
mkfifo pipe
for sig in TERM INT KILL; do
  "${local_[@]}" push "sig-$sig" <pipe >sig.out 2>&1 &
  pid=$!
  exec 7>pipe
  cat a >&7
  sleep 0.3
  kill -$sig $pid
  got=0
  wait $pid || got=$?
  exec 7>&-
  case $sig in
    KILL) [ $got = 137 ] ;;
    *) [ $got = 70 ] || { cat sig.out; die "push ended by SIG$sig: $got"; } ;;
  esac
  nothing "sig-$sig" "push got SIG$sig"
done
"${local_[@]}" push sigcmd -- sh -c 'cat a; echo $$ >child; exec sleep 1000' >sig.out 2>&1 &
pid=$!
until_in child .
kill -TERM $pid
got=0
wait $pid || got=$?
[ $got = 70 ] || { cat sig.out; die "push of a command ended by SIGTERM: $got"; }
! kill -0 "$(cat child)" 2>/dev/null || die "the command was left running"
nothing sigcmd "push of a command got SIGTERM"
expect 0 s push sig-TERM <a # the name is free

say "pull: a reader that goes away, a slow one and a signal, damage"
got=0
(s pull slow 2>pull.err; echo $? >status) | head -c 10 >/dev/null || true
[ "$(cat status)" = 64 ] || { cat pull.err; die "pull to a closed pipe: $(cat status)"; }
grep -q 'reader of standard output' pull.err || { cat pull.err; die "the reader is not named"; }
"${local_[@]}" pull slow >pipe 2>pull.err &
pid=$!
exec 7<pipe
head -c 10 <&7 >/dev/null
sleep 0.5
kill -TERM $pid
got=0
wait $pid || got=$?
exec 7<&-
[ $got = 70 ] || { cat pull.err; die "pull ended by SIGTERM: $got"; }
if [ -w /dev/full ]; then
  got=0
  s pull a.xb >/dev/full 2>out || got=$?
  [ $got = 60 ] || { cat out; die "pull to a full disk: $got"; }
fi
cp "$work/repo/main/stream/file" saved
printf x | dd of="$work/repo/main/stream/file" bs=1 seek=2500000 conv=notrunc status=none
got=0
s pull file >got 2>out || got=$?
[ $got = 26 ] || { cat out; die "a damaged stream: $got"; }
cmp -n "$(stat -c %s got)" got a || die "damage was handed out"
expect 26 s verify
cp saved "$work/repo/main/stream/file"

if faults; then
  say "faults"
  for point in stream.read child.spawn child.pipe posix.link posix.fdatasync posix.pwrite posix.syncdir; do
    got=0
    SLUICE_FAULT="$point:EIO" s push fault -- cat a >out 2>&1 || got=$?
    [ $got != 0 ] || die "push with $point failing ended with 0"
    s pull fault 2>/dev/null | cmp -s - a && rm "$work/repo/main/stream/fault" # synced late, but whole
    nothing fault "with $point failing"
  done
  got=0
  SLUICE_FAULT=stream.write:EIO s pull a.xb >got 2>out || got=$?
  [ $got = 64 ] || { cat out; die "pull with stream.write failing: $got"; }
fi

say "info, verify"
expect 0 s verify
expect 0 s info
grep -q 'streams: a.xb, 5.00 MB' out || { cat out; die "info does not list the streams"; }
s info --output=json >out
python3 - out <<'PY'
import json, sys
streams = {x['name']: x for x in json.load(open(sys.argv[1]))['stanza'][0]['stream']}
assert streams['a.xb']['size'] == 5000003, streams
assert streams['part.3']['creator'].startswith('local:'), streams
assert 'failed' not in streams and 'sigcmd' not in streams
PY

say "a sluiced: there and back; target gone in the middle"
start_target tcp "$work/repo"
r() { sluice $(remote) --stanza=main "$@"; }
cat a b | r push far >out 2>&1 || { cat out; die "push to sluiced"; }
cat a b | cmp - <(r pull far)
expect 63 sluice $(remote) --stanza=other push denied <a
sluice $(remote) --stanza=main push --timeout=5s gone <pipe >gone.out 2>&1 &
pid=$!
exec 7>pipe
cat a >&7
sleep 1
kill -KILL "$target_pid"
got=0
wait $pid || got=$?
exec 7>&-
[ $got != 0 ] || die "push with its target gone ended with 0"
grep -q 'nothing was stored' gone.out || { cat gone.out; die "it does not say that nothing was stored"; }
nothing gone "its target was killed"
[ -z "$(stored | grep -E '/(failed|killed|silent|nocmd|lingers|sig-KILL|sig-INT|gone|denied)$')" ] || die "$(stored)"
say "ok"
