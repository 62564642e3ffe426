/* A connection to the server through Connector/C, for the commands' questions. Passwords come from
 * defaults files only; no option holds one.
 *
 * Threads: one connection by one thread at a time. Every call ends by the deadline that it was
 * opened with, counted anew for each of connecting, writing and reading.
 */
#ifndef SL_MYSQL_DB_H
#define SL_MYSQL_DB_H

#include "core/base/clock.h"
#include "core/plugin/engine.h"

struct sl_my_db;

/* Connects as my-host, my-port, my-socket, my-user and the defaults files say. Returns owned.
 * SL_ERR_DB_CONNECT. */
int sl_my_db_open(const struct sl_options *options, sl_deadline deadline, struct sl_my_db **ret_db,
                  struct sl_err *err);
void sl_my_db_close(struct sl_my_db *db); /* NULL ok */

/* Connector/C's own, borrowed: for the stream of the binary log. */
struct st_mysql;
struct st_mysql *sl_my_db_handle(struct sl_my_db *db);
/* What its last error means: SL_ERR_CLOSED for a lost connection, SL_ERR_DENIED, _DB_STATE, _BUSY
 * (asked again, it may be done), _DB_QUERY. */
int sl_my_db_code(struct sl_my_db *db);

struct sl_my_row {
    unsigned count;
    const char *const *names;
    const char *const *values; /* texts; NULL for NULL */
};
/* The value under a name, "" for NULL or when there is none. */
const char *sl_my_row_value(const struct sl_my_row *row, const char *name);

/* Hands each row to visit(), whose nonzero answer ends it and is returned. SL_ERR_DB_QUERY, or
 * SL_ERR_DENIED where the account may not ask that. */
int sl_my_db_query(struct sl_my_db *db, const char *sql,
                   int (*visit)(void *arg, const struct sl_my_row *row), void *arg,
                   struct sl_err *err);

#endif
