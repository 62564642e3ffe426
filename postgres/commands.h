/* The commands of the PostgreSQL engine: run and, where the contract differs, exit status. See
 * core/plugin/engine.h for when they are called.
 */
#ifndef SL_POSTGRES_COMMANDS_H
#define SL_POSTGRES_COMMANDS_H

#include "core/plugin/engine.h"

int sl_pg_stanza_create(struct sl_invocation *invocation, struct sl_err *err);
int sl_pg_stanza_upgrade(struct sl_invocation *invocation, struct sl_err *err);
int sl_pg_archive_push(struct sl_invocation *invocation, struct sl_err *err);
int sl_pg_archive_push_status(const struct sl_invocation *invocation, int code);
int sl_pg_archive_get(struct sl_invocation *invocation, struct sl_err *err);
int sl_pg_archive_get_status(const struct sl_invocation *invocation, int code);
int sl_pg_backup(struct sl_invocation *invocation, struct sl_err *err);
int sl_pg_restore(struct sl_invocation *invocation, struct sl_err *err);
int sl_pg_info(struct sl_invocation *invocation, struct sl_err *err);
int sl_pg_check(struct sl_invocation *invocation, struct sl_err *err);
int sl_pg_expire(struct sl_invocation *invocation, struct sl_err *err);
int sl_pg_keep(struct sl_invocation *invocation, struct sl_err *err);
int sl_pg_unkeep(struct sl_invocation *invocation, struct sl_err *err);

/* --jobs, or, where it is not given, its default but no more than there are processors; 1..64. */
#define SL_PG_JOBS_MAX 64
unsigned sl_pg_jobs(const struct sl_invocation *invocation);

#endif
