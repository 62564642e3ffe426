#!/bin/bash
# timeout: 600
# postgres: 18 (17)
# A real pg_upgrade from 15, and stanza-upgrade: WAL of both lives is kept apart though they have segments and history
# files of the same names; the first increment is a full one; backups of both are restored, each by its own programs.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/cluster.sh"
old_bin=$("$SLUICE_ROOT/tests/support/get_server.sh" pg15)/bin || skip "PostgreSQL 15 is not here"
initdb_options=--wal-segsize=1 new_cluster c1 "$old_bin"
initdb_options=--wal-segsize=1 new_cluster c2
repo=$work/repo/main
say "$("$old_bin/postgres" --version) to $(postgres --version)"
newest() { c2_sluice info --output=json 2>/dev/null | jq -r '.stanza[0].backup | sort_by(.label | split("_") | last) | last | .label'; }
sums() { "$1" -c "select count(*), sum(hashtextextended(t::text, 0)) from life t"; }
promote() { # NAME FOLDER: to its next timeline, with a segment of it archived
  local data=${1}_data i
  stop_cluster "$1" "$2"
  as_pg touch "${!data}/standby.signal"
  as_pg "$2/pg_ctl" -D "${!data}" -l "$work/$1-server.log" -w start >/dev/null
  as_pg "$2/pg_ctl" -D "${!data}" -w promote >/dev/null
  for i in $(seq 300); do
    "$1_psql" -c "select pg_switch_wal()" >/dev/null 2>&1 || true
    [ "$("$1_psql" -c "select last_archived_wal like '00000002%' and not last_archived_wal like '%.history' from pg_stat_archiver" 2>/dev/null)" = t ] && return
    sleep 0.2
  done
  die "$1 archives nothing on timeline 2"
}
restored() { # LABEL WANTED NAME FOLDER [OPTION…]: as NAME was, by the programs in FOLDER
  local label=$1 want=$2 beside=$3 bin=$4
  shift 4
  rm -rf "$work/r"
  expect 0 c2_sluice restore --set="$label" --datadir="$work/r" --target-action=promote "$@"
  expect 0 as_pg "$bin/pg_verifybackup" -n "$work/r"
  PATH=$bin:$PATH start_restored "$work/r"
  [ "$(sums r_psql)" = "$want" ] || die "$label: $(sums r_psql), not $want"
  expect 0 as_pg "$bin/pg_amcheck" --heapallindexed -d postgres -h "$work/$beside-socket" -p "$(r_psql -c "show port")" -U postgres
  stop_restored "$work/r"
}
say "the first life"
stop_cluster c2
c1_psql -c "create extension amcheck" -c "create table life (id int primary key, v text)" -c "insert into life select i, md5(i::text) from generate_series(1, 20000) i"
expect 0 c1_sluice stanza-create
expect 0 c1_sluice backup
old_full=$(newest)
old_sums=$(sums c1_psql)
c1_psql -c "update life set v = 'incr' where id < 100"
promote c1 "$old_bin"
expect 0 c1_sluice backup --type=incr
old_incr=$(newest) old_incr_sums=$(sums c1_psql)
c1_psql -c "delete from life where id > 15000"
old_end_sums=$(sums c1_psql)
expect 0 c1_sluice check
# an option of columns that 15.20 dumps and that servers before its time do not know
grep -q pg_attver "$pg_bin/postgres" || c1_psql -c "update pg_attribute set attoptions = null where attoptions::text like '%pg_attver%'"
stop_cluster c1 "$old_bin"

say "pg_upgrade"
as_pg sed -i 's/^archive_mode = on/archive_mode = off/' "$c2_data/postgresql.conf"
as_pg mkdir "$work/upgrade"
(cd "$work/upgrade" && work=$work/upgrade as_pg pg_upgrade -b "$old_bin" -B "$pg_bin" -d "$c1_data" -D "$c2_data" \
  -s "$work/c2-socket" -p "$(free_port)" -P "$(free_port)" -U postgres) >"$work/upgrade.log" 2>&1 || { cat "$work/upgrade.log" "$c2_data"/pg_upgrade_output.d/*/log/pg_upgrade_dump*.log; die "pg_upgrade"; }
as_pg sed -i 's/^archive_mode = off/archive_mode = on/' "$c2_data/postgresql.conf"
as_pg pg_ctl -D "$c2_data" -l "$work/c2-server.log" -w start >/dev/null || { cat "$work/c2-server.log"; die "the upgraded server does not start"; }
[ "$(sums c2_psql)" = "$old_end_sums" ] || die "pg_upgrade lost something"
say "before stanza-upgrade its backup and its WAL are refused"
expect 44 c2_sluice backup
grep -q "stanza-upgrade" "$work/out" || { cat "$work/out"; die "no hint at stanza-upgrade"; }
c2_psql -c "select pg_switch_wal()" >/dev/null
for i in $(seq 150); do
  [ "$(c2_psql -c "select failed_count > 0 from pg_stat_archiver")" = t ] && break
  sleep 0.2
done
[ "$(c2_psql -c "select archived_count = 0 and failed_count > 0 from pg_stat_archiver")" = t ] || die "WAL of another cluster was taken"
expect 0 c2_sluice stanza-upgrade
expect 44 c1_sluice stanza-upgrade --no-online # not back
say "then the first increment is a full one, the next one is none"
c2_psql -c "insert into life select i, 'new life' from generate_series(30000, 31000) i"
expect 0 c2_sluice backup --type=incr
grep -q "before stanza-upgrade: this backup is a full one" "$work/out" || { cat "$work/out"; die "the message"; }
new_full=$(newest) new_sums=$(sums c2_psql)
[[ "$new_full" =~ F$ ]] || die "$new_full is no full backup"
promote c2 "$pg_bin"
c2_psql -c "update life set v = 'second' where id between 200 and 300"
expect 0 c2_sluice backup --type=incr
new_incr=$(newest) new_incr_sums=$(sums c2_psql)
[[ "$new_incr" = "$new_full"_*I ]] || die "$new_incr does not build on $new_full"
c2_psql -c "delete from life where id < 1000"
new_end_sums=$(sums c2_psql)
expect 0 c2_sluice check
[ "$(find "$repo/wal" -name 00000002.history | wc -l)" = 2 ] || die "the two histories have met"
[ "$(find "$repo/wal" -type f -printf '%f\n' | sort | uniq -d | wc -l)" -gt 0 ] || die "this shows nothing: no name is there twice"
expect 0 c2_sluice verify
say "both lives are restored"
restored "$old_full" "$old_sums" c1 "$old_bin" --target-immediate
restored "$old_incr" "$old_incr_sums" c1 "$old_bin" --target-immediate
restored "$old_incr" "$old_end_sums" c1 "$old_bin"
restored "$new_full" "$new_sums" c2 "$pg_bin" --target-immediate
restored "$new_incr" "$new_incr_sums" c2 "$pg_bin" --target-immediate
restored "$new_incr" "$new_end_sums" c2 "$pg_bin"
say "the life that is over goes with its last backup"
expect 0 c2_sluice expire --retention-full=1
[ "$(find "$repo/wal" -name 00000002.history | wc -l)" = 1 ] && [ "$(c2_sluice info --output=json 2>/dev/null | jq -c '[.stanza[0].backup[].label]')" = "[\"$new_full\",\"$new_incr\"]" ] || die "something of the old life stays"
expect 0 c2_sluice verify
