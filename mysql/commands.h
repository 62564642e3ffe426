/* The commands of this engine. */
#ifndef SL_MYSQL_COMMANDS_H
#define SL_MYSQL_COMMANDS_H

#include "core/plugin/engine.h"

int sl_my_stanza_create(struct sl_invocation *invocation, struct sl_err *err);
int sl_my_stanza_upgrade(struct sl_invocation *invocation, struct sl_err *err);
int sl_my_check(struct sl_invocation *invocation, struct sl_err *err);
int sl_my_backup(struct sl_invocation *invocation, struct sl_err *err);
int sl_my_restore(struct sl_invocation *invocation, struct sl_err *err);
int sl_my_expire(struct sl_invocation *invocation, struct sl_err *err);
int sl_my_keep(struct sl_invocation *invocation, struct sl_err *err);
int sl_my_unkeep(struct sl_invocation *invocation, struct sl_err *err);
int sl_my_binlog(struct sl_invocation *invocation, struct sl_err *err);
int sl_my_binlog_get(struct sl_invocation *invocation, struct sl_err *err);
int sl_my_info(struct sl_invocation *invocation, struct sl_err *err);

#endif
