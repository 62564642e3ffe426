#!/bin/bash
# timeout: 1200
# postgres: 18 (15 17)
# Bad things that users reported (numbers: pgBackRest BR, WAL-G WG, Barman BA, CloudNativePG CN), each on
# real servers: a hidden segment must not end recovery, clones and double primaries must not spoil
# the archive, a standby survives an archive that is away.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/cluster.sh"
initdb_options=--wal-segsize=1 new_cluster c1
say "$(postgres --version)"
step() { c1_psql -c "insert into steps values ($1)" -c "select pg_switch_wal()" >/dev/null; }
archived() { # PSQL: waits until the segment that was switched from is archived
  local want i
  "$1" -c "select pg_create_restore_point('archived')" >/dev/null # an idle server does not switch
  want=$("$1" -c "select pg_walfile_name(pg_switch_wal())")
  for i in $(seq 200); do
    [ -n "$(find "$work/repo/main/wal" -name "$want")" ] && return
    sleep 0.1
  done
  "$1" -c "select * from pg_stat_archiver"
  die "$want is not archived"
}
c1_psql -c "create table steps (i int)"
expect 0 c1_sluice stanza-create
expect 0 c1_sluice backup
for i in 1 2 3 4 5; do step $i; done
archived c1_psql

say "WG#1126: one middle segment hidden: recovery stops, it does not promote; back again, it goes on"
segments=$(find "$work/repo/main/wal" -name '00000001????????????????' | sort)
hidden=$(tail -n 3 <<<"$segments" | head -n 1)
mv "$hidden" "$work/hidden"
expect 0 c1_sluice restore --datadir="$work/r1" --target-action=promote
port1=$(free_port)
as_pg sh -c "printf 'port = %s\n' $port1 >>'$work/r1/postgresql.auto.conf'"
at_exit+=("as_pg pg_ctl -D '$work/r1' -m immediate -w stop >/dev/null 2>&1")
as_pg pg_ctl -D "$work/r1" -l "$work/r1.log" -w -t 60 start >/dev/null 2>&1 || true
for _ in $(seq 150); do
  [ -e "$work/r1/postmaster.pid" ] || break
  sleep 0.2
done
[ ! -e "$work/r1/postmaster.pid" ] || die "the server runs although WAL is missing"
[ "$(LC_ALL=C pg_controldata "$work/r1" | sed -n "s/^Latest checkpoint's TimeLineID: *//p")" = 1 ] || die "the server was promoted at the gap"
! ls "$work/r1/pg_wal" | grep '^00000002' || die "a new timeline was begun at the gap"
mv "$work/hidden" "$hidden"
start_restored "$work/r1"
[ "$(r_psql -c "select max(i) from steps")" = 5 ] || die "recovery did not go on"
stop_restored "$work/r1"

say "WG#1126, BR#636: a hot standby survives an archive that is away, and catches up"
expect 0 c1_sluice restore --datadir="$work/s1" --type=standby
start_restored "$work/s1" t
mv "$work/repo" "$work/repo.away"
c1_psql -c "insert into steps values (6)" -c "select pg_switch_wal()" >/dev/null
away=${SLUICE_AWAY_SECONDS:-25}
for _ in $(seq "$away"); do
  [ "$(r_psql -c "select pg_is_in_recovery()")" = t ] || die "the standby is gone"
  sleep 1
done
mv "$work/repo.away" "$work/repo"
c1_psql -c "insert into steps values (7)" -c "select pg_switch_wal()" >/dev/null
for _ in $(seq 900); do
  [ "$(r_psql -c "select max(i) from steps")" = 7 ] && break
  sleep 0.2
done
[ "$(r_psql -c "select max(i) from steps")" = 7 ] || { tail -n 20 "$work/s1.log"; die "the standby did not catch up"; }

say "BR#584, #1399: promoted while the old primary goes on; both archive"
archived c1_psql
as_pg sh -c "sed -i '/^archive_mode/d' '$work/s1/postgresql.auto.conf'" # as a DBA would for a failover
as_pg pg_ctl -D "$work/s1" -m fast -w stop >/dev/null
as_pg pg_ctl -D "$work/s1" -l "$work/s1.log" -w start >/dev/null
r_psql -c "select pg_promote()" >/dev/null
r_psql -c "insert into steps values (200)" >/dev/null
c1_psql -c "insert into steps values (100)" >/dev/null
archived r_psql
archived c1_psql
[ -n "$(find "$work/repo/main/wal" -name 00000002.history)" ] || die "the history of the winner is not archived"
expect 0 c1_sluice verify
expect 0 c1_sluice restore --datadir="$work/r2" --target-action=promote
start_restored "$work/r2"
[ "$(r_psql -c "select max(i) from steps")" = 200 ] || die "the winner's change is lost"
stop_restored "$work/r2"
expect 0 c1_sluice restore --datadir="$work/r3" --target-action=promote --target-timeline=current
start_restored "$work/r3"
[ "$(r_psql -c "select max(i) from steps")" = 100 ] || die "the other timeline is lost"
stop_restored "$work/r3"

say "BR#1915: a copy of the folder archives into the same stanza: refused, named, nothing overwritten"
archived c1_psql
stop_cluster c1
as_pg cp -r "$c1_data" "$work/clone"
as_pg pg_ctl -D "$c1_data" -l "$work/c1-server.log" -w start >/dev/null
c1_psql -c "insert into steps values (101)"
archived c1_psql
start_restored "$work/clone"
r_psql -c "insert into steps values (666)" -c "select pg_switch_wal()" >/dev/null
for _ in $(seq 150); do
  [ "$(r_psql -c "select failed_count > 0 from pg_stat_archiver")" = t ] && break
  sleep 0.2
done
[ "$(r_psql -c "select failed_count > 0 from pg_stat_archiver")" = t ] || die "the clone's segment was taken"
grep -q "exists with different content" "$work/clone.log" && grep -q "they differ from page" "$work/clone.log" || { tail "$work/clone.log"; die "the log does not say why"; }
stop_restored "$work/clone" immediate
expect 0 c1_sluice restore --datadir="$work/r4" --target-action=promote --target-timeline=1
start_restored "$work/r4"
[ "$(r_psql -c "select max(i) from steps")" = 101 ] || die "the clone's row is in the archive"
stop_restored "$work/r4"
stop_restored "$work/s1"

say "CN#263: another cluster of the same name"
initdb_options= new_cluster c2
expect 44 c2_sluice stanza-create
expect 44 c2_sluice check
expect 44 c2_sluice backup
c2_psql -c "create table t ()" -c "select pg_switch_wal()" >/dev/null
for _ in $(seq 150); do
  [ "$(c2_psql -c "select failed_count > 0 from pg_stat_archiver")" = t ] && break
  sleep 0.2
done
[ "$(c2_psql -c "select archived_count from pg_stat_archiver")" = 0 ] || die "WAL of another cluster was taken"
stop_cluster c2 "$pg_bin" immediate
expect 0 c1_sluice verify
say ok
