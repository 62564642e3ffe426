/* Queues: every test runs on io_uring and on the helper thread. */
#include "store_fixture.h"

#include "core/base/alloc.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>

#define BLOCK (64u * 1024)
#define DEPTH 8u

struct fixture {
    struct store_fixture *base;
    struct sl_store *store;
    const struct sl_store_ops *ops;
    struct sl_store_queue *queue;
    uint8_t *memory; /* DEPTH blocks */
};

static bool uring_works(void)
{
    struct sl_posix_queue *queue;
    if (sl_queue_uring_new(4, &queue, NULL) != 0)
        return false;
    queue->ops->free(&queue->base);
    return true;
}

static int setup_kind(void **state, bool threads)
{
    struct fixture *f = calloc(1, sizeof *f);
    sl_fault_set(NULL);
    f->base = fixture_open("/tmp");
    f->store = f->base->store;
    f->ops = f->store->ops;
    f->memory = sl_pages_alloc(DEPTH * BLOCK);
    for (size_t i = 0; i < DEPTH * BLOCK; i++)
        f->memory[i] = (uint8_t)(i * 31 + (i >> 9));
    sl_store_posix_force_threads(threads);
    struct sl_err err;
    if (f->ops->queue_new(f->store, DEPTH, &f->queue, &err) != 0)
        fail_msg("%s", err.msg);
    *state = f;
    return 0;
}

static int setup_uring(void **state)
{
    return setup_kind(state, false);
}

static int setup_thread(void **state)
{
    return setup_kind(state, true);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    f->ops->queue_free(f->queue);
    f->ops->queue_free(NULL);
    sl_store_posix_force_threads(false);
    sl_fault_set(NULL);
    sl_pages_free(f->memory, DEPTH * BLOCK);
    fixture_close(f->base);
    free(f);
    return 0;
}

static bool readable(const struct sl_store_queue *queue, int timeout_ms)
{
    struct pollfd wanted = {.fd = queue->fd, .events = POLLIN};
    return poll(&wanted, 1, timeout_ms) == 1;
}

/* Flush and reap `count`, waiting by poll only: `codes[context]`, errnos in `sys`. */
static void reap_all(struct fixture *f, size_t count, int *codes, int *sys)
{
    assert_code(f->ops->queue_flush(f->queue), 0);
    while (count) {
        struct sl_store_done done[3];
        if (!readable(f->queue, 10000))
            fail_msg("%zu missing after 10 s", count);
        size_t n = f->ops->queue_reap(f->queue, done, 3);
        assert_true(n <= count);
        for (size_t i = 0; i < n; i++) {
            assert_true(done[i].context < 64);
            assert_int_equal(codes[done[i].context], 77); /* each once */
            codes[done[i].context] = done[i].code;
            if (sys)
                sys[done[i].context] = done[i].sys;
        }
        count -= n;
    }
    assert_int_equal(f->queue->in_flight, 0);
    assert_false(readable(f->queue, 0));
}

static void fresh(int codes[64])
{
    for (int i = 0; i < 64; i++)
        codes[i] = 77;
}

static struct sl_file *file_with_memory(struct fixture *f, const char *name)
{
    struct sl_publish item = {.name = name};
    uint64_t length;
    assert_code(f->ops->create(f->store, name, 0, &item.file, NULL), 0);
    assert_code(f->ops->write(item.file, f->memory, DEPTH * BLOCK, 0, NULL), 0);
    assert_code(f->ops->publish(f->store, &item, 1), 0);
    f->ops->close(item.file);
    assert_code(f->ops->open(f->store, name, &item.file, &length, NULL), 0);
    return item.file;
}

