#!/bin/bash
# timeout: 600
# postgres: 17 (15 18)
# What a backup makes of a server that is not as it should be: damaged pages, config files elsewhere,
# a role with no more than the documented rights, time-outs of the server, odd names.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/cluster.sh"
new_cluster c1
say "$(postgres --version)"
newest() { c1_sluice info --output=json 2>/dev/null | jq -r '.stanza[0].backup | last | .label'; }
expect 0 c1_sluice stanza-create
c1_psql -c "create table pages as select i, repeat(md5(i::text), 8) from generate_series(1, 20000) i" -c "checkpoint"

say "page checksums: a good cluster has none"
expect 0 c1_sluice backup
[ "$(c1_sluice info --output=json 2>/dev/null | jq '.stanza[0].backup[0].pages | .checked > 500 and .bad == 0')" = true ] || die "pages were not judged"

say "damaged pages: the backup is there, file and block are named, status 26 or by policy 0"
file=$(c1_psql -c "select pg_relation_filepath('pages')")
c1_psql -c "checkpoint"
cp "$c1_data/$file" "$work/saved"
damage() { printf x | dd of="$c1_data/$file" bs=1 seek="$1" conv=notrunc status=none; }
damage $((8192 * 3 + 5000))
damage $((8192 * 300 + 7000))
before=$(newest)
expect 26 c1_sluice backup
[ "$(newest)" != "$before" ] || die "the backup is not there"
grep -q "file \"$file\", block 300" "$work/out" || { cat "$work/out"; die "the page is not named"; }
c1_sluice info >"$work/out"
grep -q "DAMAGED PAGES: 2" "$work/out" && grep -q "$file block 3\$" "$work/out" || { cat "$work/out"; die "info does not show it"; }
expect 0 c1_sluice backup --page-check=warn
expect 0 c1_sluice backup --page-check=off
c1_sluice info --output=json 2>/dev/null | jq -e '.stanza[0].backup[-2].pages.list | length == 2' >/dev/null || die "info has no list"
cp "$work/saved" "$c1_data/$file"
expect 0 c1_sluice backup

say "a role with exactly the documented rights; check names what is missing"
sed -n 's/^    \(\(CREATE ROLE\|GRANT\) .*;\)$/\1/p' "$SLUICE_ROOT/docs/postgresql.md" >"$work/rights.sql"
[ "$(wc -l <"$work/rights.sql")" = 6 ] || die "docs/postgresql.md has another block"
c1_psql <"$work/rights.sql"
expect 0 c1_sluice check --pg-user=sluice
expect 0 c1_sluice backup --pg-user=sluice
c1_sluice info --output=json 2>/dev/null | jq -e '.stanza[0].backup | last | .pages.checked > 500' >/dev/null
grep '^GRANT' "$work/rights.sql" | while read -r grant; do
  c1_psql -c "$(sed -e 's/^GRANT/REVOKE/' -e 's/ TO / FROM /' <<<"$grant")"
  expect 63 c1_sluice check --pg-user=sluice
  what=$(sed -e 's/^GRANT \(EXECUTE ON FUNCTION \)\?//' -e 's/(.*//' -e 's/ TO.*//' <<<"$grant")
  grep -q "^rights  *FAILED .*lacks $what" "$work/out" || { cat "$work/out"; die "$what is not named"; }
  grep -q "hint: GRANT .*$what.* TO sluice;" "$work/out" || { cat "$work/out"; die "no hint for $what"; }
  c1_psql -c "$grant"
done
expect 0 c1_sluice check --pg-user=sluice
c1_psql -c "alter system set archive_timeout = 0" -c "select pg_reload_conf()" >/dev/null
sleep 0.5
expect 0 c1_sluice check
grep -q "^archive_timeout  *warn" "$work/out" || { cat "$work/out"; die "archive_timeout is not named"; }
c1_psql -c "alter system reset archive_timeout" -c "select pg_reload_conf()" >/dev/null

if grep -q SLUICE_FAULT "$SLUICE_BUILD/bin/sluice"; then
  say "the server's time-outs do not end the held connection"
  for setting in statement_timeout idle_session_timeout idle_in_transaction_session_timeout; do
    c1_psql -c "alter role sluice set $setting = '500ms'"
  done
  [ "$pg_version" -lt 17 ] || c1_psql -c "alter role sluice set transaction_timeout = '500ms'"
  expect 0 as_pg env SLUICE_FAULT=pg.backup_read:sleep=3000@20 sluice --config="$work/c1.conf" backup --pg-user=sluice
fi

say "config files outside of the data directory (Debian's layout) are stored; restore says where they are"
stop_cluster c1
as_pg mkdir -p "$work/etc/conf.d" "$work/etc/more"
as_pg mv "$c1_data/postgresql.conf" "$c1_data/pg_hba.conf" "$c1_data/pg_ident.conf" "$work/etc/"
as_pg tee -a "$work/etc/postgresql.conf" >/dev/null <<CONF
data_directory = '$c1_data'
hba_file = '$work/etc/pg_hba.conf'
ident_file = '$work/etc/pg_ident.conf'
include_dir = 'conf.d'
include = 'more/postgresql.conf'
CONF
echo "work_mem = 5MB" | as_pg tee "$work/etc/conf.d/mem.conf" >/dev/null
echo "maintenance_work_mem = 65MB" | as_pg tee "$work/etc/more/postgresql.conf" >/dev/null
as_pg pg_ctl -D "$work/etc" -l "$work/c1-server.log" -w start >/dev/null || { cat "$work/c1-server.log"; die "the server does not start"; }
expect 0 c1_sluice backup
expect 0 c1_sluice restore --datadir="$work/r1"
grep -q "config_file $work/etc/postgresql.conf of the backed up server is now $work/r1/sluice.config/" "$work/out" || { cat "$work/out"; die "it does not say where"; }
for f in etc/postgresql.conf etc/pg_hba.conf etc/pg_ident.conf etc/conf.d/mem.conf etc/more/postgresql.conf; do
  found=
  for g in "$work"/r1/sluice.config/*; do if cmp -s "$g" "$work/$f"; then found=1; fi; done
  [ -n "$found" ] || { ls "$work/r1/sluice.config"; die "$f was not stored"; }
done
[ "$(find "$work/r1/sluice.config" -type f | wc -l)" = 5 ] || die "something else was stored"
[ ! -e "$work/r1/postgresql.conf" ]
as_pg cp "$work/etc/postgresql.conf" "$work/etc/pg_hba.conf" "$work/etc/pg_ident.conf" "$c1_data/"
as_pg pg_ctl -D "$c1_data" -m fast -w stop >/dev/null
as_pg sed -i -e '/^data_directory/,$d' "$c1_data/postgresql.conf"
as_pg pg_ctl -D "$c1_data" -l "$work/c1-server.log" -w start >/dev/null
