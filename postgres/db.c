/* A connection to the server: libpq's asynchronous calls, so that no wait is without deadline. No
 * SQL of a command is here but what identifies a server. */
#include "postgres/db.h"

#include "core/base/alloc.h"
#include "core/base/log.h"
#include "postgres/libpq.h"
#include "postgres/signals.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLL_STEP_MS 500 /* a signal is noticed at least so often */
#define VERSION_MIN  130000

struct sl_pg_db {
    const struct sl_libpq *pq;
    PGconn *conn;
    bool broken; /* a query was left behind: only closing is possible */
};

struct sl_pg_rows {
    const struct sl_libpq *pq;
    PGresult *result;
};

/* libpq's messages end in a newline and may have several lines: the first will do. */
static int fail(struct sl_err *err, int code, const char *what, const char *message)
{
    return sl_err_set(err, code, "%s: %.*s", what, (int)strcspn(message, "\n"), message);
}

static void on_notice(void *arg, const char *message)
{
    (void)arg;
    sl_log(SL_LOG_DETAIL, "postgres", "server: %.*s", (int)strcspn(message, "\n"), message);
}

/* Waits for the socket. 0, or SL_ERR_TIMEOUT, SL_ERR_CANCELLED. */
static int wait_socket(struct sl_pg_db *db, short events, sl_deadline deadline, const char *what,
                       struct sl_err *err)
{
    for (;;) {
        struct pollfd fd = {.fd = db->pq->PQsocket(db->conn), .events = events};
        int ms = sl_deadline_poll_ms(deadline);
        int n = poll(&fd, 1, ms < POLL_STEP_MS ? ms : POLL_STEP_MS);
        if (sl_pg_signals_caught())
            return sl_err_set(err, SL_ERR_CANCELLED, "cancelled while %s", what);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return sl_err_sys(err, SL_ERR_DB_CONNECT, errno, "could not wait for the server");
        if (sl_deadline_passed(deadline))
            return sl_err_set(err, SL_ERR_TIMEOUT, "the server did not answer in time while %s",
                              what);
    }
}

/* --- connecting --------------------------------------------------------------------------------
 */

static int finish_connecting(struct sl_pg_db *db, sl_deadline deadline, struct sl_err *err)
{
    PostgresPollingStatusType next = PGRES_POLLING_WRITING;
    while (next != PGRES_POLLING_OK) {
        if (next == PGRES_POLLING_FAILED || db->pq->PQstatus(db->conn) == CONNECTION_BAD) {
            fail(err, SL_ERR_DB_CONNECT, "could not connect to the server",
                 db->pq->PQerrorMessage(db->conn));
            sl_err_hint(err, "run this as the server's user (often postgres), or see --pg-host, "
                             "--pg-port, --pg-user, --pg-database");
            return SL_ERR_DB_CONNECT;
        }
        int rc = wait_socket(db, next == PGRES_POLLING_READING ? POLLIN : POLLOUT, deadline,
                             "connecting", err);
        if (rc)
            return rc;
        next = db->pq->PQconnectPoll(db->conn);
    }
    return 0;
}

/* Settings of roles and databases must not change what is read here, nor end a long backup. */
static int settle(struct sl_pg_db *db, sl_deadline deadline, struct sl_err *err)
{
    return sl_pg_db_query(db,
                          "SELECT set_config(name, value, false) FROM (VALUES"
                          " ('search_path', 'pg_catalog'), ('statement_timeout', '0'),"
                          " ('lock_timeout', '0'), ('idle_session_timeout', '0'),"
                          " ('idle_in_transaction_session_timeout', '0'),"
                          " ('transaction_timeout', '0'),"
                          " ('DateStyle', 'ISO'), ('client_min_messages', 'warning'))"
                          " AS wanted (name, value)"
                          " WHERE name IN (SELECT s.name FROM pg_catalog.pg_settings s)",
                          NULL, 0, deadline, NULL, err);
}

