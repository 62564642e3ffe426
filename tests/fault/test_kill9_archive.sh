#!/bin/bash
# timeout: 900
# kill -9 of target and of client at every step of archiving, then again: no acknowledged segment is
# lost, no half object is visible, and the same push succeeds afterwards.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
fake_cluster
make_wal "$work/wal" 1 6
repo=$work/repo
start_target t "$repo"
push() { sluice $(remote) --stanza=main --pg-path="$work/data" --timeout=15s --log-level=error archive-push "$1"; }
get() { sluice $(remote) --stanza=main --pg-path="$work/data" --timeout=10s --log-level=error archive-get "$1" "$2"; }
sluice $(remote) --stanza=main --pg-path="$work/data" stanza-create --no-online >/dev/null
stop_target "$target_pid"
cp -r "$repo" "$work/empty"

# push_alive WAL: pushes, and does not wait for a target that is dead
push_alive() {
  local pid status=0
  push "$1" >/dev/null 2>&1 &
  pid=$!
  while kill -0 $pid 2>/dev/null && kill -0 "$target_pid" 2>/dev/null; do sleep 0.02; done
  if ! kill -0 "$target_pid" 2>/dev/null; then
    sleep 0.3 # an answer that it had already is an acknowledgement
    kill -KILL $pid 2>/dev/null || true
  fi
  wait $pid 2>/dev/null || status=$?
  return $status
}

check_acknowledged() { # every name in $work/ack comes back as it was; nothing visible is damaged
  local name
  while read -r name; do
    get "$name" "$work/got" || die "$1: acknowledged $name is lost"
    cmp -s "$work/got" "$work/wal/$name" || die "$1: $name came back different"
  done <"$work/ack"
  sluice $(remote) --stanza=main verify >"$work/verify.log" 2>&1 || { cat "$work/verify.log"; die "$1: damage is visible"; }
}

rounds=0 deaths=0
# the target dies at the Nth passing of each step
for point in target.pulled target.checked target.written target.finish posix.fdatasync posix.link \
  posix.syncdir posix.syncparent posix.mkdir target.published target.stored; do
  for n in 1 4; do
    rm -rf "$repo"; cp -r "$work/empty" "$repo"; : >"$work/ack"
    target_may_fail=1 start_target t "$repo" "SLUICE_FAULT=$point:kill@$n" || true
    for wal in "$work"/wal/*; do
      kill -0 "$target_pid" 2>/dev/null || break
      if push_alive "$wal"; then basename "$wal" >>"$work/ack"; fi
    done
    acknowledged=$(wc -l <"$work/ack")
    if kill -0 "$target_pid" 2>/dev/null; then
      [ $n != 1 ] || die "$point was never passed: the target lives"
    else
      deaths=$((deaths + 1))
    fi
    kill -KILL "$target_pid" 2>/dev/null || true
    wait "$target_pid" 2>/dev/null || true
    start_target t "$repo"
    check_acknowledged "target killed at $point@$n after $acknowledged"
    for wal in "$work"/wal/*; do push "$wal" || die "push again after $point@$n: $(basename "$wal")"; done
    basename -a "$work"/wal/* >"$work/ack"
    check_acknowledged "after the repetition, $point@$n"
    stop_target "$target_pid"
    rounds=$((rounds + 1))
  done
done
say "$rounds points, the target died at $deaths of them: nothing acknowledged was lost"

# the client dies at each of its steps
rounds=0
rm -rf "$repo"; cp -r "$work/empty" "$repo"; : >"$work/ack"
start_target t "$repo"
wal=("$work"/wal/*)
for point in pg.push_open pg.push_read control.send control.recv tcp.send tcp.recv; do
  for n in 1 2 5; do
    file=${wal[$((rounds % ${#wal[@]}))]}
    if SLUICE_FAULT="$point:kill@$n" push "$file" >/dev/null 2>&1; then basename "$file" >>"$work/ack"; fi
    rounds=$((rounds + 1))
  done
done
check_acknowledged "client killed"
for file in "${wal[@]}"; do push "$file" || die "push again after the client died"; done
basename -a "${wal[@]}" >"$work/ack"
check_acknowledged "after the repetition"
say "client killed at $rounds points: nothing acknowledged was lost, every push can be repeated"
