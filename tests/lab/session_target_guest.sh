#!/bin/bash
# In one of two lab kernels: host 1, a sluiced over a device KIND, its repository on /dev/ubda, its
# certificates and its log in $SHARED, so that they outlive a power cut. Afterwards it does what host 2
# asks for: a file $SHARED/ask with a command, answered by $SHARED/answered; until $SHARED/done.
set -euo pipefail
export SLUICE_WORK=/tmp/session
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/lab/lib.sh"
kind=$1
lab_host 1 "$kind"
ulimit -l unlimited
mkdir -p /mnt/disk
mount /dev/ubda /mnt/disk
if [ ! -d "$SHARED/pki" ]; then
  sluice cert init "$work/pki" >/dev/null
  sluice cert issue target --dir "$work/pki" --alt-name "$address" >/dev/null
  sluice cert issue db1 --dir "$work/pki" >/dev/null
  cp -r "$work/pki" "$SHARED/pki.new" && mv "$SHARED/pki.new" "$SHARED/pki"
else
  cp -r "$SHARED/pki" "$work/pki"
fi
chmod 600 "$work"/pki/*.key

daemon_start() { # MORE LINES OF ITS CONFIGURATION
  cat >"$work/sluiced.conf" <<END
[global]
repo-path = /mnt/disk/repo
listen-address = $address
port = 7430
tls-cert = $work/pki/target.crt
tls-key = $work/pki/target.key
tls-ca = $work/pki/ca.crt
log-level = detail
pool-size = 16MiB
${1:-}
[main]
clients = db1
END
  : >"$work/listening"
  sluiced --config "$work/sluiced.conf" >"$work/listening" 2>>"$SHARED/target.log" &
  daemon=$!
  started_pids+=($!)
  lab_wait 100 grep -q listening "$work/listening" || die "sluiced did not start"
  cat "$work/listening" >>"$SHARED/target.log"
}
# It must not start so: how it ended is in the log.
daemon_refuses() {
  local status=0
  sed "/^\[main\]/i $1" "$work/sluiced.conf" >"$work/refused.conf"
  timeout 30 sluiced --config "$work/refused.conf" >>"$SHARED/target.log" 2>&1 || status=$?
  say "sluiced: ended with $status" >>"$SHARED/target.log"
}
daemon_stop() {
  kill -TERM $daemon
  wait $daemon || true
}

daemon_start
say "host 1 is up" | tee -a "$SHARED/target.log"
touch "$SHARED/up"
until [ -e "$SHARED/done" ]; do
  if [ -e "$SHARED/ask" ]; then
    command=$(cat "$SHARED/ask")
    rm "$SHARED/ask"
    say "asked for: $command" | tee -a "$SHARED/target.log"
    eval "$command"
    touch "$SHARED/answered"
  fi
  sleep 0.1
done
daemon_stop
exit "$(cat "$SHARED/done")"
