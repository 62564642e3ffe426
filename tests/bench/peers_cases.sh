# shellcheck shell=bash
# What peers.sh measures: the tools' commands, in turns. Sourced by it.
# shellcheck disable=SC2154  # work, bin, jobs, cluster_bytes, data and ports: the caller's

sluice() { on db "$bin/sluice" --config="$work/$1.conf" --progress=none "${@:2}"; }
pgbackrest_db() { on db pgbackrest --config="$work/pghost.conf" --stanza=main "$@"; }
pgbackrest_repo() { on target pgbackrest --config="$work/repohost.conf" --stanza=main "$@"; }

fresh() { # FOLDER…: empty, the target's
  local folder
  for folder in "$@"; do
    rm -rf "$folder"
    on target mkdir -m 700 "$folder"
  done
}
archiver() {
  echo "$1" >"$work/archiver"
  sql -c checkpoint -c "select pg_switch_wal()" >/dev/null
  local i
  for i in $(seq 100); do
    [ "$(sql -c "select count(*) from pg_ls_archive_statusdir() where name like '%.ready'")" = 0 ] && return
    sleep 0.1
  done
}

# --- backup -----------------------------------------------------------------------------------

new_sluice_repository() {
  unserve sluiced
  fresh "$work/target/sluice"
  start_sluiced
  sluice sluice stanza-create >/dev/null
}
new_pgbackrest_repository() {
  fresh "$work/target/pgbackrest"
  pgbackrest_repo stanza-create >/dev/null
}

named() { [ "$1" = none ] && echo sluice || echo "sluice $1"; }

# pg_basebackup gets its WAL itself; of the others each waits until its archiver has stored it.
cases_backup() {
  local codec
  for codec in zstd none; do # none last: it is what is restored
    archiver none
    new_sluice_repository
    archiver sluice
    measure backup "$(named $codec)" "$cluster_bytes" "$work/target/sluice/main/backup" \
      sluice sluice --jobs="$jobs" --compress-type=$codec backup
  done
  archiver none
  fresh "$work/target/basebackup"
  measure backup pg_basebackup "$cluster_bytes" "$work/target/basebackup" \
    on target $pg_bin/pg_basebackup -d "host=127.0.0.1 port=$pg_port user=postgres sslmode=require" \
    -c fast -D "$work/target/basebackup"
  new_pgbackrest_repository
  archiver pgbackrest
  measure backup pgbackrest "$cluster_bytes" "$work/target/pgbackrest/backup" \
    pgbackrest_repo --process-max="$jobs" --type=full backup
  archiver none
}

# --- restore: files only, everything synced ---------------------------------------------------

# pg_basebackup has no restore. What is fair is one stream through TLS, with big buffers, and a sync.
copy_back() {
  local to=$1
  serve target copy socat -u -b 262144 \
    "EXEC:tar -C $work/target/basebackup -b 512 -cf - ." \
    "OPENSSL-LISTEN:$copy_port,bind=127.0.0.1,reuseaddr,cert=$work/pki/localhost.crt,key=$work/pki/localhost.key,cafile=$work/pki/ca.crt"
  on db bash -c "set -o pipefail; cd '$to' && socat -u -b 262144 OPENSSL:localhost:$copy_port,retry=50,interval=0.02,cert=$work/pki/db1.crt,key=$work/pki/db1.key,cafile=$work/pki/ca.crt - | tar -b 512 -xf - && sync -f ."
}

cases_restore() {
  fresh "$work/restored/sluice"
  measure restore sluice "$cluster_bytes" "$work/restored/sluice" \
    sluice sluice --jobs="$jobs" restore --datadir="$work/restored/sluice"
  fresh "$work/restored/sluice" "$work/restored/copy"
  measure restore "tar|socat(TLS)" "$cluster_bytes" "$work/restored/copy" copy_back "$work/restored/copy"
  unserve copy
  fresh "$work/restored/copy"
  measure restore "cp (same host)" "$cluster_bytes" "$work/restored/copy" \
    on db sh -c "cp -a '$work/target/basebackup/.' '$work/restored/copy' && sync -f '$work/restored/copy'"
  fresh "$work/restored/copy" "$work/restored/pgbackrest"
  measure restore pgbackrest "$cluster_bytes" "$work/restored/pgbackrest" \
    pgbackrest_db --process-max="$jobs" --pg1-path="$work/restored/pgbackrest" restore
  fresh "$work/restored/pgbackrest"
}

# --- archive-push: one command a segment, as the archiver runs them ---------------------------

