/* The end of a restore: what recovery is to do, links, syncs, and as the very last file pg_control.
 * A folder without it starts no server, so a restore that was cut short at any point is seen. */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/log.h"
#include "postgres/cluster_rules.h"
#include "postgres/control_file.h"
#include "postgres/recovery_conf.h"
#include "postgres/restore_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AUTO_CONF     "postgresql.auto.conf"
#define AUTO_CONF_MAX (4u << 20)

static int fail_at(struct sl_err *err, const char *what, const char *path)
{
    return sl_err_sys(err, SL_ERR_WRITE, errno, "could not %s \"%s\"", what, path);
}

/* --- links that are only stored ----------------------------------------------------------------
 */

static int make_links(struct sl_pg_restore *r, struct sl_err *err)
{
    struct sl_pg_planned *planned = sl_alloc(sizeof *planned);
    if (!planned)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    int rc;
    sl_pg_plan_rewind(r->plan);
    while ((rc = sl_pg_plan_next_path(r->plan, planned, err)) == 1) {
        if (planned->kind != SL_ENTRY_LINK || sl_pg_is_tablespace(planned->path))
            continue;
        sl_log(SL_LOG_WARN, "postgres", "\"%s\" is a link to \"%s\": see that its target is there",
               planned->path, planned->link);
        if (r->delta && unlinkat(r->root_fd, planned->path, 0) && errno != ENOENT) {
            rc = fail_at(err, "replace link", planned->path);
            break;
        }
        if (symlinkat(planned->link, r->root_fd, planned->path)) {
            rc = fail_at(err, "make link", planned->path);
            break;
        }
    }
    sl_free(planned);
    return rc;
}

/* --- recovery ----------------------------------------------------------------------------------
 */

static int write_file(const struct sl_pg_restore *r, const char *path, const void *bytes,
                      size_t count, struct sl_err *err)
{
    int fault = sl_fault("pg.restore_conf");
    if (fault)
        errno = fault;
    int fd = fault ? -1
                   : openat(r->root_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
                            0600);
    if (fd < 0)
        return fail_at(err, "create", path);
    const char *at = bytes;
    int rc = 0;
    while (!rc && count) {
        ssize_t n = write(fd, at, count);
        if (n < 0 && errno != EINTR)
            rc = fail_at(err, "write", path);
        else if (n > 0)
            at += n, count -= (size_t)n;
    }
    if (!rc && r->as_root && fchown(fd, r->control.uid, r->control.gid))
        rc = fail_at(err, "set the owner of", path);
    if (!rc && fsync(fd))
        rc = sl_err_sys(err, SL_ERR_SYNC, errno, "could not sync \"%s\"", path);
    close(fd);
    return rc;
}

