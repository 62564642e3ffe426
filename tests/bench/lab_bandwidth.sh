#!/bin/bash
# Pull and push against perftest (ib_read_bw -e: waiting for events, as lanes do; ib_write_bw, which
# can only poll) in one lab kernel over Soft-RoCE and soft iWARP: same device, queue pairs, depth and
# block size, by turns. Prints the medians and their ratio; the bar is 95 %.
#
#   SLUICE_BUILD=build/release tests/bench/lab_bandwidth.sh [MIB [LANES [DEPTH [ROUNDS]]]]
#
# The processors are emulating the adapters, so only the ratio means anything. Not a test.
set -euo pipefail
SLUICE_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
SLUICE_BUILD=$(cd "${SLUICE_BUILD:-$SLUICE_ROOT/build/dev}" && pwd)
SLUICE_WORK=${SLUICE_WORK:-$(mktemp -d)}
export SLUICE_ROOT SLUICE_BUILD SLUICE_WORK
. "$SLUICE_ROOT/tests/lab/lanes.sh"
lanes_need
command -v ib_read_bw > /dev/null || { echo "no perftest"; exit 77; }
mib=${1:-512} lanes=${2:-4} depth=${3:-16} rounds=${4:-5}
median() { sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
for device in ${SLUICE_BENCH_DEVICES:-rxe siw}; do
  out=$SLUICE_WORK/bandwidth-$device
  mkdir -p "$out"
  "$lab/boot" -t 1500 "$out" "export SLUICE_ROOT='$SLUICE_ROOT' SLUICE_BUILD='$SLUICE_BUILD'; bash $SLUICE_ROOT/tests/bench/lab_bandwidth_guest.sh $device $mib $lanes $depth $rounds" || { cat "$out/output"; exit 1; }
  for pair in "pull ib_read_bw 1" "push ib_write_bw 2"; do
    set -- $pair
    theirs=$(awk -v w="$2" '$1 == "perftest" && $2 == w { print $4 }' "$out/output" | median)
    ours=$(awk -v w="$3" '$1 == "sluice" && $2 == w { print $4 }' "$out/output" | median)
    echo "$device $1 $ours $theirs $2" | awk '{ printf "%s %s: %.0f MiB/s, %s %.0f MiB/s: %.1f %%\n", $1, $2, $3, $5, $4, 100 * $3 / $4 }'
  done
done
