#!/bin/bash
# postgres: 15 (17 18)
# timeout: 420
# archive_library = 'sluice_archive' in a real server, to a sluiced: what is archived is what the server
# wrote, whatever dies meanwhile; what must be refused is, and nothing after it gets in; the server
# stops whether the target answers or not; nothing grows.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/cluster.sh"
module=$SLUICE_BUILD/lib/sluice/postgresql/$pg_version/sluice_archive.so
if [ ! -f "$module" ]; then # the headers of a server that get_server.sh has fetched
  tree=$(readlink -f "$SLUICE_ROOT/build/dev")
  { cmake -S "$SLUICE_ROOT" -B "$tree" -DSLUICE_PG_INCLUDES="$pg_home/include" &&
    cmake --build "$tree" --target "sluice_archive_$pg_version"; } >"$work/build.log" 2>&1 ||
    { tail -n 5 "$work/build.log"; skip "no headers of PostgreSQL $pg_version"; }
  mkdir -p "${module%/*}"
  [ -f "$module" ] || cp "$tree/lib/sluice/postgresql/$pg_version/sluice_archive.so" "$module"
fi

say "symbols: the module shows its entry points only, and takes no function of the server's for a library's"
[ "$(nm -D --defined-only "$module" | awk '{print $3}' | sort | tr '\n' ' ')" = \
  "Pg_magic_func _PG_archive_module_init _PG_init " ] || die "it exports more: $(nm -D --defined-only "$module")"
nm -D --defined-only "$pg_bin/postgres" | awk '{print $3}' | sed 's/@.*//' | sort -u >"$work/server-symbols"
for file in "$module" $(ldd "$module" | awk '/=> \//{print $3}' | grep -v '/libc\.so\|/ld-linux'); do
  [ "$file" = "$module" ] && what=-u || what=--defined-only
  clash=$(nm -D $what "$file" | awk '{print $NF}' | sed 's/@.*//' | sort -u | comm -12 - "$work/server-symbols")
  [ "$file" = "$module" ] && clash=$(grep -E '^(json_|sl_|SSL_|XXH|ZSTD_|LZ4_|io_uring_|isal_)' <<<"$clash" || true)
  [ -z "$clash" ] || die "${file##*/} and the server both have: $clash"
done

mkdir -p "$work/target"
target_port=$(free_port) # the same after each start
target_extra='log-level = info'
start_target target "$work/target"
[ -z "$pg_user" ] || chown -R postgres: "$work/pki"
initdb_options=--wal-segsize=1
c1_repo_options=$(remote_conf; printf '%s\n' "timeout = 20s" "log-level = info")
c1_archive="archive_library = '${module%.so}'
sluice_archive.config = '$work/c1.conf'
wal_keep_size = 2GB"
new_cluster c1
log=$work/c1-server.log
segments() { # COUNT: so many finished segments
  c1_psql -c "do \$\$ begin for i in 1..$1 loop
      perform pg_logical_emit_message(true, 'test', repeat(md5(random()::text), 300)); perform pg_switch_wal();
    end loop; end \$\$" >/dev/null
}
ready() { find "$c1_data/pg_wal/archive_status" -name '*.ready' | wc -l; }
wait_for() { # SECONDS WHAT COMMAND…
  local limit=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ $SECONDS -lt $limit ] || { tail -n 5 "$log" "$work/target.log"; die "waited in vain: $what"; }
    sleep 0.2
  done
}
archived() { [ "$(ready)" = 0 ]; }
# compare MIN [STEP]: what the server says is archived is in the repository, every STEPth as it is in pg_wal, and
# without a gap
compare() {
  local name count=0
  archived || wait_for 120 "everything archived" archived
  find "$c1_data/pg_wal/archive_status" -name '*.done' -printf '%f\n' | sed 's/\.done$//' | sort >"$work/done"
  find "$work/target/main/wal" -type f -printf '%f\n' | sort >"$work/stored"
  [ -z "$(comm -23 "$work/done" "$work/stored")" ] || die ".done and not in the repository: $(comm -23 "$work/done" "$work/stored")"
  for name in $(comm -23 "$work/done" "$work/compared"); do
    count=$((count + 1))
    [ -f "$c1_data/pg_wal/$name" ] && [ $((count % ${2:-1})) = 0 ] || continue
    c1_sluice --log-level=warn archive-get "$name" "$work/got" || die "$name cannot be read"
    cmp "$work/got" "$c1_data/pg_wal/$name" || die "$name is not what was archived"
  done
  mv "$work/done" "$work/compared"
  rm -f "$work/got"
  [ "$count" -ge "$1" ] || die "only $count files were there to compare"
  c1_sluice --log-level=warn info >"$work/out"
  ! grep -q GAP "$work/out" || { cat "$work/out"; die "there is a gap"; }
}
: >"$work/compared"

say "before the stanza is there: a warning with what to do, and nothing lost"
segments 2
wait_for 30 "a hint" grep -q 'HINT:  run: sluice --stanza=main stanza-create' "$log"
c1_sluice stanza-create >"$work/out" 2>&1
c1_sluice check >"$work/out" || { cat "$work/out"; die "check fails"; }
compare 3


