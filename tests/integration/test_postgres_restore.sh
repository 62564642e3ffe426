#!/bin/bash
# timeout: 900
# postgres: 18 (15 17)
# Where a restore can stop, which backup it takes, along which timeline, and what the restored server
# may do: targets time, LSN, transaction, name, immediate; exclusive; archive_mode; pg_verifybackup.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/cluster.sh"
initdb_options=--wal-segsize=1 new_cluster c1
say "$(postgres --version)"
step() { c1_psql -c "insert into steps values ($1)"; }
newest() { c1_sluice info --output=json 2>/dev/null | jq -r '.stanza[0].backup | last | .label'; }
# restored STEP [OPTION…]: restores with the options, verifies, starts, wants STEP as the last one
restored() {
  local want=$1
  shift
  n=$((${n:-0} + 1)) r=$work/r$((${n:-0} + 1))
  expect 0 c1_sluice restore --datadir="$r" --target-action=promote "$@"
  cp "$work/out" "$work/said"
  expect 0 as_pg pg_verifybackup -n "$r"
  start_restored "$r"
  [ "$(r_psql -c "select coalesce(max(i), 0) from steps")" = "$want" ] || { cat "$work/said"; tail -n 20 "$r.log"; die "wanted step $want: $*"; }
  stop_restored "$r"
}
c1_psql -c "create table steps (i int)"
# what a careless DBA leaves behind must not direct the clone
as_pg tee -a "$c1_data/postgresql.conf" >/dev/null <<'CONF'
recovery_target_inclusive = off
recovery_target_action = shutdown
recovery_target_timeline = current
recovery_target_name = 'nowhere'
CONF
expect 0 c1_sluice stanza-create
expect 0 c1_sluice backup
first=$(newest)
step 1
sleep 0.1
time1=$(c1_psql -c "select now()")
sleep 0.1
xid2=$(c1_psql -c "insert into steps values (2) returning pg_current_xact_id()")
step 3
lsn3=$(c1_psql -c "select pg_current_wal_insert_lsn()")
step 4
c1_psql -c "select pg_create_restore_point('four')" >/dev/null
step 5
expect 0 c1_sluice backup
second=$(newest)
step 6
c1_psql -c "select pg_switch_wal()" >/dev/null
step 7
sleep 1

say "what does not go together"
for bad in "--target-lsn=0/1 --target-xid=5" "--target-lsn=nonsense" "--target-xid=12x" "--type=lsn" "--type=standby --target-name=x" \
  "--target-exclusive" "--target-exclusive --target-name=x" "--target-timeline=first" "--target-timeline=0" "--target-immediate --target-lsn=0/1" "--target-name="; do
  # shellcheck disable=SC2086
  expect 31 c1_sluice restore --datadir="$work/none" $bad
done
expect 31 c1_sluice restore --datadir="$work/none" --target-xid=99999999999999999999
expect 31 c1_sluice restore --datadir="$work/none" --target-name="$(printf 'two\nlines')"
for bad in 16385 x=/y 16385=relative =/x; do expect 31 c1_sluice restore --datadir="$work/none" --tablespace-map="$bad"; done
expect 31 c1_sluice restore --datadir="$work/none" --target-lsn="$lsn3" --set="$second"
expect 55 c1_sluice restore --datadir="$work/none" --target-lsn=0/100
[ ! -e "$work/none" ] || die "a folder was made for nothing"

say "a tablespace that the backup does not have"
expect 31 c1_sluice restore --datadir="$work/none" --tablespace-map=99999="$work/spc" --dry-run
grep -q 'has no such tablespace' "$work/out"
expect 31 c1_sluice restore --datadir="$work/none" --tablespace-map=99999="$work/spc"
rm -rf "$work/none"

say "a folder above that may be entered and not read"
mkdir "$work/above" "$work/above/in"
[ -z "$pg_user" ] || chown "$pg_user:" "$work/above/in"
chmod 711 "$work/above"
expect 0 c1_sluice restore --datadir="$work/above/in" --set="$first" --type=immediate

