#!/bin/bash
# timeout: 600
# Peers that mean ill against a running sluiced, while an honest client archives: bytes that are neither
# TLS nor ours, TLS without a certificate, with another CA's, with an expired one, another's stanza; after
# a true authentication wrong, truncated, oversize, out-of-order and mutated messages, lies on lanes;
# half-open connections by the hundred, slow ones, one that never reads (tests/support/hostile_peer.c). All
# of it is refused, the honest client notices nothing, the log says who and why without being flooded,
# and memory and files are back where they were.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
start_target t "$work/repo"
seed=${SLUICE_SEED:-$RANDOM}
say "seed $seed"
peer() { "$tools/hostile_peer" 127.0.0.1 "$port" "$work/pki" db1 main "$@"; }

# certificates that will not do
sluice cert init "$work/other-ca" >/dev/null
sluice cert issue db1 --dir "$work/other-ca" >/dev/null
mkdir -p "$work/expired" && : >"$work/expired/index" && echo 77 >"$work/expired/serial"
cat >"$work/expired/ca.conf" <<CONF
[ca]
default_ca = d
[d]
dir = $work/expired
new_certs_dir = \$dir
database = \$dir/index
serial = \$dir/serial
default_md = sha256
policy = p
x509_extensions = x
[p]
commonName = supplied
[x]
extendedKeyUsage = clientAuth
subjectAltName = DNS:db1
CONF
openssl req -new -key "$work/pki/db1.key" -subj /CN=db1 -out "$work/expired/db1.csr" 2>/dev/null
openssl ca -batch -config "$work/expired/ca.conf" -cert "$work/pki/ca.crt" -keyfile "$work/pki/ca.key" -in "$work/expired/db1.csr" \
  -startdate 20200101000000Z -enddate 20210101000000Z -out "$work/expired/db1.crt" >"$work/openssl.log" 2>&1 || { cat "$work/openssl.log"; die "openssl"; }
cp "$work/pki/db1.key" "$work/expired/db1.key"
with() { # CERT KEY STANZA: info, its output in $work/out
  local status=0
  sluice --repo-host="localhost:$port" --tls-cert="$1" --tls-key="$2" --tls-ca="$work/pki/ca.crt" --stanza="$3" --timeout=20s info >"$work/out" 2>&1 || status=$?
  [ $status != 0 ] || die "$1 may use stanza $3"
  grep -q ERROR "$work/out" || { cat "$work/out"; die "$1 was refused without a word"; }
}

honest_acks=$work/honest
honest_first=0
honest() { # the honest client, until it is told to stop: nothing of its may fail
  while [ ! -e "$work/stop" ]; do
    "$tools/archive_load" --stanza main --ack "$honest_acks" --first $honest_first --count 20 --bytes 30000 --threads 2 \
      --host "localhost:$port" --pki "$work/pki" --client db2 --io-ms 60000 >>"$work/honest.log" 2>&1 || echo failed >>"$work/honest-failed"
    honest_first=$((honest_first + 20))
  done
}
fds() { ls "/proc/$target_pid/fd" | wc -l; }
rss_kib() { awk '/^VmRSS/ { print $2 }' "/proc/$target_pid/status"; }

wanted() { # TEXT: the log has it
  grep -qiE "$1" "$work/t.log" || { tail -n 40 "$work/t.log"; die "the log does not say: $1"; }
}
attack_from=0
with "$work/other-ca/db1.crt" "$work/other-ca/db1.key" main
with "$work/expired/db1.crt" "$work/expired/db1.key" main
with "$work/pki/db1.crt" "$work/pki/db1.key" other
grep -qi 'may not use stanza' "$work/out" || { cat "$work/out"; die "the refusal of another's stanza does not say so"; }
with "$work/pki/db1.crt" "$work/pki/db1.key" ../main
timeout 20 openssl s_client -connect "127.0.0.1:$port" -tls1_3 </dev/null >"$work/out" 2>&1 || true # no certificate
timeout 20 openssl s_client -connect "127.0.0.1:$port" -tls1_2 -cert "$work/pki/db1.crt" -key "$work/pki/db1.key" </dev/null >"$work/out" 2>&1 || true
grep -qiE 'alert|error' "$work/out" || { cat "$work/out"; die "TLS 1.2 was not refused"; }
wanted '127\.0\.0\.1.*(certificate|unknown ca|self.signed)'
wanted 'expired'
wanted 'client "db1" .*may not use stanza "other"'
wanted 'did not return a certificate|no certificate|certificate required'
say "certificates of another CA, expired, none, TLS 1.2, another's stanza: refused, and logged with address and reason"

# what it takes when all is well: some sessions, good ones, and one of each kind of trouble
: >"$honest_acks"
"$tools/archive_load" --stanza main --ack "$honest_acks" --count 40 --bytes 30000 --threads 4 --host "localhost:$port" --pki "$work/pki" --client db2 >/dev/null
honest_first=40
peer mutate 30 "$seed" >/dev/null || true
peer garbage 30 "$seed" >/dev/null || true
settled() { # files open, when they have come to rest
  local last=-1 now
  for _ in $(seq 150); do
    now=$(fds)
    [ "$now" != "$last" ] || { echo "$now"; return; }
    last=$now
    sleep 2
  done
  echo "$now"
}
fds_before=$(settled) rss_before=$(rss_kib)
say "before: $fds_before files, $((rss_before / 1024)) MiB"

honest &
honest_pid=$!
started_pids+=($honest_pid)
attack_from=$(wc -l <"$work/t.log")

status=0
peer garbage 400 "$seed" || status=1
peer messages || status=1
peer mutate 600 "$seed" || status=1
peer lanes || status=1
peer flood 1500 || status=1
peer slow >"$work/slow.log" & slow=$!
peer deaf || status=1
wait $slow || status=1
cat "$work/slow.log"
[ $status = 0 ] || die "something was let pass"
kill -0 "$target_pid" || die "sluiced is gone"
wanted 'connection from 127\.0\.0\.9 refused'
wanted 'neither TLS nor ours'
wanted 'client "db1" \(127\.0\.0\.9:[0-9]+\): session refused'
wanted 'more complaints .* were not logged'
grep -q 'ERROR forged' <(grep -v 'name' "$work/t.log") && die "a name has forged a line of the log"
lines=$(($(wc -l <"$work/t.log") - attack_from))

touch "$work/stop"
wait $honest_pid || true
acks=$(wc -l <"$honest_acks")
[ ! -e "$work/honest-failed" ] || { tail -n 5 "$work/honest.log"; die "the honest client was hurt"; }
[ "$acks" -gt 60 ] || die "the honest client stored next to nothing: $acks"
say "$lines lines in the log; the honest client stored $acks objects meanwhile, none failed"
# a bucket of 20 lines for each of two kinds, and one more every 3 s; errors of objects are as many as we made
[ $lines -lt 900 ] || die "the log was flooded"

fds_after=$(settled) rss_after=$(rss_kib)
say "after: $fds_after files, $((rss_after / 1024)) MiB"
[ "$fds_after" -le $((fds_before + 3)) ] || { ls -l "/proc/$target_pid/fd"; die "files were left open"; }
[ "$rss_after" -le $((rss_before + 24 * 1024)) ] || die "memory was not given back"
"$tools/repo_check" "$work/repo" main "$honest_acks" 30000 >"$work/out" || { cat "$work/out"; die "the repository was damaged"; }
(cd "$work/repo" && find . -path '*hostile*' -type f ! -name mutated) | grep . && die "a hostile object was stored"
stop_target "$target_pid"
say "everything was refused"
