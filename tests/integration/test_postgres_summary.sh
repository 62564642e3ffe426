#!/bin/bash
# timeout: 600
# postgres: 17 (18)
# Increments by WAL summaries: what they read of the disk after 1 % of the pages changed; relations that are truncated
# and grow again, dropped and made anew, copied with a whole database, unlogged, in a tablespace; free space and visibility maps;
# config files. Every one restores to what pg_dumpall said. Without complete summaries all is compared, and
# said why.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/cluster.sh"
new_cluster c1
value() { python3 -c "import json; print(json.load(open('$work/b.json')).get('$1'))"; } # KEY of the last report
dump() { as_pg pg_dumpall --no-sync -h "$work/c1-socket" -p "$1" -U postgres | grep -v -e '^.\(un\)\?restrict ' -e '^CREATE TABLESPACE '; } # PORT
take() { # TYPE [WORDS]: a backup, and what it should restore to; WORDS: what it must say
  local type=$1 words=${2:-}
  c1_sluice backup --output=json --log-level=info --pg-user=sluice --type="$type" >"$work/b.json" 2>"$work/b.err" || { cat "$work/b.json" "$work/b.err"; die "backup $type"; }
  label=$(value label)
  [ -z "$words" ] || grep -q "$words" "$work/b.err" || { cat "$work/b.err"; die "it does not say: $words"; }
  dump "$c1_port" >"$work/$label.sql"
  say "$type $label: of $(value bytes) read $(value read_bytes), stored $(value delta_bytes)"
}
by_wal="only blocks that WAL summaries name are read"
restored() { # LABEL
  local port
  rm -rf "$work/r" "$work/r-space"
  expect 0 c1_sluice restore --set="$1" --type=immediate --target-action=promote --datadir="$work/r" --tablespace-map="$space=$work/r-space"
  start_restored "$work/r"
  port=$(r_psql -c "show port")
  dump "$port" | diff "$work/$1.sql" - | head -n 20 >"$work/diff" || true
  [ ! -s "$work/diff" ] || { cat "$work/diff"; die "$1 is not what it was"; }
  [ "$(r_psql -c "set enable_seqscan = off" -c "select count(*) from big where id > 0")" = "$(r_psql -c "set enable_indexscan = off; set enable_indexonlyscan = off; set enable_bitmapscan = off" -c "select count(*) from big where id > 0")" ] || die "$1: index and table differ"
  ! grep -qE 'PANIC|invalid page|could not read blocks' "$work/r.log" || { cat "$work/r.log"; die "its server complains"; }
  stop_restored "$work/r" immediate
}
as_pg mkdir "$work/space"
c1_psql -c "alter system set summarize_wal = on" -c "alter system set autovacuum = off"
c1_psql -c "select pg_reload_conf()" -c "create tablespace elsewhere location '$work/space'" >/dev/null
space=$(c1_psql -c "select oid from pg_tablespace where spcname = 'elsewhere'")
expect 0 c1_sluice stanza-create
sed -n 's/^    \(\(CREATE ROLE\|GRANT\) .*;\)$/\1/p' "$SLUICE_ROOT/docs/postgresql.md" >"$work/rights.sql"
c1_psql <"$work/rights.sql" # with these all is done that follows
# An idle summarizer looks for WAL every 30 s only; this wakes it.
(while sleep 1; do c1_psql -c "select pg_reload_conf()"; done) >/dev/null 2>&1 &
started_pids+=($!)
c1_psql -c "create table big (id int primary key, v text) with (fillfactor = 50)" \
  -c "insert into big select i, md5(i::text) || md5((i * 7)::text) from generate_series(1, 200000) i" \
  -c "create table cut as select i, md5(i::text) from generate_series(1, 20000) i" \
  -c "create table anew as select i from generate_series(1, 20000) i" \
  -c "create table there tablespace elsewhere as select i from generate_series(1, 30000) i" \
  -c "create unlogged table passing as select i from generate_series(1, 20000) i" \
  -c "vacuum freeze" -c checkpoint
pages=$(c1_psql -c "select pg_relation_size('big') / 8192")
take full
c1_psql -c "truncate passing" # so that the restored one, which is empty, is the same
full=$(value bytes)
say "1 % of the pages"
c1_psql -c "update big set v = reverse(v) where ctid in (select format('(%s,1)', p)::tid from generate_series(0, $pages - 1, 100) p)" -c checkpoint
take incr "$by_wal"
[ "$(value read_bytes)" -lt $((full * 15 / 100)) ] || die "it read $(value read_bytes) of $full"
say "in the middle of a tablespace's table, a quarter of another; maps"
c1_psql -c "update there set i = i + 1 where i between 10000 and 10020" -c "delete from big where id between 1000 and 50000" -c "vacuum big" -c checkpoint
take incr "$by_wal"
two=$label
say "cut and grown again, dropped and made anew, a database copied, a config file"
c1_psql -c "begin" -c "truncate anew" -c "insert into anew select i * 3 from generate_series(1, 15000) i" -c "commit" \
  -c "delete from cut where i > 100" -c "vacuum (truncate) cut" -c "insert into cut select i, 'again' from generate_series(1, 20000) i" \
  -c "drop table there" -c "create table there tablespace elsewhere as select i * 5 from generate_series(1, 9000) i" -c "alter system set work_mem = '5MB'"
c1_psql -c "create database copied template template0 strategy file_copy"
take incr "$by_wal"
three=$label
say "a differential one has all of it"
take diff "$by_wal"
for l in "$two" "$three" "$label"; do restored "$l"; done
expect 0 c1_sluice verify

say "the role may not ask for summaries"
c1_psql -c "revoke execute on function pg_available_wal_summaries() from public"
take incr "permission denied for function pg_available_wal_summaries"
c1_psql -c "grant execute on function pg_available_wal_summaries() to sluice"

say "a summary is missing; summaries are off"
c1_psql -c "update big set v = 'x' where id = 60000" -c checkpoint
take incr "$by_wal"
c1_psql -c "update big set v = 'y' where id = 60001" -c checkpoint -c "update big set v = 'z' where id = 190000" -c checkpoint
for i in $(seq 600); do # what is removed must be what the backup needs
  [ "$(c1_psql -c "select max(end_lsn) >= (select redo_lsn from pg_control_checkpoint()) from pg_available_wal_summaries()")" = f ] || break
  sleep 0.2
done
as_pg find "$c1_data/pg_wal/summaries" -name '*.summary' -delete
take incr "they have a gap, or the oldest are removed already"
restored "$label"
c1_psql -c "alter system set summarize_wal = off" -c "select pg_reload_conf()" >/dev/null
sleep 1
c1_psql -c "update big set v = 'w' where id = 60002" -c checkpoint
take incr "summarize_wal is off"
[ "$(value read_bytes)" -gt $((full / 3)) ] || die "it did not read everything"
restored "$label"
