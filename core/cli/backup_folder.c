/* The parts of a backup's folder, by listing; leases. What is done about them is decided elsewhere
 * (expire.c, keep.c, restore.c). */
#include "core/cli/backup_folder.h"

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/log.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SMALL_MAX 65536u

uint64_t sl_target_wall_ns(struct sl_client *client)
{
    struct sl_client_info info;
    sl_client_info(client, &info);
    return sl_wall_ns() + (uint64_t)(info.clock_skew_ms * (int64_t)SL_NS_PER_MS);
}

struct reading {
    struct sl_client *client;
    struct sl_folder *folder;
    uint64_t now_ns;
    sl_deadline deadline;
    struct sl_err nested; /* a failure inside of a visit */
};

/* 1 and when it was stored, 0 when it is not there any more, or a code. */
static int stored_at(struct reading *r, const char *name, uint64_t *ret_ns)
{
    char object[SL_NAME_MAX + 300];
    struct sl_object_info info;
    snprintf(object, sizeof object, "backup/%s/%s", r->folder->label, name);
    int rc = sl_client_stat(r->client, object, r->deadline, &info, &r->nested);
    if (rc == 1)
        *ret_ns = info.created_ns;
    return rc;
}

/* One that cannot be read keeps as much as one can. */
static int read_keep(struct reading *r)
{
    char object[SL_NAME_MAX];
    SL_CLEANUP_FREE char *text = NULL;
    size_t count;
    struct sl_err err;
    snprintf(object, sizeof object, "backup/%s/keep", r->folder->label);
    int rc = sl_client_fetch(r->client, object, SMALL_MAX, r->deadline, &text, &count, &err);
    if (rc && sl_code_retryable(rc)) {
        sl_err_copy(&r->nested, &err);
        return rc;
    }
    if (rc == SL_ERR_NOT_FOUND)
        return 0;
    json_t *json = rc ? NULL : json_loads(text, 0, NULL);
    const char *wal = json_string_value(json_object_get(json, "wal"));
    r->folder->keep = wal && !strcmp(wal, "standalone") ? SL_KEEP_STANDALONE : SL_KEEP_PITR;
    json_decref(json);
    return 0;
}

static int visit_lease(struct reading *r, const char *name)
{
    uint64_t at = 0;
    int rc = stored_at(r, name, &at);
    if (rc == 1 && at + SL_LEASE_NS > r->now_ns)
        r->folder->leases++;
    return rc < 0 ? rc : 0;
}

/* In order of the number in the name. */
static void later(char last[256], const char *name)
{
    size_t length = strlen(name), before = strlen(last);
    if (length > before || (length == before && strcmp(name, last) > 0))
        snprintf(last, 256, "%s", name);
}

static int visit_part(void *arg, const struct sl_entry *entry)
{
    struct reading *r = arg;
    struct sl_folder *f = r->folder;
    const char *name = entry->name;
    int rc = 0;
    f->objects++;
    if (!strcmp(name, "manifest"))
        f->manifest = true;
    else if (!strcmp(name, "open") || !strncmp(name, "open-", 5))
        f->open |= !name[4], later(f->last_open, name);
    else if (!strcmp(name, "keep"))
        rc = read_keep(r);
    else if (!strcmp(name, "expired"))
        f->marked = (rc = stored_at(r, name, &f->marked_ns)) == 1;
    else if (!strncmp(name, SL_LEASE_PREFIX, strlen(SL_LEASE_PREFIX)))
        rc = visit_lease(r, name);
    else if (!strncmp(name, "pack-", 5))
        later(f->last_pack, name);
    return rc < 0 ? rc : 0;
}

int sl_folder_read(struct sl_client *client, const char *label, uint64_t now_ns,
                   sl_deadline deadline, struct sl_folder *ret_folder, struct sl_err *err)
{
    struct sl_folder folder = {0};
    struct reading r = {
        .client = client, .folder = &folder, .now_ns = now_ns, .deadline = deadline};
    char path[SL_NAME_MAX];
    snprintf(folder.label, sizeof folder.label, "%s", label);
    snprintf(path, sizeof path, "backup/%s", label);
    int rc = sl_client_list(client, path, "", visit_part, &r, deadline, err);
    const char *last[] = {folder.last_open, folder.last_pack};
    for (size_t i = 0; rc == 0 && !folder.manifest && i < 2; i++) {
        uint64_t at = 0;
        if (!*last[i])
            continue;
        rc = stored_at(&r, last[i], &at);
        if (at > folder.newest_ns)
            folder.newest_ns = at;
        rc = rc < 0 ? rc : 0;
    }
    if (rc) {
        if (r.nested.code == rc)
            sl_err_copy(err, &r.nested);
        return rc;
    }
    *ret_folder = folder;
    return 0;
}

int sl_folder_gone(struct sl_client *client, const char *label, sl_deadline deadline,
                   struct sl_err *err)
{
    char object[SL_NAME_MAX];
    struct sl_object_info info;
    snprintf(object, sizeof object, "backup/%s/expired", label);
    int rc = sl_client_stat(client, object, deadline, &info, err);
    if (rc != 1)
        return rc;
    snprintf(object, sizeof object, "backup/%s/keep", label);
    rc = sl_client_stat(client, object, deadline, &info, err);
    return rc < 0 ? rc : !rc;
}

/* --- labels ------------------------------------------------------------------------------------
 */

struct labels {
    int (*visit)(void *arg, const char *label);
    void *arg;
};

static int visit_entry(void *arg, const struct sl_entry *entry)
{
    const struct labels *labels = arg;
    if (!entry->is_folder || !sl_label_valid(entry->name))
        return 0;
    return labels->visit(labels->arg, entry->name);
}

int sl_folder_labels(struct sl_client *client, int (*visit)(void *arg, const char *label),
                     void *arg, sl_deadline deadline, struct sl_err *err)
{
    struct labels labels = {visit, arg};
    return sl_client_list(client, "backup", "", visit_entry, &labels, deadline, err);
}

/* --- leases ------------------------------------------------------------------------------------
 */

int sl_lease_begin(struct sl_client *client, const char *label, const char *purpose,
                   sl_deadline deadline, char ret_name[SL_NAME_MAX], struct sl_err *err)
{
    char host[65] = "", now[40], text[300];
    gethostname(host, sizeof host - 1);
    sl_wall_text(sl_wall_ns(), now, sizeof now);
    snprintf(ret_name, SL_NAME_MAX, "backup/%s/" SL_LEASE_PREFIX "%s-%d-%llx", label, purpose,
             (int)getpid(), (unsigned long long)sl_wall_ns());
    snprintf(text, sizeof text, "{\"version\":1,\"purpose\":\"%s\",\"since\":\"%s\"}\n", purpose,
             now);
    struct sl_stored stored;
    int rc = sl_client_put(client, ret_name, text, strlen(text), deadline, &stored, err);
    if (rc)
        return rc;
    rc = sl_folder_gone(client, label, deadline, err);
    if (rc == 0)
        return 0;
    sl_lease_end(client, ret_name, deadline);
    if (rc < 0)
        return rc;
    return sl_err_set(err, SL_ERR_NOT_FOUND, "backup \"%s\" is being removed by expire", label);
}

void sl_lease_end(struct sl_client *client, const char *name, sl_deadline deadline)
{
    struct sl_err err = {0};
    if (*name && sl_client_remove(client, name, deadline, &err) != 0)
        sl_log_err(SL_LOG_DETAIL, "cli", &err, "a lease stays until it ends by itself");
}
