/* Which blocks of relations WAL says to have changed between two places: the server's WAL summaries
 * (PostgreSQL 17 and later, summarize_wal = on). Of main forks only: free space maps are not
 * summarised fully, and the other forks are small.
 */
#ifndef SL_POSTGRES_WAL_SUMMARY_H
#define SL_POSTGRES_WAL_SUMMARY_H

#include "postgres/db.h"

struct sl_pg_summary;

/* What to ask for: changes from `from` (where the earlier backup started) to `to` (where this one
 * did) on one timeline, in groups of `group_blocks` blocks. */
struct sl_pg_summary_range {
    uint32_t timeline, group_blocks;
    uint64_t from, to;
};
/* Waits until the server has summarised so far; gives up when it gets no further for `stall_ms`. 1
 * and owned; 0 when the summaries do not cover the whole range, `ret_why` says why; or a code. */
#define SL_PG_SUMMARY_WHY 200
int sl_pg_summary_load(struct sl_pg_db *db, const struct sl_pg_summary_range *range,
                       uint64_t stall_ms, struct sl_pg_summary **ret_summary,
                       char ret_why[SL_PG_SUMMARY_WHY], struct sl_err *err);
void sl_pg_summary_free(struct sl_pg_summary *summary); /* NULL ok */

/* A relation's main fork, by the path of one of its files; false for any other file, and for those
 * of a database of which nothing is known (it was made by copying files). Any thread. */
struct sl_pg_summary_file {
    uint32_t space, database, relation;
    uint32_t limit; /* the first group from which on all may have changed */
};
bool sl_pg_summary_find(const struct sl_pg_summary *summary, const char *path,
                        struct sl_pg_summary_file *ret_file);
/* May the group (counted from the relation's beginning) have changed? */
bool sl_pg_summary_changed(const struct sl_pg_summary *summary,
                           const struct sl_pg_summary_file *file, uint32_t group);

#endif
