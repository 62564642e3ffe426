#!/bin/bash
# timeout: 900
# postgres: 15 (18)
# restore --delta and --dry-run: an existing folder in many states is brought to the backup's, by
# checksum; another cluster's is not touched; the plan names space, WAL and gaps.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/cluster.sh"
initdb_options=--wal-segsize=1 new_cluster c1
say "$(postgres --version)"
sums() { "$1" -c "select 'data', count(*), sum(hashtextextended(t::text, 0)) from data t union all select 'spaced', count(*), sum(hashtextextended(t::text, 0)) from spaced t order by 1"; }
odd="$work/ts odd =%\"\$(x)\\y"$'\n'"z"
as_pg mkdir -p "$odd" "$work/ts2" "$work/ts3"
c1_psql -v "dir=$odd" <<'SQL'
create tablespace t location :'dir';
create table spaced tablespace t as select i, md5(i::text) from generate_series(1, 20000) i;
create table data as select i, repeat(md5(i::text), 4) as x from generate_series(1, 20000) i;
SQL
as_pg truncate -s 3M "$c1_data/holes"
expect 0 c1_sluice stanza-create
expect 0 c1_sluice backup
c1_psql -c "update data set x = 'later' where i % 100 = 0" -c "select pg_switch_wal()" >/dev/null
wanted=$(sums c1_psql)
oid=$(c1_psql -c "select oid from pg_tablespace where spcname = 't'")

say "dry run: the plan"
r=$work/r1
expect 40 c1_sluice restore --datadir="$r" --dry-run # the tablespace's folder is in use
grep -q "PROBLEM: folder \"$work/ts odd" "$work/out" || { cat "$work/out"; die "the tablespace's folder is not named"; }
map="--tablespace-map=$oid=$work/ts2"
expect 0 c1_sluice restore --datadir="$r" "$map" --dry-run
grep -q "^tablespace $oid: 2 files\|^tablespace $oid: [0-9]* files" "$work/out" && grep -q '^WAL: ' "$work/out" || { cat "$work/out"; die "no plan"; }
[ ! -e "$r" ] || die "a dry run made a folder"
expect 38 c1_sluice restore --datadir="$c1_data" --delta --dry-run

say "a folder that is not the cluster's is not touched"
expect 38 c1_sluice restore --datadir="$c1_data" --delta
as_pg mkdir -p "$work/other"
as_pg touch "$work/other/precious"
expect 40 c1_sluice restore --datadir="$work/other" --delta
[ -e "$work/other/precious" ]
as_pg initdb -D "$work/foreign" -A trust --no-sync >/dev/null
expect 44 c1_sluice restore --datadir="$work/foreign" "$map" --delta
[ -e "$work/foreign/global/pg_control" ]

say "into an empty folder it is a restore like any other; names of tablespace folders may be odd"
expect 0 c1_sluice restore --datadir="$r" "$map" --delta
expect 0 as_pg pg_verifybackup -n "$r"
start_restored "$r"
[ "$(sums r_psql)" = "$wanted" ] || die "the tables differ"
r_psql -c "delete from data" -c "drop table spaced" -c "create table new as select 1" -c "checkpoint" >/dev/null
stop_restored "$r"

# what can be wrong with it: each is undone
as_pg mkdir -p "$r/base/77777/deep/deeper" "$r/.hidden"
as_pg touch "$r/base/77777/deep/deeper/x" "$r/.hidden/y" "$r/zzz"
as_pg sh -c "echo 1 >'$r/postmaster.pid'; : >'$r/recovery.signal'; : >'$r/standby.signal'"
as_pg rm -r "$r/pg_multixact"
as_pg rm "$r/PG_VERSION"
as_pg cp "$c1_data/PG_VERSION" "$r/"
as_pg ln -s /etc "$r/base/link"
as_pg rm -r "$r/pg_xact"
as_pg ln -s "$work/other" "$r/pg_xact" # a folder became a link: what it leads to must not be touched
as_pg mv "$r/pg_wal" "$work/wal-elsewhere"
as_pg ln -s "$work/wal-elsewhere" "$r/pg_wal" # an administrator's link: it stays
as_pg sh -c "printf hole | dd of='$r/holes' bs=1 seek=1500000 conv=notrunc status=none"
as_pg chmod 400 "$r/pg_hba.conf"
as_pg mkdir -p "$work/ts2/PG_99_1"
as_pg touch "$work/ts2/PG_99_1/kept" # of another version's server
printf x | dd of="$r/global/pg_control" bs=1 seek=40 conv=notrunc status=none # torn
as_pg sh -c "rm '$r/postmaster.pid'"

