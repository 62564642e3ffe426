#!/bin/bash
# timeout: 600
# PostgreSQL archived, backed up, restored and compared over siw: target and server in one kernel.
set -euo pipefail
"$SLUICE_ROOT/tests/lab/boot" -t 500 "$SLUICE_WORK" \
  "SLUICE_ROOT='$SLUICE_ROOT' SLUICE_BUILD='$SLUICE_BUILD' bash $SLUICE_ROOT/tests/lab/line_guest.sh siw one" || {
  tail -n 60 "$SLUICE_WORK/output"
  tail -n 20 "$SLUICE_WORK/console"
  exit 1
}
cat "$SLUICE_WORK/output"
