#!/bin/bash
# In one of two lab kernels: host 1 serves as the target, host 2 is the client.
#   NUMBER DEVICE plain|lossy|power|cable [SETTINGS OF lane_tool…]
# cable: the link goes down when a file "cut" appears in the folder.
set -u
. "$SLUICE_ROOT/tests/lab/lib.sh"
. "$SLUICE_ROOT/tests/lab/lanes.sh"
number=$1 device=$2 cable=$3
shift 3
lab_host "$number" "$device" || exit 1
if [ "$cable" = lossy ]; then
  tc qdisc add dev vec0 root netem loss 0.5% delay 1ms || exit 1
fi
if [ "$cable" = cable ]; then
  (until [ -e cut ]; do sleep 0.1; done; ip link set vec0 down) &
fi
if [ "$number" = 1 ]; then
  "$lane_tool" serve 7430
else
  "$lane_tool" run 10.99.0.1 7430 "$@"
fi
status=$?
kill %1 2> /dev/null
exit $status
