/* Opening the repository for a command of this engine, and its stanza. */
#include "mysql/repository.h"

#include "core/base/alloc.h"

#include <stdio.h>
#include <string.h>

#define STANZA_JSON_MAX (64u * 1024)

/* 1, 0 when there is none of this number, or a code. docs/repository.md has the numbering. */
static int read_list(struct sl_my_repository *r, uint32_t number, sl_deadline deadline,
                     struct sl_err *err)
{
    SL_CLEANUP_FREE char *json = NULL;
    size_t count = 0;
    char name[32] = "stanza.json";
    if (number > 1)
        snprintf(name, sizeof name, "stanza-%u.json", number);
    int rc = sl_client_fetch(r->client, name, STANZA_JSON_MAX, deadline, &json, &count, err);
    if (rc == SL_ERR_NOT_FOUND)
        return 0;
    if (!rc)
        rc = sl_stanza_decode(json, count, &r->stanza, err);
    return rc ? rc : 1;
}

static int read_stanza(struct sl_my_repository *r, sl_deadline deadline, struct sl_err *err)
{
    int rc = 1;
    for (uint32_t number = 1; rc == 1 && number <= SL_LIVES_MAX; number++)
        rc = read_list(r, number, deadline, err);
    if (rc < 0)
        return rc;
    if (r->stanza.life_count && strcmp(r->stanza.engine, SL_MY_ENGINE) != 0)
        return sl_err_set(err, SL_ERR_MISMATCH, "the stanza is one of engine \"%s\"",
                          r->stanza.engine);
    return 0;
}

int sl_my_repository_open(const struct sl_invocation *invocation, bool create, sl_deadline deadline,
                          struct sl_my_repository *ret_repository, struct sl_err *err)
{
    struct sl_my_repository *r = ret_repository;
    const struct sl_connect_options options = {.create_repository = create};
    memset(r, 0, sizeof *r);
    int rc = sl_connection_open(invocation, &options, deadline, &r->connection, err);
    if (rc)
        return rc;
    r->client = sl_connection_client(r->connection);
    rc = read_stanza(r, deadline, err);
    if (!rc && !create && !r->stanza.life_count) {
        rc = sl_err_set(err, SL_ERR_NOT_FOUND, "stanza \"%s\" is not in the repository",
                        invocation->stanza);
        sl_err_hint(err, "run: sluice --stanza=%s stanza-create", invocation->stanza);
    }
    if (rc)
        sl_my_repository_close(r);
    return rc;
}

void sl_my_repository_close(struct sl_my_repository *repository)
{
    sl_connection_close(repository->connection);
    repository->connection = NULL;
    repository->client = NULL;
}

int sl_my_repository_check(const struct sl_my_repository *repository, const char *id,
                           const char *stanza, struct sl_err *err)
{
    const struct sl_stanza *s = &repository->stanza;
    const struct sl_stanza_life *life = &s->lives[s->life_count - 1];
    if (strcmp(life->id, id) == 0)
        return 0;
    sl_err_set(err, SL_ERR_MISMATCH, "stanza \"%s\" is of server %s (%s), not of %s", stanza,
               life->id, life->version, id);
    return sl_err_hint(err, "another server needs a stanza of another name");
}
