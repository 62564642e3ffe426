#!/bin/bash
# timeout: 600
# What goes and what stays: retention by number and time, kept backups, WAL, running and broken-off
# backups, readers; killed at every step of it; and who may.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/cluster.sh"
initdb_options=--wal-segsize=1 new_cluster c1
repo=$work/repo/main
faults=
grep -q SLUICE_FAULT "$SLUICE_BUILD/bin/sluice" && faults=1
faulty() { local fault=$1; shift; as_pg env SLUICE_FAULT="$fault" sluice --config="$work/c1.conf" "$@"; }
# halt FAULT COMMAND…: runs it until the fault point stops it; sets job and halted (its pid)
halt() {
  local i fault=$1
  shift
  faulty "$fault" "$@" >"$work/halted.out" 2>&1 &
  job=$!
  for i in $(seq 600); do
    halted=$(pgrep -f "^sluice --config=$work/c1.conf $1" | head -n 1) || true
    [ -n "$halted" ] && grep -q '^State:.*T' "/proc/$halted/status" 2>/dev/null && return
    kill -0 "$job" 2>/dev/null || break
    sleep 0.1
  done
  cat "$work/halted.out"
  die "$1 did not come to $fault"
}
go_on() { # and its status
  kill -CONT "$halted"
  status=0
  wait "$job" || status=$?
}
labels() { c1_sluice info --output=json | python3 -c "import json, sys; [print(b['label']) for b in json.load(sys.stdin)['stanza'][0]['backup']]"; }
backup() { expect 0 c1_sluice backup "$@"; labels | tail -n 1; }
start_wal() { c1_sluice info --output=json | python3 -c "import json, sys; print([b['archive']['start'] for b in json.load(sys.stdin)['stanza'][0]['backup'] if b['label'] == sys.argv[1]][0])" "$1"; }
segments() { find "$repo/wal" -type f -printf '%f\n' | grep -E '^[0-9A-F]{24}$' | sort; }
churn() { # writes, and waits until it is archived
  local last i
  c1_psql -c "create table if not exists t (i int, v text)" -c "insert into t select i, md5(i::text) from generate_series(1, 20000) i" >/dev/null 2>&1
  last=$(c1_psql -c "select pg_walfile_name(pg_switch_wal())")
  for i in $(seq 300); do
    [ "$(c1_psql -c "select coalesce(last_archived_wal, '') >= '$last' from pg_stat_archiver")" = t ] && return
    sleep 0.1
  done
  die "$last is not archived"
}
whole() { expect 0 c1_sluice verify; } # what is left is without damage
restorable() { # LABEL: restores and starts
  rm -rf "$work/r"
  expect 0 c1_sluice restore --set="$1" --type=immediate --target-action=promote --datadir="$work/r"
  ! find "$repo/backup/$1" -name 'lease-*' | grep . || die "the restore's lease was not taken back"
}

expect 0 c1_sluice stanza-create
churn
say "by number"
a=$(backup); churn
b=$(backup); churn
c=$(backup); churn
before=$(segments)
expect 0 c1_sluice expire --retention-full=2 --dry-run
grep -q "would remove backup $a: retention" "$work/out" || { cat "$work/out"; die "the dry run does not say what it would do"; }
[ "$(labels)" = "$a"$'\n'"$b"$'\n'"$c" ] && [ -z "$(comm -23 <(echo "$before") <(segments))" ] && [ ! -e "$repo/backup/$a/expired" ] || die "a dry run changed something"
expect 0 c1_sluice expire # no policy: everything stays but WAL that no backup needs
[ "$(labels | wc -l)" = 3 ] && [ "$(segments | head -n 1)" = "$(start_wal "$a")" ] || die "without a policy"
expect 0 c1_sluice expire --retention-full=2
[ "$(labels)" = "$b"$'\n'"$c" ] || die "not the oldest one went"
[ "$(segments | head -n 1)" = "$(start_wal "$b")" ] || die "WAL: $(segments | head -n 1) is the first, $(start_wal "$b") should be"
segments >"$work/after"
grep -q "$(tail -n 1 <<<"$before")" "$work/after" || die "later WAL went"
[ "$(find "$repo/backup/$a" -type f -printf '%f ')" = "expired " ] || die "something of $a is left"
whole
restorable "$b"

say "kept"
expect 0 c1_sluice keep "$b"
d=$(backup); churn
expect 0 c1_sluice expire --retention-full=1
[ "$(labels)" = "$b"$'\n'"$d" ] || die "the kept one went, or $c stays"
[ "$(segments | head -n 1)" = "$(start_wal "$b")" ] && segments >"$work/after" && grep -q "$(start_wal "$d")" "$work/after" || die "the kept one's WAL went"
expect 0 c1_sluice unkeep "$b"
expect 0 c1_sluice keep --keep-wal=standalone "$b"
expect 0 c1_sluice expire --retention-full=1
[ "$(segments | head -n 1)" = "$(start_wal "$b")" ] || die "what makes the kept one consistent went"
[ "$(segments | sed -n 3p)" \> "$(start_wal "$b")" ] && [ "$(segments | grep -c .)" -lt "$(grep -c . <<<"$before")" ] || die "WAL between the two stays"
restorable "$b"
expect 0 c1_sluice unkeep "$b"
expect 55 c1_sluice keep 20200101-000000F
expect 31 c1_sluice keep nonsense
expect 0 c1_sluice expire --retention-full=1
[ "$(labels)" = "$d" ] || die "the one that is not kept any more stays"
expect 0 c1_sluice expire --retention-days=1
[ "$(labels)" = "$d" ] || die "the only one went"
whole

