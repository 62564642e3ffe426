/* The repository as the commands of this engine see it: an open client, and whose stanza it is.
 */
#ifndef SL_POSTGRES_REPOSITORY_H
#define SL_POSTGRES_REPOSITORY_H

#include "core/cli/connect.h"
#include "core/cli/lives.h"
#include "core/repo/manifest.h"

#define SL_PG_ENGINE "postgres"

struct sl_pg_repository {
    struct sl_connection *connection;
    struct sl_client *client; /* borrows from connection; signals cancel it */
    struct sl_stanza stanza;  /* life_count is 0 when there is none yet */
    uint64_t system_id;       /* of the current life */
};

/* Connects and reads stanza.json. With `create` the repository is made if need be and the stanza
 * may be missing; otherwise a missing one is SL_ERR_NOT_FOUND with a hint. On failure nothing
 * remains open. */
int sl_pg_repository_open(const struct sl_invocation *invocation, bool create, bool short_lived,
                          sl_deadline deadline, struct sl_pg_repository *ret_repository,
                          struct sl_err *err);
void sl_pg_repository_close(struct sl_pg_repository *repository);

/* Reads stanza.json and what stanza-upgrade added: 1 and sets stanza and system_id, 0 when there is
 * none, or a code. */
int sl_pg_repository_stanza(struct sl_pg_repository *repository, sl_deadline deadline,
                            struct sl_err *err);
/* SL_ERR_MISMATCH unless `system_id` is the stanza's current one; `what` is said to have it. */
int sl_pg_repository_check(const struct sl_pg_repository *repository, uint64_t system_id,
                           const char *what, struct sl_err *err);

/* Doing over what a lost session took with it: the client begins a new session by itself, the
 * caller does its step again. Begins zeroed. */
struct sl_pg_retry {
    unsigned attempts;
    sl_deadline until;
};
/* After a failure with `code`: shall the step be tried again? Not when that is senseless, when a
 * signal came, when `within_ms` have passed since the first failure, or after five times. */
bool sl_pg_try_again(struct sl_pg_retry *retry, int code, uint64_t within_ms);

#endif
