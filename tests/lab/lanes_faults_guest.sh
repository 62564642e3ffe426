#!/bin/bash
# In a lab kernel, over one device (rxe, siw): the peer is killed or stopped, the link goes down, the
# device is to be removed, each while blocks move. Both sides must notice in bounded
# time (lane_tool gives a silent peer up after 4 s here) and answer every piece of work; then new
# lanes work, where the device is still there.
set -u
. "$SLUICE_ROOT/tests/lab/lib.sh"
. "$SLUICE_ROOT/tests/lab/lanes.sh"
device=$1
lab_device "$device" || exit 1
settings=(seconds=60 dead=4000 lanes=2 depth=8)
failures=0
export CONTROL_HOST=127.0.0.1 # so that only the lanes lose their network

start() { # MODE
  timeout 100 "$lane_tool" serve 7430 > target.log 2>&1 & target=$!
  timeout 100 "$lane_tool" run "$address" 7430 mode="$1" "${settings[@]}" > client.log 2>&1 & client=$!
  lab_wait 20 grep -q 'lanes, rdma' target.log && lab_wait 20 grep -q 'lanes, rdma' client.log && sleep 1
}
# The process below the timeout command.
child() { pgrep -P "$1"; }

# ended WHO PID SECONDS WANTED STATUS: within the time, with that status
ended() {
  local until=$((SECONDS + $3)) status=0
  while kill -0 "$2" 2> /dev/null; do
    if [ $SECONDS -ge $until ]; then
      echo "FAILED: the $1 has not noticed within $3 s"
      failures=$((failures + 1))
      kill -KILL "$(child "$2")"
      return
    fi
    sleep 0.1
  done
  wait "$2" || status=$?
  if [ "$status" != "$4" ]; then
    echo "FAILED: the $1 ended with $status, not $4"
    failures=$((failures + 1))
  fi
}

# fault NAME MODE COMMAND: WHO is expected to be left (both, client, target)
fault() {
  local name=$1 mode=$2 left=$3 before
  shift 3
  echo "== $device: $name, $([ "$mode" = 1 ] && echo pulling || echo pushing)"
  if ! start "$mode"; then
    echo "FAILED: no lanes before the fault"
    cat target.log client.log
    failures=$((failures + 1))
  fi
  before=$SECONDS
  eval "$*"
  case $left in
    both) ended target $target 15 3; ended client $client 15 3 ;;
    target) ended target $target 15 3; kill -KILL "$(child $client)" 2> /dev/null; wait $client ;;
    client) ended client $client 15 3; kill -KILL "$(child $target)" 2> /dev/null; wait $target ;;
  esac 2> /dev/null
  tail -q -n 1 target.log client.log
  echo "after $((SECONDS - before)) s"
}

for mode in 1 2; do
  fault "client killed" $mode target 'kill -KILL $(child $client)'
  fault "target killed" $mode client 'kill -KILL $(child $target)'
  fault "client stopped" $mode target 'kill -STOP $(child $client)'
  fault "target stopped" $mode client 'kill -STOP $(child $target)'
done
# Nothing of all that is left behind: lanes work.
settings=(mib=8 lanes=2 depth=8)
echo "== $device: lanes after all this"
start 1
ended target $target 60 0
ended client $client 60 0
settings=(seconds=60 dead=4000 lanes=2 depth=8)
link=roce
[ "$device" = siw ] && link=iwarp
if [ "$device" = siw ]; then # Soft-RoCE does not use the link to talk to itself; two hosts do
  fault "link down" 1 both "ip link set $link down"
  ip link set $link up
  sleep 1
fi
# The kernel lets a software device go only when nobody has it open (they cannot be torn from their
# users, as adapters can: that is the fake device's to show). So the lanes run on, the removal waits
# for their end, and the device can come back.
echo "== $device: device removed while lanes use it"
settings=(seconds=5 dead=4000 lanes=2 depth=8)
start 2
timeout 60 rdma link delete "${device}0" & removal=$!
ended target $target 30 0
ended client $client 30 0
tail -q -n 1 target.log client.log
wait $removal || { echo "FAILED: the device is not removed"; failures=$((failures + 1)); }
"$lane_tool" describe > describe.log && { echo "FAILED: the device is still there"; failures=$((failures + 1)); }
rdma link add "${device}0" type "$device" netdev $link || failures=$((failures + 1))
settings=(mib=8 lanes=2 depth=8)
echo "== $device: lanes over the device that came back"
start 2
ended target $target 60 0
ended client $client 60 0
tail -q -n 1 target.log client.log
[ $failures = 0 ] || { echo "$failures FAILED"; exit 1; }
