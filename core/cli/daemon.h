/* `sluiced`: the target as a daemon. Inside of core/cli only. */
#ifndef SL_CLI_DAEMON_H
#define SL_CLI_DAEMON_H

#include "core/base/options.h"

#define SL_DAEMON_CONFIG "/etc/sluice/sluiced.conf"

/* The whole program: returns the exit status. */
int sl_daemon_main(int argc, char **argv, char **environment);

/* Its options, and `clients` of a stanza's section. */
extern const struct sl_option sl_daemon_options[];

/* Who may use what: read from the sections, never changed after. Any thread. */
struct sl_permissions;
int sl_permissions_new(const struct sl_options *options, struct sl_permissions **ret_permissions,
                       struct sl_err *err);
void sl_permissions_free(struct sl_permissions *permissions); /* NULL ok */
/* May it add and read; may it remove, too (the role "expire")? */
bool sl_permissions_allow(const struct sl_permissions *permissions, const char *client,
                          const char *stanza);
bool sl_permissions_allow_remove(const struct sl_permissions *permissions, const char *client,
                                 const char *stanza);

/* Reads command line (without the program's name), environment and file into a new set. Returns
 * owned. */
int sl_daemon_configure(int argc, char **argv, char **environment, struct sl_options **ret_options,
                        struct sl_err *err);

/* One message to systemd (sd_notify(3)): "READY=1\nSTATUS=…". Nothing without $NOTIFY_SOCKET;
 * failures are only logged. */
void sl_notify(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
