/* What an incremental or differential backup builds on: by the tool's own LSN. */
#include "core/base/log.h"
#include "mysql/backup_internal.h"

#include <string.h>

const char *sl_my_backup_type(const struct sl_my_backup *b)
{
    return b->kind == 'F' ? "full" : b->kind == 'D' ? "diff" : "incr";
}

/* 1 when it will do, 0 and why not in `err`, or a code. */
static int suits(struct sl_my_backup *b, const char *label, struct sl_err *err)
{
    struct sl_client *client = b->repository.client;
    int rc = sl_my_is_there(client, label, sl_my_backup_deadline(b), err);
    if (rc == 1)
        rc = sl_my_manifest_read(client, label, sl_my_backup_deadline(b), &b->base, err);
    else if (!rc)
        return 0;
    if (rc)
        return sl_code_retryable(rc) ? rc : 0;
    const char *server = sl_my_manifest_text(&b->base, "server_id");
    b->base_lsn = sl_my_manifest_number(&b->base, "to_lsn");
    if (strcmp(server, b->server.id) != 0)
        sl_err_set(err, SL_ERR_MISMATCH, "backup %s is of another server, %s", label, server);
    else if (json_is_true(json_object_get(b->base.header, "partial")) || !b->base_lsn)
        sl_err_set(err, SL_ERR_MISMATCH, "backup %s is partial", label);
    else
        return 1;
    sl_my_manifest_fini(&b->base);
    return 0;
}

static int find(struct sl_my_backup *b, bool full, struct sl_err *err)
{
    json_t *labels = NULL;
    struct sl_err why = {0};
    int found = 0;
    int rc = sl_my_labels(b->repository.client, sl_my_backup_deadline(b), &labels, err);
    for (size_t i = json_array_size(labels); !rc && !found && i-- > 0;) {
        const char *label = json_string_value(json_array_get(labels, i));
        if (full && strchr(label, '_'))
            continue;
        found = suits(b, label, &why);
        rc = found < 0 ? sl_err_copy(err, &why) : 0;
    }
    json_decref(labels);
    if (!rc && !found)
        sl_log(SL_LOG_WARN, "mysql", "there is nothing to build on%s%s: this backup is a full one",
               why.code ? ": " : "", why.code ? why.msg : "");
    return rc ? rc : found;
}

int sl_my_backup_choose(struct sl_my_backup *b, struct sl_err *err)
{
    const char *type = sl_option_string(b->invocation->options, "type");
    b->kind = 'F';
    if (strcmp(type, "full") == 0)
        return 0;
    bool diff = strcmp(type, "diff") == 0;
    int rc = find(b, diff, err);
    if (rc == 1)
        b->kind = diff ? 'D' : 'I';
    return rc < 0 ? rc : 0;
}
