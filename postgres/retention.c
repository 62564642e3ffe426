/* The rules of retention.h: which WAL stays. No repository here, and no clock. */
#include "postgres/retention.h"

static bool one_needs(const struct sl_pg_need *need, const struct sl_pg_ancestry *t,
                      uint64_t number, uint32_t segment_bytes)
{
    if (need->timeline == t->timeline)
        return number >= need->first && number <= need->last;
    if (need->last != UINT64_MAX)
        return false;
    for (uint32_t i = 0; i < t->count; i++) /* did it branch off after the backup began? */
        if (t->switches[i].timeline == need->timeline)
            return sl_pg_lsn_segment(t->switches[i].switch_lsn, segment_bytes) >= need->first;
    return false;
}

bool sl_pg_wal_needed(const struct sl_pg_need *needs, size_t count,
                      const struct sl_pg_ancestry *timeline, uint64_t number,
                      uint32_t segment_bytes)
{
    uint32_t greatest = 0;
    if (!count || (!timeline->known && timeline->timeline != 1))
        return true;
    for (size_t i = 0; i < count; i++) {
        if (one_needs(&needs[i], timeline, number, segment_bytes))
            return true;
        if (needs[i].timeline > greatest)
            greatest = needs[i].timeline;
    }
    return timeline->timeline > greatest;
}
