#!/bin/bash
# timeout: 300
# MariaDB backups through a sluiced that is killed in the middle, or has no space left; sluice itself killed; then
# expire, keep and verify. Nothing that is not a whole backup is ever listed, and what was broken off goes.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/mariadb.sh"
cd "$work"
new_mariadb m1
m1_sql -e "CREATE DATABASE shop; CREATE TABLE shop.a (i INT PRIMARY KEY AUTO_INCREMENT, x VARCHAR(200)) ENGINE=InnoDB"
m1_sql shop -e "INSERT INTO a (x) SELECT REPEAT(MD5(RAND()), 5) FROM seq_1_to_20000"
s() { sluice --engine=mysql $(remote) --stanza=main --timeout=20s "$@"; }
backup() { s backup --my-defaults-file="$m1_defaults" "$@"; }
labels() { s info --output=json | jq -r '.stanza[0].backup[].label'; }
tool() { printf '#!/bin/bash\n%s\n' "$2" >"$work/$1"; chmod +x "$work/$1"; } # NAME BODY
mariadb-backup --defaults-file="$m1_defaults" --backup --stream=xbstream --target-dir="$work/none" >good.xb 2>good.err
half=$(($(stat -c %s good.xb) / 2))
# half of the stream, then a wait for the test's word
tool halfway "head -c $half good.xb; : >half; while [ ! -e go ]; do sleep 0.05; done; tail -c +$((half + 1)) good.xb; cat good.err >&2"
wait_for() { local i; for i in $(seq 1200); do [ ! -e "$1" ] || return 0; sleep 0.05; done; die "no $1"; }
none() { # WHAT: no backup and no stream of one
  [ -z "$(find "$1" -name manifest)$(find "$1" -name 'xbstream*')" ] || die "something was published after: $2"
}

say "the target is killed in the middle"
start_target t "$work/repo"
expect 0 s stanza-create --my-defaults-file="$m1_defaults"
s backup --my-defaults-file="$m1_defaults" --my-backup-command="$work/halfway" >killed.out 2>&1 &
pid=$!
wait_for half
kill -KILL "$target_pid"
wait "$target_pid" || true
: >go
got=0
wait $pid || got=$?
[ $got != 0 ] && grep -q 'there is no backup' killed.out || { cat killed.out; die "its target was killed: $got"; }
none repo "the target was killed"
target_port=$port start_target t "$work/repo"
rm half go

say "sluice is killed in the middle, and the tool ends by itself"
tool halfway2 "echo \$\$ >tool.pid; head -c $half good.xb; : >half; while :; do head -c 100000 good.xb || exit 1; sleep 0.1; done"
sluice --engine=mysql $(remote) --stanza=main backup --my-defaults-file="$m1_defaults" --my-backup-command="$work/halfway2" >killed.out 2>&1 &
pid=$!
wait_for half
kill -KILL $pid
wait $pid || true
for _ in $(seq 600); do kill -0 "$(cat tool.pid)" 2>/dev/null || break; sleep 0.05; done
! kill -0 "$(cat tool.pid)" 2>/dev/null || die "the tool runs on without a reader"
none repo "sluice was killed"
expect 0 backup
stop_target "$target_pid"

if [ "$(id -u)" = 0 ]; then
  say "the target is full"
  mkdir small
  at_exit+=("umount -l '$work/small' 2>/dev/null")
  for size in 3m 12m; do
    mount -t tmpfs -o size=$size tmpfs small
    start_target full "$work/small/repo"
    expect 0 s stanza-create --my-defaults-file="$m1_defaults"
    expect 60 backup --compress-type=none
    grep -q 'there is no backup' out || { cat out; die "it does not say that there is no backup"; }
    none small/repo "the target was full"
    expect 0 s verify
    mount -o remount,size=200m small
    expect 0 backup --compress-type=none
    [ "$(labels | wc -l)" = 1 ] || die "more than the one backup is listed"
    stop_target "$target_pid"
    umount small
  done
fi

say "expire, keep, verify"
l() { sluice --engine=mysql --repo-path="$work/repo" --stanza=main "$@"; }
lb() { l backup --my-defaults-file="$m1_defaults" "$@"; }
there() { l info --output=json | jq -r '.stanza[0].backup[].label' | paste -sd' '; }
first=$(there)
expect 0 lb --type=incr
incr=$(there | cut -d' ' -f2)
expect 0 lb
second=$(there | cut -d' ' -f3)
folders=$(find repo/main/backup -mindepth 1 -maxdepth 1 | wc -l)
[ "$folders" = 5 ] || die "$folders folders: the two that were broken off, and three backups"
expect 0 l expire --retention-full=1 --dry-run
grep -q "would remove backup $incr: retention" out && grep -q "would remove 2 backups" out || { cat out; die "--dry-run"; }
[ "$(there)" = "$first $incr $second" ] || die "--dry-run removed something"
expect 0 l keep "$incr"
expect 0 l expire --retention-full=1
[ "$(there)" = "$first $incr $second" ] || die "a kept increment, or its full one, is gone: $(there)"
expect 0 l unkeep "$incr"
expect 0 l expire --retention-full=1 --abandoned-after=1s
[ "$(there)" = "$second" ] || die "left: $(there)"
[ -z "$(find repo/main/backup -name 'xbstream*' ! -path "*$second*")" ] || die "a stream was left"
[ -z "$(find repo/main/backup -name open ! -path "*$second*")" ] || die "what was broken off is still there"
expect 0 l verify
expect 0 l restore --datadir="$work/back"
rm "repo/main/backup/$second/xbstream"
expect 26 l verify
grep -q xbstream out || { cat out; die "verify does not name the stream that is missing"; }
expect 31 l keep nonsense
expect 55 l keep 20200101-000000F
say ok
