/* Names of WAL files: PostgreSQL's, and the objects they become.
 *
 *   kind      name in pg_wal                              object below the stanza
 *   segment   TTTTTTTTLLLLLLLLSSSSSSSS                     wal/<id>/<T>/<T><L>/<name>
 *   partial   TTTTTTTTLLLLLLLLSSSSSSSS.partial             wal/<id>/<T>/<T><L>/<name>
 *   backup    TTTTTTTTLLLLLLLLSSSSSSSS.OOOOOOOO.backup     wal/<id>/<T>/<T><L>/<name>
 *   history   TTTTTTTT.history                             wal/<id>/<T>/<name>
 *
 * T timeline, L and S the upper and lower part of the segment's number, O an offset in it, all
 * upper-case hex (access/xlog_internal.h: XLogFileName, TLHistoryFileName, BackupHistoryFileName);
 * <id> is the system identifier in decimal. Pure functions.
 */
#ifndef SL_POSTGRES_WAL_NAME_H
#define SL_POSTGRES_WAL_NAME_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_PG_WAL_NAME_BYTES 48         /* the longest is 24 + 1 + 8 + 7 and NUL */
#define SL_PG_SEGMENT_MIN    (1u << 20) /* access/xlog_internal.h: WalSegMinSize */
#define SL_PG_SEGMENT_MAX    (1u << 30) /* WalSegMaxSize */
#define SL_PG_LSN_BYTES      20         /* "FFFFFFFF/FFFFFFFF" and NUL */

enum sl_pg_wal_kind { SL_PG_SEGMENT, SL_PG_PARTIAL, SL_PG_BACKUP, SL_PG_HISTORY };

struct sl_pg_wal_name {
    enum sl_pg_wal_kind kind;
    uint32_t timeline;  /* at least 1 */
    uint32_t high, low; /* L and S; 0 for history */
    uint32_t offset;    /* O; backup only */
    char text[SL_PG_WAL_NAME_BYTES];
};

/* SL_ERR_USAGE for anything that is not one of the four. */
int sl_pg_wal_name_parse(const char *text, struct sl_pg_wal_name *ret_name, struct sl_err *err);
/* The last component of a path. */
const char *sl_pg_base_name(const char *path);

/* "wal/<id>/…" as in the table; `to` has room for SL_NAME_MAX (core/wire/message.h). */
void sl_pg_wal_object(uint64_t system_id, const struct sl_pg_wal_name *name, char *to, size_t room);
/* "wal/<id>/<timeline>" and "wal/<id>/<timeline>/<first 16>". */
void sl_pg_wal_timeline_folder(uint64_t system_id, uint32_t timeline, char *to, size_t room);
void sl_pg_wal_segment_folder(uint64_t system_id, const struct sl_pg_wal_name *name, char *to,
                              size_t room);

/* A power of two from 1 MiB to 1 GiB. */
bool sl_pg_segment_bytes_valid(uint64_t bytes);
/* Numbers count segments from LSN 0. `segment_bytes` must be valid. */
uint64_t sl_pg_segment_number(const struct sl_pg_wal_name *name, uint32_t segment_bytes);
void sl_pg_segment_name(uint32_t timeline, uint64_t number, uint32_t segment_bytes,
                        struct sl_pg_wal_name *ret_name);
/* The segment that holds the byte at `lsn`, and the one that holds the byte before it (where a
 * backup ends: XLByteToPrevSeg). */
uint64_t sl_pg_lsn_segment(uint64_t lsn, uint32_t segment_bytes);
uint64_t sl_pg_lsn_segment_before(uint64_t lsn, uint32_t segment_bytes);

/* "1A/2B000028", as %X/%X. Parsing takes 1 to 8 hex digits on each side and nothing else. */
const char *sl_pg_lsn_text(uint64_t lsn, char text[SL_PG_LSN_BYTES]);
int sl_pg_lsn_parse(const char *text, uint64_t *ret_lsn, struct sl_err *err);

#endif
