/* Torture: the power cut before every step, every store call failed, every allocation failed. What
 * was acknowledged is there and whole; nothing is there half; nothing leaks. And the test is
 * tested: a store that leaves one sync out must lose something here. */
#include "tests/unit/core/repo/repo_support.h"

#include "core/base/fault.h"

#define ITEMS 5

static const char *const names[ITEMS] = {"main/wal/1", "main/wal/2", "main/wal/1", "main/x/y/3",
                                         "main/wal/4"};
static const uint32_t contents[ITEMS] = {1, 2, 1, 3, 4};
static const size_t lengths[ITEMS] = {5000, 1, 5000, SL_BLOCK_BYTES + 3, 0};

/* How many of them are written; fewer where each costs much. */
static int items = ITEMS;

/* What a writer does. `acked[i]` is set when item i was answered with success. */
static void write_all(struct sl_store *store, bool *acked, struct sl_err *err)
{
    struct world w = {.store = store};
    int rc = sl_repo_open(store, true, &w.repo, err);
    for (int i = 0; rc == 0 && i < items; i++) {
        int put_rc = put(&w, names[i], lengths[i], contents[i], NULL, err);
        acked[i] = put_rc == 0;
        if (put_rc)
            assert_int_equal(err->code, put_rc);
    }
    if (rc == 0)
        sl_repo_close(w.repo);
    else
        assert_int_equal(err->code, rc);
}

/* All that was acknowledged is there, and all that is there is whole. Returns what was lost. */
static unsigned losses(struct sl_store *store, const bool *acked)
{
    struct world w = {.store = store};
    struct sl_err err = {0};
    bool any = false;
    unsigned lost = 0;
    for (int i = 0; i < ITEMS; i++)
        any |= acked[i];
    int rc = sl_repo_open(store, !any, &w.repo, &err);
    if (rc)
        return 1;
    for (int i = 0; i < ITEMS; i++) {
        char *got;
        size_t count;
        rc = sl_repo_fetch(w.repo, names[i], 8u << 20, &got, &count, &err);
        if (rc == 0) {
            uint8_t *right = content_new(lengths[i], contents[i]);
            lost += count != lengths[i] || memcmp(got, right, count) != 0;
            free(right);
            sl_free(got);
        } else {
            lost += acked[i] || rc != SL_ERR_NOT_FOUND;
        }
    }
    struct sl_repo_verify v = {0};
    assert_int_equal(sl_repo_verify(w.repo, "", &v, &err), 0);
    lost += v.damaged > 0;
    sl_repo_close(w.repo);
    return lost;
}

/* Cut before step 1, 2, … of the whole writing. */
static unsigned cut_everywhere(enum memory_store_cripple cripple, unsigned *ret_cuts)
{
    unsigned lost = 0;
    for (uint64_t n = 1;; n++) {
        struct sl_store *store = sl_memory_store_new();
        bool acked[ITEMS] = {0};
        struct sl_err err = {0};
        sl_memory_store_cripple(store, cripple);
        sl_memory_store_cut(store, n);
        write_all(store, acked, &err);
        bool untouched = !sl_memory_store_is_cut(store);
        sl_memory_store_reboot(store);
        lost += losses(store, acked);
        store->ops->free(store);
        if (untouched) {
            for (int i = 0; i < ITEMS; i++)
                assert_true(acked[i]);
            *ret_cuts = (unsigned)n - 1;
            return lost;
        }
    }
}

static void power_cut__at_every_step__loses_nothing_acknowledged(void **state)
{
    (void)state;
    unsigned cuts;
    assert_int_equal(cut_everywhere(MEMORY_STORE_SOUND, &cuts), 0);
    assert_true(cuts > 40);
}

static void power_cut__without_one_sync__is_noticed(void **state)
{
    (void)state;
    unsigned cuts;
    assert_true(cut_everywhere(MEMORY_STORE_NO_FILE_SYNC, &cuts) > 0);
    assert_true(cut_everywhere(MEMORY_STORE_NO_FOLDER_SYNC, &cuts) > 0);
}

