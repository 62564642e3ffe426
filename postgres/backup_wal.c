/* Waiting for the WAL of a backup: without it the files are worth nothing, so the manifest is not
 * published before every segment from start to stop is in the repository. Asked of the repository
 * itself; the server's own wait (pg_backup_stop(true)) knows no deadline. */
#include "core/base/fault.h"
#include "core/base/log.h"
#include "postgres/backup_internal.h"
#include "postgres/signals.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ASK_MS_FIRST 20
#define ASK_MS_MOST  500

/* What keeps the archiver: its own words. */
static void explain(struct sl_pg_backup *b, struct sl_err *err)
{
    struct sl_pg_rows *rows = NULL;
    if (sl_pg_db_query(b->db,
                       "SELECT coalesce(last_archived_wal, 'none'),"
                       " coalesce(last_failed_wal, 'none'), failed_count,"
                       " coalesce(last_failed_time::text, 'never') FROM pg_stat_archiver",
                       NULL, 0, sl_deadline_in_ms(2000), &rows, NULL))
        return;
    if (sl_pg_rows_count(rows) == 1)
        sl_err_hint(err,
                    "archive_mode is %s, %s is \"%.120s\"; last archived %s, %s failures, the last "
                    "one %s at %s: see the server's log",
                    b->server.archive_mode,
                    b->server.archive_library[0] ? "archive_library" : "archive_command",
                    b->server.archive_library[0] ? b->server.archive_library
                                                 : b->server.archive_command,
                    sl_pg_rows_value(rows, 0, 0), sl_pg_rows_value(rows, 0, 2),
                    sl_pg_rows_value(rows, 0, 1), sl_pg_rows_value(rows, 0, 3));
    sl_pg_rows_free(rows);
}

static int wait_one(struct sl_pg_backup *b, const struct sl_pg_wal_name *name, uint64_t timeout_ms,
                    struct sl_err *err)
{
    char object[SL_NAME_MAX];
    struct sl_object_info info;
    sl_deadline deadline = sl_deadline_in_ms(timeout_ms);
    sl_pg_wal_object(b->server.system_id, name, object, sizeof object);
    for (long ms = ASK_MS_FIRST;; ms = ms * 2 < ASK_MS_MOST ? ms * 2 : ASK_MS_MOST) {
        int rc = sl_client_stat(b->repository.client, object, sl_pg_backup_deadline(b), &info, err);
        if (rc > 0)
            return 0;
        if (rc < 0 && !sl_code_retryable(rc))
            return rc;
        if (sl_pg_signals_caught())
            return sl_err_set(err, SL_ERR_CANCELLED, "cancelled");
        if (sl_deadline_passed(deadline))
            break;
        nanosleep(&(struct timespec){.tv_nsec = ms * (long)SL_NS_PER_MS}, NULL);
    }
    sl_err_set(err, SL_ERR_WAL_TIMEOUT,
               "WAL segment \"%s\", which the backup needs, was not archived within %llu s",
               name->text, (unsigned long long)(timeout_ms / 1000));
    explain(b, err);
    return SL_ERR_WAL_TIMEOUT;
}

int sl_pg_backup_wal(struct sl_pg_backup *b, struct sl_err *err)
{
    if (!sl_option_bool(b->invocation->options, "archive-check")) {
        sl_log(SL_LOG_WARN, "postgres", "the WAL of this backup was not waited for");
        return 0;
    }
    uint64_t timeout_ms = (uint64_t)sl_option_int(b->invocation->options, "archive-timeout");
    uint32_t bytes = b->server.wal_segment_bytes;
    uint64_t last = sl_pg_lsn_segment_before(b->stop_lsn, bytes);
    for (uint64_t n = sl_pg_lsn_segment(b->start.start_lsn, bytes); n <= last; n++) {
        struct sl_pg_wal_name name;
        int fault = sl_fault("pg.backup_wal");
        if (fault)
            return sl_err_sys(err, SL_ERR_READ, fault, "could not wait for WAL");
        sl_pg_segment_name(b->start.timeline, n, bytes, &name);
        int rc = wait_one(b, &name, timeout_ms, err);
        if (rc)
            return rc;
    }
    return 0;
}
