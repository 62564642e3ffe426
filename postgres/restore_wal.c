/* The WAL that a backup cannot do without, put into pg_wal (--with-wal): the folder is then whole
 * without its repository, and pg_verifybackup can read the range. */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/log.h"
#include "postgres/restore_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int fail_at(struct sl_err *err, const char *what, const char *path)
{
    return sl_err_sys(err, SL_ERR_WRITE, errno, "could not %s \"%s\"", what, path);
}

static int write_blocks(struct sl_pg_restore *r, struct sl_download *download, int fd,
                        const char *path, struct sl_err *err)
{
    uint64_t offset = 0;
    for (;;) {
        uint32_t block;
        const uint8_t *bytes;
        size_t count;
        int rc = sl_download_next(download, &block, &bytes, &count, sl_pg_restore_deadline(r), err);
        if (rc <= 0)
            return rc;
        while (count) {
            int fault = sl_fault("pg.restore_wal");
            ssize_t n = fault ? -1 : pwrite(fd, bytes, count, (off_t)offset);
            if (n < 0 && !fault && errno == EINTR)
                continue;
            if (n < 0)
                return sl_err_sys(err, SL_ERR_WRITE, fault ? fault : errno,
                                  "could not write \"%s\"", path);
            bytes += n;
            count -= (size_t)n;
            offset += (uint64_t)n;
        }
    }
}

static int fetch_once(struct sl_pg_restore *r, const struct sl_pg_wal_name *name, int fd,
                      const char *path, struct sl_err *err)
{
    char object[SL_NAME_MAX];
    struct sl_download *download = NULL;
    struct sl_object_info info;
    sl_pg_wal_object(r->info.system_id, name, object, sizeof object);
    int rc = sl_download_open(r->repository.client, object, NULL, sl_pg_restore_deadline(r),
                              &download, &info, err);
    if (!rc && info.length != r->info.wal_segment_bytes)
        rc = sl_err_set(err, SL_ERR_REPO, "segment \"%s\" has %llu bytes", name->text,
                        (unsigned long long)info.length);
    if (!rc)
        rc = write_blocks(r, download, fd, path, err);
    sl_download_close(download);
    return rc;
}

/* Marked as archived: it is. */
static int put_done(const struct sl_pg_restore *r, const char *name, struct sl_err *err)
{
    char path[128];
    snprintf(path, sizeof path, "pg_wal/archive_status/%s.done", name);
    int fd = openat(r->root_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail_at(err, "create", path);
    int rc = r->as_root && fchown(fd, r->control.uid, r->control.gid)
                 ? fail_at(err, "set the owner of", path)
                 : 0;
    close(fd);
    return rc;
}

static int put_segment(struct sl_pg_restore *r, const struct sl_pg_wal_name *name,
                       struct sl_err *err)
{
    char path[128];
    struct sl_pg_retry retry = {0};
    snprintf(path, sizeof path, "pg_wal/%s", name->text);
    int fd = openat(r->root_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail_at(err, "create", path);
    int rc;
    while ((rc = fetch_once(r, name, fd, path, err)) && sl_pg_try_again(&retry, rc, r->step_ms))
        sl_log_err(SL_LOG_WARN, "postgres", err, "\"%s\" is read again", name->text);
    if (!rc && r->as_root && fchown(fd, r->control.uid, r->control.gid))
        rc = fail_at(err, "set the owner of", path);
    if (!rc && fsync(fd))
        rc = sl_err_sys(err, SL_ERR_SYNC, errno, "could not sync \"%s\"", path);
    close(fd);
    return rc ? rc : put_done(r, name->text, err);
}

int sl_pg_restore_wal(struct sl_pg_restore *r, struct sl_err *err)
{
    uint32_t bytes = r->info.wal_segment_bytes;
    if (!sl_option_bool(r->invocation->options, "with-wal"))
        return 0;
    if (!sl_pg_segment_bytes_valid(bytes) || r->info.stop_lsn <= r->info.start_lsn)
        return sl_err_set(err, SL_ERR_FORMAT, "the backup does not say what WAL it needs");
    uint64_t last = sl_pg_lsn_segment_before(r->info.stop_lsn, bytes);
    for (uint64_t n = sl_pg_lsn_segment(r->info.start_lsn, bytes); n <= last; n++) {
        struct sl_pg_wal_name name;
        sl_pg_segment_name(r->info.timeline, n, bytes, &name);
        int rc = put_segment(r, &name, err);
        if (rc)
            return rc;
    }
    return 0;
}
