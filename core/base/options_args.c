/* Options from the command line and the environment. */
#include "core/base/options_internal.h"

#include <string.h>

#define ENV_PREFIX "SLUICE_"

/* --- command line ---------------------------------------------------------------------------- */

static int parse_long(struct sl_options *options, const char *command, char **argv, int argc,
                      int *index, struct sl_err *err)
{
    const char *word = argv[*index] + 2;
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    char name[64];
    if (length >= sizeof name)
        return sl_err_set(err, SL_ERR_USAGE, "unknown option \"--%.64s\"", word);
    memcpy(name, word, length);
    name[length] = '\0';

    struct value *value = options_find(options, name);
    const char *text = equals ? equals + 1 : NULL;
    if (!value && strncmp(name, "no-", 3) == 0 && !equals) {
        value = options_find(options, name + 3);
        if (value && value->option->type != SL_OPTION_BOOL)
            value = NULL;
        text = "off";
    }
    if (!value)
        return options_unknown(options, SL_ERR_USAGE, name, err);
    const struct sl_option *option = value->option;
    if (option->flags & (SL_OPTION_FILE_ONLY | SL_OPTION_SECTION))
        return sl_err_set(err, SL_ERR_USAGE, "option \"%s\" belongs in the configuration file",
                          option->name);
    if (!sl_option_belongs(option, command)) {
        sl_err_set(err, SL_ERR_USAGE, "option \"--%s\" is not one of command \"%s\"", option->name,
                   command);
        sl_err_hint(err, "it belongs to: %s", option->commands);
        return SL_ERR_USAGE;
    }
    if (!text && option->type == SL_OPTION_BOOL)
        text = "on";
    if (!text && *index + 1 < argc)
        text = argv[++*index];
    if (!text)
        return sl_err_set(err, SL_ERR_USAGE, "option \"--%s\" needs a value", option->name);
    int rc = options_give(value, SOURCE_ARGS, text, false, "command line", err);
    if (rc)
        sl_err_prefix(err, "option \"--%s\"", option->name);
    return rc;
}

int sl_options_parse_args(struct sl_options *options, const char *command, int argc, char **argv,
                          const char **args, int args_max, struct sl_err *err)
{
    int count = 0;
    bool only_args = false;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!only_args && strcmp(word, "--") == 0) {
            only_args = true;
        } else if (!only_args && strncmp(word, "--", 2) == 0) {
            int rc = parse_long(options, command, argv, argc, &i, err);
            if (rc && !options->lenient)
                return rc;
        } else if (!only_args && word[0] == '-' && word[1] && !options->lenient) {
            sl_err_set(err, SL_ERR_USAGE, "unknown option \"%.64s\"", word);
            sl_err_hint(err, "options are written in full: --name=value");
            return SL_ERR_USAGE;
        } else if (count < args_max) {
            args[count++] = word;
        } else if (!options->lenient) {
            return sl_err_set(err, SL_ERR_USAGE, "unexpected argument \"%.64s\"", word);
        }
    }
    return count;
}

/* --- environment ----------------------------------------------------------------------------- */

static int parse_variable(struct sl_options *options, const char *variable, struct sl_err *err)
{
    const char *equals = strchr(variable, '=');
    char name[64];
    size_t length = equals ? (size_t)(equals - variable) : 0;
    if (!equals || !equals[1])
        return 0;
    if (length >= sizeof name)
        return 0;
    for (size_t i = 0; i < length; i++) {
        char c = variable[i];
        name[i] = c == '_' ? '-' : c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : '?';
        if (c >= '0' && c <= '9')
            name[i] = c;
    }
    name[length] = '\0';
    struct value *value = options_find(options, name);
    if (!value) {
        const char *nearest = options_nearest(options, name, 2);
        if (!nearest)
            return 0;
        sl_err_set(err, SL_ERR_CONFIG, "unknown environment variable \"" ENV_PREFIX "%.*s\"",
                   (int)length, variable);
        sl_err_hint(err, "did you mean the option \"%s\"?", nearest);
        return SL_ERR_CONFIG;
    }
    if (value->option->flags & (SL_OPTION_FILE_ONLY | SL_OPTION_SECTION))
        return sl_err_set(err, SL_ERR_CONFIG,
                          "environment: option \"%s\" belongs in the "
                          "configuration file",
                          name);
    int rc = options_give(value, SOURCE_ENVIRONMENT, equals + 1, true, "environment", err);
    if (rc == SL_ERR_USAGE && err)
        rc = err->code = SL_ERR_CONFIG;
    if (rc)
        sl_err_prefix(err, "environment variable " ENV_PREFIX "%.*s", (int)length, variable);
    return rc;
}

int sl_options_parse_env(struct sl_options *options, char **environment, struct sl_err *err)
{
    size_t prefix = strlen(ENV_PREFIX);
    for (char **variable = environment; *variable; variable++) {
        if (strncmp(*variable, ENV_PREFIX, prefix) != 0)
            continue;
        int rc = parse_variable(options, *variable + prefix, err);
        if (rc && !options->lenient)
            return rc;
    }
    return 0;
}
