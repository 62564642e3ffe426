# shellcheck shell=bash
# What the benchmarks share that measure two hosts on this one: a control group, and so a CPU account, for each;
# certificates, Sluice's configuration, its daemon, one measured run. Sourced; $bench_user runs it all.
# shellcheck disable=SC2154  # work, bin, groups, runs, round: the caller's
bench_user=postgres

calc() { awk "BEGIN { printf \"%.4f\", $* }"; }

# --- the hosts: one control group each --------------------------------------------------------

cgroup_root() {
  local at
  for at in /sys/fs/cgroup /sys/fs/cgroup/unified; do
    [ -f "$at/cgroup.procs" ] && [ "$(stat -f -c %T "$at")" = cgroup2fs ] && { echo "$at"; return; }
  done
  echo "${0##*/}: no cgroup v2 here" >&2
  return 1
}
enter() { # HOST COMMAND…: becomes it, as $bench_user, on db or target
  local host=$1
  shift
  # shellcheck disable=SC2016
  exec bash -c 'echo $$ > "$0/cgroup.procs" && exec setpriv --reuid '"$bench_user"' --regid '"$(id -gn "$bench_user")"' --init-groups env HOME=/tmp "$@"' \
    "$groups-$host" "$@"
}
on() { (enter "$@"); }
used() { awk '$1 == "usage_usec" { printf "%.4f", $2 / 1e6 }' "$groups-$1/cpu.stat"; }
used_by_all() { awk -v hz="$(getconf CLK_TCK)" '$1 == "cpu" { printf "%.2f", ($2 + $3 + $4 + $6 + $7 + $8) / hz }' /proc/stat; }
serve() { # HOST NAME COMMAND…: in the background
  local host=$1 name=$2
  shift 2
  enter "$host" "$@" >"$work/log/$name.log" 2>&1 &
  echo $! >"$work/$name.pid"
}
unserve() { # NAME
  local pid
  [ -f "$work/$1.pid" ] || return 0
  pid=$(cat "$work/$1.pid")
  rm -f "$work/$1.pid"
  kill "$pid" 2>/dev/null || return 0
  wait "$pid" 2>/dev/null || true
}

# --- Sluice's side ----------------------------------------------------------------------------

make_certificates() {
  local name
  on db "$bin/sluice" cert init "$work/pki" >/dev/null
  for name in localhost db1; do on db "$bin/sluice" cert issue $name --dir "$work/pki" >/dev/null; done
}

write_sluiced_conf() { # REPOSITORY PORT
  cat >"$work/sluiced.conf" <<CONF
[global]
repo-path = $1
listen-address = 127.0.0.1
port = $2
transport = tcp
tls-cert = $work/pki/localhost.crt
tls-key = $work/pki/localhost.key
tls-ca = $work/pki/ca.crt

[main]
clients = db1
CONF
}
write_sluice_conf() { # PORT LINE…: these in the stanza's section
  local port=$1
  shift
  cat >"$work/sluice.conf" <<CONF
[global]
repo-host = localhost:$port
transport = tcp
tls-cert = $work/pki/db1.crt
tls-key = $work/pki/db1.key
tls-ca = $work/pki/ca.crt

[main]
CONF
  printf '%s\n' "$@" >>"$work/sluice.conf"
}
start_sluiced() {
  serve target sluiced "$bin/sluiced" --config "$work/sluiced.conf"
  local i
  for i in $(seq 100); do grep -q listening "$work/log/sluiced.log" && return; sleep 0.1; done
  echo "${0##*/}: sluiced did not start" >&2
  return 1
}

# --- measuring ---------------------------------------------------------------------------------

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
    echo "${0##*/}: $what with $tool failed:" >&2
    tail -n 5 "$work/log/$what-$tool.log" >&2
    exit 1
  fi
  [ -z "$stored" ] || stored=$(du -s --block-size=1 "$stored" | cut -f1)
  printf '{"what":"%s","tool":"%s","round":%d,"wall_s":%s,"db_cpu_s":%s,"target_cpu_s":%s,"bytes":%s,"stored":%s,"others_cores":%s}\n' \
    "$what" "$tool" "$round" "$wall" "$db" "$target" "$bytes" "${stored:-0}" "$others" >>"$runs"
  printf '%-8s %-18s wall %6.2f s  cpu: database %6.2f s, target %6.2f s\n' "$what" "$tool" "$wall" "$db" "$target" >&2
}
