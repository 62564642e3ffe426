#!/bin/bash
# timeout: 900
# Peers killed and stopped, links down, devices taken away, over Soft-RoCE and soft iWARP.
set -euo pipefail
. "$SLUICE_ROOT/tests/lab/lanes.sh"
lanes_need
for device in rxe siw; do
  in_guest faults-$device 400 "$lab/lanes_faults_guest.sh" $device
done