push_all() { # SHELL COMMAND with $1 the segment
  # shellcheck disable=SC2016
  on db bash -c 'cd "$1" && for s in $(ls | head -n "$2"); do sh -c "$3" sh "$1/$s" || exit 1; done' \
    push_all "$work/wal" "$segments" "$1"
}

# pgBackRest's asynchronous push looks for what is .ready in the data folder that it is told of.
async_folder() {
  local fake=$work/db/fake segment
  rm -rf "$fake" "$work/spool/archive" # what it says there of the round before would be believed
  on db mkdir -p -m 700 "$fake/pg_wal/archive_status" "$fake/global"
  on db cp "$data/PG_VERSION" "$fake/"
  on db cp "$data/global/pg_control" "$fake/global/"
  for segment in $(ls "$work/wal" | head -n "$segments"); do
    on db ln "$work/wal/$segment" "$fake/pg_wal/$segment"
    on db touch "$fake/pg_wal/archive_status/$segment.ready"
  done
}
push_async() {
  # shellcheck disable=SC2016
  on db bash -c 'cd "$1" && for s in $(ls "$2" | head -n "$3"); do
      sh -c "$4" sh "pg_wal/$s" || exit 1
      mv "pg_wal/archive_status/$s.ready" "pg_wal/archive_status/$s.done"
    done' push_async "$work/db/fake" "$work/wal" "$segments" \
    "exec pgbackrest --config='$work/pghost.conf' --stanza=main --pg1-path='$work/db/fake' --archive-async --process-max=$jobs archive-push \"\$1\""
}

# The archive module lives in a server: this one finds the segments .ready in its pg_wal. It begins when
# a switch of WAL wakes the archiver, and ends with the last segment's .done.
module_ready() {
  local segment module=${bin%/bin}/lib/sluice/postgresql/15/sluice_archive
  sed '/^\[global\]/a compress-type = none' "$work/sluice.conf" >"$work/module.conf"
  on db $pg_bin/pg_ctl -D "$data" -m fast -w stop >/dev/null
  on db $pg_bin/pg_ctl -D "$data" -l "$work/log/postgres.log" -w -t 120 start \
    -o "-c archive_library=$module -c sluice_archive.config=$work/module.conf" >/dev/null
  archiver none # warms the session, as commands cannot
  for segment in $(ls "$work/wal" | head -n "$segments"); do
    on db cp "$work/wal/$segment" "$data/pg_wal/$segment"
    on db touch "$data/pg_wal/archive_status/$segment.ready"
    last_segment=$segment
  done
}
push_module() {
  sql -c "select pg_logical_emit_message(true, 'wake', 'up'), pg_switch_wal()" >/dev/null
  local i
  for i in $(seq 6000); do
    [ ! -e "$data/pg_wal/archive_status/$last_segment.done" ] || return 0
    sleep 0.01
  done
  return 1
}

cases_push() {
  local bytes=$((segments * 16777216))
  archiver none
  new_sluice_repository
  measure push sluice "$bytes" "$work/target/sluice/main/wal" \
    push_all "exec '$bin/sluice' --config='$work/sluice.conf' --compress-type=none archive-push \"\$1\""
  new_sluice_repository
  module_ready
  measure push "sluice module" "$bytes" "$work/target/sluice/main/wal" push_module
  on db $pg_bin/pg_ctl -D "$data" -m fast -w stop >/dev/null
  start_postgres
  fresh "$work/target/embedded"
  sluice embedded stanza-create >/dev/null
  measure push "sluice embedded" "$bytes" "$work/target/embedded/main/wal" \
    push_all "exec '$bin/sluice' --config='$work/embedded.conf' --compress-type=none archive-push \"\$1\""
  new_pgbackrest_repository
  measure push pgbackrest "$bytes" "$work/target/pgbackrest/archive" \
    push_all "exec pgbackrest --config='$work/pghost.conf' --stanza=main archive-push \"\$1\""
  new_pgbackrest_repository
  async_folder
  measure push "pgbackrest async" "$bytes" "$work/target/pgbackrest/archive" push_async
  rm -rf "$work/db/fake"
  fresh "$work/target/cp"
  measure push "cp, sync" "$bytes" "$work/target/cp" \
    push_all "f='$work/target/cp/'\${1##*/}; cp \"\$1\" \"\$f.tmp\" && sync \"\$f.tmp\" && mv \"\$f.tmp\" \"\$f\" && sync '$work/target/cp'"
}
