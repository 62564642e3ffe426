/* Which WAL stays: the rules of `expire`, pure. Which backups: core/cli/retention.h. */
#ifndef SL_POSTGRES_RETENTION_H
#define SL_POSTGRES_RETENTION_H

#include "core/cli/backup_folder.h"
#include "core/repo/manifest.h"
#include "postgres/history.h"

/* What a backup that stays needs: segments of its timeline from `first` on, and all timelines that
 * branched off after it; or, `last` given, these alone. */
struct sl_pg_need {
    uint32_t timeline;
    uint64_t first, last; /* numbers of segments; last UINT64_MAX: for ever */
};
/* One timeline of the archive: where its ancestors ended. `known` false: there is no history file
 * (timeline 1 needs none). */
struct sl_pg_ancestry {
    uint32_t timeline;
    bool known;
    uint32_t count;
    struct sl_pg_switch switches[64];
};
/* Is a segment of this timeline needed? Of several needs any; of none, yes. Timelines above all of
 * the needs', and those whose history is not known, are always needed. */
bool sl_pg_wal_needed(const struct sl_pg_need *needs, size_t count,
                      const struct sl_pg_ancestry *timeline, uint64_t number,
                      uint32_t segment_bytes);

#endif
