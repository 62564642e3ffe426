/* Options: one table gives parsing, --help, configuration file, environment, man page and shell
 * completion.
 *
 * A value comes, in this order, from the command line (--name=value, --name value, --name for a
 * switch, --no-name), the environment (SLUICE_NAME, '-' becomes '_'), the configuration file's
 * stanza section, its [global] section, the default. Units read "64MiB", "1GB", "30s", "5min",
 * "100MB/s". An unknown key in a file is an error with file and line; an option that does not
 * belong to the command is an error with a hint.
 */
#ifndef SL_BASE_OPTIONS_H
#define SL_BASE_OPTIONS_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum sl_option_type {
    SL_OPTION_STRING,
    SL_OPTION_BOOL, /* on/off, yes/no, true/false, 1/0; a bare --name is "on" */
    SL_OPTION_INT,
    SL_OPTION_BYTES,    /* 64MiB, 1GB, 4096 */
    SL_OPTION_DURATION, /* in ms; 30s, 5min, 2h, 7d, 500ms; a bare number is seconds */
    SL_OPTION_CHOICE,   /* one of `choices`, "auto|on|off" */
    SL_OPTION_LIST,     /* may be repeated, or comma separated in a file or the environment */
};

#define SL_OPTION_CLI_ONLY  0x1u /* never in a file: it would be dangerous or senseless there */
#define SL_OPTION_FILE_ONLY 0x2u
#define SL_OPTION_SECRET    0x4u  /* its value is never shown, in errors neither */
#define SL_OPTION_DATA_PATH 0x8u  /* the database's folder: standing in it chooses the stanza */
#define SL_OPTION_HIDDEN    0x10u /* not in help and man page */
#define SL_OPTION_SECTION   0x20u /* makes sense in a stanza's section only (sluiced's clients) */

struct sl_option {
    const char *name; /* "repo-path" */
    enum sl_option_type type;
    const char *value_name;   /* "DIR", "N", … for the help; NULL for BOOL */
    const char *default_text; /* as one would write it, or NULL: none */
    int64_t min, max;         /* INT, BYTES, DURATION (ms); both 0: no bounds */
    const char *choices;      /* CHOICE */
    const char *commands;     /* "backup restore": space separated; NULL: every command */
    unsigned flags;
    const char *help;  /* one sentence or two, no final stop needed */
    const char *group; /* heading in the help; NULL: that of the option before it */
};

/* A set of values: made from one or more tables, then filled. Not thread-safe while it is being
 * filled; reading values is. */
struct sl_options;

/* `tables` are NULL-name-terminated arrays, kept (not copied). A name that stands in two tables is
 * SL_ERR_INTERNAL. Returns owned. */
int sl_options_new(const struct sl_option *const *tables, size_t count,
                   struct sl_options **ret_options, struct sl_err *err);
void sl_options_free(struct sl_options *options); /* NULL ok */

/* Skip what is wrong on the command line and in the environment, and names that are in no table
 * everywhere, instead of failing: for a first look at options before the engine, which owns the
 * others, is known. */
void sl_options_lenient(struct sl_options *options, bool lenient);
/* The names of all commands (NULL-terminated, borrowed): a section [x:COMMAND] that names none of
 * them is an error then. */
void sl_options_commands(struct sl_options *options, const char *const *names);
/* Stanza sections in which `key` (an option, which counts as set by [global] or by default too) has
 * another value than `value` are somebody else's: what is not known there is no mistake, except in
 * the stanza that is asked for. For a [STANZA:COMMAND] that has to stand behind the key. Borrowed.
 */
void sl_options_owner(struct sl_options *options, const char *key, const char *value);

/* Parse argv after the command word. Positional arguments go to `args` (borrowed pointers, at
 * most `args_max`), everything after "--" too. Returns their number or SL_ERR_USAGE. A lenient
 * set drops positional arguments beyond `args_max`. */
int sl_options_parse_args(struct sl_options *options, const char *command, int argc, char **argv,
                          const char **args, int args_max, struct sl_err *err);
/* SLUICE_… variables. An unknown one is an error if it looks like a mistyped option (at most two
 * letters away); else it is somebody else's and ignored (SLUICE_FAULT, SLUICE_PLUGIN_PATH;
 * Kubernetes sets SLUICE_SERVICE_HOST for a service of that name). An empty variable counts as not
 * set. */
