#!/bin/bash
# timeout: 1200
# The target's disk is recorded with dm-log-writes under archive load, then replayed to power cuts at
# flushes and acknowledgements, with a random part of the unflushed writes dropped: every acknowledged
# segment must be there and whole after the file system's own recovery. On ext4 and XFS.
# Then the same with builds that lack a sync, which must fail (those that these file systems can
# show at all: ext4 and XFS sync more than they are asked, tests/fault/test_power_model.sh has the
# rest).
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
cuts=${SLUICE_POWER_CUTS:-40}
few=$((cuts / 4 > 10 ? cuts / 4 : 10)) # for builds that fail at almost every cut
here=$SLUICE_ROOT/tests/lab
make_pki

# in_lab NAME FS FAULTS CUTS [PUSHERS]: one recording and its cuts, in a lab kernel. Status 0 all there,
# 1 something lost.
in_lab() {
  local out=$work/$1 status=0
  mkdir -p "$out"
  rm -f "$out"/*.img
  truncate -s 400M "$out/disk.img"
  truncate -s 900M "$out/log.img"
  cp -r "$work/pki" "$out/"
  "$here/boot" -m 2G -t 500 -d "$out/disk.img" -d "$out/log.img" "$out" \
    "SLUICE_ROOT='$SLUICE_ROOT' SLUICE_BUILD='$SLUICE_BUILD' FS=$2 FAULTS='$3' CUTS=$4 PUSHERS=${5:-4} bash $here/power_replay_guest.sh" || status=$?
  rm -f "$out"/*.img
  if [ $status != 0 ] && [ $status != 1 ]; then
    tail -n 30 "$out/output" "$out/console"
    die "$1: the lab ended with $status"
  fi
  tail -n 1 "$out/output"
  return $status
}

for fs in ext4 xfs; do
  in_lab "$fs" $fs "" "$cuts" || { tail -n 40 "$work/$fs/output"; die "$fs lost an acknowledged segment"; }
done
# without O_DIRECT a file's bytes reach the disk only by its own sync
for fs in ext4 xfs; do
  if in_lab "$fs-no-filesync" $fs "posix.direct:EINVAL@1+,posix.fdatasync:skip@1+" "$few"; then
    die "$fs: a build without the file's sync passed: the test is blind to it"
  fi
  # a folder's entry reaches the disk with the file system's own journal at the next sync of anything:
  # so one pusher, and the cut right behind its acknowledgement
  if in_lab "$fs-no-dirsync" $fs "posix.syncdir:skip@1+,posix.syncparent:skip@1+,posix.settle_dir:skip@1+" "$few" 1; then
    die "$fs: a build without the folder's sync passed: the test is blind to it"
  fi
done
say "all acknowledged segments survived every cut; both crippled builds were caught on both file systems"