static int connect_to(const struct sl_invocation *invocation, const char *host, const char *port,
                      sl_deadline deadline, struct sl_pg_db **ret_db, struct sl_err *err)
{
    const struct sl_libpq *pq;
    int rc = sl_libpq_load(&pq, err);
    if (rc)
        return rc;
    const char *database = sl_option_string(invocation->options, "pg-database");
    char application[64];
    snprintf(application, sizeof application, "sluice %s", invocation->command->name);
    const char *const keys[] = {
        "host", "port", "user", "dbname", "client_encoding", "application_name", NULL};
    const char *const values[] = {
        host,        port, sl_option_string(invocation->options, "pg-user"), database, "UTF8",
        application, NULL};
    struct sl_pg_db *db = sl_calloc(1, sizeof *db);
    if (!db)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    db->pq = pq;
    db->conn = pq->PQconnectStartParams(keys, values, 0);
    rc = db->conn ? finish_connecting(db, deadline, err)
                  : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    if (!rc) {
        pq->PQsetNoticeProcessor(db->conn, on_notice, NULL);
        rc = settle(db, deadline, err);
    }
    if (!rc && sl_pg_db_version(db) < VERSION_MIN)
        rc = sl_err_set(err, SL_ERR_VERSION, "PostgreSQL %d is not supported, 13 and later are",
                        sl_pg_db_version(db) / 10000);
    if (rc) {
        sl_pg_db_close(db);
        return rc;
    }
    *ret_db = db;
    return 0;
}

int sl_pg_db_connect(const struct sl_invocation *invocation, sl_deadline deadline,
                     struct sl_pg_db **ret_db, struct sl_err *err)
{
    return connect_to(invocation, sl_option_string(invocation->options, "pg-host"),
                      sl_option_string(invocation->options, "pg-port"), deadline, ret_db, err);
}

int sl_pg_db_connect_primary(const struct sl_invocation *invocation, sl_deadline deadline,
                             struct sl_pg_db **ret_db, struct sl_err *err)
{
    int rc =
        connect_to(invocation, sl_option_string(invocation->options, "primary-host"),
                   sl_option_string(invocation->options, "primary-port"), deadline, ret_db, err);
    if (rc) {
        sl_err_prefix(err, "the primary");
        sl_err_hint(err, "see --primary-host and --primary-port");
    }
    return rc;
}

void sl_pg_db_close(struct sl_pg_db *db)
{
    if (!db)
        return;
    if (db->conn)
        db->pq->PQfinish(db->conn);
    sl_free(db);
}

int sl_pg_db_version(const struct sl_pg_db *db)
{
    return db->pq->PQserverVersion(db->conn);
}

bool sl_pg_db_alive(struct sl_pg_db *db)
{
    return db->pq->PQconsumeInput(db->conn) && db->pq->PQstatus(db->conn) == CONNECTION_OK;
}

/* --- queries -----------------------------------------------------------------------------------
 */

static int lost(struct sl_pg_db *db, struct sl_err *err)
{
    return fail(err, SL_ERR_DB_CONNECT, "lost the connection to the server",
                db->pq->PQerrorMessage(db->conn));
}

/* The next result, or NULL after the last one. */
static int next_result(struct sl_pg_db *db, sl_deadline deadline, PGresult **ret_result,
                       struct sl_err *err)
{
    while (db->pq->PQisBusy(db->conn)) {
        int rc = wait_socket(db, POLLIN, deadline, "waiting for a query", err);
        if (rc)
            return rc;
        if (!db->pq->PQconsumeInput(db->conn))
            return lost(db, err);
    }
    *ret_result = db->pq->PQgetResult(db->conn);
    return 0;
}

static int judge(struct sl_pg_db *db, const PGresult *result, struct sl_err *err)
{
    ExecStatusType status = db->pq->PQresultStatus(result);
    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
        return 0;
    if (db->pq->PQstatus(db->conn) != CONNECTION_OK)
        return lost(db, err);
    const char *text = db->pq->PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *state = db->pq->PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *hint = db->pq->PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);
    sl_err_set(err, SL_ERR_DB_QUERY, "the server refused: %s (SQLSTATE %s)",
               text ? text : db->pq->PQresultErrorMessage(result), state ? state : "?");
    if (hint)
        sl_err_hint(err, "%s", hint);
    return SL_ERR_DB_QUERY;
}

static int collect(struct sl_pg_db *db, sl_deadline deadline, PGresult **ret_result,
                   struct sl_err *err)
{
    PGresult *first = NULL, *next = NULL;
    int rc;
    while (!(rc = next_result(db, deadline, &next, err)) && next) {
        if (first)
            db->pq->PQclear(next);
        else
            first = next;
    }
    if (!rc)
        rc = first ? judge(db, first, err) : lost(db, err);
    if (rc && first)
        db->pq->PQclear(first);
    else
        *ret_result = first;
    return rc;
}