say "the folder is brought back; most files stay"
expect 0 c1_sluice restore --datadir="$r" "$map" --delta --jobs=3
cat "$work/out"
kept=$(sed -n 's/.*, \([0-9]*\) of them were as they should be/\1/p' "$work/out")
[ "$kept" -gt 500 ] || die "only $kept files were kept"
[ -e "$work/ts2/PG_99_1/kept" ] || die "another version's files were removed"
rm -r "$work/ts2/PG_99_1"
expect 0 as_pg pg_verifybackup -n "$r"
cmp "$c1_data/holes" "$r/holes"
for gone in base/77777 .hidden zzz base/link standby.signal postmaster.pid sluice.restoring; do
  [ ! -e "$r/$gone" ] && [ ! -L "$r/$gone" ] || die "$gone is still there"
done
[ -e "$work/other/precious" ] && [ -L "$r/pg_wal" ] || die "too much was removed"
[ "$(stat -c %a "$r/pg_hba.conf")" = "$(stat -c %a "$c1_data/pg_hba.conf")" ]
start_restored "$r"
[ "$(sums r_psql)" = "$wanted" ] || die "the tables differ"
stop_restored "$r"

say "a tablespace that moves: its new folder must be empty, the old one is left"
as_pg touch "$work/ts3/x"
expect 40 c1_sluice restore --datadir="$r" "--tablespace-map=$oid=$work/ts3" --delta
as_pg rm "$work/ts3/x"
expect 0 c1_sluice restore --datadir="$r" "--tablespace-map=$oid=$work/ts3" --delta # goes on where it was interrupted
expect 0 as_pg pg_verifybackup -n "$r"
[ "$(readlink "$r/pg_tblspc/$oid")" = "$work/ts3" ]
[ -n "$(ls "$work/ts2")" ]

if grep -q SLUICE_FAULT "$SLUICE_BUILD/bin/sluice"; then
  say "killed or failing anywhere, no server starts; again, and it is whole"
  map="--tablespace-map=$oid=$work/ts3"
  for fault in pg.restore_remove:kill@2 pg.restore_remove:EIO@2 pg.restore_compare:kill@400 pg.restore_compare:EIO@400 \
    pg.restore_write:kill@2 pg.restore_manifest:ENOSPC@100 pg.restore_sync:kill@300; do
    as_pg mkdir -p "$r/base/1/junk" "$r/junk"
    # shellcheck disable=SC2016
    as_pg sh -c 'for f in "$1"/base/1/26*; do printf y | dd of="$f" bs=1 seek=5 conv=notrunc status=none; done' - "$r"
    got=0
    as_pg env SLUICE_FAULT=$fault sluice --config="$work/c1.conf" restore --datadir="$r" "$map" --delta >"$work/out" 2>&1 || got=$?
    case $fault in
      pg.restore_compare:EIO*) [ $got = 0 ] && grep -q "it is restored" "$work/out" || { cat "$work/out"; die "$fault: $got"; } ;;
      *)
        [ $got != 0 ] || { cat "$work/out"; die "$fault did nothing"; }
        [ ! -e "$r/global/pg_control" ] || die "pg_control is there after $fault"
        expect 0 c1_sluice restore --datadir="$r" "$map" --delta
        ;;
    esac
    expect 0 as_pg pg_verifybackup -n "$r"
  done
fi

say "dry run: WAL that is missing"
last=$(find "$work/repo/main/wal" -name '0000000100000000????????' | sort | tail -n 1)
needed=$(c1_sluice info --output=json 2>/dev/null | jq -r '.stanza[0].backup[0].archive.stop')
c1_psql -c "create table more as select 1" -c "select pg_switch_wal()" >/dev/null
c1_psql -c "create table more2 as select 1" -c "select pg_switch_wal()" >/dev/null
sleep 2
mv "$last" "$work/hidden"
expect 72 c1_sluice restore --datadir="$work/r9" "--tablespace-map=$oid=$work/r9t" --dry-run
grep -q "PROBLEM: WAL is missing between" "$work/out" || { cat "$work/out"; die "the gap is not named"; }
mv "$work/hidden" "$last"
found=$(find "$work/repo/main/wal" -name "$needed")
mv "$found" "$work/hidden"
expect 72 c1_sluice restore --datadir="$work/r9" "--tablespace-map=$oid=$work/r9t" --dry-run
grep -q "WAL that the backup needs" "$work/out" || { cat "$work/out"; die "the missing WAL is not named"; }
[ ! -e "$work/r9" ] && [ ! -e "$work/r9t" ]
mv "$work/hidden" "$found"
say ok
