/* Asking the server who it is. Nothing here changes it. */
#include "mysql/server.h"

#include <stdio.h>
#include <string.h>

static void make_name(char *text)
{
    for (; *text; text++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+=@:-", *text))
            *text = '-';
}

static int take_server(void *arg, const struct sl_my_row *row)
{
    struct sl_my_server *server = arg;
    const char *version = sl_my_row_value(row, "version"), *host = sl_my_row_value(row, "host");
    size_t digits = strspn(version, "0123456789.");
    server->mariadb = strstr(version, "MariaDB") != NULL;
    snprintf(server->version, sizeof server->version, "%s %.*s",
             server->mariadb ? "MariaDB" : "MySQL", digits < 20 ? (int)digits : 20, version);
    snprintf(server->host, sizeof server->host, "%.127s", host);
    snprintf(server->data_folder, sizeof server->data_folder, "%.511s",
             sl_my_row_value(row, "folder"));
    snprintf(server->id, sizeof server->id, "%.10s@%.44s:%.5s", sl_my_row_value(row, "server_id"),
             host, sl_my_row_value(row, "port"));
    return 0;
}

static int take_uuid(void *arg, const struct sl_my_row *row)
{
    struct sl_my_server *server = arg;
    snprintf(server->id, sizeof server->id, "%.60s", sl_my_row_value(row, "uuid"));
    return 0;
}

int sl_my_server_describe(struct sl_my_db *db, struct sl_my_server *ret_server, struct sl_err *err)
{
    struct sl_my_server server = {0};
    int rc = sl_my_db_query(db,
                            "SELECT @@version AS version, @@hostname AS host, @@port AS port, "
                            "@@server_id AS server_id, @@datadir AS folder",
                            take_server, &server, err);
    if (!rc && !server.mariadb)
        rc = sl_my_db_query(db, "SELECT @@server_uuid AS uuid", take_uuid, &server, err);
    if (!rc && !server.id[0])
        rc = sl_err_set(err, SL_ERR_DB_QUERY, "the server does not say who it is");
    if (rc)
        return rc;
    make_name(server.id);
    *ret_server = server;
    return 0;
}

int sl_my_server_ask(const struct sl_options *options, sl_deadline deadline,
                     struct sl_my_server *ret_server, struct sl_err *err)
{
    struct sl_my_db *db = NULL;
    int rc = sl_my_db_open(options, deadline, &db, err);
    if (!rc)
        rc = sl_my_server_describe(db, ret_server, err);
    sl_my_db_close(db);
    return rc;
}
