/* Log lines of the pusher's threads, kept until the archiver's thread writes them into the server's
 * log: only that one may. At most SL_PG_NOTES_MAX; of more the oldest are dropped.
 */
#ifndef SL_POSTGRES_NOTES_H
#define SL_POSTGRES_NOTES_H

#include "core/base/log.h"

#define SL_PG_NOTES_MAX 32

struct sl_pg_note {
    enum sl_log_level level;
    char text[SL_ERR_MSG_BYTES], hint[SL_ERR_HINT_BYTES];
};

/* A sink for sl_log_set(); any thread. */
void sl_pg_notes_sink(void *arg, enum sl_log_level level, const char *component, const char *text,
                      const char *hint);
/* The oldest that is left; false when there is none. */
bool sl_pg_notes_take(struct sl_pg_note *ret_note);
/* What comes from a peer must not move a cursor or forge a line: control characters become '?'. */
void sl_pg_notes_plain(char *text);

#endif
