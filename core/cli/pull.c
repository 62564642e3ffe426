/* `sluice pull`: an object to standard output, in order, only blocks that were checked. What was
 * written cannot be taken back: after any failure the status says that it is not all. */
#include "core/base/fault.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/stop.h"
#include "core/cli/cli.h"
#include "core/cli/connect.h"
#include "core/cli/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES_MAX 5

struct pull {
    struct sl_invocation *invocation;
    struct sl_client *client;
    char object[SL_NAME_MAX];
    unsigned timeout_ms;
    int fd;
    struct sl_object_info info;
    bool known; /* info is */
    uint32_t block;
    bool stuck; /* it is the output that failed */
};

/* A pipe is opened anew, so that this process alone has it non-blocking and a signal is heeded
 * while the reader is slow. Whatever cannot be opened so is written as it is. */
static int output_open(void)
{
    struct stat st;
    if (fstat(STDOUT_FILENO, &st) || !S_ISFIFO(st.st_mode))
        return STDOUT_FILENO;
    int fd = open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? STDOUT_FILENO : fd;
}

static int output_failed(struct pull *p, int sys, struct sl_err *err)
{
    p->stuck = true;
    if (sys == EPIPE)
        return sl_err_set(err, SL_ERR_WRITE,
                          "the reader of standard output ended before the stream did");
    return sl_err_sys(err, SL_ERR_WRITE, sys, "could not write to standard output");
}

static int write_out(struct pull *p, const uint8_t *bytes, size_t count, struct sl_err *err)
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

static int write_blocks(struct pull *p, struct sl_download *download, struct sl_err *err)
{
    for (;;) {
        uint32_t block;
        const uint8_t *bytes;
        size_t count;
        int rc = sl_download_next(download, &block, &bytes, &count,
                                  sl_deadline_in_ms(p->timeout_ms), err);
        if (rc <= 0)
            return rc;
        if (block != p->block)
            return sl_err_set(err, SL_ERR_INTERNAL, "block %u came instead of %u", block, p->block);
        uint64_t began = sl_now_ns();
        rc = write_out(p, bytes, count, err);
        sl_progress_stage(p->invocation->progress, SL_STAGE_SOURCE, sl_now_ns() - began);
        if (rc)
            return rc;
        sl_progress_add(p->invocation->progress, count, 0);
        p->block++;
    }
}

/* From the block that is due, to the end. The second time it must be the same object. */
static int attempt(struct pull *p, struct sl_err *err)
{
    struct sl_download *download = NULL;
    struct sl_object_info info;
    int rc = sl_download_open(p->client, p->object, p->known ? &p->info.digest : NULL,
                              sl_deadline_in_ms(p->timeout_ms), &download, &info, err);
    if (rc)
        return rc;
    if (!p->known)
        sl_progress_total(p->invocation->progress, info.length, 0);
    p->info = info;
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

static int pull(struct pull *p, struct sl_err *err)
{
    int rc =
        sl_stream_stanza(p->client, p->invocation->stanza, sl_deadline_in_ms(p->timeout_ms), err);
    for (int tries = 0; !rc; tries++) {
        uint32_t before = p->block;
        rc = attempt(p, err);
        if (!rc)
            break;
        if (p->block > before)
            tries = 0;
        if (p->stuck || !sl_code_retryable(rc) || tries == TRIES_MAX || sl_stopped())
            return rc;
        sl_log_err(SL_LOG_WARN, "cli", err, "reading on from block %u", p->block);
        rc = 0;
    }
    return rc;
}

int sl_cli_pull(struct sl_invocation *invocation, struct sl_err *err)
{
    struct pull p = {.invocation = invocation,
                     .timeout_ms = (unsigned)sl_option_int(invocation->options, "timeout")};
    struct sl_connect_options options = {0};
    struct sl_connection *connection = NULL;
    int rc = sl_stream_object(invocation, p.object, err);
    if (!rc && isatty(STDOUT_FILENO)) {
        rc = sl_err_set(err, SL_ERR_USAGE, "standard output is a terminal");
        sl_err_hint(err, "usage: sluice pull NAME | COMMAND, or sluice pull NAME >FILE");
    }
    if (!rc)
        rc = sl_connection_open(invocation, &options, sl_deadline_in_ms(p.timeout_ms), &connection,
                                err);
    if (rc)
        return rc;
    p.client = sl_connection_client(connection);
    p.fd = output_open();
    rc = pull(&p, err);
    if (p.fd != STDOUT_FILENO)
        close(p.fd);
    sl_connection_close(connection);
    return rc;
}
