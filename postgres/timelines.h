/* Timelines of a system in the repository, by their history files.
 */
#ifndef SL_POSTGRES_TIMELINES_H
#define SL_POSTGRES_TIMELINES_H

#include "core/client/client.h"
#include "postgres/history.h"

/* The history of one timeline: itself, and where each of its ancestors ended. */
struct sl_pg_lineage {
    uint64_t system_id;
    uint32_t timeline;
    struct sl_pg_switch *ancestors; /* owned, rising */
    size_t count, room;
};
void sl_pg_lineage_fini(struct sl_pg_lineage *lineage);

/* Reads <timeline>.history; timeline 1 has none, and an empty lineage. SL_ERR_NOT_FOUND when there
 * is no such file in the repository. */
int sl_pg_lineage_read(struct sl_client *client, uint64_t system_id, uint32_t timeline,
                       sl_deadline deadline, struct sl_pg_lineage *ret_lineage, struct sl_err *err);
/* Does the timeline of the lineage go through `timeline` at `lsn`? */
bool sl_pg_lineage_has(const struct sl_pg_lineage *lineage, uint32_t timeline, uint64_t lsn);

/* The timeline that the server takes for "latest" when it begins on `timeline`: the last one whose
 * history file follows without a gap (timeline.c: findNewestTimeLine). */
int sl_pg_timeline_newest(struct sl_client *client, uint64_t system_id, uint32_t timeline,
                          sl_deadline deadline, uint32_t *ret_newest, struct sl_err *err);

#endif
