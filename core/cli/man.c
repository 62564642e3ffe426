/* The man pages' sources (scdoc), all from the tables of commands and options. */
#include "core/base/alloc.h"
#include "core/cli/cli.h"
#include "core/cli/connect.h"
#include "core/cli/daemon.h"

#include <errno.h>
#include <string.h>

static FILE *open_page(const char *folder, const char *name, int section, struct sl_err *err)
{
    char *path = sl_asprintf("%s/%s.%d.scd", folder, name, section);
    if (!path) {
        sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
        return NULL;
    }
    FILE *out = fopen(path, "w");
    if (out)
        fprintf(out, "%s(%d) \"sluice " SLUICE_VERSION "\" \"Sluice\"\n\n# NAME\n\n", name,
                section);
    else
        sl_err_sys(err, SL_ERR_WRITE, errno, "could not write \"%s\"", path);
    sl_free(path);
    return out;
}

static int close_page(FILE *out, struct sl_err *err)
{
    int failed = ferror(out);
    if (fclose(out) || failed)
        return sl_err_sys(err, SL_ERR_WRITE, errno, "could not write a man page");
    return 0;
}

static void paragraph(FILE *out, const char *text)
{
    sl_scdoc_text(text, out);
    fputs("\n\n", out);
}

static void bold(FILE *out, const char *text)
{
    fputc('*', out);
    sl_scdoc_text(text, out);
    fputc('*', out);
}

/* Engines have commands of the same names: the pages of one that has to be asked for are
 * sluice-ENGINE-COMMAND(1). */
static bool has_plain_names(const struct sl_engine *engine)
{
    for (const struct sl_option *option = sl_core_options; option->name; option++)
        if (strcmp(option->name, "engine") == 0)
            return strcmp(option->default_text, engine->name) == 0;
    return true;
}

/* `prefix`: "", or the engine's name and a dash. */
static int command_page(const struct sl_help *help, const struct sl_command *command,
                        const char *prefix, const char *folder, struct sl_err *err)
{
    char name[128];
    snprintf(name, sizeof name, "sluice-%s%s", prefix, command->name);
    FILE *out = open_page(folder, name, 1, err);
    if (!out)
        return err ? err->code : SL_ERR_WRITE;
    fprintf(out, "%s - ", name);
    paragraph(out, command->summary ? command->summary : "");
    fputs("# SYNOPSIS\n\n*sluice* ", out);
    bold(out, command->name);
    fputs(" [OPTION...] ", out);
    paragraph(out, command->args ? command->args : "");
    fputs("# DESCRIPTION\n\n", out);
    paragraph(out, command->description ? command->description
                   : command->summary   ? command->summary
                                        : "");
    sl_options_man(help->options, command->name, out);
    fputs("# SEE ALSO\n\n*sluice*(1), ", out);
    if (*prefix)
        fprintf(out, "*sluice-%.*s*(1), ", (int)strlen(prefix) - 1, prefix);
    fputs("*sluice.conf*(5), *sluiced*(8)\n", out);
    return close_page(out, err);
}

static void man_commands(const struct sl_command *commands, FILE *out)
{
    for (; commands->name; commands++) {
        bold(out, commands->name);
        fputs(" ", out);
        sl_scdoc_text(commands->args ? commands->args : "", out);
        fputs("\n\t", out);
        paragraph(out, commands->summary ? commands->summary : "");
    }
}

static void exit_statuses(FILE *out)
{
    fputs("# EXIT STATUS\n\n*0*\n\tSuccess.\n\n", out);
    for (int code = -1; strcmp(sl_code_name(code), "UNKNOWN") != 0; code--) {
        fprintf(out, "*%d*\n\t", sl_code_exit(code));
        paragraph(out, sl_code_text(code));
    }
    fputs("*126*\n\tThe command is unknown, or the engine that knows it could not be loaded. "
          "Above 125 because a mistyped restore\\_command must not look like a segment that is "
          "not in the archive.\n\n"
          "*archive-push* and *archive-get* have contracts of their own, those of PostgreSQL's "
          "archive\\_command and restore\\_command: see their pages.\n\n",
          out);
}

