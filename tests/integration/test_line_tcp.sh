#!/bin/bash
# timeout: 300
# The same through a sluiced over TCP with TLS 1.3.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/cluster.sh"
. "$SLUICE_ROOT/tests/support/line.sh"
start_target t "$work/daemon-repo"
[ -z "$pg_user" ] || chown -R postgres: "$work/pki"
c1_repo_options=$(remote_conf)
new_cluster c1
line_run tcp
kill -0 "$target_pid" || die "sluiced died"
cat "$work/t.log"
