/* --target-time: a point in time as PostgreSQL writes it, with or without a zone.
 */
#ifndef SL_POSTGRES_TARGET_TIME_H
#define SL_POSTGRES_TARGET_TIME_H

#include "core/base/err.h"

#include <stdbool.h>

#define SL_PG_TIME_BYTES 64

struct sl_pg_target_time {
    double epoch; /* seconds since 1970 */
    bool zone_given;
    char text[SL_PG_TIME_BYTES]; /* for recovery_target_time, always with an offset */
};

/* "2026-11-30 16:25:37.123+01", "2026-11-30T16:25:37Z", "2026-11-30 16:25" …: date, time, optional
 * fraction, optional "Z", "UTC" or offset. Without a zone the local one of this process (TZ) is
 * taken, and its offset is put behind the text, so that the server cannot read it otherwise.
 * SL_ERR_USAGE. */
int sl_pg_target_time_parse(const char *text, struct sl_pg_target_time *ret_time,
                            struct sl_err *err);

#endif
