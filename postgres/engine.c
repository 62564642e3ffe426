/* The PostgreSQL engine: its commands and options, and the one symbol of the plugin. */
#include "core/plugin/engine.h"
#include "core/cli/expire.h"

#include "postgres/commands.h"

#include <unistd.h>

static const struct sl_command commands[] = {
    {.name = "stanza-create",
     .args = "",
     .summary = "say whose WAL and backups the stanza holds; makes the repository if need be",
     .description =
         "Asks the server (or, with --no-online, the data directory) for its system identifier and "
         "writes it into the repository. Nothing can be stored before. The same server again is "
         "success, another one is refused.",
     .needs_stanza = true,
     .run = sl_pg_stanza_create},
    {.name = "stanza-upgrade",
     .args = "",
     .summary = "say that pg_upgrade has made a new cluster of the stanza's",
     .description =
         "pg_upgrade gives a cluster a new system identifier and begins its timelines anew. Run "
         "this once, after pg_upgrade and before the new server archives. Backups and WAL of the "
         "cluster before stay and can be restored; the next backup is a full one.",
     .needs_stanza = true,
     .run = sl_pg_stanza_upgrade},
    {.name = "archive-push",
     .args = "PATH",
     .args_min = 1,
     .args_max = 1,
     .summary = "store one file of pg_wal: archive_command = 'sluice archive-push %p'",
     .description =
         "Ends with 0 only when the file is stored durably, or was before with the same content. "
         "Another content under the name is refused (45), nothing is ever overwritten. The status "
         "is 0 or 1 to 125, always. PostgreSQL 15 and later can load the same as a module, which "
         "is "
         "several times faster: archive_library instead of archive_command, see "
         "docs/postgresql.md.",
     .needs_stanza = true,
     .run = sl_pg_archive_push,
     .exit_status = sl_pg_archive_push_status},
    {.name = "archive-get",
     .args = "NAME DEST",
     .args_min = 2,
     .args_max = 2,
     .summary = "fetch one file of WAL: restore_command = 'sluice archive-get %f \"%p\"'",
     .description =
         "Ends with 1 when the file is surely not in the archive, which PostgreSQL takes for the "
         "end of recovery, and with 200 for any other failure, a gap included, which stops it. On "
         "a standby every failure is 1 within ten seconds: it will ask again.",
     .needs_stanza = true,
     .reads = true,
     .run = sl_pg_archive_get,
     .exit_status = sl_pg_archive_get_status},
    {.name = "backup",
     .args = "",
     .summary = "back up a running server",
     .description = "Reads the data directory with parallel workers between pg_backup_start and "
                    "pg_backup_stop, and publishes the backup when all the WAL it needs is stored.",
     .needs_stanza = true,
     .run = sl_pg_backup},
    {.name = "restore",
     .args = "",
     .summary = "restore a backup",
     .description =
         "Takes the newest backup that leads to the target, or --set, into an empty folder, or "
         "with "
         "--delta into an existing one. Every block is checked, everything is synced, and "
         "pg_control is written last: a restore that was "
         "interrupted does not start.",
     .needs_stanza = true,
     .reads = true,
     .run = sl_pg_restore},
    {.name = "info",
     .args = "",
     .summary = "backups and WAL in the repository",
     .needs_stanza = true,
     .reads = true,
     .run = sl_pg_info},
    {.name = "expire",
     .args = "",
     .summary = "remove backups and WAL that the retention does not ask for",
     .description =
         "Never removes what a backup that stays, runs or is being read needs, nor the WAL to "
         "recover from it to any later point. May run at any time and on any host that has the "
         "role: sluiced's configuration names it in the stanza's expire-clients; with repo-path "
         "it is whoever can write there. Also removes backups that were broken off. With "
         "--dry-run it only says what would go.",
     .needs_stanza = true,
     .run = sl_pg_expire},
    {.name = "keep",
     .args = "LABEL",
     .args_min = 1,
     .args_max = 1,
     .summary = "keep a backup whatever the retention says",
     .description = "With it stay the backups that it builds on, and WAL as --keep-wal says.",
     .needs_stanza = true,
     .run = sl_pg_keep},
    {.name = "unkeep",
     .args = "LABEL",
     .args_min = 1,
     .args_max = 1,
     .summary = "leave a kept backup to the retention again",
     .description = "Needs the role of expire.",
     .needs_stanza = true,
     .run = sl_pg_unkeep},
    {.name = "check",
     .args = "",
     .summary = "see that server, archiving and repository work together",
     .description = "Switches WAL and waits for that segment in the repository, reads it back, and "
                    "says over which transport.",
     .needs_stanza = true,
     .run = sl_pg_check},
    {NULL},
};

