/* What the options table says to people: --help, and the OPTIONS section of a man page (scdoc(5)).
 */
#include "core/base/options_internal.h"

#include <ctype.h>
#include <string.h>

/* --- walking in groups ----------------------------------------------------------------------- */

/* The heading of each option: its own group's, or for those of some commands only, theirs. */
struct walk {
    const struct sl_options *options;
    const char *command;
    FILE *out;
    void (*heading)(FILE *out, const char *text);
    void (*option)(FILE *out, const struct sl_option *option);
    bool (*wanted)(const struct sl_options *options, const char *group); /* NULL: all groups */
};

static bool is_shown(const struct walk *walk, const struct sl_option *option, bool special)
{
    return !(option->flags & SL_OPTION_HIDDEN) && sl_option_belongs(option, walk->command) &&
           (walk->command && option->commands) == special;
}

/* The group an option stands in: its own, or that of the options before it in the tables. */
static const char *group_of(const struct sl_options *options, size_t index)
{
    for (size_t i = index + 1; i-- > 0;)
        if (options->values[i].option->group)
            return options->values[i].option->group;
    return "Options";
}

static void show_group(const struct walk *walk, const char *group)
{
    bool any = false;
    if (walk->wanted && !walk->wanted(walk->options, group))
        return;
    for (size_t i = 0; i < walk->options->value_count; i++) {
        const struct sl_option *option = walk->options->values[i].option;
        if (!is_shown(walk, option, false) || strcmp(group_of(walk->options, i), group) != 0)
            continue;
        if (!any)
            walk->heading(walk->out, group);
        any = true;
        walk->option(walk->out, option);
    }
}

static void show(const struct walk *walk)
{
    bool any = false;
    for (size_t i = 0; i < walk->options->value_count; i++) {
        const struct sl_option *option = walk->options->values[i].option;
        if (!is_shown(walk, option, true))
            continue;
        if (!any) {
            char text[80];
            snprintf(text, sizeof text, "Options of %s", walk->command);
            walk->heading(walk->out, text);
        }
        any = true;
        walk->option(walk->out, option);
    }
    for (size_t i = 0; i < walk->options->value_count; i++) {
        const char *group = group_of(walk->options, i);
        bool first = true;
        for (size_t j = 0; j < i && first; j++)
            first = strcmp(group_of(walk->options, j), group) != 0;
        if (first)
            show_group(walk, group);
    }
}

/* --- help ------------------------------------------------------------------------------------ */

#define HELP_INDENT 30
#define HELP_WIDTH  100

