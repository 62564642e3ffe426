# shellcheck shell=bash
# The cluster of peers.sh, configuration and servers. Sourced by it, after hosts.sh.
# shellcheck disable=SC2154  # work, bin, root, segments: the caller's

pg_bin=/usr/lib/postgresql/15/bin
pg_port=47433 sluice_port=47434 repo_port=47435 pg_host_port=47436 copy_port=47437
data=$pg_bin # set by set_up()

sql() { on db psql -h "$work/run" -p $pg_port -U postgres -XAtq -v ON_ERROR_STOP=1 postgres "$@"; }

# --- the cluster, once ------------------------------------------------------------------------

make_cluster() {
  echo "making a cluster of about 2 GB in $data (once)" >&2
  on db $pg_bin/initdb -D "$data" -k -A trust -U postgres -E UTF8 --locale=C.UTF-8 >/dev/null
  cat >>"$data/postgresql.conf" <<CONF
port = $pg_port
listen_addresses = '127.0.0.1'
unix_socket_directories = '$work/run'
shared_buffers = 512MB
max_wal_size = 4GB
checkpoint_timeout = 1h
autovacuum = off
archive_mode = on
archive_command = '$work/archive-to-sluice-or-pgbackrest %p %f'
ssl = on
ssl_cert_file = '$work/pki/localhost.crt'
ssl_key_file = '$work/pki/localhost.key'
ssl_ca_file = '$work/pki/ca.crt'
CONF
  start_postgres
  on db $pg_bin/pgbench -h "$work/run" -p $pg_port -U postgres -i -q -s 68 postgres 2>/dev/null
  # blanks are what pgbench fills with; this table holds less kind text: JSON, hex, base64, UUIDs
  sql -c "create table mixed as select g::bigint id, gen_random_uuid() u, now() - g * interval '1.37 s' t,
            jsonb_build_object('order', g, 'sku', substr(md5(g::text), 1, 8), 'note', md5(random()::text)) doc,
            repeat(md5(random()::text), 8) hex, encode(sha512(g::text::bytea), 'base64') b64
          from generate_series(1, 1300000) g" \
    -c "alter table mixed add primary key (id)" -c "create index on mixed (u)" -c "vacuum freeze" -c "checkpoint"
}

# Full segments of real WAL with full-page images, as the archiver would find them.
make_segments() {
  mkdir -p "$work/wal"
  chown postgres: "$work/wal"
  echo keep >"$work/archiver"
  while [ "$(find "$work/wal" -name '0*' | wc -l)" -lt 65 ]; do
    sql -c checkpoint
    on db $pg_bin/pgbench -h "$work/run" -p $pg_port -U postgres -n -c 2 -T 5 postgres >/dev/null 2>&1
  done
  echo none >"$work/archiver"
}

# --- what runs --------------------------------------------------------------------------------

start_postgres() { on db $pg_bin/pg_ctl -D "$data" -l "$work/log/postgres.log" -w -t 120 start >/dev/null; }

write_archiver() { # whose turn it is, is in a file; pgBackRest wants to read its name in the command
  cat >"$work/archive-to-sluice-or-pgbackrest" <<SH
#!/bin/sh
case \$(cat '$work/archiver') in
  sluice) exec '$bin/sluice' --config='$work/sluice.conf' archive-push "\$1" ;;
  pgbackrest) exec pgbackrest --config='$work/pghost.conf' --stanza=main archive-push "\$1" ;;
  keep) [ \$(ls '$work/wal' | wc -l) -ge 65 ] || cp "\$1" "$work/wal/\$2" ;;
esac
SH
  chmod 755 "$work/archive-to-sluice-or-pgbackrest"
}

write_sluice() {
  write_sluiced_conf "$work/target/sluice" $sluice_port
  write_sluice_conf $sluice_port "pg-path = $data" "pg-host = $work/run" "pg-port = $pg_port" "pg-user = postgres"
  sed "s,^repo-host = .*,repo-path = $work/target/embedded," "$work/sluice.conf" | grep -v '^t' >"$work/embedded.conf"
}

# Backups are asked for on the repository's host, archive-push and restore on the database's.
write_pgbackrest() {
  local common server cert
  common="log-level-file=off
log-level-console=warn
start-fast=y
compress-type=none
compress-level-network=0
expire-auto=n
repo1-retention-full=99"
  server="tls-server-address=127.0.0.1
tls-server-cert-file=$work/pki/localhost.crt
tls-server-key-file=$work/pki/localhost.key
tls-server-ca-file=$work/pki/ca.crt
tls-server-auth=db1=*"
  cert() {
    printf '%s\n' "$1-host=localhost" "$1-host-type=tls" "$1-host-port=$2" "$1-host-config=$3" \
      "$1-host-cert-file=$work/pki/db1.crt" "$1-host-key-file=$work/pki/db1.key" "$1-host-ca-file=$work/pki/ca.crt"
  }
  printf '%s\n' "[global]" "repo1-path=$work/target/pgbackrest" "$common" "lock-path=$work/lock/repo" \
    "tls-server-port=$repo_port" "$server" "[main]" "pg1-path=$data" "pg1-port=$pg_port" \
    "pg1-socket-path=$work/run" "$(cert pg1 $pg_host_port "$work/pghost.conf")" >"$work/repohost.conf"
  printf '%s\n' "[global]" "$(cert repo1 $repo_port "$work/repohost.conf")" "$common" "lock-path=$work/lock/db" \
    "spool-path=$work/spool" "tls-server-port=$pg_host_port" "$server" "[main]" "pg1-path=$data" \
    "pg1-port=$pg_port" "pg1-socket-path=$work/run" >"$work/pghost.conf"
}

set_up() {
  data=$work/db/data groups=$(cgroup_root)/sluice-peers-$$
  mkdir "$groups-db" "$groups-target"
  mkdir -p "$work"/{run,log,db,target,spool,restored} "$work"/lock/{db,repo}
  chmod 755 "$work"
  chown postgres: "$work" "$work"/{run,log,db,target,spool,restored} "$work"/lock/{db,repo}
  echo none >"$work/archiver"
  [ -f "$work/pki/db1.crt" ] || make_certificates
  write_archiver
  write_sluice
  write_pgbackrest
  if [ ! -f "$work/made" ]; then
    rm -rf "$data" "$work/wal"
    make_cluster
    make_segments
    touch "$work/made"
  else
    start_postgres
  fi
  cluster_bytes=$(du -sb --exclude=pg_wal "$data" | cut -f1)
  serve target pgbackrest-repo pgbackrest --config="$work/repohost.conf" server
  serve db pgbackrest-db pgbackrest --config="$work/pghost.conf" server
}

clean_up() {
  local status=$?
  trap - EXIT INT TERM
  unserve sluiced
  unserve pgbackrest-repo
  unserve pgbackrest-db
  unserve copy
  [ ! -f "$data/postmaster.pid" ] || on db $pg_bin/pg_ctl -D "$data" -m fast -w stop >/dev/null 2>&1 || true
  rm -rf "$work"/target/* "$work"/restored/*
  sleep 0.2
  rmdir "$groups-db" "$groups-target" 2>/dev/null || true
  exit $status
}
