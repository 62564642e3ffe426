#!/bin/bash
# timeout: 900
# The conformance suite of lanes over soft iWARP (siw), both ends in one lab kernel.
set -euo pipefail
. "$SLUICE_ROOT/tests/lab/lanes.sh"
lanes_need
in_guest siw 840 "$lab/lanes_suite_guest.sh" siw
