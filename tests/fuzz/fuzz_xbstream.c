/* xbstream: any bytes end in totals or in an error, and in the same however they are cut into
 * pieces. The first byte says how. */
#include "mysql/xbstream.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run(const uint8_t *data, size_t size, size_t piece, struct sl_my_xb_totals *totals)
{
    static const char *const keep[] = {"a", "xtrabackup_info", NULL};
    struct sl_my_xbstream *stream;
    struct sl_err err;
    int rc = sl_my_xbstream_new(keep, &stream, &err);
    if (rc)
        return rc;
    for (size_t at = 0; !rc && at < size; at += piece)
        rc = sl_my_xbstream_take(stream, data + at, size - at < piece ? size - at : piece, &err);
    if (!rc)
        rc = sl_my_xbstream_end(stream, &err);
    sl_my_xbstream_totals(stream, totals);
    const char *kept = sl_my_xbstream_kept(stream, "a");
    if (kept && strlen(kept) > SL_MY_XB_KEEP_MAX)
        abort();
    sl_my_xbstream_free(stream);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_my_xb_totals whole, pieces;
    if (!size)
        return 0;
    size_t piece = data[0] % 40 + 1u;
    int rc = run(data + 1, size - 1, size, &whole);
    if (rc != run(data + 1, size - 1, piece, &pieces) ||
        (!rc && memcmp(&whole, &pieces, sizeof whole)))
        abort();
    if (!rc && (whole.bytes != size - 1 || !whole.files))
        abort();
    return 0;
}
