/* Publication and settling: what is synced, in which order, and what every failure leaves. A rule
 * "POINT:EIO@K" that does not strike proves that POINT was passed fewer than K times. */
#include "store_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIXTEEN 16

/* Publish drafts of these names in one batch; results stay in `items`, files are closed. */
static int publish_all(struct sl_store *store, struct sl_publish *items, size_t count)
{
    for (size_t i = 0; i < count; i++)
        items[i].file = draft(store, items[i].name);
    int rc = store->ops->publish(store, items, count);
    for (size_t i = 0; i < count; i++)
        store->ops->close(items[i].file);
    return rc;
}

static void publish__batch__all_created(void **state)
{
    struct store_fixture *f = *state;
    char names[100][32];
    struct sl_publish items[100];
    for (int i = 0; i < 100; i++) { /* more than the sync ring is deep */
        snprintf(names[i], sizeof names[i], "s%d/x%02d", i % 3, i);
        items[i] = (struct sl_publish){.name = names[i]};
    }
    assert_code(publish_all(f->store, items, 100), 0);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(items[i].result, SL_PUBLISH_CREATED);
        assert_code(compare(f->store, names[i], names[i]), 0);
    }
    assert_code(f->store->ops->publish(f->store, NULL, 0), 0);
}

static void publish__name_taken__told_and_left_alone(void **state)
{
    struct store_fixture *f = *state;
    assert_int_equal(put(f->store, "s/x", "first", NULL), SL_PUBLISH_CREATED);
    assert_int_equal(put(f->store, "s/x", "second", NULL), SL_PUBLISH_TAKEN);
    assert_code(compare(f->store, "s/x", "first"), 0);
    assert_int_equal(put(f->store, "s", "x", NULL), SL_PUBLISH_TAKEN); /* by a folder */
    struct sl_err err = {0};
    assert_int_equal(put(f->store, "s/x/y", "x", &err), SL_PUBLISH_FAILED);
    assert_non_null(strstr(err.msg, "s/x"));
}

static void publish__one_name_twice_in_a_batch__one_wins(void **state)
{
    struct store_fixture *f = *state;
    struct sl_publish items[] = {{.name = "s/x"}, {.name = "s/x"}};
    assert_code(publish_all(f->store, items, 2), 0);
    assert_int_equal(items[0].result, SL_PUBLISH_CREATED);
    assert_int_equal(items[1].result, SL_PUBLISH_TAKEN);
}

/* NFS carries a link out, loses the answer and asks again. */
static void publish__own_inode_under_the_name__ours(void **state)
{
    struct store_fixture *f = *state;
    char from[64], to[160];
    for (int named = 0; named < 2; named++) {
        sl_fault_set(named ? "posix.tmpfile:EOPNOTSUPP" : NULL);
        snprintf(to, sizeof to, "%s/x%d", f->path, named);
        struct sl_publish item = {.file = draft(f->store, "x"), .name = strrchr(to, '/') + 1};
        snprintf(from, sizeof from, "/proc/self/fd/%d", sl_posix_file_of(item.file)->fd);
        assert_int_equal(linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW), 0);
        assert_code(f->store->ops->publish(f->store, &item, 1), 0);
        assert_int_equal(item.result, SL_PUBLISH_CREATED);
        f->store->ops->close(item.file);
        assert_int_equal(temporaries(f), 0);
    }
}

static void publish__bad_names__refused_others_go_on(void **state)
{
    struct store_fixture *f = *state;
    struct sl_publish items[] = {{.name = "../x"}, {.name = "s/x"}, {.name = ""}};
    assert_code(publish_all(f->store, items, 3), SL_ERR_USAGE);
    assert_int_equal(items[0].result, SL_PUBLISH_FAILED);
    assert_code(items[0].err.code, SL_ERR_USAGE);
    assert_int_equal(items[1].result, SL_PUBLISH_CREATED);
    assert_code(items[2].err.code, SL_ERR_USAGE);
}

static void publish__a_file_once_only(void **state)
{
    struct store_fixture *f = *state;
    struct sl_publish item = {.file = draft(f->store, "x"), .name = "a"};
    assert_code(f->store->ops->publish(f->store, &item, 1), 0);
    item.name = "b";
    assert_code(f->store->ops->publish(f->store, &item, 1), SL_ERR_INTERNAL);
    f->store->ops->close(item.file);
    assert_string_equal(listing(f->store, ""), "a=1");
}

/* --- syncs --------------------------------------------------------------------------------------
 */

