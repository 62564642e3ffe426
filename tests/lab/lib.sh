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

# lab_wait SECONDS COMMAND…: until it succeeds
lab_wait() {
  local until=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $until ] || return 1
    sleep 0.1
  done
}
