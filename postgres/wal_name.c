/* Names of WAL files and of the objects they become. Only names: what is in the files is the
 * business of wal_header.c and history.c. */
#include "postgres/wal_name.h"

#include <stdio.h>
#include <string.h>

/* `digits` upper-case hex digits, as PostgreSQL writes them (%08X). */
static bool hex(const char *text, int digits, uint32_t *ret_value)
{
    uint32_t value = 0;
    for (int i = 0; i < digits; i++) {
        char c = text[i];
        if (c >= '0' && c <= '9')
            value = value << 4 | (uint32_t)(c - '0');
        else if (c >= 'A' && c <= 'F')
            value = value << 4 | (uint32_t)(c - 'A' + 10);
        else
            return false;
    }
    *ret_value = value;
    return true;
}

static bool parse_tail(const char *tail, struct sl_pg_wal_name *name)
{
    if (!*tail) {
        name->kind = SL_PG_SEGMENT;
        return true;
    }
    if (!strcmp(tail, ".partial")) {
        name->kind = SL_PG_PARTIAL;
        return true;
    }
    name->kind = SL_PG_BACKUP;
    return tail[0] == '.' && strlen(tail) == 16 && hex(tail + 1, 8, &name->offset) &&
           !strcmp(tail + 9, ".backup");
}

int sl_pg_wal_name_parse(const char *text, struct sl_pg_wal_name *ret_name, struct sl_err *err)
{
    struct sl_pg_wal_name name = {0};
    size_t length = strlen(text);
    bool ok = length >= 16 && length < sizeof name.text && hex(text, 8, &name.timeline) &&
              name.timeline > 0;
    if (ok && !strcmp(text + 8, ".history"))
        name.kind = SL_PG_HISTORY;
    else if (ok)
        ok = length >= 24 && hex(text + 8, 8, &name.high) && hex(text + 16, 8, &name.low) &&
             parse_tail(text + 24, &name);
    /* the smallest segments make the most of them: 4 GiB / 1 MiB in one `high` */
    if (!ok || name.low >= (1ull << 32) / SL_PG_SEGMENT_MIN)
        return sl_err_set(err, SL_ERR_USAGE, "\"%.80s\" is not the name of a WAL file", text);
    memcpy(name.text, text, length + 1);
    *ret_name = name;
    return 0;
}

const char *sl_pg_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void sl_pg_wal_timeline_folder(uint64_t system_id, uint32_t timeline, char *to, size_t room)
{
    snprintf(to, room, "wal/%llu/%08X", (unsigned long long)system_id, timeline);
}

void sl_pg_wal_segment_folder(uint64_t system_id, const struct sl_pg_wal_name *name, char *to,
                              size_t room)
{
    snprintf(to, room, "wal/%llu/%08X/%08X%08X", (unsigned long long)system_id, name->timeline,
             name->timeline, name->high);
}

void sl_pg_wal_object(uint64_t system_id, const struct sl_pg_wal_name *name, char *to, size_t room)
{
    if (name->kind == SL_PG_HISTORY)
        sl_pg_wal_timeline_folder(system_id, name->timeline, to, room);
    else
        sl_pg_wal_segment_folder(system_id, name, to, room);
    size_t used = strlen(to);
    snprintf(to + used, room - used, "/%s", name->text);
}

bool sl_pg_segment_bytes_valid(uint64_t bytes)
{
    return bytes >= SL_PG_SEGMENT_MIN && bytes <= SL_PG_SEGMENT_MAX && !(bytes & (bytes - 1));
}

static uint32_t segments_per_high(uint32_t segment_bytes)
{
    return (uint32_t)((1ull << 32) / segment_bytes);
}

uint64_t sl_pg_segment_number(const struct sl_pg_wal_name *name, uint32_t segment_bytes)
{
    return (uint64_t)name->high * segments_per_high(segment_bytes) + name->low;
}

void sl_pg_segment_name(uint32_t timeline, uint64_t number, uint32_t segment_bytes,
                        struct sl_pg_wal_name *ret_name)
{
    uint32_t per_high = segments_per_high(segment_bytes);
    *ret_name = (struct sl_pg_wal_name){.kind = SL_PG_SEGMENT,
                                        .timeline = timeline,
                                        .high = (uint32_t)(number / per_high),
                                        .low = (uint32_t)(number % per_high)};
    snprintf(ret_name->text, sizeof ret_name->text, "%08X%08X%08X", timeline, ret_name->high,
             ret_name->low);
}

uint64_t sl_pg_lsn_segment(uint64_t lsn, uint32_t segment_bytes)
{
    return lsn / segment_bytes;
}

uint64_t sl_pg_lsn_segment_before(uint64_t lsn, uint32_t segment_bytes)
{
    return lsn ? (lsn - 1) / segment_bytes : 0;
}

const char *sl_pg_lsn_text(uint64_t lsn, char text[SL_PG_LSN_BYTES])
{
    snprintf(text, SL_PG_LSN_BYTES, "%X/%X", (unsigned)(lsn >> 32), (unsigned)lsn);
    return text;
}

static const char *lsn_half(const char *at, uint32_t *ret_half)
{
    uint32_t half = 0;
    int digits = 0;
    for (; digits <= 8; at++, digits++) {
        char c = *at;
        if (c >= 'a' && c <= 'f')
            c = (char)(c - 'a' + 'A');
        uint32_t digit;
        if (!hex(&c, 1, &digit))
            break;
        half = half << 4 | digit;
    }
    *ret_half = half;
    return digits >= 1 && digits <= 8 ? at : NULL;
}

int sl_pg_lsn_parse(const char *text, uint64_t *ret_lsn, struct sl_err *err)
{
    uint32_t high, low = 0;
    const char *at = lsn_half(text, &high);
    if (at && *at == '/')
        at = lsn_half(at + 1, &low);
    else
        at = NULL;
    if (!at || *at)
        return sl_err_set(err, SL_ERR_FORMAT, "\"%.40s\" is not a WAL location", text);
    *ret_lsn = (uint64_t)high << 32 | low;
    return 0;
}
