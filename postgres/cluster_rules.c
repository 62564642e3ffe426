/* Which files and folders a backup holds. Decides by names alone; cluster.c walks. */
#include "postgres/cluster_rules.h"

#include <string.h>

/* Contents that are rebuilt at start, or must not be carried to another server (basebackup.c:
 * excludeDirContents says why for each). */
static const char *const empty_folders[] = {"pg_stat_tmp", "pg_replslot", "pg_dynshmem",
                                            "pg_notify",   "pg_serial",   "pg_snapshots",
                                            "pg_subtrans", NULL};
/* Of pg_wal only these folders are kept, empty: WAL comes from the archive. */
static const char *const wal_folders[] = {"archive_status", "summaries", NULL};
/* The signal files are recovery's orders; restore writes its own. */
static const char *const root_files[] = {"postmaster.pid",       "postmaster.opts",
                                         "backup_label",         "tablespace_map",
                                         "backup_manifest",      "current_logfiles",
                                         "current_logfiles.tmp", "postgresql.auto.conf.tmp",
                                         "recovery.signal",      "standby.signal",
                                         "lost+found",           "sluice.restoring",
                                         "sluice.config",        NULL};

static bool in_list(const char *const *list, const char *name)
{
    for (; *list; list++)
        if (!strcmp(*list, name))
            return true;
    return false;
}

static bool starts(const char *name, const char *prefix)
{
    return !strncmp(name, prefix, strlen(prefix));
}

/* How many characters are digits; OIDs have at most 10. */
static size_t digits(const char *text)
{
    size_t count = strspn(text, "0123456789");
    return count <= 10 ? count : 0;
}

bool sl_pg_is_tablespace(const char *path)
{
    if (!starts(path, "pg_tblspc/"))
        return false;
    const char *oid = path + strlen("pg_tblspc/");
    return digits(oid) && !oid[digits(oid)];
}

bool sl_pg_is_relation_folder(const char *folder)
{
    const char *at = folder;
    if (starts(at, "base/")) {
        at += strlen("base/");
    } else if (starts(at, "pg_tblspc/")) {
        at += strlen("pg_tblspc/");
        if (!digits(at) || at[digits(at)] != '/')
            return false;
        at = strchr(at, '/') + 1;
        const char *slash = strchr(at, '/');
        if (!starts(at, "PG_") || !slash)
            return false;
        at = slash + 1;
    }
    return at != folder && digits(at) && !at[digits(at)];
}

/* "_fsm.2", ".1", "": the rest of a relation file's name. */
static bool relation_tail(const char *at, bool *ret_init)
{
    static const char *const forks[] = {"_fsm", "_vm", "_init", NULL};
    *ret_init = false;
    for (int i = 0; forks[i]; i++)
        if (starts(at, forks[i])) {
            at += strlen(forks[i]);
            *ret_init = i == 2;
            break;
        }
    if (*at == '.' && digits(at + 1))
        at += 1 + digits(at + 1);
    return !*at;
}

size_t sl_pg_relation_digits(const char *name, bool *ret_init)
{
    size_t count = digits(name);
    return count && relation_tail(name + count, ret_init) ? count : 0;
}

bool sl_pg_is_temporary_relation(const char *name)
{
    bool init;
    if (name[0] != 't')
        return false;
    size_t backend = strspn(name + 1, "0123456789");
    const char *at = name + 1 + backend;
    return backend && *at == '_' && sl_pg_relation_digits(at + 1, &init);
}

enum sl_pg_rule sl_pg_rule_of(const char *folder, const char *name, const char *version_folder)
{
    if (starts(name, "pgsql_tmp") || starts(name, "pg_internal.init"))
        return SL_PG_SKIP;
    if (!*folder)
        return in_list(root_files, name)      ? SL_PG_SKIP
               : in_list(empty_folders, name) ? SL_PG_KEEP_EMPTY
                                              : SL_PG_KEEP;
    if (!strcmp(folder, "pg_wal"))
        return in_list(wal_folders, name) ? SL_PG_KEEP_EMPTY : SL_PG_SKIP;
    if (sl_pg_is_tablespace(folder) && strcmp(name, version_folder) != 0)
        return SL_PG_SKIP;
    if (!strcmp(folder, "global") && !strcmp(name, "pg_control"))
        return SL_PG_SKIP; /* the backup reads it last, by itself */
    if (sl_pg_is_relation_folder(folder) && sl_pg_is_temporary_relation(name))
        return SL_PG_SKIP;
    return SL_PG_KEEP;
}
