/* expire, keep and unkeep of this engine: which backups go, is core's (core/cli/expire.c). A backup
 * needs nothing but those that it builds on, and they are of its set. */
#include "core/cli/expire.h"

#include "core/base/alloc.h"
#include "core/base/log.h"
#include "mysql/catalog.h"
#include "mysql/commands.h"
#include "mysql/repository.h"

static int read_finished(struct sl_expire *e, struct sl_subject *s, struct sl_err *ret_err)
{
    struct sl_my_manifest manifest = {0};
    struct sl_err err = {0};
    int rc =
        sl_my_manifest_read(e->client, s->folder.label, sl_expire_deadline(e), &manifest, &err);
    sl_my_manifest_fini(&manifest);
    if (rc && sl_code_retryable(rc))
        return sl_err_copy(ret_err, &err);
    if (rc)
        sl_log_err(SL_LOG_WARN, "mysql", &err, "backup %s cannot be read: it stays",
                   s->folder.label);
    s->readable = !rc;
    return 0;
}

enum what { EXPIRE, KEEP, UNKEEP };

static int run(struct sl_invocation *invocation, enum what what, struct sl_err *err)
{
    static const struct sl_expire_engine engine = {.finished = read_finished};
    SL_CLEANUP_FREE struct sl_my_repository *repository = sl_calloc(1, sizeof *repository);
    if (!repository)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    sl_deadline deadline =
        sl_deadline_in_ms((uint64_t)sl_option_int(invocation->options, "timeout"));
    int rc = sl_my_repository_open(invocation, false, deadline, repository, err);
    if (rc)
        return rc;
    rc = what == EXPIRE ? sl_expire_run(invocation, repository->client, &engine, err)
                        : sl_keep_run(invocation, repository->client, what == UNKEEP, "pitr", err);
    sl_my_repository_close(repository);
    return rc;
}

int sl_my_expire(struct sl_invocation *invocation, struct sl_err *err)
{
    return run(invocation, EXPIRE, err);
}

int sl_my_keep(struct sl_invocation *invocation, struct sl_err *err)
{
    return run(invocation, KEEP, err);
}

int sl_my_unkeep(struct sl_invocation *invocation, struct sl_err *err)
{
    return run(invocation, UNKEEP, err);
}
