/* The table of core's own commands: the same for every engine. */
#include "core/cli/cli.h"

#include "core/base/alloc.h"

#include <string.h>

/* help is done by the program itself, which knows the tables: see run.c. */
const struct sl_command sl_core_commands[] = {
    {.name = "verify",
     .args = "[NAME]",
     .args_max = 1,
     .summary = "read every object of the stanza and check it",
     .description =
         "The target reads each object (or those below NAME, as backup/LABEL) and checks every "
         "block against its digest, and each backup as a whole. Damaged objects are listed by "
         "name; the exit status is 26 then.",
     .needs_stanza = true,
     .run = sl_cli_verify},
    {.name = "push",
     .args = "NAME [NUMBER] [-- COMMAND…]",
     .args_min = 1,
     .args_max = 2,
     .summary = "store standard input, or a command's output, as a stream",
     .description =
         "NAME is 1 to 200 of A-Z a-z 0-9 . _ + = @ : - and does not begin with a dot; with NUMBER "
         "(one of several parallel streams) the stream is NAME.NUMBER. It appears under its name, "
         "whole and durable, after the end of the input, or not at all. A pipe does not tell "
         "whether the program at its other side failed: with COMMAND that program is run here, "
         "and its output is kept only if it ended with status 0. A name that is taken is refused, "
         "unless the content is the same. Empty input is refused.",
     .needs_stanza = true,
     .takes_program = true,
     .run = sl_cli_push},
    {.name = "pull",
     .args = "NAME [NUMBER]",
     .args_min = 1,
     .args_max = 2,
     .summary = "write a stream to standard output",
     .description = "Every block is checked before it is written. With any other status than 0 "
                    "what was written is not the whole stream.",
     .needs_stanza = true,
     .reads = true,
     .prints_data = true,
     .run = sl_cli_pull},
    {.name = "cert",
     .args = "init DIR | issue NAME",
     .args_min = 2,
     .args_max = 2,
     .summary = "make a private authority, and certificates for hosts",
     .description =
         "cert init DIR makes the authority DIR/ca.crt and DIR/ca.key. cert issue NAME --dir=DIR "
         "makes DIR/NAME.crt and DIR/NAME.key for a host: NAME is the name by which backup hosts "
         "are reached and database hosts are known. Copy the host's two files and ca.crt to the "
         "host; keep ca.key off the hosts. Nothing is overwritten.",
     .run = sl_cli_cert},
    {.name = "help",
     .args = "[COMMAND]",
     .args_max = 1,
     .summary = "explain a command and its options"},
    {.name = "version", .args = "", .summary = "print the version", .run = sl_cli_version},
    {.name = NULL},
};

bool sl_command_stands_alone(const struct sl_command *command)
{
    return command->run == sl_cli_cert || command->run == sl_cli_version;
}

static const struct sl_command *find(const struct sl_command *commands, const char *name)
{
    for (; commands->name; commands++)
        if (strcmp(commands->name, name) == 0)
            return commands;
    return NULL;
}

const struct sl_command *sl_command_find(const struct sl_engine *engine, const char *name)
{
    const struct sl_command *command = find(sl_core_commands, name);
    return command || !engine ? command : find(engine->commands, name);
}

static size_t add_names(const char **names, const struct sl_command *commands)
{
    size_t count = 0;
    for (; commands->name; commands++, count++)
        if (names)
            names[count] = commands->name;
    return count;
}

const char **sl_command_names(const struct sl_engine *engine)
{
    size_t count = add_names(NULL, sl_core_commands);
    count += engine ? add_names(NULL, engine->commands) : 0;
    const char **names = sl_calloc(count + 1, sizeof *names);
    if (!names)
        return NULL;
    size_t own = add_names(names, sl_core_commands);
    if (engine)
        add_names(names + own, engine->commands);
    return names;
}
