# shellcheck shell=bash
# The cases of the tests of sessions, on host 2 of two (session_client_guest.sh). All but case_… are
# what they are made of.

# A cluster of about 60 MB; a base backup; segments of WAL that the cluster does not know.
session_data() {
  as_pg pgbench -q -i -s 3 $c1_conn >/dev/null 2>&1
  c1_sluice stanza-create >/dev/null || die "stanza-create"
  sums=$(c1_psql -c "select count(*), sum(hashtextextended(t::text, 0)) from pgbench_accounts t")
  system_id=$(LC_ALL=C pg_controldata "$c1_data" | sed -n 's/^Database system identifier: *//p')
  mkdir -p "$work/wal"
  "$SLUICE_ROOT/tests/support/make_wal.py" "$work/wal" "$system_id" 16777216 1000 3
  chown -R postgres: "$work/wal"
}

# run NAME TRANSPORT COMMAND…: in the background, what it says in $work/NAME.log, the way it ended in
# $work/NAME.status
run() {
  local name=$1 transport=$2
  shift 2
  rm -f "$work/$name.status"
  began=$SECONDS
  (
    status=0
    c1_sluice --transport="$transport" "$@" >"$work/$name.log" 2>&1 || status=$?
    echo $status >"$work/$name.status"
  ) &
}
# ended NAME SECONDS STATUS…: within so many seconds, with one of these
ended() {
  local name=$1 limit=$2 status
  shift 2
  lab_wait "$limit" test -s "$work/$name.status" || { cat "$work/$name.log"; die "$name has not ended after $limit s"; }
  status=$(cat "$work/$name.status")
  say "$name ended with $status after $((SECONDS - began)) s"
  [[ " $* " = *" $status "* ]] && return
  cat "$work/$name.log"
  die "$name ended with $status, wanted was $*"
}
# said NAME PATTERN: its log has a line like that; shown
said() {
  grep -E -m 1 -- "$2" "$work/$1.log" && return
  cat "$work/$1.log"
  die "$1 did not say \"$2\""
}
# target_said PATTERN
target_said() { grep -E -m 1 -- "$1" "$SHARED/target.log" || die "the target did not say \"$1\""; }

moved() { echo $(($(cat "/sys/class/net/cable/statistics/$1_bytes") >> 20)); }
# middle NAME tx|rx MIB: until the cable has carried so much more; the command still runs then
middle() {
  local from
  from=$(moved "$2")
  carried() { [ $(($(moved "$1") - from)) -ge "$2" ] || [ -e "$work/$3.status" ]; }
  lab_wait 300 carried "$2" "$3" "$1" || die "$1 does not move"
  [ ! -e "$work/$1.status" ] || { cat "$work/$1.log"; die "$1 ended before the fault"; }
}
link_off() { ip link set cable down; }
link_on() {
  ip link set cable up
  lab_wait 60 reach || die "the cable does not come back"
}
# Whatever was broken is whole again: a session over RDMA can be had (an attempt takes 10 s at most).
rdma_is_back() {
  rdma_works() { c1_sluice --transport=rdma info >"$work/works.log" 2>&1; }
  lab_wait 300 rdma_works || { cat "$work/works.log"; die "no session over RDMA any more"; }
}
# Soft-RoCE's queue pair for management is in error for ever once a message of it found no way out (a
# disconnection while the cable is out): no connection is made any more until the device is made anew.
new_device() {
  rdma link delete "${kind}0"
  rdma link add "${kind}0" type "$kind" netdev cable
}
reach() { (exec 3<>/dev/tcp/10.99.0.1/7430) 2>/dev/null; }
# ask COMMAND: done on host 1
ask() {
  rm -f "$SHARED/answered"
  printf '%s\n' "$*" >"$SHARED/ask.new"
  mv "$SHARED/ask.new" "$SHARED/ask"
  lab_wait 200 test -e "$SHARED/answered" || die "host 1 does not answer"
}
# Host 1 loses its power, and comes back.
cut_power() {
  rm -f "$SHARED/up"
  touch "$SHARED/cut"
}
power_back() {
  lab_wait 200 test -e "$SHARED/up" || die "host 1 does not come back"
  rdma_is_back
}

