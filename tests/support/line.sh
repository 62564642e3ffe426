# shellcheck shell=bash
# The line through the house, as functions: a real PostgreSQL archived, backed up and restored to a
# point in time through whatever target $c1_repo_options names, and the tables compared. Source after
# lib.sh and cluster.sh.
line_data() { # SCALE
  as_pg pgbench -q -i -s "$1" $c1_conn >/dev/null 2>&1
  c1_psql -c "create table mixed as select i as id, md5(i::text) as a, repeat(md5(random()::text), 6) as b,
                jsonb_build_object('n', i, 's', md5((i * 7)::text)) as j from generate_series(1, $1 * 4000) i"
}
line_sums() { # psql function
  "$1" -c "select 'accounts', count(*), sum(hashtextextended(t::text, 0)) from pgbench_accounts t
    union all select 'tellers', count(*), sum(hashtextextended(t::text, 0)) from pgbench_tellers t
    union all select 'history', count(*), sum(hashtextextended(t::text, 0)) from pgbench_history t
    union all select 'mixed', count(*), sum(hashtextextended(t::text, 0)) from mixed t order by 1"
}
# line_archived: everything up to the last switch has reached the archive
line_archived() {
  local name until=$((SECONDS + 60))
  name=$(c1_psql -c "select pg_walfile_name(pg_current_wal_lsn() - 1)")
  until [[ ! $(c1_psql -c "select last_archived_wal from pg_stat_archiver") < $name ]]; do
    [ $SECONDS -lt $until ] || die "$name is not archived after 60 s"
    sleep 0.2
  done
}
# line_run TRANSPORT_WORD: everything; wants `check` to say TRANSPORT_WORD
line_run() {
  local before moment after start
  c1_sluice stanza-create || die "stanza-create"
  c1_sluice check >"$work/check.out" 2>&1 || { cat "$work/check.out"; die "check"; }
  cat "$work/check.out"
  grep -qi -- "$1" "$work/check.out" || die "check does not name $1"
  line_data "${LINE_SCALE:-2}"
  start=$SECONDS
  c1_sluice backup || die "backup"
  say "backup took $((SECONDS - start)) s"
  as_pg pgbench -n -c 2 -t 200 $c1_conn >/dev/null 2>&1
  c1_psql -c "update mixed set b = reverse(b) where id % 5 = 0; delete from mixed where id % 9 = 0"
  before=$(line_sums c1_psql)
  sleep 1
  moment=$(c1_psql -c "select now()")
  sleep 1
  # two commands: one would be one transaction, whose commit lies behind the switch
  c1_psql -c "drop table mixed" -c "select pg_switch_wal()" >/dev/null
  line_archived
  start=$SECONDS
  c1_sluice restore --datadir "$work/restored" --target-time "$moment" --target-action promote || die "restore"
  say "restore took $((SECONDS - start)) s"
  as_pg sh -c "printf '%s\n' 'archive_mode = off' >> '$work/restored/postgresql.auto.conf'"
  stop_cluster c1 "$pg_bin" immediate
  as_pg pg_ctl -D "$work/restored" -l "$work/restored.log" -w -t 120 start >/dev/null || { cat "$work/restored.log"; die "the restored server does not start"; }
  at_exit+=("as_pg pg_ctl -D '$work/restored' -m immediate -w stop >/dev/null 2>&1")
  local until=$((SECONDS + 120)) recovering=
  while [ "$recovering" != f ]; do
    sleep 0.2
    recovering=$(c1_psql -c 'select pg_is_in_recovery()' 2>&1) || true
    as_pg pg_ctl -D "$work/restored" status >/dev/null || { cat "$work/restored.log"; die "the restored server ended"; }
    [ $SECONDS -lt $until ] || { cat "$work/restored.log"; die "recovery does not end: $recovering"; }
  done
  after=$(line_sums c1_psql)
  [ "$before" = "$after" ] || { echo "$before"; echo "$after"; die "the restored tables differ"; }
  say "$after"
  c1_sluice verify || die "verify"
  c1_sluice info
}
