#!/bin/bash
# Inside the lab kernel, for test_power_replay.sh: records, replays, checks. /dev/ubda is the disk,
# /dev/ubdb the log. Arguments: FS CASE…, a case being a number of cuts of the whole build, or the name of
# what a build lacks. Each case's result goes to result-CASE in the current folder: 0 (all there),
# 1 (lost). Ends with 0, or 2 when the test itself broke.
set -uo pipefail
. "$SLUICE_ROOT/tests/lab/lib.sh"
fs=$1
tools=$SLUICE_BUILD/tests
bytes=40000
trouble() { echo "TROUBLE: $*"; exit 2; }
sectors=$(blockdev --getsz /dev/ubda)
mkdir -p /mnt/d /mnt/c
case $fs in ext4 | xfs) ;; *) trouble "$fs?" ;; esac
cp -r pki /tmp/pki && chmod 600 /tmp/pki/*.key

daemon() { lab_daemon localhost 127.0.0.1 "$@"; pid=$!; }

load() { # COUNT THREADS [HOST2]
  "$tools/archive_load" --stanza main --ack /tmp/ack --count "$1" --bytes $bytes --threads "$2" --host localhost:7430 \
    ${3:+--host2 "$3"} --pki /tmp/pki --client db1 --mark rec --io-ms 60000 >/tmp/load.log 2>&1
}

# record COUNT THREADS [FAULTS [FAULTS2]]: the disk from mkfs to the last acknowledgement
record() {
  local options pids
  dmsetup --noudevsync create rec --table "0 $sectors log-writes /dev/ubda /dev/ubdb" && dmsetup mknodes || trouble dm
  case $fs in
    # the journal is committed when somebody syncs, not because time has passed
    ext4) mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0 /dev/mapper/rec && options="-o commit=600" ;;
    xfs) mkfs.xfs -q -f -K /dev/mapper/rec && options= && echo 720000 >/proc/sys/fs/xfs/xfssyncd_centisecs ;;
  esac || trouble mkfs
  echo 0 >/proc/sys/vm/dirty_writeback_centisecs
  mount -t "$fs" $options /dev/mapper/rec /mnt/d || trouble mount
  daemon 7430 "" && kill -TERM $pid && wait $pid # makes the repository
  : >/tmp/ack
  daemon 7430 "${3:-}"; pids=$pid
  if [ -n "${4:-}" ]; then
    daemon 7432 "$4"; pids="$pids $pid"
    lab_loser $pids /mnt/d/repo/main &
    load "$1" "$2" localhost:7432 &
    lab_wait 100 test -s /tmp/ack || { cat /tmp/sluiced-*.log /tmp/load.log; trouble "the loser did not answer"; }
    pids="$pids $!"
  else
    load "$1" "$2" || { cat /tmp/load.log /tmp/sluiced-*.log; trouble load; }
  fi
  kill -KILL $pids; wait $pids 2>/dev/null
  lab_wait 30 umount /mnt/d 2>/dev/null || trouble umount # io_uring lets go of files late
  dmsetup --noudevsync remove rec
  "$tools/logwrites" /dev/ubdb info >/tmp/info
  cat /tmp/info
  read -r entries first <<<"$(sed 's/entries=\([0-9]*\).*first_mark=\([0-9]*\)/\1 \2/' /tmp/info)"
  # the base of the cuts moves on with them; a snapshot takes what a cut and the recovery write
  rm -f /tmp/base.img; truncate -s $((sectors * 512)) /tmp/base.img
  truncate -s 200M /tmp/cow.img
  base=$(losetup -f --show /tmp/base.img) && cow=$(losetup -f --show /tmp/cow.img) || trouble losetup
  done_to=0 lost=0 checked=0
}

cut() { # NUMBER ENTRY: what the disk holds when the power fails right before that entry of the log
  local status=0 acked
  done_to=$("$tools/logwrites" /dev/ubdb advance "$base" $done_to "$2") || trouble advance
  dmsetup --noudevsync create cut --table "0 $sectors snapshot $base $cow N 8" && dmsetup mknodes || trouble snapshot
  "$tools/logwrites" /dev/ubdb cut /dev/mapper/cut $done_to "$2" "$1$RANDOM" /tmp/acked >/tmp/cut.log || trouble cut
  # shellcheck disable=SC2046
  mount -t "$fs" $([ "$fs" != xfs ] || echo -o nouuid) /dev/mapper/cut /mnt/c ||
    trouble "the file system did not mount after cut $1"
  "$tools/repo_check" /mnt/c/repo main /tmp/acked $bytes >/tmp/check.log 2>&1 || status=1
  umount /mnt/c
  if [ $status != 0 ]; then
    lost=$((lost + 1))
    echo "cut $1 at entry $2:"; cat /tmp/cut.log; head -n 5 /tmp/check.log; tail -n 1 /tmp/check.log
  fi
  mapfile -t acked </tmp/acked
  checked=$((checked + ${#acked[@]}))
  dmsetup --noudevsync remove cut || trouble remove
  return $status
}

at_marks() { # right behind each acknowledgement, until something is lost
  local i=0 at=$first
  while [ "$at" -ge 0 ]; do
    i=$((i + 1))
    cut $i $((at + 1)) || break
    at=$("$tools/logwrites" /dev/ubdb next-mark $((at + 1)))
  done
  echo "$fs without $1: $i cuts, $checked acknowledgements looked for, cuts with a loss: $lost"
}

one() { # CASE
  case $1 in
    file)
      record 3 1 "posix.direct:EINVAL@1+,posix.fdatasync:skip@1+"
      at_marks "the file's sync"
      ;;
    folder)
      record 3 1 "posix.syncdir:skip@1+,posix.syncparent:skip@1+,posix.settle_dir:skip@1+"
      at_marks "the folder's sync"
      ;;
    loser)
      record 1 1 "$lab_winner_faults" "$lab_loser_faults,posix.settle_file:skip@1+,posix.settle_dir:skip@1+,posix.syncparent:skip@1+"
      at_marks "the loser's own sync"
      ;;
    loser-whole)
      record 1 1 "$lab_winner_faults" "$lab_loser_faults"
      at_marks "nothing (the loser answers before the winner has synced)"
      ;;
    *)
      record 40 4
      for i in $(seq "$1"); do
        p=$((first + 1 + (entries - first - 1) * i / $1))
        if [ $((i % 2)) = 1 ]; then # right behind an acknowledgement
          mark=$("$tools/logwrites" /dev/ubdb next-mark $p)
          [ "$mark" -lt 0 ] || p=$((mark + 1))
        fi
        cut "$i" $p
      done
      echo "$fs: $1 cuts, $checked acknowledgements looked for, cuts with a loss: $lost"
      ;;
  esac
  losetup -d "$base" "$cow"
  echo $((lost > 0)) >"result-$1"
}
shift
for case; do (one "$case") || exit 2; done
