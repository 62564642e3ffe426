#!/bin/bash
# timeout: 1500
# Power cuts of the target's kernel under archive load, in a loop on one disk (tests/lab/power_loop):
# after each, what was ever acknowledged must be there and whole, and nothing half made visible. ext4
# and XFS in turns. By default a few rounds; SLUICE_POWER_LOOP=200 for the whole number.
#
# What this shows: the real kernel's page cache, journal and recovery, and a daemon and a client that
# go on after each cut. What it cannot show: a kernel that is killed keeps every write that it gave to
# its disk, flushed or not; lab/test_power_replay.sh drops those.
#
# Then the test is tested. Builds without a sync must lose something here; each is cut in a moment
# that leaves no way out:
#   file    O_DIRECT off, so that only fdatasync moves the bytes: the name is in the journal, the bytes
#           are not
#   folder  one object after the other from one thread, and the power fails when the last was
#           acknowledged: no later object's fdatasync commits the journal with the earlier link in it
#   loser   two daemons, one object: one links and sleeps before it syncs, the other finds the name
#           taken (its own fdatasync lies before that link) and answers; cut at that answer
#           (lab_loser). With the sync in place the same must survive.
#   parent  not to be seen on ext4 and XFS: mkdir changes the new folder and its parent in one
#           transaction, so that the folder's own fsync brings both. fault/test_power_model.sh shows it.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
rounds=${SLUICE_POWER_LOOP:-14}
loop=$SLUICE_ROOT/tests/lab/power_loop
sluice cert init "$work/pki" >/dev/null
sluice cert issue target --dir "$work/pki" --alt-name 10.99.0.2 >/dev/null
sluice cert issue db1 --dir "$work/pki" >/dev/null
export PKI=$work/pki

# in_loop NAME FS ROUNDS OPTION…: 0 all there, 1 something lost
in_loop() {
  local name=$1 status=0
  shift
  "$loop" "$work/$name" "$@" >"$work/$name.log" 2>&1 || status=$?
  cat "$work/$name.log"
  [ $status = 0 ] || [ $status = 1 ] || die "$name: the lab ended with $status"
  rm -rf "${work:?}/$name"
  return $status
}

say "$rounds rounds (SLUICE_POWER_LOOP)"
for fs in ext4 xfs; do
  in_loop $fs $fs $(((rounds + 1) / 2)) || die "$fs lost an acknowledged segment, or shows half a one"
done

caught() { # NAME FS OPTION…
  local name=$1 fs=$2
  shift 2
  say "$fs without the $name:"
  ! in_loop "$fs-${name//[^a-z]/-}" "$fs" 4 "$@" || die "$fs: a build without the $name passed: the test is blind to it"
}
. "$SLUICE_ROOT/tests/lab/lib.sh"
winner=$lab_winner_faults
loser=$lab_loser_faults
for fs in ext4 xfs; do
  caught "file's sync" $fs --quiet 5 --faults "posix.direct:EINVAL@1+,posix.fdatasync:skip@1+"
  caught "folder's sync" $fs --quiet 5 --faults "posix.syncdir:skip@1+,posix.syncparent:skip@1+,posix.settle_dir:skip@1+"
  caught "loser's own sync" $fs --quiet 1 --faults "$winner" \
    --faults2 "$loser,posix.settle_file:skip@1+,posix.settle_dir:skip@1+,posix.syncparent:skip@1+"
  say "$fs with it, at the same moment:"
  in_loop "$fs-loser" $fs 1 --quiet 1 --faults "$winner" --faults2 "$loser" || die "$fs: the loser's answer was not durable"
done
say "nothing acknowledged was lost; every crippled build was caught"
