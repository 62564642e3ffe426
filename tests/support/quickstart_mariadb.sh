# shellcheck shell=bash
# ./quickstart mariadb: a throw-away MariaDB, backed up, changed, restored, compared. Sourced by quickstart,
# which has built Sluice and set work, run_as, pids, scale, make_repository() and the functions that show.
# shellcheck disable=SC2154
export PATH=$PATH:/usr/sbin
maria_start() { # DATA SOCKET LOG [OPTION…]
  local data=$1 socket=$2 log=$3 i
  shift 3
  as_pg mariadbd --no-defaults --datadir="$data" --socket="$socket" --pid-file="$data/quickstart.pid" --skip-networking \
    --innodb-buffer-pool-size=64M "$@" >"$log" 2>&1 &
  for i in $(seq 600); do
    maria "$socket" -e 'select 1' >/dev/null 2>&1 && return
    sleep 0.1
  done
  tail -n 20 "$log"
  return 1
}
maria() { local socket=$1; shift; as_pg mariadb --no-defaults -u root -S "$socket" -N -B "$@"; }
maria_stop() { # DATA: by its pid; waits
  local pid
  pid=$(cat "$1/quickstart.pid" 2>/dev/null) || return 0
  kill "$pid" 2>/dev/null || return 0
  for _ in $(seq 300); do kill -0 "$pid" 2>/dev/null || return 0; sleep 0.1; done
  kill -KILL "$pid"
}
maria_clean() {
  local status=$? data
  for data in "$work/restored" "$work/data"; do maria_stop "$data"; done
  return $status
}
trap 'if maria_clean; then cleanup; else cleanup; fi' EXIT
sums() { maria "$1" -e "CHECKSUM TABLE shop.orders, shop.notes, shop.counters EXTENDED"; }

step "A throw-away MariaDB"
as_pg mkdir "$work/data"
as_pg mariadb-install-db --no-defaults --datadir="$work/data" --auth-root-authentication-method=normal \
  --skip-test-db >"$work/install.log" 2>&1 || { tail -n 20 "$work/install.log"; exit 1; }
socket=$work/socket/mariadb.sock
maria_start "$work/data" "$socket" "$work/server.log" --log-bin=binlog --server-id=1 --sync-binlog=1
proves "$(maria "$socket" -e 'select concat("MariaDB ", @@version)'), with a binary log"

step "An account for backups, and the file that holds its password"
grants="CREATE USER sluice@localhost IDENTIFIED BY 'example';
GRANT RELOAD, PROCESS, LOCK TABLES, BINLOG MONITOR, REPLICATION SLAVE ON *.* TO sluice@localhost;"
sed 's/^/   mariadb> /' <<<"$grants"
maria "$socket" -e "$grants"
printf '[client]\nuser = sluice\npassword = "example"\nsocket = %s\n' "$socket" >"$work/shop.cnf"
chmod 600 "$work/shop.cnf"
[ -z "$run_as" ] || chown "$run_as": "$work/shop.cnf"
sed 's/^/   shop.cnf: /' "$work/shop.cnf"

step "Configuration of Sluice"
make_repository
cat >"$work/sluice.conf" <<EOF
[global]
$repo

[main]
engine = mysql
my-defaults-file = $work/shop.cnf
EOF
sed 's/^/   sluice.conf: /' "$work/sluice.conf"
export SLUICE_CONFIG="$work/sluice.conf"
show sluice stanza-create
show sluice check
proves "the account has its rights, the tool fits, and nothing stands against a restore to a point in time"

step "Data: orders, notes, counters"
maria "$socket" -e "CREATE DATABASE shop; USE shop;
  CREATE TABLE orders (id INT PRIMARY KEY AUTO_INCREMENT, at TIMESTAMP, sku CHAR(8), doc JSON, hex TEXT) ENGINE=InnoDB;
  CREATE TABLE notes (id INT, text TEXT) ENGINE=Aria;
  CREATE TABLE counters (id INT PRIMARY KEY, n BIGINT) ENGINE=InnoDB;
  INSERT INTO counters SELECT seq, 0 FROM seq_1_to_1000;
  INSERT INTO notes SELECT seq, MD5(seq) FROM seq_1_to_5000;
  INSERT INTO orders (sku, doc, hex) SELECT LEFT(MD5(seq), 8), JSON_OBJECT('n', seq, 'name', MD5(seq)), REPEAT(MD5(RAND()), 8)
    FROM seq_1_to_$((scale * 16000))"
printf '   %s of tables\n' "$(du -sh "$work/data/shop" | cut -f1)"

step "A backup, while the server works"
(for _ in $(seq 200); do
  maria "$socket" -e "UPDATE shop.counters SET n = n + 1 WHERE id % 100 < 50" || break
  [ ! -e "$work/stop" ] || break
done) >/dev/null 2>&1 &
load=$!
show sluice backup
touch "$work/stop"
wait $load
show sluice info

step "Changes, and an increment of them; then a disaster"
maria "$socket" -e "UPDATE shop.orders SET sku = REVERSE(sku) WHERE id % 7 = 0; DELETE FROM shop.orders WHERE id % 11 = 0;
  INSERT INTO shop.notes VALUES (0, 'changed')"
before=$(sums "$socket")
sed 's/^/   /' <<<"$before"
show sluice backup --type=incr
maria "$socket" -e "DROP TABLE shop.orders; UPDATE shop.counters SET n = 0"
proves "a table is gone from the server, and another is empty of what it counted"

step "Restore: the full backup and its increment, in one command"
show sluice restore --datadir "$work/restored"
maria_start "$work/restored" "$work/socket/restored.sock" "$work/restored.log"
after=$(sums "$work/socket/restored.sock")
if [ "$before" != "$after" ]; then
  echo "the restored tables differ:"
  diff <(echo "$before") <(echo "$after") || true
  exit 1
fi
sed 's/^/   /' <<<"$after"
proves "every table is what it was when the increment was made"

step "Check the whole repository"
show sluice verify
proves "every byte that is stored is what was sent"
bold "Done in $SECONDS s. docs/mysql.md has the next page: a real server."
