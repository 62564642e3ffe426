/* Opening the repository for a command of this engine. What lies in it is read elsewhere
 * (catalog.c: backups, wal_archive.c: WAL). */
#include "postgres/repository.h"

#include "core/base/alloc.h"
#include "postgres/signals.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STANZA_JSON_MAX (256u * 1024)
#define RETRIES_MAX     5

static int take_stanza(struct sl_pg_repository *r, const char *json, size_t count,
                       struct sl_err *err)
{
    int rc = sl_stanza_decode(json, count, &r->stanza, err);
    if (rc)
        return rc;
    if (strcmp(r->stanza.engine, SL_PG_ENGINE))
        return sl_err_set(err, SL_ERR_MISMATCH, "the stanza is one of engine \"%s\"",
                          r->stanza.engine);
    if (!r->stanza.life_count)
        return sl_err_set(err, SL_ERR_REPO, "stanza.json names no system identifier");
    const char *id = r->stanza.lives[r->stanza.life_count - 1].id;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(id, &end, 10);
    if (errno || *end || !value || id[0] < '0' || id[0] > '9')
        return sl_err_set(err, SL_ERR_REPO, "stanza.json has the system identifier \"%s\"", id);
    r->system_id = value;
    return 0;
}

void sl_pg_stanza_object(uint32_t number, char name[SL_PG_STANZA_NAME])
{
    if (number < 2)
        snprintf(name, SL_PG_STANZA_NAME, SL_PG_STANZA_OBJECT);
    else
        snprintf(name, SL_PG_STANZA_NAME, "stanza-%u.json", number);
}

/* 1, 0 when there is none of this number, or a code. */
static int read_stanza(struct sl_pg_repository *repository, uint32_t number, sl_deadline deadline,
                       struct sl_err *err)
{
    SL_CLEANUP_FREE char *json = NULL;
    size_t count = 0;
    char name[SL_PG_STANZA_NAME];
    sl_pg_stanza_object(number, name);
    int rc =
        sl_client_fetch(repository->client, name, STANZA_JSON_MAX, deadline, &json, &count, err);
    if (rc == SL_ERR_NOT_FOUND)
        return 0;
    if (!rc)
        rc = take_stanza(repository, json, count, err);
    return rc ? rc : 1;
}

/* stanza-upgrade adds lists of lives, one life longer each: the last one counts. */
int sl_pg_repository_stanza(struct sl_pg_repository *repository, sl_deadline deadline,
                            struct sl_err *err)
{
    int rc = read_stanza(repository, 1, deadline, err), first = rc;
    for (uint32_t number = 2; rc == 1 && number <= SL_LIVES_MAX; number++)
        rc = read_stanza(repository, number, deadline, err);
    return rc < 0 ? rc : first;
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
    if (!rc && !create) {
        rc = sl_err_set(err, SL_ERR_NOT_FOUND, "stanza \"%s\" is not in the repository",
                        invocation->stanza);
        sl_err_hint(err, "run: sluice --stanza=%s stanza-create", invocation->stanza);
    }
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

bool sl_pg_stanza_has(const struct sl_stanza *stanza, const char *system_id)
{
    for (uint32_t i = 0; i < stanza->life_count; i++)
        if (!strcmp(stanza->lives[i].id, system_id))
            return true;
    return false;
}

bool sl_pg_try_again(struct sl_pg_retry *retry, int code, uint64_t within_ms)
{
    if (!sl_code_retryable(code) || sl_pg_signals_caught())
        return false;
    if (!retry->attempts++)
        retry->until = sl_deadline_in_ms(within_ms);
    return retry->attempts <= RETRIES_MAX && !sl_deadline_passed(retry->until);
}
