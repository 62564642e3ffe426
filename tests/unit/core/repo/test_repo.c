/* Repositories: opening, publishing, reading, and what becomes of names that are taken. */
#include "tests/unit/core/repo/repo_support.h"

#define NAME "main/wal/1/seg"

/* --- opening --------------------------------------------------------------------------------- */

static void repo_open__again__is_the_same(void **state)
{
    struct world *w = *state;
    for (int create = 0; create < 2; create++) {
        struct sl_repo *again;
        assert_int_equal(sl_repo_open(w->store, create, &again, NULL), 0);
        assert_memory_equal(&again->uuid, &w->repo->uuid, 16);
        assert_true(again->digest_seed == w->repo->digest_seed);
        sl_repo_close(again);
    }
}

static void repo_open__store_of_others__is_refused(void **state)
{
    struct world *w = *state;
    struct sl_repo *repo;
    struct sl_err err;
    file_remove(w, "repo.json");
    assert_int_equal(sl_repo_open(w->store, false, &repo, &err), SL_ERR_NOT_FOUND);
    assert_true(err.hint[0]);
    file_put(w, "holiday/photo.jpg", "x", 1);
    assert_int_equal(sl_repo_open(w->store, true, &repo, &err), SL_ERR_REPO);
    assert_int_equal(sl_repo_open(w->store, false, &repo, &err), SL_ERR_REPO);
    file_remove(w, "holiday/photo.jpg");
    if (w->folder[0])
        file_remove(w, "holiday");
    file_put(w, "lost+found/x", "x", 1);
    assert_int_equal(sl_repo_open(w->store, true, &repo, NULL), 0);
    assert_memory_not_equal(&repo->uuid, &w->repo->uuid, 16);
    sl_repo_close(repo);
}

