/* What the files of the options table share; nobody else includes it. */
#ifndef SL_BASE_OPTIONS_INTERNAL_H
#define SL_BASE_OPTIONS_INTERNAL_H

#include "core/base/options.h"

/* Where a value comes from, weakest first. */
enum source {
    SOURCE_NONE,
    SOURCE_DEFAULT,
    SOURCE_GLOBAL,
    SOURCE_GLOBAL_COMMAND,
    SOURCE_STANZA,
    SOURCE_STANZA_COMMAND,
    SOURCE_ENVIRONMENT,
    SOURCE_ARGS,
    SOURCE_CODE,
};

struct value {
    const struct sl_option *option;
    enum source source;
    char *text; /* as written, NULL: no value; a list's items joined by commas */
    int64_t number;
    char **items; /* LIST: NULL-terminated */
    size_t item_count;
    char *origin;
};

/* One line of a file. */
struct entry {
    char *section; /* without ":COMMAND" */
    char *command; /* or NULL */
    char *key, *value;
    const struct sl_option *option; /* NULL: unknown, in a lenient set or somebody else's section */
    unsigned line;
};

struct sl_options {
    struct value *values;
    size_t value_count;
    bool lenient;
    const char *const *commands;
    const char *owner_key, *owner_value; /* see sl_options_owner() */
    /* the file */
    struct entry *entries;
    size_t entry_count, entry_room;
    char **sections; /* stanzas only; NULL-terminated */
    size_t section_count;
};

struct value *options_find(const struct sl_options *options, const char *name);

/* Give `value` a text from `source`, checked, unless a stronger source has spoken. Texts of a list
 * from the same source and section are added; `split` takes commas apart. */
int options_give(struct value *value, enum source source, const char *text, bool split,
                 const char *origin, struct sl_err *err);
/* Back to the default. */
int options_reset(struct value *value, struct sl_err *err);
/* The option that a name, which is in no table, may have meant: at most `most` letters away. */
const char *options_nearest(const struct sl_options *options, const char *name, unsigned most);
/* Fill err for a name in no table, with a hint at what may have been meant. */
int options_unknown(const struct sl_options *options, int code, const char *name,
                    struct sl_err *err);
void options_forget_file(struct sl_options *options);

#endif
