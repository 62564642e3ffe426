/* WAL summaries: asked from the server by SQL, kept as a sorted list. Whether to use them is
 * decided in incr.c. */
#include "postgres/wal_summary.h"

#include "core/base/alloc.h"
#include "core/base/log.h"
#include "postgres/cluster_rules.h"
#include "postgres/wal_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROWS_MAX      4000000 /* with so many groups changed reading all is as good */
#define POLL_MS       200
#define QUERY_MS      600000u
#define DEFAULT_SPACE 1663u /* pg_default */
#define GLOBAL_SPACE  1664u

enum what { LIMIT, GROUP };
struct change {
    uint32_t space, database, relation; /* relation 0: all of the database */
    uint32_t what, value;               /* LIMIT: all from this group on; GROUP: this one */
};
struct sl_pg_summary {
    struct change *changes; /* sorted */
    size_t count;
};

static int compare(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    const uint32_t left[] = {x->space, x->database, x->relation, x->what, x->value};
    const uint32_t right[] = {y->space, y->database, y->relation, y->what, y->value};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    return 0;
}

/* The first change that is not before `key`, or NULL. */
static const struct change *at_least(const struct sl_pg_summary *s, const struct change *key)
{
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare(&s->changes[middle], key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->count ? &s->changes[low] : NULL;
}

static bool same_relation(const struct change *a, const struct change *b)
{
    return a && a->space == b->space && a->database == b->database && a->relation == b->relation;
}

/* --- asking ------------------------------------------------------------------------------------
 */

struct asked {
    char timeline[16], from[SL_PG_LSN_BYTES], to[SL_PG_LSN_BYTES], blocks[16];
};

static uint64_t lsn_at(const struct sl_pg_rows *rows, int row, int column)
{
    uint64_t lsn = 0;
    const char *text = sl_pg_rows_value(rows, row, column);
    return text && !sl_pg_lsn_parse(text, &lsn, NULL) ? lsn : 0;
}

static uint32_t number_at(const struct sl_pg_rows *rows, int row, int column)
{
    const char *text = sl_pg_rows_value(rows, row, column);
    return text ? (uint32_t)strtoul(text, NULL, 10) : 0;
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
    for (int i = 0; i < sl_pg_rows_count(rows) && lsn_at(rows, i, 0) <= reached; i++)
        reached = lsn_at(rows, i, 1) > reached ? lsn_at(rows, i, 1) : reached;
    sl_pg_rows_free(rows);
    return reached >= to;
}

static int take_rows(struct sl_pg_summary *s, const struct sl_pg_rows *rows, struct sl_err *err)
{
    size_t count = (size_t)sl_pg_rows_count(rows);
    s->changes = sl_calloc(count + 1, sizeof *s->changes);
    if (!s->changes)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for WAL summaries");
    for (size_t i = 0; i < count; i++)
        s->changes[i] = (struct change){
            number_at(rows, (int)i, 0), number_at(rows, (int)i, 1), number_at(rows, (int)i, 2),
            number_at(rows, (int)i, 3) ? LIMIT : GROUP, number_at(rows, (int)i, 4)};
    s->count = count;
    qsort(s->changes, count, sizeof *s->changes, compare);
    return 0;
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
    rc = sl_pg_rows_count(rows) > ROWS_MAX ? 0 : take_rows(s, rows, err) ? SL_ERR_NO_MEMORY : 1;
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
    struct sl_pg_summary *s = sl_calloc(1, sizeof *s);
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

void sl_pg_summary_free(struct sl_pg_summary *summary)
{
    if (!summary)
        return;
    sl_free(summary->changes);
    sl_free(summary);
}

/* --- finding -----------------------------------------------------------------------------------
 */

bool sl_pg_summary_find(const struct sl_pg_summary *summary, const char *path,
                        struct sl_pg_summary_file *ret_file)
{
    bool init;
    char folder[256];
    const char *name = strrchr(path, '/');
    size_t digits = name ? sl_pg_relation_digits(name + 1, &init) : 0;
    if (!digits || (name[1 + digits] && name[1 + digits] != '.') ||
        (size_t)(name - path) >= sizeof folder)
        return false;
    snprintf(folder, sizeof folder, "%.*s", (int)(name - path), path);
    const char *last = strrchr(folder, '/');
    struct change key = {.relation = (uint32_t)strtoul(name + 1, NULL, 10)};
    if (!strcmp(folder, "global")) {
        key.space = GLOBAL_SPACE;
    } else if (last && sl_pg_is_relation_folder(folder)) {
        key.space = strncmp(folder, "pg_tblspc/", 10) != 0
                        ? DEFAULT_SPACE
                        : (uint32_t)strtoul(folder + 10, NULL, 10);
        key.database = (uint32_t)strtoul(last + 1, NULL, 10);
    } else {
        return false;
    }
    struct change all = {key.space, key.database, 0, LIMIT, 0};
    if (same_relation(at_least(summary, &all), &all))
        return false;
    const struct change *limit = at_least(summary, &key);
    *ret_file = (struct sl_pg_summary_file){
        key.space, key.database, key.relation,
        same_relation(limit, &key) && limit->what == LIMIT ? limit->value : UINT32_MAX};
    return true;
}

bool sl_pg_summary_changed(const struct sl_pg_summary *summary,
                           const struct sl_pg_summary_file *file, uint32_t group)
{
    if (group >= file->limit)
        return true;
    struct change key = {file->space, file->database, file->relation, GROUP, group};
    const struct change *found = at_least(summary, &key);
    return found && !compare(found, &key);
}
