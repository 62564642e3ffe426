#!/bin/bash
# timeout: 300
# A real PostgreSQL 15: archived, backed up, restored to a point in time, compared; the repository is
# a folder, the target embedded in the commands.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/cluster.sh"
. "$SLUICE_ROOT/tests/support/line.sh"
new_cluster c1
line_run local
