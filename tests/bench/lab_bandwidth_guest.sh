#!/bin/bash
# In a lab kernel: perftest and lanes by turns over one device; one line a run: WHAT SECONDS MIB/S.
set -u
. "$SLUICE_ROOT/tests/lab/lib.sh"
. "$SLUICE_ROOT/tests/lab/lanes.sh"
device=$1 mib=$2 lanes=$3 depth=$4 rounds=$5
lab_device "$device" > /dev/null || exit 1

# Times the client's whole life, from outside: perftest takes its figures from the processor's
# clock, which cannot be read here. What connecting costs is taken off by a run with hardly any data.
timed() { # COMMAND…: seconds
  local begin=$EPOCHREALTIME
  "$@" > client.log 2>&1 || { echo "failed: $*" >&2; cat client.log >&2; exit 1; }
  echo "$EPOCHREALTIME $begin" | awk '{ print $1 - $2 }'
}
perftest() { # PROGRAM MIB: seconds. ib_read_bw's client reads from the server, as a target pulls.
  local arguments=(-R -F -s 1048576 -q "$lanes" -t "$depth" -n $(($2 / lanes)))
  [ "$1" = ib_read_bw ] && arguments+=(-e -o 16) # ib_write_bw can only poll
  "$1" "${arguments[@]}" > server.log 2>&1 & local server=$!
  sleep 1
  timed "$1" "${arguments[@]}" "$address"
  wait $server
}
sluice() { # MODE MIB: seconds
  "$lane_tool" serve 7430 > server.log 2>&1 & local server=$!
  sleep 1
  timed "$lane_tool" run "$address" 7430 mode="$1" mib="$2" lanes="$lanes" depth="$depth" check=0 notices=0 dead=60000
  wait $server
}
for round in $(seq "$rounds"); do
  for what in "perftest ib_read_bw" "sluice 1" "perftest ib_write_bw" "sluice 2"; do
    few=$($what $((lanes * depth))) || exit 1
    all=$($what $((mib + lanes * depth))) || exit 1
    echo "$what $few $all $mib" | awk '{ printf "%s %s %.2f %.1f\n", $1, $2, $4 - $3, $5 / ($4 - $3) }'
  done
done
