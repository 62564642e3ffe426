/* pg_control: any bytes end in fields or in an error. The CRC would stop every mutation, so it is
 * put right first. */
#include "core/object/object.h"
#include "core/wire/cursor.h"
#include "postgres/control_file.h"
#include "postgres/wal_name.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t bytes[SL_PG_CONTROL_BYTES] = {0};
    struct sl_pg_control control;
    struct sl_err err;
    (void)sl_pg_control_decode(data, size, &control, &err);
    memcpy(bytes, data, size < sizeof bytes ? size : sizeof bytes);
    struct sl_writer w = sl_writer_on(bytes + 288, 4);
    sl_write_u32(&w, sl_crc32c(0, bytes, 288));
    if (!sl_pg_control_decode(bytes, sizeof bytes, &control, &err) &&
        (!sl_pg_segment_bytes_valid(control.wal_segment_bytes) || !control.system_id))
        abort();
    return 0;
}
