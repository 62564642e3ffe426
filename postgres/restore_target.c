/* The target of a recovery, from the options. Which backup leads there is restore_choose.c's. */
#include "postgres/restore_target.h"

#include "postgres/recovery_conf.h"
#include "postgres/wal_name.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    enum sl_pg_recovery kind;
    const char *type, *option;
} kinds[] = {
    {SL_PG_TO_END, "default", NULL},        {SL_PG_TO_TIME, "time", "target-time"},
    {SL_PG_TO_LSN, "lsn", "target-lsn"},    {SL_PG_TO_XID, "xid", "target-xid"},
    {SL_PG_TO_NAME, "name", "target-name"}, {SL_PG_IMMEDIATE, "immediate", NULL},
    {SL_PG_STANDBY, "standby", NULL},
};
#define KINDS (sizeof kinds / sizeof *kinds)

const char *sl_pg_target_kind_text(enum sl_pg_recovery kind)
{
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i].kind == kind)
            return kinds[i].type;
    return "default";
}

bool sl_pg_target_is_set(const struct sl_pg_target *target)
{
    return target->kind != SL_PG_TO_END && target->kind != SL_PG_STANDBY;
}

/* Only one may be given: the server knows one target (guc: multiple recovery targets). */
static int find_option(const struct sl_options *options, struct sl_pg_target *t, struct sl_err *err)
{
    const char *found = NULL;
    for (size_t i = 0; i < KINDS; i++) {
        const char *value = kinds[i].option ? sl_option_string(options, kinds[i].option) : NULL;
        if (!value)
            continue;
        if (found)
            return sl_err_set(err, SL_ERR_USAGE, "--%s and --%s do not go together", found,
                              kinds[i].option);
        found = kinds[i].option;
        t->kind = kinds[i].kind;
        t->text = value;
    }
    if (!sl_option_bool(options, "target-immediate"))
        return 0;
    if (found)
        return sl_err_set(err, SL_ERR_USAGE, "--%s and --target-immediate do not go together",
                          found);
    t->kind = SL_PG_IMMEDIATE;
    return 0;
}

static int find_type(const struct sl_options *options, struct sl_pg_target *t, struct sl_err *err)
{
    const char *type = sl_option_string(options, "type");
    if (!type)
        return 0;
    for (size_t i = 0; i < KINDS; i++) {
        if (strcmp(kinds[i].type, type) != 0)
            continue;
        if (kinds[i].kind == t->kind || (kinds[i].kind == SL_PG_TO_END && t->text))
            return 0;
        if (t->text || t->kind == SL_PG_IMMEDIATE)
            return sl_err_set(err, SL_ERR_USAGE, "--target-%s does not go with --type=%s",
                              sl_pg_target_kind_text(t->kind), type);
        if (kinds[i].option)
            return sl_err_set(err, SL_ERR_USAGE, "--type=%s needs --%s", type, kinds[i].option);
        t->kind = kinds[i].kind;
        return 0;
    }
    return sl_err_set(err, SL_ERR_USAGE,
                      "\"%.40s\" is no type of a restore: default, time, lsn, xid, name, "
                      "immediate, standby",
                      type);
}

static int read_value(struct sl_pg_target *t, struct sl_err *err)
{
    switch (t->kind) {
    case SL_PG_TO_TIME:
        if (sl_pg_target_time_parse(t->text, &t->time, err))
            return SL_ERR_USAGE;
        t->text = t->time.text;
        return 0;
    case SL_PG_TO_LSN:
        if (sl_pg_lsn_parse(t->text, &t->lsn, NULL))
            return sl_err_set(err, SL_ERR_USAGE, "\"%.40s\" is no LSN: write 1A/2B000028", t->text);
        return 0;
    case SL_PG_TO_XID:
        errno = 0;
        if (!*t->text || t->text[strspn(t->text, "0123456789")] ||
            (strtoull(t->text, NULL, 10) == ULLONG_MAX && errno == ERANGE))
            return sl_err_set(err, SL_ERR_USAGE, "\"%.40s\" is no transaction id", t->text);
        return 0;
    case SL_PG_TO_NAME:
        if (!*t->text || strlen(t->text) > 63) /* xlog.h: MAXFNAMELEN */
            return sl_err_set(err, SL_ERR_USAGE, "a restore point's name has 1 to 63 bytes");
        return sl_pg_conf_check("the restore point's name", t->text, err);
    default:
        return 0;
    }
}

static int read_timeline(const struct sl_options *options, struct sl_pg_target *t,
                         struct sl_err *err)
{
    const char *set = sl_option_string(options, "set");
    bool chosen = set && strcmp(set, "latest") != 0;
    t->timeline = sl_option_string(options, "target-timeline");
    if (!t->timeline) {
        /* who names a backup, or wants it and nothing after it, means its own timeline */
        t->timeline = chosen || t->kind == SL_PG_IMMEDIATE ? "current" : "latest";
        return 0;
    }
    bool word = !strcmp(t->timeline, "latest") || !strcmp(t->timeline, "current");
    unsigned long long number = strtoull(t->timeline, NULL, 10);
    bool digits = *t->timeline && !t->timeline[strspn(t->timeline, "0123456789")];
    if (word || (digits && number && number <= UINT32_MAX))
        return 0;
    return sl_err_set(err, SL_ERR_USAGE,
                      "\"%.40s\" is no timeline: latest, current, or a decimal number",
                      t->timeline);
}

int sl_pg_target_parse(const struct sl_options *options, struct sl_pg_target *ret_target,
                       struct sl_err *err)
{
    struct sl_pg_target *t = ret_target;
    *t = (struct sl_pg_target){.kind = SL_PG_TO_END};
    int rc = find_option(options, t, err);
    if (!rc)
        rc = find_type(options, t, err);
    if (!rc)
        rc = read_value(t, err);
    if (!rc)
        rc = read_timeline(options, t, err);
    if (rc)
        return rc;
    t->exclusive = sl_option_bool(options, "target-exclusive");
    bool sharp = t->kind == SL_PG_TO_TIME || t->kind == SL_PG_TO_LSN || t->kind == SL_PG_TO_XID;
    if (t->exclusive && !sharp)
        return sl_err_set(err, SL_ERR_USAGE,
                          "--target-exclusive goes with --target-time, -lsn or -xid");
    if (sl_pg_target_is_set(t))
        t->action = sl_option_string(options, "target-action");
    return 0;
}