int sl_options_parse_env(struct sl_options *options, char **environment, struct sl_err *err);
/* An INI file: lines `key = value`, comments from '#' or ';' at a line's start or after white
 * space, values with either in double quotes. Sections: [global], [global:COMMAND], [STANZA],
 * [STANZA:COMMAND]; `stanza` may be NULL: then only [global…] count and the sections' names are
 * remembered, see sl_options_sections(). Keys of other stanzas are still checked for being known.
 * Called after parse_args and parse_env, which win; may be called again (with a stanza): what the
 * file said before is forgotten. SL_ERR_OPEN if it is missing (err->sys is ENOENT). */
int sl_options_parse_file(struct sl_options *options, const char *path, const char *stanza,
                          const char *command, struct sl_err *err);
/* The same for bytes in memory; `path` is for messages. */
int sl_options_parse_text(struct sl_options *options, const char *text, size_t bytes,
                          const char *path, const char *stanza, const char *command,
                          struct sl_err *err);
/* The stanza sections (without [global…]) seen in the file, in its order. */
size_t sl_options_sections(const struct sl_options *options, const char ***ret_names);
/* A key's value in a given section, for the daemon's per-stanza keys; NULL if not set there. Of a
 * LIST that is repeated there, the items are joined by commas. */
const char *sl_options_in_section(const struct sl_options *options, const char *section,
                                  const char *name);

/* Values. A name that is not in the tables is a programming error (abort). Strings are borrowed
 * and stay until sl_options_free (or the next parse_file). */
const char *sl_option_string(const struct sl_options *options, const char *name); /* or NULL */
bool sl_option_bool(const struct sl_options *options, const char *name);
int64_t sl_option_int(const struct sl_options *options, const char *name); /* INT, BYTES, ms */
/* Items are NULL-terminated too. */
size_t sl_option_list(const struct sl_options *options, const char *name, const char ***ret_items);
bool sl_option_is_set(const struct sl_options *options, const char *name); /* not from default */
bool sl_option_exists(const struct sl_options *options, const char *name); /* in a table? */
/* "command line", "environment", "/etc/sluice/sluice.conf:12", "default". */
const char *sl_option_origin(const struct sl_options *options, const char *name);
/* Set from code (tests, derived values); checked like any other, and wins over all. */
int sl_option_set(struct sl_options *options, const char *name, const char *value,
                  const char *origin, struct sl_err *err);

/* Is the option one of the command's? (NULL: any) */
bool sl_option_belongs(const struct sl_option *option, const char *command);
/* Every option of a command (NULL: all), in the order of the tables. */
void sl_options_visit(const struct sl_options *options, const char *command,
                      void (*visit)(void *arg, const struct sl_option *option), void *arg);

/* Text for one command (NULL: all): options in groups, those of the command itself first. `_man`
 * writes the OPTIONS section as scdoc. */
void sl_options_help(const struct sl_options *options, const char *command, FILE *out);
void sl_options_man(const struct sl_options *options, const char *command, FILE *out);
/* The keys that a configuration file may have, as scdoc: with their values, bounds, defaults and,
 * where they are not every command's, the commands. */
void sl_options_man_keys(const struct sl_options *options, FILE *out);
/* One paragraph, its words wrapped at 100 columns; the caller stands at column `indent` already. */
void sl_print_wrapped(FILE *out, const char *text, int indent);
/* Text with scdoc's special characters escaped. */
void sl_scdoc_text(const char *text, FILE *out);

/* The nearest of `count` candidates to a word that was mistyped, or NULL if none is near. */
const char *sl_nearest(const char *word, const char *const *candidates, size_t count);

/* Parsers of values, for other users: "64MiB", "64M" (the same), "1GB" (10^9), "100MB/s"; "30s",
 * "5min", "2h", "7d", "500ms", "30" (s). Never negative. SL_ERR_USAGE. */
int sl_parse_bytes(const char *text, int64_t *ret_bytes, struct sl_err *err);
int sl_parse_duration_ms(const char *text, int64_t *ret_ms, struct sl_err *err);
/* "12.3 MB", "1.50 GB" (powers of 1000), for people. Returns `text`; 16 bytes are enough. */
const char *sl_bytes_text(uint64_t bytes, char *text, size_t room);

#endif
