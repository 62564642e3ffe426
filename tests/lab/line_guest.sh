#!/bin/bash
# Inside a lab kernel: the line over an RDMA device. Arguments: DEVICE KIND (rxe, siw), MODE:
#   one      target and server in this kernel
#   target   only the target, on host 1 of two; until host 2 says it is done
#   server   only the server, on host 2
# In mode target and server $LINE_SHARED is a folder that both see.
set -euo pipefail
export SLUICE_WORK=/tmp/line
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/lab/lib.sh"
kind=$1 mode=$2
case $mode in
  one) lab_device "$kind" ;;
  target) lab_host 1 "$kind" ;;
  server) lab_host 2 "$kind" ;;
esac
ulimit -l 65536
target_address=$address
[ "$mode" != server ] || target_address=10.99.0.1

if [ "$mode" != server ]; then
  sluice cert init "$work/pki" >/dev/null
  sluice cert issue target --dir "$work/pki" --alt-name "$target_address" >/dev/null
  sluice cert issue db1 --dir "$work/pki" >/dev/null
  cat >"$work/sluiced.conf" <<EOF
[global]
repo-path = $work/daemon-repo
listen-address = $target_address
port = 7430
tls-cert = $work/pki/target.crt
tls-key = $work/pki/target.key
tls-ca = $work/pki/ca.crt
[main]
clients = db1
EOF
  sluiced --config "$work/sluiced.conf" >"$work/t.log" 2>&1 &
  started_pids+=($!)
  lab_wait 20 grep -q listening "$work/t.log" || { cat "$work/t.log"; die "sluiced did not start"; }
  cat "$work/t.log"
fi
if [ "$mode" = target ]; then
  cp -r "$work/pki" "$LINE_SHARED/pki.new" && mv "$LINE_SHARED/pki.new" "$LINE_SHARED/pki"
  lab_wait 400 test -e "$LINE_SHARED/done" || die "host 2 did not finish"
  cat "$work/t.log"
  exit "$(cat "$LINE_SHARED/done")"
fi
if [ "$mode" = server ]; then
  at_exit+=('echo $status > "$LINE_SHARED/done.new"; mv "$LINE_SHARED/done.new" "$LINE_SHARED/done"')
  lab_wait 60 test -d "$LINE_SHARED/pki" || die "no certificates from host 1"
  cp -r "$LINE_SHARED/pki" "$work/pki"
  reach() { (exec 3<>/dev/tcp/10.99.0.1/7430) 2>/dev/null; }
  lab_wait 30 reach || die "host 1 is not there"
fi
chmod 600 "$work"/pki/*.key
. "$SLUICE_ROOT/tests/support/cluster.sh"
. "$SLUICE_ROOT/tests/support/line.sh"
chown -R postgres: "$work/pki"
c1_repo_options="repo-host = $target_address:7430
transport = rdma
tls-cert = $work/pki/db1.crt
tls-key = $work/pki/db1.key
tls-ca = $work/pki/ca.crt"
LINE_SCALE=${LINE_SCALE:-1}
new_cluster c1
line_run "${kind}0"
