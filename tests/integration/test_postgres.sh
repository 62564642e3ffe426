#!/bin/bash
# timeout: 900
# postgres: 15 17 18
# Backup and restore of a real PostgreSQL under load: tablespaces, unlogged tables, segments of
# 1 MB; killed and failed at many points; to a point in time, to the end of WAL with a new timeline.
# What is compared is the restored database.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/cluster.sh"
initdb_options=--wal-segsize=1 new_cluster c1
faults=
grep -q SLUICE_FAULT "$SLUICE_BUILD/bin/sluice" && faults=1

sums() { # PSQL: name, rows and checksum of every table
  "$1" -c "select 'accounts', count(*), sum(hashtextextended(t::text, 0)) from pgbench_accounts t union all
           select 'history', count(*), sum(hashtextextended(t::text, 0)) from pgbench_history t union all
           select 'mixed', count(*), sum(hashtextextended(t::text, 0)) from mixed t union all
           select 'spaced', count(*), sum(hashtextextended(t::text, 0)) from spaced t order by 1"
}
labels() { c1_sluice info --output=json | python3 -c "import json, sys; [print(b['label']) for b in json.load(sys.stdin)['stanza'][0]['backup']]"; }
faulty() { # FAULT COMMAND…: as c1_sluice
  local fault=$1
  shift
  as_pg env SLUICE_FAULT="$fault" sluice --config="$work/c1.conf" "$@"
}
say "data"
as_pg mkdir -p "$work/ts" "$work/ts2"
c1_psql -c "create tablespace t location '$work/ts'" \
  -c "create table spaced tablespace t as select i, md5(i::text) from generate_series(1, 20000) i" \
  -c "create unlogged table lost as select i, md5(i::text) from generate_series(1, 20000) i" \
  -c "create table mixed as select i as id, md5(i::text) as a, repeat(md5(random()::text), 6) as b from generate_series(1, 10000) i" \
  -c "create table empty (i int)"
as_pg pgbench -q -i -s 1 $c1_conn >/dev/null 2>&1
as_pg truncate -s 600M "$c1_data/big" # more than two pieces of a file, nearly all of it a hole
for at in 0 65535 65536 100000 153599; do
  head -c 4096 /dev/urandom | as_pg dd of="$c1_data/big" bs=4096 seek=$at conv=notrunc status=none
done

say "what is refused"
expect 55 c1_sluice backup # no stanza
expect 0 c1_sluice stanza-create
expect 31 c1_sluice backup --type=nonsense
expect 56 c1_sluice --pg-port=1 backup
expect 55 c1_sluice restore --datadir="$work/r0"
[ ! -e "$work/r0" ] || die "a folder was made for nothing"

say "check"
c1_sluice check --output=json >"$work/out" 2>"$work/err" || { cat "$work/out" "$work/err"; die "check"; }
python3 - "$work/out" <<'PY'
import json, sys
check = json.load(open(sys.argv[1]))
assert all(c['result'] == 'ok' for c in check['checks'] if c['name'] != 'space'), check
assert check['transport']['kind'] == 'local', check
PY

expect 0 c1_sluice backup --dry-run
[ -z "$(labels)" ] && [ ! -e "$work/repo/main/backup" ] || die "a dry run stored something"

say "a backup while tables are written, grown and cut"
as_pg pgbench -n -c 2 -T 4 $c1_conn >/dev/null 2>&1 &
load=$!
(for i in 1 2 3 4 5 6; do
  c1_psql -c "create table t$i as select g, md5(g::text) from generate_series(1, 5000) g" -c "truncate t$i" -c "drop table t$i"
done) &
ddl=$!
expect 0 c1_sluice backup --annotation=why=test --jobs=3 --compress-type=none # its manifest is read as it lies
cat "$work/out"
wait $load $ddl
[ "$(labels | wc -l)" = 1 ] || die "the backup is not listed"
first=$(labels)
c1_sluice info >"$work/out"
grep -q "annotation why: test" "$work/out" || die "the annotation is lost"
strings -n 4 "$work/repo/main/backup/$first/manifest" >"$work/names" # paths, among other things
! grep -E '^pg_wal/0|postmaster.pid|pg_internal.init' "$work/names" || die "files were stored that must not be"
lost=$(c1_psql -c "select pg_relation_filepath('lost')")
grep -F "${lost}_init" "$work/names" >/dev/null || die "the unlogged table's init fork is missing"
! sed "s#${lost}_init##g" "$work/names" | grep -F "$lost" || die "an unlogged table was stored"

