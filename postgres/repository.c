/* Opening the repository for a command of this engine. What lies in it is read elsewhere
 * (catalog.c: backups, wal_archive.c: WAL). */
#include "postgres/repository.h"

#include "core/base/alloc.h"
#include "postgres/signals.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRIES_MAX 5

int sl_pg_repository_stanza(struct sl_pg_repository *repository, sl_deadline deadline,
                            struct sl_err *err)
{
    int rc = sl_lives_read(repository->client, SL_PG_ENGINE, deadline, &repository->stanza, err);
    if (rc <= 0)
        return rc;
    const char *id = repository->stanza.lives[repository->stanza.life_count - 1].id;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(id, &end, 10);
    if (errno || *end || !value || id[0] < '0' || id[0] > '9')
        return sl_err_set(err, SL_ERR_REPO, "stanza.json has the system identifier \"%s\"", id);
    repository->system_id = value;
    return 1;
}

int sl_pg_repository_open(const struct sl_invocation *invocation, bool create, bool short_lived,
                          sl_deadline deadline, struct sl_pg_repository *ret_repository,
                          struct sl_err *err)
{
    struct sl_pg_repository r = {0};
    const struct sl_connect_options options = {
        .create_repository = create, .short_lived = short_lived, .stanza = invocation->stanza};
    int rc = sl_connection_open(invocation, &options, deadline, &r.connection, err);
    if (rc)
        return rc;
    r.client = sl_connection_client(r.connection);
    sl_pg_signals_client(r.client);
    rc = sl_pg_repository_stanza(&r, deadline, err);
    if (!rc && !create)
        rc = sl_lives_missing(invocation->stanza, err);
    if (rc < 0) {
        sl_pg_repository_close(&r);
        return rc;
    }
    *ret_repository = r;
    return 0;
}

void sl_pg_repository_close(struct sl_pg_repository *repository)
{
    sl_pg_signals_client(NULL);
    sl_connection_close(repository->connection);
    repository->connection = NULL;
    repository->client = NULL;
}

int sl_pg_repository_check(const struct sl_pg_repository *repository, uint64_t system_id,
                           const char *what, struct sl_err *err)
{
    if (system_id == repository->system_id)
        return 0;
    sl_err_set(err, SL_ERR_MISMATCH, "%s has system identifier %llu, the stanza %llu", what,
               (unsigned long long)system_id, (unsigned long long)repository->system_id);
    sl_err_hint(err, "is this the right stanza for this server? After pg_upgrade: sluice "
                     "stanza-upgrade");
    return SL_ERR_MISMATCH;
}

bool sl_pg_try_again(struct sl_pg_retry *retry, int code, uint64_t within_ms)
{
    if (!sl_code_retryable(code) || sl_pg_signals_caught())
        return false;
    if (!retry->attempts++)
        retry->until = sl_deadline_in_ms(within_ms);
    return retry->attempts <= RETRIES_MAX && !sl_deadline_passed(retry->until);
}