static void publish__each_file_is_synced__failure_is_its_own(void **state)
{
    struct store_fixture *f = *state;
    struct sl_publish items[] = {{.name = "s/a"}, {.name = "s/b"}, {.name = "s/c"}};
    for (int threads = 0; threads < 2; threads++) {
        sl_store_posix_force_threads(threads);
        fixture_reopen(f);
        for (int i = 0; i < 3; i++)
            f->store->ops->remove(f->store, items[i].name, NULL);
        for (int i = 0; i < 3; i++)
            items[i].file = draft(f->store, "x");
        sl_fault_set("posix.fdatasync:EIO@2,posix.fdatasync:EIO@4+");
        assert_code(f->store->ops->publish(f->store, items, 3), SL_ERR_SYNC);
        assert_int_equal(items[0].result, SL_PUBLISH_CREATED);
        assert_int_equal(items[1].result, SL_PUBLISH_FAILED);
        assert_int_equal(items[1].err.sys, EIO);
        assert_int_equal(items[2].result, SL_PUBLISH_CREATED);
        assert_string_equal(listing(f->store, "s"), "a=1 c=1");
        /* worthless: a second sync would succeed, and lie */
        sl_fault_set(NULL);
        assert_code(f->store->ops->publish(f->store, &items[1], 1), SL_ERR_INTERNAL);
        assert_string_equal(listing(f->store, "s"), "a=1 c=1");
        for (int i = 0; i < 3; i++)
            f->store->ops->close(items[i].file);
        assert_false(sl_store_poisoned(f->store));
        assert_int_equal(put(f->store, "s/b", "again", NULL), SL_PUBLISH_CREATED);
    }
}

static void publish__each_folder_is_synced_once(void **state)
{
    struct store_fixture *f = *state;
    struct sl_publish one[] = {{.name = "s/a"}, {.name = "s/b"}, {.name = "s/c"}};
    sl_fault_set("posix.syncdir:EIO@2");
    assert_code(publish_all(f->store, one, 3), 0);
    struct sl_publish two[] = {{.name = "s/d"}, {.name = "t/d"}, {.name = "s/e"}};
    assert_code(publish_all(f->store, two, 3), SL_ERR_SYNC); /* the second passing: s */
    assert_true(sl_store_poisoned(f->store));
    /* nothing of the failed folder, nor of those after it, is said to be there */
    for (int i = 0; i < 3; i++)
        assert_int_equal(two[i].result, SL_PUBLISH_FAILED);
    assert_int_equal(two[0].err.sys, EIO);
    assert_code(two[1].err.code, SL_ERR_SYNC);

    fixture_reopen(f);
    struct sl_publish three[] = {{.name = "s/f"}, {.name = "t/f"}};
    sl_fault_set("posix.syncdir:EIO@2");
    assert_code(publish_all(f->store, three, 2), SL_ERR_SYNC);
    assert_int_equal(three[0].result, SL_PUBLISH_CREATED); /* durable before the failure */
    assert_int_equal(three[1].result, SL_PUBLISH_FAILED);
}

/* How often `point` is passed when this name is published. */
static unsigned passes(struct sl_store *store, const char *point, const char *name)
{
    for (unsigned n = 1;; n++) {
        char rule[64], again[64];
        snprintf(rule, sizeof rule, "%s:EIO@%u", point, n);
        snprintf(again, sizeof again, "%s-%u", name, n);
        sl_fault_set(rule);
        enum sl_publish_result result = put(store, again, "x", NULL);
        sl_fault_set(NULL);
        if (result == SL_PUBLISH_CREATED)
            return n - 1;
        __atomic_store_n(&store->poisoned, false, __ATOMIC_RELEASE);
    }
}

/* Does publishing this name sync `expect` parents, no more and no fewer? */
static bool syncs_parents(struct sl_store *store, const char *name, unsigned expect)
{
    char rule[64];
    snprintf(rule, sizeof rule, "posix.syncparent:EIO@%u", expect + 1);
    sl_fault_set(rule);
    enum sl_publish_result result = put(store, name, "x", NULL);
    /* no more: it was created; no fewer: the very next passing is the one that fails */
    bool fine = result == SL_PUBLISH_CREATED;
    unsigned left = 0;
    while (fine && sl_fault("posix.syncparent") == 0)
        left++;
    sl_fault_set(NULL);
    return fine && left == 0;
}

