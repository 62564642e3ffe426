#!/bin/bash
# timeout: 600
# The target's disk is full at many points of archive and backup: a clear error, old data intact,
# and it works again after space was freed.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
[ "$(id -u)" = 0 ] || skip "needs root to mount a small tmpfs"
fake_cluster
make_wal "$work/wal" 1 24
mkdir -p "$work/small"
at_exit+=("umount -l '$work/small' 2>/dev/null")
push() { sluice $(remote) --stanza=main --pg-path="$work/data" --timeout=20s --log-level=error archive-push "$1"; }
get() { sluice $(remote) --stanza=main --pg-path="$work/data" --timeout=20s --log-level=error archive-get "$1" "$2"; }
full_seen=0
for size in 1100k 1200k 2300k 3500k 5100k 8300k; do
  mount -t tmpfs -o size=$size,nr_inodes=400 tmpfs "$work/small"
  start_target t "$work/small/repo"
  sluice $(remote) --stanza=main --pg-path="$work/data" stanza-create --no-online >/dev/null
  : >"$work/ack"
  status=0
  for wal in "$work"/wal/*; do
    push "$wal" >"$work/push.log" 2>&1 || { status=$?; break; }
    basename "$wal" >>"$work/ack"
  done
  [ $status != 0 ] || die "24 MB fitted into $size?"
  [ $status = 60 ] || { cat "$work/push.log"; die "status $status for a full target, wanted 60"; }
  grep -qi 'no space' "$work/push.log" || { cat "$work/push.log"; die "the error does not say that space is short"; }
  full_seen=$((full_seen + 1))
  while read -r name; do
    get "$name" "$work/got" && cmp -s "$work/got" "$work/wal/$name" || die "$size: $name is lost"
  done <"$work/ack"
  sluice $(remote) --stanza=main verify >"$work/verify.log" 2>&1 || { cat "$work/verify.log"; die "$size: damage is visible"; }
  mount -o remount,size=64m "$work/small"
  for wal in "$work"/wal/*; do push "$wal" || die "$size: push fails after space was freed"; done
  stop_target "$target_pid"
  umount "$work/small"
done
say "full at $full_seen sizes: clear errors, nothing lost, works after space was freed"
# inodes run out
mount -t tmpfs -o size=64m,nr_inodes=24 tmpfs "$work/small"
start_target t "$work/small/repo"
sluice $(remote) --stanza=main --pg-path="$work/data" stanza-create --no-online >/dev/null
status=0
for wal in "$work"/wal/*; do push "$wal" >"$work/push.log" 2>&1 || { status=$?; break; }; done
[ $status = 60 ] || { cat "$work/push.log"; die "status $status when inodes ran out"; }
sluice $(remote) --stanza=main verify >/dev/null || die "damage is visible after inodes ran out"
stop_target "$target_pid"
say "out of inodes: a clear error, nothing damaged"
