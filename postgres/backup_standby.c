/* Backups that read from a standby. The server's own functions do the most: pg_backup_start begins
 * at the last restartpoint, pg_backup_stop fails after a promotion, and pg_control, read last, says
 * how far recovery must go. What a standby cannot do is finish a segment: the primary does. */
#include "core/base/log.h"
#include "postgres/backup_internal.h"

#include <string.h>

static int refuse(struct sl_err *err, const char *message, const char *hint)
{
    sl_err_set(err, SL_ERR_DB_STATE, "%s", message);
    sl_err_hint(err, "%s", hint);
    return SL_ERR_DB_STATE;
}

/* A connection to what really is this standby's primary. */
static int connect_primary(struct sl_pg_backup *b, struct sl_pg_db **ret_db,
                           struct sl_pg_server *ret_server, struct sl_err *err)
{
    struct sl_pg_db *db = NULL;
    int rc = sl_pg_db_connect_primary(b->invocation, sl_pg_backup_deadline(b), &db, err);
    if (!rc)
        rc = sl_pg_db_server(db, sl_pg_backup_deadline(b), ret_server, err);
    if (!rc && ret_server->system_id != b->server.system_id)
        rc = sl_err_set(
            err, SL_ERR_MISMATCH, "the primary has system identifier %llu, the standby %llu",
            (unsigned long long)ret_server->system_id, (unsigned long long)b->server.system_id);
    if (!rc && ret_server->in_recovery)
        rc = refuse(err, "the server at primary-host is a standby itself",
                    "see --primary-host and --primary-port");
    if (rc) {
        sl_pg_db_close(db);
        return rc;
    }
    *ret_db = db;
    return 0;
}

int sl_pg_standby_check(struct sl_pg_backup *b, struct sl_err *err)
{
    const struct sl_options *options = b->invocation->options;
    bool wanted = sl_option_bool(options, "backup-standby");
    if (!b->server.in_recovery && wanted)
        return refuse(err, "the server is no standby", "leave --backup-standby out");
    if (!b->server.in_recovery)
        return 0;
    if (!wanted)
        return refuse(err, "the server is in recovery",
                      "connect to the primary, or give --backup-standby and --primary-host");
    if (!sl_option_string(options, "primary-host"))
        return sl_err_set(err, SL_ERR_USAGE, "--backup-standby needs --primary-host");
    struct sl_pg_db *db = NULL;
    struct sl_pg_server primary;
    int rc = connect_primary(b, &db, &primary, err);
    if (rc)
        return rc;
    sl_pg_db_close(db); /* a long backup must not depend on a second connection */
    b->from_standby = true;
    memcpy(b->server.archive_mode, primary.archive_mode, sizeof primary.archive_mode);
    memcpy(b->server.archive_command, primary.archive_command, sizeof primary.archive_command);
    memcpy(b->server.archive_library, primary.archive_library, sizeof primary.archive_library);
    return 0;
}

int sl_pg_standby_watch(struct sl_pg_backup *b, struct sl_err *err)
{
    struct sl_pg_rows *rows = NULL;
    int rc = sl_pg_db_query(b->db, "SELECT pg_is_in_recovery()", NULL, 0, sl_pg_backup_deadline(b),
                            &rows, err);
    if (rc)
        return rc;
    const char *value = sl_pg_rows_value(rows, 0, 0);
    bool standby = value && *value == 't';
    sl_pg_rows_free(rows);
    return standby ? 0
                   : refuse(err, "the standby was promoted: its backup is void",
                            "begin again, without --backup-standby if it is the primary now");
}

/* A switch does nothing when nothing was written since the last one. */
int sl_pg_standby_switch(struct sl_pg_backup *b, struct sl_err *err)
{
    struct sl_pg_db *db = NULL;
    struct sl_pg_server primary;
    int rc = connect_primary(b, &db, &primary, err);
    if (!rc)
        rc = sl_pg_db_query(db, "SELECT pg_create_restore_point('sluice backup')", NULL, 0,
                            sl_pg_backup_deadline(b), NULL, err);
    if (!rc)
        rc = sl_pg_db_query(db, "SELECT pg_switch_wal()", NULL, 0, sl_pg_backup_deadline(b), NULL,
                            err);
    sl_pg_db_close(db);
    if (rc)
        sl_err_prefix(err, "the primary could not switch WAL");
    return rc;
}
