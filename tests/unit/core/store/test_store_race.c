/* Two writers, one name, a thousand times: in threads on one store, in threads on a store each, in
 * processes. Exactly one creates, the other finds it taken and settles it; the content is whole and
 * the creator's. */
#include "store_fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define WRITERS 2
#define ROUNDS  1000

struct shared {
    pthread_barrier_t start;
    unsigned rounds;
    unsigned char result[WRITERS][ROUNDS]; /* enum sl_publish_result */
    int settled[WRITERS][ROUNDS];
};

struct writer {
    struct shared *shared;
    struct sl_store *store;
    unsigned number;
};

static void name_of(unsigned round, char name[32])
{
    /* a new folder now and then: that, too, is raced for */
    snprintf(name, 32, "s/%u/%u", round / 10, round);
}

static void text_of(unsigned round, unsigned writer, char text[64])
{
    snprintf(text, 64, "round %u by writer %u", round, writer);
}

static void *write_all(void *arg)
{
    const struct writer *w = arg;
    struct shared *shared = w->shared;
    const struct sl_store_ops *ops = w->store->ops;
    for (unsigned i = 0; i < shared->rounds; i++) {
        char name[32], text[64];
        name_of(i, name);
        text_of(i, w->number, text);
        struct sl_publish item = {.name = name};
        bool ready = ops->create(w->store, name, 0, &item.file, NULL) == 0 &&
                     ops->write(item.file, text, strlen(text), 0, NULL) == 0;
        pthread_barrier_wait(&shared->start);
        if (!ready)
            continue;
        ops->publish(w->store, &item, 1);
        shared->result[w->number][i] = (unsigned char)item.result;
        if (item.result == SL_PUBLISH_TAKEN)
            shared->settled[w->number][i] = ops->settle(w->store, name, NULL);
        ops->close(item.file);
    }
    return NULL;
}

static struct shared *shared_new(unsigned rounds)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    pthread_barrierattr_t attr;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->start, &attr, WRITERS);
    pthread_barrierattr_destroy(&attr);
    shared->rounds = rounds;
    memset(shared->settled, 0xff, sizeof shared->settled);
    return shared;
}

static void judge(struct store_fixture *f, struct shared *shared)
{
    unsigned wins[WRITERS] = {0};
    for (unsigned i = 0; i < shared->rounds; i++) {
        unsigned created = 0, creator = 0;
        char name[32], text[64];
        for (unsigned w = 0; w < WRITERS; w++) {
            if (shared->result[w][i] == SL_PUBLISH_CREATED) {
                created++;
                creator = w;
                wins[w]++;
            } else {
                assert_int_equal(shared->result[w][i], SL_PUBLISH_TAKEN);
                assert_int_equal(shared->settled[w][i], 0);
            }
        }
        assert_int_equal(created, 1);
        name_of(i, name);
        text_of(i, creator, text);
        assert_code(compare(f->store, name, text), 0);
    }
    assert_int_equal(temporaries(f), 0);
    print_message("%u rounds: won %u to %u\n", shared->rounds, wins[0], wins[1]);
    munmap(shared, sizeof *shared);
}

static void in_threads(struct store_fixture *f, unsigned rounds, bool own_stores)
{
    struct shared *shared = shared_new(rounds);
    struct writer writers[WRITERS];
    pthread_t threads[WRITERS];
    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.shared = shared, .store = f->store, .number = i};
        if (own_stores)
            assert_code(sl_store_posix_open(f->path, false, &writers[i].store, NULL), 0);
        assert_int_equal(pthread_create(&threads[i], NULL, write_all, &writers[i]), 0);
    }
    for (unsigned i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
        if (own_stores)
            writers[i].store->ops->free(writers[i].store);
    }
    judge(f, shared);
}

static void in_processes(struct store_fixture *f, unsigned rounds)
{
    struct shared *shared = shared_new(rounds);
    pid_t children[WRITERS];
    for (unsigned i = 0; i < WRITERS; i++) {
        children[i] = fork();
        if (!children[i]) {
            struct writer writer = {.shared = shared, .number = i};
            if (sl_store_posix_open(f->path, false, &writer.store, NULL) != 0)
                _exit(1);
            write_all(&writer);
            writer.store->ops->free(writer.store);
            _exit(0);
        }
    }
    for (unsigned i = 0; i < WRITERS; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    judge(f, shared);
}

static void race__threads_of_one_store(void **state)
{
    in_threads(*state, ROUNDS, false);
}

static void race__threads_with_a_store_each(void **state)
{
    in_threads(*state, ROUNDS, true);
}

static void race__processes(void **state)
{
    in_processes(*state, ROUNDS);
}

static void race__processes__named_temporaries(void **state)
{
    sl_fault_set("posix.tmpfile:EOPNOTSUPP@1+");
    in_processes(*state, ROUNDS);
}

/* On a disk, where syncs take their time. */
static void race__on_disk(void **state)
{
    in_threads(*state, 30, false);
    struct store_fixture *other = fixture_open("/tmp");
    in_processes(other, 30);
    fixture_close(other);
}

int main(void)
{
#define IN_MEMORY(name)                                                                            \
    cmocka_unit_test_setup_teardown(name, fixture_setup_in_memory, fixture_teardown)
    const struct CMUnitTest tests[] = {
        IN_MEMORY(race__threads_of_one_store),
        IN_MEMORY(race__threads_with_a_store_each),
        IN_MEMORY(race__processes),
        IN_MEMORY(race__processes__named_temporaries),
        cmocka_unit_test_setup_teardown(race__on_disk, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
