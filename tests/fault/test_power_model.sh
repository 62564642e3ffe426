#!/bin/bash
# timeout: 600
# Power cuts under archive load, on a file system that keeps only what POSIX promises
# (tests/support/lossyfs.c): every acknowledged segment must be there and whole, nothing half visible.
# Two daemons write the same names at once, so that the loser's own sync counts. Then the test is
# tested: a build that lacks any one sync must lose something.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
rounds=${SLUICE_POWER_ROUNDS:-25}
bytes=70000
[ -e /dev/fuse ] || skip "no /dev/fuse here"
mnt=$work/mnt
mkdir -p "$mnt"
at_exit+=("umount -l '$mnt' 2>/dev/null")
make_pki

# round N FAULTS_A FAULTS_B [LOAD OPTIONS…]: load, cut, look. Answers repo_check's status.
round() {
  local n=$1 faults_a=$2 faults_b=$3 status=0 pid_a pid_b port_a port_b
  shift 3
  umount -l "$mnt" 2>/dev/null || true
  "$tools/lossyfs" "$mnt"
  rm -f "$work/ack"; : >"$work/ack"
  # one daemon makes the repository, before the clock runs
  start_target a "$mnt/repo" "SLUICE_FAULT=$faults_a"; pid_a=$target_pid port_a=$port
  start_target b "$mnt/repo" "SLUICE_FAULT=$faults_b"; pid_b=$target_pid port_b=$port
  "$tools/archive_load" --stanza main --ack "$work/ack" --count 400 --bytes $bytes --threads 3 \
    --host "localhost:$port_a" --host2 "localhost:$port_b" --pki "$work/pki" --client db1 \
    --io-ms 4000 "$@" >"$work/load.log" 2>&1 &
  local load=$!
  started_pids+=("$load")
  # a moment of its own for each round
  sleep "0.$((10 + (n * 37) % 60))"
  local tries=0
  while [ "$(wc -l <"$work/ack")" -lt $((1 + n % 13)) ] && [ $tries -lt 200 ]; do sleep 0.01; tries=$((tries + 1)); done
  cp "$work/ack" "$work/ack-before" # acknowledged before the cut began
  mkdir "$mnt/.cut" 2>/dev/null || true
  kill -KILL "$pid_a" "$pid_b" "$load" 2>/dev/null || true
  wait "$pid_a" "$pid_b" "$load" 2>/dev/null || true
  mkdir "$mnt/.resume" 2>/dev/null || true
  "$tools/repo_check" "$mnt/repo" main "$work/ack-before" $bytes >"$work/check.log" 2>&1 || status=$?
  acknowledged=$(wc -l <"$work/ack-before")
  return $status
}

total=0
for n in $(seq "$rounds"); do
  if ! round "$n" "" "posix.syncdir:sleep=$((n % 3 * 50))@2+"; then
    cat "$work/check.log"; die "round $n lost something"
  fi
  total=$((total + acknowledged))
done
say "$rounds power cuts, $total acknowledged segments, none lost"
[ "$total" -ge "$rounds" ] || die "hardly anything was acknowledged before the cuts: the test proves nothing"

# crippled NAME FAULTS_A FAULTS_B [LOAD OPTIONS…]: must be caught within some rounds
crippled() {
  local n name=$1
  shift
  for n in $(seq 40); do
    if ! round "$n" "$@"; then
      say "without $name: caught in round $n: $(grep -c . "$work/check.log") lines, first: $(head -n 1 "$work/check.log")"
      return 0
    fi
  done
  die "a build without $name passed 40 power cuts: the test is blind to it"
}
crippled "the file's sync" "posix.fdatasync:skip@1+" "posix.fdatasync:skip@1+"
# both writers of a name sync its folder, so leaving it out means leaving out both
none=posix.syncdir:skip@1+,posix.settle_dir:skip@1+
crippled "the folder's sync" $none $none
# (the repository's own folders are made with theirs; those of the segments are not)
parents=posix.syncparent:skip@12+
crippled "the new parents' sync" $parents $parents
# The winner takes its time between link and sync; the other writer comes when the name is there and
# must make it durable itself before it answers "identical". Both builds are tried: one that does, one
# that does not.
slow=posix.syncdir:sleep=500@2+
for n in 1 2 3; do
  round "$n" $slow "" --chase "$mnt/repo" || { cat "$work/check.log"; die "what the second writer acknowledged was lost"; }
done
crippled "the loser's own sync" $slow posix.settle_file:skip@1+,posix.settle_dir:skip@1+ --chase "$mnt/repo"
