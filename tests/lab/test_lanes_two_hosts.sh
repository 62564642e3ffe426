#!/bin/bash
# timeout: 600
# Two lab kernels as two hosts, joined by a cable: blocks are pulled and pushed, every one compared,
# over Soft-RoCE and over soft iWARP; then the same while the cable loses and delays packets; then
# one host loses its power, or its cable, and who is left must notice and answer all its work.
set -euo pipefail
. "$SLUICE_ROOT/tests/lab/lanes.sh"
lanes_need

# two NAME DEVICE ARGUMENTS OF HOST 1 -- ARGUMENTS OF HOST 2
two() {
  local a=$SLUICE_WORK/$1-target b=$SLUICE_WORK/$1-client status=0
  rm -rf "$a" "$b"
  mkdir -p "$a" "$b"
  "$lab/pair" "$a" "$b" -t 120 -m 1G -- \
    "export SLUICE_ROOT='$SLUICE_ROOT' SLUICE_BUILD='$SLUICE_BUILD'; bash $lab/lanes_host_guest.sh 1 $2 ${*:3}" -- \
    "export SLUICE_ROOT='$SLUICE_ROOT' SLUICE_BUILD='$SLUICE_BUILD'; bash $lab/lanes_host_guest.sh 2 $2 ${*:3}" || status=$?
  echo "== $1: host 1 (target)"; cat "$a/output"
  echo "== $1: host 2 (client)"; cat "$b/output"
  return $status
}

for device in rxe siw; do
  two "$device-pull" $device plain mode=1 mib=24 || exit 1
  two "$device-push" $device plain mode=2 mib=24 || exit 1
  two "$device-lossy" $device lossy mode=1 mib=8 dead=30000 || exit 1

  # The client's host loses its power, or its cable, while the target pulls.
  for fault in power cable; do
    a=$SLUICE_WORK/$device-$fault-target b=$SLUICE_WORK/$device-$fault-client
    rm -rf "$a" "$b"
    mkdir -p "$a" "$b"
    # Soft-RoCE itself notices that nobody answers, long before the caller's deadline; soft iWARP is
    # a TCP connection, and leaves it to the deadline.
    dead=8000
    [ "$device $fault" = "rxe power" ] && dead=25000
    "$lab/pair" "$a" "$b" -t 120 -m 1G -- \
      "export SLUICE_ROOT='$SLUICE_ROOT' SLUICE_BUILD='$SLUICE_BUILD'; bash $lab/lanes_host_guest.sh 1 $device plain" -- \
      "export SLUICE_ROOT='$SLUICE_ROOT' SLUICE_BUILD='$SLUICE_BUILD'; bash $lab/lanes_host_guest.sh 2 $device $fault mode=1 seconds=60 dead=$dead" &
    pair=$!
    for _ in $(seq 600); do grep -q 'lanes, rdma' "$b/output" 2> /dev/null && break; sleep 0.1; done
    sleep 2
    echo "== $device: host 2 loses its $fault"
    cut=$SECONDS
    if [ $fault = power ]; then
      kill -KILL -- "-$(cat "$b/pid")"
    else
      touch "$b/cut"
    fi
    status=0
    wait $pair || status=$?
    echo "host 1: $(tail -n 1 "$a/output")"
    echo "host 2: $(tail -n 1 "$b/output")"
    grep -q '^target: lost' "$a/output" || { echo "the target did not notice (status $status)"; exit 1; }
    [ "$device $fault" != "rxe power" ] || grep -q 'retry counter exceeded' "$a/output" || { echo "not by its retries"; exit 1; }
    [ $fault = power ] || grep -q '^client: lost' "$b/output" || { echo "the client did not notice (status $status)"; exit 1; }
    echo "noticed, and the kernels down, within $((SECONDS - cut)) s"
    [ $((SECONDS - cut)) -le 40 ] || { echo "too late"; exit 1; }
  done
done
