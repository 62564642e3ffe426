/* The queue on io_uring. The ring's own descriptor polls readable when completions wait
 * (io_uring_setup(2)). A transfer whose result a fault point has decided travels as a NOP, so that
 * tests meet it where real results come. */
#include "core/store/posix_internal.h"

#include "core/base/alloc.h"

#include <errno.h>
#include <liburing.h>
#include <limits.h>
#include <string.h>

struct uring_queue {
    struct sl_posix_queue base;
    struct io_uring ring;
    unsigned prepared; /* not handed to the kernel yet */
};

static struct uring_queue *uring_of(struct sl_store_queue *queue)
{
    return (struct uring_queue *)queue;
}

static void submit(struct sl_store_queue *base, struct sl_transfer *t)
{
    struct uring_queue *queue = uring_of(base);
    /* The ring has `depth` entries, and as many transfers exist: one is always free. */
    struct io_uring_sqe *sqe = io_uring_get_sqe(&queue->ring);
    int fd = sl_transfer_fd(t);
    unsigned count = t->left < INT_MAX ? (unsigned)t->left : INT_MAX & ~(SL_STORE_ALIGN - 1);
    ssize_t decided = 0;
    t->fault = 0;
    if (!t->left || sl_transfer_fault(t, &decided)) {
        t->fault = decided < 0 ? (int)decided : 1;
        io_uring_prep_nop(sqe);
    } else if (t->writing) {
        io_uring_prep_write(sqe, fd, t->bytes.out, count, t->offset);
    } else {
        io_uring_prep_read(sqe, fd, t->bytes.in, count, t->offset);
    }
    io_uring_sqe_set_data(sqe, t);
    queue->prepared++;
}

static int flush(struct sl_store_queue *base)
{
    struct uring_queue *queue = uring_of(base);
    while (queue->prepared) {
        int rc = io_uring_submit(&queue->ring);
        if (rc == -EINTR)
            continue;
        if (rc < 0) /* EAGAIN, EBUSY: out of memory for now; the next flush tries again */
            return rc == -EAGAIN || rc == -EBUSY ? SL_ERR_BUSY : SL_ERR_WRITE;
        if (!rc)
            break;
        queue->prepared -= (unsigned)rc;
    }
    return 0;
}

static struct sl_transfer *reap(struct sl_store_queue *base)
{
    struct uring_queue *queue = uring_of(base);
    struct io_uring_cqe *cqe;
    struct sl_transfer *ended = NULL;
    bool again = queue->prepared > 0;
    while (!ended && io_uring_peek_cqe(&queue->ring, &cqe) == 0) {
        struct sl_transfer *t = io_uring_cqe_get_data(cqe);
        ssize_t result = cqe->res;
        io_uring_cqe_seen(&queue->ring, cqe);
        if (t->fault)
            result = t->fault < 0 ? t->fault : (ssize_t)t->left;
        if (sl_transfer_step(t, result)) {
            ended = t;
        } else {
            submit(base, t);
            again = true;
        }
    }
    if (again)
        flush(base);
    return ended;
}

static void wait_for_end(struct sl_store_queue *base)
{
    struct io_uring_cqe *cqe;
    if (flush(base) == 0)
        io_uring_wait_cqe(&uring_of(base)->ring, &cqe);
}

static void free_queue(struct sl_store_queue *base)
{
    io_uring_queue_exit(&uring_of(base)->ring);
    sl_free(uring_of(base));
}

static const struct sl_queue_ops uring_ops = {
    .free = free_queue,
    .submit = submit,
    .flush = flush,
    .reap = reap,
    .wait = wait_for_end,
};

int sl_queue_uring_new(unsigned depth, struct sl_posix_queue **ret_queue, struct sl_err *err)
{
    struct uring_queue *queue = sl_calloc(1, sizeof *queue);
    if (!queue)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a queue");
    int decided;
    int rc = sl_posix_fault("posix.uring", &decided) ? -decided
                                                     : io_uring_queue_init(depth, &queue->ring, 0);
    if (rc) { /* ENOSYS, EPERM (forbidden), ENOMEM (RLIMIT_MEMLOCK of old kernels) … */
        sl_free(queue);
        return sl_err_set(err, SL_ERR_UNSUPPORTED, "io_uring cannot be had: %s", strerror(-rc));
    }
    queue->base.ops = &uring_ops;
    queue->base.base.fd = queue->ring.ring_fd;
    *ret_queue = &queue->base;
    return 0;
}
