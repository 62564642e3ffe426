/* Where recovery is to stop, as the options of restore say it.
 */
#ifndef SL_POSTGRES_RESTORE_TARGET_H
#define SL_POSTGRES_RESTORE_TARGET_H

#include "postgres/recovery_conf.h"
#include "postgres/target_time.h"

struct sl_pg_target {
    enum sl_pg_recovery kind;
    struct sl_pg_target_time time; /* SL_PG_TO_TIME */
    uint64_t lsn;                  /* SL_PG_TO_LSN */
    const char *text; /* the target's value for the server; NULL: none. Borrows from the
                       * options, or from `time` of this struct */
    bool exclusive;
    const char *action;   /* NULL: no target */
    const char *timeline; /* "latest", "current" or a number; never NULL */
};

/* From --type, --target-…, --set. SL_ERR_USAGE for what does not go together or cannot be read.
 * `ret_target` must not be moved afterwards. */
int sl_pg_target_parse(const struct sl_options *options, struct sl_pg_target *ret_target,
                       struct sl_err *err);

/* Stops before the end of WAL? */
bool sl_pg_target_is_set(const struct sl_pg_target *target);
/* "time", "lsn", …, "default", "standby": as --type has it. */
const char *sl_pg_target_kind_text(enum sl_pg_recovery kind);

#endif
