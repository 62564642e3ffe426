#!/bin/bash
# timeout: 300
# What `check` finds before a DBA does: archiving that is off, half set or stuck, a folder of another
# server, clocks that differ, a certificate that ends soon or has ended, a target that is away. Each is
# named, with the hint that mends it, and once mended check passes.
# (Missing rights: test_postgres_backup.sh; another cluster's stanza: test_postgres_bad.sh.)
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
start_target t1 "$work/trepo"
c1_repo_options=$(remote_conf)
. "$SLUICE_ROOT/tests/support/cluster.sh"
[ -z "$pg_user" ] || chown -R "$pg_user:" "$work/pki"
new_cluster c1
target_port=$port
expect 0 c1_sluice stanza-create

# checked STATUS OPTION…: its JSON to $work/check.json, its text to $work/check.txt
checked() {
  local want=$1 got=0
  shift
  c1_sluice check --output=json --timeout=20s "$@" >"$work/check.json" 2>"$work/err" || got=$?
  [ "$got" = "$want" ] || { cat "$work/check.json" "$work/err"; die "check ended with $got, wanted was $want"; }
  got=0
  c1_sluice check --timeout=20s "$@" >"$work/check.txt" 2>"$work/err" || got=$?
  [ "$got" = "$want" ] || { cat "$work/check.txt" "$work/err"; die "check in text ended with $got, wanted was $want"; }
}
verdict() { # NAME RESULT PATTERN: of that check; the text says the same
  jq -e --arg n "$1" --arg r "$2" --arg p "$3" '.checks[] | select(.name == $n) | .result == $r and (.text | test($p))' \
    "$work/check.json" >/dev/null || { cat "$work/check.json"; die "$1 is not \"$2\" with \"$3\""; }
  grep -qE "^$1 +$2 +.*$3" "$work/check.txt" || { cat "$work/check.txt"; die "the text does not say $1 $2 $3"; }
}
hinted() { grep -qE "hint: .*$1" "$work/check.txt" || { cat "$work/check.txt"; die "no hint \"$1\""; }; }
setting() { # LINE: the last one wins
  echo "$1" >>"$c1_data/postgresql.conf"
  c1_psql -c "select pg_reload_conf()" >/dev/null
  sleep 0.3
}
restart_cluster() { as_pg pg_ctl -D "$c1_data" -l "$work/c1-server.log" -m fast -w restart >/dev/null; }

say "all is well"
checked 0
verdict archive_mode ok on
verdict archive_timeout ok 3600
verdict clocks ok differs
verdict certificate ok 'days left'
jq -e '.certificate_days > 300 and ([.checks[] | select(.result == "FAILED")] == [])' "$work/check.json" >/dev/null

say "archive_timeout"
setting "archive_timeout = 0"
checked 0
verdict archive_timeout warn off
setting "archive_timeout = 1h"

say "archive_mode off, then set but not restarted"
setting "archive_mode = off"
restart_cluster
checked 58
verdict archive_mode FAILED 'archive_mode is off'
hinted 'archive_mode = on'
setting "archive_mode = on"
checked 58
verdict archive_mode FAILED 'it was changed, but the server was not restarted'
hinted 'restart'
restart_cluster
checked 0

say "no archive_command, and one that fails"
command=$(c1_psql -c "show archive_command")
setting "archive_command = ''"
checked 58
verdict archive_command FAILED neither
hinted archive-push
setting "archive_command = 'false'"
checked 82 --archive-timeout=2s
grep -qi 'archive_command' "$work/check.txt"
setting "archive_command = '$command'"
checked 0

say "a folder of another server"
as_pg initdb -D "$work/foreign" -A trust -U postgres --no-sync >/dev/null
checked 44 --pg-path="$work/foreign"
verdict 'data directory' FAILED 'not the folder of the server'

say "a certificate that ends soon, and one that has ended"
cp -a "$work/pki" "$work/pki-kept"
rm "$work/pki/db1.crt" "$work/pki/db1.key"
as_pg sluice cert issue db1 --dir "$work/pki" --days 10 >/dev/null
checked 0
verdict certificate warn 'ends in (9|10) days'
rm -r "$work/pki"
cp -a "$work/pki-kept" "$work/pki"

library=$(ls /usr/lib/*/faketime/libfaketime.so.1 2>/dev/null || true)
[ -n "$library" ] || die "no libfaketime"
say "the target's clock"
for shift in +1h -1h; do
  kill -TERM "$target_pid"
  wait "$target_pid" 2>/dev/null || true
  start_target t1 "$work/trepo" LD_PRELOAD="$library" FAKETIME=$shift FAKETIME_DONT_FAKE_MONOTONIC=1
  checked 0
  [ $shift = +1h ] && verdict clocks warn 'differs by (3599|3600|3601)' || verdict clocks warn 'differs by -(3599|3600|3601)'
done
say "a year ahead: the client's certificate has ended"
kill -TERM "$target_pid"
wait "$target_pid" 2>/dev/null || true
start_target t1 "$work/trepo" LD_PRELOAD="$library" FAKETIME=+20y FAKETIME_DONT_FAKE_MONOTONIC=1
checked 95
grep -qi 'expired' "$work/check.txt" "$work/err" || { cat "$work/check.txt"; die "the reason is not said"; }

say "the target is away"
kill -TERM "$target_pid"
wait "$target_pid" 2>/dev/null || true
checked 49 --timeout=3s
verdict repository FAILED 'could not connect'
