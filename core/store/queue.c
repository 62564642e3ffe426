/* Queues: what the two kinds, io_uring and the helper thread, have in common: transfers, limits,
 * results. A queue belongs to one event loop. */
#include "core/store/posix_internal.h"

#include "core/base/alloc.h"
#include "core/base/log.h"

static atomic_bool force_threads;

void sl_store_posix_force_threads(bool force)
{
    force_threads = force;
}

bool sl_store_posix_threads_forced(void)
{
    return force_threads;
}

static struct sl_posix_queue *queue_of(struct sl_store_queue *queue)
{
    return (struct sl_posix_queue *)queue;
}

#ifndef SLUICE_URING
int sl_queue_uring_new(unsigned depth, struct sl_posix_queue **ret_queue, struct sl_err *err)
{
    (void)depth, (void)ret_queue;
    return sl_err_set(err, SL_ERR_UNSUPPORTED, "built without io_uring");
}
#endif

static int make(unsigned depth, struct sl_posix_queue **ret_queue, struct sl_err *err)
{
    struct sl_err why;
    if (force_threads)
        return sl_queue_thread_new(depth, ret_queue, err);
    int rc = sl_queue_uring_new(depth, ret_queue, &why);
    if (rc != SL_ERR_UNSUPPORTED)
        return rc ? sl_err_copy(err, &why) : 0;
    sl_log(SL_LOG_DETAIL, "store", "a helper thread writes and reads: %s", why.msg);
    return sl_queue_thread_new(depth, ret_queue, err);
}

int sl_posix_queue_new(struct sl_store *store, unsigned depth, struct sl_store_queue **ret_queue,
                       struct sl_err *err)
{
    struct sl_posix_queue *queue;
    if (!depth)
        return sl_err_set(err, SL_ERR_INTERNAL, "a queue without depth");
    struct sl_transfer *transfers = sl_calloc(depth, sizeof *transfers);
    if (!transfers)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a queue");
    int rc = make(depth, &queue, err);
    if (rc) {
        sl_free(transfers);
        return rc;
    }
    queue->base.store = store;
    queue->base.depth = depth;
    queue->transfers = transfers;
    for (unsigned i = 0; i < depth; i++) {
        transfers[i].next = queue->idle;
        queue->idle = &transfers[i];
    }
    *ret_queue = &queue->base;
    return 0;
}

void sl_posix_queue_free(struct sl_store_queue *base)
{
    if (!base)
        return;
    struct sl_posix_queue *queue = queue_of(base);
    struct sl_store_done done;
    sl_posix_queue_flush(base);
    while (base->in_flight)
        if (!sl_posix_queue_reap(base, &done, 1))
            queue->ops->wait(base);
    sl_free(queue->transfers);
    queue->ops->free(base);
}

static int submit(struct sl_store_queue *base, const struct sl_transfer *request)
{
    struct sl_posix_queue *queue = queue_of(base);
    struct sl_transfer *transfer = queue->idle;
    if (!transfer)
        return SL_ERR_BUSY;
    queue->idle = transfer->next;
    base->in_flight++;
    *transfer = *request;
    queue->ops->submit(base, transfer);
    return 0;
}

int sl_posix_queue_write(struct sl_store_queue *queue, struct sl_file *file, const void *bytes,
                         size_t count, uint64_t offset, uint64_t context)
{
    struct sl_posix_file *posix = sl_posix_file_of(file);
    if (!posix->temporary)
        return SL_ERR_INTERNAL;
    if (sl_store_poisoned(queue->store))
        return SL_ERR_SYNC;
    return submit(queue, &(struct sl_transfer){.file = posix,
                                               .bytes.out = bytes,
                                               .left = count,
                                               .offset = offset,
                                               .context = context,
                                               .writing = true});
}

int sl_posix_queue_read(struct sl_store_queue *queue, struct sl_file *file, void *bytes,
                        size_t count, uint64_t offset, uint64_t context)
{
    return submit(queue, &(struct sl_transfer){.file = sl_posix_file_of(file),
                                               .bytes.in = bytes,
                                               .left = count,
                                               .offset = offset,
                                               .context = context});
}

int sl_posix_queue_flush(struct sl_store_queue *queue)
{
    return queue_of(queue)->ops->flush(queue);
}

size_t sl_posix_queue_reap(struct sl_store_queue *base, struct sl_store_done *done, size_t max)
{
    struct sl_posix_queue *queue = queue_of(base);
    size_t n = 0;
    while (n < max) {
        struct sl_transfer *transfer = queue->ops->reap(base);
        if (!transfer)
            break;
        done[n++] = (struct sl_store_done){
            .context = transfer->context, .code = transfer->code, .sys = transfer->sys};
        transfer->next = queue->idle;
        queue->idle = transfer;
        base->in_flight--;
    }
    return n;
}
