/* The lease of a restore that takes long: made anew long before it ends, so that expire never takes
 * the backup for one that nobody reads. What a lease is, is backup_folder.h's. */
#include "core/base/clock.h"
#include "core/base/fault.h"
#include "core/base/log.h"
#include "core/cli/backup_folder.h"
#include "postgres/restore_internal.h"

#include <string.h>

#define RENEW_NS (SL_LEASE_NS / 7)
#define AGAIN_NS (600 * SL_NS_PER_S) /* after a failure */

int sl_pg_restore_lease(struct sl_pg_restore *r, struct sl_err *err)
{
    int rc = sl_lease_begin(r->repository.client, r->info.label, "restore",
                            sl_pg_restore_deadline(r), r->lease, err);
    r->renew_at_ns = sl_now_ns() + RENEW_NS;
    return rc;
}

/* Of the threads that ask, one renews. */
static bool is_due(struct sl_pg_restore *r)
{
    pthread_mutex_lock(&r->lock);
    bool due = !r->renewing && (sl_now_ns() >= r->renew_at_ns || sl_fault("pg.lease_due"));
    r->renewing |= due;
    pthread_mutex_unlock(&r->lock);
    return due;
}

int sl_pg_restore_stay(struct sl_pg_restore *r, struct sl_err *err)
{
    char fresh[SL_NAME_MAX];
    if (!is_due(r))
        return 0;
    int rc = sl_lease_begin(r->repository.client, r->info.label, "restore",
                            sl_pg_restore_deadline(r), fresh, err);
    if (!rc) {
        sl_lease_end(r->repository.client, r->lease, sl_pg_restore_deadline(r));
        memcpy(r->lease, fresh, sizeof r->lease);
        sl_log(SL_LOG_DETAIL, "postgres", "the lease on backup %s is renewed", r->info.label);
    } else if (rc != SL_ERR_NOT_FOUND) { /* that one: it is being removed */
        sl_log_err(SL_LOG_WARN, "postgres", err, "the lease on backup %s is not renewed yet",
                   r->info.label);
    }
    pthread_mutex_lock(&r->lock);
    r->renew_at_ns = sl_now_ns() + (rc ? AGAIN_NS : RENEW_NS);
    r->renewing = false;
    pthread_mutex_unlock(&r->lock);
    return rc == SL_ERR_NOT_FOUND ? rc : 0;
}
