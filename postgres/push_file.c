/* One file of pg_wal becomes an object: see the header. What PostgreSQL asks of whoever archives is
 * in its documentation ("Setting Up WAL Archiving"): success only when the file is durable; the
 * same file again is success; another file under the name must fail. Who calls, when, and what
 * becomes of an error is not decided here. */
#include "postgres/push_file.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/log.h"
#include "core/object/object.h"
#include "postgres/archive_differ.h"
#include "postgres/control_file.h"
#include "postgres/data_folder.h"
#include "postgres/history.h"
#include "postgres/signals.h"
#include "postgres/wal_header.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define SMALL_FILE_MAX (1u << 20) /* history and backup files are a few hundred bytes */

static int open_file(struct sl_pg_push *p, struct sl_err *err)
{
    int fault = sl_fault("pg.push_open");
    p->fd = fault ? -1 : open(p->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (p->fd < 0)
        return sl_err_sys(err, SL_ERR_OPEN, fault ? fault : errno, "could not open \"%s\"",
                          p->path);
    if (fstat(p->fd, &p->stat))
        return sl_err_sys(err, SL_ERR_READ, errno, "could not stat \"%s\"", p->path);
    if (!S_ISREG(p->stat.st_mode))
        return sl_err_set(err, SL_ERR_USAGE, "\"%s\" is not a regular file", p->path);
    return 0;
}

static uint64_t bytes_of(const struct sl_pg_push *p)
{
    return (uint64_t)p->stat.st_size;
}

/* Reads exactly `count` bytes at `offset`. */
static int read_exactly(const struct sl_pg_push *p, void *to, size_t count, uint64_t offset,
                        struct sl_err *err)
{
    for (size_t done = 0; done < count;) {
        int fault = sl_fault("pg.push_read");
        ssize_t n =
            fault ? -1 : pread(p->fd, (uint8_t *)to + done, count - done, (off_t)(offset + done));
        if (n < 0 && !fault && errno == EINTR)
            continue;
        if (n < 0)
            return sl_err_sys(err, SL_ERR_READ, fault ? fault : errno, "could not read \"%s\"",
                              p->path);
        if (!n)
            return sl_err_set(err, SL_ERR_READ, "\"%s\" shrank while it was read", p->path);
        done += (size_t)n;
    }
    return 0;
}

static int check_segment(const struct sl_pg_push *p, uint64_t system_id, struct sl_err *err)
{
    uint8_t bytes[SL_PG_WAL_HEADER_BYTES];
    struct sl_pg_wal_header header;
    size_t count = bytes_of(p) < sizeof bytes ? (size_t)bytes_of(p) : sizeof bytes;
    int rc = read_exactly(p, bytes, count, 0, err);
    if (!rc && (rc = sl_pg_wal_header_decode(bytes, count, &header, err)) < 0)
        sl_err_prefix(err, "\"%s\"", p->path);
    return rc ? rc : sl_pg_wal_header_check(&header, &p->name, bytes_of(p), system_id, err);
}

static int check_text(const struct sl_pg_push *p, struct sl_err *err)
{
    if (bytes_of(p) > SMALL_FILE_MAX)
        return sl_err_set(err, SL_ERR_FORMAT, "\"%s\" has %llu bytes: too many for its kind",
                          p->path, (unsigned long long)bytes_of(p));
    SL_CLEANUP_FREE char *text = sl_alloc((size_t)bytes_of(p) + 1);
    if (!text)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    int rc = read_exactly(p, text, (size_t)bytes_of(p), 0, err);
    if (rc)
        return rc;
    struct sl_pg_backup_label label;
    if (p->name.kind == SL_PG_HISTORY)
        rc = sl_pg_history_parse(text, (size_t)bytes_of(p), p->name.timeline, NULL, NULL, err);
    else
        rc = sl_pg_backup_label_parse(text, (size_t)bytes_of(p), &label, err);
    if (rc)
        sl_err_prefix(err, "\"%s\"", p->path);
    return rc;
}

/* The folder's system identifier: the only one that history and backup files have. */
static int check_folder(const struct sl_pg_push *p, const struct sl_pg_repository *repository,
                        struct sl_err *err)
{
    SL_CLEANUP_FREE char *folder = sl_pg_data_folder(p->invocation, p->path);
    struct sl_pg_control control;
    if (!folder)
        return 0;
    int rc = sl_pg_control_read(folder, p->deadline, NULL, &control, err);
    return rc ? rc
              : sl_pg_repository_check(repository, control.system_id, "the data directory", err);
}

static int check_content(const struct sl_pg_push *p, const struct sl_pg_repository *repository,
                         struct sl_err *err)
{
    if (p->name.kind == SL_PG_SEGMENT || p->name.kind == SL_PG_PARTIAL)
        return check_segment(p, repository->system_id, err);
    int rc = check_folder(p, repository, err);
    return rc ? rc : check_text(p, err);
}

static int send_file(const struct sl_pg_push *p, struct sl_upload *upload, struct sl_err *err)
{
    for (uint64_t done = 0; done < bytes_of(p);) {
        uint8_t *at;
        size_t room;
        int rc = sl_upload_space(upload, &at, &room, err);
        if (rc)
            return rc;
        if (room > bytes_of(p) - done)
            room = (size_t)(bytes_of(p) - done);
        rc = read_exactly(p, at, room, done, err);
        if (!rc)
            rc = sl_upload_advance(upload, room, err);
        if (rc)
            return rc;
        done += room;
        if (p->moved)
            p->moved(p->arg);
    }
    return 0;
}

static int store_once(const struct sl_pg_push *p, struct sl_client *client, const char *object,
                      struct sl_stored *ret_stored, struct sl_err *err)
{
    struct sl_upload *upload = NULL;
    int rc = sl_upload_begin(client, object, bytes_of(p), p->deadline, &upload, err);
    if (rc)
        return rc;
    rc = send_file(p, upload, err);
    if (!rc && p->before_commit)
        rc = p->before_commit(p->arg, err);
    if (rc) {
        sl_upload_abort(upload);
        return rc;
    }
    return sl_upload_commit(upload, 0, p->deadline, ret_stored, err);
}

/* A lost session is begun anew by the client; the file is sent again, until the deadline. If it
 * had been stored after all, the second time finds it identical. */
int sl_pg_push_store(const struct sl_pg_push *p, const struct sl_pg_repository *repository,
                     struct sl_stored *ret_stored, struct sl_err *err)
{
    char object[SL_NAME_MAX];
    int rc = check_content(p, repository, err);
    if (rc)
        return rc;
    sl_pg_wal_object(repository->system_id, &p->name, object, sizeof object);
    for (;;) {
        rc = store_once(p, repository->client, object, ret_stored, err);
        if (!rc || !sl_code_retryable(rc) || sl_pg_signals_caught() ||
            sl_deadline_passed(p->deadline)) {
            if (rc == SL_ERR_EXISTS)
                sl_pg_differ_explain(repository->client, object, &p->name, p->fd, bytes_of(p),
                                     p->deadline, err);
            return rc;
        }
        sl_log_err(SL_LOG_WARN, "postgres", err, "\"%s\" is sent again", p->name.text);
    }
}

int sl_pg_push_open(struct sl_pg_push *p, struct sl_err *err)
{
    p->fd = -1;
    int rc = sl_pg_wal_name_parse(sl_pg_base_name(p->path), &p->name, err);
    if (!rc && (rc = open_file(p, err)) != 0)
        sl_pg_push_close(p);
    return rc;
}

void sl_pg_push_close(struct sl_pg_push *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}
