/* The program `sluice`: one command from argv to its exit status. What commands do is elsewhere. */
#include "core/cli/cli.h"

#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/stop.h"
#include "core/cli/connect.h"
#include "core/plugin/loader.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Exit status of what is no command's own failure; see fallback_status(). */
#define EXIT_NOT_CARRIED_OUT 126
#define ARGS_MAX             16

struct cli {
    char **environment;
    /* from argv */
    const char *word; /* the command's, or NULL */
    char **rest;      /* argv without program, word and --help */
    int rest_count;
    bool want_help, want_version;
    /* engine */
    const struct sl_engine *engine;
    struct sl_err engine_err; /* why there is none */
    /* the rest */
    const struct sl_command *command;
    const char **names;
    struct sl_options *options;
    const char *args[ARGS_MAX];
    char *stanza;
    struct sl_invocation invocation;
};

/* --- command line ---------------------------------------------------------------------------- */

static bool takes_value(const char *word)
{
    for (const struct sl_option *option = sl_core_options; option->name; option++)
        if (strcmp(option->name, word + 2) == 0)
            return option->type != SL_OPTION_BOOL;
    return false;
}

/* Finds the command's word (options may stand before it) and takes --help and --version out. */
static int scan(struct cli *cli, int argc, char **argv, struct sl_err *err)
{
    cli->rest = sl_calloc((size_t)argc + 1, sizeof *cli->rest);
    if (!cli->rest)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    bool only_args = false;
    for (int i = 1; i < argc; i++) {
        char *word = argv[i];
        bool is_option = !only_args && word[0] == '-' && word[1];
        if (is_option && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            cli->want_help = true;
            continue;
        }
        if (is_option && (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)) {
            cli->want_version = true;
            continue;
        }
        if (!is_option && !cli->word) {
            cli->word = word;
            continue;
        }
        only_args = only_args || strcmp(word, "--") == 0;
        cli->rest[cli->rest_count++] = word;
        if (is_option && !cli->word && !strchr(word, '=') && takes_value(word) && i + 1 < argc)
            cli->rest[cli->rest_count++] = argv[++i];
    }
    return 0;
}

/* --- the first look: which engine, which form of output ----------------------------------------
 */

static void take_string(char *to, size_t room, const struct sl_options *options, const char *name)
{
    const char *value = sl_option_string(options, name);
    snprintf(to, room, "%s", value ? value : "");
}

/* Mistakes are left to the second look, which can say what they are. */
static int look(struct cli *cli, char engine[64], struct sl_err *err)
{
    const struct sl_option *const tables[] = {sl_core_options};
    struct sl_options *options = NULL;
    int rc = sl_options_new(tables, 1, &options, err);
    if (rc)
        return rc;
    sl_options_lenient(options, true);
    sl_options_parse_args(options, NULL, cli->rest_count, cli->rest, NULL, 0, NULL);
    sl_options_parse_env(options, cli->environment, NULL);
    const char *path = sl_option_string(options, "config");
    char stanza[80];
    take_string(stanza, sizeof stanza, options, "stanza");
    sl_options_parse_file(options, path, *stanza ? stanza : NULL, cli->word, NULL);
    const char **names;
    if (!*stanza && sl_options_sections(options, &names) == 1) { /* it will be chosen */
        snprintf(stanza, sizeof stanza, "%s", names[0]);
        sl_options_parse_file(options, path, stanza, cli->word, NULL);
    }
    take_string(engine, 64, options, "engine");
    cli->invocation.json = strcmp(sl_option_string(options, "output"), "json") == 0;
    sl_options_free(options);
    return 0;
}

/* --- preparing ---------------------------------------------------------------------------------
 */

static int make_options(struct cli *cli, struct sl_err *err)
{
    const struct sl_option *tables[] = {sl_core_options, cli->engine ? cli->engine->options : NULL};
    cli->names = sl_command_names(cli->engine);
    if (!cli->names)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    int rc = sl_options_new(tables, cli->engine ? 2 : 1, &cli->options, err);
    if (!rc) {
        sl_options_commands(cli->options, cli->engine ? cli->names : NULL);
        if (cli->engine)
            sl_options_owner(cli->options, "engine", cli->engine->name);
        cli->invocation.options = cli->options;
    }
    return rc;
}

