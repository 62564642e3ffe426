/* The configuration file: an INI file in, values out. Small enough to be read whole. The lines are
 * taken apart here and not by inih, which knows no sections without keys (a stanza may have
 * none), hands out no line numbers as Debian builds it, cuts lines at 200 bytes and takes an
 * indented line for more of the one before. */
#include "core/base/options_internal.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX (1u << 20)

void options_forget_file(struct sl_options *options)
{
    for (size_t i = 0; i < options->entry_count; i++) {
        struct entry *entry = &options->entries[i];
        sl_free(entry->section);
        sl_free(entry->command);
        sl_free(entry->key);
        sl_free(entry->value);
    }
    sl_free(options->entries);
    options->entries = NULL;
    options->entry_count = options->entry_room = 0;
    for (size_t i = 0; i < options->section_count; i++)
        sl_free(options->sections[i]);
    sl_free(options->sections);
    options->sections = NULL;
    options->section_count = 0;
}

/* --- lines ----------------------------------------------------------------------------------- */

struct reader {
    struct sl_options *options;
    const char *path;
    unsigned line;
    char *section, *command; /* of the lines that follow; "" before the first */
};

static int out_of_memory(struct sl_err *err)
{
    return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static char *trim(char *text)
{
    while (is_blank(*text))
        text++;
    size_t length = strlen(text);
    while (length && is_blank(text[length - 1]))
        text[--length] = '\0';
    return text;
}

static bool is_comment(const char *text)
{
    return *text == '#' || *text == ';';
}

/* The value after '=': in double quotes, or up to a comment. In place; NULL if a quote is open. */
static char *value_of(char *text)
{
    text = trim(text);
    if (*text == '"') {
        char *end = strchr(text + 1, '"');
        if (!end)
            return NULL;
        char *rest = trim(end + 1);
        if (*rest && !is_comment(rest))
            return NULL;
        *end = '\0';
        return text + 1;
    }
    if (is_comment(text))
        *text = '\0';
    for (char *at = text; *at; at++)
        if (is_blank(*at) && is_comment(at + 1))
            *at = '\0';
    return trim(text);
}

static int remember_section(struct sl_options *options, const char *name, struct sl_err *err)
{
    if (strcmp(name, "global") == 0)
        return 0;
    for (size_t i = 0; i < options->section_count; i++)
        if (strcmp(options->sections[i], name) == 0)
            return 0;
    char **sections =
        sl_realloc(options->sections, (options->section_count + 2) * sizeof *sections);
    if (!sections)
        return out_of_memory(err);
    options->sections = sections;
    sections[options->section_count] = sl_strdup(name);
    if (!sections[options->section_count])
        return out_of_memory(err);
    sections[++options->section_count] = NULL;
    return 0;
}

/* Is a section somebody else's? See sl_options_owner(). */
static bool is_foreign(const struct sl_options *options, const char *section)
{
    if (!options->owner_key || strcmp(section, "global") == 0)
        return false;
    const char *owner = sl_options_in_section(options, section, options->owner_key);
    if (!owner)
        owner = sl_options_in_section(options, "global", options->owner_key);
    if (!owner)
        owner = options_find(options, options->owner_key)->option->default_text;
    return owner && strcmp(owner, options->owner_value) != 0;
}

static int check_command(const struct sl_options *options, const char *section, const char *command,
                         struct sl_err *err)
{
    size_t count = 0;
    if (!options->commands || is_foreign(options, section))
        return 0;
    for (; options->commands[count]; count++)
        if (strcmp(options->commands[count], command) == 0)
            return 0;
    const char *nearest = sl_nearest(command, options->commands, count);
    sl_err_set(err, SL_ERR_CONFIG, "unknown command \"%.64s\" in a section's name", command);
    if (nearest)
        sl_err_hint(err, "did you mean \"%s\"?", nearest);
    return SL_ERR_CONFIG;
}

/* "[name]" or "[name:command]". */
static int read_section(struct reader *reader, char *text, struct sl_err *err)
{
    char *end = strchr(text, ']');
    char *rest = end ? trim(end + 1) : text;
    if (!end || (*rest && !is_comment(rest)))
        return sl_err_set(err, SL_ERR_CONFIG, "a section is written [name] or [name:command]");
    *end = '\0';
    char *colon = strchr(text, ':');
    if (colon)
        *colon = '\0';
    char *name = trim(text + 1), *command = colon ? trim(colon + 1) : NULL;
    if (command) {
        int rc = *command
                     ? check_command(reader->options, name, command, err)
                     : sl_err_set(err, SL_ERR_CONFIG, "no command after ':' in a section's name");
        if (rc)
            return rc;
    }
    if (!*name)
        return sl_err_set(err, SL_ERR_CONFIG, "a section needs a name");
    char *section_copy = sl_strdup(name);
    char *command_copy = command ? sl_strdup(command) : NULL;
    if (!section_copy || (command && !command_copy)) {
        sl_free(section_copy);
        sl_free(command_copy);
        return out_of_memory(err);
    }
    sl_free(reader->section);
    sl_free(reader->command);
    reader->section = section_copy;
    reader->command = command_copy;
    return remember_section(reader->options, name, err);
}

static bool same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* A key may stand once in a section, but a list's, whose items are joined. */
static int set_again(struct entry *entry, const char *value, struct sl_err *err)
{
    if (!entry->option || entry->option->type != SL_OPTION_LIST)
        return sl_err_set(err, SL_ERR_CONFIG, "option \"%s\" is set on line %u already", entry->key,
                          entry->line);
    char *joined = sl_asprintf("%s,%s", entry->value, value);
    if (!joined)
        return out_of_memory(err);
    sl_free(entry->value);
    entry->value = joined;
    return 0;
}

static struct entry *find_entry(const struct sl_options *options, const char *section,
                                const char *command, const char *key)
{
    for (size_t i = 0; i < options->entry_count; i++) {
        struct entry *entry = &options->entries[i];
        if (same(entry->key, key) && same(entry->section, section) && same(entry->command, command))
            return entry;
    }
    return NULL;
}

static int add_entry(struct reader *reader, const struct sl_option *option, const char *key,
                     const char *value, struct sl_err *err)
{
    struct sl_options *options = reader->options;
    if (options->entry_count == options->entry_room) {
        size_t room = options->entry_room ? options->entry_room * 2 : 32;
        struct entry *entries = sl_realloc(options->entries, room * sizeof *entries);
        if (!entries)
            return out_of_memory(err);
        options->entries = entries;
        options->entry_room = room;
    }
    struct entry *entry = &options->entries[options->entry_count++];
    *entry = (struct entry){
        .option = option,
        .line = reader->line,
        .key = sl_strdup(key),
        .value = sl_strdup(value),
        .section = sl_strdup(reader->section),
        .command = reader->command ? sl_strdup(reader->command) : NULL,
    };
    bool complete =
        entry->key && entry->value && entry->section && (entry->command || !reader->command);
    return complete ? 0 : out_of_memory(err);
}

static int check_key(struct reader *reader, const char *key, const struct sl_option **ret_option,
                     struct sl_err *err)
{
    struct value *value = options_find(reader->options, key);
    *ret_option = value ? value->option : NULL;
    if (!value) {
        /* whose section it is, is known when all lines are: check_owners() */
        bool later = reader->options->owner_key && strcmp(reader->section, "global") != 0;
        return reader->options->lenient || later
                   ? 0
                   : options_unknown(reader->options, SL_ERR_CONFIG, key, err);
    }
    if (value->option->flags & SL_OPTION_CLI_ONLY)
        return sl_err_set(err, SL_ERR_CONFIG, "option \"%s\" belongs on the command line", key);
    if (value->option->flags & SL_OPTION_SECTION && strcmp(reader->section, "global") == 0)
        return sl_err_set(err, SL_ERR_CONFIG, "option \"%s\" belongs in a stanza's section", key);
    return 0;
}

static int read_key(struct reader *reader, char *text, struct sl_err *err)
{
    char *equals = strchr(text, '=');
    if (!equals)
        return sl_err_set(err, SL_ERR_CONFIG, "neither [section] nor key = value");
    *equals = '\0';
    char *key = trim(text);
    char *value = value_of(equals + 1);
    if (!reader->section)
        return sl_err_set(err, SL_ERR_CONFIG, "option \"%.64s\" stands before the first [section]",
                          key);
    const struct sl_option *option = NULL;
    int rc = check_key(reader, key, &option, err);
    if (rc)
        return rc;
    if (!value)
        return sl_err_set(err, SL_ERR_CONFIG,
                          "a double quote in the value of \"%s\" is not closed "
                          "or not at the end",
                          key);
    if (!*value)
        return sl_err_set(err, SL_ERR_CONFIG, "option \"%s\" has no value", key);
    struct entry *before = find_entry(reader->options, reader->section, reader->command, key);
    return before ? set_again(before, value, err) : add_entry(reader, option, key, value, err);
}

static int read_line(struct reader *reader, char *text, size_t length, struct sl_err *err)
{
    if (length && text[length - 1] == '\r')
        text[--length] = '\0';
    for (size_t i = 0; i < length; i++)
        if (((unsigned char)text[i] < 0x20 && text[i] != '\t') || text[i] == 0x7f)
            return sl_err_set(err, SL_ERR_CONFIG, "a control character (0x%02x)",
                              (unsigned char)text[i]);
    text = trim(text);
    if (!*text || is_comment(text))
        return 0;
    return *text == '[' ? read_section(reader, text, err) : read_key(reader, text, err);
}

/* --- values ---------------------------------------------------------------------------------- */

static enum source source_of(const struct entry *entry, const char *stanza, const char *command)
{
    bool global = strcmp(entry->section, "global") == 0;
    if (!global && (!stanza || strcmp(entry->section, stanza) != 0))
        return SOURCE_NONE;
    if (entry->command && (!command || strcmp(entry->command, command) != 0))
        return SOURCE_NONE;
    if (global)
        return entry->command ? SOURCE_GLOBAL_COMMAND : SOURCE_GLOBAL;
    return entry->command ? SOURCE_STANZA_COMMAND : SOURCE_STANZA;
}

static int place(struct sl_err *err, const char *path, unsigned line)
{
    if (err && err->code == SL_ERR_USAGE)
        err->code = SL_ERR_CONFIG;
    return sl_err_prefix(err, "%s:%u", path, line);
}

static int apply(struct sl_options *options, const char *path, const char *stanza,
                 const char *command, struct sl_err *err)
{
    for (size_t i = 0; i < options->entry_count; i++) {
        const struct entry *entry = &options->entries[i];
        enum source source = source_of(entry, stanza, command);
        if (source == SOURCE_NONE || !entry->option || entry->option->flags & SL_OPTION_SECTION)
            continue;
        char *origin = sl_asprintf("%s:%u", path, entry->line);
        if (!origin)
            return out_of_memory(err);
        int rc = options_give(options_find(options, entry->key), source, entry->value, true, origin,
                              err);
        sl_free(origin);
        if (rc) {
            sl_err_prefix(err, "option \"%s\"", entry->key);
            place(err, path, entry->line);
            return rc == SL_ERR_USAGE ? SL_ERR_CONFIG : rc;
        }
    }
    return 0;
}

static int read_lines(struct reader *reader, char *text, size_t bytes, struct sl_err *err)
{
    size_t at = bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* byte order mark */
    while (at < bytes) {
        char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end ? (size_t)(end - (text + at)) : bytes - at;
        text[at + length] = '\0';
        reader->line++;
        int rc = read_line(reader, text + at, length, err);
        if (rc) {
            place(err, reader->path, reader->line);
            return rc;
        }
        at += length + 1;
    }
    return 0;
}

/* Keys in no table may stand in somebody else's sections. */
static int check_owners(const struct sl_options *options, const char *path, const char *stanza,
                        struct sl_err *err)
{
    for (size_t i = 0; i < options->entry_count && !options->lenient; i++) {
        const struct entry *entry = &options->entries[i];
        if (entry->option ||
            (is_foreign(options, entry->section) && !(stanza && same(entry->section, stanza))))
            continue;
        options_unknown(options, SL_ERR_CONFIG, entry->key, err);
        place(err, path, entry->line);
        return SL_ERR_CONFIG;
    }
    return 0;
}

/* `text` has room for one byte more, and is written to. */
static int parse(struct sl_options *options, char *text, size_t bytes, const char *path,
                 const char *stanza, const char *command, struct sl_err *err)
{
    options_forget_file(options);
    for (size_t i = 0; i < options->value_count; i++) {
        struct value *value = &options->values[i];
        if (value->source >= SOURCE_GLOBAL && value->source <= SOURCE_STANZA_COMMAND) {
            int rc = options_reset(value, err);
            if (rc)
                return rc;
        }
    }
    struct reader reader = {.options = options, .path = path};
    int rc = read_lines(&reader, text, bytes, err);
    sl_free(reader.section);
    sl_free(reader.command);
    if (!rc)
        rc = check_owners(options, path, stanza, err);
    return rc ? rc : apply(options, path, stanza, command, err);
}

int sl_options_parse_text(struct sl_options *options, const char *text, size_t bytes,
                          const char *path, const char *stanza, const char *command,
                          struct sl_err *err)
{
    char *copy = sl_alloc(bytes + 1);
    if (!copy)
        return out_of_memory(err);
    memcpy(copy, text, bytes);
    int rc = parse(options, copy, bytes, path, stanza, command, err);
    sl_free(copy);
    return rc;
}

static int read_whole(const char *path, char **ret_text, size_t *ret_bytes, struct sl_err *err)
{
    int sys = sl_fault("options.open");
    int fd = sys ? -1 : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return sl_err_sys(err, SL_ERR_OPEN, sys ? sys : errno,
                          "could not open configuration file \"%s\"", path);
    struct stat st;
    if (fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode))) {
        close(fd); /* nobody may write to it, and it is read more than once */
        return sl_err_set(err, SL_ERR_OPEN, "configuration file \"%s\" is not a regular file",
                          path);
    }
    char *text = sl_alloc(FILE_BYTES_MAX + 1);
    size_t bytes = 0;
    int rc = text ? 0 : out_of_memory(err);
    while (!rc && bytes <= FILE_BYTES_MAX) {
        sys = sl_fault("options.read");
        ssize_t n = sys ? -1 : read(fd, text + bytes, FILE_BYTES_MAX + 1 - bytes);
        if (n == 0)
            break;
        if (n > 0)
            bytes += (size_t)n;
        else if (sys || errno != EINTR)
            rc = sl_err_sys(err, SL_ERR_READ, sys ? sys : errno,
                            "could not read configuration file \"%s\"", path);
    }
    close(fd);
    if (!rc && bytes > FILE_BYTES_MAX)
        rc = sl_err_set(err, SL_ERR_CONFIG, "configuration file \"%s\" is larger than 1 MiB", path);
    if (rc) {
        sl_free(text);
        return rc;
    }
    *ret_text = text;
    *ret_bytes = bytes;
    return 0;
}

int sl_options_parse_file(struct sl_options *options, const char *path, const char *stanza,
                          const char *command, struct sl_err *err)
{
    char *text = NULL;
    size_t bytes = 0;
    int rc = read_whole(path, &text, &bytes, err);
    if (!rc)
        rc = parse(options, text, bytes, path, stanza, command, err);
    sl_free(text);
    return rc;
}

/* --- sections -------------------------------------------------------------------------------- */

size_t sl_options_sections(const struct sl_options *options, const char ***ret_names)
{
    static const char *none[] = {NULL};
    *ret_names = options->sections ? (const char **)(void *)options->sections : none;
    return options->section_count;
}

const char *sl_options_in_section(const struct sl_options *options, const char *section,
                                  const char *name)
{
    const struct entry *entry = find_entry(options, section, NULL, name);
    return entry ? entry->value : NULL;
}
