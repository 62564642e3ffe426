/* The server's side of a backup: may it be taken, start, stop. One connection is held from start to
 * stop, because the server ends a backup with the session that began it. */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "postgres/backup_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- may it be taken? --------------------------------------------------------------------------
 */

static int check_archiving(const struct sl_pg_backup *b, struct sl_err *err)
{
    const struct sl_pg_server *s = &b->server;
    if (!sl_option_bool(b->invocation->options, "archive-check"))
        return 0;
    bool on = !strcmp(s->archive_mode, "on") || !strcmp(s->archive_mode, "always");
    /* a library's name shows that archiving is set up, however; an empty command that may be seen
     * by this user (it is shown to all) that it is not */
    if (on && (s->archive_command[0] || s->archive_library[0]))
        return 0;
    sl_err_set(err, SL_ERR_DB_STATE,
               on ? "archive_mode is %s, but neither archive_command nor archive_library is set"
                  : "archive_mode is %s: the WAL this backup needs would not be stored",
               s->archive_mode);
    sl_err_hint(err,
                "set archive_mode = on and archive_command = 'sluice --stanza=%s archive-push "
                "%%p'; or use --no-archive-check if the WAL gets there in another way",
                b->invocation->stanza);
    return SL_ERR_DB_STATE;
}

/* The folder that is read must be the one of the server that was asked. */
static int check_folder(struct sl_pg_backup *b, struct sl_err *err)
{
    const char *given = sl_option_string(b->invocation->options, "pg-path");
    if (!given && !b->server.data_directory[0]) {
        sl_err_set(err, SL_ERR_USAGE, "the server does not tell its data directory");
        sl_err_hint(err, "give --pg-path, or connect as a superuser or a member of "
                         "pg_read_all_settings");
        return SL_ERR_USAGE;
    }
    b->data_folder = sl_strdup(given ? given : b->server.data_directory);
    if (!b->data_folder)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    b->root_fd = open(b->data_folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (b->root_fd < 0)
        return sl_err_sys(err, SL_ERR_OPEN, errno, "could not open data directory \"%s\"",
                          b->data_folder);
    int rc = sl_pg_control_read(b->data_folder, sl_pg_backup_deadline(b), NULL, &b->control, err);
    if (rc)
        return rc;
    snprintf(b->version_folder, sizeof b->version_folder, "PG_%s_%u", b->server.version,
             b->control.catalog_version);
    if (b->control.system_id == b->server.system_id)
        return 0;
    sl_err_set(err, SL_ERR_MISMATCH,
               "\"%s\" has system identifier %llu, the server that was asked %llu", b->data_folder,
               (unsigned long long)b->control.system_id, (unsigned long long)b->server.system_id);
    sl_err_hint(err, "--pg-path and --pg-host, --pg-port lead to different servers");
    return SL_ERR_MISMATCH;
}

int sl_pg_backup_check(struct sl_pg_backup *b, struct sl_err *err)
{
    int rc = sl_pg_db_connect(b->invocation, sl_pg_backup_deadline(b), &b->db, err);
    if (!rc)
        rc = sl_pg_db_server(b->db, sl_pg_backup_deadline(b), &b->server, err);
    if (rc)
        return rc;
    rc = sl_pg_standby_check(b, err);
    if (!rc)
        rc = check_archiving(b, err);
    if (!rc)
        rc = check_folder(b, err);
    if (!rc)
        rc = sl_pg_backup_pages_init(b, err);
    return rc ? rc : sl_pg_backup_config_find(b, err);
}

/* --- start and stop ----------------------------------------------------------------------------
 */

/* Names and paths may have any bytes (a database in SQL_ASCII): this is for people to read, the
 * links themselves are in the manifest as they are. */
static json_t *text_at(const struct sl_pg_rows *rows, int row, int column)
{
    const char *value = sl_pg_rows_value(rows, row, column);
    return sl_json_text(value ? value : "");
}

static int read_tablespaces(struct sl_pg_backup *b, struct sl_err *err)
{
    struct sl_pg_rows *rows = NULL;
    int rc = sl_pg_db_query(b->db,
                            "SELECT oid, spcname, pg_tablespace_location(oid) FROM pg_tablespace"
                            " WHERE pg_tablespace_location(oid) <> '' ORDER BY oid",
                            NULL, 0, sl_pg_backup_deadline(b), &rows, err);
    if (rc)
        return rc;
    b->tablespaces = json_array();
    for (int i = 0; i < sl_pg_rows_count(rows); i++) {
        json_t *one = json_pack("{s:s,s:o,s:o}", "oid", sl_pg_rows_value(rows, i, 0), "name",
                                text_at(rows, i, 1), "path", text_at(rows, i, 2));
        if (json_array_append_new(b->tablespaces, one))
            rc = sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    }
    sl_pg_rows_free(rows);
    return rc;
}

/* Version 15 renamed the functions and dropped the exclusive kind. The first one waits for a
 * checkpoint: not a step with a short deadline, unless it is a fast one. */
int sl_pg_backup_start(struct sl_pg_backup *b, struct sl_err *err)
{
    bool fast = sl_option_bool(b->invocation->options, "start-fast");
    char name[SL_LABEL_MAX + 16];
    snprintf(name, sizeof name, "sluice %s", b->label);
    const char *parameters[] = {name, fast ? "true" : "false"};
    const char *sql =
        b->server.version_num >= 150000
            ? "SELECT extract(epoch FROM clock_timestamp()), pg_backup_start($1, $2::bool)"
            : "SELECT extract(epoch FROM clock_timestamp()), pg_start_backup($1, $2::bool, false)";
    struct sl_pg_rows *rows = NULL;
    int fault = sl_fault("pg.backup_start");
    if (fault)
        return sl_err_sys(err, SL_ERR_DB_QUERY, fault, "could not start the backup");
    uint64_t wait_ms = (uint64_t)sl_option_int(b->invocation->options, "start-timeout");
    int rc = sl_pg_db_query(b->db, sql, parameters, 2, sl_deadline_in_ms(wait_ms), &rows, err);
    if (rc) {
        sl_err_prefix(err, "could not start the backup");
        return rc;
    }
    const char *time = sl_pg_rows_value(rows, 0, 0), *lsn = sl_pg_rows_value(rows, 0, 1);
    b->start_time = time ? strtod(time, NULL) : 0;
    rc = sl_pg_lsn_parse(lsn ? lsn : "", &b->start_lsn, err);
    if (!rc)
        sl_log(SL_LOG_INFO, "postgres", "backup %s starts at %s", b->label, lsn);
    sl_pg_rows_free(rows);
    return rc ? rc : read_tablespaces(b, err);
}

static int take_stop(struct sl_pg_backup *b, const struct sl_pg_rows *rows, struct sl_err *err)
{
    const char *lsn = sl_pg_rows_value(rows, 0, 0), *label = sl_pg_rows_value(rows, 0, 1),
               *map = sl_pg_rows_value(rows, 0, 2), *time = sl_pg_rows_value(rows, 0, 3);
    if (!lsn || !label)
        return sl_err_set(err, SL_ERR_DB_QUERY, "the server gave no backup_label");
    b->stop_time = time ? strtod(time, NULL) : 0;
    b->backup_label = sl_strdup(label);
    b->tablespace_map = map && *map ? sl_strdup(map) : NULL;
    if (!b->backup_label || (map && *map && !b->tablespace_map))
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    int rc = sl_pg_lsn_parse(lsn, &b->stop_lsn, err);
    return rc ? rc : sl_pg_backup_label_parse(label, strlen(label), &b->start, err);
}

int sl_pg_backup_stop(struct sl_pg_backup *b, struct sl_err *err)
{
    const char *sql =
        b->server.version_num >= 150000
            ? "SELECT lsn, labelfile, spcmapfile, extract(epoch FROM clock_timestamp())"
              " FROM pg_backup_stop(false)"
            : "SELECT lsn, labelfile, spcmapfile, extract(epoch FROM clock_timestamp())"
              " FROM pg_stop_backup(false, false)";
    struct sl_pg_rows *rows = NULL;
    int fault = sl_fault("pg.backup_stop");
    if (fault)
        return sl_err_sys(err, SL_ERR_DB_QUERY, fault, "could not stop the backup");
    int rc = sl_pg_db_query(b->db, sql, NULL, 0, sl_pg_backup_deadline(b), &rows, err);
    if (!rc) {
        rc = take_stop(b, rows, err);
        sl_pg_rows_free(rows);
    }
    if (rc)
        sl_err_prefix(err, "could not stop the backup");
    return rc || !b->from_standby ? rc : sl_pg_standby_switch(b, err);
}