/* Another writer linked an object, or repo.json, and has synced neither file nor folder. Whoever
 * answers "identical", or writes under that repo.json, answers for it. */
static unsigned lost_of_unsynced(enum memory_store_cripple cripple, const char *unsynced)
{
    unsigned lost = 0;
    for (uint64_t n = 1;; n++) {
        struct sl_store *store = sl_memory_store_new();
        bool acked[ITEMS] = {0};
        struct sl_err err = {0};
        struct world w = {.store = store};
        assert_int_equal(sl_repo_open(store, true, &w.repo, NULL), 0);
        put_ok(&w, names[0], lengths[0], contents[0]);
        size_t count;
        uint8_t *file = file_get(&w, unsynced, &count);
        sl_repo_close(w.repo);
        file_remove(&w, unsynced);
        sl_memory_store_put_unsynced(store, unsynced, file, count);
        free(file);
        if (strcmp(unsynced, "repo.json") == 0)
            file_remove(&w, names[0]);
        sl_memory_store_reset_steps(store);
        sl_memory_store_cripple(store, cripple);
        sl_memory_store_cut(store, n);
        write_all(store, acked, &err);
        bool untouched = !sl_memory_store_is_cut(store);
        sl_memory_store_reboot(store);
        sl_memory_store_cripple(store, MEMORY_STORE_SOUND);
        bool any = false;
        for (int i = 0; i < ITEMS; i++)
            any |= acked[i];
        /* an object without repo.json is what nobody was told of: not the case to look at here */
        if (any)
            lost += losses(store, acked);
        store->ops->free(store);
        if (untouched)
            return lost;
    }
}

static void power_cut__after_anothers_link__loses_nothing_answered_for(void **state)
{
    (void)state;
    assert_int_equal(lost_of_unsynced(MEMORY_STORE_SOUND, names[0]), 0);
    assert_int_equal(lost_of_unsynced(MEMORY_STORE_SOUND, "repo.json"), 0);
    assert_true(lost_of_unsynced(MEMORY_STORE_NO_SETTLE, names[0]) > 0);
    assert_true(lost_of_unsynced(MEMORY_STORE_NO_SETTLE, "repo.json") > 0);
}

/* Every call of the store fails once: the item says so, the next ones go on or are refused, and a
 * later try completes. */
static void store_call__each_failed_in_turn__is_said_and_heals(void **state)
{
    (void)state;
    static const int codes[] = {SL_ERR_FULL, SL_ERR_WRITE, SL_ERR_READ};
    for (uint64_t n = 1;; n++) {
        struct sl_store *store = sl_memory_store_new();
        bool acked[ITEMS] = {0};
        struct sl_err err = {0};
        sl_memory_store_fail(store, n, codes[n % 3]);
        write_all(store, acked, &err);
        bool untouched = sl_memory_store_steps(store) < n;
        assert_int_equal(err.code == 0, untouched);
        store->poisoned = false; /* as if opened again */
        sl_memory_store_reset_steps(store);
        assert_int_equal(losses(store, acked), 0);
        memset(acked, 0, sizeof acked);
        write_all(store, acked, &err);
        for (int i = 0; i < ITEMS; i++)
            assert_true(acked[i]);
        sl_memory_store_reboot(store);
        assert_int_equal(losses(store, acked), 0);
        store->ops->free(store);
        if (untouched) {
            assert_true(n > 40);
            return;
        }
    }
}

/* The reading side: open, fetch, stat, verify with each call failed. Verify calls it damage of the
 * object, or fails; it never says that all is well with fewer objects. */