static void publish__parents_are_synced_until_known(void **state)
{
    struct store_fixture *f = *state;
    char path[160];
    assert_true(syncs_parents(f->store, "x", 1)); /* in the root: the one above it */
    assert_true(syncs_parents(f->store, "y", 0));
    assert_true(syncs_parents(f->store, "a/b/c/x", 3));
    assert_true(syncs_parents(f->store, "a/b/c/y", 0));
    assert_true(syncs_parents(f->store, "a/b/x", 0));
    assert_true(syncs_parents(f->store, "a/b/d/x", 1));
    assert_int_equal(passes(f->store, "posix.syncdir", "a/b/z"), 1);
    /* made by another writer, who may not have synced it */
    snprintf(path, sizeof path, "%s/a/e", f->path);
    assert_int_equal(mkdir(path, 0750), 0);
    assert_true(syncs_parents(f->store, "a/e/x", 1));
    /* removed and made again, by another: its entry is a new one */
    assert_code(f->store->ops->remove(f->store, "a/e/x", NULL), 0);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkdir(path, 0750), 0);
    assert_true(syncs_parents(f->store, "a/e/x", 1));
    /* a new process knows nothing */
    fixture_reopen(f);
    assert_true(syncs_parents(f->store, "a/b/c/v", 4));
}

static void publish__parent_sync_fails__poisoned(void **state)
{
    struct store_fixture *f = *state;
    struct sl_err err;
    sl_fault_set("posix.syncparent:EIO@2");
    assert_int_equal(put(f->store, "a/b/x", "x", &err), SL_PUBLISH_FAILED);
    assert_code(err.code, SL_ERR_SYNC);
    assert_true(sl_store_poisoned(f->store));
}

static void publish__file_system_cannot_sync_folders__hint(void **state)
{
    struct store_fixture *f = *state;
    struct sl_err err;
    sl_fault_set("posix.syncdir:EINVAL");
    assert_int_equal(put(f->store, "a/x", "x", &err), SL_PUBLISH_FAILED);
    assert_non_null(strstr(err.hint, "use another"));
}

/* For the crippled builds of the power-cut tests: `skip` leaves the sync out and says nothing. */
static void publish__skipped_syncs__pretend(void **state)
{
    struct store_fixture *f = *state;
    sl_fault_set("posix.fdatasync:skip@1+,posix.syncdir:skip@1+,posix.syncparent:skip@1+,"
                 "posix.settle_file:skip@1+,posix.settle_dir:skip@1+");
    struct sl_publish items[] = {{.name = "s/a"}, {.name = "s/b"}};
    assert_code(publish_all(f->store, items, 2), 0);
    assert_code(f->store->ops->settle(f->store, "s/a", NULL), 0);
    assert_code(compare(f->store, "s/b", "s/b"), 0);
}

/* --- poisoned -----------------------------------------------------------------------------------
 */

static void poisoned__every_change_refused__reading_goes_on(void **state)
{
    struct store_fixture *f = *state;
    const struct sl_store_ops *ops = f->store->ops;
    struct sl_store_queue *queue;
    struct sl_err err;
    put(f->store, "s/x", "x", NULL);
    struct sl_file *file = draft(f->store, "x"), *none;
    struct sl_publish item = {.file = file, .name = "s/z"};
    assert_code(ops->queue_new(f->store, 4, &queue, NULL), 0);
    sl_fault_set("posix.syncdir:EIO");
    assert_int_equal(put(f->store, "s/y", "y", NULL), SL_PUBLISH_FAILED);
    assert_code(ops->create(f->store, "x", 0, &none, &err), SL_ERR_SYNC);
    assert_non_null(strstr(err.msg, "refuses writes"));
    assert_string_not_equal(err.hint, "");
    assert_code(ops->write(file, "x", 1, 0, NULL), SL_ERR_SYNC);
    assert_code(ops->truncate(file, 0, NULL), SL_ERR_SYNC);
    assert_code(ops->queue_write(queue, file, "x", 1, 0, 0), SL_ERR_SYNC);
    assert_code(ops->publish(f->store, &item, 1), SL_ERR_SYNC);
    assert_code(ops->settle(f->store, "s/y", NULL), SL_ERR_SYNC);
    assert_code(ops->remove(f->store, "s/y", NULL), SL_ERR_SYNC);
    uint64_t removed;
    assert_code(ops->sweep(f->store, 0, &removed, NULL), SL_ERR_SYNC);
    assert_code(compare(f->store, "s/x", "x"), 0);
    ops->queue_free(queue);
    ops->close(file);
    fixture_reopen(f);
    assert_int_equal(put(f->store, "s/y", "y", NULL), SL_PUBLISH_TAKEN);
    assert_code(f->store->ops->settle(f->store, "s/y", NULL), 0);
}

/* --- settle -------------------------------------------------------------------------------------
 */