static int main_page(const struct sl_help *help, const char *folder, struct sl_err *err)
{
    FILE *out = open_page(folder, "sluice", 1, err);
    if (!out)
        return err ? err->code : SL_ERR_WRITE;
    fputs("sluice - database backups by remote DMA\n\n"
          "# SYNOPSIS\n\n*sluice* COMMAND [OPTION...] [ARGUMENT...]\n\n"
          "# DESCRIPTION\n\n"
          "Moves backups and write-ahead logs of databases to a repository: a folder of this "
          "host (*repo-path*), or a backup host that runs *sluiced*(8) (*repo-host*), over RDMA "
          "where both sides have it and over TCP otherwise.\n\n"
          "# COMMANDS\n\n",
          out);
    if (help->engine)
        man_commands(help->engine->commands, out);
    man_commands(sl_core_commands, out);
    sl_options_man(help->options, NULL, out);
    fputs("# CONFIGURATION\n\n"
          "A value comes from the command line, else the environment (*SLUICE\\_REPO\\_PATH* for "
          "*--repo-path*), else the configuration file, " SL_CLI_CONFIG ": lines _key_ = _value_ "
          "in sections \\[global\\], \\[STANZA\\], and for one command only "
          "\\[global:COMMAND\\] and \\[STANZA:COMMAND\\]. A stanza's section wins over "
          "\\[global\\]. Comments begin with # or ;. An unknown key is an error.\n\n"
          "Sizes read 64MiB, 1GB, 512kB; times 500ms, 30s, 5min, 2h, 7d.\n\n",
          out);
    exit_statuses(out);
    fputs("# ENVIRONMENT\n\n*SLUICE\\_...*\n\tOptions.\n\n"
          "*SLUICE\\_PLUGIN\\_PATH*\n\tThe folder of the plugins.\n\n"
          "# FILES\n\n" SL_CLI_CONFIG "\n\n# SEE ALSO\n\n*sluice.conf*(5), *sluiced*(8)\n",
          out);
    return close_page(out, err);
}

static int daemon_page(const char *folder, struct sl_err *err)
{
    const struct sl_option *const tables[] = {sl_daemon_options};
    struct sl_options *options = NULL;
    int rc = sl_options_new(tables, 1, &options, err);
    if (rc)
        return rc;
    FILE *out = open_page(folder, "sluiced", 8, err);
    if (out) {
        fputs("sluiced - backup host of Sluice\n\n"
              "# SYNOPSIS\n\n*sluiced* [*--config*=_FILE_] [OPTION...]\n\n"
              "# DESCRIPTION\n\n"
              "Serves one repository to any number of database hosts. It stays in the foreground "
              "and tells systemd(1) when it is ready. Every option may stand in the configuration "
              "file's \\[global\\] section; each stanza has a section that names its *clients*.\n\n"
              "An empty or missing *repo-path* becomes a repository.\n\n"
              "# SIGNALS\n\n"
              "*SIGTERM*, *SIGINT*\n\tStop: commits that have begun end, the rest is dropped. A "
              "second one ends the process at once.\n\n"
              "*SIGHUP*\n\tRead the configuration file again: clients, certificates and log "
              "level change; a file with a mistake changes nothing.\n\n"
              "*SIGUSR1*\n\tLog the counters.\n\n",
              out);
        sl_options_man(options, NULL, out);
        fputs("# FILES\n\n" SL_DAEMON_CONFIG "\n\n# SEE ALSO\n\n*sluiced.conf*(5), *sluice*(1)\n",
              out);
        rc = close_page(out, err);
    } else {
        rc = err ? err->code : SL_ERR_WRITE;
    }
    sl_options_free(options);
    return rc;
}