void sl_print_wrapped(FILE *out, const char *text, int indent)
{
    int column = indent;
    while (*text) {
        int word = (int)strcspn(text, " ");
        if (column > indent && column + 1 + word > HELP_WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        }
        fprintf(out, "%s%.*s", column > indent ? " " : "", word, text);
        column += word + (column > indent);
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static void format_name(const struct sl_option *option, char *text, size_t room)
{
    const char *dashes = option->flags & (SL_OPTION_FILE_ONLY | SL_OPTION_SECTION) ? "" : "--";
    if (option->type == SL_OPTION_BOOL)
        snprintf(text, room, "%s%s", dashes, option->name);
    else if (option->type == SL_OPTION_CHOICE)
        snprintf(text, room, "%s%s=%s", dashes, option->name, option->choices);
    else
        snprintf(text, room, "%s%s=%s", dashes, option->name,
                 option->value_name ? option->value_name : "VALUE");
}

static void help_heading(FILE *out, const char *text)
{
    fprintf(out, "\n%s:\n", text);
}

static void help_option(FILE *out, const struct sl_option *option)
{
    char name[160], text[600];
    format_name(option, name, sizeof name);
    snprintf(text, sizeof text, "%s%s%s%s%s", option->help ? option->help : "",
             option->default_text ? " (default " : "",
             option->default_text ? option->default_text : "", option->default_text ? ")" : "",
             option->type == SL_OPTION_LIST ? " (may be repeated)" : "");
    int column = fprintf(out, "  %s", name);
    if (column >= HELP_INDENT) {
        fputc('\n', out);
        column = 0;
    }
    fprintf(out, "%*s", HELP_INDENT - column, "");
    sl_print_wrapped(out, text, HELP_INDENT);
}

void sl_options_help(const struct sl_options *options, const char *command, FILE *out)
{
    show(&(struct walk){options, command, out, help_heading, help_option, NULL});
}

/* --- man page -------------------------------------------------------------------------------- */

void sl_scdoc_text(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (strchr("\\_*#~|[]`<>", *text))
            fputc('\\', out);
        fputc(*text, out);
    }
}

static void man_heading(FILE *out, const char *text)
{
    fputs("\n## ", out);
    for (; *text; text++)
        fputc(toupper((unsigned char)*text), out);
    fputs("\n\n", out);
}

static void man_option(FILE *out, const struct sl_option *option)
{
    char name[160];
    format_name(option, name, sizeof name);
    fputc('*', out);
    char *equals = strchr(name, '=');
    if (equals)
        *equals = '\0';
    sl_scdoc_text(name, out);
    fputc('*', out);
    if (equals) {
        fputs("=_", out);
        sl_scdoc_text(equals + 1, out);
        fputc('_', out);
    }
    fputs("\n\t", out);
    sl_scdoc_text(option->help ? option->help : "", out);
    fputs(".", out);
    if (option->type == SL_OPTION_LIST)
        fputs(" May be repeated.", out);
    if (option->default_text) {
        fputs(" Default: *", out);
        sl_scdoc_text(option->default_text, out);
        fputs("*.", out);
    }
    if (option->flags & SL_OPTION_CLI_ONLY)
        fputs(" Not in the configuration file.", out);
    fputs("\n\n", out);
}

void sl_options_man(const struct sl_options *options, const char *command, FILE *out)
{
    fputs("# OPTIONS\n", out);
    show(&(struct walk){options, command, out, man_heading, man_option, NULL});
}

static void man_bound(const struct sl_option *option, int64_t bound, FILE *out)
{
    static const struct {
        const char *unit;
        int64_t size;
    } bytes[] = {{"TiB", 1ll << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}},
      times[] = {{"d", 86400000}, {"h", 3600000}, {"min", 60000}, {"s", 1000}, {"ms", 1}};
    size_t i = 0;
    if (option->type != SL_OPTION_BYTES && option->type != SL_OPTION_DURATION) {
        fprintf(out, "%lld", (long long)bound);
        return;
    }
    const bool is_time = option->type == SL_OPTION_DURATION;
    while (i < 4 && (bound == 0 || bound % (is_time ? times[i].size : bytes[i].size)))
        i++;
    fprintf(out, "%lld%s", (long long)(bound / (is_time ? times[i].size : bytes[i].size)),
            is_time ? times[i].unit : bytes[i].unit);
}

static void man_key(FILE *out, const struct sl_option *option)
{
    if (option->flags & SL_OPTION_CLI_ONLY)
        return;
    fputc('*', out);
    sl_scdoc_text(option->name, out);
    fputs("* = _", out);
    sl_scdoc_text(option->type == SL_OPTION_CHOICE ? option->choices
                  : option->type == SL_OPTION_BOOL ? "on|off"
                  : option->value_name             ? option->value_name
                                                   : "VALUE",
                  out);
    fputs("_\n\t", out);
    sl_scdoc_text(option->help ? option->help : "", out);
    fputs(".", out);
    if (option->min || option->max) {
        fputs(" From ", out);
        man_bound(option, option->min, out);
        fputs(" to ", out);
        man_bound(option, option->max, out);
        fputs(".", out);
    }
    if (option->type == SL_OPTION_LIST)
        fputs(" May be repeated, or a list with commas.", out);
    if (option->default_text || option->type == SL_OPTION_BOOL) {
        fputs(" Default: *", out);
        sl_scdoc_text(option->default_text ? option->default_text : "off", out);
        fputs("*.", out);
    }
    if (option->commands) {
        fputs(" Of: ", out);
        sl_scdoc_text(option->commands, out);
        fputs(".", out);
    }
    fputs("\n\n", out);
}

static bool has_keys(const struct sl_options *options, const char *group)
{
    for (size_t i = 0; i < options->value_count; i++) {
        const struct sl_option *option = options->values[i].option;
        if (!(option->flags & (SL_OPTION_CLI_ONLY | SL_OPTION_HIDDEN)) &&
            strcmp(group_of(options, i), group) == 0)
            return true;
    }
    return false;
}

void sl_options_man_keys(const struct sl_options *options, FILE *out)
{
    fputs("# KEYS\n", out);
    show(&(struct walk){options, NULL, out, man_heading, man_key, has_keys});
}
