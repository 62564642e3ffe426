/* What a restored cluster is told: the lines added to postgresql.auto.conf. Pure text.
 */
#ifndef SL_POSTGRES_RECOVERY_CONF_H
#define SL_POSTGRES_RECOVERY_CONF_H

#include "core/plugin/engine.h"

enum sl_pg_recovery {
    SL_PG_TO_END,
    SL_PG_TO_TIME,
    SL_PG_TO_LSN,
    SL_PG_TO_XID,
    SL_PG_TO_NAME,
    SL_PG_IMMEDIATE,
    SL_PG_STANDBY
};

struct sl_pg_recovery_conf {
    enum sl_pg_recovery kind;
    const char *restore_command;
    const char *target; /* time, LSN, transaction or name */
    bool exclusive;
    const char *target_action;   /* pause, promote, shutdown; NULL: the server's default */
    const char *target_timeline; /* "latest", "current" or a number */
    bool archive_off;
};

/* `old` (postgresql.auto.conf as it was in the backup, may be "") without its recovery target,
 * restore_command and, if it is turned off, archive_mode lines, then the new ones. What the targets
 * leave open is set to the server's defaults, because an inherited file could say otherwise.
 * Targets that are not wanted are set to '' where an inherited file could hold another: only one
 * may be set (guc.c: error_multiple_recovery_targets). Returns owned (sl_free), NULL: out of
 * memory. */
char *sl_pg_recovery_conf_text(const char *old, const struct sl_pg_recovery_conf *conf);

/* The command that the server runs: this program, with the configuration and repository that it was
 * given. Returns owned (sl_free). */
int sl_pg_restore_command(const struct sl_invocation *invocation, char **ret_command,
                          struct sl_err *err);

/* Quoting. A word of a shell command inside of restore_command: '%' doubled, quoted if need be.
 * A value of postgresql.conf: in quotes, ' and \ doubled. Both return owned or NULL. */
char *sl_pg_shell_word(const char *word);
char *sl_pg_conf_value(const char *value);
/* SL_ERR_USAGE for a value (`what` it is) with a line break: postgresql.auto.conf is lines, and an
 * ALTER SYSTEM that rewrites it escapes none (guc.c: write_auto_conf_file), so no server could
 * start. */
int sl_pg_conf_check(const char *what, const char *value, struct sl_err *err);

#endif