/* sluice.conf(5) and sluiced.conf(5): every key. */
static int config_page(const struct sl_options *options, const char *name, const char *description,
                       const char *folder, struct sl_err *err)
{
    FILE *out = open_page(folder, name, 5, err);
    if (!out)
        return err ? err->code : SL_ERR_WRITE;
    fprintf(out, "%s - configuration of Sluice\n\n# DESCRIPTION\n\n%s\n\n", name, description);
    fputs(
        "Lines _key_ = _value_; comments begin with # or ; at a line's start or after white space, "
        "values with either stand in double quotes. An unknown key is an error. Sizes read 64MiB, "
        "1GB, 512kB; times 500ms, 30s, 5min, 2h, 7d.\n\n",
        out);
    sl_options_man_keys(options, out);
    fputs("# SEE ALSO\n\n*sluice*(1), *sluiced*(8)\n", out);
    return close_page(out, err);
}

static int config_pages(const struct sl_help *help, const char *folder, struct sl_err *err)
{
    const struct sl_option *const tables[] = {sl_daemon_options};
    struct sl_options *options = NULL;
    int rc = config_page(
        help->options, "sluice.conf",
        SL_CLI_CONFIG " on a database host. Sections: \\[global\\] for all, \\[STANZA\\] for one "
                      "database cluster, which wins over it; \\[global:COMMAND\\] and "
                      "\\[STANZA:COMMAND\\] for one command. The command line and the environment "
                      "(*SLUICE\\_REPO\\_PATH* for *repo-path*) win over the file.",
        folder, err);
    if (!rc)
        rc = sl_options_new(tables, 1, &options, err);
    if (!rc)
        rc = config_page(options, "sluiced.conf",
                         SL_DAEMON_CONFIG " on a backup host. Section \\[global\\], and one "
                                          "\\[STANZA\\] for each database cluster that may be "
                                          "stored, with its *clients*.",
                         folder, err);
    sl_options_free(options);
    return rc;
}

static int command_pages(const struct sl_help *help, const struct sl_command *commands,
                         const char *prefix, const char *folder, struct sl_err *err)
{
    int rc = 0;
    for (; commands->name && !rc; commands++)
        rc = command_page(help, commands, prefix, folder, err);
    return rc;
}

/* sluice-ENGINE(1): an engine that has to be asked for, its commands and keys. */
static int engine_page(const struct sl_help *help, const char *folder, struct sl_err *err)
{
    char name[64];
    const struct sl_engine *engine = help->engine;
    const struct sl_option *const tables[] = {engine->options};
    struct sl_options *options = NULL;
    int rc = sl_options_new(tables, 1, &options, err);
    if (rc)
        return rc;
    snprintf(name, sizeof name, "sluice-%s", engine->name);
    FILE *out = open_page(folder, name, 1, err);
    if (out) {
        fprintf(out, "%s - backups of %s\n\n# DESCRIPTION\n\n", name, engine->title);
        fprintf(out,
                "A stanza with the line *engine* = *%s* in its section of " SL_CLI_CONFIG
                " (or *--engine=%s*) has these commands beside those of *sluice*(1). Each has "
                "a page *sluice-%s-COMMAND*(1); *sluice help COMMAND --engine=%s* shows the same."
                "\n\n# COMMANDS\n\n",
                engine->name, engine->name, engine->name, engine->name);
        man_commands(engine->commands, out);
        sl_options_man_keys(options, out);
        fputs("# SEE ALSO\n\n*sluice*(1), *sluice.conf*(5), *sluiced*(8)\n", out);
        rc = close_page(out, err);
    } else {
        rc = err ? err->code : SL_ERR_WRITE;
    }
    sl_options_free(options);
    return rc;
}

static int engine_pages(const struct sl_help *help, const char *folder, struct sl_err *err)
{
    char prefix[64];
    int rc = engine_page(help, folder, err);
    snprintf(prefix, sizeof prefix, "%s-", help->engine->name);
    return rc ? rc : command_pages(help, help->engine->commands, prefix, folder, err);
}

int sl_help_man(const struct sl_help *help, const char *folder, struct sl_err *err)
{
    if (help->engine && !has_plain_names(help->engine))
        return engine_pages(help, folder, err);
    int rc = main_page(help, folder, err);
    if (!rc)
        rc = command_pages(help, sl_core_commands, "", folder, err);
    if (!rc && help->engine)
        rc = command_pages(help, help->engine->commands, "", folder, err);
    if (!rc)
        rc = config_pages(help, folder, err);
    return rc ? rc : daemon_page(folder, err);
}
