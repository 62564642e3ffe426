/* archive-push: one finished file of pg_wal becomes an object. What PostgreSQL asks of an
 * archive_command is in its documentation ("Setting Up WAL Archiving"): success only when the
 * file is durable; the same file again is success; another file under the name must fail; the
 * status is 0 or 1 to 125, because a greater one restarts the archiver without being counted.
 * No look-ahead and no spool: a file is stored before the command ends. */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/log.h"
#include "core/object/object.h"
#include "postgres/archive_differ.h"
#include "postgres/commands.h"
#include "postgres/control_file.h"
#include "postgres/data_folder.h"
#include "postgres/history.h"
#include "postgres/repository.h"
#include "postgres/signals.h"
#include "postgres/wal_header.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL_FILE_MAX (1u << 20) /* history and backup files are a few hundred bytes */
#define LIMIT_GRACE_MS 5000u      /* after the deadline, before the process ends itself */

struct push {
    const struct sl_invocation *invocation;
    const char *path;
    struct sl_pg_wal_name name;
    struct sl_pg_repository repository;
    int fd;
    uint64_t bytes;
    sl_deadline deadline;
};

static int open_file(struct push *p, struct sl_err *err)
{
    struct stat st;
    int fault = sl_fault("pg.push_open");
    p->fd = fault ? -1 : open(p->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (p->fd < 0)
        return sl_err_sys(err, SL_ERR_OPEN, fault ? fault : errno, "could not open \"%s\"",
                          p->path);
    if (fstat(p->fd, &st))
        return sl_err_sys(err, SL_ERR_READ, errno, "could not stat \"%s\"", p->path);
    if (!S_ISREG(st.st_mode))
        return sl_err_set(err, SL_ERR_USAGE, "\"%s\" is not a regular file", p->path);
    p->bytes = (uint64_t)st.st_size;
    return 0;
}

/* Reads exactly `count` bytes at `offset`. */
static int read_exactly(const struct push *p, void *to, size_t count, uint64_t offset,
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

static int check_segment(const struct push *p, struct sl_err *err)
{
    uint8_t bytes[SL_PG_WAL_HEADER_BYTES];
    struct sl_pg_wal_header header;
    size_t count = p->bytes < sizeof bytes ? (size_t)p->bytes : sizeof bytes;
    int rc = read_exactly(p, bytes, count, 0, err);
    if (!rc && (rc = sl_pg_wal_header_decode(bytes, count, &header, err)) < 0)
        sl_err_prefix(err, "\"%s\"", p->path);
    return rc ? rc
              : sl_pg_wal_header_check(&header, &p->name, p->bytes, p->repository.system_id, err);
}

static int check_text(const struct push *p, struct sl_err *err)
{
    if (p->bytes > SMALL_FILE_MAX)
        return sl_err_set(err, SL_ERR_FORMAT, "\"%s\" has %llu bytes: too many for its kind",
                          p->path, (unsigned long long)p->bytes);
    SL_CLEANUP_FREE char *text = sl_alloc((size_t)p->bytes + 1);
    if (!text)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    int rc = read_exactly(p, text, (size_t)p->bytes, 0, err);
    if (rc)
        return rc;
    struct sl_pg_backup_label label;
    if (p->name.kind == SL_PG_HISTORY)
        rc = sl_pg_history_parse(text, (size_t)p->bytes, p->name.timeline, NULL, NULL, err);
    else
        rc = sl_pg_backup_label_parse(text, (size_t)p->bytes, &label, err);
    if (rc)
        sl_err_prefix(err, "\"%s\"", p->path);
    return rc;
}

/* The folder's system identifier: the only one that history and backup files have. */
static int check_folder(const struct push *p, struct sl_err *err)
{
    SL_CLEANUP_FREE char *folder = sl_pg_data_folder(p->invocation, p->path);
    struct sl_pg_control control;
    if (!folder)
        return 0;
    int rc = sl_pg_control_read(folder, p->deadline, NULL, &control, err);
    return rc ? rc
              : sl_pg_repository_check(&p->repository, control.system_id, "the data directory",
                                       err);
}

static int check_content(const struct push *p, struct sl_err *err)
{
    if (p->name.kind == SL_PG_SEGMENT || p->name.kind == SL_PG_PARTIAL)
        return check_segment(p, err);
    int rc = check_folder(p, err);
    return rc ? rc : check_text(p, err);
}

static int send_file(const struct push *p, struct sl_upload *upload, struct sl_err *err)
{
    for (uint64_t done = 0; done < p->bytes;) {
        uint8_t *at;
        size_t room;
        int rc = sl_upload_space(upload, &at, &room, err);
        if (rc)
            return rc;
        if (room > p->bytes - done)
            room = (size_t)(p->bytes - done);
        rc = read_exactly(p, at, room, done, err);
        if (!rc)
            rc = sl_upload_advance(upload, room, err);
        if (rc)
            return rc;
        done += room;
    }
    return 0;
}

static int store_once(const struct push *p, const char *object, struct sl_stored *ret_stored,
                      struct sl_err *err)
{
    struct sl_upload *upload = NULL;
    int rc = sl_upload_begin(p->repository.client, object, p->bytes, p->deadline, &upload, err);
    if (rc)
        return rc;
    rc = send_file(p, upload, err);
    if (rc) {
        sl_upload_abort(upload);
        return rc;
    }
    return sl_upload_commit(upload, 0, p->deadline, ret_stored, err);
}

/* A lost session is begun anew by the client; the file is sent again, until the deadline. If it
 * had been stored after all, the second time finds it identical. */
static int store(const struct push *p, struct sl_stored *ret_stored, struct sl_err *err)
{
    char object[SL_NAME_MAX];
    sl_pg_wal_object(p->repository.system_id, &p->name, object, sizeof object);
    for (;;) {
        int rc = store_once(p, object, ret_stored, err);
        if (!rc || !sl_code_retryable(rc) || sl_pg_signals_caught() ||
            sl_deadline_passed(p->deadline)) {
            if (rc == SL_ERR_EXISTS)
                sl_pg_differ_explain(p->repository.client, object, &p->name, p->fd, p->bytes,
                                     p->deadline, err);
            return rc;
        }
        sl_log_err(SL_LOG_WARN, "postgres", err, "\"%s\" is sent again", p->name.text);
    }
}

static int report(const struct push *p, const struct sl_stored *stored)
{
    char digest[SL_ID_TEXT];
    bool identical = stored->outcome == SL_STORED_IDENTICAL;
    sl_id_text(&stored->digest, digest);
    if (identical)
        sl_log(SL_LOG_INFO, "postgres", "\"%s\" was already archived with this content",
               p->name.text);
    else
        sl_log(SL_LOG_DETAIL, "postgres", "archived \"%s\"", p->name.text);
    json_t *result = p->invocation->result;
    if (!result)
        return 0;
    return json_object_set_new(result, "name", json_string(p->name.text)) ||
                   json_object_set_new(result, "bytes", json_integer((json_int_t)p->bytes)) ||
                   json_object_set_new(result, "digest", json_string(digest)) ||
                   json_object_set_new(result, "outcome",
                                       json_string(identical ? "identical" : "created"))
               ? SL_ERR_NO_MEMORY
               : 0;
}

int sl_pg_archive_push(struct sl_invocation *invocation, struct sl_err *err)
{
    if (sl_option_bool(invocation->options, "dry-run"))
        return sl_err_set(err, SL_ERR_USAGE, "there is no dry run of this command");
    uint64_t timeout_ms = (uint64_t)sl_option_int(invocation->options, "timeout");
    struct push p = {.invocation = invocation,
                     .path = invocation->args[0],
                     .fd = -1,
                     .deadline = sl_deadline_in_ms(timeout_ms)};
    sl_pg_signals_install(sl_code_exit(SL_ERR_CANCELLED), timeout_ms + LIMIT_GRACE_MS);
    int rc = sl_pg_wal_name_parse(sl_pg_base_name(p.path), &p.name, err);
    if (!rc)
        rc = open_file(&p, err);
    if (!rc)
        rc = sl_pg_repository_open(invocation, false, true, p.deadline, &p.repository, err);
    if (!rc) {
        struct sl_stored stored;
        rc = check_content(&p, err);
        if (!rc)
            rc = store(&p, &stored, err);
        if (!rc)
            rc = report(&p, &stored);
        sl_pg_repository_close(&p.repository);
    }
    if (p.fd >= 0)
        close(p.fd);
    return rc;
}

int sl_pg_archive_push_status(const struct sl_invocation *invocation, int code)
{
    (void)invocation;
    int status = sl_code_exit(code);
    return code && (status < 1 || status > 125) ? sl_code_exit(SL_ERR_INTERNAL) : status;
}
