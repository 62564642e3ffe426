# shellcheck shell=bash
# What the tests of lanes share. Sourced on the host (by test_lanes_*.sh) and inside lab kernels.
lab=$SLUICE_ROOT/tests/lab
export LANE_PLUGIN=$SLUICE_BUILD/lib/sluice/sluice-verbs.so
lane_tool=$SLUICE_BUILD/tests/lane_tool
lane_lab=$SLUICE_BUILD/tests/lane_lab

# On the host. Without RDMA libraries there is nothing to test.
lanes_need() {
  if [ ! -e "$LANE_PLUGIN" ] || [ ! -x "$lane_tool" ]; then
    echo "this build has no RDMA: libibverbs and librdmacm were not found"
    exit 77
  fi
  if ! "$lab/kernel"; then
    echo "no lab kernel"
    exit 77
  fi
  for tool in rdma ip tc; do
    command -v $tool > /dev/null || { echo "no program \"$tool\" (iproute2)"; exit 77; }
  done
}

# in_guest NAME SECONDS SCRIPT ARGUMENTS…: the script in a kernel of its own; shows what it said.
in_guest() {
  local out=$SLUICE_WORK/$1 limit=$2 status=0
  shift 2
  mkdir -p "$out"
  "$lab/boot" -t "$limit" "$out" "export SLUICE_ROOT='$SLUICE_ROOT' SLUICE_BUILD='$SLUICE_BUILD'; bash $*" || status=$?
  cat "$out/output"
  [ $status = 0 ] || { echo "ended with $status; the kernel's last words:"; tail -n 5 "$out/console"; }
  return $status
}
