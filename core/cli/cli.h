/* The command `sluice`: from argv to an exit status. Inside of core/cli only; engines include
 * core/cli/connect.h.
 *
 * A command's way: find the word, look leniently for `engine` and `output`, load the engine's
 * plugin unless the command is core's own and reads no configuration, make the whole option set,
 * read command line, environment, file, choose the stanza, run, print the result or the error.
 */
#ifndef SL_CLI_CLI_H
#define SL_CLI_CLI_H

#include "core/cli/settings.h"
#include "core/plugin/engine.h"

/* The whole program: returns the exit status. */
int sl_cli_main(int argc, char **argv, char **environment);

/* Commands that are core's own, NULL-name-terminated. */
extern const struct sl_command sl_core_commands[];
/* Do without engine and configuration? (help, version, cert) */
bool sl_command_stands_alone(const struct sl_command *command);
/* By name; from core's, then the engine's (may be NULL). */
const struct sl_command *sl_command_find(const struct sl_engine *engine, const char *name);
/* The names of all commands, NULL-terminated; returns owned (sl_free). NULL: out of memory. */
const char **sl_command_names(const struct sl_engine *engine);

/* The commands themselves. */
int sl_cli_verify(struct sl_invocation *invocation, struct sl_err *err);
int sl_cli_push(struct sl_invocation *invocation, struct sl_err *err);
int sl_cli_pull(struct sl_invocation *invocation, struct sl_err *err);
int sl_cli_cert(struct sl_invocation *invocation, struct sl_err *err);
int sl_cli_version(struct sl_invocation *invocation, struct sl_err *err);

/* Chooses a stanza from what was read of the file (parse_file with a NULL stanza): the one given,
 * the only one, or the one whose data path is, or contains, the folder `cwd`. 0 with `*ret_stanza`
 * borrowed from `options`, or NULL when there is none to choose; an error for a name that is
 * none. */
int sl_stanza_choose(const struct sl_options *options, const struct sl_option *engine_options,
                     const char *cwd, const char **ret_stanza, struct sl_err *err);
/* 1..64 of [A-Za-z0-9._+-], not beginning with '.' or '-', not "global". */
int sl_stanza_check(const char *name, struct sl_err *err);

/* Help. `engine` may be NULL, `note` says why then. */
struct sl_help {
    const struct sl_engine *engine;
    const struct sl_options *options;
    const char *note;
};
void sl_help_overview(const struct sl_help *help, FILE *out);
void sl_help_command(const struct sl_help *help, const struct sl_command *command, FILE *out);
/* Writes sluice.1, sluice-COMMAND.1, sluice.conf.5, sluiced.conf.5 and sluiced.8, as scdoc, to a
 * folder; of an engine that is not the default one only its own, sluice-ENGINE.1 and
 * sluice-ENGINE-COMMAND.1. */
int sl_help_man(const struct sl_help *help, const char *folder, struct sl_err *err);
void sl_help_completion(const struct sl_help *help, FILE *out);

/* Output. Texts may quote what a peer or a repository said: plain means without control characters,
 * so that they can neither forge lines nor move a cursor. */
void sl_output_plain(FILE *out, const char *text);
/* Says who it was that may not, if that is the error and nothing else was advised. */
void sl_output_hint(struct sl_err *err);
void sl_output_error(const struct sl_err *err); /* "ERROR: [055]: …", "HINT: …" on stderr */
/* The object to standard output, "version" and (if code is not 0) "error" added. */
int sl_output_json(json_t *result, const struct sl_err *error, struct sl_err *err);
/* Sets the log's sink and level from the options output and log-level. */
void sl_output_log(const struct sl_options *options);

#endif
