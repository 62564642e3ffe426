/* Connector/C behind a few functions. What is asked is not known here. */
#include "mysql/db.h"

#include "core/base/alloc.h"

#include <mysql.h>
#include <mysqld_error.h>
#include <string.h>

#define FIELDS_MAX 128u

struct sl_my_db {
    MYSQL *mysql;
};

static int failed(MYSQL *mysql, int code, const char *what, struct sl_err *err)
{
    return sl_err_set(err, code, "%s: %s", what, mysql_error(mysql));
}

static void set_options(MYSQL *mysql, const struct sl_options *options, sl_deadline deadline)
{
    unsigned seconds = (unsigned)(sl_deadline_poll_ms(deadline) / 1000 + 1);
    const char *file = sl_option_string(options, "my-defaults-file");
    mysql_optionsv(mysql, MYSQL_OPT_CONNECT_TIMEOUT, &seconds);
    mysql_optionsv(mysql, MYSQL_OPT_READ_TIMEOUT, &seconds);
    mysql_optionsv(mysql, MYSQL_OPT_WRITE_TIMEOUT, &seconds);
    if (file)
        mysql_optionsv(mysql, MYSQL_READ_DEFAULT_FILE, file);
    mysql_optionsv(mysql, MYSQL_READ_DEFAULT_GROUP, "client");
}

static int connect_to(MYSQL *mysql, const struct sl_options *options, struct sl_err *err)
{
    unsigned port =
        sl_option_is_set(options, "my-port") ? (unsigned)sl_option_int(options, "my-port") : 0;
    if (mysql_real_connect(mysql, sl_option_string(options, "my-host"),
                           sl_option_string(options, "my-user"), NULL, NULL, port,
                           sl_option_string(options, "my-socket"), 0))
        return 0;
    failed(mysql, SL_ERR_DB_CONNECT, "could not connect to the server", err);
    return sl_err_hint(err, "see --my-socket, --my-host, --my-user; a password belongs into the "
                            "[client] section of --my-defaults-file");
}

int sl_my_db_open(const struct sl_options *options, sl_deadline deadline, struct sl_my_db **ret_db,
                  struct sl_err *err)
{
    struct sl_my_db *db = sl_calloc(1, sizeof *db);
    if (db)
        db->mysql = mysql_init(NULL);
    if (!db || !db->mysql) {
        sl_free(db);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    }
    set_options(db->mysql, options, deadline);
    int rc = connect_to(db->mysql, options, err);
    if (rc)
        sl_my_db_close(db);
    else
        *ret_db = db;
    return rc;
}

void sl_my_db_close(struct sl_my_db *db)
{
    if (!db)
        return;
    mysql_close(db->mysql);
    sl_free(db);
}

struct st_mysql *sl_my_db_handle(struct sl_my_db *db)
{
    return db->mysql;
}

int sl_my_db_code(struct sl_my_db *db)
{
    unsigned code = mysql_errno(db->mysql);
    switch (code) {
    case ER_SPECIFIC_ACCESS_DENIED_ERROR:
    case ER_ACCESS_DENIED_ERROR:
    case ER_DBACCESS_DENIED_ERROR:
    case ER_TABLEACCESS_DENIED_ERROR:
        return SL_ERR_DENIED;
    case ER_NO_BINARY_LOGGING:
        return SL_ERR_DB_STATE;
    case ER_SERVER_SHUTDOWN:
    case ER_MASTER_FATAL_ERROR_READING_BINLOG: /* files that were removed meanwhile, among others */
    case 4052:                                 /* ER_SLAVE_SAME_ID: another has our number */
        return SL_ERR_BUSY;
    default: /* the client's own (errmsg.h) are of the connection; 0: it ended without a word */
        return !code || (code >= 2000 && code < 3000) ? SL_ERR_CLOSED : SL_ERR_DB_QUERY;
    }
}

const char *sl_my_row_value(const struct sl_my_row *row, const char *name)
{
    for (unsigned i = 0; i < row->count; i++)
        if (strcmp(row->names[i], name) == 0)
            return row->values[i] ? row->values[i] : "";
    return "";
}

static int refused(MYSQL *mysql, struct sl_err *err)
{
    switch (mysql_errno(mysql)) {
    case ER_SPECIFIC_ACCESS_DENIED_ERROR:
    case ER_ACCESS_DENIED_ERROR:
    case ER_DBACCESS_DENIED_ERROR:
    case ER_TABLEACCESS_DENIED_ERROR:
        return failed(mysql, SL_ERR_DENIED, "the account may not ask that", err);
    default:
        return failed(mysql, SL_ERR_DB_QUERY, "the server refused a question", err);
    }
}

int sl_my_db_query(struct sl_my_db *db, const char *sql,
                   int (*visit)(void *arg, const struct sl_my_row *row), void *arg,
                   struct sl_err *err)
{
    if (mysql_real_query(db->mysql, sql, strlen(sql)))
        return refused(db->mysql, err);
    MYSQL_RES *result = mysql_store_result(db->mysql);
    if (!result)
        return mysql_errno(db->mysql) ? refused(db->mysql, err) : 0;
    const char *names[FIELDS_MAX];
    unsigned count = mysql_num_fields(result);
    const MYSQL_FIELD *fields = mysql_fetch_fields(result);
    count = count < FIELDS_MAX ? count : FIELDS_MAX;
    for (unsigned i = 0; i < count; i++)
        names[i] = fields[i].name;
    int rc = 0;
    MYSQL_ROW values;
    while (!rc && visit && (values = mysql_fetch_row(result))) {
        const struct sl_my_row row = {count, names, (const char *const *)values};
        rc = visit(arg, &row);
    }
    mysql_free_result(result);
    return rc;
}
