/* Which stanza a command is about, when it is not said. */
#include "core/cli/cli.h"

#include "core/wire/message.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

int sl_stanza_check(const char *name, struct sl_err *err)
{
    size_t length = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                 "._+-");
    /* the last two are what else stands in a repository's root (core/repo/repo.c) */
    if (length && length < SL_STANZA_MAX && !name[length] && *name != '.' && *name != '-' &&
        strcmp(name, "global") != 0 && strcmp(name, "repo.json") != 0 &&
        strcmp(name, "lost+found") != 0)
        return 0;
    sl_err_set(err, SL_ERR_CONFIG, "\"%.80s\" is not a stanza's name", name);
    sl_err_hint(err,
                "a name is 1 to %d of letters, digits and ._+-, and none of global, "
                "repo.json, lost+found",
                SL_STANZA_MAX - 1);
    return SL_ERR_CONFIG;
}

/* Is `folder` the data path or below it? Both resolved: a data directory is often a link. */
static bool is_inside(const char *folder, const char *data_path)
{
    char real_folder[PATH_MAX], real_data[PATH_MAX];
    if (!realpath(folder, real_folder) || !realpath(data_path, real_data))
        return false;
    size_t length = strlen(real_data);
    return strncmp(real_folder, real_data, length) == 0 &&
           (real_folder[length] == '/' || !real_folder[length]);
}

static bool is_data_path(const struct sl_option *option)
{
    return option->flags & SL_OPTION_DATA_PATH || strcmp(option->name, "pg-path") == 0;
}

static bool owns_folder(const struct sl_options *options, const struct sl_option *engine_options,
                        const char *stanza, const char *cwd)
{
    for (const struct sl_option *option = engine_options; option && option->name; option++) {
        if (!is_data_path(option))
            continue;
        const char *path = sl_options_in_section(options, stanza, option->name);
        if (path && is_inside(cwd, path))
            return true;
    }
    return false;
}

int sl_stanza_choose(const struct sl_options *options, const struct sl_option *engine_options,
                     const char *cwd, const char **ret_stanza, struct sl_err *err)
{
    const char **names;
    size_t count = sl_options_sections(options, &names);
    for (size_t i = 0; i < count; i++) {
        int rc = sl_stanza_check(names[i], err);
        if (rc) {
            sl_err_prefix(err, "section [%.64s] of the configuration file", names[i]);
            return rc;
        }
    }
    const char *stanza = sl_option_string(options, "stanza");
    if (stanza) {
        int rc = sl_stanza_check(stanza, err);
        if (rc)
            return rc;
    } else if (count == 1) {
        stanza = names[0];
    } else {
        for (size_t i = 0; i < count && cwd && !stanza; i++)
            if (owns_folder(options, engine_options, names[i], cwd))
                stanza = names[i];
    }
    *ret_stanza = stanza;
    return 0;
}
