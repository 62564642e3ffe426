# shellcheck shell=bash
# Sourced inside a lab kernel: networks and RDMA devices.
#
# One kernel: rxe0 on 10.99.0.1, siw0 on 10.98.0.1, each on a veth pair of its own with MTU 9000
# (were both on one interface, rdma_cm would always take the first).
lab_veth() { # NAME ADDRESS
  ip link add "$1" type veth peer name "$1p"
  ip address add "$2/24" dev "$1"
  ip link set "$1" mtu 9000 up
  ip link set "$1p" mtu 9000 up
}

lab_rxe() { lab_veth roce 10.99.0.1 && rdma link add rxe0 type rxe netdev roce; }
lab_siw() { lab_veth iwarp 10.98.0.1 && rdma link add siw0 type siw netdev iwarp; }

# lab_device KIND: sets up rxe or siw and sets `address` to where it is.
lab_device() {
  case $1 in
    rxe) lab_rxe && address=10.99.0.1 ;;
    siw) lab_siw && address=10.98.0.1 ;;
    *) echo "no such device: $1" && return 1 ;;
  esac
}

# Two kernels joined by a cable: this end is host NUMBER (1 or 2), 10.99.0.NUMBER, with a device KIND.
lab_host() { # NUMBER KIND
  ip address add "10.99.0.$1/24" dev vec0
  ip link set vec0 mtu 9000 up
  rdma link add "${2}0" type "$2" netdev vec0
  address=10.99.0.$1
}

# The same with an interface, "cable", that can be taken down and up again (vec0 cannot: its file is
# closed with it).
lab_plugged_host() { # NUMBER KIND
  ip link add bridge type bridge
  ip link add cable mtu 9000 type veth peer name socket mtu 9000
  ip link set vec0 mtu 9000 master bridge up
  ip link set socket master bridge up
  ip link set bridge mtu 9000 up
  ip address add "10.99.0.$1/24" dev cable
  ip link set cable up
  rdma link add "${2}0" type "$2" netdev cable
  address=10.99.0.$1
}

# lab_wait SECONDS COMMAND…: until it succeeds
lab_wait() {
  local until=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $until ] || return 1
    sleep 0.1
  done
}

# lab_daemon CERTIFICATE ADDRESS PORT FAULTS: a sluiced for /mnt/d/repo, with the keys in /tmp/pki, in the
# background ($!), listening when this returns; without that it is the caller's `trouble`.
lab_daemon() {
  cat >"/tmp/sluiced-$3.conf" <<CONF
[global]
repo-path = /mnt/d/repo
listen-address = $2
port = $3
transport = tcp
tls-cert = /tmp/pki/$1.crt
tls-key = /tmp/pki/$1.key
tls-ca = /tmp/pki/ca.crt
[main]
clients = db1
CONF
  : >"/tmp/sluiced-$3.log" # an earlier one said "listening" there
  SLUICE_FAULT=$4 "$SLUICE_BUILD/bin/sluiced" --config "/tmp/sluiced-$3.conf" >"/tmp/sluiced-$3.log" 2>&1 &
  lab_wait 50 grep -q listening "/tmp/sluiced-$3.log" || { cat "/tmp/sluiced-$3.log"; trouble "sluiced did not start"; }
}

# Two daemons on one repository get one object at once, and the loser answers before the winner has
# synced: no clock decides, both are stopped where it matters. Give them these faults, and run
# lab_loser WINNER_PID LOSER_PID FOLDER in the background: when both have their bytes on the disk, the
# winner links (a new name appears in FOLDER) and sleeps, then the loser finds the name taken.
lab_winner_faults=posix.link:stop@1,posix.syncdir:sleep=600000@1
lab_loser_faults=posix.link:stop@1
lab_stopped() { [ "$(sed 's/.*) //; s/ .*//' "/proc/$1/stat")" = T ]; }
lab_loser() {
  local before
  lab_wait 60 lab_stopped "$1" && lab_wait 60 lab_stopped "$2" || { echo "the two daemons did not meet"; return 1; }
  before=$(find "$3" -type f 2>/dev/null | wc -l)
  kill -CONT "$1"
  linked() { [ "$(find "$3" -type f 2>/dev/null | wc -l)" -gt "$before" ]; }
  lab_wait 60 linked "$@" || { echo "the winner did not link"; return 1; }
  kill -CONT "$2"
}