static void queue__writes_and_reads(void **state)
{
    struct fixture *f = *state;
    struct sl_publish item = {.name = "s/x"};
    int codes[64];
    fresh(codes);
    assert_code(f->ops->create(f->store, "x", 0, &item.file, NULL), 0);
    for (unsigned i = 0; i < DEPTH; i++) { /* backwards; the last one short: not direct */
        unsigned at = DEPTH - 1 - i;
        assert_code(f->ops->queue_write(f->queue, item.file, f->memory + at * BLOCK,
                                        at == DEPTH - 1 ? BLOCK - 3 : BLOCK, at * BLOCK, at),
                    0);
    }
    reap_all(f, DEPTH, codes, NULL);
    for (unsigned i = 0; i < DEPTH; i++)
        assert_int_equal(codes[i], 0);
    assert_code(f->ops->publish(f->store, &item, 1), 0);
    assert_code(f->ops->queue_write(f->queue, item.file, "x", 1, 0, 0), SL_ERR_INTERNAL);
    f->ops->close(item.file);

    uint64_t length;
    uint8_t *back = calloc(DEPTH, BLOCK);
    assert_code(f->ops->open(f->store, "s/x", &item.file, &length, NULL), 0);
    assert_int_equal(length, DEPTH * BLOCK - 3);
    fresh(codes);
    for (unsigned i = 0; i < DEPTH - 1; i++)
        assert_code(f->ops->queue_read(f->queue, item.file, back + i * BLOCK, BLOCK, i * BLOCK, i),
                    0);
    reap_all(f, DEPTH - 1, codes, NULL);
    assert_memory_equal(back, f->memory, (DEPTH - 1) * BLOCK);
    /* over the end: format; empty: fine */
    fresh(codes);
    f->ops->queue_read(f->queue, item.file, back, BLOCK, (DEPTH - 1) * BLOCK, 1);
    f->ops->queue_read(f->queue, item.file, back, 0, 0, 2);
    f->ops->queue_read(f->queue, item.file, back, 9, UINT32_MAX, 3);
    reap_all(f, 3, codes, NULL);
    assert_int_equal(codes[1], SL_ERR_FORMAT);
    assert_int_equal(codes[2], 0);
    assert_int_equal(codes[3], SL_ERR_FORMAT);
    free(back);
    f->ops->close(item.file);
}

static void queue__full__busy(void **state)
{
    struct fixture *f = *state;
    struct sl_file *file = file_with_memory(f, "x");
    uint8_t *back = malloc(BLOCK);
    int codes[64];
    for (unsigned round = 0; round < 3; round++) {
        fresh(codes);
        for (unsigned i = 0; i < DEPTH; i++)
            assert_code(f->ops->queue_read(f->queue, file, back, BLOCK, 0, i), 0);
        assert_code(f->ops->queue_read(f->queue, file, back, BLOCK, 0, 9), SL_ERR_BUSY);
        assert_int_equal(f->queue->in_flight, DEPTH);
        reap_all(f, DEPTH, codes, NULL);
    }
    free(back);
    f->ops->close(file);
}

static void queue__polls_readable_until_all_is_reaped(void **state)
{
    struct fixture *f = *state;
    struct sl_file *file = file_with_memory(f, "x");
    uint8_t *back = malloc(BLOCK);
    struct sl_store_done done;
    assert_false(readable(f->queue, 0));
    assert_int_equal(f->ops->queue_reap(f->queue, &done, 1), 0);
    for (unsigned i = 0; i < 4; i++)
        f->ops->queue_read(f->queue, file, back, BLOCK, 0, i);
    assert_code(f->ops->queue_flush(f->queue), 0);
    for (unsigned i = 0; i < 4; i++) {
        assert_true(readable(f->queue, 10000));
        while (f->ops->queue_reap(f->queue, &done, 1) == 0) {
        }
    }
    assert_false(readable(f->queue, 0));
    free(back);
    f->ops->close(file);
}

