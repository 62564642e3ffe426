#!/bin/bash
# timeout: 300
# The target is stopped (SIGSTOP) in mid-work: the client notices within bounded time and says so;
# after SIGCONT, or against a new target, the same command succeeds.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
fake_cluster
make_wal "$work/wal" 1 4
start_target t "$work/repo"
common="$(remote) --stanza=main --pg-path=$work/data --log-level=error"
sluice $common stanza-create --no-online >/dev/null
wal=("$work"/wal/*)
sluice $common archive-push "${wal[0]}"
kill -STOP "$target_pid"
for command in "archive-push ${wal[1]}" "archive-get $(basename "${wal[0]}") $work/got" "info" "verify"; do
  start=$SECONDS status=0
  sluice $common --timeout=6s $command >"$work/out" 2>&1 || status=$?
  took=$((SECONDS - start))
  [ $status != 0 ] || die "$command succeeded with a stopped target"
  [ $took -le 25 ] || die "$command took $took s to notice"
  grep -q ERROR "$work/out" || { cat "$work/out"; die "$command says nothing"; }
  say "$command: status $status after $took s: $(head -n 1 "$work/out")"
done
# stopped in the middle of a transfer
kill -CONT "$target_pid"
sleep 1
stop_target "$target_pid"
start_target t "$work/repo" "SLUICE_FAULT=target.pulled:stop@1"
common="$(remote) --stanza=main --pg-path=$work/data --log-level=error"
start=$SECONDS status=0
sluice $common --timeout=6s archive-push "${wal[2]}" >"$work/out" 2>&1 || status=$?
took=$((SECONDS - start))
[ $status -ge 1 ] && [ $status -le 125 ] || die "archive-push ended with $status"
[ $took -le 25 ] || die "archive-push took $took s to notice a target stopped in mid-transfer"
kill -CONT "$target_pid"
for file in "${wal[@]}"; do sluice $common archive-push "$file" || die "push fails after the target went on"; done
sluice $common verify >/dev/null || die "damage is visible"
say "stopped in mid-transfer: noticed after $took s, and it went on afterwards"
