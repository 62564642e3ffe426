/* Where the server's data directory is, for commands that the server runs in it.
 */
#ifndef SL_POSTGRES_DATA_FOLDER_H
#define SL_POSTGRES_DATA_FOLDER_H

#include "core/plugin/engine.h"

/* --pg-path if given, else the current folder if it is a data directory (the server runs
 * archive_command and restore_command there), else the folder above that of `wal_path` (may be
 * NULL) if that is one. Returns owned (sl_free), or NULL: not known (or no memory). */
char *sl_pg_data_folder(const struct sl_invocation *invocation, const char *wal_path);

/* Is the server of this folder a standby: standby.signal wins over recovery.signal
 * (xlogrecovery.c: readRecoverySignalFile). Looks in the current folder and --pg-path;
 * `invocation->options` may be NULL. */
bool sl_pg_is_standby(const struct sl_invocation *invocation);

/* The pid in postmaster.pid if that process lives, else 0. */
long sl_pg_postmaster(const char *data_folder);

#endif