static void repo_open__json_of_other_kinds__is_refused(void **state)
{
    struct world *w = *state;
    static const struct {
        const char *json;
        int code;
    } cases[] = {
        {"", SL_ERR_FORMAT},
        {"{}", SL_ERR_FORMAT},
        {"{\"version\":2}", SL_ERR_VERSION},
        {"{\"version\":1,\"uuid\":\"x\",\"digest_seed\":\"0000000000000000\"}", SL_ERR_FORMAT},
        {"{\"version\":1,\"uuid\":\"00000000000000000000000000000000\",\"digest_seed\":\"1\"}",
         SL_ERR_FORMAT},
        /* an object of this repository, but the JSON is of another */
        {"{\"version\":1,\"uuid\":\"00000000000000000000000000000000\","
         "\"digest_seed\":\"0000000000000000\"}",
         SL_ERR_REPO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_repo *repo;
        struct sl_err err = {0};
        file_remove(w, "repo.json");
        assert_int_equal(sl_repo_put(w->repo, "repo.json", cases[i].json, strlen(cases[i].json),
                                     NULL, NULL, NULL),
                         0);
        assert_int_equal(sl_repo_open(w->store, true, &repo, &err), cases[i].code);
        assert_non_null(strstr(err.msg, "repo.json"));
    }
}

/* Another creator is faster: its repo.json appears just before ours is written. */
static struct sl_store_ops racing;
static const struct sl_store_ops *sound;

static int racing_create(struct sl_store *store, const char *name_hint, uint64_t length_hint,
                         struct sl_file **ret_file, struct sl_err *err)
{
    struct sl_repo *other;
    store->ops = sound;
    assert_int_equal(sl_repo_open(store, true, &other, NULL), 0);
    sl_repo_close(other);
    return store->ops->create(store, name_hint, length_hint, ret_file, err);
}

static void repo_open__two_creators__use_one(void **state)
{
    struct world *w = *state;
    struct sl_repo *loser, *third;
    file_remove(w, "repo.json");
    sound = w->store->ops;
    racing = *sound;
    racing.create = racing_create;
    w->store->ops = &racing;
    assert_int_equal(sl_repo_open(w->store, true, &loser, NULL), 0);
    assert_ptr_equal(w->store->ops, sound);
    assert_int_equal(sl_repo_open(w->store, false, &third, NULL), 0);
    assert_memory_equal(&loser->uuid, &third->uuid, 16);
    assert_false(loser->settled); /* it did not make it, so it settles it before it writes */
    sl_repo_close(loser);
    sl_repo_close(third);
}

static void repo_name__joins__or_refuses(void **state)
{
    (void)state;
    char full[SL_FULL_NAME_MAX], longest[SL_NAME_MAX + 1];
    assert_int_equal(sl_repo_name("main", "wal/1", false, full, NULL), 0);
    assert_string_equal(full, "main/wal/1");
    assert_int_equal(sl_repo_name("main", "", true, full, NULL), 0);
    assert_string_equal(full, "main");
    static const char *const bad[][2] = {
        {"main", ""},
        {"", "a"},
        {"a/b", "a"},
        {"..", "a"},
        {"main", "../other/x"},
        {"main", "/etc"},
        {"main", "a/"},
        {"repo.json", "a"},
        {"ma in", "a"},
        {"main", ".tmp/x"},
        {"0123456789012345678901234567890123456789012345678901234567890123", "a"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sl_repo_name(bad[i][0], bad[i][1], false, full, NULL), SL_ERR_USAGE);
    memset(longest, 'x', sizeof longest);
    for (size_t i = 200; i < SL_NAME_MAX; i += 200)
        longest[i] = '/';
    longest[SL_NAME_MAX] = '\0';
    assert_int_equal(sl_repo_name("main", longest, false, full, NULL), SL_ERR_USAGE);
    longest[SL_NAME_MAX - 1] = '\0';
    assert_int_equal(sl_repo_name("main", longest, false, full, NULL), 0);
}

/* --- contents -------------------------------------------------------------------------------- */

static void put__contents_of_all_lengths__come_back(void **state)
{
    struct world *w = *state;
    static const size_t lengths[] = {0,
                                     1,
                                     4095,
                                     4096,
                                     4097,
                                     SL_BLOCK_BYTES - 1,
                                     SL_BLOCK_BYTES,
                                     SL_BLOCK_BYTES + 1,
                                     3 * SL_BLOCK_BYTES + 5,
                                     9 * SL_BLOCK_BYTES};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char name[64];
        size_t count;
        snprintf(name, sizeof name, "main/len/%zu", lengths[i]);
        put_ok(w, name, lengths[i], (uint32_t)i);
        expect_content(w, name, lengths[i], (uint32_t)i);
        uint8_t *file = file_get(w, name, &count);
        uint8_t *content = content_new(lengths[i], (uint32_t)i);
        assert_int_equal(count, sl_align_up(lengths[i]) +
                                    sl_align_up(sl_blocks_of(lengths[i]) * 72) + 4096);
        assert_memory_equal(file, content, lengths[i]); /* stored plain: as it was */
        free(file);
        free(content);
    }
}

static void put__zeros__are_holes(void **state)
{
    struct world *w = *state;
    uint8_t *bytes = calloc(1, 5 * SL_BLOCK_BYTES);
    struct found found;
    char *got;
    size_t count;
    bytes[2 * SL_BLOCK_BYTES + 77] = 1;
    for (size_t length = 1; length <= 5 * SL_BLOCK_BYTES; length += SL_BLOCK_BYTES - 1) {
        char name[64];
        snprintf(name, sizeof name, "main/%zu", length);
        assert_int_equal(sl_repo_put(w->repo, name, bytes, length, NULL, NULL, NULL), 0);
        assert_int_equal(sl_repo_fetch(w->repo, name, length, &got, &count, NULL), 0);
        assert_int_equal(count, length);
        assert_memory_equal(got, bytes, length);
        sl_free(got);
    }
    if (w->folder[0]) {
        char path[1024];
        struct stat st;
        path_of(w, "main/4194301", path);
        assert_int_equal(stat(path, &st), 0);
        assert_true(st.st_blocks * 512 < 2 * SL_BLOCK_BYTES);
    }
    verify(w, "", &found, NULL);
    assert_int_equal(found.count, 0);
    if (!w->folder[0]) { /* a store that cannot tell holes: read and find zeros */
        sl_memory_store_no_holes(w->store, true);
        verify(w, "", &found, NULL);
        assert_int_equal(found.count, 0);
    }
    free(bytes);
}

static void fetch__longer_than_asked__is_refused(void **state)
{
    struct world *w = *state;
    char *got;
    size_t count;
    put_ok(w, NAME, 1000, 1);
    assert_int_equal(sl_repo_fetch(w->repo, NAME, 999, &got, &count, NULL), SL_ERR_LIMIT);
    assert_int_equal(sl_repo_fetch(w->repo, "main/none", 999, &got, &count, NULL),
                     SL_ERR_NOT_FOUND);
    assert_int_equal(sl_repo_fetch(w->repo, NAME, 1000, &got, &count, NULL), 0);
    sl_free(got);
}

static void object_block__beyond_the_end__is_refused(void **state)
{
    struct world *w = *state;
    struct sl_object *object;
    size_t count;
    put_ok(w, NAME, SL_BLOCK_BYTES + 10, 1);
    assert_int_equal(sl_object_open(w->repo, NAME, &object, NULL), 0);
    uint8_t *to = sl_pages_alloc(SL_BLOCK_BYTES);
    assert_int_equal(sl_object_block(object, 2, to, &count, NULL), SL_ERR_USAGE);
    assert_int_equal(sl_object_block(object, 1, to, &count, NULL), 0);
    assert_int_equal(count, 10);
    assert_int_equal(sl_object_block_check(object, 1, to, NULL), 0);
    to[9] ^= 1;
    assert_int_equal(sl_object_block_check(object, 1, to, NULL), SL_ERR_CHECKSUM);
    to[9] ^= 1;
    to[10] = 1;
    assert_int_equal(sl_object_block_check(object, 1, to, NULL), SL_ERR_FORMAT);
    sl_pages_free(to, SL_BLOCK_BYTES);
    sl_object_close(object);
}

/* --- names that are taken -------------------------------------------------------------------- */

static void publish__same_again__is_identical(void **state)
{
    struct world *w = *state;
    enum sl_outcome outcome;
    size_t before, after;
    put_ok(w, NAME, 5000, 1);
    uint8_t *first = file_get(w, NAME, &before);
    assert_int_equal(put(w, NAME, 5000, 1, &outcome, NULL), 0);
    assert_int_equal(outcome, SL_STORED_IDENTICAL);
    uint8_t *second = file_get(w, NAME, &after);
    assert_int_equal(before, after);
    assert_memory_equal(first, second, before);
    free(first);
    free(second);
}

static void publish__other_content__is_refused_with_both_digests(void **state)
{
    struct world *w = *state;
    static const size_t lengths[] = {5000, 5001, 0, SL_BLOCK_BYTES * 2};
    put_ok(w, NAME, 5000, 1);
    struct sl_trailer first;
    assert_int_equal(sl_object_stat(w->repo, NAME, &first, NULL), 0);
    for (size_t i = 0; i < 4; i++) {
        struct sl_err err = {0};
        char text[SL_ID_TEXT];
        enum sl_outcome outcome;
        assert_int_equal(put(w, NAME, lengths[i], 2, &outcome, &err), SL_ERR_EXISTS);
        uint8_t *content = content_new(lengths[i], 2);
        assert_non_null(strstr(err.msg, sl_id_text(&first.content_digest, text)));
        assert_non_null(strstr(err.msg, NAME));
        assert_non_null(strstr(err.msg, "\"tester\""));
        if (lengths[i] == 5000) {
            struct sl_id leaf = sl_digest(w->repo->digest_seed, content, 5000);
            struct sl_id second = sl_digest_content(w->repo->digest_seed, &leaf, 1);
            assert_non_null(strstr(err.msg, sl_id_text(&second, text)));
        }
        assert_true(err.hint[0]);
        free(content);
    }
    expect_content(w, NAME, 5000, 1);
}

static struct sl_object_draft *finished(struct world *w, const char *name, uint8_t fill)
{
    struct sl_object_draft *draft;
    uint64_t at;
    uint8_t *page = sl_pages_alloc(4096);
    memset(page, fill, 100);
    struct sl_id leaf = sl_digest(w->repo->digest_seed, page, 100);
    struct sl_id digest = sl_digest_content(w->repo->digest_seed, &leaf, 1);
    struct sl_offer o = {
        .stored_bytes = 100, .plain_bytes = 100, .plain_digest = leaf, .stored_digest = leaf};
    assert_int_equal(sl_draft_new(w->repo, name, 100, "tester", &draft, NULL), 0);
    assert_int_equal(sl_draft_block(draft, &o, &at, NULL), 0);
    assert_int_equal(w->store->ops->write(sl_draft_file(draft), page, 4096, 0, NULL), 0);
    assert_int_equal(sl_draft_finish(draft, 100, 0, &digest, NULL), 0);
    sl_pages_free(page, 4096);
    return draft;
}

static void publish__batch__has_results_of_its_own(void **state)
{
    struct world *w = *state;
    static const struct {
        const char *name;
        uint8_t fill;
        int code;
        enum sl_outcome outcome;
    } cases[] = {
        {"main/a", 'a', 0, SL_STORED_CREATED},
        {"main/b", 'b', 0, SL_STORED_CREATED},
        {"main/a", 'a', 0, SL_STORED_IDENTICAL}, /* the same name in one batch */
        {"main/a", 'x', SL_ERR_EXISTS, 0},
        {"main/old", 'o', 0, SL_STORED_IDENTICAL},
        {"main/deep/er/c", 'c', 0, SL_STORED_CREATED},
    };
    enum { COUNT = sizeof cases / sizeof *cases };
    struct sl_repo_publish batch[COUNT + 1] = {0};
    struct sl_object_draft *old = finished(w, "main/old", 'o');
    batch[0].draft = old;
    sl_repo_publish(w->repo, batch, 1);
    assert_int_equal(batch[0].code, 0);
    sl_draft_free(old);
    for (size_t i = 0; i < COUNT; i++)
        batch[i] = (struct sl_repo_publish){.draft = finished(w, cases[i].name, cases[i].fill)};
    struct sl_object_draft *unfinished;
    assert_int_equal(sl_draft_new(w->repo, "main/u", 0, NULL, &unfinished, NULL), 0);
    batch[COUNT] = (struct sl_repo_publish){.draft = unfinished};
    sl_repo_publish(w->repo, batch, COUNT + 1);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(batch[i].code, cases[i].code);
        assert_int_equal(batch[i].err.code, cases[i].code);
        if (!cases[i].code)
            assert_int_equal(batch[i].outcome, cases[i].outcome);
        sl_draft_free(batch[i].draft);
    }
    assert_int_equal(batch[COUNT].code, SL_ERR_INTERNAL);
    sl_draft_free(unfinished);
    sl_repo_publish(w->repo, NULL, 0);
    struct found found;
    verify(w, "", &found, NULL);
    assert_int_equal(found.count, 0);
}

