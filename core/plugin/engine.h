/* The engine contract: what a database engine (PostgreSQL, MariaDB/MySQL, plain files) brings to
 * `sluice`. An engine is a plugin: a shared object in the plugin folder (SLUICE_PLUGIN_PATH, else
 * ../lib/sluice beside the program) named sluice-<engine>.so, exporting one symbol,
 *
 *     const struct sl_engine sluice_engine;
 *
 * It finds core's functions in the program that loads it. Core knows no database: all it asks of
 * an engine is the list of its commands and options.
 *
 * Life: the program loads the engine that a command belongs to, makes the option tables (core's
 * and the engine's) into one set, parses, connects nothing, and calls run(). run() opens what it
 * needs with sl_command_client(), works, and returns 0 or a code; the program logs the error and
 * exits with engine->exit_status or sl_code_exit(). Everything happens on the main thread unless
 * the engine starts threads of its own.
 */
#ifndef SL_PLUGIN_ENGINE_H
#define SL_PLUGIN_ENGINE_H

#include "core/base/err.h"
#include "core/base/options.h"

#include <jansson.h>
#include <stdint.h>

#define SL_ENGINE_ABI 2

struct sl_command;

/* What a command works with. Made by the program; the engine reads it. */
struct sl_invocation {
    const struct sl_command *command;
    const struct sl_options *options;
    const char *const *args; /* positional */
    int arg_count;
    const char *const *program; /* what follows "--", NULL-terminated; NULL unless takes_program */
    const char *stanza; /* chosen: given, or the config's only one, or by the folder; or NULL */
    const char *config_path;      /* that was read, or NULL */
    bool json;                    /* --output=json */
    struct sl_progress *progress; /* core/base/progress.h */
    json_t *result; /* object: with --output=json printed at the end, "version" is set */
};

struct sl_command {
    const char *name; /* "archive-push" */
    const char *args; /* "PATH", "NAME DEST", "" */
    int args_min, args_max;
    const char *summary;     /* one line */
    const char *description; /* for the man page, may be NULL */
    bool needs_stanza;
    bool reads;         /* it mostly reads from the repository: see enum sl_client_use */
    bool takes_program; /* "-- COMMAND…" may follow: see sl_invocation.program */
    bool prints_data;   /* standard output is a stream: neither text nor JSON goes there */
    int (*run)(struct sl_invocation *invocation, struct sl_err *err);
    /* Exit status for `code` (negative) where the engine's contract differs from
     * sl_code_exit(); NULL: that. Also called for errors before run() (bad option or file):
     * `invocation` then has only what was known. */
    int (*exit_status)(const struct sl_invocation *invocation, int code);
};

struct sl_engine {
    uint32_t abi;                      /* SL_ENGINE_ABI */
    const char *name;                  /* "postgres" */
    const char *title;                 /* "PostgreSQL" */
    const struct sl_command *commands; /* NULL-name-terminated */
    const struct sl_option *options;   /* NULL-name-terminated */
};

#endif
