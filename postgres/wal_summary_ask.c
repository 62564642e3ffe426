/* WAL summaries are asked from the server by SQL. What the rows mean is wal_summary.c's. */
#include "core/base/log.h"
#include "postgres/wal_name.h"
#include "postgres/wal_summary_internal.h"

#include <stdio.h>
#include <time.h>

#define ROWS_MAX 4000000 /* with so many groups changed reading all is as good */
#define POLL_MS  200
#define QUERY_MS 600000u

struct asked {
    char timeline[16], from[SL_PG_LSN_BYTES], to[SL_PG_LSN_BYTES], blocks[16];
};

static uint64_t lsn_at(const struct sl_pg_rows *rows, int row, int column)
{
    uint64_t lsn = 0;
    const char *text = sl_pg_rows_value(rows, row, column);
    return text && !sl_pg_lsn_parse(text, &lsn, NULL) ? lsn : 0;
}

/* 1 when summaries reach `to`, 0 when they stand still, or a code. */
static int wait_for(struct sl_pg_db *db, const struct asked *asked, uint64_t to, uint64_t stall_ms,
                    struct sl_err *err)
{
    const char *parameters[] = {asked->timeline};
    uint64_t reached = 0;
    sl_deadline stall = sl_deadline_in_ms(stall_ms);
    for (;;) {
        struct sl_pg_rows *rows = NULL;
        int rc = sl_pg_db_query(db,
                                "SELECT max(end_lsn) FROM pg_available_wal_summaries()"
                                " WHERE tli = $1::bigint",
                                parameters, 1, sl_deadline_in_ms(QUERY_MS), &rows, err);
        if (rc)
            return rc;
        uint64_t now = lsn_at(rows, 0, 0);
        sl_pg_rows_free(rows);
        if (now >= to)
            return 1;
        if (now > reached)
            stall = sl_deadline_in_ms(stall_ms);
        reached = now;
        if (sl_deadline_passed(stall))
            return 0;
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
    }
}

/* Do they cover everything, without a gap? Asked after the contents: summaries only vanish. */
static int covered(struct sl_pg_db *db, const struct asked *asked, uint64_t from, uint64_t to,
                   struct sl_err *err)
{
    const char *parameters[] = {asked->timeline, asked->from, asked->to};
    struct sl_pg_rows *rows = NULL;
    int rc = sl_pg_db_query(db,
                            "SELECT start_lsn, end_lsn FROM pg_available_wal_summaries()"
                            " WHERE tli = $1::bigint AND end_lsn > $2::pg_lsn"
                            " AND start_lsn < $3::pg_lsn ORDER BY start_lsn",
                            parameters, 3, sl_deadline_in_ms(QUERY_MS), &rows, err);
    if (rc)
        return rc;
    uint64_t reached = from;
    for (int i = 0; i < sl_pg_rows_count(rows); i++)
        if (!sl_pg_summary_goes_on(&reached, sl_pg_rows_value(rows, i, 0),
                                   sl_pg_rows_value(rows, i, 1)))
            break;
    sl_pg_rows_free(rows);
    return reached >= to;
}

static int take_rows(struct sl_pg_summary *s, const struct sl_pg_rows *rows, struct sl_err *err)
{
    int rc = 0;
    for (int i = 0; !rc && i < sl_pg_rows_count(rows); i++) {
        const char *columns[SL_PG_SUMMARY_COLUMNS];
        for (int j = 0; j < SL_PG_SUMMARY_COLUMNS; j++)
            columns[j] = sl_pg_rows_value(rows, i, j);
        rc = sl_pg_summary_add(s, columns, err);
    }
    sl_pg_summary_end(s);
    return rc;
}

/* 1, 0 when there is too much, or a code. */
static int read_contents(struct sl_pg_db *db, const struct asked *asked, struct sl_pg_summary *s,
                         struct sl_err *err)
{
    char sql[600];
    const char *parameters[] = {asked->timeline, asked->from, asked->to, asked->blocks};
    struct sl_pg_rows *rows = NULL;
    snprintf(sql, sizeof sql,
             "SELECT DISTINCT c.reltablespace, c.reldatabase, c.relfilenode, c.is_limit_block::int,"
             " c.relblocknumber / $4::bigint FROM pg_available_wal_summaries() s,"
             " LATERAL pg_wal_summary_contents(s.tli, s.start_lsn, s.end_lsn) c"
             " WHERE s.tli = $1::bigint AND s.end_lsn > $2::pg_lsn AND s.start_lsn < $3::pg_lsn"
             " AND c.relforknumber = 0 LIMIT %d",
             ROWS_MAX + 1);
    int rc = sl_pg_db_query(db, sql, parameters, 4, sl_deadline_in_ms(QUERY_MS), &rows, err);
    if (rc)
        return rc;
    if (sl_pg_rows_count(rows) <= ROWS_MAX && !(rc = take_rows(s, rows, err)))
        rc = 1;
    sl_pg_rows_free(rows);
    return rc;
}

int sl_pg_summary_load(struct sl_pg_db *db, const struct sl_pg_summary_range *range,
                       uint64_t stall_ms, struct sl_pg_summary **ret_summary,
                       char ret_why[SL_PG_SUMMARY_WHY], struct sl_err *err)
{
    struct asked asked;
    snprintf(asked.timeline, sizeof asked.timeline, "%u", range->timeline);
    snprintf(asked.blocks, sizeof asked.blocks, "%u", range->group_blocks);
    sl_pg_lsn_text(range->from, asked.from);
    sl_pg_lsn_text(range->to, asked.to);
    struct sl_pg_summary *s = sl_pg_summary_new();
    if (!s)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for WAL summaries");
    const char *why = "they do not reach the backup's start (is the summarizer running?)";
    int rc = wait_for(db, &asked, range->to, stall_ms, err);
    if (rc == 1) {
        why = "too much has changed";
        rc = read_contents(db, &asked, s, err);
    }
    if (rc == 1) {
        why = "they have a gap, or the oldest are removed already (wal_summary_keep_time)";
        rc = covered(db, &asked, range->from, range->to, err);
    }
    if (rc == 1) {
        *ret_summary = s;
        return 1;
    }
    snprintf(ret_why, SL_PG_SUMMARY_WHY, "%s", why);
    sl_pg_summary_free(s);
    return rc;
}
