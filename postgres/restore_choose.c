/* Which backup to restore: the one named, or the newest that leads to the target. A backup leads
 * there when it was complete before it, and when the timeline to be recovered along goes through
 * its end. */
#include "core/base/log.h"
#include "postgres/restore_internal.h"
#include "postgres/timelines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct choice {
    struct sl_pg_restore *restore;
    char label[SL_LABEL_MAX];
    double stop;
    unsigned seen, late, aside; /* backups; after the target, on another branch */
    struct sl_pg_lineage lineage;
    uint32_t asked; /* the lineage's question: from which timeline; 0: none was read */
    struct sl_err nested;
};

/* Could recovery from this backup's end stop at the target? For transactions and names that cannot
 * be known. */
static bool before_target(const struct sl_pg_target *t, const struct sl_pg_backup_info *info)
{
    if (t->kind == SL_PG_TO_TIME)
        return info->stop_epoch < t->time.epoch;
    if (t->kind == SL_PG_TO_LSN)
        return info->stop_lsn <= t->lsn;
    return true;
}

/* The lineage that recovery from `info` would follow. */
static int read_lineage(struct choice *c, const struct sl_pg_backup_info *info)
{
    const struct sl_pg_restore *r = c->restore;
    struct sl_client *client = r->repository.client;
    uint32_t timeline = info->timeline;
    bool latest = !strcmp(r->target.timeline, "latest");
    if (c->asked == timeline && c->lineage.system_id == info->system_id)
        return 0;
    int rc = 0;
    if (latest)
        rc = sl_pg_timeline_newest(client, info->system_id, timeline, sl_pg_restore_deadline(r),
                                   &timeline, &c->nested);
    else
        timeline = (uint32_t)strtoul(r->target.timeline, NULL, 10);
    if (rc)
        return rc;
    sl_pg_lineage_fini(&c->lineage);
    c->asked = 0;
    rc = sl_pg_lineage_read(client, info->system_id, timeline, sl_pg_restore_deadline(r),
                            &c->lineage, &c->nested);
    if (!rc)
        c->asked = info->timeline;
    return rc;
}

/* 1 it is on the way, 0 it is not, or a code. */
static int on_the_way(struct choice *c, const struct sl_pg_backup_info *info)
{
    if (!strcmp(c->restore->target.timeline, "current"))
        return 1;
    int rc = read_lineage(c, info);
    if (rc == SL_ERR_NOT_FOUND && info->system_id != c->restore->repository.system_id)
        return 0; /* a timeline of another life of the cluster */
    if (rc)
        return rc;
    return sl_pg_lineage_has(&c->lineage, info->timeline, info->stop_lsn);
}

static int consider(void *arg, const struct sl_pg_backup_info *info)
{
    struct choice *c = arg;
    c->seen++;
    if (!before_target(&c->restore->target, info))
        return c->late++, 0;
    if (c->label[0] && info->stop_epoch < c->stop)
        return 0;
    int rc = on_the_way(c, info);
    if (rc < 0)
        return rc;
    if (!rc) {
        sl_log(SL_LOG_WARN, "postgres",
               "backup %s is passed over: timeline %u was left before its end, %s", info->label,
               info->timeline, info->stop_wal);
        return c->aside++, 0;
    }
    memcpy(c->label, info->label, sizeof c->label);
    c->stop = info->stop_epoch;
    return 0;
}

static void skip_broken(void *arg, const char *label, const struct sl_err *err)
{
    (void)arg;
    sl_log_err(SL_LOG_WARN, "postgres", err, "backup %s is passed over", label);
}

static int none_found(const struct choice *c, struct sl_err *err)
{
    const struct sl_pg_restore *r = c->restore;
    const char *stanza = r->invocation->stanza;
    if (!c->seen)
        sl_err_set(err, SL_ERR_NOT_FOUND, "stanza \"%s\" has no backup", stanza);
    else if (c->aside)
        sl_err_set(err, SL_ERR_NOT_FOUND, "no backup is on the way to timeline %s%s%s",
                   r->target.timeline, r->target.text ? " and was complete before " : "",
                   r->target.text ? r->target.text : "");
    else
        sl_err_set(err, SL_ERR_NOT_FOUND, "no backup was complete before %s", r->target.text);
    if (c->aside)
        sl_err_hint(err,
                    "--target-timeline=current stays on the timeline of the backup; see: "
                    "sluice --stanza=%s info",
                    stanza);
    else
        sl_err_hint(err, "see: sluice --stanza=%s info", stanza);
    return SL_ERR_NOT_FOUND;
}

static int choose_newest(struct sl_pg_restore *r, char label[SL_LABEL_MAX], struct sl_err *err)
{
    struct choice c = {.restore = r};
    const struct sl_pg_catalog_visitor visitor = {consider, skip_broken, &c};
    int rc = sl_pg_catalog_visit(r->repository.client, &visitor, sl_pg_restore_deadline(r), err);
    if (rc < 0 && c.nested.code == rc)
        sl_err_copy(err, &c.nested);
    sl_pg_lineage_fini(&c.lineage);
    if (rc)
        return rc;
    if (!c.label[0])
        return none_found(&c, err);
    memcpy(label, c.label, sizeof c.label);
    if (r->target.kind == SL_PG_TO_XID || r->target.kind == SL_PG_TO_NAME)
        sl_log(SL_LOG_WARN, "postgres",
               "whether %s \"%s\" lies after the latest backup, %s, cannot be known: if recovery "
               "does not meet it, give an earlier one with --set",
               sl_pg_target_kind_text(r->target.kind), r->target.text, c.label);
    return 0;
}

/* One that was named must do; what cannot work is refused before anything is written. */
static int check_named(struct sl_pg_restore *r, struct sl_err *err)
{
    struct choice c = {.restore = r};
    int rc;
    if (!before_target(&r->target, &r->info)) {
        rc = sl_err_set(err, SL_ERR_USAGE, "backup %s ended at %s, after the target %s",
                        r->info.label, r->info.stop_time, r->target.text);
        sl_err_hint(err, "leave --set out: the newest backup that ended before it is taken");
        return rc;
    }
    rc = on_the_way(&c, &r->info);
    sl_pg_lineage_fini(&c.lineage);
    if (rc < 0)
        return sl_err_copy(err, &c.nested), rc;
    if (rc)
        return 0;
    sl_err_set(err, SL_ERR_USAGE, "timeline %s does not go through the end of backup %s",
               r->target.timeline, r->info.label);
    sl_err_hint(err, "leave --set out, or take --target-timeline=current");
    return SL_ERR_USAGE;
}

int sl_pg_restore_choose(struct sl_pg_restore *r, struct sl_err *err)
{
    char label[SL_LABEL_MAX];
    const char *set = sl_option_string(r->invocation->options, "set");
    bool newest = !set || !strcmp(set, "latest");
    if (!newest && !sl_label_valid(set)) {
        sl_err_set(err, SL_ERR_USAGE, "\"%.60s\" is no label of a backup", set);
        return sl_err_hint(err, "sluice info lists them; or leave out --set for the newest");
    }
    int rc = newest ? choose_newest(r, label, err) : 0;
    if (rc)
        return rc;
    if (!newest)
        snprintf(label, sizeof label, "%s", set);
    rc = sl_pg_catalog_read(r->repository.client, label, sl_pg_restore_deadline(r), &r->info, err);
    return rc || newest ? rc : check_named(r, err);
}
