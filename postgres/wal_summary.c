/* What WAL summaries say, as a sorted list: rows as the server gives them, and the questions that a
 * backup has. Asking the server is wal_summary_ask.c's, whether to use them incr.c's. */
#include "core/base/alloc.h"
#include "postgres/cluster_rules.h"
#include "postgres/wal_name.h"
#include "postgres/wal_summary_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_SPACE 1663u /* pg_default */
#define GLOBAL_SPACE  1664u

enum what { LIMIT, GROUP };
struct change {
    uint32_t space, database, relation; /* relation 0: all of the database */
    uint32_t what, value;               /* LIMIT: all from this group on; GROUP: this one */
};
struct sl_pg_summary {
    struct change *changes; /* sorted */
    size_t count, room;
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

/* --- filling -----------------------------------------------------------------------------------
 */

struct sl_pg_summary *sl_pg_summary_new(void)
{
    return sl_calloc(1, sizeof(struct sl_pg_summary));
}

void sl_pg_summary_free(struct sl_pg_summary *summary)
{
    if (!summary)
        return;
    sl_free(summary->changes);
    sl_free(summary);
}

/* Digits only, of 32 bits. */
static bool number(const char *text, uint32_t *ret_number)
{
    uint64_t value = 0;
    if (!text || !*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > UINT32_MAX)
            return false;
    }
    *ret_number = (uint32_t)value;
    return true;
}

int sl_pg_summary_add(struct sl_pg_summary *s, const char *const columns[SL_PG_SUMMARY_COLUMNS],
                      struct sl_err *err)
{
    struct change change;
    uint32_t limit;
    if (!number(columns[0], &change.space) || !number(columns[1], &change.database) ||
        !number(columns[2], &change.relation) || !number(columns[3], &limit) || limit > 1 ||
        !number(columns[4], &change.value))
        return sl_err_set(err, SL_ERR_FORMAT, "a row of a WAL summary makes no sense");
    change.what = limit ? LIMIT : GROUP;
    if (s->count == s->room) {
        size_t room = s->room * 2 + 1024;
        struct change *bigger = sl_realloc(s->changes, room * sizeof *bigger);
        if (!bigger)
            return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for WAL summaries");
        s->changes = bigger;
        s->room = room;
    }
    s->changes[s->count++] = change;
    return 0;
}

void sl_pg_summary_end(struct sl_pg_summary *s)
{
    if (s->count)
        qsort(s->changes, s->count, sizeof *s->changes, compare);
}

bool sl_pg_summary_goes_on(uint64_t *reached, const char *start_lsn, const char *end_lsn)
{
    uint64_t start, end;
    if (!start_lsn || !end_lsn || sl_pg_lsn_parse(start_lsn, &start, NULL) ||
        sl_pg_lsn_parse(end_lsn, &end, NULL) || start > *reached)
        return false;
    *reached = end > *reached ? end : *reached;
    return true;
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
