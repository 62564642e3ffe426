#!/bin/bash
# timeout: 600
# postgres: 15 (18)
# The target of a backup and of a restore is killed with SIGKILL and started again in the middle: the
# session is begun anew, what was in flight is done over, and the command ends well. Then the target
# stays away: the command ends with an error in bounded time.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
start_target t1 "$work/trepo"
c1_repo_options=$(remote_conf)
. "$SLUICE_ROOT/tests/support/cluster.sh"
[ -z "$pg_user" ] || chown -R "$pg_user:" "$work/pki"
new_cluster c1
expect 0 c1_sluice stanza-create
as_pg pgbench -q -i -s 12 $c1_conn >/dev/null 2>&1
as_pg pgbench -n -c 2 -t 200 $c1_conn >/dev/null 2>&1
sums() { "$1" -c "select count(*), sum(hashtextextended(t::text, 0)) from pgbench_accounts t"; }
target_port=$port

# hurt SECONDS COMMAND…: so long after the session has begun the target dies, and is back half a
# second later
hurt() {
  local after=$1 job got=0 i
  shift
  : >"$work/out"
  "$@" --log-level=info >"$work/out" 2>&1 &
  job=$!
  for i in $(seq 200); do
    grep "transport tcp" "$work/out" >/dev/null && break
    sleep 0.05
  done
  sleep "$after"
  kill -KILL "$target_pid" 2>/dev/null
  wait "$target_pid" 2>/dev/null || true
  sleep 0.5
  start_target t1 "$work/trepo"
  wait $job || got=$?
  [ "$got" = 0 ] || { cat "$work/out"; die "status $got: $*"; }
}

say "backup"
over=0 round=0
for after in 0 0.1 0.3 0.6 1; do
  hurt "$after" c1_sluice backup --jobs=2
  round=$((round + 1))
  over=$((over + $(grep -c "done over" "$work/out" || true)))
done
say "$round backups, $over packs were done over"
c1_sluice info --output=json 2>/dev/null >"$work/info"
python3 - "$work/info" $round <<'PY'
import json, sys
stanza = json.load(open(sys.argv[1]))['stanza'][0]
assert len(stanza['backup']) == int(sys.argv[2]), stanza
PY

say "restore"
again=0
for after in 0 0.1 0.3 0.6 1; do
  rm -rf "$work/r"
  hurt "$after" c1_sluice restore --datadir="$work/r" --target-action=promote --jobs=2
  again=$((again + $(grep -c "read again" "$work/out" || true)))
done
say "$again parts were read again"
wanted=$(sums c1_psql)
stop_cluster c1
as_pg pg_ctl -D "$work/r" -l "$work/r.log" -w -t 120 start >/dev/null || { cat "$work/r.log"; die "the restored server does not start"; }
at_exit+=("as_pg pg_ctl -D '$work/r' -m immediate -w stop >/dev/null 2>&1")
for _ in $(seq 300); do
  [ "$(c1_psql -c 'select pg_is_in_recovery()')" = f ] && break
  sleep 0.2
done
[ "$(sums c1_psql)" = "$wanted" ] || die "the restored tables differ"
expect 0 c1_sluice verify

say "the target stays away"
kill -KILL "$target_pid"
start=$SECONDS
got=0
c1_sluice restore --datadir="$work/r3" --timeout=3s >"$work/out" 2>&1 || got=$?
[ "$got" -ge 1 ] && [ "$got" -le 125 ] || die "status $got"
[ $((SECONDS - start)) -le 20 ] || die "it took $((SECONDS - start)) s to give up"
start=$SECONDS
got=0
c1_sluice archive-get 000000010000000000000001 "$work/x" --timeout=3s >"$work/out" 2>&1 || got=$?
[ "$got" = 200 ] || die "archive-get without a target: status $got"
[ $((SECONDS - start)) -le 15 ] || die "archive-get took $((SECONDS - start)) s to give up"
say "ok"
