/* The first page header of a WAL segment: decoding, and whether it fits name, size and system. It
 * reads no records; whether the WAL in it is whole is for the server to say. */
#include "postgres/wal_header.h"

#include "core/wire/cursor.h"

#define MAGIC_FAMILY   0xD100u /* 0xD106 in 13 … 0xD118 in 18 */
#define INFO_LONG      0x0002u
#define INFO_ALL       0x000Fu /* XLP_ALL_FLAGS */
#define PAGE_BYTES_MIN 1024u   /* configure --with-wal-blocksize: 1 to 64 kB */
#define PAGE_BYTES_MAX 65536u

int sl_pg_wal_header_decode(const void *bytes, size_t count, struct sl_pg_wal_header *ret_header,
                            struct sl_err *err)
{
    struct sl_pg_wal_header h;
    struct sl_reader r = sl_reader_on(bytes, count);
    h.magic = sl_read_u16(&r);
    h.info = sl_read_u16(&r);
    h.timeline = sl_read_u32(&r);
    h.page_address = sl_read_u64(&r);
    sl_read_u32(&r); /* xlp_rem_len */
    sl_read_u32(&r); /* padding */
    h.system_id = sl_read_u64(&r);
    h.segment_bytes = sl_read_u32(&r);
    h.page_bytes = sl_read_u32(&r);
    if (r.failed)
        return sl_err_set(err, SL_ERR_FORMAT, "too short for a WAL segment");
    if ((h.magic & 0xFF) == MAGIC_FAMILY >> 8 && (h.magic & 0xFF00) != MAGIC_FAMILY)
        return sl_err_set(err, SL_ERR_UNSUPPORTED, "WAL of a server with another byte order");
    if ((h.magic & 0xFF00) != MAGIC_FAMILY)
        return sl_err_set(err, SL_ERR_FORMAT,
                          "no WAL segment: it begins with 0x%04X, not with a WAL page's magic",
                          h.magic);
    if (!(h.info & INFO_LONG) || (h.info & ~INFO_ALL))
        return sl_err_set(err, SL_ERR_FORMAT, "WAL page with flags 0x%04X, not a segment's first",
                          h.info);
    if (!sl_pg_segment_bytes_valid(h.segment_bytes))
        return sl_err_set(err, SL_ERR_FORMAT, "WAL segment size %u in its header is not valid",
                          h.segment_bytes);
    if (h.page_bytes < PAGE_BYTES_MIN || h.page_bytes > PAGE_BYTES_MAX ||
        (h.page_bytes & (h.page_bytes - 1)))
        return sl_err_set(err, SL_ERR_FORMAT, "WAL page size %u in its header is not valid",
                          h.page_bytes);
    if (!h.timeline || h.page_address % h.segment_bytes)
        return sl_err_set(err, SL_ERR_FORMAT, "WAL page header with timeline %u, address %llX",
                          h.timeline, (unsigned long long)h.page_address);
    *ret_header = h;
    return 0;
}

int sl_pg_wal_header_check(const struct sl_pg_wal_header *header, const struct sl_pg_wal_name *name,
                           uint64_t file_bytes, uint64_t system_id, struct sl_err *err)
{
    if (header->system_id != system_id) {
        sl_err_set(err, SL_ERR_MISMATCH,
                   "\"%s\" belongs to system identifier %llu, the stanza to %llu", name->text,
                   (unsigned long long)header->system_id, (unsigned long long)system_id);
        sl_err_hint(err, "is this the right stanza? After pg_upgrade or initdb, "
                         "stanza-create with a new name");
        return SL_ERR_MISMATCH;
    }
    if (file_bytes != header->segment_bytes)
        return sl_err_set(err, SL_ERR_FORMAT,
                          "\"%s\" has %llu bytes, its header says segments of %u", name->text,
                          (unsigned long long)file_bytes, header->segment_bytes);
    if (name->low >= (1ull << 32) / header->segment_bytes)
        return sl_err_set(err, SL_ERR_FORMAT, "\"%s\" is no name for WAL segments of %u bytes",
                          name->text, header->segment_bytes);
    uint64_t start = sl_pg_segment_number(name, header->segment_bytes) * header->segment_bytes;
    char here[SL_PG_LSN_BYTES], there[SL_PG_LSN_BYTES];
    if (header->page_address != start)
        return sl_err_set(err, SL_ERR_FORMAT, "\"%s\" holds WAL from %s, its name says %s",
                          name->text, sl_pg_lsn_text(header->page_address, here),
                          sl_pg_lsn_text(start, there));
    if (header->timeline > name->timeline)
        return sl_err_set(err, SL_ERR_FORMAT, "\"%s\" holds WAL of the later timeline %u",
                          name->text, header->timeline);
    return 0;
}
