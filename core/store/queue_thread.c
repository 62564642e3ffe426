/* The queue where io_uring cannot be had (old kernels, containers that forbid it): a helper thread
 * makes the calls, one after the other. An eventfd is readable as long as something has ended that
 * was not reaped. */
#include "core/store/posix_internal.h"

#include "core/base/alloc.h"
#include "core/base/thread.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct list {
    struct sl_transfer *first, **end;
};

struct thread_queue {
    struct sl_posix_queue base;
    struct list fresh; /* submitted, not flushed: the owner's */
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t work;
    struct list waiting, ended;
    bool stop;
};

static void push(struct list *list, struct sl_transfer *transfer)
{
    transfer->next = NULL;
    *list->end = transfer;
    list->end = &transfer->next;
}

static struct sl_transfer *pop(struct list *list)
{
    struct sl_transfer *transfer = list->first;
    if (transfer && !(list->first = transfer->next))
        list->end = &list->first;
    return transfer;
}

static void *serve(void *arg)
{
    struct thread_queue *queue = arg;
    struct sl_transfer *transfer;
    pthread_mutex_lock(&queue->lock);
    for (;;) {
        while (!(transfer = pop(&queue->waiting)) && !queue->stop)
            pthread_cond_wait(&queue->work, &queue->lock);
        if (!transfer)
            break;
        pthread_mutex_unlock(&queue->lock);
        while (transfer->left && !sl_transfer_step(transfer, sl_transfer_call(transfer))) {
        }
        pthread_mutex_lock(&queue->lock);
        if (!queue->ended.first)
            eventfd_write(queue->base.base.fd, 1);
        push(&queue->ended, transfer);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

static void submit(struct sl_store_queue *base, struct sl_transfer *transfer)
{
    push(&((struct thread_queue *)base)->fresh, transfer);
}

static int flush(struct sl_store_queue *base)
{
    struct thread_queue *queue = (struct thread_queue *)base;
    if (!queue->fresh.first)
        return 0;
    pthread_mutex_lock(&queue->lock);
    *queue->waiting.end = queue->fresh.first;
    queue->waiting.end = queue->fresh.end;
    pthread_cond_signal(&queue->work);
    pthread_mutex_unlock(&queue->lock);
    queue->fresh = (struct list){.first = NULL, .end = &queue->fresh.first};
    return 0;
}

static struct sl_transfer *reap(struct sl_store_queue *base)
{
    struct thread_queue *queue = (struct thread_queue *)base;
    eventfd_t ignored;
    pthread_mutex_lock(&queue->lock);
    struct sl_transfer *transfer = pop(&queue->ended);
    if (transfer && !queue->ended.first)
        eventfd_read(base->fd, &ignored);
    pthread_mutex_unlock(&queue->lock);
    return transfer;
}

static void wait_for_end(struct sl_store_queue *base)
{
    struct pollfd wanted = {.fd = base->fd, .events = POLLIN};
    poll(&wanted, 1, -1); /* the disk has no deadline */
}

static void release(struct thread_queue *queue)
{
    if (queue->base.base.fd >= 0)
        close(queue->base.base.fd);
    pthread_cond_destroy(&queue->work);
    pthread_mutex_destroy(&queue->lock);
    sl_free(queue);
}

static void free_queue(struct sl_store_queue *base)
{
    struct thread_queue *queue = (struct thread_queue *)base;
    pthread_mutex_lock(&queue->lock);
    queue->stop = true;
    pthread_cond_signal(&queue->work);
    pthread_mutex_unlock(&queue->lock);
    pthread_join(queue->thread, NULL);
    release(queue);
}

static const struct sl_queue_ops thread_ops = {
    .free = free_queue,
    .submit = submit,
    .flush = flush,
    .reap = reap,
    .wait = wait_for_end,
};

int sl_queue_thread_new(unsigned depth, struct sl_posix_queue **ret_queue, struct sl_err *err)
{
    (void)depth;
    struct thread_queue *queue = sl_calloc(1, sizeof *queue);
    if (!queue)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a queue");
    queue->base.ops = &thread_ops;
    queue->fresh.end = &queue->fresh.first;
    queue->waiting.end = &queue->waiting.first;
    queue->ended.end = &queue->ended.first;
    pthread_mutex_init(&queue->lock, NULL);
    sl_cond_init(&queue->work);
    int decided = 0, rc;
    queue->base.base.fd =
        sl_posix_fault("posix.eventfd", &decided) ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (queue->base.base.fd < 0)
        rc = sl_err_sys(err, SL_ERR_LIMIT, decided ? decided : errno, "could not make an eventfd");
    else
        rc = sl_thread_start(&queue->thread, "sl-store", serve, queue, err);
    if (rc) {
        release(queue);
        return rc;
    }
    *ret_queue = &queue->base;
    return 0;
}
