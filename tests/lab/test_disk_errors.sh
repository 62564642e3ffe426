#!/bin/bash
# timeout: 2400
# The target's disk fails: its writes and flushes (dm-flakey), single sectors when they are read (dm-dust),
# all of it (dm-error), under archive load, backup, restore and verify, on ext4 and XFS. Clear errors that
# name the disk's trouble at the client and in the daemon's log; nothing acknowledged lost; what failed is
# written again, not believed to be there; everything works again when the disk does. archive-get never
# answers "not in the archive" because of a disk.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
images=$(mktemp -d "$([ -d /dev/shm ] && echo /dev/shm || echo "$work")/sluice-disk-XXXXXX")
at_exit+=("rm -rf '$images'")
for fs in ${SLUICE_DISK_FS:-ext4 xfs}; do
  out=$work/$fs status=0
  mkdir -p "$out"
  rm -f "$images"/*
  truncate -s 1G "$images/disk"
  truncate -s 100M "$images/journal"
  "$SLUICE_ROOT/tests/lab/boot" -m 2G -t 1100 -d "$images/disk" -d "$images/journal" "$out" \
    "SLUICE_ROOT='$SLUICE_ROOT' SLUICE_BUILD='$SLUICE_BUILD' bash $SLUICE_ROOT/tests/lab/disk_errors_guest.sh $fs" || status=$?
  say "== $fs"
  cat "$out/output"
  [ $status = 0 ] || { tail -n 20 "$out/console"; die "$fs: status $status"; }
done
