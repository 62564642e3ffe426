/* The engine "mysql": its commands and options. */
#include "core/cli/expire.h"
#include "mysql/commands.h"

static const struct sl_command commands[] = {
    {.name = "stanza-create",
     .args = "",
     .summary = "say whose backups the stanza will hold",
     .description = "Asks the server who it is. The same server again is success; another one is "
                    "refused. Makes the repository if need be.",
     .needs_stanza = true,
     .run = sl_my_stanza_create},
    {.name = "stanza-upgrade",
     .args = "",
     .summary = "say that another server has taken the place of the stanza's",
     .description =
         "After a failover, or when MariaDB's server_id, host name or port were changed. Backups "
         "of the server before stay and can be restored; the next backup is a full one.",
     .needs_stanza = true,
     .run = sl_my_stanza_upgrade},
    {.name = "check",
     .args = "",
     .summary = "see that server, backup tool and repository work together",
     .description = "Says over which transport the repository is reached, whether the account has "
                    "the rights that docs/mysql.md names, whether the backup tool is there and "
                    "fits, and what in the server's settings would make a restore to a point in "
                    "time impossible. Changes nothing.",
     .needs_stanza = true,
     .run = sl_my_check},
    {.name = "backup",
     .args = "",
     .summary = "back up a running server",
     .description =
         "Runs mariadb-backup (or my-backup-command) with --stream=xbstream and stores its stream, "
         "whose chunks and checksums are looked at as it passes. The backup exists only if the "
         "tool ended with status 0, said \"completed OK!\", every chunk was whole and every file "
         "had its end. --type=incr and diff store what changed since another backup, by the "
         "tool's own LSN; a restore takes them all in one command.",
     .needs_stanza = true,
     .run = sl_my_backup},
    {.name = "restore",
     .args = "",
     .summary = "restore a backup into an empty folder",
     .description =
         "Extracts and prepares the newest backup, or --set, beside --datadir, and gives "
         "it that name when it is whole and durable. As root its files get the owner of "
         "the folder that was there, or of the one above.",
     .needs_stanza = true,
     .reads = true,
     .run = sl_my_restore},
    {.name = "binlog",
     .args = "",
     .summary = "archive the binary log, as it is written",
     .description =
         "Follows the server over the replication protocol. Each file is archived byte by byte, "
         "the "
         "one that is being written as far as it has come: what was appended is durable in the "
         "repository at once. Runs until it is stopped, and goes on where it was after any "
         "interruption, of the server, the target or itself. Needs REPLICATION SLAVE and BINLOG "
         "MONITOR (MySQL: REPLICATION CLIENT).",
     .needs_stanza = true,
     .run = sl_my_binlog},
    {.name = "binlog-get",
     .args = "FILE",
     .args_min = 1,
     .args_max = 1,
     .summary = "an archived file of the binary log to standard output",
     .description = "Also the one that is being written, as far as it is archived: sluice "
                    "binlog-get binlog.000012 | mariadb-binlog -",
     .needs_stanza = true,
     .reads = true,
     .prints_data = true,
     .run = sl_my_binlog_get},
    {.name = "info",
     .args = "",
     .summary = "backups and streams in the repository",
     .needs_stanza = true,
     .reads = true,
     .run = sl_my_info},
    {.name = "expire",
     .args = "",
     .summary = "remove backups that the retention does not ask for",
     .description =
         "Never removes what a backup that stays, runs or is being read needs. May run at any time "
         "and on any host that has the role: sluiced's configuration names it in the stanza's "
         "expire-clients; with repo-path it is whoever can write there. Also removes backups that "
         "were broken off. With --dry-run it only says what would go. Streams of push stay.",
     .needs_stanza = true,
     .run = sl_my_expire},
    {.name = "keep",
     .args = "LABEL",
     .args_min = 1,
     .args_max = 1,
     .summary = "keep a backup whatever the retention says",
     .description = "With it stay the backups that it builds on.",
     .needs_stanza = true,
     .run = sl_my_keep},
    {.name = "unkeep",
     .args = "LABEL",
     .args_min = 1,
     .args_max = 1,
     .summary = "leave a kept backup to the retention again",
     .description = "Needs the role of expire.",
     .needs_stanza = true,
     .run = sl_my_unkeep},
    {.name = NULL},
};

