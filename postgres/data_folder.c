/* Finding the data directory. It reads no pg_control: see control_file.c. */
#include "postgres/data_folder.h"

#include "core/base/alloc.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *given(const struct sl_invocation *invocation)
{
    return invocation->options && sl_option_exists(invocation->options, "pg-path")
               ? sl_option_string(invocation->options, "pg-path")
               : NULL;
}

/* PG_VERSION is in every data directory, also while it is being recovered. */
static bool stands_in_one(void)
{
    return !access("PG_VERSION", F_OK) && !access("global", F_OK);
}

char *sl_pg_data_folder(const struct sl_invocation *invocation, const char *wal_path)
{
    if (stands_in_one())
        return sl_strdup(".");
    if (given(invocation))
        return sl_strdup(given(invocation));
    const char *name = wal_path ? strrchr(wal_path, '/') : NULL;
    if (!name)
        return NULL;
    char *folder = sl_asprintf("%.*s/..", (int)(name - wal_path), wal_path);
    SL_CLEANUP_FREE char *control = folder ? sl_asprintf("%s/global/pg_control", folder) : NULL;
    if (control && !access(control, F_OK))
        return folder;
    sl_free(folder);
    return NULL;
}

bool sl_pg_is_standby(const struct sl_invocation *invocation)
{
    if (!access("standby.signal", F_OK))
        return true;
    if (stands_in_one() || !given(invocation))
        return false;
    SL_CLEANUP_FREE char *path = sl_asprintf("%s/standby.signal", given(invocation));
    return path && !access(path, F_OK);
}

long sl_pg_postmaster(const char *data_folder)
{
    SL_CLEANUP_FREE char *path = sl_asprintf("%s/postmaster.pid", data_folder);
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file)
        return 0;
    long pid = 0;
    /* a negative pid is a single-user server's (miscinit.c: CreateLockFile) */
    if (fscanf(file, "%ld", &pid) != 1)
        pid = 0;
    fclose(file);
    if (pid < 0)
        pid = -pid;
    return pid && (!kill((pid_t)pid, 0) || errno == EPERM) ? pid : 0;
}
