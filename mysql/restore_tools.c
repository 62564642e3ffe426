/* The programs of a restore: mbstream for each stream, the tool's --prepare for each backup, first
 * the full one, then the increments in their order. */
#include "core/base/alloc.h"
#include "core/base/child.h"
#include "core/base/stop.h"
#include "core/cli/stream.h"
#include "mysql/restore_internal.h"
#include "mysql/said.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREPARE_MS (7ull * 86400 * 1000) /* as long as the redo log asks for */

/* Reads what a child says until it closes its standard error. */
static int listen_to(const struct sl_child *child, struct sl_my_said *said, struct sl_err *err)
{
    char text[4096];
    sl_deadline deadline = sl_deadline_in_ms(PREPARE_MS);
    struct pollfd fds[2] = {{.fd = child->err_fd, .events = POLLIN},
                            {.fd = sl_stop_fd(), .events = POLLIN}};
    for (;;) {
        int n = poll(fds, 2, sl_deadline_poll_ms(deadline));
        if (n < 0 && errno != EINTR)
            return sl_err_sys(err, SL_ERR_INTERNAL, errno, "poll failed");
        int rc = sl_stop_check(err);
        if (rc)
            return rc;
        if (sl_deadline_passed(deadline))
            return sl_err_set(err, SL_ERR_TIMEOUT, "\"%s\" does not end", child->name);
        ssize_t count = n > 0 ? read(child->err_fd, text, sizeof text) : -1;
        if (count > 0)
            sl_my_said_take(said, text, (size_t)count);
        if (!count)
            break;
    }
    sl_my_said_end(said);
    return 0;
}

static int extract(struct sl_my_restore *r, const struct sl_my_part *part, const char *folder,
                   struct sl_err *err)
{
    const char *const words[] = {sl_option_string(r->invocation->options, "my-extract-command"),
                                 "-x", "-C", folder, NULL};
    struct sl_child child = {.in_fd = -1, .out_fd = -1, .err_fd = -1};
    int rc = sl_child_start(words, SL_CHILD_IN, &child, err);
    if (rc)
        return rc;
    struct sl_stream_sink sink = {.fd = child.in_fd,
                                  .what = child.name,
                                  .timeout_ms = r->timeout_ms,
                                  .progress = r->invocation->progress};
    rc = sl_stream_write(&sink, r->repository.client, part->pack.name, &part->pack.digest, err);
    close(child.in_fd);
    child.in_fd = -1;
    if (!rc)
        rc = sl_child_wait(&child, sl_deadline_in_ms(PREPARE_MS), err);
    sl_child_kill(&child);
    return rc;
}

/* XtraBackup must not roll back before the last increment is in; mariadb-backup knows by itself. */
static bool is_mariadb(const struct sl_my_restore *r)
{
    return strncmp(sl_my_manifest_text(&r->manifest, "tool"), "maria", 5) == 0;
}

/* `increment`: the folder of one that is applied, or NULL. */
static int prepare(struct sl_my_restore *r, const char *increment, bool last, struct sl_err *err)
{
    const char *command = sl_option_string(r->invocation->options, "my-backup-command");
    command += strspn(command, " ");
    SL_CLEANUP_FREE char *tool = sl_strndup(command, strcspn(command, " "));
    SL_CLEANUP_FREE char *target = sl_asprintf("--target-dir=%s", r->partial);
    SL_CLEANUP_FREE char *from = sl_asprintf("--incremental-dir=%s", increment ? increment : "");
    SL_CLEANUP_FREE struct sl_my_said *said = sl_calloc(1, sizeof *said);
    if (!tool || !target || !from || !said)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    const char *words[6] = {tool, "--prepare", target};
    size_t count = 3;
    if (increment)
        words[count++] = from;
    if (!last && !is_mariadb(r))
        words[count++] = "--apply-log-only";
    struct sl_child child = {.in_fd = -1, .out_fd = -1, .err_fd = -1};
    int rc = sl_child_start(words, SL_CHILD_ERR, &child, err);
    if (rc)
        return rc;
    rc = listen_to(&child, said, err);
    if (!rc)
        rc = sl_child_wait(&child, sl_my_restore_deadline(r), err);
    sl_child_kill(&child);
    return sl_my_said_blame(said, rc ? rc : sl_my_said_done(said, err), err);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

/* The streams of one backup, from parts[first] to before parts[end]. */
static int apply(struct sl_my_restore *r, size_t first, size_t end, struct sl_err *err)
{
    const struct sl_my_manifest *m = &r->manifest;
    char increment[PATH_MAX];
    const char *folder = first ? increment : r->partial;
    /* beside it: within, the tool takes it for a database */
    snprintf(increment, sizeof increment, "%s.sluice-increment", r->datadir);
    if (first && mkdir(increment, 0700)) {
        sl_err_sys(err, errno == EEXIST ? SL_ERR_NOT_EMPTY : SL_ERR_OPEN, errno,
                   "could not make \"%s\"", increment);
        return sl_err_hint(err, "a restore that was broken off may have left it: remove it");
    }
    int rc = 0;
    for (size_t i = first; !rc && i < end; i++)
        rc = extract(r, &m->parts[i], folder, err);
    if (!rc)
        rc = prepare(r, first ? increment : NULL, end == m->count, err);
    if (!rc && first && nftw(increment, remove_one, 32, FTW_PHYS | FTW_DEPTH))
        rc = sl_err_sys(err, SL_ERR_WRITE, errno, "could not remove \"%s\"", increment);
    return rc ? sl_err_prefix(err, "backup %s", m->parts[first].label) : 0;
}

int sl_my_restore_files(struct sl_my_restore *r, struct sl_err *err)
{
    const struct sl_my_manifest *m = &r->manifest;
    int rc = 0;
    for (size_t first = 0, end; !rc && first < m->count; first = end) {
        for (end = first + 1;
             end < m->count && strcmp(m->parts[end].label, m->parts[first].label) == 0;)
            end++;
        rc = apply(r, first, end, err);
    }
    return rc;
}
