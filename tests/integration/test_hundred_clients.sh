#!/bin/bash
# timeout: 900
# A hundred clients at once on one sluiced with two workers and the smallest pool: the first commit
# sleeps until they are all there, every segment is acknowledged, what was acknowledged is whole,
# and the target's memory stays within its pool and 1 MiB a client.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
clients=100 pool_mib=8
fake_cluster
make_wal "$work/wal" 1 $clients
target_extra="workers = 2
pool-size = ${pool_mib}MiB
log-level = warn"
memory_kib() { sed -n "s/^$1:[[:space:]]*\([0-9]*\) kB/\1/p" "/proc/$target_pid/status"; }
connections() { # that the target has
  ss -Htn state established "sport = :$port" | wc -l
}

# As PostgreSQL does: again, when it may succeed by itself (no connection, lost, too slow, too many).
push() {
  local status=0 try
  for try in $(seq 60); do
    status=0
    "${command[@]}" archive-push "$1" || status=$?
    case $status in 49 | 65 | 66 | 67) sleep 1 ;; *) break ;; esac
  done >"$work/push.$(basename "$1").log" 2>&1
  return "$status"
}

# round SECONDS: as long as the first commit sleeps; sets `at_once`
round() {
  local pids=() wal pid failed=0 connected
  start_target t "$work/repo"
  # shellcheck disable=SC2046
  command=(sluice $(remote) --stanza=main --pg-path="$work/data" --timeout=300s --lanes=1 --log-level=error)
  "${command[@]}" stanza-create --no-online >/dev/null
  stop_target "$target_pid"
  target_port=$port start_target t "$work/repo" "SLUICE_FAULT=posix.fdatasync:sleep=${1}000@1"
  before=$(memory_kib VmRSS) at_once=0
  for wal in "$work"/wal/*; do
    push "$wal" &
    pids+=($!)
  done
  [ ${#pids[@]} = $clients ] || die "there are ${#pids[@]} segments"
  while kill -0 "${pids[0]}" 2>/dev/null; do
    connected=$(connections)
    [ "$connected" -le "$at_once" ] || at_once=$connected
    [ "$at_once" -lt $((2 * clients)) ] || break # a control and a lane each
    sleep 0.2
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=$((failed + 1)); done
  [ $failed = 0 ] || { cat "$work"/push.*.log "$work/t.log"; die "$failed of $clients pushes failed"; }
  peak=$(memory_kib VmHWM)
}

for seconds in 15 60 240; do # a slow machine needs longer to start a hundred commands
  rm -rf "$work/repo"
  round $seconds
  [ "$at_once" -lt $((2 * clients)) ] || break
  say "only $at_once connections at once within $seconds s"
  [ $seconds != 240 ] || die "the clients never came to be there at once"
  stop_target "$target_pid"
done
say "$clients clients at once, all acknowledged; target: $((before / 1024)) MiB before, $((peak / 1024)) MiB at its peak"
# the pool's pages may not have been touched before
[ "$peak" -le $((before + (pool_mib + clients) * 1024)) ] || die "the target took more than its pool and 1 MiB a client"

"${command[@]}" verify >"$work/verify.log" 2>&1 || { cat "$work/verify.log"; die "something is damaged"; }
for wal in "$work"/wal/*; do
  "${command[@]}" archive-get "$(basename "$wal")" "$work/got" || die "$(basename "$wal") is lost"
  cmp -s "$work/got" "$wal" || die "$(basename "$wal") came back different"
done
say "all $clients came back as they were"