int sl_pg_db_query(struct sl_pg_db *db, const char *sql, const char *const *parameters, int count,
                   sl_deadline deadline, struct sl_pg_rows **ret_rows, struct sl_err *err)
{
    if (db->broken)
        return sl_err_set(err, SL_ERR_DB_CONNECT, "the connection is no longer usable");
    if (!db->pq->PQsendQueryParams(db->conn, sql, count, NULL, parameters, NULL, NULL, 0))
        return lost(db, err);
    struct sl_pg_rows *rows = sl_calloc(1, sizeof *rows);
    PGresult *result = NULL;
    int rc = rows ? collect(db, deadline, &result, err)
                  : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    if (rc) {
        db->broken = rc != SL_ERR_DB_QUERY;
        sl_free(rows);
        return rc;
    }
    *rows = (struct sl_pg_rows){db->pq, result};
    if (ret_rows)
        *ret_rows = rows;
    else
        sl_pg_rows_free(rows);
    return 0;
}

int sl_pg_rows_count(const struct sl_pg_rows *rows)
{
    return rows->pq->PQntuples(rows->result);
}

const char *sl_pg_rows_value(const struct sl_pg_rows *rows, int row, int column)
{
    if (row >= sl_pg_rows_count(rows) || rows->pq->PQgetisnull(rows->result, row, column))
        return NULL;
    return rows->pq->PQgetvalue(rows->result, row, column);
}

void sl_pg_rows_free(struct sl_pg_rows *rows)
{
    if (!rows)
        return;
    rows->pq->PQclear(rows->result);
    sl_free(rows);
}

/* --- identity ----------------------------------------------------------------------------------
 */

static const char server_sql[] =
    "SELECT system_identifier, pg_is_in_recovery(), current_setting('server_version'),"
    " current_setting('archive_mode'),"
    " (SELECT setting FROM pg_settings WHERE name = 'archive_command'),"
    " (SELECT setting FROM pg_settings WHERE name = 'archive_library'),"
    " (SELECT setting FROM pg_settings WHERE name = 'data_directory'),"
    " pg_size_bytes(current_setting('wal_segment_size')), current_setting('data_checksums'),"
    " (SELECT timeline_id FROM pg_control_checkpoint()),"
    " (SELECT setting FROM pg_settings WHERE name = 'archive_timeout'),"
    " extract(epoch FROM clock_timestamp()),"
    " (SELECT pending_restart FROM pg_settings WHERE name = 'archive_mode')"
    " FROM pg_control_system()";

static const char *text(const struct sl_pg_rows *rows, int column)
{
    const char *value = sl_pg_rows_value(rows, 0, column);
    return value ? value : "";
}

int sl_pg_db_server(struct sl_pg_db *db, sl_deadline deadline, struct sl_pg_server *ret_server,
                    struct sl_err *err)
{
    struct sl_pg_rows *rows = NULL;
    int rc = sl_pg_db_query(db, server_sql, NULL, 0, deadline, &rows, err);
    if (rc)
        return rc;
    struct sl_pg_server s = {.version_num = sl_pg_db_version(db)};
    snprintf(s.version, sizeof s.version, "%d", s.version_num / 10000);
    s.system_id = strtoull(text(rows, 0), NULL, 10);
    s.in_recovery = text(rows, 1)[0] == 't';
    snprintf(s.version_text, sizeof s.version_text, "%s", text(rows, 2));
    snprintf(s.archive_mode, sizeof s.archive_mode, "%s", text(rows, 3));
    snprintf(s.archive_command, sizeof s.archive_command, "%s", text(rows, 4));
    snprintf(s.archive_library, sizeof s.archive_library, "%s", text(rows, 5));
    snprintf(s.data_directory, sizeof s.data_directory, "%s", text(rows, 6));
    s.wal_segment_bytes = (uint32_t)strtoul(text(rows, 7), NULL, 10);
    s.checksums = !strcmp(text(rows, 8), "on");
    s.timeline = (uint32_t)strtoul(text(rows, 9), NULL, 10);
    s.archive_timeout_s = (uint32_t)strtoul(text(rows, 10), NULL, 10);
    s.clock = strtod(text(rows, 11), NULL);
    s.archive_mode_waits = text(rows, 12)[0] == 't';
    sl_pg_rows_free(rows);
    if (!s.system_id || !s.timeline)
        return sl_err_set(err, SL_ERR_DB_QUERY, "the server does not say what it is");
    *ret_server = s;
    return 0;
}