if [ -n "$faults" ]; then
  say "killed or failing anywhere, a backup is not there"
  for point in pg.backup_start pg.backup_open@50 pg.backup_read@30 pg.pack_commit pg.backup_stop pg.backup_wal pg.manifest_commit; do
    expect 137 faulty "${point%@*}:kill${point#"${point%@*}"}" backup
    [ "$(labels)" = "$first" ] || die "a backup is listed after a kill at $point"
  done
  for point in pg.backup_open@50 pg.backup_read@30 pg.backup_stop pg.backup_wal pg.opendir@5 pg.readdir@3 thread@1; do
    got=0
    faulty "${point%@*}:EIO${point#"${point%@*}"}" backup >"$work/out" 2>&1 || got=$?
    [ "$got" -ge 1 ] && [ "$got" -le 125 ] || { cat "$work/out"; die "$point failing: status $got"; }
    [ "$(labels)" = "$first" ] || die "a backup is listed after $point failed"
  done
  expect 0 faulty pg.pack_commit:EIO@1 backup --jobs=2 # as if the session was lost: the pack is done over
  grep -q "done over" "$work/out" || die "no pack was done over"
  expect 0 faulty pg.manifest_commit:EIO@1 backup
fi
if [ -n "$faults" ]; then
  before=$(labels)
  got=0
  as_pg env SLUICE_FAULT=pg.backup_read:sleep=3000@20 timeout --preserve-status -s INT 1.5 sluice --config="$work/c1.conf" backup >"$work/out" 2>&1 || got=$?
  [ "$got" = 70 ] || { cat "$work/out"; die "SIGINT: status $got"; }
  [ "$(labels)" = "$before" ] || die "a cancelled backup is listed"
  [ "$(c1_psql -c "select count(*) from pg_stat_activity where application_name like 'sluice%'")" = 0 ] || die "a session was left"
fi

say "WAL that does not come"
c1_psql -c "alter system set archive_command = 'false'" -c "select pg_reload_conf()" >/dev/null
sleep 0.3
before=$(labels)
expect 82 c1_sluice backup --archive-timeout=1s
grep -q 'archive_command is "false"' "$work/out" || { cat "$work/out"; die "the cause is not named"; }
[ "$(labels)" = "$before" ] || die "a backup without its WAL is listed"
expect 82 c1_sluice check --archive-timeout=1s
c1_psql -c "alter system set archive_command = ''" -c "select pg_reload_conf()" >/dev/null
sleep 0.3
expect 58 c1_sluice backup
c1_psql -c "alter system reset archive_command" -c "select pg_reload_conf()" >/dev/null

say "changes, a moment, more changes"
c1_psql -c "update mixed set b = reverse(b) where id % 5 = 0" -c "insert into spaced select i, 'late' from generate_series(1, 1000) i"
wanted=$(sums c1_psql)
sleep 0.1
moment=$(c1_psql -c "select now()")
sleep 0.1
c1_psql -c "delete from mixed" -c "drop table spaced" -c "select pg_switch_wal()" >/dev/null
c1_psql -c "create table spaced tablespace t as select 1 i" -c "select pg_switch_wal()" >/dev/null

say "restore: what is refused"
expect 38 c1_sluice restore --datadir="$c1_data"
as_pg mkdir -p "$work/full" && as_pg touch "$work/full/x"
expect 40 c1_sluice restore --datadir="$work/full"
expect 40 c1_sluice restore --datadir="$work/r1" # the tablespace's folder is in use
rm -rf "$work/r1"
map="--tablespace-map=$(c1_psql -c "select oid from pg_tablespace where spcname = 't'")=$work/ts2"
expect 55 c1_sluice restore --datadir="$work/r1" --target-time="2020-01-01 00:00:00+00"
expect 31 c1_sluice restore --datadir="$work/r1" --target-time="yesterday"
expect 31 c1_sluice restore --datadir="$work/r1" --set=nonsense
expect 55 c1_sluice restore --datadir="$work/r1" --set=20200101-000000F
[ ! -e "$work/r1" ] || die "a folder was made for nothing"

