#!/bin/bash
# timeout: 600
# A hundred clients at once on one sluiced with two workers and the smallest pool: they all have
# their connection before the target says its first word, every segment is acknowledged, what was
# acknowledged is whole, and the target's memory stays within its pool and 1 MiB a client.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
clients=100 pool_mib=8
fake_cluster
make_wal "$work/wal" 1 $clients
target_extra="workers = 2
pool-size = ${pool_mib}MiB
log-level = warn" start_target t "$work/repo"
# shellcheck disable=SC2046
command=(sluice $(remote) --stanza=main --pg-path="$work/data" --timeout=240s --log-level=error)
"${command[@]}" stanza-create --no-online >/dev/null
memory_kib() { sed -n "s/^$1:[[:space:]]*\([0-9]*\) kB/\1/p" "/proc/$target_pid/status"; }
before=$(memory_kib VmRSS)

kill -STOP "$target_pid"
pids=()
for wal in "$work"/wal/*; do
  "${command[@]}" archive-push "$wal" >"$work/push.$(basename "$wal").log" 2>&1 &
  pids+=($!)
done
[ ${#pids[@]} = $clients ] || die "there are ${#pids[@]} segments"
connected=0
for _ in $(seq 600); do
  connected=$(ss -Htn state established "dport = :$port" | wc -l)
  [ "$connected" -lt $clients ] || break
  sleep 0.1
done
kill -CONT "$target_pid"
[ "$connected" -ge $clients ] || die "only $connected clients came to be connected at once"

failed=0
for pid in "${pids[@]}"; do wait "$pid" || failed=$((failed + 1)); done
if [ $failed != 0 ]; then
  cat "$work"/push.*.log "$work/t.log"
  die "$failed of $clients pushes failed"
fi
peak=$(memory_kib VmHWM)
say "$connected connected at once, $clients segments acknowledged; target: $((before / 1024)) MiB before, $((peak / 1024)) MiB at its peak"
# the pool's pages may not have been touched before
[ "$peak" -le $((before + (pool_mib + clients) * 1024)) ] || die "the target took more than its pool and 1 MiB a client"

"${command[@]}" verify >"$work/verify.log" 2>&1 || { cat "$work/verify.log"; die "something is damaged"; }
for wal in "$work"/wal/*; do
  "${command[@]}" archive-get "$(basename "$wal")" "$work/got" || die "$(basename "$wal") is lost"
  cmp -s "$work/got" "$wal" || die "$(basename "$wal") came back different"
done
say "all $clients came back as they were"