/* Returns owned: the file's text, "" if there is none, NULL on failure. */
static char *read_auto_conf(const struct sl_pg_restore *r, struct sl_err *err)
{
    int fd = openat(r->root_fd, AUTO_CONF, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return sl_strdup("");
    struct stat st;
    char *text = NULL;
    if (fd < 0 || fstat(fd, &st))
        sl_err_sys(err, SL_ERR_READ, errno, "could not read \"%s\"", AUTO_CONF);
    else if (st.st_size > (off_t)AUTO_CONF_MAX)
        sl_err_set(err, SL_ERR_FORMAT, "\"%s\" is too big", AUTO_CONF);
    else if (!(text = sl_calloc(1, (size_t)st.st_size + 1)))
        sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    else if (pread(fd, text, (size_t)st.st_size, 0) < 0) {
        sl_err_sys(err, SL_ERR_READ, errno, "could not read \"%s\"", AUTO_CONF);
        sl_free(text);
        text = NULL;
    }
    if (fd >= 0)
        close(fd);
    return text;
}

static int write_recovery(struct sl_pg_restore *r, struct sl_err *err)
{
    struct sl_pg_recovery_conf conf = {.kind = r->target.kind,
                                       .target = r->target.text,
                                       .exclusive = r->target.exclusive,
                                       .target_action = r->target.action,
                                       .target_timeline = r->target.timeline,
                                       .archive_off = r->archive_off};
    SL_CLEANUP_FREE char *command = NULL;
    int rc = sl_pg_restore_command(r->invocation, &command, err);
    if (rc)
        return rc;
    conf.restore_command = command;
    struct sl_err own = {.code = SL_ERR_NO_MEMORY};
    SL_CLEANUP_FREE char *old = read_auto_conf(r, &own);
    if (!old)
        return sl_err_copy(err, &own), own.code;
    SL_CLEANUP_FREE char *text = sl_pg_recovery_conf_text(old, &conf);
    if (!text)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    rc = write_file(r, AUTO_CONF, text, strlen(text), err);
    return rc ? rc
              : write_file(r, conf.kind == SL_PG_STANDBY ? "standby.signal" : "recovery.signal", "",
                           0, err);
}

/* --- syncs -------------------------------------------------------------------------------------
 */

static int sync_path(const struct sl_pg_restore *r, const char *path, int flags, struct sl_err *err)
{
    int fd = openat(r->root_fd, path, O_RDONLY | O_CLOEXEC | flags);
    if (fd < 0 && !strcmp(path, "..") && (errno == EACCES || errno == EPERM))
        return 0; /* it may be entered only: syncfs() has done it, see sync_all() */
    if (fd < 0)
        return sl_err_sys(err, SL_ERR_OPEN, errno, "could not open \"%s\" to sync it", path);
    int fault = sl_fault("pg.restore_sync");
    int rc = 0;
    if (fault != SL_FAULT_SKIP && (fault || fsync(fd)))
        rc = sl_err_sys(err, SL_ERR_SYNC, fault ? fault : errno, "could not sync \"%s\"", path);
    close(fd);
    return rc;
}

static int sync_some(struct sl_pg_restore *r, struct sl_err *err)
{
    struct sl_pg_planned *planned = sl_alloc(sizeof *planned);
    if (!planned)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    int rc;
    while ((rc = sl_pg_plan_next_path(r->plan, planned, err)) == 1) {
        bool wal = !strcmp(planned->path, "pg_wal"); /* may be an administrator's link (--delta) */
        if (planned->kind == SL_ENTRY_FILE || planned->kind == SL_ENTRY_FOLDER)
            rc = sync_path(r, planned->path, wal ? O_DIRECTORY : O_NOFOLLOW, err);
        else if (sl_pg_is_tablespace(planned->path))
            rc = sync_path(r, planned->path, O_DIRECTORY, err); /* the folder it leads to */
        else
            rc = 0;
        if (rc || atomic_load(&r->stop))
            break;
    }
    sl_free(planned);
    return rc == 1 ? 0 : rc;
}

/* All at once first, then file by file, which is what reports errors and is quick by then. */
static int sync_all(struct sl_pg_restore *r, unsigned jobs, struct sl_err *err)
{
    if (syncfs(r->root_fd))
        return sl_err_sys(err, SL_ERR_SYNC, errno, "could not sync the file system of \"%s\"",
                          r->data_folder);
    sl_pg_plan_rewind(r->plan);
    int rc = sl_pg_restore_parallel(r, jobs, sync_some, err);
    if (!rc)
        rc = sync_path(r, ".", O_DIRECTORY, err);
    return rc ? rc : sync_path(r, "..", O_DIRECTORY, err); /* that names the folder itself */
}

/* --- pg_control --------------------------------------------------------------------------------
 */

static int read_control(struct sl_pg_restore *r, uint8_t bytes[SL_PG_CONTROL_BYTES],
                        struct sl_err *err)
{
    struct sl_pg_control control;
    if (!r->control.kind)
        return sl_err_set(err, SL_ERR_FORMAT, "the backup has no pg_control");
    int rc = sl_pg_restore_small(r, &r->control, bytes, SL_PG_CONTROL_BYTES, err);
    if (!rc)
        rc = sl_pg_control_decode(bytes, SL_PG_CONTROL_BYTES, &control, err);
    if (!rc && control.system_id != r->info.system_id)
        rc = sl_err_set(err, SL_ERR_REPO, "the backup's pg_control is of another system");
    return rc;
}

static int put_control(struct sl_pg_restore *r, const uint8_t bytes[SL_PG_CONTROL_BYTES],
                       struct sl_err *err)
{
    static const char temporary[] = SL_PG_CONTROL_PATH ".sluice-tmp";
    int rc = write_file(r, temporary, bytes, (size_t)r->control.size, err);
    if (rc)
        return rc;
    int fault = sl_fault("pg.restore_control");
    if (fault)
        errno = fault;
    if (fault || renameat(r->root_fd, temporary, r->root_fd, SL_PG_CONTROL_PATH))
        return fail_at(err, "rename to", SL_PG_CONTROL_PATH);
    rc = sync_path(r, "global", O_DIRECTORY, err);
    if (!rc && unlinkat(r->root_fd, SL_PG_RESTORE_MARK, 0))
        rc = fail_at(err, "remove", SL_PG_RESTORE_MARK);
    return rc ? rc : sync_path(r, ".", O_DIRECTORY, err);
}

int sl_pg_restore_finish(struct sl_pg_restore *r, unsigned jobs, struct sl_err *err)
{
    uint8_t control[SL_PG_CONTROL_BYTES];
    int rc = read_control(r, control, err);
    if (!rc)
        rc = make_links(r, err);
    if (!rc)
        rc = write_recovery(r, err);
    if (!rc && r->as_root && fchown(r->root_fd, r->control.uid, r->control.gid))
        rc = fail_at(err, "set the owner of", r->data_folder);
    if (!rc)
        rc = sync_all(r, jobs, err);
    return rc ? rc : put_control(r, control, err);
}
