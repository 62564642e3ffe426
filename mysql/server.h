/* The running server: who it is. */
#ifndef SL_MYSQL_SERVER_H
#define SL_MYSQL_SERVER_H

#include "mysql/db.h"

struct sl_my_server {
    bool mariadb;     /* else MySQL */
    char version[32]; /* "MariaDB 10.11.19", "MySQL 9.7.4" */
    /* What the stanza is of: MySQL's server_uuid; MariaDB has no such thing, so it is
     * SERVER_ID@HOST:PORT. Characters that a name may not have are '-'. */
    char id[64];
    char data_folder[512];
    char host[128];
};

/* Asks over an open connection. SL_ERR_DB_QUERY, _DENIED. */
int sl_my_server_describe(struct sl_my_db *db, struct sl_my_server *ret_server, struct sl_err *err);
/* Connects, asks, disconnects. */
int sl_my_server_ask(const struct sl_options *options, sl_deadline deadline,
                     struct sl_my_server *ret_server, struct sl_err *err);

#endif
