#!/bin/bash
# timeout: 300
# check of the MariaDB engine: a server that is as it should be, and each thing that is not, with its hint.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
. "$SLUICE_ROOT/tests/support/mariadb.sh"
cd "$work"
port=$(free_port)
new_mariadb m1 --skip-networking=0 --bind-address=127.0.0.1 --port="$port" --sync-binlog=1
s() { sluice --engine=mysql --repo-path="$work/repo" --stanza=main "$@"; }
check() { s check --my-defaults-file="$m1_defaults" "$@"; }
# line NAME RESULT WORDS: the finding is in the output
line() { grep -Eq "^$1 +$2 .*$3" out || { cat out; die "no line \"$1 $2 … $3\""; }; }
hint() { grep -q "hint: .*$1" out || { cat out; die "no hint \"$1\""; }; }
again() { # OPTION…: the server with other settings
  kill "$m1_pid"
  wait "$m1_pid" || true
  start_mariadb m1 "$m1_data" --server-id=7 --skip-networking=0 --bind-address=127.0.0.1 --port="$port" "$@"
}

say "before there is a stanza"
expect 41 check
line repository FAILED 'could not open'
hint 'stanza-create'
sluice --engine=mysql --repo-path="$work/repo" --stanza=third stanza-create --my-defaults-file="$m1_defaults" >/dev/null
expect 55 check
line repository FAILED 'not in the repository'
hint 'stanza-create'
expect 56 s check --my-socket="$work/no.sock"
line server FAILED 'could not connect'
expect 0 s stanza-create --my-defaults-file="$m1_defaults"

say "all is well, with the documented rights and no others"
expect 0 check
line server ok 'MariaDB 1[01][.]'
line rights ok "'sluice'@'localhost' has all"
line "data directory" ok "$m1_data"
line "backup tool" ok 'mariadb-backup, of 1[01][.]'
line binlog ok 'on, format MIXED'
line "binlog filters" ok none
line replica ok 'replicates from none'
line durability ok 'sync_binlog = 1'
line transport ok .
line space ok .
! grep -E ' (warn|FAILED) ' out | grep -v '^space ' || { cat out; die "a complaint about what is right"; }
grants=$(sed -n 's/^ *GRANT \(.*\) ON .* TO sluice@localhost;$/\1/p' "$SLUICE_ROOT/docs/mysql.md")
[ "$grants" = "RELOAD, PROCESS, LOCK TABLES, BINLOG MONITOR, REPLICATION SLAVE" ] || die "docs/mysql.md grants $grants"
check --output=json >out.json
jq -e '.checks | map(select(.result == "ok")) | length > 10' out.json >/dev/null || { cat out.json; die "JSON"; }

say "each right that is missing"
while read -r right; do
  m1_sql -e "REVOKE $right ON *.* FROM sluice@localhost"
  expect 63 check
  line rights FAILED "lacks $right"
  hint "GRANT $right ON \*\.\* TO 'sluice'@'localhost';"
  m1_sql -e "GRANT $right ON *.* TO sluice@localhost"
done < <(tr ',' '\n' <<<"$grants" | sed 's/^ *//')
m1_sql -e "REVOKE ALL PRIVILEGES, GRANT OPTION FROM sluice@localhost; CREATE ROLE backups; GRANT $grants ON *.* TO backups;
  GRANT backups TO sluice@localhost; SET DEFAULT ROLE backups FOR sluice@localhost"
expect 0 check # a role will do
m1_sql -e "REVOKE backups FROM sluice@localhost; GRANT ALL ON *.* TO sluice@localhost"
expect 0 check
m1_sql -e "REVOKE ALL PRIVILEGES, GRANT OPTION FROM sluice@localhost; GRANT $grants ON *.* TO sluice@localhost"

say "another server, another tool, a folder that cannot be read"
m1_sql -e "SET GLOBAL server_id = 8"
expect 44 check
line stanza FAILED 'not of 8@'
hint stanza-upgrade
expect 0 s stanza-upgrade --my-defaults-file="$m1_defaults"
expect 0 check
m1_sql -e "SET GLOBAL server_id = 7"
expect 44 s stanza-upgrade --my-defaults-file="$m1_defaults" # not back
m1_sql -e "SET GLOBAL server_id = 8"
expect 41 check --my-backup-command=no-such-tool
line "backup tool" FAILED 'could not start'
printf '#!/bin/sh\necho "mariadb-backup based on MariaDB server 10.4.1-MariaDB Linux (x86_64)" >&2\n' >old
chmod +x old
expect 46 check --my-backup-command="$work/old --parallel=2"
line "backup tool" FAILED 'of 10.4, the server is'
if [ "$(id -u)" = 0 ]; then
  chmod 644 "$m1_defaults"
  chmod 700 "$m1_data"
  got=0
  setpriv --reuid=65533 --regid=65533 --clear-groups "$(command -v sluice)" --engine=mysql --repo-path="$work/repo" --stanza=main \
    check --my-defaults-file="$m1_defaults" >out 2>&1 || got=$?
  [ $got = 63 ] || { cat out; die "another user: $got"; }
  line "data directory" FAILED 'cannot be read'
fi

say "settings of the binary log"
again --log-bin=binlog --binlog-do-db=shop --binlog-ignore-db=x --sync-binlog=0 --server-id=8
expect 58 check
line "binlog filters" FAILED 'binlog_do_db = shop, binlog_ignore_db = x: changes are missing'
line durability warn 'sync_binlog = 0'
again --log-bin=binlog --binlog-format=STATEMENT --binlog-expire-logs-seconds=600 --server-id=8
expect 0 check
line binlog_format warn STATEMENT
line "binlog retention" warn '0.2 h'
again --server-id=8
expect 58 check
line binlog FAILED 'log_bin is OFF'
hint 'log_bin = binlog'

say "a replica"
again --log-bin=binlog --server-id=8
m1_sql -e "CREATE USER repl@localhost IDENTIFIED BY 'x'; GRANT REPLICATION SLAVE ON *.* TO repl@localhost; CREATE DATABASE before_it"
m1_source=$(m1_sql -e "SELECT @@gtid_binlog_pos")
port2=$port
new_mariadb m2 --server-id=9 --log-slave-updates=OFF
m2_sql -e "SET GLOBAL gtid_slave_pos = '$m1_source';
  CHANGE MASTER TO master_host = '127.0.0.1', master_port = $port2, master_user = 'repl', master_password = 'x', master_use_gtid = slave_pos;
  START SLAVE"
m1_sql -e "CREATE DATABASE replicated"
for _ in $(seq 300); do m2_sql -e "USE replicated" 2>/dev/null && break; sleep 0.1; done
m2_sql -e "USE replicated" || { m2_sql -e "SHOW SLAVE STATUS\G"; die "the replica does not replicate"; }
s2() { sluice --engine=mysql --repo-path="$work/repo" --stanza=other "$@" --my-defaults-file="$m2_defaults"; }
expect 0 s2 stanza-create
expect 58 s2 check
line replica FAILED 'log_slave_updates = OFF'
m2_sql -e "STOP SLAVE"
expect 58 s2 check # it still is one
m2_sql -e "GRANT REPLICA MONITOR ON *.* TO sluice@localhost"
expect 58 s2 check
kill "$m2_pid"
wait "$m2_pid" || true
start_mariadb m2 "$m2_data" --log-bin=binlog --server-id=9 --log-slave-updates=ON
expect 0 s2 check
line replica ok 'has what it replicates'
say ok
