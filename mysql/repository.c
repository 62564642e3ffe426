/* Opening the repository for a command of this engine, and its stanza. */
#include "mysql/repository.h"

#include <string.h>

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
    rc = sl_lives_read(r->client, SL_MY_ENGINE, deadline, &r->stanza, err);
    if (!rc && !create)
        rc = sl_lives_missing(invocation->stanza, err);
    if (rc > 0)
        rc = 0;
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
    return sl_err_hint(err,
                       "another server needs a stanza of another name; if it has taken this "
                       "one's place, run: sluice --stanza=%s stanza-upgrade",
                       stanza);
}