static void queue__errors_are_told_each(void **state)
{
    struct fixture *f = *state;
    struct sl_file *file = draft(f->store, "");
    int codes[64], sys[64];
    fresh(codes);
    sl_fault_set("posix.pwrite:ENOSPC@2,posix.pwrite:EIO@3,posix.pwrite:EINTR@4");
    for (unsigned i = 0; i < 5; i++) {
        f->ops->queue_write(f->queue, file, f->memory, 100, i * 1000, i);
        reap_all(f, 1, codes, sys);
    }
    assert_int_equal(codes[0], 0);
    assert_int_equal(codes[1], SL_ERR_FULL);
    assert_int_equal(sys[1], ENOSPC);
    assert_int_equal(codes[2], SL_ERR_WRITE);
    assert_int_equal(sys[2], EIO);
    assert_int_equal(codes[3], 0); /* repeated */
    assert_int_equal(codes[4], 0);
    fresh(codes);
    sl_fault_set("posix.pread:EIO");
    char back[100];
    f->ops->queue_read(f->queue, file, back, 100, 0, 0);
    f->ops->queue_read(f->queue, file, back, 100, 1000, 1);
    reap_all(f, 2, codes, sys);
    assert_int_equal(codes[0] + codes[1], SL_ERR_READ);
    f->ops->close(file);
}

static void queue__direct_write_refused__buffered(void **state)
{
    struct fixture *f = *state;
    struct sl_file *file = draft(f->store, "");
    int codes[64];
    if (!sl_posix_file_of(file)->direct) {
        f->ops->close(file);
        skip(); /* this file system has no O_DIRECT */
    }
    fresh(codes);
    sl_fault_set("posix.pwrite:EINVAL@1");
    for (unsigned i = 0; i < 4; i++)
        f->ops->queue_write(f->queue, file, f->memory + i * BLOCK, BLOCK, i * BLOCK, i);
    reap_all(f, 4, codes, NULL);
    sl_fault_set(NULL);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(codes[i], 0);
    assert_true(sl_posix_of(f->store)->no_direct);
    uint8_t *back = malloc(4 * BLOCK);
    assert_code(f->ops->read(file, back, 4 * BLOCK, 0, NULL), 0);
    assert_memory_equal(back, f->memory, 4 * BLOCK);
    free(back);
    f->ops->close(file);
}

/* Big reads of a published file go past the page cache, until the file system refuses. */
static void queue__direct_read_refused__buffered(void **state)
{
    struct fixture *f = *state;
    struct sl_file *file;
    char path[200];
    uint64_t length;
    int codes[64];
    snprintf(path, sizeof path, "%s/big", f->base->path);
    FILE *out = fopen(path, "w");
    assert_int_equal(fwrite(f->memory, 1, DEPTH * BLOCK, out), DEPTH * BLOCK);
    fclose(out);
    assert_code(f->ops->open(f->store, "big", &file, &length, NULL), 0);
    if (sl_posix_of(f->store)->no_direct) {
        f->ops->close(file);
        skip(); /* this file system has no O_DIRECT */
    }
    uint8_t *back = sl_pages_alloc(DEPTH * BLOCK);
    static const char *const faults[] = {NULL, "posix.pread:EINVAL@1"};
    for (unsigned i = 0; i < 2; i++) {
        fresh(codes);
        memset(back, 0, DEPTH * BLOCK);
        sl_fault_set(faults[i]);
        f->ops->queue_read(f->queue, file, back, DEPTH * BLOCK, 0, 0);
        reap_all(f, 1, codes, NULL);
        assert_int_equal(codes[0], 0);
        assert_memory_equal(back, f->memory, DEPTH * BLOCK);
        assert_int_equal(sl_posix_of(f->store)->no_direct, i);
    }
    sl_pages_free(back, DEPTH * BLOCK);
    f->ops->close(file);
}

