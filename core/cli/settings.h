/* Settings without a command line, for code that is no program of ours: a module inside of a
 * database server. What `sluice --config=FILE --stanza=NAME COMMAND` would work with.
 */
#ifndef SL_CLI_SETTINGS_H
#define SL_CLI_SETTINGS_H

#include "core/plugin/engine.h"

#define SL_CLI_CONFIG "/etc/sluice/sluice.conf"

struct sl_settings;

struct sl_settings_source {
    const struct sl_engine *engine; /* borrowed, stays */
    const char *command;            /* a command of the engine: its [STANZA:COMMAND] counts */
    char **environment;             /* SLUICE_…; NULL: none */
    const char *config_path;        /* must exist */
    const char *stanza; /* NULL: the file's only one, or by the current folder, as for commands */
};

/* Reads environment and file, chooses the stanza. Returns owned. Any thread; it reads a file, so it
 * may block as long as that does. */
int sl_settings_read(const struct sl_settings_source *source, struct sl_settings **ret_settings,
                     struct sl_err *err);
void sl_settings_free(struct sl_settings *settings); /* NULL ok */
/* Borrowed: without arguments, result and progress. */
struct sl_invocation *sl_settings_invocation(struct sl_settings *settings);
/* As sl_option_set(). */
int sl_settings_set(struct sl_settings *settings, const char *name, const char *value,
                    struct sl_err *err);

#endif