static void publish__name_taken_by_damage__is_refused_and_left(void **state)
{
    struct world *w = *state;
    size_t count, now;
    put_ok(w, NAME, 5000, 1);
    put_ok(w, "main/other", 5000, 1);
    uint8_t *file = file_get(w, NAME, &count);
    uint8_t *other = file_get(w, "main/other", &now);
    for (int what = 0; what < 6; what++) {
        uint8_t *bad = malloc(count + 1);
        size_t bad_count = count;
        memcpy(bad, file, count);
        switch (what) {
        case 0: /* content: only the whole reading finds it */
            bad[4999] ^= 0x80;
            break;
        case 1: /* footer */
            bad[8192 + 24] ^= 1;
            break;
        case 2: /* trailer */
            bad[count - 4000] ^= 1;
            break;
        case 3: /* no object */
            bad_count = 7;
            break;
        case 4: /* moved here */
            memcpy(bad, other, count);
            break;
        case 5: /* longer */
            bad[bad_count++] = 0;
            break;
        }
        file_put(w, NAME, bad, bad_count);
        struct sl_err err = {0};
        int rc = put(w, NAME, 5000, 1, NULL, &err);
        assert_true(rc == SL_ERR_CHECKSUM || rc == SL_ERR_FORMAT || rc == SL_ERR_REPO);
        assert_true((rc == SL_ERR_REPO) == (what == 4));
        assert_non_null(strstr(err.msg, NAME));
        assert_non_null(strstr(err.hint, NAME));
        uint8_t *there = file_get(w, NAME, &now);
        assert_int_equal(now, bad_count); /* never overwritten */
        assert_memory_equal(there, bad, now);
        free(there);
        free(bad);
    }
    free(file);
    free(other);
}

