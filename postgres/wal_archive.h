/* WAL in the repository: what is there, and what is surely not.
 */
#ifndef SL_POSTGRES_WAL_ARCHIVE_H
#define SL_POSTGRES_WAL_ARCHIVE_H

#include "core/client/client.h"
#include "postgres/wal_name.h"

/* Is a segment (or partial) later than `name` stored on its timeline? 1 and its name, 0 when a
 * whole listing showed none, or the code that made the listing incomplete. For the rule of
 * archive-get: a missing segment with later ones is a gap, not the end of the archive. */
int sl_pg_wal_later(struct sl_client *client, uint64_t system_id, const struct sl_pg_wal_name *name,
                    sl_deadline deadline, char ret_later[SL_PG_WAL_NAME_BYTES], struct sl_err *err);

/* A run of segments without a hole, on one timeline. */
struct sl_pg_wal_range {
    uint32_t timeline;
    char first[SL_PG_WAL_NAME_BYTES], last[SL_PG_WAL_NAME_BYTES];
    uint64_t count;
};

/* Calls `visit` for each run of whole segments below wal/<system id>, in order of timeline and
 * name. `segment_bytes` 0: taken from the first segment met. A nonzero return ends the walk with
 * it. */
int sl_pg_wal_ranges(struct sl_client *client, uint64_t system_id, uint32_t segment_bytes,
                     int (*visit)(void *arg, const struct sl_pg_wal_range *range), void *arg,
                     sl_deadline deadline, struct sl_err *err);

#endif
