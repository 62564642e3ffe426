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

# round N FAULTS_A FAULTS_B: load, cut, look. Answers repo_check's status.
round() {
  local n=$1 status=0 pid_a pid_b port_a port_b i
  umount -l "$mnt" 2>/dev/null || true
  "$tools/lossyfs" "$mnt"
  rm -f "$work/ack"; : >"$work/ack"
  # one daemon makes the repository, before the clock runs
  start_target a "$mnt/repo" "SLUICE_FAULT=$2"; pid_a=$target_pid port_a=$port
  start_target b "$mnt/repo" "SLUICE_FAULT=$3"; pid_b=$target_pid port_b=$port
  "$tools/archive_load" --stanza main --ack "$work/ack" --count 400 --bytes $bytes --threads 3 \
    --host "localhost:$port_a" --host2 "localhost:$port_b" --pki "$work/pki" --client db1 \
    --io-ms 4000 >"$work/load.log" 2>&1 &
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

# crippled NAME FAULTS_A FAULTS_B: must be caught within some rounds
crippled() {
  local n
  for n in $(seq 40); do
    if ! round "$n" "$2" "$3"; then
      say "without $1: caught in round $n: $(grep -c . "$work/check.log") lines, first: $(head -n 1 "$work/check.log")"
      return 0
    fi
  done
  die "a build without $1 passed 40 power cuts: the test is blind to it"
}
crippled "the file's sync" "posix.fdatasync:skip@1+" "posix.fdatasync:skip@1+"
crippled "the folder's sync" "posix.syncdir:skip@1+" "posix.syncdir:skip@1+"
crippled "the new parents' sync" "posix.syncparent:skip@1+" "posix.syncparent:skip@1+"
# the winner takes its time between link and sync: that is when the loser's own sync counts
slow=posix.syncdir:sleep=150@2+,posix.settle_file:skip@1+,posix.settle_dir:skip@1+
crippled "the loser's own sync" $slow $slow
