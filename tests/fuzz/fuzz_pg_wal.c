/* PostgreSQL's WAL names, page headers, history files and backup labels: any bytes end in fields or
 * in an error, and a name that is accepted gives an object name that goes back to it. */
#include "core/wire/message.h"
#include "postgres/history.h"
#include "postgres/wal_header.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_name(const char *text, const uint8_t *data, size_t size)
{
    struct sl_pg_wal_name name, again;
    struct sl_pg_wal_header header;
    struct sl_err err;
    char object[SL_NAME_MAX];
    if (sl_pg_wal_name_parse(text, &name, &err))
        return;
    sl_pg_wal_object(1, &name, object, sizeof object);
    if (sl_pg_wal_name_parse(sl_pg_base_name(object), &again, &err) ||
        memcmp(&name, &again, sizeof name) != 0)
        abort();
    if (!sl_pg_wal_header_decode(data, size, &header, &err))
        (void)sl_pg_wal_header_check(&header, &name, header.segment_bytes, header.system_id, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_pg_wal_header header;
    struct sl_pg_backup_label label;
    struct sl_err err;
    uint64_t lsn;
    char text[64];
    size_t length = size < sizeof text - 1 ? size : sizeof text - 1;
    memcpy(text, data, length);
    text[length] = '\0';
    try_name(text, data + length, size - length);
    (void)sl_pg_lsn_parse(text, &lsn, &err);
    if (!sl_pg_wal_header_decode(data, size, &header, &err) &&
        (!sl_pg_segment_bytes_valid(header.segment_bytes) || !header.timeline))
        abort();
    (void)sl_pg_history_parse((const char *)data, size, 7, NULL, NULL, &err);
    if (!sl_pg_backup_label_parse((const char *)data, size, &label, &err) && !label.timeline)
        abort();
    return 0;
}