static void queue__freed_with_work_in_flight__waits(void **state)
{
    struct fixture *f = *state;
    struct sl_store_queue *queue;
    struct sl_file *file = draft(f->store, "");
    assert_code(f->ops->queue_new(f->store, DEPTH, &queue, NULL), 0);
    sl_fault_set("posix.pwrite:sleep=5@3");
    for (unsigned i = 0; i < DEPTH; i++)
        f->ops->queue_write(queue, file, f->memory + i * BLOCK, BLOCK, i * BLOCK, i);
    f->ops->queue_flush(queue);
    f->ops->queue_free(queue);
    uint8_t *back = malloc(DEPTH * BLOCK);
    assert_code(f->ops->read(file, back, DEPTH * BLOCK, 0, NULL), 0);
    assert_memory_equal(back, f->memory, DEPTH * BLOCK);
    free(back);
    f->ops->close(file);
}

/* A short count is continued: step by step, as both queues do it. */
static void transfer__short_counts__continued(void **state)
{
    struct fixture *f = *state;
    struct sl_file *file = draft(f->store, "");
    struct sl_transfer t = {.file = sl_posix_file_of(file),
                            .bytes.out = f->memory,
                            .left = BLOCK,
                            .offset = 8192,
                            .writing = true};
    assert_false(sl_transfer_step(&t, 1000));
    assert_int_equal(t.left, BLOCK - 1000);
    assert_int_equal(t.offset, 9192);
    assert_ptr_equal(t.bytes.out, f->memory + 1000);
    assert_int_equal(sl_transfer_fd(&t), sl_posix_file_of(file)->fd); /* unaligned now */
    assert_false(sl_transfer_step(&t, -EINTR));
    assert_false(sl_transfer_step(&t, 96));
    assert_true(sl_transfer_step(&t, BLOCK - 1096));
    assert_int_equal(t.code, 0);
    t.left = 5;
    assert_true(sl_transfer_step(&t, 0)); /* a write of nothing would go on for ever */
    assert_int_equal(t.sys, EIO);
    f->ops->close(file);
}

static void queue_new__each_fault__clean(void **state)
{
    struct fixture *f = *state;
    struct sl_store_queue *queue;
    bool threads = sl_store_posix_threads_forced();
    for (unsigned n = 1;; n++) {
        char rule[64];
        struct sl_err err = {0};
        snprintf(rule, sizeof rule, "*:ENOMEM@%u", n);
        sl_fault_set(rule);
        int rc = f->ops->queue_new(f->store, 4, &queue, &err);
        bool passed = sl_fault_passed() < n;
        sl_fault_set(NULL);
        assert_code(rc, err.code);
        if (!rc)
            f->ops->queue_free(queue);
        if (passed)
            break;
    }
    sl_store_posix_force_threads(false);
    sl_fault_set("posix.uring:ENOSYS"); /* falls to the helper thread */
    assert_code(f->ops->queue_new(f->store, 4, &queue, NULL), 0);
    f->ops->queue_free(queue);
    assert_code(f->ops->queue_new(f->store, 0, &queue, NULL), SL_ERR_INTERNAL);
    sl_store_posix_force_threads(threads);
}

int main(void)
{
#define BOTH(name)                                                                                 \
    {#name " (io_uring)", name, setup_uring, teardown, NULL},                                      \
    {                                                                                              \
#name " (thread)", name, setup_thread, teardown, NULL                                      \
    }
    const struct CMUnitTest tests[] = {
        BOTH(queue__writes_and_reads),
        BOTH(queue__full__busy),
        BOTH(queue__polls_readable_until_all_is_reaped),
        BOTH(queue__errors_are_told_each),
        BOTH(queue__direct_write_refused__buffered),
        BOTH(queue__direct_read_refused__buffered),
        BOTH(queue__freed_with_work_in_flight__waits),
        BOTH(transfer__short_counts__continued),
        BOTH(queue_new__each_fault__clean),
    };
    if (!uring_works())
        fprintf(stderr, "NO IO_URING HERE: the helper thread is tested twice instead\n");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