static int unknown_command(struct cli *cli, struct sl_err *err)
{
    size_t count = 0;
    while (cli->names && cli->names[count])
        count++;
    const char *nearest = cli->names ? sl_nearest(cli->word, cli->names, count) : NULL;
    if (!cli->engine) {
        /* it is probably the engine's: why that is missing is what matters */
        sl_err_copy(err, &cli->engine_err);
        return sl_err_prefix(err, "unknown command \"%.64s\"", cli->word);
    }
    sl_err_set(err, SL_ERR_USAGE, "unknown command \"%.64s\"", cli->word);
    return nearest ? sl_err_hint(err, "did you mean \"%s\"?", nearest)
                   : sl_err_hint(err, "\"sluice help\" lists the commands");
}

static int read_args(struct cli *cli, struct sl_err *err)
{
    const struct sl_command *command = cli->command;
    int max = command->args_max < ARGS_MAX ? command->args_max : ARGS_MAX;
    int count = sl_options_parse_args(cli->options, command->name, cli->rest_count, cli->rest,
                                      cli->args, max, err);
    if (count < 0)
        return count;
    cli->invocation.args = cli->args;
    cli->invocation.arg_count = count;
    if (count >= command->args_min)
        return 0;
    sl_err_set(err, SL_ERR_USAGE, "arguments are missing");
    return sl_err_hint(err, "usage: sluice %s %s", command->name, command->args);
}

/* The file may be missing if nobody named it. */
static int read_file(struct cli *cli, const char *stanza, struct sl_err *err)
{
    const char *path = sl_option_string(cli->options, "config");
    struct sl_err failure = {0};
    int rc = sl_options_parse_file(cli->options, path, stanza, cli->command->name, &failure);
    if (rc == SL_ERR_OPEN && failure.sys == ENOENT && !sl_option_is_set(cli->options, "config"))
        return 0;
    if (rc)
        return sl_err_copy(err, &failure);
    cli->invocation.config_path = path;
    return 0;
}

static int choose_stanza(struct cli *cli, struct sl_err *err)
{
    char cwd[PATH_MAX];
    const char *chosen = NULL;
    int rc = sl_stanza_choose(cli->options, cli->engine ? cli->engine->options : NULL,
                              getcwd(cwd, sizeof cwd) ? cwd : NULL, &chosen, err);
    if (rc)
        return rc;
    if (chosen) {
        /* reading the file again forgets the names of its sections */
        cli->stanza = sl_strdup(chosen);
        if (!cli->stanza)
            return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
        cli->invocation.stanza = cli->stanza;
        return cli->invocation.config_path ? read_file(cli, cli->stanza, err) : 0;
    }
    if (!cli->command->needs_stanza)
        return 0;
    const char **names;
    sl_err_set(err, SL_ERR_USAGE, "no stanza is named");
    if (sl_options_sections(cli->options, &names))
        return sl_err_hint(err, "the configuration file has several: add --stanza=NAME");
    const char *path = sl_option_string(cli->options, "config");
    if (!cli->invocation.config_path)
        return sl_err_hint(err,
                           "there is no %s: make it, with a section [NAME], or name another "
                           "with --config=FILE; or add --stanza=NAME",
                           path);
    return sl_err_hint(err, "add --stanza=NAME, or a section [NAME] to %s", path);
}

/* A mistyped stanza has none of its section's settings, and would be looked for, or made, with the
 * defaults. It is no error: a file may hold what is common, and the command line the rest. */
static void warn_of_stanza(const struct cli *cli)
{
    const char *stanza = cli->invocation.stanza;
    const char **names;
    size_t count = sl_options_sections(cli->options, &names);
    if (!stanza || !count)
        return;
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], stanza) == 0)
            return;
    const char *nearest = sl_nearest(stanza, names, count);
    sl_log(SL_LOG_WARN, "cli", "%s has no section [%s], but [%s]%s: only [global] counts",
           cli->invocation.config_path, stanza, nearest ? nearest : names[0],
           count > 1 ? " and others" : "");
}

static int make_progress(struct cli *cli, struct sl_err *err)
{
    const char *wish = sl_option_string(cli->options, "progress");
    enum sl_progress_mode mode = SL_PROGRESS_NONE;
    if (strcmp(wish, "json") == 0)
        mode = SL_PROGRESS_JSON;
    else if (strcmp(wish, "text") == 0)
        mode = SL_PROGRESS_TEXT;
    else if (strcmp(wish, "auto") == 0 && isatty(STDERR_FILENO))
        mode = SL_PROGRESS_TEXT;
    return sl_progress_new(mode, cli->command->name, &cli->invocation.progress, err);
}

