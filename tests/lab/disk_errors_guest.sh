#!/bin/bash
# Inside the lab kernel, for test_disk_errors.sh: /dev/ubda is the disk that fails, /dev/ubdb holds the file
# system's journal, so that the file system itself can outlive a failure. Argument: ext4 or xfs.
set -euo pipefail
export SLUICE_WORK=/tmp/disk
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/lab/lib.sh"
fs=$1 mnt=/mnt/d
dmesg -n 1
sectors=$(blockdev --getsz /dev/ubda)
disk_is() { # good, unwritable (writes and flushes fail), dead, dusty (bad sectors can be added)
  local table
  case $1 in
    good) table="0 $sectors linear /dev/ubda 0" ;;
    unwritable) table="0 $sectors flakey /dev/ubda 0 0 3600 1 error_writes" ;;
    dead) table="0 $sectors error" ;;
    dusty) table="0 $sectors dust /dev/ubda 0 4096" ;;
  esac
  if [ -e /dev/mapper/disk ]; then
    dmsetup --noudevsync suspend --noflush --nolockfs disk
    dmsetup --noudevsync load disk --table "$table"
    dmsetup --noudevsync resume disk
  else
    dmsetup --noudevsync create disk --table "$table" && dmsetup mknodes
  fi
}
disk_is good
mkdir -p $mnt
case $fs in
  ext4) { mke2fs -q -F -b 4096 -O journal_dev /dev/ubdb && mkfs.ext4 -q -F -b 4096 -J device=/dev/ubdb /dev/mapper/disk; } 2>&1 ;;
  xfs) mkfs.xfs -q -f -l logdev=/dev/ubdb /dev/mapper/disk ;;
esac
mount_disk() { mount -t "$fs" $([ "$fs" != xfs ] || echo -o logdev=/dev/ubdb) /dev/mapper/disk $mnt; }
forget() { echo 3 >/proc/sys/vm/drop_caches; } # what is read now is read from the disk
mount_disk
chmod 755 $mnt

