/* keep and unkeep: a backup that stays whatever the policy says. */
#include "core/cli/expire.h"

#include <stdio.h>
#include <string.h>

static int check_label(const char *label, struct sl_err *err)
{
    return sl_label_valid(label)
               ? 0
               : sl_err_set(err, SL_ERR_USAGE, "\"%.60s\" is no label of a backup", label);
}

/* Published first, then looked whether expire was faster: as expire does it the other way round. */
static int keep(struct sl_client *client, const char *label, const char *wal, sl_deadline deadline,
                struct sl_err *err)
{
    char name[SL_NAME_MAX], text[100];
    struct sl_object_info info;
    struct sl_stored stored;
    snprintf(name, sizeof name, "backup/%s/manifest", label);
    int rc = sl_client_stat(client, name, deadline, &info, err);
    if (rc <= 0)
        return rc ? rc : sl_err_set(err, SL_ERR_NOT_FOUND, "there is no backup \"%s\"", label);
    snprintf(name, sizeof name, "backup/%s/expired", label);
    rc = sl_client_stat(client, name, deadline, &info, err);
    snprintf(name, sizeof name, "backup/%s/keep", label);
    snprintf(text, sizeof text, "{\"version\":1,\"wal\":\"%s\"}\n", wal);
    if (rc == 0)
        rc = sl_client_put(client, name, text, strlen(text), deadline, &stored, err);
    if (rc == SL_ERR_EXISTS)
        sl_err_hint(err, "it is kept with the other --keep-wal: unkeep it first");
    if (rc == 0) {
        snprintf(name, sizeof name, "backup/%s/expired", label);
        rc = sl_client_stat(client, name, deadline, &info, err);
    }
    if (rc != 1)
        return rc;
    return sl_err_set(err, SL_ERR_NOT_FOUND, "expire has marked backup \"%s\" for removal already",
                      label);
}

int sl_keep_run(const struct sl_invocation *invocation, struct sl_client *client, bool undo,
                const char *wal, struct sl_err *err)
{
    const char *label = invocation->args[0];
    uint64_t step_ms = (uint64_t)sl_option_int(invocation->options, "timeout");
    int rc = check_label(label, err);
    if (!rc && undo) {
        char name[SL_NAME_MAX];
        snprintf(name, sizeof name, "backup/%s/keep", label);
        rc = sl_client_remove(client, name, sl_deadline_in_ms(step_ms), err);
    } else if (!rc) {
        rc = keep(client, label, wal, sl_deadline_in_ms(step_ms), err);
    }
    if (!rc && !invocation->json)
        printf("backup %s %s\n", label,
               undo ? "is not kept any more: the policy decides" : "is kept until unkeep");
    json_object_set_new(invocation->result, "label", json_string(label));
    json_object_set_new(invocation->result, "keep", json_boolean(!rc && !undo));
    return rc;
}
