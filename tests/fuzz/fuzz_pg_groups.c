/* Groups of pages as a repository has them: any bytes end in records that make sense or in an
 * error, fed whole or in pieces. Most inputs have no head, so it is put before them. */
#include "postgres/incr_internal.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
    uint64_t records, bytes;
};

static int see(void *arg, const struct sl_pg_group_record *record, const void *bytes,
               struct sl_err *err)
{
    struct seen *seen = arg;
    struct sl_pg_group_record again;
    if (!record->path[0] || strlen(record->path) >= SL_PATH_MAX ||
        record->count != (record->length + SL_PG_GROUP_BYTES - 1) / SL_PG_GROUP_BYTES ||
        sl_pg_group_record_decode(bytes, record->bytes, &again, err) != 1 ||
        again.bytes != record->bytes || again.length != record->length)
        abort();
    seen->records++;
    seen->bytes += record->bytes;
    return 0;
}

static int read_all(const uint8_t *data, size_t size, size_t piece, struct seen *seen)
{
    struct sl_pg_groups_reader *reader;
    struct sl_err err;
    int rc = 0;
    *seen = (struct seen){0};
    if (sl_pg_groups_reader_new(see, seen, &reader, &err))
        abort();
    for (size_t at = 0; !rc && at < size; at += piece)
        rc = sl_pg_groups_reader_feed(reader, data + at, piece < size - at ? piece : size - at,
                                      &err);
    if (!rc)
        rc = sl_pg_groups_reader_finish(reader, &err);
    sl_pg_groups_reader_free(reader);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen whole, parts;
    uint8_t *bytes = malloc(size + 16);
    size_t head = size && data[0] == 'S' ? 0 : sl_pg_groups_head(bytes);
    memcpy(bytes + head, data, size);
    int rc = read_all(bytes, head + size, head + size, &whole);
    /* an error may come a record later when all is there at once, but it comes */
    if (rc != read_all(bytes, head + size, 1 + size % 4099, &parts))
        abort();
    if (!rc && (whole.records != parts.records || whole.bytes + 16 != head + size))
        abort();
    free(bytes);
    return 0;
}
