/* sl_journal_head_decode and sl_journal_record_decode on any bytes. Input: u8 flags, then a head
 * (flag 2) or a record's head, cut or filled with zeros to its size. With flag 1 the digest is made
 * right, so that the fuzzer gets past it. What is accepted must be exactly what the encoder
 * writes. */
#include "core/object/journal.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_head(struct sl_reader *r, bool mend)
{
    uint8_t bytes[SL_JOURNAL_HEAD_BYTES] = {0}, again[SL_JOURNAL_HEAD_BYTES];
    struct sl_journal_head head;
    struct sl_err err;
    size_t left = sl_reader_left(r);
    sl_read_into(r, bytes, left < sizeof bytes ? left : sizeof bytes);
    if (mend) {
        struct sl_id digest = sl_digest(0, bytes, sizeof bytes - sizeof digest);
        memcpy(bytes + sizeof bytes - sizeof digest, &digest, sizeof digest);
    }
    if (sl_journal_head_decode(bytes, &head, &err) != 0)
        return;
    sl_journal_head_encode(&head, again);
    if (memcmp(bytes, again, sizeof again) != 0)
        abort();
}

static void try_record(struct sl_reader *r, bool mend)
{
    static const struct sl_id journal = {{1, 2, 3}};
    uint8_t bytes[SL_JOURNAL_RECORD_BYTES] = {0}, again[SL_JOURNAL_RECORD_BYTES];
    uint8_t covered[SL_JOURNAL_RECORD_BYTES];
    struct sl_journal_record record;
    size_t left = sl_reader_left(r);
    sl_read_into(r, bytes, left < sizeof bytes ? left : sizeof bytes);
    if (mend) {
        memcpy(covered, bytes, sizeof covered - sizeof journal);
        memcpy(covered + sizeof covered - sizeof journal, &journal, sizeof journal);
        struct sl_id digest = sl_digest(7, covered, sizeof covered);
        memcpy(bytes + sizeof bytes - sizeof digest, &digest, sizeof digest);
    }
    if (sl_journal_record_decode(bytes, 7, &journal, &record) != 0)
        return;
    if (sl_journal_record_room(&record) % SL_JOURNAL_ALIGN)
        abort();
    sl_journal_record_encode(&record, 7, &journal, again);
    if (memcmp(bytes, again, sizeof again) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_reader r = sl_reader_on(data, size);
    uint8_t flags = sl_read_u8(&r);
    (flags & 2 ? try_head : try_record)(&r, flags & 1);
    return 0;
}
