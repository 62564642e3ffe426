#!/bin/bash
# timeout: 1300
# A session over RDMA between two hosts loses its cable for a moment, for long and for good,
# and the target's power, in the middle of a backup, a restore and archiving: each is noticed in
# bounded time and named, the work goes on or ends with a clear error, nothing that was acknowledged is
# lost, and a repetition succeeds.
set -euo pipefail
. "$SLUICE_ROOT/tests/lab/session.sh"
# power_archive comes last: its segments are no cluster's, and lie ahead of the cluster's own on the same
# timeline, so that a server restored afterwards finds a gap and rightly refuses to start
session_pair rxe 800 ${SESSION_CASES:-blip cut gone power power_archive}
# over iWARP the lanes are TCP streams, which outlive a blip; what ends a session ends it there too
[ -n "${SESSION_CASES:-}" ] || session_pair siw 400 cut gone
