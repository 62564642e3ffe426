/* Which backup an increment builds on. */
#include "postgres/incr.h"

#include "core/base/log.h"
#include "postgres/backup_internal.h"
#include "postgres/catalog.h"
#include "postgres/retention.h"

#include <stdio.h>
#include <string.h>

const char *sl_pg_backup_type(const struct sl_pg_backup *b)
{
    return b->kind == 'I' ? "incr" : b->kind == 'D' ? "diff" : "full";
}

/* --- choosing ----------------------------------------------------------------------------------
 */

struct choice {
    const struct sl_pg_backup *backup;
    bool full_only;
    char label[SL_LABEL_MAX];
    unsigned others; /* of another life of the cluster */
};

static int consider(void *arg, const struct sl_pg_backup_info *info)
{
    struct choice *c = arg;
    if (info->system_id != c->backup->server.system_id) {
        c->others++;
        return 0;
    }
    if (c->full_only && strchr(info->label, '_'))
        return 0;
    if (!c->label[0] || strcmp(sl_label_stamp(info->label), sl_label_stamp(c->label)) > 0)
        memcpy(c->label, info->label, sizeof c->label);
    return 0;
}

static void skip_broken(void *arg, const char *label, const struct sl_err *err)
{
    (void)arg;
    sl_log_err(SL_LOG_WARN, "postgres", err, "backup %s is passed over", label);
}

static void be_full(struct sl_pg_backup *b, const char *why)
{
    sl_log(SL_LOG_WARN, "postgres", "%s: this backup is a full one", why);
    b->kind = 'F';
    b->prior[0] = '\0';
}

int sl_pg_incr_choose(struct sl_pg_backup *b, struct sl_err *err)
{
    struct sl_client_info info;
    sl_client_info(b->repository.client, &info);
    b->digest_seed = info.digest_seed;
    b->prior[0] = '\0';
    if (b->kind == 'F')
        return 0;
    struct choice c = {.backup = b, .full_only = b->kind == 'D'};
    const struct sl_pg_catalog_visitor visitor = {consider, skip_broken, &c};
    int rc = sl_pg_catalog_visit(b->repository.client, &visitor, sl_pg_backup_deadline(b), err);
    if (rc)
        return rc;
    if (c.label[0])
        memcpy(b->prior, c.label, sizeof b->prior);
    else
        be_full(b, c.others ? "all backups are of the cluster before stanza-upgrade"
                            : "there is no backup to build on");
    return 0;
}

int sl_pg_incr_load(struct sl_pg_backup *b, struct sl_err *err)
{
    if (b->kind == 'F')
        return 0;
    int rc = sl_pg_base_load(b->repository.client, b->prior, b->step_ms, &b->base, err);
    if (rc)
        return sl_err_prefix(err, "backup %s, to build on", b->prior);
    if (b->next_pack < sl_pg_base_last_pack(b->base)) /* a resumed one is above already */
        b->next_pack = sl_pg_base_last_pack(b->base);
    if (!b->invocation->json)
        printf("builds on backup %s\n", b->prior);
    fflush(stdout);
    return 0;
}

/* --- WAL summaries -----------------------------------------------------------------------------
 */

static void compare_all(const char *why)
{
    sl_log(SL_LOG_INFO, "postgres", "all files are read and compared, without WAL summaries: %s",
           why);
}

/* Why they cannot be asked for, or NULL. */
static const char *unusable(const struct sl_pg_backup *b, const struct sl_pg_backup_info *prior)
{
    bool sums = json_is_true(json_object_get(prior->json, "data_checksums"));
    if (prior->timeline != b->control.timeline)
        return "the timeline is not that of the backup that it builds on";
    if (prior->start_lsn >= b->start_lsn)
        return "the backup that it builds on started later in WAL";
    if (sums != (b->control.data_checksum_version != 0)) /* pg_checksums writes no WAL */
        return "page checksums were switched on or off since";
    if (json_integer_value(json_object_get(json_object_get(prior->json, "pages"), "bad")))
        return "the backup that it builds on has damaged pages";
    if (SL_PG_GROUP_BYTES % b->control.block_bytes ||
        b->control.relation_segment_blocks % (SL_PG_GROUP_BYTES / b->control.block_bytes))
        return "the server's block or segment size is unusual";
    return NULL;
}

static int is_summarizing(struct sl_pg_backup *b, struct sl_err *err)
{
    struct sl_pg_rows *rows = NULL;
    int rc = sl_pg_db_query(b->db, "SELECT current_setting('summarize_wal')", NULL, 0,
                            sl_pg_backup_deadline(b), &rows, err);
    if (rc)
        return rc;
    const char *value = sl_pg_rows_value(rows, 0, 0);
    rc = value && !strcmp(value, "on");
    sl_pg_rows_free(rows);
    return rc;
}

static int load_summary(struct sl_pg_backup *b, const struct sl_pg_backup_info *prior,
                        struct sl_err *err)
{
    char why[SL_PG_SUMMARY_WHY] = "";
    const char *not_at_all = unusable(b, prior);
    if (not_at_all)
        return compare_all(not_at_all), 0;
    const struct sl_pg_summary_range range = {b->control.timeline,
                                              SL_PG_GROUP_BYTES / b->control.block_bytes,
                                              prior->start_lsn, b->start_lsn};
    int rc = sl_pg_summary_load(b->db, &range, b->step_ms, &b->summary, why, err);
    if (rc == SL_ERR_DB_QUERY || rc == SL_ERR_FORMAT) { /* the right to call them, say */
        compare_all(err ? err->msg : "");
        return 0;
    }
    if (!rc)
        compare_all(why);
    else if (rc == 1)
        sl_log(SL_LOG_INFO, "postgres", "only blocks that WAL summaries name are read");
    return rc < 0 ? rc : 0;
}

int sl_pg_incr_summary(struct sl_pg_backup *b, struct sl_err *err)
{
    if (!b->base || b->server.version_num < 170000)
        return 0;
    int rc = is_summarizing(b, err);
    if (rc < 0)
        return rc;
    if (!rc)
        return compare_all("summarize_wal is off"), 0;
    struct sl_pg_backup_info prior;
    rc = sl_pg_catalog_read(b->repository.client, b->prior, sl_pg_backup_deadline(b), &prior, err);
    if (rc)
        return rc;
    rc = load_summary(b, &prior, err);
    sl_pg_backup_info_fini(&prior);
    return rc;
}
