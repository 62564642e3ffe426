#!/bin/bash
# timeout: 600
# postgres: 17 (15 18)
# Backups that read from a standby while the primary works: what comes back is the primary's data; the
# primary's archiving counts; a promotion in the middle voids the backup.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/cluster.sh"
initdb_options=--wal-segsize=1 new_cluster c1
say "$(postgres --version)"
sums() { "$1" -c "select count(*), sum(hashtextextended(t::text, 0)) from pgbench_accounts t" -c "select count(*), sum(hashtextextended(t::text, 0)) from pgbench_history t"; }
labels() { c1_sluice info --output=json 2>/dev/null | jq -r '.stanza[0].backup[].label'; }
as_pg pgbench -q -i -s 2 $c1_conn >/dev/null 2>&1
expect 0 c1_sluice stanza-create
expect 0 c1_sluice backup
expect 58 c1_sluice backup --backup-standby --primary-host=x # c1 is none

say "a standby that streams"
s=$work/s1
expect 0 c1_sluice restore --datadir="$s" --type=standby
as_pg sh -c "printf '%s\n' \"primary_conninfo = 'host=$work/c1-socket port=$c1_port user=postgres'\" >>'$s/postgresql.auto.conf'"
start_restored "$s" t
sport=$(r_psql -c "show port")
eval "$(declare -f r_psql | sed 's/^r_psql/s_psql/')"
standby_backup() { c1_sluice backup --pg-path="$s" --pg-port="$sport" "$@"; }
primary="--primary-host=$work/c1-socket --primary-port=$c1_port"

say "what is refused"
expect 58 standby_backup
grep -q -- --backup-standby "$work/out"
expect 31 standby_backup --backup-standby
expect 56 standby_backup --backup-standby --primary-host="$work/nowhere"
expect 58 standby_backup --backup-standby --primary-host="$work/c1-socket" --primary-port="$sport" # itself
c1_psql -c "alter system set archive_command = ''" -c "select pg_reload_conf()" >/dev/null
sleep 0.5
expect 58 standby_backup --backup-standby $primary
c1_psql -c "alter system reset archive_command" -c "select pg_reload_conf()" >/dev/null

say "an idle primary: its last segment is finished for the backup"
before=$(labels)
expect 0 standby_backup --backup-standby $primary
[ "$(labels)" != "$before" ] || die "the backup is not there"

say "a backup from the standby while the primary is written to; restored, it has all that was committed"
as_pg pgbench -n -c 2 -T 6 $c1_conn >/dev/null 2>&1 &
load=$!
sleep 1
expect 0 standby_backup --backup-standby $primary --jobs=2
wait $load
c1_psql -c "select pg_switch_wal()" >/dev/null
wanted=$(sums c1_psql)
sleep 2
label=$(labels | tail -n 1)
expect 0 c1_sluice restore --set="$label" --datadir="$work/r1" --target-action=promote
expect 0 as_pg pg_verifybackup -n "$work/r1"
start_restored "$work/r1"
[ "$(sums r_psql)" = "$wanted" ] || { sums r_psql; echo "$wanted"; die "the restored tables differ"; }
stop_restored "$work/r1"
as_pg pg_checksums --check -D "$work/r1" >/dev/null || die "a page checksum is wrong"
expect 0 c1_sluice restore --set="$label" --datadir="$work/r2" --type=immediate --target-action=promote
start_restored "$work/r2" # consistent at its own end
stop_restored "$work/r2"

if grep -q SLUICE_FAULT "$SLUICE_BUILD/bin/sluice"; then
  say "promoted in the middle: the backup is void, soon"
  before=$(labels)
  (
    for _ in $(seq 200); do
      [ "$(s_psql -c "select count(*) from pg_stat_activity where application_name = 'sluice backup'")" = 0 ] || break
      sleep 0.1
    done
    sleep 1
    s_psql -c "select pg_promote()" >/dev/null
  ) &
  expect 58 as_pg env SLUICE_FAULT=pg.backup_read:sleep=20000@40 sluice --config="$work/c1.conf" backup --pg-path="$s" --pg-port="$sport" --backup-standby $primary --jobs=1
  grep -q "the standby was promoted" "$work/out" || { cat "$work/out"; die "it does not say why"; }
  [ "$(labels)" = "$before" ] || die "a backup of two timelines is listed"
  [ "$(s_psql -c "select count(*) from pg_stat_activity where application_name like 'sluice%'")" = 0 ] || die "a session was left"
  wait
fi
say ok
