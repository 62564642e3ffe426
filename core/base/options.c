/* The set of options: values, their sources and checks, names. Command line and environment are
 * read in options_args.c, files in options_file.c, texts for people made in options_help.c. */
#include "core/base/options_internal.h"

#include "core/base/alloc.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- the set --------------------------------------------------------------------------------- */

static int out_of_memory(struct sl_err *err)
{
    return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
}

struct value *options_find(const struct sl_options *options, const char *name)
{
    for (size_t i = 0; i < options->value_count; i++)
        if (strcmp(options->values[i].option->name, name) == 0)
            return &options->values[i];
    return NULL;
}

int sl_options_new(const struct sl_option *const *tables, size_t count,
                   struct sl_options **ret_options, struct sl_err *err)
{
    size_t total = 0;
    for (size_t t = 0; t < count; t++)
        for (const struct sl_option *option = tables[t]; option->name; option++)
            total++;
    struct sl_options *options = sl_calloc(1, sizeof *options);
    if (!options)
        return out_of_memory(err);
    options->values = sl_calloc(total ? total : 1, sizeof *options->values);
    if (!options->values) {
        sl_options_free(options);
        return out_of_memory(err);
    }
    for (size_t t = 0; t < count; t++) {
        for (const struct sl_option *option = tables[t]; option->name; option++) {
            int rc = 0;
            if (options_find(options, option->name))
                rc = sl_err_set(err, SL_ERR_INTERNAL, "option \"%s\" is defined twice",
                                option->name);
            else {
                options->values[options->value_count].option = option;
                rc = options_reset(&options->values[options->value_count++], err);
            }
            if (rc) {
                sl_options_free(options);
                return rc;
            }
        }
    }
    *ret_options = options;
    return 0;
}

static void clear(struct value *value)
{
    for (size_t i = 0; i < value->item_count; i++)
        sl_free(value->items[i]);
    sl_free(value->items);
    sl_free(value->text);
    sl_free(value->origin);
    *value = (struct value){.option = value->option};
}

void sl_options_free(struct sl_options *options)
{
    if (!options)
        return;
    options_forget_file(options);
    for (size_t i = 0; i < options->value_count; i++)
        clear(&options->values[i]);
    sl_free(options->values);
    sl_free(options);
}

void sl_options_lenient(struct sl_options *options, bool lenient)
{
    options->lenient = lenient;
}

void sl_options_owner(struct sl_options *options, const char *key, const char *value)
{
    options->owner_key = key;
    options->owner_value = value;
}

void sl_options_commands(struct sl_options *options, const char *const *names)
{
    options->commands = names;
}

/* --- values ---------------------------------------------------------------------------------- */

static int check_bool(const char *text, int64_t *ret_number, struct sl_err *err)
{
    static const char *const words[] = {"off", "on", "no", "yes", "false", "true", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *ret_number = (int64_t)(i % 2);
            return 0;
        }
    }
    return sl_err_set(err, SL_ERR_USAGE, "\"%.64s\" is neither on nor off", text);
}

static int check_int(const char *text, int64_t *ret_number, struct sl_err *err)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    bool begins = (*text >= '0' && *text <= '9') || (*text == '-' && text[1] >= '0');
    if (!begins || *end || errno)
        return sl_err_set(err, SL_ERR_USAGE, "\"%.64s\" is not a whole number", text);
    *ret_number = number;
    return 0;
}

static int check_choice(const struct sl_option *option, const char *text, struct sl_err *err)
{
    size_t length = strlen(text);
    for (const char *at = option->choices; *at;) {
        size_t choice = strcspn(at, "|");
        if (choice == length && memcmp(at, text, length) == 0)
            return 0;
        at += choice + (at[choice] == '|');
    }
    return sl_err_set(err, SL_ERR_USAGE, "\"%.64s\" is not one of %s", text, option->choices);
}

static int check_bounds(const struct sl_option *option, const char *text, int64_t number,
                        struct sl_err *err)
{
    if ((option->min == 0 && option->max == 0) || (number >= option->min && number <= option->max))
        return 0;
    const char *unit = option->type == SL_OPTION_BYTES      ? " bytes"
                       : option->type == SL_OPTION_DURATION ? " ms"
                                                            : "";
    return sl_err_set(err, SL_ERR_USAGE, "%.64s is outside %" PRId64 "..%" PRId64 "%s", text,
                      option->min, option->max, unit);
}

