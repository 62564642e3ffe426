/* Labels of backups, in pgBackRest's form: people know it, and it sorts by time.
 *
 *   20261130-162537F                     full
 *   20261130-162537F_20261201-030000D    differential, after the full it builds on
 *   20261130-162537F_20261201-040000I    incremental */
#include "core/base/clock.h"
#include "core/repo/manifest.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STAMP_CHARS 15 /* YYYYMMDD-HHMMSS */

static bool stamp_parse(const char *text, time_t *ret_time)
{
    int digits[STAMP_CHARS];
    for (int i = 0; i < STAMP_CHARS; i++) {
        if (i == 8 ? text[i] != '-' : text[i] < '0' || text[i] > '9')
            return false; /* a NUL ends it here too */
        digits[i] = text[i] - '0';
    }
    const int *d = digits;
    struct tm tm = {
        .tm_year = d[0] * 1000 + d[1] * 100 + d[2] * 10 + d[3] - 1900,
        .tm_mon = d[4] * 10 + d[5] - 1,
        .tm_mday = d[6] * 10 + d[7],
        .tm_hour = d[9] * 10 + d[10],
        .tm_min = d[11] * 10 + d[12],
        .tm_sec = d[13] * 10 + d[14],
    };
    struct tm given = tm;
    *ret_time = timegm(&tm); /* normalises: the 31st of June would become another day */
    return tm.tm_year == given.tm_year && tm.tm_mon == given.tm_mon &&
           tm.tm_mday == given.tm_mday && tm.tm_hour == given.tm_hour &&
           tm.tm_min == given.tm_min && tm.tm_sec == given.tm_sec;
}

/* The time of the backup itself, which is the last in its label. */
static bool label_parse(const char *label, time_t *ret_own)
{
    time_t full;
    if (!stamp_parse(label, &full) || label[STAMP_CHARS] != 'F')
        return false;
    *ret_own = full;
    const char *rest = label + STAMP_CHARS + 1;
    if (!*rest)
        return true;
    return *rest == '_' && stamp_parse(rest + 1, ret_own) && *ret_own > full &&
           (rest[1 + STAMP_CHARS] == 'D' || rest[1 + STAMP_CHARS] == 'I') && !rest[2 + STAMP_CHARS];
}

bool sl_label_valid(const char *label)
{
    time_t own;
    return label_parse(label, &own);
}

/* Its own time must be later than that of `label`. */
static int later_than(const char *label, const char *what, time_t *time, struct sl_err *err)
{
    time_t other;
    if (!label)
        return 0;
    if (!label_parse(label, &other))
        return sl_err_set(err, SL_ERR_USAGE, "%s \"%s\" is no label of a backup", what, label);
    if (*time <= other)
        *time = other + 1; /* the clock went back, or two in one second */
    return 0;
}

int sl_label_new(char kind, const char *prior_full, const char *latest, char label[SL_LABEL_MAX],
                 struct sl_err *err)
{
    bool full = kind == 'F';
    if ((!full && kind != 'D' && kind != 'I') || full != !prior_full ||
        (prior_full && strlen(prior_full) != STAMP_CHARS + 1))
        return sl_err_set(err, SL_ERR_USAGE, "a label of kind '%c' after \"%s\" cannot be made",
                          kind, prior_full ? prior_full : "");
    time_t now = (time_t)(sl_wall_ns() / SL_NS_PER_S);
    int rc = later_than(prior_full, "prior backup", &now, err);
    if (rc == 0)
        rc = later_than(latest, "latest backup", &now, err);
    if (rc)
        return rc;
    struct tm tm;
    char made[SL_LABEL_MAX] = "";
    size_t at = 0;
    if (prior_full) {
        memcpy(made, prior_full, STAMP_CHARS + 1);
        made[STAMP_CHARS + 1] = '_';
        at = STAMP_CHARS + 2;
    }
    if (!gmtime_r(&now, &tm) ||
        strftime(made + at, sizeof made - at, "%Y%m%d-%H%M%S", &tm) != STAMP_CHARS)
        return sl_err_set(err, SL_ERR_LIMIT, "the clock, or the latest label, is out of range");
    made[at + STAMP_CHARS] = kind;
    /* a label that sorts before the latest would be taken for an older backup */
    if (latest && strcmp(made, latest) <= 0)
        return sl_err_set(err, SL_ERR_USAGE,
                          "a backup after \"%s\" would come before the latest one, \"%s\"",
                          prior_full ? prior_full : "", latest);
    memcpy(label, made, sizeof made);
    return 0;
}

const char *sl_label_stamp(const char *label)
{
    const char *underscore = strchr(label, '_');
    return underscore ? underscore + 1 : label;
}

bool sl_label_same_set(const char *label, const char *other)
{
    size_t length = strcspn(label, "_");
    return length == strcspn(other, "_") && !strncmp(label, other, length);
}