say "targets; the backup is chosen by itself where that can be known"
restored 1 --target-time="$time1"
grep -q "restoring backup $first" "$work/said" || die "the wrong backup"
grep -q "archive_mode = off, because it stops" "$work/said" || die "it does not say that the clone will not archive"
restored 3 --target-lsn="$lsn3"
grep -q "restoring backup $first" "$work/said" || die "the wrong backup"
restored 2 --target-xid="$xid2" --set="$first"
restored 1 --target-xid="$xid2" --set="$first" --target-exclusive
restored 4 --target-name=four --set="$first"
restored 5 --target-immediate
grep -q "restoring backup $second" "$work/said" || die "the wrong backup"
expect 0 c1_sluice restore --datadir="$work/rx" --target-name=four
grep -q "cannot be known" "$work/out" || die "no warning"
restored 6 # to the end of the archive
grep -q "archive_mode = off, because it is another folder" "$work/said" || { cat "$work/said"; die "the clone would archive"; }
[ ! -e "$work/repo/main/wal/"*/00000002/00000002.history ] || die "a clone has archived into its origin's stanza"

say "with its WAL a restored folder needs no repository: pg_verifybackup reads that too"
expect 0 c1_sluice restore --datadir="$work/w1" --with-wal --type=immediate
expect 0 as_pg pg_verifybackup "$work/w1"
printf x | dd of="$work/w1/PG_VERSION" bs=1 conv=notrunc status=none
expect 1 as_pg pg_verifybackup "$work/w1" # the test can fail
[ "$(ls "$work/w1/tablespace_map" 2>/dev/null)" = "" ] && ! grep -q tablespace_map "$work/w1/backup_manifest"

if [ "$(id -u)" = 0 ]; then
  say "restored by root, everything belongs to the server's user"
  expect 0 sluice --config="$work/c1.conf" restore --datadir="$work/o1" --with-wal --type=immediate --target-action=promote
  [ -z "$(find "$work/o1" ! -user "$pg_user" -print -quit)" ] || { find "$work/o1" ! -user "$pg_user" | head; die "it does not"; }
  expect 0 sluice --config="$work/c1.conf" restore --datadir="$work/o1" --delta
  [ -z "$(find "$work/o1" ! -user "$pg_user" -print -quit)" ] || { find "$work/o1" ! -user "$pg_user" | head; die "it does not after a delta restore"; }
fi

say "timelines: a promotion that archives; the old server goes on; backups on either branch"
n=20 r=$work/r21
expect 0 c1_sluice restore --datadir="$work/tl2" --set="$first" --target-lsn="$lsn3" --target-action=promote --archive-mode=preserve
start_restored "$work/tl2"
r_psql -c "insert into steps values (100)" -c "select pg_switch_wal()" >/dev/null
for i in $(seq 150); do
  [ "$(r_psql -c "select last_archived_wal like '00000002________________' from pg_stat_archiver")" = t ] && break
  sleep 0.2
done
stop_restored "$work/tl2"
step 8
expect 0 c1_sluice backup # on timeline 1, after 2 had branched off
third=$(newest)
step 9
c1_psql -c "select pg_switch_wal()" >/dev/null
restored 100 # latest is timeline 2, which only the first backup leads to
grep -q "restoring backup $first" "$work/said" || { cat "$work/said"; die "the wrong backup"; }
grep -q "backup $third is passed over" "$work/said" || die "it does not say why"
expect 31 c1_sluice restore --datadir="$work/none" --set="$third" --target-timeline=2
expect 55 c1_sluice restore --datadir="$work/none" --target-timeline=7
restored 9 --target-timeline=current
grep -q "restoring backup $third" "$work/said" || die "the wrong backup"
restored 9 --set="$third"
restored 8 --set="$third" --target-immediate
restored 3 --target-timeline=2 --target-lsn="$lsn3"
grep -q "restoring backup $first" "$work/said" || die "the wrong backup"
say ok
