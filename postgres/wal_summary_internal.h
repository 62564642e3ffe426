/* WAL summaries from inside: what wal_summary_ask.c fills. Rows come from the server; what is not
 * as it should be is refused. */
#ifndef SL_POSTGRES_WAL_SUMMARY_INTERNAL_H
#define SL_POSTGRES_WAL_SUMMARY_INTERNAL_H

#include "postgres/wal_summary.h"

struct sl_pg_summary *sl_pg_summary_new(void); /* owned; NULL: no memory */
/* One row: tablespace, database and relation (0: all of the database), 1 for "all from this group
 * on may have changed" or 0 for "this one", the group. All in decimal; NULL is SQL's.
 * SL_ERR_FORMAT. */
#define SL_PG_SUMMARY_COLUMNS 5
int sl_pg_summary_add(struct sl_pg_summary *s, const char *const columns[SL_PG_SUMMARY_COLUMNS],
                      struct sl_err *err);
void sl_pg_summary_end(struct sl_pg_summary *s); /* all were added */

/* Summaries in order of their starts: does this one go on where those before it have reached? Then
 * how far it goes. false: a gap. */
bool sl_pg_summary_goes_on(uint64_t *reached, const char *start_lsn, const char *end_lsn);

#endif
