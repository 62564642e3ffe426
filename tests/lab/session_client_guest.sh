#!/bin/bash
# In one of two lab kernels: host 2, with a PostgreSQL, and the cases named in the arguments after the
# KIND of device. Each case begins with all well and leaves all well; see session_cases.sh.
set -euo pipefail
export SLUICE_WORK=/tmp/session
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/lab/lib.sh"
at_exit+=('echo $status > "$SHARED/done.new"; mv "$SHARED/done.new" "$SHARED/done"')
kind=$1
shift
lab_plugged_host 2 "$kind"
ulimit -l 65536
lab_wait 200 test -e "$SHARED/up" || die "host 1 is not there"
cp -r "$SHARED/pki" "$work/pki"
chmod 600 "$work"/pki/*.key
. "$SLUICE_ROOT/tests/support/cluster.sh"
. "$SLUICE_ROOT/tests/lab/session_cases.sh"
chown -R postgres: "$work/pki"
c1_repo_options="repo-host = 10.99.0.1:7430
tls-cert = $work/pki/db1.crt
tls-key = $work/pki/db1.key
tls-ca = $work/pki/ca.crt
log-level = info
memory = 8MiB
lanes = 2
queue-depth = 4
timeout = 90s
compress-type = none"
new_cluster c1
session_data
for case in "$@"; do
  start=$SECONDS
  say "== $kind: $case"
  "case_$case"
  say "-- $case: passed after $((SECONDS - start)) s"
done
