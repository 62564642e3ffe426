/* Asking the server who it is. Nothing here changes it. */
#include "mysql/server.h"

#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Every field a text, "" for NULL. */
static int query_row(MYSQL *mysql, const char *query, unsigned fields, char to[][512],
                     struct sl_err *err)
{
    if (mysql_real_query(mysql, query, strlen(query)))
        return failed(mysql, SL_ERR_DB_QUERY, "the server refused a question", err);
    MYSQL_RES *result = mysql_store_result(mysql);
    MYSQL_ROW row = result ? mysql_fetch_row(result) : NULL;
    bool right = row && mysql_num_fields(result) == fields;
    for (unsigned i = 0; right && i < fields; i++)
        snprintf(to[i], 512, "%s", row[i] ? row[i] : "");
    if (result)
        mysql_free_result(result);
    return right ? 0
                 : sl_err_set(err, SL_ERR_DB_QUERY,
                              "the server's answer is not of the form "
                              "that was asked for");
}

static void make_name(char *text)
{
    for (; *text; text++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+=@:-", *text))
            *text = '-';
}

static int ask(MYSQL *mysql, struct sl_my_server *server, struct sl_err *err)
{
    enum { VERSION, HOST, PORT, SERVER_ID, FOLDER, COUNT };
    char row[COUNT][512], uuid[1][512];
    int rc = query_row(mysql, "SELECT @@version, @@hostname, @@port, @@server_id, @@datadir", COUNT,
                       row, err);
    if (rc)
        return rc;
    bool mariadb = strstr(row[VERSION], "MariaDB") != NULL;
    size_t digits = strspn(row[VERSION], "0123456789.");
    snprintf(server->version, sizeof server->version, "%s %.*s", mariadb ? "MariaDB" : "MySQL",
             digits < 20 ? (int)digits : 20, row[VERSION]);
    snprintf(server->host, sizeof server->host, "%.127s", row[HOST]);
    snprintf(server->data_folder, sizeof server->data_folder, "%s", row[FOLDER]);
    if (mariadb) {
        snprintf(server->id, sizeof server->id, "%.10s@%.44s:%.5s", row[SERVER_ID], row[HOST],
                 row[PORT]);
    } else {
        rc = query_row(mysql, "SELECT @@server_uuid", 1, uuid, err);
        snprintf(server->id, sizeof server->id, "%.60s", uuid[0]);
    }
    make_name(server->id);
    return rc;
}

int sl_my_server_ask(const struct sl_options *options, sl_deadline deadline,
                     struct sl_my_server *ret_server, struct sl_err *err)
{
    struct sl_my_server server = {0};
    MYSQL *mysql = mysql_init(NULL);
    if (!mysql)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    set_options(mysql, options, deadline);
    int rc = connect_to(mysql, options, err);
    if (!rc)
        rc = ask(mysql, &server, err);
    mysql_close(mysql);
    if (!rc)
        *ret_server = server;
    return rc;
}
