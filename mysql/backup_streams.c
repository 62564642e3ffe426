/* The streams of a backup tool: each is checked and stored by a thread of its own, from the tool's
 * output or from the named pipes that it makes. What the tool says is backup_tool.c's. */
#include "core/base/alloc.h"
#include "core/base/stop.h"
#include "core/base/thread.h"
#include "core/cli/stream.h"
#include "mysql/backup_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIPES_MS     60000u /* as long as the tool waits for their readers */
#define PIPE_POLL_MS 20

struct stream {
    struct sl_my_streams *all;
    int fd; /* borrowed from the child, or a named pipe's; -1 */
    pthread_t thread;
    bool started;
    struct sl_upload *upload;
    struct sl_my_xbstream *xbstream;
    int code;
    struct sl_err err;
};

struct sl_my_streams {
    struct sl_my_backup *backup;
    char folder[SL_MY_FOLDER_BYTES];
    int event_fd;
    atomic_uint left;
    atomic_int code;
    unsigned count;
    bool pipes;
    struct stream streams[SL_MY_STREAMS_MAX];
};

/* --- threads -----------------------------------------------------------------------------------
 */

static int take_bytes(void *arg, const void *bytes, size_t count, struct sl_err *err)
{
    struct stream *s = arg;
    return sl_my_xbstream_take(s->xbstream, bytes, count, err);
}

static void *run(void *arg)
{
    struct stream *s = arg;
    struct sl_my_streams *all = s->all;
    const struct sl_stream_source source = {.fd = s->fd,
                                            .side_fd = -1,
                                            .bytes = take_bytes,
                                            .arg = s,
                                            .progress = all->backup->invocation->progress};
    s->code = sl_stream_copy(&source, s->upload, &s->err);
    int none = 0;
    if (s->code)
        atomic_compare_exchange_strong(&all->code, &none, s->code);
    atomic_fetch_sub(&all->left, 1);
    uint64_t one = 1;
    while (write(all->event_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
    return NULL;
}

static int start_one(struct sl_my_streams *all, unsigned i, const char *const *keep,
                     struct sl_err *err)
{
    struct stream *s = &all->streams[i];
    struct sl_my_backup *b = all->backup;
    char name[SL_NAME_MAX];
    sl_my_backup_object(b, i, name);
    int rc = sl_my_xbstream_new(keep, &s->xbstream, err);
    if (!rc)
        rc = sl_upload_begin(b->repository.client, name, 0, sl_my_backup_deadline(b), &s->upload,
                             err);
    if (rc)
        return rc;
    s->all = all;
    atomic_fetch_add(&all->left, 1);
    rc = sl_thread_start(&s->thread, "sl-my-stream", run, s, err);
    if (rc)
        atomic_fetch_sub(&all->left, 1);
    s->started = !rc;
    return rc;
}

/* --- named pipes -------------------------------------------------------------------------------
 */

static void pipe_path(const struct sl_my_streams *all, unsigned i,
                      char path[SL_MY_FOLDER_BYTES + 32])
{
    snprintf(path, SL_MY_FOLDER_BYTES + 32, "%s/thread_%u", all->folder, i);
}

/* The tool makes them when it has looked at its options and the server. */
static int open_pipe(struct sl_my_streams *all, unsigned i, const struct sl_child *child,
                     sl_deadline deadline, struct sl_err *err)
{
    char path[SL_MY_FOLDER_BYTES + 32];
    struct stat st;
    pipe_path(all, i, path);
    for (;;) {
        int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0 && (fstat(fd, &st) || !S_ISFIFO(st.st_mode))) {
            close(fd);
            return sl_err_set(err, SL_ERR_OPEN, "\"%s\" is not a named pipe", path);
        }
        if (fd >= 0) {
            all->streams[i].fd = fd;
            return 0;
        }
        if (errno != ENOENT)
            return sl_err_sys(err, SL_ERR_OPEN, errno, "could not open \"%s\"", path);
        int rc = sl_stop_check(err);
        if (!rc && sl_child_ended(child))
            rc = sl_err_set(err, SL_ERR_READ, "\"%s\" ended before it made its %u pipes",
                            child->name, all->count);
        if (!rc && sl_deadline_passed(deadline))
            rc = sl_err_set(err, SL_ERR_TIMEOUT, "\"%s\" has not made its %u pipes", child->name,
                            all->count);
        if (rc)
            return rc;
        poll(NULL, 0, PIPE_POLL_MS);
    }
}

static int open_all(struct sl_my_streams *all, const struct sl_child *child, struct sl_err *err)
{
    sl_deadline deadline = sl_deadline_in_ms(PIPES_MS);
    int rc = 0;
    for (unsigned i = 0; !rc && i < all->count; i++)
        rc = open_pipe(all, i, child, deadline, err);
    return rc;
}

/* A reader of a pipe that nobody has opened for writing would wait for ever. */
void sl_my_streams_no_writer(struct sl_my_streams *all)
{
    char path[SL_MY_FOLDER_BYTES + 32];
    for (unsigned i = 0; all->pipes && i < all->count; i++) {
        pipe_path(all, i, path);
        int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0)
            close(fd);
    }
}