#define SERVER_COMMANDS "stanza-create stanza-upgrade check backup binlog"

static const struct sl_option options[] = {
    {.name = "my-defaults-file",
     .type = SL_OPTION_STRING,
     .value_name = "FILE",
     .commands = SERVER_COMMANDS,
     .group = "MariaDB or MySQL server",
     .help = "file with a [client] section: user, password, TLS; the only place for a password "
             "(default: the files that the server's own clients read)"},
    {.name = "my-host",
     .type = SL_OPTION_STRING,
     .value_name = "HOST",
     .commands = SERVER_COMMANDS,
     .help = "host name of the server; a backup needs its data directory on this host"},
    {.name = "my-port",
     .type = SL_OPTION_INT,
     .value_name = "PORT",
     .min = 1,
     .max = 65535,
     .commands = SERVER_COMMANDS,
     .help = "port of the server"},
    {.name = "my-socket",
     .type = SL_OPTION_STRING,
     .value_name = "FILE",
     .commands = SERVER_COMMANDS,
     .help = "socket of the server"},
    {.name = "my-user",
     .type = SL_OPTION_STRING,
     .value_name = "NAME",
     .commands = SERVER_COMMANDS,
     .help = "user to connect as"},
    {.name = "type",
     .type = SL_OPTION_CHOICE,
     .choices = "full|diff|incr",
     .default_text = "full",
     .commands = "backup",
     .flags = SL_OPTION_CLI_ONLY,
     .group = "Backup and restore",
     .help = "full; diff: what changed since the last full one; incr: since the last one"},
    {.name = "my-backup-command",
     .type = SL_OPTION_STRING,
     .value_name = "COMMAND",
     .default_text = "mariadb-backup",
     .commands = "backup restore check",
     .help = "backup tool and further options of it, separated by spaces (no quotes): "
             "\"mariadb-backup --parallel=4\", \"xtrabackup\"; connection, --backup, "
             "--stream=xbstream and --target-dir are added"},
    {.name = "my-extract-command",
     .type = SL_OPTION_STRING,
     .value_name = "COMMAND",
     .default_text = "mbstream",
     .commands = "restore",
     .help = "program that extracts a stream: mbstream, or XtraBackup's xbstream"},
    {.name = "once",
     .type = SL_OPTION_BOOL,
     .commands = "binlog",
     .flags = SL_OPTION_CLI_ONLY,
     .group = "Binary log",
     .help = "archive the files that have ended, then end"},
    {.name = "semi-sync",
     .type = SL_OPTION_BOOL,
     .commands = "binlog",
     .help = "acknowledge transactions to the server, once they are durable in the repository"},
    {.name = "my-replica-id",
     .type = SL_OPTION_INT,
     .value_name = "N",
     .min = 1,
     .max = 4294967295,
     .commands = "binlog",
     .help = "server id to register with, one that no server or replica has (default: made from "
             "the stanza's name)"},
    {.name = "history",
     .type = SL_OPTION_INT,
     .value_name = "N",
     .min = 1,
     .max = 9999,
     .commands = "binlog-get",
     .flags = SL_OPTION_CLI_ONLY,
     .help = "history of the server's binary log that the file is of (default: the newest that has "
             "it)"},
    {.name = "set",
     .type = SL_OPTION_STRING,
     .value_name = "LABEL",
     .commands = "restore",
     .flags = SL_OPTION_CLI_ONLY,
     .help = "the backup; otherwise the newest"},
    {.name = "datadir",
     .type = SL_OPTION_STRING,
     .value_name = "DIR",
     .commands = "restore",
     .flags = SL_OPTION_CLI_ONLY,
     .help = "empty or missing folder to restore into"},
    SL_EXPIRE_OPTIONS(
        "the newest full backup from before so many days stays, and all after it; with "
        "retention-full what either asks for stays",
        "a backup that is not finished and was begun so long ago was broken off, and is "
        "removed"),
    {.name = NULL},
};

extern const struct sl_engine sluice_engine;
__attribute__((visibility("default"))) const struct sl_engine sluice_engine = {
    .abi = SL_ENGINE_ABI,
    .name = "mysql",
    .title = "MariaDB and MySQL",
    .commands = commands,
    .options = options,
};