static int read_options(struct cli *cli, struct sl_err *err)
{
    int rc = read_args(cli, err);
    if (rc)
        return rc;
    bool alone = sl_command_stands_alone(cli->command);
    /* without the engine its options cannot be told from mistakes */
    if (alone || !cli->engine)
        sl_options_lenient(cli->options, true);
    rc = sl_options_parse_env(cli->options, cli->environment, err);
    if (!rc && !alone)
        rc = read_file(cli, NULL, err);
    if (!rc && !alone)
        rc = choose_stanza(cli, err);
    if (rc)
        return rc;
    cli->invocation.json = strcmp(sl_option_string(cli->options, "output"), "json") == 0;
    sl_output_log(cli->options);
    if (!alone)
        warn_of_stanza(cli);
    if (!alone && !cli->engine)
        sl_log_err(SL_LOG_DETAIL, "cli", &cli->engine_err, "no engine");
    return 0;
}

/* "-- COMMAND…" is not for the option parser. */
static void take_program(struct cli *cli)
{
    for (int i = 0; cli->command->takes_program && i < cli->rest_count; i++) {
        if (strcmp(cli->rest[i], "--") != 0)
            continue;
        cli->invocation.program = (const char *const *)(cli->rest + i + 1);
        cli->rest_count = i;
    }
}

/* Everything before the command runs. */
static int prepare(struct cli *cli, struct sl_err *err)
{
    char engine[64];
    int rc = look(cli, engine, err);
    if (rc)
        return rc;
    cli->command = sl_command_find(NULL, cli->word);
    if (!cli->command || !sl_command_stands_alone(cli->command) || cli->want_help)
        sl_plugin_engine(engine, &cli->engine, &cli->engine_err);
    rc = make_options(cli, err);
    if (rc)
        return rc;
    cli->command = sl_command_find(cli->engine, cli->word);
    cli->invocation.command = cli->command;
    if (!cli->command)
        return unknown_command(cli, err);
    take_program(cli);
    return 0;
}

/* --- running -----------------------------------------------------------------------------------
 */

/* When the command is not known, or what knows its contract could not be loaded. Above 125,
 * because to PostgreSQL any other failure of a restore_command means that the segment is not in the
 * archive: it would end recovery and promote. Two exceptions: an archive_command must never fail so
 * (the archiver would die of it), nor a restore_command on a standby (which would shut down;
 * docs/exit-codes.md). */
static int fallback_status(const struct cli *cli, int code)
{
    if (cli->word && strcmp(cli->word, "archive-push") == 0)
        return sl_code_exit(code);
    if (cli->word && strcmp(cli->word, "archive-get") == 0 && access("standby.signal", F_OK) == 0)
        return 1;
    return EXIT_NOT_CARRIED_OUT;
}

static int exit_status(const struct cli *cli, int code)
{
    if (!code)
        return 0;
    if (!cli->command)
        return fallback_status(cli, code);
    int status = cli->command->exit_status ? cli->command->exit_status(&cli->invocation, code)
                                           : sl_code_exit(code);
    return status > 0 && status < 256 ? status : sl_code_exit(code);
}

/* --help and --version instead of a command, not beside its work: an archive_command that has "-h
 * HOST" in it, as psql has, must not succeed by printing its help. */
static int check_asked(struct cli *cli, struct sl_err *err)
{
    if (sl_command_stands_alone(cli->command) || (!cli->want_help && !cli->want_version))
        return 0;
    const char *option = cli->want_help ? "-h, --help" : "-V, --version";
    int args = 0;
    if (cli->want_help)
        args = sl_options_parse_args(cli->options, cli->command->name, cli->rest_count, cli->rest,
                                     cli->args, ARGS_MAX, err);
    if (args == 0 && cli->want_help)
        return 0;
    sl_err_set(err, SL_ERR_USAGE, "%s goes alone: \"%s\" was not carried out", option,
               cli->command->name);
    return sl_err_hint(err,
                       "\"sluice help %s\" lists its options; a host is repo-host, a server's "
                       "pg-host",
                       cli->command->name);
}