/* Is `text` a value of the option? Its number, for the types that have one. */
static int check(const struct sl_option *option, const char *text, int64_t *ret_number,
                 struct sl_err *err)
{
    int rc = 0;
    int64_t number = 0;
    if (!*text)
        return sl_err_set(err, SL_ERR_USAGE, "has no value");
    switch (option->type) {
    case SL_OPTION_STRING:
    case SL_OPTION_LIST:
        break;
    case SL_OPTION_BOOL:
        rc = check_bool(text, &number, err);
        break;
    case SL_OPTION_INT:
        rc = check_int(text, &number, err);
        break;
    case SL_OPTION_BYTES:
        rc = sl_parse_bytes(text, &number, err);
        break;
    case SL_OPTION_DURATION:
        rc = sl_parse_duration_ms(text, &number, err);
        break;
    case SL_OPTION_CHOICE:
        rc = check_choice(option, text, err);
        break;
    }
    if (!rc && option->type != SL_OPTION_BOOL)
        rc = check_bounds(option, text, number, err);
    if (!rc)
        *ret_number = number;
    else if (option->flags & SL_OPTION_SECRET)
        return sl_err_set(err, SL_ERR_USAGE, "the value is not valid");
    return rc;
}

static int add_item(struct value *value, const char *start, size_t length, struct sl_err *err)
{
    char **items = sl_realloc(value->items, (value->item_count + 2) * sizeof *items);
    if (!items)
        return out_of_memory(err);
    value->items = items;
    items[value->item_count] = sl_strndup(start, length);
    if (!items[value->item_count])
        return out_of_memory(err);
    items[++value->item_count] = NULL;
    return 0;
}

static int add_items(struct value *value, const char *text, bool split, struct sl_err *err)
{
    if (!split)
        return add_item(value, text, strlen(text), err);
    for (const char *at = text;;) {
        at += strspn(at, " \t");
        const char *comma = strchrnul(at, ',');
        size_t length = (size_t)(comma - at);
        while (length && (at[length - 1] == ' ' || at[length - 1] == '\t'))
            length--;
        if (!length)
            return sl_err_set(err, SL_ERR_USAGE, "an item of the list is empty");
        int rc = add_item(value, at, length, err);
        if (rc || !*comma)
            return rc;
        at = comma + 1;
    }
}

int options_give(struct value *value, enum source source, const char *text, bool split,
                 const char *origin, struct sl_err *err)
{
    const struct sl_option *option = value->option;
    if (source < value->source)
        return 0;
    bool append = option->type == SL_OPTION_LIST && source == value->source;
    int64_t number = 0;
    int rc = check(option, text, &number, err);
    if (rc)
        return rc;
    char *new_text =
        append && value->text ? sl_asprintf("%s,%s", value->text, text) : sl_strdup(text);
    char *new_origin = sl_strdup(append && value->origin ? value->origin : origin);
    if (!new_text || !new_origin) {
        sl_free(new_text);
        sl_free(new_origin);
        return out_of_memory(err);
    }
    if (!append)
        clear(value);
    sl_free(value->text);
    sl_free(value->origin);
    value->text = new_text;
    value->origin = new_origin;
    value->number = number;
    value->source = source;
    return option->type == SL_OPTION_LIST ? add_items(value, text, split, err) : 0;
}

int options_reset(struct value *value, struct sl_err *err)
{
    clear(value);
    const struct sl_option *option = value->option;
    if (!option->default_text)
        return 0;
    int rc = options_give(value, SOURCE_DEFAULT, option->default_text, true, "default", err);
    if (rc && rc != SL_ERR_NO_MEMORY)
        rc = sl_err_set(err, SL_ERR_INTERNAL, "option \"%s\": the default is not valid",
                        option->name);
    return rc;
}

/* --- names ----------------------------------------------------------------------------------- */

