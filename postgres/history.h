/* Small text files of PostgreSQL: timeline history, backup_label and backup history. Pure.
 */
#ifndef SL_POSTGRES_HISTORY_H
#define SL_POSTGRES_HISTORY_H

#include "postgres/wal_name.h"

#define SL_PG_HISTORY_MAX (1u << 20) /* a file beyond this is no history file */
#define SL_PG_LABEL_MAX   (1u << 16)

/* One line of a history file: `timeline` ended at `switch_lsn`. */
struct sl_pg_switch {
    uint32_t timeline;
    uint64_t switch_lsn;
};

/* Checks a history file of `timeline` as readTimeLineHistory() does (timeline.c): "#" comments,
 * empty lines, else timeline, LSN and a reason; timelines rise and stay below the file's own.
 * `visit` may be NULL. SL_ERR_FORMAT names the line. */
int sl_pg_history_parse(const char *text, size_t count, uint32_t timeline,
                        void (*visit)(void *arg, const struct sl_pg_switch *line), void *arg,
                        struct sl_err *err);

/* What backup_label and a backup history file say of a backup. */
struct sl_pg_backup_label {
    uint64_t start_lsn, checkpoint_lsn;
    uint32_t timeline; /* START TIMELINE, else from the segment's name */
    struct sl_pg_wal_name start_segment;
};

/* SL_ERR_FORMAT when the lines that recovery needs are not there (xlogrecovery.c:
 * read_backup_label). */
int sl_pg_backup_label_parse(const char *text, size_t count, struct sl_pg_backup_label *ret_label,
                             struct sl_err *err);

#endif
