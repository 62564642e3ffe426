/* keep and unkeep: a backup that stays whatever the policy says, and how much WAL with it. What is
 * done is core's (core/cli/keep.c). */
#include "core/cli/expire.h"
#include "postgres/commands.h"
#include "postgres/repository.h"
#include "postgres/signals.h"

static int run(struct sl_invocation *invocation, bool undo, struct sl_err *err)
{
    struct sl_pg_repository repository;
    uint64_t step_ms = (uint64_t)sl_option_int(invocation->options, "timeout");
    sl_pg_signals_install(sl_code_exit(SL_ERR_CANCELLED), 0);
    int rc = sl_pg_repository_open(invocation, false, false, sl_deadline_in_ms(step_ms),
                                   &repository, err);
    if (rc)
        return rc;
    rc = sl_keep_run(invocation, repository.client, undo,
                     undo ? NULL : sl_option_string(invocation->options, "keep-wal"), err);
    sl_pg_repository_close(&repository);
    return rc;
}

int sl_pg_keep(struct sl_invocation *invocation, struct sl_err *err)
{
    return run(invocation, false, err);
}

int sl_pg_unkeep(struct sl_invocation *invocation, struct sl_err *err)
{
    return run(invocation, true, err);
}
