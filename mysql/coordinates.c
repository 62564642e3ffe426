/* xtrabackup_info ("key = value" lines) and xtrabackup_binlog_info ("file TAB position TAB gtid"),
 * as mariadb-backup 10.11 and XtraBackup 8 write them. */
#include "mysql/coordinates.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The value of `key` in lines "key = value"; false when it is not there or does not fit. */
static bool value_of(const char *info, const char *key, char *to, size_t room)
{
    size_t length = strlen(key);
    for (const char *line = info; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) != 0 || strncmp(line + length, " = ", 3) != 0)
            continue;
        const char *value = line + length + 3;
        size_t count = strcspn(value, "\r\n");
        if (count >= room)
            return false;
        memcpy(to, value, count);
        to[count] = '\0';
        return true;
    }
    return false;
}

static bool number_of(const char *text, uint64_t *ret)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text || *text < '0' || *text > '9' ||
        (*end && *end != '\n' && *end != '\t'))
        return false;
    *ret = value;
    return true;
}

static bool lsn_of(const char *info, const char *key, uint64_t *ret)
{
    char text[32];
    return value_of(info, key, text, sizeof text) && number_of(text, ret);
}

static bool is_set(const char *info, const char *key)
{
    char text[64];
    return value_of(info, key, text, sizeof text) && strcmp(text, "N") != 0;
}

/* A GTID set of MySQL goes on over lines. */
static bool take_binlog(const char *binlog, struct sl_my_coordinates *c)
{
    size_t count = strcspn(binlog, "\t\n");
    const char *at = binlog + count;
    if (!count || count >= sizeof c->binlog_file || *at != '\t')
        return false;
    memcpy(c->binlog_file, binlog, count);
    c->binlog_file[count] = '\0';
    if (strchr(c->binlog_file, '/') || !number_of(++at, &c->binlog_position))
        return false;
    at += strcspn(at, "\t\n");
    if (*at != '\t')
        return true;
    size_t used = 0;
    for (at++; *at; at++) {
        if (*at == '\n' || *at == '\r')
            continue;
        if (used + 1 == sizeof c->gtid)
            return false;
        c->gtid[used++] = *at;
    }
    c->gtid[used] = '\0';
    return true;
}

int sl_my_coordinates_parse(const char *info, const char *binlog,
                            struct sl_my_coordinates *ret_coordinates, struct sl_err *err)
{
    struct sl_my_coordinates c = {0};
    if (!value_of(info, "tool_name", c.tool, sizeof c.tool) ||
        !value_of(info, "tool_version", c.tool_version, sizeof c.tool_version) ||
        !value_of(info, "server_version", c.server_version, sizeof c.server_version) ||
        !lsn_of(info, "innodb_from_lsn", &c.from_lsn) || !lsn_of(info, "innodb_to_lsn", &c.to_lsn))
        return sl_err_set(err, SL_ERR_FORMAT,
                          "the backup's xtrabackup_info lacks what it must say");
    value_of(info, "uuid", c.uuid, sizeof c.uuid);
    c.incremental = is_set(info, "incremental");
    c.partial = is_set(info, "partial");
    c.compressed = is_set(info, "compressed");
    c.encrypted = is_set(info, "encrypted");
    if (binlog && *binlog && !take_binlog(binlog, &c))
        return sl_err_set(err, SL_ERR_FORMAT, "the backup's xtrabackup_binlog_info cannot be read");
    *ret_coordinates = c;
    return 0;
}