static void reading__each_call_failed_in_turn__is_never_silent(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < ITEMS; i++)
        put(w, names[i], lengths[i], contents[i], NULL, NULL);
    for (uint64_t n = 1;; n++) {
        struct sl_repo_verify v = {0};
        struct sl_err err = {0};
        struct sl_repo *repo = NULL;
        sl_memory_store_reset_steps(w->store);
        sl_memory_store_fail(w->store, n, SL_ERR_READ);
        int rc = sl_repo_open(w->store, false, &repo, &err);
        if (rc == 0)
            rc = sl_repo_verify(repo, "", &v, &err);
        bool untouched = sl_memory_store_steps(w->store) < n;
        sl_repo_close(repo);
        if (untouched) {
            assert_true(rc == 0 && v.damaged == 0 && v.objects == ITEMS);
            break;
        }
        assert_true(rc == SL_ERR_READ || (rc == 0 && v.damaged == 1 && v.objects == ITEMS));
    }
    for (uint64_t n = 1;; n++) {
        struct sl_err err = {0};
        char *got = NULL;
        size_t count;
        sl_memory_store_reset_steps(w->store);
        sl_memory_store_fail(w->store, n, SL_ERR_READ);
        int rc = sl_repo_fetch(w->repo, names[3], 8u << 20, &got, &count, &err);
        bool untouched = sl_memory_store_steps(w->store) < n;
        assert_int_equal(rc, untouched ? 0 : SL_ERR_READ);
        sl_free(got);
        if (untouched)
            break;
    }
    sl_memory_store_reset_steps(w->store);
}

static void allocation__each_failed_in_turn__is_said(void **state)
{
    (void)state;
    for (unsigned n = 1;; n++) {
        struct sl_store *store = sl_memory_store_new();
        bool acked[ITEMS] = {0};
        struct sl_err err = {0};
        struct sl_repo *repo = NULL;
        struct sl_repo_verify v = {0};
        char rule[32];
        snprintf(rule, sizeof rule, "alloc:ENOMEM@%u", n);
        assert_int_equal(sl_fault_set(rule), 0);
        write_all(store, acked, &err);
        int rc = sl_repo_open(store, true, &repo, &err);
        if (rc == 0)
            rc = sl_repo_verify(repo, "", &v, &err);
        bool untouched = n > sl_fault_passed();
        sl_fault_set(NULL);
        sl_repo_close(repo);
        assert_int_equal(v.damaged, 0); /* no memory is not damage */
        assert_true(rc == 0 || rc == SL_ERR_NO_MEMORY);
        assert_true(err.code == (untouched ? 0 : SL_ERR_NO_MEMORY));
        assert_int_equal(losses(store, acked), 0);
        store->ops->free(store);
        if (untouched) {
            assert_true(n > 50);
            return;
        }
    }
}

/* The same on posix, with every fault point in turn. */
static void posix__each_fault_in_turn__loses_nothing_acknowledged(void **state)
{
    struct world *w = *state;
    sl_repo_close(w->repo);
    items = 3;
    for (unsigned n = 1;; n++) {
        char rule[32], folder[200];
        bool acked[ITEMS] = {0};
        struct sl_err err = {0};
        w->store->ops->free(w->store);
        snprintf(folder, sizeof folder, "%s/%u", w->folder, n);
        assert_int_equal(sl_store_posix_open(folder, true, &w->store, NULL), 0);
        snprintf(rule, sizeof rule, "*:EIO@%u", n);
        assert_int_equal(sl_fault_set(rule), 0);
        write_all(w->store, acked, &err);
        bool untouched = n > sl_fault_passed();
        sl_fault_set(NULL);
        w->store->ops->free(w->store);
        assert_int_equal(sl_store_posix_open(folder, true, &w->store, NULL), 0);
        assert_int_equal(losses(w->store, acked), 0);
        if (untouched) {
            for (int i = 0; i < items; i++)
                assert_true(acked[i]);
            break;
        }
    }
    items = ITEMS;
    assert_int_equal(sl_repo_open(w->store, true, &w->repo, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(power_cut__at_every_step__loses_nothing_acknowledged),
        cmocka_unit_test(power_cut__without_one_sync__is_noticed),
        cmocka_unit_test(power_cut__after_anothers_link__loses_nothing_answered_for),
        cmocka_unit_test(store_call__each_failed_in_turn__is_said_and_heals),
        cmocka_unit_test_setup_teardown(reading__each_call_failed_in_turn__is_never_silent,
                                        setup_memory, teardown),
        cmocka_unit_test(allocation__each_failed_in_turn__is_said),
        cmocka_unit_test_setup_teardown(posix__each_fault_in_turn__loses_nothing_acknowledged,
                                        setup_posix_tmpfs, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