if [ -n "$faults" ]; then
  say "restore: killed or failing anywhere, no server starts there; emptied, it works again"
  for point in pg.restore_mkdir@9 pg.restore_create@200 pg.restore_open@100 pg.restore_write@100 pg.restore_conf pg.restore_sync@300 pg.restore_control; do
    for how in kill EIO; do
      rm -rf "$work/r1" "${work:?}/ts2"/*
      got=0
      faulty "${point%@*}:$how${point#"${point%@*}"}" restore --datadir="$work/r1" "$map" >"$work/out" 2>&1 || got=$?
      if [ $how = kill ]; then [ "$got" = 137 ] || die "no kill at $point: $got"; else
        [ "$got" -ge 1 ] && [ "$got" -le 125 ] || die "$point failing: status $got"
      fi
      [ ! -e "$work/r1/global/pg_control" ] || die "pg_control is there after $how at $point"
      ! as_pg pg_ctl -D "$work/r1" -w -t 5 start >/dev/null 2>&1 || die "a server starts after $how at $point"
      expect 40 c1_sluice restore --datadir="$work/r1" "$map"
      grep -q interrupted "$work/out" || { cat "$work/out"; die "it does not say why"; }
    done
  done
fi
rm -rf "$work/r1" "${work:?}/ts2"/*

say "restore to the moment"
expect 0 c1_sluice restore --datadir="$work/r1" --target-time="$moment" "$map" --dry-run
[ ! -e "$work/r1" ] || die "a dry run made a folder"
expect 0 c1_sluice restore --datadir="$work/r1" --target-time="$moment" --target-action=promote "$map"
cat "$work/out"
cmp "$c1_data/big" "$work/r1/big" || die "the big file differs"
[ "$(du -m "$work/r1/big" | cut -f 1)" -le 20 ] || die "holes were filled"
grep -q "^archive_mode = 'off'" "$work/r1/postgresql.auto.conf"
[ "$(stat -c %a "$work/r1")" = 700 ]
[ ! -e "$work/r1/sluice.restoring" ]
start_restored "$work/r1"
[ "$(sums r_psql)" = "$wanted" ] || { echo "$wanted"; sums r_psql; die "the restored tables differ"; }
[ "$(r_psql -c "select count(*) from lost")" = 0 ] || die "the unlogged table is not empty"
[ "$(r_psql -c "show archive_mode")" = off ]
r_psql -c "create extension amcheck" \
  -c "select count(bt_index_check(c.oid)) from pg_class c where relkind = 'i' and relpersistence = 'p'" >/dev/null || die "an index is damaged"
as_pg pg_ctl -D "$work/r1" -m fast -w stop >/dev/null
as_pg pg_checksums --check -D "$work/r1" >/dev/null || die "a page checksum is wrong"

say "a standby follows the archive: it asks for what is not there yet, again and again"
rm -rf "${work:?}/ts2"/*
expect 0 c1_sluice restore --datadir="$work/r3" --type=standby "$map"
start_restored "$work/r3" t
for round in 1 2; do
  c1_psql -c "create table followed$round as select $round" -c "select pg_switch_wal()" >/dev/null
  for i in $(seq 150); do
    [ "$(r_psql -c "select count(*) from pg_class where relname = 'followed$round'")" = 1 ] && break
    sleep 0.2
  done
  [ "$(r_psql -c "select count(*) from followed$round")" = 1 ] || { tail -n 30 "$work/r3.log"; die "the standby does not follow"; }
done
as_pg pg_ctl -D "$work/r3" -m fast -w stop >/dev/null

say "restore to where the backup is consistent"
rm -rf "${work:?}/ts2"/*
expect 0 c1_sluice restore --datadir="$work/r4" --type=immediate --target-action=promote --set="$first" "$map"
start_restored "$work/r4"
[ "$(r_psql -c "select count(*) from spaced")" = 20000 ] || die "immediate went too far"
as_pg pg_ctl -D "$work/r4" -m fast -w stop >/dev/null

say "restore to the end of WAL: a new timeline in the same archive"
wanted=$(sums c1_psql)
stop_cluster c1
rm -rf "${work:?}/ts2"/*
expect 0 c1_sluice restore --datadir="$work/r2" --set=latest --archive-mode=preserve "$map" --jobs=1
start_restored "$work/r2"
[ "$(sums r_psql)" = "$wanted" ] || die "the tables of the end differ"
[ "$(r_psql -c "select timeline_id from pg_control_checkpoint()")" = 2 ]
r_psql -c "create table after (i int)" -c "select pg_switch_wal()" >/dev/null
for i in $(seq 100); do
  [ "$(r_psql -c "select last_archived_wal like '00000002________________' from pg_stat_archiver")" = t ] && break
  sleep 0.1
done
[ -n "$(find "$work/repo/main/wal" -name 00000002.history)" ] || die "the history file is not archived"
[ -n "$(find "$work/repo/main/wal" -name '00000002????????????????')" ] || die "no segment of timeline 2 is archived"
[ "$(r_psql -c "select failed_count from pg_stat_archiver")" = 0 ] || { cat "$work/r2.log"; die "archiving failed after the promotion"; }
expect 0 c1_sluice verify
expect 0 c1_sluice info
cat "$work/out"
grep -q "timeline 2" "$work/out"
