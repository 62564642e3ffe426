/* Grants as bytes. Nothing of verbs is needed for them, so that they can be fuzzed anywhere. */
#include "core/verbs/grant.h"

#include "core/wire/cursor.h"

void sl_verbs_grant_encode(uint32_t count, uint8_t out[SL_NOTICE_BYTES])
{
    struct sl_writer w = sl_writer_on(out, SL_NOTICE_BYTES);
    sl_write_u32(&w, SL_VERBS_GRANT_MAGIC);
    sl_write_u32(&w, count);
    sl_write_u64(&w, 0);
}

int sl_verbs_grant_decode(const uint8_t *bytes, size_t length, uint32_t *ret_count)
{
    struct sl_reader r = sl_reader_on(bytes, length);
    uint32_t magic = sl_read_u32(&r), count = sl_read_u32(&r);
    uint64_t zero = sl_read_u64(&r);
    if (r.failed || sl_reader_left(&r) || magic != SL_VERBS_GRANT_MAGIC || zero != 0 ||
        count > SL_VERBS_GRANT_MAX)
        return SL_ERR_PROTOCOL;
    *ret_count = count;
    return 0;
}