/* --- all of them -------------------------------------------------------------------------------
 */

int sl_my_streams_start(struct sl_my_backup *b, const struct sl_child *child, const char *folder,
                        const char *const *keep, struct sl_my_streams **ret_streams,
                        struct sl_err *err)
{
    struct sl_my_streams *all = sl_calloc(1, sizeof *all);
    if (!all)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    all->backup = b;
    all->count = b->streams;
    all->pipes = b->streams > 1;
    snprintf(all->folder, sizeof all->folder, "%s", folder);
    for (unsigned i = 0; i < all->count; i++)
        all->streams[i].fd = all->pipes ? -1 : child->out_fd;
    all->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = all->event_fd < 0 ? sl_err_sys(err, SL_ERR_LIMIT, errno, "could not make an eventfd")
             : all->pipes      ? open_all(all, child, err)
                               : 0;
    for (unsigned i = 0; !rc && i < all->count; i++)
        rc = start_one(all, i, keep, err);
    *ret_streams = all; /* also after a failure: threads may run */
    return rc;
}

int sl_my_streams_fd(const struct sl_my_streams *all)
{
    return all->event_fd;
}

unsigned sl_my_streams_left(struct sl_my_streams *all, int *ret_code)
{
    uint64_t ended;
    while (read(all->event_fd, &ended, sizeof ended) < 0 && errno == EINTR)
        ;
    *ret_code = atomic_load(&all->code);
    return atomic_load(&all->left);
}

int sl_my_streams_join(struct sl_my_streams *all, struct sl_my_xb_totals *ret_totals,
                       struct sl_err *err)
{
    int rc = 0;
    struct sl_my_xb_totals sum = {0};
    for (unsigned i = 0; i < all->count; i++) {
        struct stream *s = &all->streams[i];
        struct sl_my_xb_totals one;
        if (!s->started)
            continue;
        pthread_join(s->thread, NULL);
        s->started = false;
        if (!rc && s->code)
            rc = sl_err_copy(err, &s->err);
        sl_my_xbstream_totals(s->xbstream, &one);
        sum.bytes += one.bytes;
        sum.chunks += one.chunks;
        sum.files += one.files;
        sum.payload += one.payload;
    }
    *ret_totals = sum;
    return rc;
}

int sl_my_streams_whole(const struct sl_my_streams *all, struct sl_err *err)
{
    int rc = 0;
    for (unsigned i = 0; !rc && i < all->count; i++) {
        bool empty = all->count > 1 && !sl_upload_length(all->streams[i].upload);
        if (empty && all->backup->totals.files < all->count)
            continue; /* files go to the streams in turn: there were not enough */
        rc = sl_my_xbstream_end(all->streams[i].xbstream, err);
        if (rc && all->count > 1)
            sl_err_prefix(err, "stream %u of %u", i + 1, all->count);
    }
    return rc;
}

const char *sl_my_streams_kept(const struct sl_my_streams *all, const char *name)
{
    const char *content = NULL;
    for (unsigned i = 0; !content && i < all->count; i++)
        content = sl_my_xbstream_kept(all->streams[i].xbstream, name);
    return content;
}

int sl_my_streams_commit(struct sl_my_streams *all, struct sl_stored *ret_stored,
                         struct sl_err *err)
{
    int rc = 0;
    for (unsigned i = 0; !rc && i < all->count; i++) {
        struct sl_upload *upload = all->streams[i].upload;
        ret_stored[i] = (struct sl_stored){0};
        if (!sl_upload_length(upload))
            continue;
        all->streams[i].upload = NULL;
        rc = sl_upload_commit(upload, 0, UINT64_MAX, &ret_stored[i], err);
    }
    return rc;
}

void sl_my_streams_free(struct sl_my_streams *all)
{
    if (!all)
        return;
    for (unsigned i = 0; i < all->count; i++) {
        struct stream *s = &all->streams[i];
        char path[SL_MY_FOLDER_BYTES + 32];
        sl_upload_abort(s->upload);
        sl_my_xbstream_free(s->xbstream);
        if (all->pipes && s->fd >= 0)
            close(s->fd);
        pipe_path(all, i, path);
        if (all->pipes)
            unlink(path); /* the tool leaves them */
    }
    if (all->event_fd >= 0)
        close(all->event_fd);
    sl_free(all);
}
