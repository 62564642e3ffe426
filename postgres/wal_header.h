/* The header of a WAL segment's first page (access/xlog_internal.h: XLogLongPageHeaderData).
 *
 *   offset  bytes
 *        0  2  xlp_magic: 0xD1nn, another one for each major version
 *        2  2  xlp_info: 0x0001 continues a record, 0x0002 long header, 0x0004 and 0x0008
 *        4  4  xlp_tli: timeline under which the page was written
 *        8  8  xlp_pageaddr
 *       16  4  xlp_rem_len
 *       20  4  padding
 *       24  8  xlp_sysid
 *       32  4  xlp_seg_size
 *       36  4  xlp_xlog_blcksz
 *
 * The same in versions 13 to 18; the magic tells a WAL page, not which version wrote it, because
 * sizes and identity are read from the page itself. Numbers are in the server's byte order;
 * big-endian servers are refused. Pure functions.
 */
#ifndef SL_POSTGRES_WAL_HEADER_H
#define SL_POSTGRES_WAL_HEADER_H

#include "postgres/wal_name.h"

#define SL_PG_WAL_HEADER_BYTES 40

struct sl_pg_wal_header {
    uint16_t magic, info;
    uint32_t timeline;
    uint64_t page_address, system_id;
    uint32_t segment_bytes, page_bytes;
};

/* Decodes and checks what can be checked alone: magic, long header, flags, sizes. SL_ERR_FORMAT. */
int sl_pg_wal_header_decode(const void *bytes, size_t count, struct sl_pg_wal_header *ret_header,
                            struct sl_err *err);

/* Does the header fit the file it came from? `name` is a segment or partial, `file_bytes` its
 * whole size. SL_ERR_MISMATCH for another system's WAL, SL_ERR_FORMAT for the rest.
 *
 * The page's timeline may be older than the name's, never newer: at a switch of timelines the
 * server copies the old segment up to the switch point and goes on in the copy under the new
 * timeline's name (xlog.c: XLogInitNewTimeline, XLogFileCopy), so the first page of that one
 * segment still says what it said before. */
int sl_pg_wal_header_check(const struct sl_pg_wal_header *header, const struct sl_pg_wal_name *name,
                           uint64_t file_bytes, uint64_t system_id, struct sl_err *err);

#endif