sessions() { grep -c 'sluice_archive: target .*transport tcp' "$log" || true; }
reload() { # SETTING=VALUE…
  local one
  for one in "$@"; do as_pg sh -c "printf '%s\n' \"${one%%=*} = '${one#*=}'\" >>'$c1_data/postgresql.conf'"; done
  c1_psql -c 'select pg_reload_conf()' >/dev/null
  sleep 0.5
}
archiver() { c1_psql -c "select pid from pg_stat_activity where backend_type = 'archiver'"; }
# its threads, descriptors and memory in kB
size_of() { echo "$(find "/proc/$1/task" -mindepth 1 -maxdepth 1 | wc -l) $(find "/proc/$1/fd" -mindepth 1 | wc -l) $(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status")"; }

say "500 segments through one session, without growth"
segments 20
wait_for 60 "everything archived" archived
pid=$(archiver) before=$(sessions)
read -r threads fds kb <<<"$(size_of "$pid")"
for _ in 1 2 3 4 5; do
  segments 100
  wait_for 120 "everything archived" archived
done
[ "$(archiver)" = "$pid" ] || die "the archiver has ended in between"
[ "$(sessions)" = "$before" ] || die "$(($(sessions) - before)) more sessions"
read -r threads2 fds2 kb2 <<<"$(size_of "$pid")"
say "threads $threads, $threads2; descriptors $fds, $fds2; memory $kb kB, $kb2 kB"
[ "$threads2" = "$threads" ] && [ "$fds2" -le $((fds + 1)) ] && [ "$kb2" -lt $((kb + 4096)) ] || die "it grows"
compare 500 50

say "the target is killed and comes back, under load"
load() { while [ ! -e "$work/enough" ]; do segments 4; sleep 0.2; done; }
load & loader=$!
for _ in 1 2 3; do
  sleep 1.5
  kill -KILL "$target_pid"
  sleep 1
  start_target target "$work/target"
done
sleep 1
touch "$work/enough"
wait $loader
rm "$work/enough"
segments 1
compare 8 5

say "the archiver is killed in the middle"
load & loader=$!
sleep 1
kill -KILL "$(archiver)" # the server starts anew
touch "$work/enough"
wait $loader || true
rm "$work/enough"
wait_for 60 "the server is back" c1_psql -c 'select 1' >/dev/null 2>&1
segments 3
compare 3 5

say "another cluster's stanza is refused; a reload sets it right"
fake_cluster
{ cat "$work/c1.conf"; printf '[other]\npg-path = %s\n' "$work/data"; } | sed 's/db1\./db2./' >"$work/two.conf"
expect 0 as_pg sluice --config="$work/two.conf" --stanza=other stanza-create --no-online
reload "sluice_archive.config=$work/two.conf" sluice_archive.stanza=other
segments 3
wait_for 60 "the refusal" grep -q "WARNING:  sluice_archive: could not archive .* belongs to system identifier .*, the stanza to $system_id" "$log"
[ "$(find "$work/target/other/wal" -type f 2>/dev/null | wc -l)" = 0 ] || die "it was stored in the other's stanza"
reload "sluice_archive.config=$work/c1.conf" sluice_archive.stanza=
segments 1
compare 4

say "another content under a name is refused, and nothing after it is stored"
segment=$(c1_psql -c "select pg_walfile_name(pg_current_wal_lsn())")
number=$((16#${segment:16}))
next() { printf '%s%08X' "${segment:0:16}" $((number + $1)); }
real=$(LC_ALL=C pg_controldata "$c1_data" | sed -n 's/^Database system identifier: *//p')
as_pg mkdir "$work/forged"
as_pg "$SLUICE_ROOT/tests/support/make_wal.py" "$work/forged" "$real" 1048576 $((number + 2)) 1 forged
expect 0 c1_sluice archive-push "$work/forged/$(next 2)"
segments 12
wait_for 60 "the refusal" grep -q "WARNING:  sluice_archive: could not archive \"$(next 2)\": .* exists with different content" "$log"
grep -q 'HINT:  they differ from page .*nothing was overwritten' "$log" || { tail -n 5 "$log"; die "no hint"; }
sleep 3 # tried again and again
for i in 0 1; do [ -e "$work/target/main/wal/$real/${segment:0:8}/${segment:0:16}/$(next $i)" ] || die "$(next $i) is not stored"; done
for i in $(seq 3 11); do
  [ ! -e "$work/target/main/wal/$real/${segment:0:8}/${segment:0:16}/$(next "$i")" ] || die "$(next "$i") was stored after one that was refused"
done
mv "$work/target/main/wal/$real/${segment:0:8}/${segment:0:16}/$(next 2)" "$work/forged/moved-away"
segments 1
compare 12

say "the server stops, everything archived"
segments 5
stop_cluster c1
[ "$(ready)" = 0 ] || die "$(ready) files were left"
start() { as_pg "$pg_bin/pg_ctl" -D "$c1_data" -l "$log" -w -t 60 start >/dev/null; }
start

say "the server stops while the target does not answer"
segments 2
wait_for 60 "everything archived" archived
kill -STOP "$target_pid"
segments 5
sleep 1
began=$SECONDS
stop_cluster c1
say "stopped in $((SECONDS - began)) s"
[ $((SECONDS - began)) -lt 30 ] || die "the target kept the server from stopping"
[ "$(ready)" -gt 0 ] || die "nothing was left: what does this test?"
grep -q 'the server stops, and the target does not answer' "$log" || die "it does not say why"
kill -CONT "$target_pid"
start
segments 1
compare 5
if grep -E 'FATAL|PANIC|terminated by signal (6|11)' "$log" | grep -v 'FATAL:  the database system is'; then
  die "the server's log has what it should not"
fi
say "ok"