static int run_help(struct cli *cli, struct sl_err *err)
{
    struct sl_help help = {.engine = cli->engine, .options = cli->options};
    if (!cli->engine)
        help.note = cli->engine_err.msg;
    const struct sl_command *about = cli->want_help ? cli->command : NULL;
    if (!cli->want_help) {
        int rc = read_args(cli, err);
        if (rc)
            return rc;
        if (sl_option_string(cli->options, "man-dir"))
            return sl_help_man(&help, sl_option_string(cli->options, "man-dir"), err);
        if (sl_option_is_set(cli->options, "completion")) {
            sl_help_completion(&help, stdout);
            return 0;
        }
        if (cli->invocation.arg_count) {
            cli->word = cli->args[0];
            about = sl_command_find(cli->engine, cli->word);
            if (!about)
                return unknown_command(cli, err);
        }
    }
    if (about)
        sl_help_command(&help, about, stdout);
    else
        sl_help_overview(&help, stdout);
    return 0;
}

static int run_command(struct cli *cli, struct sl_err *err)
{
    int rc = read_options(cli, err);
    if (!rc)
        rc = make_progress(cli, err);
    if (!rc)
        rc = sl_stop_check(err);
    if (rc)
        return rc;
    cli->invocation.result = json_object();
    if (!cli->invocation.result)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    sl_stop_exit_status(exit_status(cli, SL_ERR_CANCELLED));
    rc = cli->command->run(&cli->invocation, err);
    sl_progress_done(cli->invocation.progress);
    return rc < 0 ? rc : 0;
}

/* Result or error to where they belong; returns the exit status. */
static int finish(struct cli *cli, int rc, struct sl_err *err)
{
    if (rc && !err->code)
        sl_err_set(err, rc, "%s", sl_code_text(rc));
    sl_output_hint(err);
    bool data = cli->command && cli->command->prints_data;
    bool json = cli->invocation.json && !cli->want_help && !cli->want_version && !data &&
                (rc || cli->invocation.result);
    struct sl_err output_err = {0};
    if (json)
        sl_output_json(cli->invocation.result, rc ? err : NULL, &output_err);
    else if (rc)
        sl_output_error(err);
    int sys = 0;
    if (!output_err.code && (fflush(stdout) || ferror(stdout))) {
        sys = errno;
        sl_err_set(&output_err, SL_ERR_WRITE, "could not write to standard output: %s%s",
                   strerror(sys), rc ? "" : " (the command itself succeeded)");
    }
    if (output_err.code && !rc) {
        if (sys != EPIPE) /* as in "sluice help | head": the reader has seen enough */
            sl_output_error(&output_err);
        rc = output_err.code;
    }
    return exit_status(cli, rc);
}

static void fini(struct cli *cli)
{
    sl_progress_free(cli->invocation.progress);
    json_decref(cli->invocation.result);
    sl_free(cli->stanza);
    sl_options_free(cli->options);
    sl_free(cli->names);
    sl_free(cli->rest);
}

/* No command at all: the overview, which is a mistake unless it was asked for. */
static int without_command(struct cli *cli, struct sl_err *err)
{
    bool asked = cli->want_help;
    cli->want_help = false;
    cli->word = cli->want_version ? "version" : "help";
    int rc = prepare(cli, err);
    if (rc)
        return rc;
    if (cli->want_version)
        return printf("sluice %s\n", SLUICE_VERSION) < 0 ? SL_ERR_WRITE : 0;
    if (asked)
        return run_help(cli, err);
    sl_err_set(err, SL_ERR_USAGE, "no command is named");
    return sl_err_hint(err, "\"sluice help\" lists the commands");
}

int sl_cli_main(int argc, char **argv, char **environment)
{
    struct cli cli = {.environment = environment};
    struct sl_err err = {0};
    /* before anything else: an archive_command that dies of a signal ends the archiver */
    int rc = sl_stop_init(&err);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* EFBIG instead (setrlimit(2)) */
    int scanned = scan(&cli, argc, argv, rc ? NULL : &err);
    sl_stop_exit_status(fallback_status(&cli, SL_ERR_CANCELLED));
    rc = rc ? rc : scanned;
    if (!rc && !cli.word) {
        rc = without_command(&cli, &err);
    } else if (!rc) {
        rc = prepare(&cli, &err);
        if (!rc)
            rc = check_asked(&cli, &err);
        if (!rc && (cli.want_help || !cli.command->run))
            rc = run_help(&cli, &err);
        else if (!rc)
            rc = run_command(&cli, &err);
    }
    int status = finish(&cli, rc, &err);
    fini(&cli);
    return status;
}
