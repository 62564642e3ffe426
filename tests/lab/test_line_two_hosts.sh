#!/bin/bash
# timeout: 1100
# The same with the target in a second kernel, over rxe and over siw.
set -euo pipefail
for kind in rxe siw; do
  a=$SLUICE_WORK/$kind-target b=$SLUICE_WORK/$kind-server shared=$SLUICE_WORK/$kind-shared
  mkdir -p "$a" "$b" "$shared"
  prefix="SLUICE_ROOT='$SLUICE_ROOT' SLUICE_BUILD='$SLUICE_BUILD' LINE_SHARED=/mnt/shared"
  mount="mkdir -p /mnt/shared && mount -t hostfs -o $shared none /mnt/shared &&"
  "$SLUICE_ROOT/tests/lab/pair" "$a" "$b" -t 500 -- \
    "$mount $prefix bash $SLUICE_ROOT/tests/lab/line_guest.sh $kind target" -- \
    "$mount $prefix bash $SLUICE_ROOT/tests/lab/line_guest.sh $kind server" || {
    tail -n 60 "$a/output" "$b/output"
    tail -n 10 "$a/console" "$b/console"
    exit 1
  }
  echo "== $kind, target:"; cat "$a/output"
  echo "== $kind, server:"; cat "$b/output"
done
