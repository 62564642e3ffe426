#!/bin/bash
# timeout: 600
# postgres: 17 (15 18)
# A backup that is killed in the middle is resumed: packs that were durable are not sent again, neither
# by the first nor by the second that goes on; what changed meanwhile is. Full and incremental ones restore to what
# the database was. One that runs, or is marked by expire, or was of another kind, is left alone.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/cluster.sh"
grep -q SLUICE_FAULT "$SLUICE_BUILD/bin/sluice" || skip "this build has no fault points"
initdb_options=--wal-segsize=1 new_cluster c1
repo=$work/repo
faulty() { # FAULT COMMAND…: as c1_sluice
  local fault=$1
  shift
  as_pg env SLUICE_FAULT="$fault" sluice --config="$work/c1.conf" "$@"
}
folders() { ls "$repo/main/backup"; }
size() { cat "$repo/main/backup/$1"/pack-$2 | wc -c; }                 # LABEL GLOB: bytes of these packs
packs() { find "$repo/main/backup/$1" -name 'pack-*' | wc -l; }         # LABEL
all_packs() { find "$repo" -path '*/main/backup/*' -name 'pack-*' | wc -l; }
broken_off() { # PACKS ARG…: a backup that is killed when so many packs are durable and the others wait for that
  local wanted=$1 i before now pid
  shift
  before=$(all_packs)
  faulty "pg.pack_commit:sleep=900000@$((wanted + 1))+" backup --jobs=6 "$@" >"$work/killed" 2>&1 &
  for i in $(seq 600); do
    now=$(all_packs)
    [ "$now" != $((before + wanted)) ] || break
    sleep 0.2
  done
  [ "$now" = $((before + wanted)) ] || { cat "$work/killed"; die "$((now - before)) packs"; }
  pid=$(grep -aoh '"pid":[0-9]*' "$(ls -tr "$repo/main/backup"/*/open* | tail -n 1)" | cut -d: -f2)
  kill -9 "$pid"
  wait $! || true
}
value() { python3 -c "import json; print(json.load(open('$work/b.json')).get('$1'))"; } # KEY of the last report
backup() { c1_sluice backup --output=json --jobs=6 "$@" >"$work/b.json" 2>"$work/b.err" || { cat "$work/b.json" "$work/b.err" >&2; die "backup $*"; }; }
sums() { "$@" -c "select (select count(*) || ' ' || coalesce(sum(hashtextextended(t::text, 0)), 0) from big t), (select count(*) || ' ' || coalesce(sum(hashtextextended(s::text, 0)), 0) from small s)"; }
check_restored() { # LABEL WANTED
  rm -rf "$work/r"
  expect 0 c1_sluice restore --set="$1" --type=immediate --target-action=promote --datadir="$work/r"
  start_restored "$work/r"
  [ "$(sums r_psql)" = "$2" ] || die "$1 is not what it was"
  stop_restored "$work/r" immediate
}
expect 0 c1_sluice stanza-create
c1_psql -c "create table big (id int primary key, v text) with (fillfactor = 50)" \
  -c "insert into big select i, md5(i::text) || md5((i * 7)::text) from generate_series(1, 200000) i" \
  -c "create table small as select i from generate_series(1, 1000) i" -c "create table gone as select i from generate_series(1, 50000) i" \
  -c "vacuum freeze" -c checkpoint

say "killed when four of its packs are durable"
broken_off 4 --compress-type=none
label=$(folders)
[ "$(packs "$label")" = 4 ] || die "$(packs "$label") packs"
durable=$(size "$label" '*')
c1_psql -c "update big set v = reverse(v) where id <= 2000" -c "truncate small" -c "insert into small values (7)" -c "drop table gone" \
  -c "create table more as select i from generate_series(1, 20000) i" -c checkpoint
say "killed again after three more; $durable bytes in 4 packs stay"
broken_off 3 --compress-type=none
[ "$(folders)" = "$label" ] || die "another label: $(folders)"
[ "$(packs "$label")" = 7 ] && [ "$(find "$repo/main/backup/$label" -name "pack-1*" | wc -l)" = 3 ] || die "packs: $(ls "$repo/main/backup/$label")"
second=$(size "$label" '1*')
say "and finished"
want=$(sums c1_psql)
backup --type=full --compress-type=none
grep -q "backup $label was broken off and is resumed" "$work/b.err" || die "the message: $(cat "$work/b.err")"
[ "$(value label)" = "$label" ] && [ "$(value attempt)" = 3 ] || die "$(cat "$work/b.json")"
total=$(value bytes) third=$(size "$label" '2*') resumed=$(value resumed_bytes) delta=$(value delta_bytes)
say "of $total: durable $durable, then sent $second, then $third (of files: $delta; of before: $resumed)"
[ $((durable + second)) -gt 4000000 ] || die "too little was stored before to show anything"
[ $((resumed)) -gt $(((durable + second) * 6 / 10)) ] || die "what was durable was sent again"
[ $((third)) -lt $((total - resumed + 1000000)) ] && [ $((second)) -lt $((total - durable * 6 / 10 + 1000000)) ] || die "sent again"
[ $((delta + resumed)) -le "$total" ] || die "it counts twice"
check_restored "$label" "$want"
expect 0 c1_sluice verify
c1_sluice info >"$work/info"
grep -q "broken off and resumed: attempt 3, " "$work/info" || { cat "$work/info"; die "info"; }
full=$label

say "an increment builds on the resumed one and is itself resumed"
c1_psql -c "update big set v = reverse(v) where id between 50000 and 120000" -c "vacuum freeze" -c checkpoint
broken_off 6 --type=incr --compress-type=none
label=$(folders | grep "_.*I")
sent=$(size "$label" '*')
c1_psql -c "update big set v = reverse(v) where id between 1 and 100" -c "insert into small values (8)" -c checkpoint
want=$(sums c1_psql)
backup --type=incr --compress-type=none
[ "$(value label)" = "$label" ] && [ "$(value prior)" = "$full" ] || die "$(cat "$work/b.json")"
[ "$(value resumed_bytes)" -gt $((sent / 2)) ] || die "of $sent only $(value resumed_bytes) are used"
check_restored "$label" "$want"
say "the next one builds on that"
c1_psql -c "update big set v = reverse(v) where id between 100 and 130" -c checkpoint
want=$(sums c1_psql)
backup --type=incr --compress-type=none
[ "$(value prior)" = "$label" ] && [ "$(value attempt)" = None ] || die "$(cat "$work/b.json")"
[ "$(value delta_bytes)" -lt $((total / 4)) ] || die "the groups of a resumed one are not used: $(value delta_bytes)"
check_restored "$(value label)" "$want"
expect 0 c1_sluice verify

say "not resumed: another kind, --resume=off, marked"
sleep 1
broken_off 1
broken=$(folders | tail -n 1)
backup --type=incr
[ "$(value attempt)" = None ] || die "an increment resumed a full one"
sleep 1
backup --type=full --resume=off
[ "$(value label)" != "$broken" ] && [ "$(value attempt)" = None ] || die "resumed although it should not"
broken_off 1
broken=$(folders | tail -n 1)
sleep 2
expect 0 c1_sluice expire --abandoned-after=1s --retention-full=9
backup --type=full
[ "$(value label)" != "$broken" ] && [ "$(value attempt)" = None ] || die "it resumed one that is gone"
expect 0 c1_sluice verify