have_backup() { c1_sluice info 2>/dev/null | grep -q '[0-9]F' || at_once 0 rdma backup; }
restored_is_whole() { # FOLDER: it starts, and holds what the cluster held
  local port=7001 conn="-h $work/c1-socket -p 7001 -U postgres -d postgres"
  as_pg sh -c "printf '%s\n' 'archive_mode = off' 'port = $port' >> '$1/postgresql.auto.conf'"
  as_pg pg_ctl -D "$1" -l "$1.log" -w -t 120 start >/dev/null || { cat "$1.log"; die "the restored server does not start"; }
  local got
  got=$(as_pg psql -X -q -A -t $conn -c "select count(*), sum(hashtextextended(t::text, 0)) from pgbench_accounts t")
  as_pg pg_ctl -D "$1" -m immediate -w stop >/dev/null
  [ "$got" = "$sums" ] || die "restored was $got, not $sums"
  rm -rf "$1"
}

# --- archiving: segments pushed one after the other, each acknowledged by exit status 0 ---------
# pushes TRANSPORT SEED: in the background, all segments of a new timeline; again until they are stored
pushes() {
  rm -f "$work/pushed" "$work/pushes.status"
  : >"$work/pushes.log"
  began=$SECONDS
  (
    for segment in "$work"/wal/*; do
      until c1_sluice --transport="$1" --timeout=20s archive-push "$segment" >>"$work/pushes.log" 2>&1; do
        status=$?
        [ $status -le 125 ] || { echo $status >"$work/pushes.status"; exit; }
        sleep 0.5
      done
      echo "${segment##*/}" >>"$work/pushed"
    done
    echo 0 >"$work/pushes.status"
  ) &
}
# Everything that was acknowledged is there, and the same push again succeeds.
pushed_is_there() {
  local name
  while read -r name; do
    rm -f "$work/got"
    as_pg sluice --config="$work/c1.conf" --transport=tcp archive-get "$name" "$work/got" >/dev/null 2>&1 || die "acknowledged $name is lost"
    cmp -s "$work/got" "$work/wal/$name" || die "$name came back different"
    c1_sluice --transport=tcp archive-push "$work/wal/$name" >"$work/again.log" 2>&1 || { cat "$work/again.log"; die "the same push again"; }
  done <"$work/pushed"
  say "$(wc -l <"$work/pushed") acknowledged segments are there"
}
new_wal() { # SEED: other content, under new names
  rm -rf "$work"/wal/*
  "$SLUICE_ROOT/tests/support/make_wal.py" "$work/wal" "$system_id" 16777216 $((1000 + 10 * $1)) 3 "$1"
  chown -R postgres: "$work/wal"
}

# --- packets lost and late ------------------------------------------------------------------------
case_loss() {
  run backup rdma backup
  middle backup tx 10
  tc qdisc add dev cable root netem limit 100000 loss 0.02% delay 1ms
  ended backup 200 0
  new_wal 1
  pushes rdma
  ended pushes 200 0
  tc qdisc del dev cable root
  pushed_is_there
}

# --- nothing gets through for a moment: lanes are replaced ---------------------------------------
# Packets vanish; with the link down instead, Soft-RoCE would make no more connections (new_device).
case_blip() {
  run backup rdma backup
  middle backup tx 12
  tc qdisc add dev cable root netem loss 100%
  sleep 4
  tc qdisc del dev cable root
  ended backup 200 0
  said backup 'lane [0-9]+|session is over'
  target_said 'lane [0-9]+ is down'
}

# --- and for longer than a dead peer takes to be known: a new session ----------------------------
case_cut() {
  have_backup
  run restore auto restore --datadir "$work/restored"
  middle restore rx 12
  link_off
  sleep 12
  link_on
  ended restore 200 0
  said restore 'session is over: .*(heard|lost)'
  said restore 'read again|sent again'
  said restore 'transport (rdma|tcp) \(auto: '
  new_device
  restored_is_whole "$work/restored"
}

# --- for good: a clear error, in time ------------------------------------------------------------
case_gone() {
  run backup rdma --timeout=10s backup
  middle backup tx 12
  link_off
  ended backup 60 49 65 66
  tail -n 3 "$work/backup.log"
  said backup 'session is over: .*nothing was heard'
  said backup 'ERROR: .*(Network is unreachable|10\.99\.0\.1|nothing was heard)'
  link_on
  new_device
  rdma_is_back
  run backup rdma backup
  ended backup 200 0
}

# --- the target's power fails --------------------------------------------------------------------
case_power() {
  run backup rdma backup
  middle backup tx 12
  cut_power
  ended backup 200 0
  power_back
  said backup 'session is over'
  run restore rdma restore --datadir "$work/restored"
  middle restore rx 12
  cut_power
  ended restore 200 0
  power_back
  said restore 'session is over'
  restored_is_whole "$work/restored"
}
case_power_archive() {
  new_wal 2
  pushes rdma
  middle pushes tx 12
  cut_power
  ended pushes 200 0
  power_back
  pushed_is_there
  said pushes 'sent again|no session|could not|lost'
}

# --- which transport, and why ---------------------------------------------------------------------
# at_once STATUS TRANSPORT COMMAND…: in the foreground; its log is that of "now"
at_once() {
  local want=$1 transport=$2 status=0
  shift 2
  c1_sluice --transport="$transport" "$@" >"$work/now.log" 2>&1 || status=$?
  [ $status = "$want" ] || { cat "$work/now.log"; die "wanted exit status $want, got $status: $transport $*"; }
}

case_client_without_rdma() {
  rdma link delete "${kind}0"
  at_once 0 auto info
  said now 'transport tcp \(auto: .*no RDMA device'
  at_once 68 rdma info
  said now 'ERROR: .*transport = rdma: .*no RDMA device'
  rdma link add "${kind}0" type "$kind" netdev cable
  at_once 0 auto info
  said now 'transport rdma \(auto: both sides have RDMA\)'
}

case_target_without_rdma() {
  ask 'daemon_stop; rdma link delete ${kind}0; daemon_refuses "transport = rdma"; daemon_start'
  target_said 'sluiced: ended with 68'
  target_said 'no RDMA, TCP only \(transport = auto\): .*no RDMA device'
  at_once 0 auto info
  said now 'transport tcp \(auto: the target has no RDMA: .*no RDMA device'
  at_once 68 rdma info
  said now 'ERROR: .*transport = rdma: the target has no RDMA: .*no RDMA device'
  ask 'daemon_stop; rdma link add ${kind}0 type $kind netdev vec0; daemon_start'
  at_once 0 auto info
  said now 'transport rdma'
}

# The kernel takes a software device away only when nobody has it open: the work in progress ends as it
# began, and the next does without.
case_device_deleted() {
  run backup auto backup
  middle backup tx 12
  rdma link delete "${kind}0" &
  local removal=$!
  ended backup 200 0
  said backup 'transport rdma'
  wait $removal || die "the device was not deleted"
  at_once 0 auto info
  said now 'transport tcp \(auto: .*no RDMA device'
  rdma link add "${kind}0" type "$kind" netdev cable
  at_once 0 auto info
  said now 'transport rdma'
}

# Small packets pass, full ones are dropped on their way.
case_mtu() {
  local drop='udp dport 4791 udp length 2000-65535'
  [ "$kind" = rxe ] || drop='tcp dport 7431 ip length 2000-65535'
  drop="$drop drop; nft add rule inet mtu in ${drop/dport/sport} drop"
  ask "nft add table inet mtu; nft add chain inet mtu in '{ type filter hook input priority 0; }'; nft add rule inet mtu in $drop"
  run backup auto backup
  ended backup 200 0
  said backup 'RDMA lanes come up, but no block gets through'
  said backup 'compare the MTU of both hosts'
  said backup 'transport tcp \(auto: RDMA failed: .*no block gets through'
  run backup rdma --timeout=20s backup
  ended backup 150 71 65 66
  said backup 'session is over: RDMA lanes come up, but no block gets through'
  said backup 'ERROR: '
  ask 'nft delete table inet mtu'
  at_once 0 rdma info
}

# What the message names is what is needed: with it, it works.
case_memlock() {
  (ulimit -l 4096 && at_once 62 rdma info)
  said now 'ERROR: .*RDMA needs 5120 KiB of locked memory, the limit \(RLIMIT_MEMLOCK\) is 4096 KiB'
  said now 'HINT: ulimit -l 5120'
  (ulimit -l 4096 && at_once 0 auto info)
  said now 'transport tcp \(auto: .*RDMA needs 5120 KiB of locked memory'
  (ulimit -l 5119 && at_once 62 rdma info)
  (ulimit -l 5120 && at_once 0 rdma info)
  said now 'transport rdma'
}
