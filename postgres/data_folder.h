/* Where the server's data directory is, for commands that the server runs in it.
 */
#ifndef SL_POSTGRES_DATA_FOLDER_H
#define SL_POSTGRES_DATA_FOLDER_H

#include "core/plugin/engine.h"

/* The current folder if it is a data directory: the server runs archive_command and
 * restore_command in its own, which need not be the configured one (a restore beside it). Else
 * --pg-path if given, else the folder above that of `wal_path` (may be NULL) if that is one.
 * Returns owned (sl_free), or NULL: not known (or no memory). */
char *sl_pg_data_folder(const struct sl_invocation *invocation, const char *wal_path);

/* Is the server of the folder a standby? standby.signal wins over recovery.signal
 * (xlogrecovery.c: readRecoverySignalFile). The folder is the current one or --pg-path, as above;
 * `invocation->options` may be NULL. */
bool sl_pg_is_standby(const struct sl_invocation *invocation);

/* The pid in postmaster.pid if that process lives, else 0. */
long sl_pg_postmaster(const char *data_folder);

#endif
