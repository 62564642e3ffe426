#!/bin/bash
# timeout: 400
# stanza-upgrade: a new system identifier under one stanza, as pg_upgrade makes it. Two clusters stand
# for the two lives; both have a timeline 2 of their own.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/cluster.sh"
initdb_options=--wal-segsize=1 new_cluster c1
repo=$work/repo/main
promote() { # NAME: to its next timeline
  local data=${1}_data
  stop_cluster "$1"
  as_pg touch "${!data}/standby.signal"
  as_pg pg_ctl -D "${!data}" -l "$work/$1-server.log" -w start >/dev/null
  as_pg pg_ctl -D "${!data}" -w promote >/dev/null
  local i
  for i in $(seq 300); do
    "$1_psql" -c "select pg_switch_wal()" >/dev/null 2>&1 || true
    [ "$("$1_psql" -c "select last_archived_wal like '00000002%' and not last_archived_wal like '%.history' from pg_stat_archiver" 2>/dev/null)" = t ] && return
    sleep 0.2
  done
  die "$1 archives nothing on timeline 2"
}
expect 0 c1_sluice stanza-create
c1_psql -c "create table life as select 1 as n"
expect 0 c1_sluice backup
old=$(basename "$(echo "$repo"/backup/*)")
expect 0 c1_sluice backup --type=incr
promote c1
initdb_options=--wal-segsize=1 new_cluster c2
c2_psql -c "create table life as select 2 as n"
say "refused before, taken after"
expect 44 c2_sluice backup
grep -q "stanza-upgrade" "$work/out" || { cat "$work/out"; die "no hint at stanza-upgrade"; }
expect 44 c2_sluice stanza-create
expect 0 c2_sluice stanza-upgrade
expect 0 c2_sluice stanza-upgrade # again
[ -e "$repo/stanza-2.json" ] && [ ! -e "$repo/stanza-3.json" ] || die "the list of lives"
expect 44 c1_sluice stanza-upgrade # not back
expect 44 c1_sluice backup
promote c2
[ "$(find "$repo/wal" -name 00000002.history | wc -l)" = 2 ] || die "the two histories have met"
say "the first increment is a full one"
expect 0 c2_sluice backup --type=incr
grep -q "before stanza-upgrade: this backup is a full one" "$work/out" || { cat "$work/out"; die "the message"; }
expect 0 c2_sluice backup --type=incr
expect 0 c2_sluice info
grep -c "system identifier" "$work/out" | grep -qx 2 || { cat "$work/out"; die "info shows not both lives"; }
expect 0 c2_sluice verify
say "both can be restored"
for pair in "$old 1" "latest 2"; do
  set -- $pair
  rm -rf "$work/r"
  expect 0 c2_sluice restore --set="$1" --type=immediate --target-action=promote --datadir="$work/r"
  port=$(free_port)
  as_pg sh -c "printf 'port = %s\n' $port >>'$work/r/postgresql.auto.conf'"
  as_pg pg_ctl -D "$work/r" -l "$work/r.log" -w -t 120 start >/dev/null || { cat "$work/r.log"; die "$1 does not start"; }
  got=$(as_pg psql -X -q -A -t -h "$work/c2-socket" -p "$port" -U postgres -d postgres -c "select n from life" || true)
  [ -n "$got" ] || got=$(as_pg psql -X -q -A -t -h "$work/c1-socket" -p "$port" -U postgres -d postgres -c "select n from life")
  as_pg pg_ctl -D "$work/r" -m immediate -w stop >/dev/null
  [ "$got" = "$2" ] || die "$1 has life $got"
done
say "WAL of the life that is over goes with its last backup"
expect 0 c2_sluice expire --retention-full=1
[ "$(find "$repo/wal" -name 00000002.history | wc -l)" = 1 ] || die "something of the old life's WAL stays"
