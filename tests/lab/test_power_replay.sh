#!/bin/bash
# timeout: 2400
# The target's disk is recorded with dm-log-writes under archive load, then replayed to power cuts, half
# of them anywhere, half right behind an acknowledgement, with a random part of the unflushed writes
# dropped: every acknowledged segment must be there and whole after the file system's own recovery. On
# ext4 and XFS. SLUICE_POWER_CUTS (20) is the number of cuts on each.
#
# Then builds that lack a sync must fail. ext4 and XFS sync more than they are asked: one fsync commits
# the whole journal, with what others did before. So a crippled build is given no such help: one thread,
# one object after the other, the journal's timers off, and the cut right behind an acknowledgement,
# before anything of the next object. Nothing is left to chance then:
#   file    O_DIRECT off, so that only fdatasync moves the bytes: the name is there, the bytes are not
#   folder  the link is in the journal's memory and nowhere else
#   loser   two daemons, one object; the loser's own fdatasync lies before the winner's link, and the
#           winner sleeps before its sync (lab_loser). With the sync in place the same must survive.
#   parent  cannot be seen here: mkdir changes the new folder and its parent in one transaction, so the
#           folder's own fsync brings both. fault/test_power_model.sh shows it, on a file system that
#           keeps no more than POSIX promises.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
cuts=${SLUICE_POWER_CUTS:-20}
here=$SLUICE_ROOT/tests/lab
make_pki
# the disks are in memory: a flush costs nothing there
images=$(mktemp -d "$([ -d /dev/shm ] && echo /dev/shm || echo "$work")/sluice-power-XXXXXX")
at_exit+=("rm -rf '$images'")

for fs in ext4 xfs; do
  out=$work/$fs status=0
  mkdir -p "$out"
  rm -f "$images"/*
  truncate -s 400M "$images/disk"
  truncate -s 900M "$images/log"
  cp -r "$work/pki" "$out/"
  "$here/boot" -m 2G -t 1100 -d "$images/disk" -d "$images/log" "$out" \
    "SLUICE_ROOT='$SLUICE_ROOT' SLUICE_BUILD='$SLUICE_BUILD' bash $here/power_replay_guest.sh $fs $cuts loser-whole file folder loser" || status=$?
  cat "$out/output"
  [ $status = 0 ] || { tail -n 20 "$out/console"; die "$fs: the lab ended with $status"; }
  for case in "$cuts" loser-whole; do
    [ "$(cat "$out/result-$case")" = 0 ] || die "$fs lost an acknowledged segment ($case)"
  done
  for case in file folder loser; do
    [ "$(cat "$out/result-$case")" = 1 ] || die "$fs: a build without this sync passed ($case): the test is blind to it"
  done
done
say "all acknowledged segments survived every cut; every crippled build was caught on both file systems"
