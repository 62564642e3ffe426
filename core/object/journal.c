/* The journal of a growing object, encoded and decoded: see journal.h. No files, no policy: which
 * records count is decided in core/repo/grow_read.c. */
#include "core/object/journal.h"

#include <string.h>

#define HEAD_MAGIC   "SLUICEGR"
#define RECORD_MAGIC 0x72474c53u /* "SLGr" */
#define DIGEST_AT    (SL_JOURNAL_HEAD_BYTES - 16u)
#define SIGNED_BYTES (SL_JOURNAL_RECORD_BYTES - 16u)

_Static_assert(SL_JOURNAL_HEAD_BYTES % SL_JOURNAL_ALIGN == 0, "records begin aligned");

void sl_journal_head_encode(const struct sl_journal_head *head,
                            uint8_t bytes[SL_JOURNAL_HEAD_BYTES])
{
    struct sl_writer w = sl_writer_on(bytes, DIGEST_AT);
    memset(bytes, 0, SL_JOURNAL_HEAD_BYTES);
    sl_write_bytes(&w, HEAD_MAGIC, 8);
    sl_write_u16(&w, SL_JOURNAL_VERSION);
    sl_write_u16(&w, 0);
    sl_write_u32(&w, SL_JOURNAL_ALIGN);
    sl_write_bytes(&w, head->repository.bytes, sizeof head->repository);
    sl_write_bytes(&w, head->journal.bytes, sizeof head->journal);
    sl_write_u64(&w, head->created_ns);
    sl_write_string(&w, head->creator);
    sl_write_string(&w, head->name);
    struct sl_id digest = sl_digest(0, bytes, DIGEST_AT);
    memcpy(bytes + DIGEST_AT, digest.bytes, sizeof digest);
}

int sl_journal_head_decode(const uint8_t bytes[SL_JOURNAL_HEAD_BYTES], struct sl_journal_head *head,
                           struct sl_err *err)
{
    struct sl_reader r = sl_reader_on(bytes, DIGEST_AT);
    const uint8_t *magic = sl_read_bytes(&r, 8);
    if (memcmp(magic, HEAD_MAGIC, 8) != 0)
        return sl_err_set(err, SL_ERR_FORMAT, "no journal: it does not begin like one");
    struct sl_id digest = sl_digest(0, bytes, DIGEST_AT);
    if (memcmp(bytes + DIGEST_AT, digest.bytes, sizeof digest) != 0)
        return sl_err_set(err, SL_ERR_CHECKSUM, "the head of the journal is damaged");
    uint16_t version = sl_read_u16(&r);
    if (version != SL_JOURNAL_VERSION)
        return sl_err_set(err, SL_ERR_VERSION, "journal of version %u, which is not known",
                          version);
    uint16_t reserved = sl_read_u16(&r);
    uint32_t align = sl_read_u32(&r);
    sl_read_into(&r, head->repository.bytes, sizeof head->repository);
    sl_read_into(&r, head->journal.bytes, sizeof head->journal);
    head->created_ns = sl_read_u64(&r);
    sl_read_string(&r, head->creator, sizeof head->creator);
    sl_read_string(&r, head->name, sizeof head->name);
    size_t left = sl_reader_left(&r);
    if (r.failed || reserved || align != SL_JOURNAL_ALIGN || !head->name[0] ||
        !sl_bytes_are_zero(bytes + DIGEST_AT - left, left))
        return sl_err_set(err, SL_ERR_FORMAT, "the head of the journal is malformed");
    return 0;
}

static struct sl_id record_digest(const uint8_t *bytes, uint64_t seed, const struct sl_id *journal)
{
    uint8_t signed_bytes[SIGNED_BYTES + sizeof *journal];
    memcpy(signed_bytes, bytes, SIGNED_BYTES);
    memcpy(signed_bytes + SIGNED_BYTES, journal->bytes, sizeof *journal);
    return sl_digest(seed, signed_bytes, sizeof signed_bytes);
}

void sl_journal_record_encode(const struct sl_journal_record *record, uint64_t seed,
                              const struct sl_id *journal, uint8_t bytes[SL_JOURNAL_RECORD_BYTES])
{
    struct sl_writer w = sl_writer_on(bytes, SL_JOURNAL_RECORD_BYTES);
    sl_write_u32(&w, RECORD_MAGIC);
    sl_write_u32(&w, record->bytes);
    sl_write_u64(&w, record->offset);
    sl_write_u64(&w, record->durable);
    sl_write_u8(&w, record->flags);
    sl_write_bytes(&w, (const uint8_t[7]){0}, 7);
    sl_write_bytes(&w, record->digest.bytes, sizeof record->digest);
    struct sl_id digest = record_digest(bytes, seed, journal);
    sl_write_bytes(&w, digest.bytes, sizeof digest);
}

int sl_journal_record_decode(const uint8_t bytes[SL_JOURNAL_RECORD_BYTES], uint64_t seed,
                             const struct sl_id *journal, struct sl_journal_record *record)
{
    struct sl_reader r = sl_reader_on(bytes, SL_JOURNAL_RECORD_BYTES);
    if (sl_read_u32(&r) != RECORD_MAGIC)
        return SL_ERR_CHECKSUM;
    record->bytes = sl_read_u32(&r);
    record->offset = sl_read_u64(&r);
    record->durable = sl_read_u64(&r);
    record->flags = sl_read_u8(&r);
    const uint8_t *reserved = sl_read_bytes(&r, 7);
    sl_read_into(&r, record->digest.bytes, sizeof record->digest);
    struct sl_id digest = record_digest(bytes, seed, journal), found;
    sl_read_into(&r, found.bytes, sizeof found);
    bool fine = sl_id_equal(&digest, &found) && sl_bytes_are_zero(reserved, 7) && record->bytes &&
                record->bytes <= SL_BLOCK_BYTES && !(record->flags & ~SL_JOURNAL_MARK) &&
                record->durable <= record->offset && record->offset <= UINT64_MAX / 2;
    return fine ? 0 : SL_ERR_CHECKSUM;
}

uint64_t sl_journal_record_room(const struct sl_journal_record *record)
{
    uint64_t bytes = SL_JOURNAL_RECORD_BYTES + (uint64_t)record->bytes;
    return (bytes + SL_JOURNAL_ALIGN - 1) / SL_JOURNAL_ALIGN * SL_JOURNAL_ALIGN;
}

bool sl_journal_name(const char *name)
{
    size_t length = strlen(name), suffix = strlen(SL_JOURNAL_SUFFIX);
    return length > suffix && strcmp(name + length - suffix, SL_JOURNAL_SUFFIX) == 0;
}
