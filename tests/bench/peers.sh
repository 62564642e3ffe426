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

# measure WHAT TOOL BYTES STORED-DIR COMMAND…: one line of JSON.
measure() {
  local what=$1 tool=$2 bytes=$3 stored=$4 status=0 wall db target others all
  shift 4
  sync
  sleep 0.5 # the end of what prepared it
  wall=$EPOCHREALTIME db=$(used db) target=$(used target) all=$(used_by_all)
  "$@" >"$work/log/$what-$tool.log" 2>&1 || status=$?
  wall=$(calc "$EPOCHREALTIME - $wall")
  sleep 0.2 # processes that end after their answer was given
  db=$(calc "$(used db) - $db") target=$(calc "$(used target) - $target")
  others=$(calc "($(used_by_all) - $all - $db - $target) / $wall")
  if [ $status != 0 ]; then
    echo "peers.sh: $what with $tool failed:" >&2
    tail -n 5 "$work/log/$what-$tool.log" >&2
    exit 1
  fi
  [ -z "$stored" ] || stored=$(du -s --block-size=1 "$stored" | cut -f1)
  printf '{"what":"%s","tool":"%s","round":%d,"wall_s":%s,"db_cpu_s":%s,"target_cpu_s":%s,"bytes":%s,"stored":%s,"others_cores":%s}\n' \
    "$what" "$tool" "$round" "$wall" "$db" "$target" "$bytes" "${stored:-0}" "$others" >>"$runs"
  printf '%-8s %-18s wall %6.2f s  cpu: database %6.2f s, target %6.2f s\n' "$what" "$tool" "$wall" "$db" "$target" >&2
}

for round in $(seq "$rounds"); do
  for what in "${whats[@]}"; do
    [ -z "$what" ] || "cases_$what"
  done
done
python3 "$root/tests/bench/peers_report.py" "$runs" ${json:+"$json"}