say "a restore reads"
e=$(backup); churn
if [ -n "$faults" ]; then
  rm -rf "$work/r"
  halt pg.restore_write:stop@20 restore --set="$d" --type=immediate --datadir="$work/r"
  expect 0 c1_sluice expire --retention-full=1
  grep -q "not now: backup $d: it is being read" "$work/out" || { cat "$work/out"; die "it does not see the restore"; }
  [ "$(labels)" = "$e" ] || die "a marked one is listed"
  go_on
  [ $status = 0 ] || { cat "$work/halted.out"; die "the restore failed"; }
  say "a restore that takes long renews its lease"
  rm -rf "$work/r2"
  halt pg.restore_create:stop@1,pg.lease_due:EIO@1,pg.restore_write:stop@20 restore --jobs=1 --set="$e" --type=immediate --datadir="$work/r2"
  lease=$(cd "$repo/backup/$e" && echo lease-*)
  kill -CONT "$halted"
  for i in $(seq 300); do
    [ "$(cd "$repo/backup/$e" && echo lease-*)" = "$lease" ] || ! grep -q '^State:.*T' "/proc/$halted/status" || break
    sleep 0.1
  done
  [ "$(find "$repo/backup/$e" -name 'lease-*' | wc -l)" = 1 ] && [ ! -e "$repo/backup/$e/$lease" ] || die "it is the same lease: $lease"
  go_on
  [ $status = 0 ] || { cat "$work/halted.out"; die "the restore failed"; }
  [ "$(find "$repo/backup/$e" -name 'lease-*' | wc -l)" = 0 ] || die "the new lease was not taken back"
  rm -rf "$work/r2"
  expect 55 c1_sluice restore --set="$d" --type=immediate --datadir="$work/r2"
  grep -q "being removed by expire" "$work/out" || { cat "$work/out"; die "the message of a restore that came too late"; }
fi
expect 0 c1_sluice expire --retention-full=1
[ "$(find "$repo/backup/$d" -type f -printf '%f ')" = "expired " ] || die "$d is still there"

if [ -n "$faults" ]; then
  say "a backup runs"
  halt pg.backup_stop:stop backup
  from=$(c1_psql -c "select pg_walfile_name(redo_lsn) from pg_control_checkpoint()")
  churn; churn
  f=$(backup --no-archive-check) # a later one is ready before
  expect 0 c1_sluice expire --retention-full=1
  [ "$(segments | head -n 1)" \< "$(start_wal "$f")" ] || die "the WAL of the running backup went ($from)"
  go_on
  [ $status = 0 ] || { cat "$work/halted.out"; die "the running backup failed"; }
  [ "$(labels | wc -l)" = 2 ] || die "two should be listed"
  whole

  say "killed at every step"
  churn
  g=$(backup); churn
  i=1
  while :; do
    got=0
    faulty "expire.mark:kill@$i,target.remove:kill@$i" expire --retention-full=1 >"$work/out" 2>&1 || got=$?
    [ $got = 137 ] || break
    labels >"$work/left"
    grep -q "$g" "$work/left" || die "the newest one went at step $i"
    whole
    for l in $(cat "$work/left"); do restorable "$l"; done
    # work for the next round, if this one ended it
    [ "$(grep -c . "$work/left")" -gt 1 ] || [ "$(segments | head -n 1)" \< "$(start_wal "$g")" ] || { expect 0 c1_sluice backup; churn; g=$(labels | tail -n 1); }
    i=$((i + 1))
    [ $i -lt 8 ] || break
  done
  [ $i -gt 3 ] || { cat "$work/out"; die "only $i kills: status $got"; }
  expect 0 c1_sluice expire --retention-full=1
  [ "$(labels)" = "$g" ] && [ "$(segments | head -n 1)" = "$(start_wal "$g")" ] || die "the run after the kills did not end it"

  say "broken off"
  expect 137 faulty pg.backup_stop:kill backup
  broken=$(find "$repo/backup" -name open -newer "$repo/backup/$g/manifest" -printf '%h\n' | xargs -n 1 basename | tail -n 1)
  expect 0 c1_sluice expire --retention-full=1
  [ -e "$repo/backup/$broken/open" ] || die "perhaps it still runs, and it was removed"
  sleep 2
  expect 0 c1_sluice expire --retention-full=1 --abandoned-after=1s
  [ "$(find "$repo/backup/$broken" -type f -printf '%f ')" = "expired " ] || die "what was broken off is still there"
  halt pg.backup_wal:stop backup
  sleep 2
  expect 0 c1_sluice expire --retention-full=1 --abandoned-after=1s
  go_on
  [ $status != 0 ] && grep -q "took backup .* for broken off" "$work/halted.out" || { cat "$work/halted.out"; die "a backup that was removed says it is complete: $status"; }
  [ "$(labels)" = "$g" ] || die "it is listed"
  whole
fi

say "who may"
target_extra= start_target daemon "$work/repo"
db1="--stanza=main $(remote)"
expect 63 sluice $db1 expire --retention-full=1 --abandoned-after=1s
grep -q "expire-clients" "$work/out" || { cat "$work/out"; die "the hint"; }
[ "$(labels)" = "$g" ] || die "it was removed all the same"
sed -i 's/^clients = db1, db2/&\nexpire-clients = db2/' "$work/daemon.conf"
kill -HUP "$target_pid"
sleep 1
expect 0 sluice ${db1//db1/db2} expire --retention-full=1
expect 63 sluice $db1 unkeep "$g"