static void settle__syncs_file_folder_and_parents(void **state)
{
    struct store_fixture *f = *state;
    const struct sl_store_ops *ops = f->store->ops;
    assert_code(ops->settle(f->store, "a/b/x", NULL), SL_ERR_NOT_FOUND);
    assert_code(ops->settle(f->store, "../x", NULL), SL_ERR_USAGE);
    put(f->store, "a/b/x", "x", NULL);
    static const char *const points[] = {"posix.settle_file", "posix.settle_dir",
                                         "posix.syncparent"};
    for (size_t i = 0; i < 3; i++) {
        struct sl_err err;
        char rule[64];
        fixture_reopen(f); /* knows no folder */
        snprintf(rule, sizeof rule, "%s:EIO", points[i]);
        sl_fault_set(rule);
        assert_code(f->store->ops->settle(f->store, "a/b/x", &err), SL_ERR_SYNC);
        assert_int_equal(err.sys, EIO);
        assert_true(sl_store_poisoned(f->store)); /* asked again it would lie */
    }
    fixture_reopen(f);
    sl_fault_set("posix.syncparent:EIO@4"); /* the root, a and b */
    assert_code(f->store->ops->settle(f->store, "a/b/x", NULL), 0);
    sl_fault_set("posix.syncparent:EIO");
    assert_code(f->store->ops->settle(f->store, "a/b/x", NULL), 0);
}

/* --- folders that vanish -------------------------------------------------------------------------
 */

static void publish__folder_removed_meanwhile__made_again(void **state)
{
    struct store_fixture *f = *state;
    for (unsigned i = 0; i < 200; i++) {
        char name[32], path[160];
        snprintf(name, sizeof name, "v/%u", i);
        snprintf(path, sizeof path, "%s/v", f->path);
        pid_t remover = fork();
        if (!remover) {
            for (int k = 0; k < 90; k++) /* fewer than the store's own tries: it must win */
                rmdir(path);
            _exit(0);
        }
        struct sl_err err = {0};
        if (put(f->store, name, "x", &err) != SL_PUBLISH_CREATED)
            fail_msg("%s", err.msg);
        waitpid(remover, NULL, 0);
        assert_code(compare(f->store, name, "x"), 0);
        assert_code(f->store->ops->remove(f->store, name, NULL), 0);
        f->store->ops->remove(f->store, "v", NULL);
    }
}

/* --- torture ------------------------------------------------------------------------------------
 */

static int count_name(void *arg, const char *name, bool is_folder, uint64_t length)
{
    (void)name, (void)is_folder, (void)length;
    ++*(unsigned *)arg;
    return 0;
}

struct promises {
    bool x, y, settled;
};

/* The whole life of two files. Returns 0 when nothing failed; says what was promised. */
static int scenario(const char *path, struct promises *promised)
{
    struct sl_store *store;
    struct sl_publish items[2] = {{.name = "t/n/x"}, {.name = "t/y"}};
    int rc = sl_store_posix_open(path, true, &store, NULL), failed = rc;
    if (rc)
        return rc;
    const struct sl_store_ops *ops = store->ops;
    for (int i = 0; i < 2 && !rc; i++) {
        rc = ops->create(store, items[i].name, 0, &items[i].file, NULL);
        if (!rc)
            rc = ops->write(items[i].file, "0123456789abcdef", SIXTEEN, 0, NULL);
        if (!rc)
            rc = ops->truncate(items[i].file, SIXTEEN, NULL);
    }
    if (!rc) {
        failed |= ops->publish(store, items, 2);
        promised->x = items[0].result == SL_PUBLISH_CREATED;
        promised->y = items[1].result == SL_PUBLISH_CREATED;
        for (int i = 0; i < 2; i++)
            assert_true((items[i].result == SL_PUBLISH_FAILED) == (items[i].err.code != 0));
    }
    failed |= rc;
    for (int i = 0; i < 2; i++)
        ops->close(items[i].file);
    rc = ops->settle(store, "t/y", NULL);
    promised->settled = !rc;
    failed |= rc;
    uint64_t length, total;
    struct sl_file *file;
    rc = ops->open(store, "t/y", &file, &length, NULL);
    if (!rc) {
        char bytes[SIXTEEN];
        failed |= ops->read(file, bytes, SIXTEEN, 0, NULL);
        failed |= ops->has_data(file, 0, SIXTEEN, NULL) < 0;
        ops->close(file);
    }
    failed |= rc;
    unsigned names = 0;
    failed |= ops->list(store, "t", count_name, &names, NULL);
    failed |= ops->space(store, &length, &total, NULL);
    failed |= ops->sweep(store, SL_NS_PER_S, &length, NULL);
    ops->free(store);
    return failed;
}

