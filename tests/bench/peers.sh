#!/bin/bash
# Sluice beside its peers: base backup, restore and WAL archiving of one PostgreSQL 15 cluster of
# about 2 GB (half pgbench, half mixed text), over loopback TCP with TLS, interleaved in one run.
#
#   tests/bench/peers.sh [--rounds N] [--jobs N] [--segments N] [--json FILE] [WHAT…]
#
# WHAT: backup restore push (all). A table goes to standard output, every run and the summary to
# FILE. Measured is wall time, and CPU seconds (user and system, children included) apart for the
# database host (server, walsenders, what runs beside it) and the backup host; both are control
# groups, so this needs root. The cluster is made once and kept in SLUICE_BENCH_DIR
# (/tmp/sluice-peers); a missing pgbackrest or socat is installed. SLUICE_BUILD: build/release.
#
# Not a test: how fast a machine is, is no fault of the code.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/packages.sh
. "$root/tests/support/packages.sh"
# shellcheck source=tests/bench/hosts.sh
. "$root/tests/bench/hosts.sh"
# shellcheck source=tests/bench/peers_setup.sh
. "$root/tests/bench/peers_setup.sh"
# shellcheck source=tests/bench/peers_cases.sh
. "$root/tests/bench/peers_cases.sh"

rounds=3 jobs=2 segments=32 json= whats=()
while [ $# -gt 0 ]; do
  case $1 in
    --rounds) rounds=$2; shift ;;
    --jobs) jobs=$2; shift ;;
    --segments) segments=$2; shift ;;
    --json) json=$2; shift ;;
    backup | restore | push) whats+=("$1") ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 2 ;;
  esac
  shift
done
[ ${#whats[@]} -gt 0 ] || whats=(backup restore push)
case " ${whats[*]} " in *" restore "*) whats=(backup "${whats[@]/backup/}") ;; esac # needs backups

[ "$(id -u)" = 0 ] || { echo "peers.sh: needs root, for control groups" >&2; exit 77; }
packages_need run bench
bin=${SLUICE_BUILD:-$root/build/release}/bin
[ -x "$bin/sluice" ] || { cmake --preset release -S "$root" && cmake --build "$root/build/release"; } >/dev/null
work=${SLUICE_BENCH_DIR:-${TMPDIR:-/tmp}/sluice-peers}
trap clean_up EXIT
trap 'exit 130' INT TERM
set_up

runs=$work/runs.jsonl
: >"$runs"

for round in $(seq "$rounds"); do
  for what in "${whats[@]}"; do
    [ -z "$what" ] || "cases_$what"
  done
done
python3 "$root/tests/bench/peers_report.py" "$runs" ${json:+"$json"}
