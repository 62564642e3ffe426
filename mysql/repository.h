/* The repository as the commands of this engine see it: an open client, and whose stanza it is. */
#ifndef SL_MYSQL_REPOSITORY_H
#define SL_MYSQL_REPOSITORY_H

#include "core/cli/connect.h"
#include "core/cli/lives.h"
#include "core/repo/manifest.h"

#define SL_MY_ENGINE "mysql"

struct sl_my_repository {
    struct sl_connection *connection;
    struct sl_client *client;
    struct sl_stanza stanza; /* life_count is 0 when there is none yet */
};

/* With `create` the repository is made if need be and the stanza may be missing; otherwise a
 * missing one is SL_ERR_NOT_FOUND. One of another engine is SL_ERR_MISMATCH. */
int sl_my_repository_open(const struct sl_invocation *invocation, bool create, sl_deadline deadline,
                          struct sl_my_repository *ret_repository, struct sl_err *err);
void sl_my_repository_close(struct sl_my_repository *repository);
/* SL_ERR_MISMATCH unless `id` is that of the stanza's current life. */
int sl_my_repository_check(const struct sl_my_repository *repository, const char *id,
                           const char *stanza, struct sl_err *err);

#endif
