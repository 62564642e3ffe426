/* What a backup tool says of its backup, in the small files at the end of its stream. Pure. */
#ifndef SL_MYSQL_COORDINATES_H
#define SL_MYSQL_COORDINATES_H

#include "core/base/err.h"

#include <stdint.h>

struct sl_my_coordinates {
    char tool[64], tool_version[64], server_version[96], uuid[64];
    char binlog_file[256]; /* "" when the server writes no binary log */
    uint64_t binlog_position;
    char gtid[64 * 1024]; /* "" without */
    uint64_t from_lsn, to_lsn;
    bool incremental, partial, compressed, encrypted;
};

/* `info` is xtrabackup_info or mariadb_backup_info, `binlog` xtrabackup_binlog_info or its like, or
 * NULL. SL_ERR_FORMAT when what must be there is not. */
int sl_my_coordinates_parse(const char *info, const char *binlog,
                            struct sl_my_coordinates *ret_coordinates, struct sl_err *err);

#endif
