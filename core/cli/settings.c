/* Settings without a command line: the file and the environment, read as run.c reads them for a
 * command. It decides nothing about the process: no log sink, no signals, no output. */
#include "core/cli/settings.h"

#include "core/base/alloc.h"
#include "core/cli/cli.h"
#include "core/cli/connect.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

struct sl_settings {
    struct sl_options *options;
    char *stanza, *config_path;
    struct sl_invocation invocation;
};

static const struct sl_command *find(const struct sl_settings_source *source)
{
    for (const struct sl_command *c = source->engine->commands; c->name; c++)
        if (strcmp(c->name, source->command) == 0)
            return c;
    return NULL;
}

static int read_file(struct sl_settings *s, const char *stanza, struct sl_err *err)
{
    return sl_options_parse_file(s->options, s->config_path, stanza, s->invocation.command->name,
                                 err);
}

/* Twice, as run.c does: which section counts is known only when the sections are. */
static int choose(struct sl_settings *s, const struct sl_settings_source *source,
                  struct sl_err *err)
{
    char cwd[PATH_MAX];
    const char *chosen = NULL;
    int rc = sl_stanza_choose(s->options, source->engine->options,
                              getcwd(cwd, sizeof cwd) ? cwd : NULL, &chosen, err);
    if (rc)
        return rc;
    if (!chosen)
        return sl_err_set(err, SL_ERR_CONFIG, "no stanza is named, and \"%s\" has not just one",
                          s->config_path);
    s->stanza = sl_strdup(chosen); /* reading again forgets it */
    if (!s->stanza)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    s->invocation.stanza = s->stanza;
    return read_file(s, s->stanza, err);
}

static int fill(struct sl_settings *s, const struct sl_settings_source *source, struct sl_err *err)
{
    const struct sl_option *const tables[] = {sl_core_options, source->engine->options};
    s->invocation.command = find(source);
    s->config_path = sl_strdup(source->config_path);
    if (!s->invocation.command)
        return sl_err_set(err, SL_ERR_INTERNAL, "no command \"%s\"", source->command);
    if (!s->config_path)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    s->invocation.config_path = s->config_path;
    int rc = sl_options_new(tables, 2, &s->options, err);
    if (rc)
        return rc;
    s->invocation.options = s->options;
    sl_options_owner(s->options, "engine", source->engine->name);
    if (source->stanza)
        rc = sl_option_set(s->options, "stanza", source->stanza, "the server's settings", err);
    if (!rc && source->environment)
        rc = sl_options_parse_env(s->options, source->environment, err);
    if (!rc)
        rc = read_file(s, NULL, err);
    return rc ? rc : choose(s, source, err);
}

int sl_settings_read(const struct sl_settings_source *source, struct sl_settings **ret_settings,
                     struct sl_err *err)
{
    struct sl_settings *s = sl_calloc(1, sizeof *s);
    int rc = s ? fill(s, source, err) : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    if (rc) {
        sl_settings_free(s);
        return rc;
    }
    *ret_settings = s;
    return 0;
}

void sl_settings_free(struct sl_settings *settings)
{
    if (!settings)
        return;
    sl_options_free(settings->options);
    sl_free(settings->stanza);
    sl_free(settings->config_path);
    sl_free(settings);
}

struct sl_invocation *sl_settings_invocation(struct sl_settings *settings)
{
    return &settings->invocation;
}

int sl_settings_set(struct sl_settings *settings, const char *name, const char *value,
                    struct sl_err *err)
{
    return sl_option_set(settings->options, name, value, "the archive module", err);
}
