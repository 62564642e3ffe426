#!/bin/bash
# In a lab kernel: the conformance suite of lanes over one device, rxe or siw.
set -u
. "$SLUICE_ROOT/tests/lab/lib.sh"
. "$SLUICE_ROOT/tests/lab/lanes.sh"
lab_device "$1" || exit 1
"$lane_tool" describe || exit 1
LANE_HOST=$address "$lane_lab"
