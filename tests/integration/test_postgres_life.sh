#!/bin/bash
# timeout: 600
# postgres: 15 (17 18)
# A whole life of a cluster: full and incremental backups, promotion, an increment after it, expire, verify; then
# restores to five targets, a standby, a delta restore. After each of them: pg_verifybackup, the contents of every
# table, pg_amcheck with all indexes, pg_checksums.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/cluster.sh"
initdb_options=--wal-segsize=1 new_cluster c1
say "$(postgres --version)"
sums() { # PSQL: name, rows and checksum of every table
  "$1" <<'SQL'
select format('select %L, count(*), coalesce(sum(hashtextextended(t::text, 0)), 0) from %s t', oid::regclass, oid::regclass)
from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace order by relname \gexec
SQL
}
newest() { c1_sluice info --output=json 2>/dev/null | jq -r '.stanza[0].backup | sort_by(.label | split("_") | last) | last | .label'; }
take() { # TYPE NAME [WORDS]: a backup; keeps its label and what it must restore to
  expect 0 c1_sluice backup --type="$1" --log-level=info
  [ -z "${3:-}" ] || grep -q "$3" "$work/out" || { cat "$work/out"; die "it does not say: $3"; }
  printf -v "$2" '%s' "$(newest)"
  sums c1_psql >"$work/$2.sums"
  say "$2: ${!2}"
}
r_port() { r_psql -c "show port"; }
checked() { # FOLDER SUMS [RECOVERING]: a restored folder: verified, started, read whole
  local i
  expect 0 as_pg pg_verifybackup -n "$1"
  start_restored "$1" "${3:-f}"
  for i in $(seq 150); do # a standby gets there in its own time
    sums r_psql >"$work/now" 2>&1 || true
    cmp -s "$work/now" "$work/$2.sums" && break
    [ "${3:-f}" = t ] && sleep 0.2 || break
  done
  diff "$work/$2.sums" "$work/now" || { tail -n 20 "$1.log"; die "$1 is not as $2 was"; }
  expect 0 as_pg pg_amcheck --heapallindexed -d postgres -h "$work/c1-socket" -p "$(r_port)" -U postgres
  stop_restored "$1"
  expect 0 as_pg pg_checksums --check -D "$1"
  ! grep -qE 'PANIC|invalid page' "$1.log" || { cat "$1.log"; die "its server complains"; }
}
restored() { # SUMS OPTION…: into a new folder $r
  local want=$1
  shift
  n=$((${n:-0} + 1)) r=$work/r$n
  say "restore $*"
  expect 0 c1_sluice restore --datadir="$r" --tablespace-map="$space=$r-space" --target-action=promote "$@"
  checked "$r" "$want"
  rm -rf "$r" "$r-space"
}

as_pg mkdir "$work/space"
by_wal=
if [ "$pg_version" -ge 17 ]; then
  c1_psql -c "alter system set summarize_wal = on"
  by_wal="only blocks that WAL summaries name are read"
  # an idle summarizer looks for WAL every 30 s only; this turns it on and wakes it
  (while c1_psql -c "select pg_reload_conf()" || true; do sleep 1; done) >/dev/null 2>&1 &
  started_pids+=($!)
fi
c1_psql -c "create extension amcheck" -c "create tablespace elsewhere location '$work/space'" \
  -c "create table big (id int primary key, v text) with (fillfactor = 60)" \
  -c "insert into big select i, md5(i::text) from generate_series(1, 60000) i" -c "create index on big (v)" \
  -c "create table there tablespace elsewhere as select i, md5(i::text) as v from generate_series(1, 20000) i" \
  -c "create table gone as select i from generate_series(1, 20000) i" -c "create table steps (i int)"
space=$(c1_psql -c "select oid from pg_tablespace where spcname = 'elsewhere'")
expect 0 c1_sluice stanza-create
take full zero
take full full
c1_psql -c "update big set v = reverse(v) where id % 500 = 0" -c "drop table gone"
take incr first "$by_wal"
c1_psql -c "update there set v = 'x' where i between 5000 and 7000" -c "delete from big where id between 20000 and 30000" \
  -c "create table more as select i, 'm' as v from generate_series(1, 5000) i" -c "vacuum big"
take incr second "$by_wal"
say "promotion"
stop_cluster c1 "$pg_bin" immediate
as_pg touch "$c1_data/standby.signal"
as_pg pg_ctl -D "$c1_data" -l "$work/c1-server.log" -w start >/dev/null
as_pg pg_ctl -D "$c1_data" -w promote >/dev/null
c1_psql -c "update big set v = 'p' where id < 100"
take incr third
[[ "$third" = "$full"_*I ]] || die "$third does not build on $full"
step() { # NAME SQL…: a mark, and what is restored to it
  local name=$1
  shift
  c1_psql -c "insert into steps select count(*) from steps" "$@" | tail -n 1
  sums c1_psql >"$work/$name.sums"
}
at_time=$(step time -c "update big set v = 't' where id = 1" -c "select pg_sleep(0.1)" -c "select now()")
sleep 0.1
xid=$(step xid -c "insert into steps values (1000) returning pg_current_xact_id()")
lsn=$(step lsn -c "truncate more" -c "select pg_current_wal_insert_lsn()")
step name -c "insert into more select i, 'again' from generate_series(1, 9000) i" -c "select pg_create_restore_point('named')" >/dev/null
step end -c "update there set v = 'end' where i < 100" >/dev/null
expect 0 c1_sluice check # the last segment is stored
say "expire, verify"
expect 0 c1_sluice expire --retention-full=1
[ "$(c1_sluice info --output=json 2>/dev/null | jq --arg l "$zero" '.stanza[0].backup | length == 4 and all(.label != $l)')" = true ] || die "not the first one alone has gone"
expect 0 c1_sluice verify

restored time --target-time="$at_time"
restored xid --target-xid="$xid" --set="$third"
restored lsn --target-lsn="$lsn"
restored name --target-name=named --set="$third"
restored second --target-immediate --set="$second"
say "a standby"
r=$work/standby
expect 0 c1_sluice restore --datadir="$r" --tablespace-map="$space=$r-space" --type=standby
checked "$r" end t
say "brought back to an earlier backup by a delta restore"
as_pg rm "$r/$(c1_psql -c "select pg_relation_filepath('big')")"
as_pg sh -c "echo garbage >>'$r/PG_VERSION'; echo more >'$r/base/stray'"
expect 40 c1_sluice restore --datadir="$r" --delta --set="$first" --target-immediate # without a map: production's tablespace
grep -q "folder \"$work/space\" is not empty" "$work/out" || { cat "$work/out"; die "the folder is not named"; }
expect 0 c1_sluice restore --datadir="$r" --tablespace-map="$space=$r-space" --delta --set="$first" --target-immediate --target-action=promote
checked "$r" first
[ ! -e "$r/base/stray" ] || die "what the backup does not have is still there"
[ "$(find "$work/repo/main/wal" -name '*.history' | wc -l)" = 1 ] || die "a clone has archived"
