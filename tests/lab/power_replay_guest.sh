#!/bin/bash
# Inside the lab kernel, for test_power_replay.sh: records, replays, checks. /dev/ubda is the disk,
# /dev/ubdb the log. With PUSHERS=1 each cut is right behind an acknowledgement. Works in the
# current folder. Ends 0 (all there), 1 (lost), 2 (the test broke).
set -uo pipefail
tools=$SLUICE_BUILD/tests
bytes=60000
trouble() { echo "TROUBLE: $*"; exit 2; }
sectors=$(blockdev --getsz /dev/ubda)
dmsetup --noudevsync create rec --table "0 $sectors log-writes /dev/ubda /dev/ubdb" && dmsetup mknodes || trouble dm
case $FS in
  ext4) mkfs.ext4 -q -E nodiscard,lazy_itable_init=0 /dev/mapper/rec ;;
  xfs) mkfs.xfs -q -K /dev/mapper/rec ;;
esac || trouble mkfs
mkdir -p /mnt/d /mnt/c
mount -t "$FS" /dev/mapper/rec /mnt/d || trouble mount
cp -r pki /tmp/pki && chmod 600 /tmp/pki/*.key
cat >/tmp/sluiced.conf <<EOF
[global]
repo-path = /mnt/d/repo
listen-address = 127.0.0.1
port = 7430
transport = tcp
tls-cert = /tmp/pki/localhost.crt
tls-key = /tmp/pki/localhost.key
tls-ca = /tmp/pki/ca.crt
[main]
clients = db1
EOF
SLUICE_FAULT=$FAULTS "$SLUICE_BUILD/bin/sluiced" --config /tmp/sluiced.conf >/tmp/sluiced.log 2>&1 &
target=$!
for _ in $(seq 100); do grep -q listening /tmp/sluiced.log && break; sleep 0.1; done
: >/tmp/ack
"$tools/archive_load" --stanza main --ack /tmp/ack --count 60 --bytes $bytes --threads ${PUSHERS:-4} \
  --host localhost:7430 --pki /tmp/pki --client db1 --mark "dmsetup message rec 0 mark" >/tmp/load.log 2>&1 ||
  { cat /tmp/load.log /tmp/sluiced.log; trouble load; }
kill -KILL $target; wait $target 2>/dev/null
umount /mnt/d || trouble umount
dmsetup --noudevsync remove rec
"$tools/logwrites" /dev/ubdb info
entries=$("$tools/logwrites" /dev/ubdb info | sed 's/entries=\([0-9]*\).*/\1/')
first=$("$tools/logwrites" /dev/ubdb info | sed 's/.*first_mark=\([0-9]*\).*/\1/')
# the base: everything up to the flush before the first acknowledgement; it moves on with the cuts
truncate -s $((sectors * 512)) /tmp/base.img
base=$(losetup -f --show /tmp/base.img)
done_to=0 lost=0 checked=0
for i in $(seq "$CUTS"); do
  p=$((first + 1 + (entries - first - 1) * i / CUTS))
  [ "${PUSHERS:-4}" -gt 1 ] || p=$("$tools/logwrites" /dev/ubdb mark-after $p)
  flush=$("$tools/logwrites" /dev/ubdb flush-before $p)
  if [ "$flush" -ge "$done_to" ]; then
    "$tools/logwrites" /dev/ubdb apply "$base" $done_to $((flush + 1)) || trouble apply
    done_to=$((flush + 1))
  fi
  rm -f /tmp/cow.img; truncate -s 200M /tmp/cow.img
  cow=$(losetup -f --show /tmp/cow.img)
  dmsetup --noudevsync create cut --table "0 $sectors snapshot $base $cow N 8" && dmsetup mknodes || trouble snapshot
  "$tools/logwrites" /dev/ubdb cut /dev/mapper/cut $done_to $p "$i$RANDOM" >/tmp/cut.log || trouble cut
  "$tools/logwrites" /dev/ubdb marks $p | grep '^wal/' >/tmp/acked
  opts=
  [ "$FS" = xfs ] && opts="-o nouuid"
  if mount -t "$FS" $opts /dev/mapper/cut /mnt/c; then
    if ! "$tools/repo_check" /mnt/c/repo main /tmp/acked $bytes >/tmp/check.log 2>&1; then
      lost=$((lost + 1))
      echo "cut $i at entry $p:"; cat /tmp/cut.log; head -n 5 /tmp/check.log; tail -n 1 /tmp/check.log
    fi
    umount /mnt/c
  else
    trouble "the file system did not mount after cut $i"
  fi
  checked=$((checked + $(wc -l </tmp/acked)))
  dmsetup --noudevsync remove cut; losetup -d "$cow"
done
echo "$FS faults '$FAULTS': $CUTS cuts, $checked acknowledgements looked for, cuts with a loss: $lost"
[ $lost = 0 ]
