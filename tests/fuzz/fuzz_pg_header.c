/* What a manifest's header says of a PostgreSQL backup, and --target-time: any text ends in fields
 * or in an error. */
#include "postgres/base64.h"
#include "postgres/catalog.h"
#include "postgres/target_time.h"

#include "core/base/alloc.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_pg_backup_info info;
    struct sl_pg_target_time time;
    struct sl_err err;
    size_t count;
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (!sl_pg_backup_info_parse("20261130-162537F", text, &info, &err))
        sl_pg_backup_info_fini(&info);
    if (!sl_pg_target_time_parse(text, &time, &err) && !strchr(time.text, ':'))
        abort();
    sl_free(sl_pg_base64_decode(text, &count));
    free(text);
    return 0;
}
