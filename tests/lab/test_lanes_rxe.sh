#!/bin/bash
# timeout: 900
# The conformance suite of lanes over Soft-RoCE (rxe), both ends in one lab kernel.
set -euo pipefail
. "$SLUICE_ROOT/tests/lab/lanes.sh"
lanes_need
in_guest rxe 840 "$lab/lanes_suite_guest.sh" rxe
