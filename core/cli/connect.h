/* From options to an open client: what every command that talks to a target calls.
 *
 * repo-path: opens (or makes) the posix store, the repository, an embedded target, a client to it.
 * repo-host: reads certificates, loads the verbs plugin unless transport = tcp, connects.
 */
#ifndef SL_CLI_CONNECT_H
#define SL_CLI_CONNECT_H

#include "core/base/clock.h"
#include "core/client/client.h"
#include "core/plugin/engine.h"

struct sl_connection; /* owns client, and when embedded target, repository and store */

struct sl_connect_options {
    bool create_repository; /* stanza-create: an empty or missing repo-path becomes a repository */
    bool short_lived;       /* archive-push, archive-get: TCP unless told otherwise, few slots */
    const char *stanza;     /* NULL: invocation->stanza */
    bool lazy;              /* see sl_client_config: the client's first call connects */
};

int sl_connection_open(const struct sl_invocation *invocation,
                       const struct sl_connect_options *options, sl_deadline deadline,
                       struct sl_connection **ret_connection, struct sl_err *err);
struct sl_client *sl_connection_client(struct sl_connection *connection);
/* Days until the client's certificate ends; INT_MAX when embedded. */
int sl_connection_certificate_days(const struct sl_connection *connection);
void sl_connection_close(struct sl_connection *connection); /* NULL ok */

/* Names of core's options that engines read:
 *   repo-path repo-host transport wire-encryption tls-cert tls-key tls-ca tls-name bind-address
 *   traffic-class jobs lanes queue-depth memory timeout (DURATION: the command's whole deadline for
 *   archive-push/get, silence for backup/restore) output progress log-level config stanza dry-run
 */
extern const struct sl_option sl_core_options[];

#endif