fake_cluster
make_wal "$work/wal" 1 24
wal=("$work"/wal/*)
target_extra="transport = tcp"
start() { log_seen=0; target_port=7430 start_target t $mnt/repo "$@"; }
start
push() { sluice $(remote) --stanza=main --pg-path="$work/data" --timeout=15s --log-level=error archive-push "$1"; }
get() { sluice $(remote) --stanza=main --pg-path="$work/data" --timeout=15s --log-level=error archive-get "$1" "$work/got"; }
verify() { sluice $(remote) --stanza="${1:-main}" --log-level=error verify; }
sluice $(remote) --stanza=main --pg-path="$work/data" stanza-create --no-online >/dev/null
: >"$work/ack"
ack() { basename "$1" >>"$work/ack"; }
all_there() { # WHEN
  local name
  forget
  while read -r name; do
    get "$name" >"$work/out" 2>&1 || { cat "$work/out"; die "$1: acknowledged $name is lost"; }
    cmp -s "$work/got" "$work/wal/$name" || die "$1: $name came back different"
  done <"$work/ack"
  verify >"$work/out" 2>&1 || { cat "$work/out"; die "$1: damage is visible"; }
}
# The disk is good again: does the daemon go on? Else it must say what to do, and then that works. A file
# system that has given up is mounted anew first.
heal() { # WAL…
  disk_is good
  if push "$1" >"$work/out" 2>&1; then
    say "    good again: it goes on by itself"
    return
  fi
  say "    good again: $(head -n 1 "$work/out")"
  grep -qiE 'restart|read-only|input/output|shut ?down' "$work/out" || die "that does not say what to do"
  remount
  say "    after the file system was mounted anew and sluiced started anew:"
  push "$1" || die "it does not work again"
}
remount() {
  stop_target "$target_pid"
  lab_wait 30 umount $mnt 2>/dev/null || die "umount"
  mount_disk 2>/dev/null || { [ "$fs" = ext4 ] && e2fsck -fy /dev/mapper/disk >/dev/null 2>&1; mount_disk; } || die "the file system does not mount"
  start
}
complains() { # WHAT STATUS: the client's output is in $work/out
  [ "$2" != 0 ] || die "$1 succeeded on a failing disk"
  grep -qiE 'input/output error|read-only|structure needs cleaning|i/o error|from the target.s disk' "$work/out" || { cat "$work/out"; die "$1 does not name the disk's trouble"; }
  say "  $1: status $2: $(grep -m 1 . "$work/out")"
}
logged() { # NAME: of the disk's trouble, since the last call
  tail -n +$((log_seen + 1)) "$work/t.log" >"$work/new.log"
  log_seen=$(wc -l <"$work/t.log")
  grep -qiE 'input/output error|read-only|structure needs cleaning' "$work/new.log" || { cat "$work/new.log"; die "the daemon's log does not name the disk's trouble: $1"; }
}


say "-- writes fail"
for i in 0 1 2; do push "${wal[i]}"; ack "${wal[i]}"; done
disk_is unwritable
status=0; push "${wal[3]}" >"$work/out" 2>&1 || status=$?
complains "archive-push" $status
logged "archive-push"
heal "${wal[3]}"; ack "${wal[3]}"
all_there "after failed writes"

say "-- writes succeed in memory, the sync fails: the object is written again from its source"
remount
stop_target "$target_pid"
start SLUICE_FAULT=posix.direct:EINVAL@1+
push "${wal[4]}"; ack "${wal[4]}"
disk_is unwritable
status=0; push "${wal[5]}" >"$work/out" 2>&1 || status=$?
complains "archive-push" $status
heal "${wal[5]}"; ack "${wal[5]}"
all_there "after a failed sync"

say "-- the same under load: fails and heals, again and again"
stop_target "$target_pid"; remount
: >"$work/load-ack"
failures=0
for round in 1 2 3; do
  "$tools/archive_load" --stanza main --ack "$work/load-ack" --first $((round * 1000)) --count 400 --bytes 60000 --threads 3 \
    --host localhost:7430 --pki "$work/pki" --client db1 --io-ms 4000 >"$work/load.log" 2>&1 &
  load=$!
  lab_wait 60 grep -q "$(printf '/%016X' $((round * 250)))" "$work/load-ack" || { cat "$work/load.log"; die "the load does not begin"; }
  sleep 0.$((RANDOM % 10))
  disk_is $([ $round = 2 ] && echo dead || echo unwritable)
  lab_wait 60 grep -qiE 'input/output|read-only|refuse|closed' "$work/load.log" || { tail -n 3 "$work/load.log"; die "the load did not notice"; }
  kill -KILL $load; wait $load 2>/dev/null || true
  failures=$((failures + $(grep -c ': ' "$work/load.log" || true)))
  disk_is good
  remount
done
forget
"$tools/repo_check" $mnt/repo main "$work/load-ack" 60000 >"$work/out" || { cat "$work/out"; die "something acknowledged under load is lost"; }
say "  $(tail -n 1 "$work/out"); $failures were refused"
all_there "after the load"

say "-- reads fail"
bad() { # FILE FROM_BYTE: that 4096-byte block of the file cannot be read
  local block
  block=$(filefrag -v -b4096 "$1" | awk -v want=$(($2 / 4096)) '/^ *[0-9]+:/ { gsub(/[.:]/, " "); if (want >= $2 && want <= $3) print $4 + want - $2 }')
  [ -n "$block" ] || die "no block for byte $2 of $1"
  dmsetup message disk 0 addbadblock "$block" >/dev/null 2>&1
  dmsetup message disk 0 enable >/dev/null 2>&1
  forget
}
mend() { dmsetup message disk 0 clearbadblocks >/dev/null 2>&1; dmsetup message disk 0 disable >/dev/null 2>&1; forget; }
never_absent() { # WHAT NAME [TEXT]: archive-get fails, above 125, and says TEXT
  local status=0
  get "$2" >"$work/out" 2>&1 || status=$?
  [ $status -gt 125 ] || { cat "$work/out"; die "$1: archive-get ended with $status: PostgreSQL would promote"; }
  complains "archive-get, $1" $status
  grep -qF "${3:-$2}" "$work/out" || { cat "$work/out"; die "$1: archive-get does not name ${3:-$2}"; }
}
disk_is dusty
name=$(basename "${wal[2]}")
file=$(find $mnt/repo/main -name "$name")
size=$(stat -c %s "$file")
for at in 0 $((512 * 1024)) $((size - 8192)) $((size - 4096)); do
  bad "$file" "$at"
  never_absent "byte $at of $size unreadable" "$name"
  status=0; verify >"$work/out" 2>&1 || status=$?
  [ $status = 26 ] && grep -qF "$name" "$work/out" || { cat "$work/out"; die "verify does not name $name"; }
  logged "byte $at"
  # pushed again, it must not be called identical
  status=0; push "${wal[2]}" >"$work/out" 2>&1 || status=$?
  complains "archive-push of the same, byte $at unreadable" $status
  mend
done
all_there "after unreadable sectors"
folder=$(dirname "$file")
next=0000000100000000000000F0
status=0; get $next >"$work/out" 2>&1 || status=$?
[ $status = 1 ] || { cat "$work/out"; die "archive-get of what is not there: status $status, wanted 1"; }
if [ "$fs" = ext4 ]; then # XFS keeps so small a folder in its inode
  bad "$folder" 0
  never_absent "the folder unreadable" $next "${folder#$mnt/repo/}"
  never_absent "the folder unreadable" "$name" "$name"
  mend
fi
forget
disk_is dead
never_absent "the disk is gone" $next main
never_absent "the disk is gone" "$name" main
disk_is good
remount
all_there "after the disk was gone"

if [ "$fs" != ext4 ]; then
  say "all errors were clear, nothing acknowledged was lost, everything works again"
  exit 0
fi
say "-- backup and restore" # once: to the daemon's client it is the same on every file system
pg_options() { echo "repo-host = localhost:7430
tls-cert = $work/pki/db2.crt
tls-key = $work/pki/db2.key
tls-ca = $work/pki/ca.crt"; }
c1_repo_options=$(pg_options) stanza=other
. "$SLUICE_ROOT/tests/support/cluster.sh"
chown -R postgres: "$work/pki"
initdb_options=--wal-segsize=1
new_cluster c1
c1_sluice stanza-create >/dev/null
c1_psql -c "create table t as select i, repeat(md5(i::text), 8) as x from generate_series(1, 60000) i" -c checkpoint
c1_sluice backup >"$work/out" 2>&1 || { cat "$work/out"; die "backup on a good disk"; }
backups() { find $mnt/repo/other/backup -name manifest | wc -l; }
for how in unwritable dead; do
  forget
  c1_psql -c "update t set x = x || 'y' where i % 3 = 0" -c checkpoint
  # it fails when some packs are on the disk
  c1_sluice backup --timeout=20s >"$work/out" 2>&1 &
  job=$!
  lab_wait 60 sh -c "[ \$(ls -d $mnt/repo/other/backup/*/ | wc -l) -gt ${seen:-1} ]" || { cat "$work/out"; die "the backup does not begin"; }
  disk_is $how
  status=0; wait $job || status=$?
  complains "backup, $how" $status
  disk_is good
  remount
  seen=$(ls -d $mnt/repo/other/backup/*/ | wc -l)
  [ "$(backups)" = 1 ] || die "a broken-off backup is visible"
  verify_other() { sluice --config="$work/c1.conf" --log-level=error verify; }
  verify_other >"$work/out" 2>&1 || { cat "$work/out"; die "damage is visible after a broken-off backup"; }
  [ "$(c1_psql -c "select count(*) from pg_stat_activity where query ~ 'pg_backup_start' and pid <> pg_backend_pid()")" = 0 ] || die "the server is still in backup mode"
done
disk_is dusty
pack=$(find $mnt/repo/other/backup -name 'pack-*' -size +1M | sort | head -n 1)
bad "$pack" $((1024 * 1024 + 4096))
status=0; c1_sluice restore --datadir "$work/restored" >"$work/out" 2>&1 || status=$?
complains "restore" $status
grep -qF "$(basename "$pack")" "$work/out" || { cat "$work/out"; die "restore does not name $(basename "$pack")"; }
mend
rm -rf "$work/restored"
c1_sluice restore --datadir "$work/restored" >"$work/out" 2>&1 || { cat "$work/out"; die "restore from a good disk"; }
# the server's archiver has waited since its failures, for up to a minute
name=$(c1_psql -c "select pg_walfile_name(pg_switch_wal())")
archived() { [[ ! $(c1_psql -c "select last_archived_wal from pg_stat_archiver") < $name ]]; }
lab_wait 300 archived || die "the server's archiver does not go on"
c1_sluice backup --archive-timeout=5min >"$work/out" 2>&1 || { cat "$work/out"; die "backup after the disk is good again"; }
[ "$(backups)" = 2 ] || die "the backup is not there"
stop_cluster c1 "$pg_bin" immediate
say "all errors were clear, nothing acknowledged was lost, everything works again"
