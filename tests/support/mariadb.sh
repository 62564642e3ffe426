# shellcheck shell=bash
# Throw-away MariaDB servers for the test scripts. Source after lib.sh.
#
# The programs are the host's, or those of a folder of get_server.sh in SLUICE_MY_HOME.
#
# new_mariadb NAME [OPTION…]: makes and starts one with a binary log, without networking, with an
# account sluice/secret that may do what docs/mysql.md says; sets NAME_data, NAME_socket, NAME_pid and
# NAME_defaults (the defaults file that holds the password) and the function NAME_sql.
my_home=${SLUICE_MY_HOME:-}
export -n SLUICE_MY_HOME # to sluice it would be an option
[ -z "$my_home" ] || export PATH="$my_home/bin:$my_home/usr/sbin:$PATH"
command -v mariadbd >/dev/null || export PATH=$PATH:/usr/sbin
my_basedir=() my_plugins=()
[ -z "$my_home" ] || my_basedir=(--basedir="$my_home/usr") my_plugins=(--plugin-dir="$my_home/usr/lib/mysql/plugin")
for program in mariadbd mariadb mariadb-install-db mariadb-backup mbstream; do
  command -v $program >/dev/null || skip "$program is not installed"
done
my_as=()
[ "$(id -u)" != 0 ] || my_as=(setpriv --reuid=65534 --regid=65534 --clear-groups) # it refuses to be root
start_mariadb() { # NAME DATA [OPTION…]
  local name=$1 data=$2 socket=$work/$1.sock pid_var=${1}_pid
  shift 2
  "${my_as[@]}" mariadbd --no-defaults "${my_basedir[@]}" "${my_plugins[@]}" --datadir="$data" --socket="$socket" \
    --skip-networking --innodb-buffer-pool-size=16M --pid-file="$data/pid" --lc-messages-dir="${my_home:-}/usr/share/mysql" "$@" \
    >"$work/$name.log" 2>&1 &
  printf -v "$pid_var" '%s' $!
  started_pids+=("${!pid_var}")
  for _ in $(seq 600); do
    mariadb --no-defaults -u root -S "$socket" -e 'select 1' >/dev/null 2>&1 && return
    kill -0 "${!pid_var}" 2>/dev/null || break
    sleep 0.1
  done
  cat "$work/$name.log"
  die "the server $name did not start"
}
new_mariadb() {
  local name=$1 data=$work/$1-data
  shift
  mkdir -p "$data"
  chmod 755 "$work"
  [ "$(id -u)" != 0 ] || { chown 65534:65534 "$data"; chmod 777 "$work"; }
  "${my_as[@]}" mariadb-install-db --no-defaults "${my_basedir[@]}" --datadir="$data" \
    --auth-root-authentication-method=normal --skip-test-db >"$work/$name-install.log" 2>&1 ||
    { cat "$work/$name-install.log"; die "mariadb-install-db"; }
  start_mariadb "$name" "$data" --log-bin=binlog --server-id=7 "$@"
  printf -v "${name}_data" '%s' "$data"
  printf -v "${name}_socket" '%s' "$work/$name.sock"
  printf -v "${name}_defaults" '%s' "$work/$name.cnf"
  printf '[client]\nuser = sluice\npassword = "secret"\nsocket = %s\n' "$work/$name.sock" >"$work/$name.cnf"
  chmod 600 "$work/$name.cnf"
  eval "${name}_sql() { mariadb --no-defaults -u root -S '$work/$name.sock' -N -B \"\$@\"; }"
  "${name}_sql" -e "CREATE USER sluice@localhost IDENTIFIED BY 'secret';
    GRANT RELOAD, PROCESS, LOCK TABLES, BINLOG MONITOR, REPLICATION SLAVE ON *.* TO sluice@localhost"
}
