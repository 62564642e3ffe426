/* What `sluice help` says, and the shell completion: from the tables of commands and options. The
 * man pages are man.c's. */
#include "core/cli/cli.h"

#include "core/base/alloc.h"

#include <string.h>

/* --- for the terminal ------------------------------------------------------------------------ */

static void list_commands(const struct sl_command *commands, FILE *out)
{
    for (; commands->name; commands++) {
        char text[64];
        snprintf(text, sizeof text, "%s %s", commands->name, commands->args ? commands->args : "");
        fprintf(out, "  %-30s %s\n", text, commands->summary ? commands->summary : "");
    }
}

void sl_help_overview(const struct sl_help *help, FILE *out)
{
    fputs("sluice " SLUICE_VERSION ": database backups by remote DMA\n"
          "\n"
          "usage: sluice COMMAND [OPTION...] [ARGUMENT...]\n",
          out);
    if (help->engine) {
        fprintf(out, "\nCommands for %s:\n", help->engine->title);
        list_commands(help->engine->commands, out);
    }
    fputs("\nCommands for every engine:\n", out);
    list_commands(sl_core_commands, out);
    if (help->note)
        fprintf(out, "\n(no engine's commands: %s)\n", help->note);
    fputs(
        "\n\"sluice help COMMAND\" explains a command and its options. Options also come from the\n"
        "environment (--repo-path is SLUICE_REPO_PATH) and from " SL_CLI_CONFIG ".\n",
        out);
}

void sl_help_command(const struct sl_help *help, const struct sl_command *command, FILE *out)
{
    fprintf(out, "sluice %s: %s\n\nusage: sluice %s [OPTION...]%s%s\n", command->name,
            command->summary ? command->summary : "", command->name,
            command->args && *command->args ? " " : "", command->args ? command->args : "");
    if (command->description) {
        fputc('\n', out);
        sl_print_wrapped(out, command->description, 0);
    }
    sl_options_help(help->options, command->name, out);
}

/* --- completion ------------------------------------------------------------------------------ */

static void complete_option(void *arg, const struct sl_option *option)
{
    FILE *out = arg;
    if (option->flags & (SL_OPTION_HIDDEN | SL_OPTION_FILE_ONLY | SL_OPTION_SECTION))
        return;
    fprintf(out, " --%s%s", option->name, option->type == SL_OPTION_BOOL ? "" : "=");
}

static void complete_choices(void *arg, const struct sl_option *option)
{
    FILE *out = arg;
    if (option->type != SL_OPTION_CHOICE || option->flags & SL_OPTION_HIDDEN)
        return;
    fprintf(out, "    --%s) words='", option->name);
    for (const char *at = option->choices; *at; at++)
        fputc(*at == '|' ? ' ' : *at, out);
    fputs("' ;;\n", out);
}

void sl_help_completion(const struct sl_help *help, FILE *out)
{
    const char **names = sl_command_names(help->engine);
    if (!names)
        return;
    fputs(
        "# bash completion of sluice, made by `sluice help --completion=bash`\n"
        "_sluice() {\n"
        "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= words= i\n"
        "  # \"--name=value\" is three words where '=' breaks words\n"
        "  [ \"$cur\" = = ] && cur=\n"
        "  [ \"$prev\" = = ] && prev=${COMP_WORDS[COMP_CWORD-2]}\n"
        "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
        "    case ${COMP_WORDS[i]} in -*|=) ;; *) [ \"${COMP_WORDS[i-1]}\" = = ] ||\n"
        "      { command=${COMP_WORDS[i]}; break; } ;; esac\n"
        "  done\n"
        "  case $prev in\n",
        out);
    sl_options_visit(help->options, NULL, complete_choices, out);
    fputs("  esac\n"
          "  if [ -z \"$words\" ]; then case $command in\n    '') words='",
          out);
    for (const char **name = names; *name; name++)
        fprintf(out, "%s ", *name);
    fputs("--help --version' ;;\n", out);
    for (const char **name = names; *name; name++) {
        fprintf(out, "    %s) words='", *name);
        sl_options_visit(help->options, *name, complete_option, out);
        fputs(" --help' ;;\n", out);
    }
    fputs("  esac; fi\n"
          "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
          "  [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace\n"
          "}\n"
          "complete -o default -F _sluice sluice\n",
          out);
    sl_free(names);
}