/* Edits (insert, delete, replace) between two words of at most 40 letters. */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[41];
    size_t b_length = strlen(b);
    if (b_length > 40 || strlen(a) > 40)
        return 99;
    for (unsigned j = 0; j <= b_length; j++)
        row[j] = j;
    for (unsigned i = 1; *a; a++, i++) {
        unsigned diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            unsigned replace = diagonal + (*a != b[j - 1]);
            unsigned edit = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replace < edit ? replace : edit;
        }
    }
    return row[b_length];
}

static const char *nearest_within(const char *word, const char *const *candidates, size_t count,
                                  unsigned most)
{
    const char *nearest = NULL;
    for (size_t i = 0; i < count; i++) {
        unsigned d = distance(word, candidates[i]);
        if (d < most || (d == most && !nearest)) {
            nearest = candidates[i];
            most = d;
        }
    }
    return nearest;
}

const char *sl_nearest(const char *word, const char *const *candidates, size_t count)
{
    return nearest_within(word, candidates, count, (unsigned)strlen(word) / 3 + 1);
}

const char *options_nearest(const struct sl_options *options, const char *name, unsigned most)
{
    const char **names = sl_calloc(options->value_count + 1, sizeof *names);
    if (!names)
        return NULL;
    size_t count = 0;
    for (size_t i = 0; i < options->value_count; i++)
        if (!(options->values[i].option->flags & SL_OPTION_HIDDEN))
            names[count++] = options->values[i].option->name;
    const char *nearest = nearest_within(name, names, count, most);
    sl_free(names);
    return nearest;
}

int options_unknown(const struct sl_options *options, int code, const char *name,
                    struct sl_err *err)
{
    const char *nearest = options_nearest(options, name, (unsigned)strlen(name) / 3 + 1);
    sl_err_set(err, code, "unknown option \"%.64s\"", name);
    if (nearest)
        sl_err_hint(err, "did you mean \"%s\"?", nearest);
    return code;
}

bool sl_option_belongs(const struct sl_option *option, const char *command)
{
    if (!command || !option->commands)
        return true;
    size_t length = strlen(command);
    for (const char *at = option->commands; at && *at;) {
        at += strspn(at, " ");
        size_t word = strcspn(at, " ");
        if (word == length && strncmp(at, command, length) == 0)
            return true;
        at += word;
    }
    return false;
}

void sl_options_visit(const struct sl_options *options, const char *command,
                      void (*visit)(void *arg, const struct sl_option *option), void *arg)
{
    for (size_t i = 0; i < options->value_count; i++)
        if (sl_option_belongs(options->values[i].option, command))
            visit(arg, options->values[i].option);
}

/* --- reading --------------------------------------------------------------------------------- */

static struct value *must_find(const struct sl_options *options, const char *name)
{
    struct value *value = options_find(options, name);
    if (!value) {
        fprintf(stderr, "sluice: no option is called \"%s\"\n", name);
        abort();
    }
    return value;
}

const char *sl_option_string(const struct sl_options *options, const char *name)
{
    return must_find(options, name)->text;
}

bool sl_option_bool(const struct sl_options *options, const char *name)
{
    return must_find(options, name)->number != 0;
}

int64_t sl_option_int(const struct sl_options *options, const char *name)
{
    return must_find(options, name)->number;
}

size_t sl_option_list(const struct sl_options *options, const char *name, const char ***ret_items)
{
    static const char *none[] = {NULL};
    struct value *value = must_find(options, name);
    *ret_items = value->items ? (const char **)(void *)value->items : none;
    return value->item_count;
}

bool sl_option_is_set(const struct sl_options *options, const char *name)
{
    return must_find(options, name)->source > SOURCE_DEFAULT;
}

bool sl_option_exists(const struct sl_options *options, const char *name)
{
    return options_find(options, name) != NULL;
}

const char *sl_option_origin(const struct sl_options *options, const char *name)
{
    const char *origin = must_find(options, name)->origin;
    return origin ? origin : "default";
}

int sl_option_set(struct sl_options *options, const char *name, const char *value,
                  const char *origin, struct sl_err *err)
{
    int rc = options_give(must_find(options, name), SOURCE_CODE, value, true, origin, err);
    if (rc)
        sl_err_prefix(err, "option \"%s\"", name);
    return rc;
}
