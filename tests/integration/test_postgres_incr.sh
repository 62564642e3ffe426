#!/bin/bash
# timeout: 600
# postgres: 17 (15 18)
# Increments: what they read, send and store after 1 % and 10 % of the pages changed; every one
# restores by itself to what the database was; after a switch of timelines, after expire of what they
# built on; files that grow, shrink, vanish and come anew.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/cluster.sh"
initdb_options=--wal-segsize=1 new_cluster c1
repo=$work/repo/main
field() { c1_sluice info --output=json | python3 -c "import json, sys; b = [b for b in json.load(sys.stdin)['stanza'][0]['backup'] if b['label'] == sys.argv[1]][0]; print(eval(sys.argv[2], {'b': b}))" "$1" "$2"; }
labels() { c1_sluice info --output=json | python3 -c "import json, sys; [print(b['label']) for b in json.load(sys.stdin)['stanza'][0]['backup']]" | sort -t_ -k2,2; }
backup() { # TYPE: prints "LABEL READ DELTA STORED"
  c1_sluice backup --output=json --type="$1" >"$work/b.json" 2>"$work/b.err" || { cat "$work/b.json" "$work/b.err" >&2; die "backup $1" >&2; }
  python3 -c "import json; b = json.load(open('$work/b.json')); print(b['label'], b['bytes'], b['delta_bytes'], b['stored_bytes'])"
}
sums() { "$@" -c "select (select count(*) || ' ' || coalesce(sum(hashtextextended(t::text, 0)), 0) from big t), (select count(*) || ' ' || coalesce(sum(hashtextextended(s::text, 0)), 0) from small s)"; }
restored_sums() { # LABEL
  local dir=$work/r port
  rm -rf "$dir"
  expect 0 c1_sluice restore --set="$1" --type=immediate --target-action=promote --datadir="$dir"
  port=$(free_port)
  as_pg sh -c "printf 'port = %s\n' $port >>'$dir/postgresql.auto.conf'"
  as_pg pg_ctl -D "$dir" -l "$work/r.log" -w -t 120 start >/dev/null || { cat "$work/r.log" >&2; die "it does not start" >&2; }
  sums as_pg psql -X -q -A -t -h "$work/c1-socket" -p "$port" -U postgres -d postgres
  as_pg pg_ctl -D "$dir" -m immediate -w stop >/dev/null
}
declare -A want
take() { # TYPE: a backup, with what it should restore to
  read -r label bytes delta stored < <(backup "$1")
  [ -n "$label" ] || die "no backup"
  want[$label]=$(sums c1_psql)
  say "$1 $label: read $bytes, changed $delta, stored $stored"
}

expect 0 c1_sluice stanza-create
c1_psql -c "create table big (id int primary key, v text) with (fillfactor = 50)" \
  -c "insert into big select i, md5(i::text) || md5((i * 7)::text) from generate_series(1, 400000) i" \
  -c "create table small as select i from generate_series(1, 100) i" -c "vacuum freeze" -c "checkpoint" 
pages=$(c1_psql -c "select pg_relation_size('big') / 8192")

say "nothing to build on"
take incr
grep -q "there is no backup to build on: this backup is a full one" "$work/b.err" || { cat "$work/b.err"; die "the message"; }
[[ "$label" =~ F$ ]] || die "$label is no full backup"
full=$label full_bytes=$bytes full_stored=$stored

say "1 % of the pages"
c1_psql -c "update big set v = reverse(v) where ctid in (select format('(%s,1)', p)::tid from generate_series(0, $pages - 1, 100) p)" -c checkpoint
take incr
[[ "$label" = "$full"_*I ]] || die "$label"
[ "$bytes" -gt $((full_bytes * 9 / 10)) ] || die "it should have read everything"
# a page in a group of 4, the index, and what each backup has of its own
[ "$delta" -lt $((full_bytes * 15 / 100)) ] || die "1 % changed: $delta of $full_bytes were stored"
[ "$stored" -lt $((full_stored * 15 / 100 + 200000)) ] || die "1 % changed: $stored of $full_stored"
first=$label
say "10 %, in one place"
c1_psql -c "update big set v = reverse(v) where ctid >= '(0,1)' and ctid < format('(%s,1)', $pages / 10)::tid" -c checkpoint
take incr
[ "$delta" -lt $((full_bytes * 35 / 100)) ] && [ "$delta" -gt $((full_bytes * 5 / 100)) ] || die "10 % changed: $delta of $full_bytes"
second=$label second_delta=$delta
take diff
[[ "$label" = "$full"_*D ]] && [ "$delta" -ge "$second_delta" ] || die "a differential one has all since the full one"
say "grown, shrunk, dropped, made anew"
c1_psql -c "truncate small" -c "insert into small values (1), (2)" -c "delete from big where id > 200000" -c "vacuum (truncate) big" \
  -c "insert into big select i, 'new' from generate_series(400001, 450000) i" -c "create table other as select i from generate_series(1, 50000) i" -c checkpoint
take incr
c1_psql -c "drop table other" -c "vacuum full big" -c checkpoint
take incr
last=$label
for l in "${!want[@]}"; do
  [ "$(restored_sums "$l")" = "${want[$l]}" ] || die "$l is not what it was"
done
expect 0 c1_sluice verify
[ "$(field "$last" "b['type']")" = incr ] && [ "$(field "$last" "b['prior']")" != None ] || die "info"

say "it references what is kept"
expect 0 c1_sluice expire --retention-full=1
[ "$(labels | wc -l)" = 6 ] || die "something of the set went"

say "after a switch of timelines"
expect 0 c1_sluice backup --type=incr
stop_cluster c1 "$pg_bin" immediate
as_pg touch "$c1_data/standby.signal"
as_pg pg_ctl -D "$c1_data" -l "$work/c1-server.log" -w start >/dev/null
as_pg pg_ctl -D "$c1_data" -w promote >/dev/null
c1_psql -c "insert into small values (77)" -c checkpoint
take incr
[[ "$label" = "$full"_*I ]] || die "$label"
[ "$(restored_sums "$label")" = "${want[$label]}" ] || die "the one after the switch is not what it was"

say "after expire of what it would build on"
take full
after=$label
expect 0 c1_sluice expire --retention-full=1
[ "$(labels)" = "$after" ] || die "the first set stays"
take incr
[[ "$label" = "$after"_*I ]] || die "$label"
[ "$(restored_sums "$label")" = "${want[$label]}" ] || die "it is not what it was"
expect 0 c1_sluice verify

say "groups of the one before are damaged: what they tell of is stored anew"
printf X | dd of="$(echo "$repo/backup/$label"/groups-* | cut -d' ' -f1)" bs=1 seek=20 conv=notrunc status=none
take incr
grep -q "is not used: its files are stored anew" "$work/b.err" || { cat "$work/b.err"; die "the message"; }
[ "$(restored_sums "$label")" = "${want[$label]}" ] || die "it is not what it was"
