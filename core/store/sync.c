/* fdatasync of several files at once. One after the other they would each wait for a flush of the
 * disk; together they share the file system's journal commit and the disk's flush. */
#include "core/store/posix_internal.h"

#include "core/base/alloc.h"

#include <errno.h>

static void sync_in_turn(const int *fds, int *results, size_t count)
{
    for (size_t i = 0; i < count; i++)
        results[i] = sl_posix_sync_fd("posix.fdatasync", fds[i], true);
}

#ifdef SLUICE_URING
#include <liburing.h>

#define RING_DEPTH 64u

struct sl_sync_ring {
    struct io_uring ring;
};

/* The store's ring, made when it is first needed, or NULL. Called with ring_lock held. */
static struct sl_sync_ring *ring_of(struct sl_posix *store)
{
    if (store->ring || store->ring_failed)
        return store->ring;
    struct sl_sync_ring *ring = sl_store_posix_threads_forced() ? NULL : sl_alloc(sizeof *ring);
    if (ring && (sl_fault("posix.uring") || io_uring_queue_init(RING_DEPTH, &ring->ring, 0) != 0)) {
        sl_free(ring);
        ring = NULL;
    }
    store->ring_failed = !ring;
    return store->ring = ring;
}

void sl_posix_sync_ring_free(struct sl_sync_ring *ring)
{
    if (!ring)
        return;
    io_uring_queue_exit(&ring->ring);
    sl_free(ring);
}

#define UNDECIDED (-1)

/* Wait for `count` completions. False when the ring itself fails. */
static bool collect(struct io_uring *ring, int *results, size_t count)
{
    while (count) {
        struct io_uring_cqe *cqe;
        int rc = io_uring_wait_cqe(ring, &cqe);
        if (rc == -EINTR || rc == -EAGAIN)
            continue;
        if (rc)
            return false;
        size_t i = (size_t)io_uring_cqe_get_data64(cqe);
        /* Not carried out at all: left for sync_in_turn. Any other failure is final. */
        bool not_done = cqe->res == -EINTR || cqe->res == -ECANCELED || cqe->res == -EAGAIN;
        results[i] = not_done ? UNDECIDED : -cqe->res;
        io_uring_cqe_seen(ring, cqe);
        count--;
    }
    return true;
}

/* Files [first, last): those whose fault point decides nothing go to the ring. */
static bool sync_part(struct io_uring *ring, const int *fds, int *results, size_t first,
                      size_t last)
{
    unsigned prepared = 0;
    for (size_t i = first; i < last; i++) {
        int decided;
        if (sl_posix_fault("posix.fdatasync", &decided)) {
            results[i] = decided;
            continue;
        }
        struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
        io_uring_prep_fsync(sqe, fds[i], IORING_FSYNC_DATASYNC);
        io_uring_sqe_set_data64(sqe, i);
        results[i] = UNDECIDED;
        prepared++;
    }
    unsigned submitted = 0;
    while (submitted < prepared) {
        int rc = io_uring_submit(ring);
        if (rc == -EINTR)
            continue;
        if (rc <= 0)
            break;
        submitted += (unsigned)rc;
    }
    return collect(ring, results, submitted) && submitted == prepared;
}

void sl_posix_sync_files(struct sl_posix *store, const int *fds, int *results, size_t count)
{
    /* Two batches at a time: the second goes its own way. */
    if (count < 2 || pthread_mutex_trylock(&store->ring_lock) != 0) {
        sync_in_turn(fds, results, count);
        return;
    }
    struct sl_sync_ring *ring = ring_of(store);
    size_t first = 0;
    while (ring && first < count) {
        size_t last = count - first < RING_DEPTH ? count : first + RING_DEPTH;
        bool fine = sync_part(&ring->ring, fds, results, first, last);
        for (size_t i = first; i < last; i++)
            if (results[i] == UNDECIDED)
                sync_in_turn(&fds[i], &results[i], 1);
        first = last;
        if (!fine) {
            sl_posix_sync_ring_free(ring);
            store->ring = ring = NULL;
            store->ring_failed = true;
        }
    }
    pthread_mutex_unlock(&store->ring_lock);
    sync_in_turn(fds + first, results + first, count - first);
}

#else

void sl_posix_sync_ring_free(struct sl_sync_ring *ring)
{
    (void)ring;
}

void sl_posix_sync_files(struct sl_posix *store, const int *fds, int *results, size_t count)
{
    (void)store;
    sync_in_turn(fds, results, count);
}

#endif
