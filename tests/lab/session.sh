# shellcheck shell=bash
# What the tests of sessions over two lab kernels share; sourced on the host by test_session_*.sh.
. "$SLUICE_ROOT/tests/lab/lanes.sh"
lanes_need

# session_pair KIND SECONDS CASE…: host 1 with a sluiced whose repository is on a disk, host 2 with a
# PostgreSQL and the cases (session_cases.sh), joined by a cable with a device KIND (rxe, siw) on each
# end. A case cuts host 1's power by the file "cut" in the shared folder; it boots again at once.
session_pair() {
  local kind=$1 limit=$2 a=$SLUICE_WORK/$1-target b=$SLUICE_WORK/$1-client shared=$SLUICE_WORK/$1-shared
  local prefix pair status=0
  shift 2
  rm -rf "$a" "$b" "$shared"
  mkdir -p "$a" "$b" "$shared"
  truncate -s 1G "$SLUICE_WORK/$kind.img"
  mkfs.ext4 -q -F -E lazy_itable_init=1 "$SLUICE_WORK/$kind.img"
  prefix="mkdir -p /mnt/shared && mount -t hostfs -o $shared none /mnt/shared && export SHARED=/mnt/shared \
    SLUICE_ROOT='$SLUICE_ROOT' SLUICE_BUILD='$SLUICE_BUILD' &&"
  "$lab/pair" "$a" "$b" -t "$limit" -A "-d $SLUICE_WORK/$kind.img" -- \
    "$prefix bash $lab/session_target_guest.sh $kind" -- \
    "$prefix bash $lab/session_client_guest.sh $kind $*" &
  pair=$!
  while kill -0 $pair 2> /dev/null; do
    if [ -e "$shared/cut" ]; then
      touch "$a/again"
      rm "$shared/cut"
      kill -KILL -- "-$(cat "$a/pid")"
    fi
    sleep 0.2
  done
  wait $pair || status=$?
  echo "== $kind, client"
  cat "$b/output"
  [ $status = 0 ] && return
  echo "== $kind, target"
  cat "$a/output" "$shared/target.log"
  tail -n 5 "$a/console" "$b/console"
  return $status
}
