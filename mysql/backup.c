/* backup: the order of things. What makes a backup count is told in backup_internal.h. */
#include "core/base/alloc.h"
#include "core/base/progress.h"
#include "mysql/backup_internal.h"
#include "mysql/commands.h"

#include <inttypes.h>
#include <stdio.h>

static int report(struct sl_my_backup *b, struct sl_err *err)
{
    struct sl_invocation *invocation = b->invocation;
    const struct sl_my_coordinates *c = &b->coordinates;
    char size[16], summary[256];
    if (!invocation->json) {
        sl_progress_summary(invocation->progress, summary, sizeof summary);
        printf("backup %s is complete: %" PRIu64 " files, %s%s%s; %s\n", b->label, b->totals.files,
               sl_bytes_text(b->totals.bytes, size, sizeof size),
               b->kind == 'F' ? "" : ", builds on ", b->kind == 'F' ? "" : b->base.label, summary);
        if (c->binlog_file[0])
            printf("binlog %s, position %" PRIu64 "%s%.200s\n", c->binlog_file, c->binlog_position,
                   c->gtid[0] ? ", GTID " : "", c->gtid);
    }
    json_t *all =
        json_pack("{s:s, s:s, s:I, s:I}", "stanza", invocation->stanza, "label", b->label, "bytes",
                  (json_int_t)b->totals.bytes, "stored_bytes", (json_int_t)b->stored_bytes);
    if (all)
        json_object_set_new(all, "type", json_string(sl_my_backup_type(b)));
    int bad = !all || json_object_update(invocation->result, all);
    json_decref(all);
    return bad ? sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for the result") : 0;
}

static int back_up(struct sl_my_backup *b, struct sl_err *err)
{
    int rc = sl_my_repository_check(&b->repository, b->server.id, b->invocation->stanza, err);
    if (!rc)
        rc = sl_my_backup_choose(b, err);
    if (!rc)
        rc = sl_my_backup_open(b, err);
    if (rc)
        return rc;
    rc = sl_my_backup_stream(b, err);
    if (!rc)
        rc = sl_my_backup_publish(b, err);
    return rc ? sl_err_prefix(err, "there is no backup") : report(b, err);
}

int sl_my_backup(struct sl_invocation *invocation, struct sl_err *err)
{
    struct sl_my_backup *b = sl_calloc(1, sizeof *b);
    if (!b)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    b->invocation = invocation;
    b->timeout_ms = (unsigned)sl_option_int(invocation->options, "timeout");
    sl_deadline deadline = sl_deadline_in_ms(b->timeout_ms);
    int rc = sl_option_bool(invocation->options, "dry-run")
                 ? sl_err_set(err, SL_ERR_USAGE, "backup has no --dry-run")
                 : 0;
    if (!rc)
        rc = sl_my_server_ask(invocation->options, deadline, &b->server, err);
    if (!rc)
        rc = sl_my_repository_open(invocation, false, deadline, &b->repository, err);
    if (!rc) {
        rc = back_up(b, err);
        sl_my_repository_close(&b->repository);
    }
    sl_my_manifest_fini(&b->base);
    sl_free(b);
    return rc;
}
