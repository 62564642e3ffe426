#!/bin/bash
# timeout: 1200
# postgres: 18
# A cluster of many small relations and WAL segments of 64 MB: backup and restore take bounded memory,
# nothing is lost. (BR#1877, WG#224: memory; BR#2215: short reads.)
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/cluster.sh"
initdb_options=--wal-segsize=64 new_cluster c1
say "$(postgres --version)"
many=100000
memory_mib=96 # staging memory and 32 MiB, the target in the same process
c1_psql -c "create table t as select i, md5(i::text) from generate_series(1, 10000) i"
folder=$(dirname "$c1_data/$(c1_psql -c "select pg_relation_filepath('t')")")
# files as relations leave them; the server does not mind those that it has no catalog entry of
as_pg python3 - "$folder" $many <<'PY'
import os, sys
folder, many = sys.argv[1], int(sys.argv[2])
for i in range(many):
    with open(f"{folder}/{1000000 + i}", "wb") as f:
        if i % 4:
            f.truncate(8192 * (i % 3))
PY
expect 0 c1_sluice stanza-create
expect 0 c1_sluice check --archive-timeout=300s

measured() { # COMMAND…: as c1_sluice, and its greatest resident memory stays below the bound
  as_pg python3 - "$memory_mib" sluice --config="$work/c1.conf" "$@" <<'PY'
import resource, subprocess, sys
status = subprocess.call(sys.argv[2:])
mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print(f"{sys.argv[4]}: {mib:.0f} MiB resident")
sys.exit(status or (99 if mib > float(sys.argv[1]) else 0))
PY
}
say "backup"
expect 0 measured backup --archive-timeout=300s
cat "$work/out"
say "restore"
expect 0 measured restore --datadir="$work/r1" --target-action=promote --type=immediate
cat "$work/out"
expect 0 as_pg pg_verifybackup -n "$work/r1"
[ "$(find "$work/r1/base" -name '1??????' | wc -l)" -ge $many ] || die "files are missing"
start_restored "$work/r1"
[ "$(r_psql -c "select count(*) from t")" = 10000 ]
stop_restored "$work/r1" immediate
say "delta restore"
as_pg rm "$work/r1/base/5/1000005" 2>/dev/null || true
expect 0 measured restore --datadir="$work/r1" --type=immediate --delta
cat "$work/out"
[ "$(find "$work/r1/base" -name '1??????' | wc -l)" -ge $many ] || die "files are missing"
expect 0 as_pg pg_verifybackup -n "$work/r1"
say ok
