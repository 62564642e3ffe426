/* Which backup an increment builds on, and what a backup leaves for the next one. */
#include "postgres/incr.h"

#include "core/base/alloc.h"
#include "core/base/log.h"
#include "postgres/backup_folder.h"
#include "postgres/backup_internal.h"
#include "postgres/catalog.h"
#include "postgres/retention.h"
#include "postgres/spool.h"

#include <stdio.h>
#include <string.h>

#define COPY_BYTES (256u * 1024)

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
    if (!c->label[0] || strcmp(sl_pg_label_stamp(info->label), sl_pg_label_stamp(c->label)) > 0)
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
    b->next_pack = sl_pg_base_last_pack(b->base);
    if (!b->invocation->json)
        printf("builds on backup %s\n", b->prior);
    fflush(stdout);
    return 0;
}

/* --- groups ------------------------------------------------------------------------------------
 */

static int write_groups(struct sl_pg_backup *b, struct sl_upload *upload, struct sl_err *err)
{
    uint8_t head[16];
    SL_CLEANUP_FREE uint8_t *buffer = sl_alloc(COPY_BYTES);
    if (!buffer)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    int rc = sl_upload_write(upload, head, sl_pg_groups_head(head), err);
    uint64_t end = sl_pg_spool_end(b->groups);
    for (uint64_t at = 0; !rc && at < end; at += COPY_BYTES) {
        size_t count = end - at < COPY_BYTES ? (size_t)(end - at) : COPY_BYTES;
        rc = sl_pg_spool_read(b->groups, at, buffer, count, err);
        if (!rc)
            rc = sl_upload_write(upload, buffer, count, err);
    }
    return rc;
}

static int publish_once(struct sl_pg_backup *b, struct sl_err *err)
{
    char name[SL_NAME_MAX];
    struct sl_upload *upload = NULL;
    struct sl_stored stored;
    snprintf(name, sizeof name, "backup/%s/groups", b->label);
    int rc = sl_upload_begin(b->repository.client, name, 0, sl_pg_backup_deadline(b), &upload, err);
    if (rc)
        return rc;
    rc = write_groups(b, upload, err);
    if (rc) {
        sl_upload_abort(upload);
        return rc;
    }
    rc = sl_upload_commit(upload, 0, sl_pg_backup_deadline(b), &stored, err);
    if (!rc)
        atomic_fetch_add(&b->stored_bytes, stored.stored_bytes);
    return rc;
}

int sl_pg_incr_publish(struct sl_pg_backup *b, struct sl_err *err)
{
    struct sl_pg_retry retry = {0};
    int rc = sl_pg_spool_flush(b->groups, err);
    if (rc)
        return rc;
    while ((rc = publish_once(b, err)) && sl_pg_try_again(&retry, rc, b->step_ms))
        sl_log_err(SL_LOG_WARN, "postgres", err, "the groups are sent again");
    return rc;
}
