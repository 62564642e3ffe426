/* The running server: who it is. Asked through Connector/C. Passwords come from defaults files
 * only; no option holds one. */
#ifndef SL_MYSQL_SERVER_H
#define SL_MYSQL_SERVER_H

#include "core/base/clock.h"
#include "core/plugin/engine.h"

struct sl_my_server {
    char version[32]; /* "MariaDB 10.11.19", "MySQL 9.7.4" */
    /* What the stanza is of: MySQL's server_uuid; MariaDB has no such thing, so it is
     * SERVER_ID@HOST:PORT. Characters that a name may not have are '-'. */
    char id[64];
    char data_folder[512];
    char host[128];
};

/* Connects as my-host, my-port, my-socket, my-user and the defaults files say, asks, disconnects.
 * At most until the deadline for each of connecting, writing and reading. SL_ERR_DB_CONNECT,
 * _DB_QUERY. */
int sl_my_server_ask(const struct sl_options *options, sl_deadline deadline,
                     struct sl_my_server *ret_server, struct sl_err *err);

#endif