static const struct sl_option options[] = {
    {.name = "pg-path",
     .type = SL_OPTION_STRING,
     .value_name = "DIR",
     .flags = SL_OPTION_DATA_PATH,
     .group = "PostgreSQL server",
     .help = "data directory; asked of the server if not given"},
    {.name = "pg-host",
     .type = SL_OPTION_STRING,
     .value_name = "HOST",
     .commands = "stanza-create stanza-upgrade backup check",
     .help = "host name or socket folder of the server; it must run on this host"},
    {.name = "pg-port",
     .type = SL_OPTION_STRING,
     .value_name = "PORT",
     .commands = "stanza-create stanza-upgrade backup check",
     .help = "port of the server, also for its socket's name"},
    {.name = "pg-user",
     .type = SL_OPTION_STRING,
     .value_name = "NAME",
     .commands = "stanza-create stanza-upgrade backup check",
     .help = "user to connect as"},
    {.name = "pg-database",
     .type = SL_OPTION_STRING,
     .value_name = "NAME",
     .default_text = "postgres",
     .commands = "stanza-create stanza-upgrade backup check",
     .help = "database to connect to"},
    {.name = "online",
     .type = SL_OPTION_BOOL,
     .default_text = "on",
     .commands = "stanza-create stanza-upgrade",
     .flags = SL_OPTION_CLI_ONLY,
     .help = "ask the server; with --no-online the data directory is read instead"},

    {.name = "type",
     .type = SL_OPTION_STRING,
     .value_name = "TYPE",
     .commands = "backup restore",
     .flags = SL_OPTION_CLI_ONLY,
     .group = "Backup and restore",
     .help = "backup: full, diff (all since the last full one), incr (all since the last one); "
             "restore: default (to the end of WAL), time, lsn, xid, name, immediate, standby"},
    {.name = "start-fast",
     .type = SL_OPTION_BOOL,
     .default_text = "on",
     .commands = "backup",
     .help = "begin with an immediate checkpoint instead of waiting for the next one"},
    {.name = "resume",
     .type = SL_OPTION_BOOL,
     .default_text = "on",
     .commands = "backup",
     .help = "go on with the newest backup when it was broken off: what it has stored is compared, "
             "and not sent again"},
    {.name = "start-timeout",
     .type = SL_OPTION_DURATION,
     .value_name = "TIME",
     .default_text = "1h",
     .min = 1000,
     .max = 7ll * 86400000,
     .commands = "backup",
     .help = "how long to wait for the checkpoint that a backup begins with"},
    {.name = "archive-check",
     .type = SL_OPTION_BOOL,
     .default_text = "on",
     .commands = "backup",
     .help = "refuse to begin without archiving, and wait for the backup's WAL before it counts"},
    {.name = "archive-timeout",
     .type = SL_OPTION_DURATION,
     .value_name = "TIME",
     .default_text = "60s",
     .min = 100,
     .max = 86400000,
     .commands = "backup check",
     .help = "how long to wait for the next WAL segment to be archived"},
    {.name = "backup-standby",
     .type = SL_OPTION_BOOL,
     .commands = "backup",
     .help =
         "read from a standby: pg-host and pg-path are the standby's, on this host; the primary is "
         "asked for its archiving and to switch WAL"},
    {.name = "primary-host",
     .type = SL_OPTION_STRING,
     .value_name = "HOST",
     .commands = "backup",
     .help = "host name or socket folder of the primary (with backup-standby)"},
    {.name = "primary-port",
     .type = SL_OPTION_STRING,
     .value_name = "PORT",
     .commands = "backup",
     .help = "port of the primary (with backup-standby)"},
    {.name = "page-check",
     .type = SL_OPTION_CHOICE,
     .choices = "error|warn|off",
     .default_text = "error",
     .commands = "backup",
     .help = "judge page checksums; a wrong one is named, the backup completed, and ends with 26 "
             "(error) or 0 (warn)"},
    SL_EXPIRE_OPTIONS(
        "every moment of so many days can be restored: the newest full backup from before "
        "stays, and all after it; with retention-full what either asks for stays",
        "a backup that is not finished and has stored nothing for so long was broken off, and "
        "is removed"),
    {.name = "keep-wal",
     .type = SL_OPTION_CHOICE,
     .choices = "pitr|standalone",
     .default_text = "pitr",
     .commands = "keep",
     .flags = SL_OPTION_CLI_ONLY,
     .help = "pitr: all WAL from the backup on stays; standalone: once the retention does not ask "
             "for the backup any more, only what makes it consistent"},
    {.name = "annotation",
     .type = SL_OPTION_LIST,
     .value_name = "KEY=VALUE",
     .commands = "backup",
     .flags = SL_OPTION_CLI_ONLY,
     .help = "text to keep with the backup"},
    {.name = "set",
     .type = SL_OPTION_STRING,
     .value_name = "LABEL",
     .commands = "restore info",
     .flags = SL_OPTION_CLI_ONLY,
     .help = "the backup; otherwise the newest (before --target-time)"},
    {.name = "datadir",
     .type = SL_OPTION_STRING,
     .value_name = "DIR",
     .commands = "restore",
     .flags = SL_OPTION_CLI_ONLY,
     .help = "empty or missing folder to restore into (default: pg-path)"},
    {.name = "tablespace-map",
     .type = SL_OPTION_LIST,
     .value_name = "OID=DIR",
     .commands = "restore",
     .flags = SL_OPTION_CLI_ONLY,
     .help = "put a tablespace into another folder than it was in"},
    {.name = "target-time",
     .type = SL_OPTION_STRING,
     .value_name = "TIME",
     .commands = "restore",
     .flags = SL_OPTION_CLI_ONLY,
     .help = "recover to this point, \"2026-11-30 16:25:37+01\""},
    {.name = "target-lsn",
     .type = SL_OPTION_STRING,
     .value_name = "LSN",
     .commands = "restore",
     .flags = SL_OPTION_CLI_ONLY,
     .help = "recover to this place in WAL, \"1A/2B000028\""},
    {.name = "target-xid",
     .type = SL_OPTION_STRING,
     .value_name = "XID",
     .commands = "restore",
     .flags = SL_OPTION_CLI_ONLY,
     .help = "recover to the end of this transaction; name the backup with --set"},
    {.name = "target-name",
     .type = SL_OPTION_STRING,
     .value_name = "NAME",
     .commands = "restore",
     .flags = SL_OPTION_CLI_ONLY,
     .help = "recover to this restore point (pg_create_restore_point); name the backup with --set"},
    {.name = "target-immediate",
     .type = SL_OPTION_BOOL,
     .commands = "restore",
     .flags = SL_OPTION_CLI_ONLY,
     .help = "recover until the backup is consistent, no further (--type=immediate)"},
    {.name = "target-exclusive",
     .type = SL_OPTION_BOOL,
     .commands = "restore",
     .flags = SL_OPTION_CLI_ONLY,
     .help = "stop just before the time, LSN or transaction instead of just after"},
    {.name = "target-action",
     .type = SL_OPTION_CHOICE,
     .choices = "pause|promote|shutdown",
     .default_text = "pause",
     .commands = "restore",
     .flags = SL_OPTION_CLI_ONLY,
     .help = "what the server does at the target"},
    {.name = "target-timeline",
     .type = SL_OPTION_STRING,
     .value_name = "ID",
     .commands = "restore",
     .flags = SL_OPTION_CLI_ONLY,
     .help =
         "timeline to recover along: a number, current or latest; default: current with --set or "
         "immediate, else latest"},
    {.name = "archive-mode",
     .type = SL_OPTION_CHOICE,
     .choices = "preserve|off",
     .commands = "restore",
     .flags = SL_OPTION_CLI_ONLY,
     .help =
         "of the restored server; default: preserve when it is restored to its end, on the same "
         "host into the same folder, else off"},
    {.name = "delta",
     .type = SL_OPTION_BOOL,
     .commands = "restore",
     .flags = SL_OPTION_CLI_ONLY,
     .help =
         "bring an existing data directory to the backup's state: files with the right checksum "
         "stay, what the backup does not have is removed"},
    {.name = "with-wal",
     .type = SL_OPTION_BOOL,
     .commands = "restore",
     .flags = SL_OPTION_CLI_ONLY,
     .help = "put the WAL that the backup needs into pg_wal: for pg_verifybackup without -n"},
    {NULL},
};

unsigned sl_pg_jobs(const struct sl_invocation *invocation)
{
    long jobs = (long)sl_option_int(invocation->options, "jobs");
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (!sl_option_is_set(invocation->options, "jobs") && cpus > 0 && cpus < jobs)
        jobs = cpus;
    return (unsigned)(jobs < 1 ? 1 : jobs > SL_PG_JOBS_MAX ? SL_PG_JOBS_MAX : jobs);
}

extern const struct sl_engine sluice_engine;
__attribute__((visibility("default"))) const struct sl_engine sluice_engine = {
    .abi = SL_ENGINE_ABI,
    .name = "postgres",
    .title = "PostgreSQL",
    .commands = commands,
    .options = options,
};
