/* A backup that was broken off goes on under its label: its packs stay where they are, in its own
 * folder, so that nothing outside of it ever refers to a backup that was not finished.
 *
 * Every file is read again. What is the same, group by group, as what a pack of an earlier attempt
 * has of it is not sent again; so the content is that of this attempt's reading, and the rules of
 * consistency are those of any backup.
 *
 * Who resumes publishes "open-2" (3, …): of two that want to only one can. Should the earlier
 * writer still be alive, in spite of what is known here, neither harms the other: packs have
 * numbers of another thousand, and only the first manifest is one. Numbers are rounded up also
 * because a pack may still appear that was being published when its writer died. */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/cli/backup_folder.h"
#include "postgres/backup_internal.h"
#include "postgres/retention.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPEN_MAX_BYTES  65536u
#define QUIET_NS        (3600ull * SL_NS_PER_S) /* a writer elsewhere that stores nothing is dead */
#define PACKS_A_ATTEMPT 1000u
#define ATTEMPTS_MAX    100u

static const char *text_at(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    return text ? text : "";
}

/* Of the same cluster, timeline and kind, on the same backup. */
static bool is_ours(const struct sl_pg_backup *b, const json_t *open)
{
    const char *prior = json_string_value(json_array_get(json_object_get(open, "references"), 0));
    return !strcmp(text_at(open, "engine"), SL_PG_ENGINE) &&
           strtoull(text_at(open, "system_id"), NULL, 10) == b->control.system_id &&
           json_integer_value(json_object_get(open, "timeline")) == b->control.timeline &&
           !strcmp(text_at(open, "type"), sl_pg_backup_type(b)) &&
           !strcmp(prior ? prior : "", b->prior);
}

/* On this host the process tells; a process of another one is known by what it stores only. */
static bool is_dead(const struct sl_folder *folder, const json_t *open, uint64_t now_ns)
{
    char host[65] = "";
    gethostname(host, sizeof host - 1);
    json_int_t pid = json_integer_value(json_object_get(open, "pid"));
    if (!strcmp(text_at(open, "host"), host) && pid > 0 && pid <= INT32_MAX)
        return pid != getpid() && kill((pid_t)pid, 0) && errno == ESRCH;
    return folder->newest_ns + QUIET_NS < now_ns;
}

/* Is it one to go on with? 1, 0 or a code. */
static int judge(struct sl_pg_backup *b, const struct sl_folder *folder, struct sl_err *err)
{
    char name[2 * SL_NAME_MAX];
    SL_CLEANUP_FREE char *text = NULL;
    size_t count;
    if (!folder->open || !folder->last_pack[0] || folder->manifest || folder->marked)
        return 0;
    snprintf(name, sizeof name, "backup/%s/%s", folder->label, folder->last_open);
    int rc = sl_client_fetch(b->repository.client, name, OPEN_MAX_BYTES, sl_pg_backup_deadline(b),
                             &text, &count, err);
    if (rc)
        return sl_code_retryable(rc) ? rc : 0;
    json_t *open = json_loads(text, 0, NULL);
    bool yes = is_ours(b, open) && is_dead(folder, open, sl_target_wall_ns(b->repository.client));
    json_decref(open);
    return yes;
}

static int claim(struct sl_pg_backup *b, const struct sl_folder *folder, struct sl_err *err)
{
    char open[32];
    unsigned long before = folder->last_open[4] ? strtoul(folder->last_open + 5, NULL, 10) : 1;
    unsigned long pack = strtoul(folder->last_pack + 5, NULL, 10);
    if (before < 1 || before >= ATTEMPTS_MAX || pack > UINT32_MAX - 2 * PACKS_A_ATTEMPT)
        return 0;
    snprintf(open, sizeof open, "open-%lu", before + 1);
    snprintf(b->label, sizeof b->label, "%s", folder->label);
    int rc = sl_pg_backup_put_open(b, open, err);
    if (rc == SL_ERR_EXISTS)
        return 0; /* another one was faster */
    if (!rc)      /* published first, then looked: expire marks first and then looks */
        rc = sl_folder_gone(b->repository.client, b->label, sl_pg_backup_deadline(b), err);
    if (rc)
        return rc == 1 ? 0 : rc;
    b->attempt = (unsigned)before + 1;
    b->next_pack = (uint32_t)(pack / PACKS_A_ATTEMPT + 1) * PACKS_A_ATTEMPT;
    b->first_pack = b->next_pack + 1;
    return 1;
}

int sl_pg_resume_claim(struct sl_pg_backup *b, const char *label, struct sl_err *err)
{
    struct sl_folder folder;
    size_t length = strlen(label);
    struct sl_client *client = b->repository.client;
    /* the newest of its set: what is newer than a broken-off one makes it worthless */
    if (!length || label[length - 1] != b->kind)
        return 0;
    int rc = sl_folder_read(client, label, sl_target_wall_ns(client), sl_pg_backup_deadline(b),
                            &folder, err);
    if (!rc)
        rc = judge(b, &folder, err);
    return rc == 1 ? claim(b, &folder, err) : rc;
}

int sl_pg_resume_load(struct sl_pg_backup *b, struct sl_err *err)
{
    if (b->attempt < 2)
        return 0;
    int rc = sl_pg_base_load_packs(b->repository.client, b->label, b->step_ms, &b->broken, err);
    if (rc)
        return sl_err_prefix(err, "backup %s, which was broken off", b->label);
    const struct sl_manifest_pack *packs;
    const bool *used;
    size_t count = sl_pg_base_packs(b->broken, &packs, &used);
    sl_log(SL_LOG_WARN, "postgres",
           "backup %s was broken off and is resumed: what its %zu packs have is not sent again",
           b->label, count);
    return 0;
}