/* Whatever failed: names are whole or absent, promises are kept, and doing it again ends well. */
static void check_after(struct store_fixture *f, const struct promises *promised)
{
    static const char text[] = "0123456789abcdef";
    fixture_reopen(f);
    int x = compare(f->store, "r/t/n/x", text), y = compare(f->store, "r/t/y", text);
    assert_true(x == 0 || (x == SL_ERR_NOT_FOUND && !promised->x));
    assert_true(y == 0 || (y == SL_ERR_NOT_FOUND && !promised->y && !promised->settled));
    enum sl_publish_result again = put(f->store, "r/t/n/x", text, NULL);
    assert_int_equal(again, x == 0 ? SL_PUBLISH_TAKEN : SL_PUBLISH_CREATED);
    assert_code(f->store->ops->settle(f->store, "r/t/n/x", NULL), 0);
    static const char *const names[] = {"r/t/n/x", "r/t/n", "r/t/y", "r/t"};
    for (size_t i = 0; i < 4; i++)
        assert_code(f->store->ops->remove(f->store, names[i], NULL), 0);
    assert_string_equal(listing(f->store, "r"), "");
}

static void torture(struct store_fixture *f, const char *rule, const char *also)
{
    char path[160];
    snprintf(path, sizeof path, "%s/r", f->path);
    for (unsigned n = 1;; n++) {
        char rules[128];
        struct promises promised = {0};
        snprintf(rules, sizeof rules, "%s@%u%s", rule, n, also);
        sl_fault_set(rules);
        int rc = scenario(path, &promised);
        bool passed_all = sl_fault_passed() < n;
        sl_fault_set(NULL);
        check_after(f, &promised);
        if (passed_all) {
            assert_int_equal(rc, 0);
            assert_true(n > 10);
            return;
        }
    }
}

static void torture__every_call_fails_in_turn(void **state)
{
    static const char *const rules[] = {"*:EIO", "*:ENOSPC", "*:ENOMEM", "*:EINVAL", "*:EINTR"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        torture(*state, rules[i], "");
        torture(*state, rules[i], ",posix.tmpfile:EOPNOTSUPP@1+");
    }
    torture(*state, "*:EIO", ",posix.uring:ENOSYS@1+");
}

static void torture__killed_at_every_call(void **state)
{
    struct store_fixture *f = *state;
    char path[160];
    snprintf(path, sizeof path, "%s/r", f->path);
    struct promises *promised =
        mmap(NULL, sizeof *promised, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int named = 0; named < 2; named++)
        for (unsigned n = 1;; n++) {
            int status;
            memset(promised, 0, sizeof *promised);
            pid_t child = fork();
            if (!child) {
                char rules[128];
                snprintf(rules, sizeof rules, "*:kill@%u%s", n,
                         named ? ",posix.tmpfile:EOPNOTSUPP@1+" : "");
                sl_fault_set(rules);
                _exit(scenario(path, promised) != 0);
            }
            assert_int_equal(waitpid(child, &status, 0), child);
            check_after(f, promised);
            if (WIFEXITED(status)) {
                assert_int_equal(WEXITSTATUS(status), 0);
                assert_true(n > 10);
                break;
            }
            assert_int_equal(WTERMSIG(status), SIGKILL);
        }
    munmap(promised, sizeof *promised);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
#define IN_MEMORY(name)                                                                            \
    cmocka_unit_test_setup_teardown(name, fixture_setup_in_memory, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(publish__batch__all_created),
        TEST(publish__name_taken__told_and_left_alone),
        TEST(publish__one_name_twice_in_a_batch__one_wins),
        TEST(publish__own_inode_under_the_name__ours),
        TEST(publish__bad_names__refused_others_go_on),
        TEST(publish__a_file_once_only),
        TEST(publish__each_file_is_synced__failure_is_its_own),
        TEST(publish__each_folder_is_synced_once),
        TEST(publish__parents_are_synced_until_known),
        TEST(publish__parent_sync_fails__poisoned),
        TEST(publish__file_system_cannot_sync_folders__hint),
        TEST(publish__skipped_syncs__pretend),
        TEST(poisoned__every_change_refused__reading_goes_on),
        TEST(settle__syncs_file_folder_and_parents),
        IN_MEMORY(publish__folder_removed_meanwhile__made_again),
        IN_MEMORY(torture__every_call_fails_in_turn),
        IN_MEMORY(torture__killed_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
