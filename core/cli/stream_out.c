/* The way of an object into a pipe: in order, only blocks that were checked, going on where a lost
 * session left it. What was written cannot be taken back. */
#include "core/base/fault.h"
#include "core/base/log.h"
#include "core/base/stop.h"
#include "core/cli/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES_MAX 5

struct writing {
    const struct sl_stream_sink *sink;
    struct sl_client *client;
    const char *object;
    int fd;
    struct sl_id digest;
    bool known; /* digest is */
    uint32_t block;
    bool stuck; /* it is the output that failed */
};

/* A pipe is opened anew, so that this process alone has it non-blocking and a signal is heeded
 * while the reader is slow. Whatever cannot be opened so is written as it is. */
static int reopen(int output)
{
    struct stat st;
    char path[40];
    if (fstat(output, &st) || !S_ISFIFO(st.st_mode))
        return output;
    snprintf(path, sizeof path, "/proc/self/fd/%d", output);
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? output : fd;
}

static int output_failed(struct writing *p, int sys, struct sl_err *err)
{
    p->stuck = true;
    if (sys == EPIPE)
        return sl_err_set(err, SL_ERR_WRITE, "the reader of %s ended before the stream did",
                          p->sink->what);
    return sl_err_sys(err, SL_ERR_WRITE, sys, "could not write to %s", p->sink->what);
}

static int write_out(struct writing *p, const uint8_t *bytes, size_t count, struct sl_err *err)
{
    struct pollfd fds[2] = {{.fd = sl_stop_fd(), .events = POLLIN},
                            {.fd = p->fd, .events = POLLOUT}};
    while (count) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return output_failed(p, errno, err);
        int rc = sl_stop_check(err);
        if (rc)
            return rc;
        int fault = sl_fault("stream.write");
        ssize_t n = fault ? -1 : write(p->fd, bytes, count);
        if (n < 0 && !fault && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            return output_failed(p, fault ? fault : errno, err);
        bytes += n;
        count -= (size_t)n;
    }
    return 0;
}

static int write_blocks(struct writing *p, struct sl_download *download, struct sl_err *err)
{
    for (;;) {
        uint32_t block;
        const uint8_t *bytes;
        size_t count;
        int rc = sl_download_next(download, &block, &bytes, &count,
                                  sl_deadline_in_ms(p->sink->timeout_ms), err);
        if (rc <= 0)
            return rc;
        if (block != p->block)
            return sl_err_set(err, SL_ERR_INTERNAL, "block %u came instead of %u", block, p->block);
        uint64_t began = sl_now_ns();
        rc = write_out(p, bytes, count, err);
        sl_progress_stage(p->sink->progress, SL_STAGE_SOURCE, sl_now_ns() - began);
        if (rc)
            return rc;
        sl_progress_add(p->sink->progress, count, 0);
        p->block++;
    }
}

/* From the block that is due, to the end. The second time it must be the same object. */
static int attempt(struct writing *p, struct sl_err *err)
{
    struct sl_download *download = NULL;
    struct sl_object_info info;
    int rc = sl_download_open(p->client, p->object, p->known ? &p->digest : NULL,
                              sl_deadline_in_ms(p->sink->timeout_ms), &download, &info, err);
    if (rc)
        return rc;
    if (!p->block)
        sl_progress_total(p->sink->progress, info.length, 0);
    p->digest = info.digest;
    p->known = true;
    uint32_t blocks = (uint32_t)((info.length + SL_BLOCK_BYTES - 1) / SL_BLOCK_BYTES);
    if (p->block && p->block < blocks)
        rc = sl_download_range(download, p->block, blocks - p->block, err);
    if (!rc && p->block < blocks)
        rc = write_blocks(p, download, err);
    if (!rc && p->block != blocks)
        rc = sl_err_set(err, SL_ERR_READ, "\"%s\" ended early", p->object);
    sl_download_close(download);
    return rc;
}

int sl_stream_write(const struct sl_stream_sink *sink, struct sl_client *client, const char *object,
                    const struct sl_id *expect, struct sl_err *err)
{
    struct writing w = {.sink = sink, .client = client, .object = object, .known = expect != NULL};
    int rc = 0;
    if (expect)
        w.digest = *expect;
    w.fd = reopen(sink->fd);
    for (int tries = 0;; tries++) {
        uint32_t before = w.block;
        rc = attempt(&w, err);
        if (w.block > before)
            tries = 0;
        if (!rc || w.stuck || !sl_code_retryable(rc) || tries == TRIES_MAX || sl_stopped())
            break;
        sl_log_err(SL_LOG_WARN, "cli", err, "reading on from block %u", w.block);
    }
    if (w.fd != sink->fd)
        close(w.fd);
    return rc;
}
