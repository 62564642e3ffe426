#!/bin/bash
# Inside a lab kernel, for tests/lab/power_loop: the two hosts.
#
#   target N PRUNE SERVE   mounts the disk as the cut left it, checks that everything in acked-N is there,
#                          says so in `checked`, then (SERVE) runs sluiced until the power fails
#   client                 for each go-N (FIRST COUNT THREADS): stores objects until all are stored or
#                          stop-N appears; first-N and all-N say how far it is, acked-N is what was acknowledged
# Works in the current folder, which the host sees.
set -uo pipefail
. "$SLUICE_ROOT/tests/lab/lib.sh"
tools=$SLUICE_BUILD/tests
trouble() { echo "TROUBLE: $*"; exit 2; }
mkfifo /tmp/never && exec 9<>/tmp/never
nap() { read -r -t 0.03 -u 9; } # without a process: those are dear here
tell() { echo "${2:-}" >"$1.new"; mv "$1.new" "$1"; }
cp -r pki /tmp/pki && chmod 600 /tmp/pki/*.key
cable() { # NUMBER: the same hardware address after each boot
  ip link set vec0 address "02:00:0a:63:00:0$1" && ip address add "10.99.0.$1/24" dev vec0 && ip link set vec0 mtu 9000 up
}

daemon() { lab_daemon target 10.99.0.2 "$@"; }

target() { # N PRUNE SERVE
  local status=0
  mkdir -p /mnt/d
  mount -t "$FS" /dev/ubda /mnt/d || trouble "the file system did not recover"
  "$tools/repo_check" /mnt/d/repo main "acked-$1" "$BYTES" >check.log 2>&1 || status=$?
  rm -f "acked-$1"
  tell checked "$status"
  [ "$status" = 0 ] || sleep 600
  [ "$2" = 0 ] || { rm -rf /mnt/d/repo/main/wal && sync; }
  [ "$3" = 1 ] || { umount /mnt/d && return; }
  cable 2 || trouble "no cable"
  # the repository and its stanza are made without faults, and are durable before the load begins
  [ -e /mnt/d/repo/repo.json ] || { daemon 7430 "" && kill -TERM $! && wait $!; sync; }
  daemon 7430 "$FAULTS"
  local first=$!
  if [ -n "$FAULTS2" ]; then
    daemon 7432 "$FAULTS2"
    lab_loser $first $! /mnt/d/repo &
  fi
  tell ready
  wait
  cat /tmp/sluiced-*.log
  trouble "sluiced ended"
}

load() { # N FIRST COUNT THREADS
  local second=()
  [ -z "$FAULTS2" ] || second=(--host2 10.99.0.2:7432)
  : >/tmp/ack
  "$tools/archive_load" --stanza main --ack /tmp/ack --first "$2" --count "$3" --bytes "$BYTES" --threads "$4" \
    --host 10.99.0.2:7430 "${second[@]}" --pki /tmp/pki --client db1 --io-ms 30000 >/tmp/load.log 2>&1 &
  local pid=$!
  until [ -s /tmp/ack ]; do
    kill -0 $pid 2>/dev/null || { cat /tmp/load.log; trouble "the load ended before anything was acknowledged"; }
    nap
  done
  tell "first-$1"
  while [ ! -e "stop-$1" ]; do
    [ -e "all-$1" ] || kill -0 $pid 2>/dev/null || tell "all-$1"
    nap
  done
  kill -KILL $pid 2>/dev/null
  wait $pid 2>/dev/null
  cp /tmp/ack "acked-$1.new" && mv "acked-$1.new" "acked-$1"
}

client() {
  cable 1 || trouble "no cable"
  for ((n = 0; ; n++)); do
    until [ -e "go-$n" ]; do nap; done
    load "$n" $(cat "go-$n")
    rm -f "go-$n" "first-$n" "all-$n" "stop-$n"
  done
}

"$@"
