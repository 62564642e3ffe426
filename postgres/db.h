/* A connection to the server, with a deadline on everything.
 */
#ifndef SL_POSTGRES_DB_H
#define SL_POSTGRES_DB_H

#include "core/base/clock.h"
#include "core/plugin/engine.h"

#include <stdbool.h>

struct sl_pg_db;
struct sl_pg_rows;

/* By pg-host, pg-port, pg-user, pg-database (libpq's own defaults and PG… variables apply where
 * they are not set). Returns owned. SL_ERR_DB_CONNECT. */
int sl_pg_db_connect(const struct sl_invocation *invocation, sl_deadline deadline,
                     struct sl_pg_db **ret_db, struct sl_err *err);
/* The same to the primary of a standby: primary-host, primary-port, else as above. */
int sl_pg_db_connect_primary(const struct sl_invocation *invocation, sl_deadline deadline,
                             struct sl_pg_db **ret_db, struct sl_err *err);
void sl_pg_db_close(struct sl_pg_db *db);        /* NULL ok */
int sl_pg_db_version(const struct sl_pg_db *db); /* server_version_num: 150020 */

/* One statement with text parameters ($1 …, NULL is SQL's). Returns owned rows; `ret_rows` may be
 * NULL. SL_ERR_DB_QUERY with the server's message and SQLSTATE, _TIMEOUT, _DB_CONNECT when the
 * connection was lost, _CANCELLED when a signal came. */
int sl_pg_db_query(struct sl_pg_db *db, const char *sql, const char *const *parameters, int count,
                   sl_deadline deadline, struct sl_pg_rows **ret_rows, struct sl_err *err);
int sl_pg_rows_count(const struct sl_pg_rows *rows);
const char *sl_pg_rows_value(const struct sl_pg_rows *rows, int row, int column); /* NULL: null */
void sl_pg_rows_free(struct sl_pg_rows *rows);                                    /* NULL ok */

/* Is an idle connection still there? Does not wait. */
bool sl_pg_db_alive(struct sl_pg_db *db);

/* What a server is: asked once, by every command that connects. */
struct sl_pg_server {
    int version_num;
    char version[32];      /* as the stanza has it: "15" */
    char version_text[64]; /* "15.20 (Debian …)" */
    uint64_t system_id;
    bool in_recovery, checksums;
    char archive_mode[16];   /* off, on, always */
    bool archive_mode_waits; /* the file says something else: the server must be restarted */
    char archive_command[512], archive_library[256]; /* "" also where it may not be seen */
    char data_directory[1024];                       /* "" where it may not be seen */
    uint32_t wal_segment_bytes, timeline;
    uint32_t archive_timeout_s; /* 0: off */
    double clock;               /* seconds since 1970 */
};
int sl_pg_db_server(struct sl_pg_db *db, sl_deadline deadline, struct sl_pg_server *ret_server,
                    struct sl_err *err);

#endif
