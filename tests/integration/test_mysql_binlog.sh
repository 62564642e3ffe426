#!/bin/bash
# timeout: 400
# The binary log of a real server, archived: every archived file is compared with the server's,
# through rotation, kill -9 of server, archiver and target, purging, RESET MASTER, checksums on and off.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/mariadb.sh"
cd "$work"
options=(--sync-binlog=1 --max-binlog-size=1G --max-allowed-packet=64M --log-bin-compress)
new_mariadb m1 "${options[@]}"
echo "$(mariadbd --version)"
m1_sql -e "GRANT REPLICATION SLAVE ON *.* TO sluice@localhost; CREATE DATABASE shop;
  CREATE TABLE shop.a (i INT PRIMARY KEY AUTO_INCREMENT, x LONGTEXT) ENGINE=InnoDB"
where_to=(--repo-path="$work/repo")
s() { sluice --engine=mysql "${where_to[@]}" --stanza=main "$@"; }
binlog() { s binlog --my-defaults-file="$m1_defaults" "$@"; }
archive_of() { echo "$work/repo/main/binlog/$server/${1:-0001}"; } # HISTORY
rows() { m1_sql shop -e "INSERT INTO a (x) SELECT REPEAT(MD5(seq), 5) FROM seq_1_to_$1"; }
server_files() { m1_sql -e "SHOW BINARY LOGS" | cut -f 1; }
where() { m1_sql -e "SHOW MASTER STATUS" | cut -f 1,2 | tr '\t' ' '; }
# The in-use bit of byte 21 is set on the disk as long as the server writes, and after a crash; never on the wire.
masked() { python3 -c '
import sys
b = bytearray(sys.stdin.buffer.read()); b[21] &= 0xfe; sys.stdout.buffer.write(b)'; }
declare -A compared=()
same_file() { # FILE [HISTORY]: archived and the server's; one that has ended is compared once
  local sealed=no
  [ -z "${compared[${2:-1} $1]:-}" ] || return 0
  [ ! -e "$(archive_of "000${2:-1}")/$1" ] || sealed=yes
  s binlog-get --history="${2:-1}" "$1" >got 2>got.err || { cat got.err; die "$1 could not be had"; }
  cmp <(masked <got) <(masked <"$m1_data/$1") || die "the archived $1 is not the server's"
  [ "$sealed" = no ] || compared["${2:-1} $1"]=1
}
archived_to() { # FILE POSITION HISTORY: waits
  for _ in $(seq 600); do
    if [ -e "$(archive_of "$3")/$1" ]; then return; fi
    if [ -e "$(archive_of "$3")/$1.growing" ] && s binlog-get --history="$((10#$3))" "$1" >got 2>/dev/null &&
      [ "$(stat -c %s got)" -ge "$2" ]; then return; fi
    sleep 0.2
  done
  tail -n 20 archiver.log
  die "position $2 of $1 was not archived"
}
caught_up() { # [HISTORY]: everything that the server has is archived
  local file position
  read -r file position < <(where)
  archived_to "$file" "$position" "${1:-0001}"
}
start_archiver() {
  # not by a function: its process would be a shell's
  sluice --engine=mysql "${where_to[@]}" --stanza=main --log-level=detail binlog --my-defaults-file="$m1_defaults" \
    "$@" >>archiver.log 2>&1 &
  archiver=$!
  started_pids+=("$archiver")
}
stop_archiver() { # it ends with status 0
  kill -TERM "$archiver"
  wait "$archiver" || die "SIGTERM: status $?"
}
all_same() { for file in $(server_files); do same_file "$file" "${1:-1}"; done; }

say "once: what has ended"
expect 0 s stanza-create --my-defaults-file="$m1_defaults"
grep -q 'server 7@' out
server=$(sed -n 's/.*server \(7@[^ ]*\).*/\1/p' out)
rows 2000
expect 0 binlog --once
grep -q '^0 files' out
m1_sql -e "FLUSH BINARY LOGS"
rows 3000
m1_sql -e "FLUSH BINARY LOGS; SET GLOBAL binlog_checksum = NONE" # which also begins a file
rows 500
m1_sql -e "SET GLOBAL binlog_checksum = CRC32"
expect 0 binlog --once
grep -q '^4 files' out || { cat out; die "not what has ended"; }
expect 0 binlog --once
grep -q '^0 files' out
for file in $(server_files | head -n 4); do same_file "$file"; done
expect 0 s verify

say "live: rotation, large events, checksums on and off"
start_archiver
rows 100
caught_up
all_same
m1_sql shop -e "INSERT INTO a (x) VALUES (REPEAT('0123456789abcdef', 700000))" # 11 MB, in one event
caught_up
for i in 1 2 3; do
  m1_sql -e "FLUSH BINARY LOGS; SET GLOBAL binlog_checksum = $([ $((i % 2)) = 1 ] && echo NONE || echo CRC32)"
  rows 20
done
caught_up
all_same
s info >out
grep -q "binlog.000001 to $(where | cut -d ' ' -f 1), position [0-9]* (live)" out || { cat out; die "info"; }
expect 0 s verify
expect 67 binlog --once --timeout=2s --my-replica-id=99 # one archiver at a time
grep -q 'being written by somebody else' out || { cat out; die "it does not say why"; }

say "kill -9 of the archiver, under load"
for round in 1 2; do
  rows 4000 &
  load=$!
  sleep 0.3
  kill -9 "$archiver"
  wait "$archiver" 2>/dev/null || true
  wait "$load"
  [ "$round" = 2 ] || m1_sql -e "FLUSH BINARY LOGS"
  start_archiver
done
caught_up
all_same

say "kill -9 of the server, and a clean end of it"
rows 3000 >/dev/null 2>&1 &
load=$!
sleep 0.3
kill -9 "$m1_pid"
wait "$m1_pid" 2>/dev/null || true
wait "$load" || true
start_mariadb m1 "$m1_data" --log-bin=binlog --server-id=7 "${options[@]}"
rows 50
caught_up
all_same
kill -TERM "$m1_pid"
wait "$m1_pid" || true
start_mariadb m1 "$m1_data" --log-bin=binlog --server-id=7 "${options[@]}"
rows 50
caught_up
all_same # the STOP event included
stop_archiver

say "semi-sync: acknowledged by the archive, across a rotation"
m1_sql -e "SET GLOBAL rpl_semi_sync_master_enabled = 1, GLOBAL rpl_semi_sync_master_timeout = 100000,
  GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC"
start_archiver --semi-sync
for _ in $(seq 300); do
  [ "$(m1_sql -e "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'" | cut -f 2)" = 1 ] && break
  sleep 0.1
done
for _ in 1 2 3; do
  rows 10
  m1_sql -e "FLUSH BINARY LOGS"
  rows 10 # acknowledged means durable: without waiting, the repository has it
  read -r file position < <(where)
  s binlog-get --history=1 "$file" >got
  [ "$(stat -c %s got)" -ge "$position" ] || die "position $position of $file was acknowledged and is not archived"
done
[ "$(m1_sql -e "SHOW STATUS LIKE 'Rpl_semi_sync_master_no_tx'" | cut -f 2)" = 0 ] || die "transactions were not acknowledged"
[ "$(m1_sql -e "SHOW STATUS LIKE 'Rpl_semi_sync_master_yes_tx'" | cut -f 2)" -ge 6 ] || die "no acknowledgements"
all_same
m1_sql -e "SET GLOBAL rpl_semi_sync_master_enabled = 0"
stop_archiver

say "purged: a gap that is named"
m1_sql -e "FLUSH BINARY LOGS"
rows 10
m1_sql -e "FLUSH BINARY LOGS"
rows 10
m1_sql -e "PURGE BINARY LOGS TO '$(where | cut -d ' ' -f 1)'; FLUSH BINARY LOGS"
expect 72 binlog --once
s info >out
grep -q 'GAP: missing from binlog' out || { cat out; die "info does not name the gap"; }
all_same_sealed() { for file in $(server_files | head -n -1); do same_file "$file" "$1"; done; }
all_same_sealed 1
expect 0 s verify

say "RESET MASTER: a new history, nothing overwritten"
before=$(find "$(archive_of)" -type f | sort | xargs sha256sum)
m1_sql -e "RESET MASTER"
rows 700
m1_sql -e "FLUSH BINARY LOGS"
rows 5
start_archiver
caught_up 0002
all_same 2
sleep 1 # a file's time of making has seconds
m1_sql -e "RESET MASTER" # under its feet
rows 300
m1_sql -e "FLUSH BINARY LOGS"
rows 5
caught_up 0003
all_same 3
stop_archiver
[ "$before" = "$(find "$(archive_of)" -type f | sort | xargs sha256sum)" ] || die "an earlier history was changed"
expect 0 s verify

say "kill -9 of the target"
target_port=$(free_port)
start_target t1 "$work/repo"
read -r -a where_to <<<"$(remote)"
start_archiver
rows 100
caught_up 0003
for _ in 1 2; do
  rows 4000 &
  load=$!
  sleep 0.3
  kill -9 "$target_pid"
  wait "$target_pid" 2>/dev/null || true
  rows 50
  start_target t1 "$work/repo"
  wait "$load"
done
m1_sql -e "FLUSH BINARY LOGS"
rows 20
caught_up 0003
all_same 3
stop_archiver
expect 0 s verify