/* --- files that are not what they should be -------------------------------------------------- */

static int open_fails(struct world *w, const char *name)
{
    struct sl_object *object;
    struct sl_trailer trailer;
    struct sl_err err = {0}, stat_err = {0};
    int rc = sl_object_open(w->repo, name, &object, &err);
    if (rc == 0) {
        sl_object_close(object);
        return 0;
    }
    assert_int_equal(err.code, rc);
    assert_non_null(strstr(err.msg, name));
    assert_non_null(strstr(err.msg, w->store->label));
    sl_object_stat(w->repo, name, &trailer, &stat_err);
    if (stat_err.code)
        assert_non_null(strstr(stat_err.msg, name));
    return rc;
}

static void object_open__moved_foreign_cut_or_longer__is_refused_by_name(void **state)
{
    struct world *w = *state;
    size_t count;
    put_ok(w, NAME, SL_BLOCK_BYTES + 5000, 1);
    assert_int_equal(open_fails(w, NAME), 0);
    uint8_t *file = file_get(w, NAME, &count);
    file_put(w, "main/wal/1/moved", file, count);
    assert_int_equal(open_fails(w, "main/wal/1/moved"), SL_ERR_REPO);
    assert_int_equal(open_fails(w, "main/none"), SL_ERR_NOT_FOUND);

    for (size_t cut = 1; cut <= count; cut += cut < 4 ? 1 : cut < 9000 ? 1021 : 131071) {
        file_put(w, NAME, file, count - cut);
        assert_int_equal(open_fails(w, NAME), SL_ERR_FORMAT);
    }
    uint8_t *longer = calloc(1, count + 8192);
    memcpy(longer, file, count);
    for (size_t more = 1; more <= 8192; more += more < 10 ? 1 : 4091) {
        file_put(w, NAME, longer, count + more);
        assert_int_equal(open_fails(w, NAME), SL_ERR_FORMAT);
    }
    memcpy(longer + count, file + count - 4096, 4096); /* the trailer twice */
    file_put(w, NAME, longer, count + 4096);
    assert_int_equal(open_fails(w, NAME), SL_ERR_FORMAT);
    file_put(w, NAME, file + 4096, count - 4096); /* a page lost at the beginning */
    assert_int_equal(open_fails(w, NAME), SL_ERR_FORMAT);

    /* an object of another repository, under the same name */
    struct sl_store *elsewhere = sl_memory_store_new();
    struct sl_repo *foreign;
    assert_int_equal(sl_repo_open(elsewhere, true, &foreign, NULL), 0);
    assert_int_equal(sl_repo_put(foreign, NAME, "abc", 3, NULL, NULL, NULL), 0);
    size_t foreign_count;
    const uint8_t *bytes = sl_memory_store_bytes(elsewhere, NAME, &foreign_count);
    file_put(w, NAME, bytes, foreign_count);
    assert_int_equal(open_fails(w, NAME), SL_ERR_REPO);
    sl_repo_close(foreign);
    elsewhere->ops->free(elsewhere);
    free(file);
    free(longer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(repo_open__again__is_the_same),
        BOTH(repo_open__store_of_others__is_refused),
        BOTH(repo_open__json_of_other_kinds__is_refused),
        BOTH(repo_open__two_creators__use_one),
        cmocka_unit_test(repo_name__joins__or_refuses),
        BOTH(put__contents_of_all_lengths__come_back),
        BOTH(put__zeros__are_holes),
        BOTH(fetch__longer_than_asked__is_refused),
        BOTH(object_block__beyond_the_end__is_refused),
        BOTH(publish__same_again__is_identical),
        BOTH(publish__other_content__is_refused_with_both_digests),
        BOTH(publish__batch__has_results_of_its_own),
        BOTH(publish__name_taken_by_damage__is_refused_and_left),
        BOTH(object_open__moved_foreign_cut_or_longer__is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
