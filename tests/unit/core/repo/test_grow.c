/* Growing objects: what a journal holds after every way in which its writing can end. */
#include "core/base/fault.h"
#include "core/repo/grow.h"
#include "tests/unit/core/repo/repo_support.h"

#include <sys/wait.h>

#define NAME    "main/binlog/one"
#define JOURNAL NAME SL_JOURNAL_SUFFIX

static struct sl_growing *open_must(struct world *w, uint64_t known)
{
    struct sl_growing *g = NULL;
    struct sl_err err = {0};
    int rc = sl_growing_open(w->repo, NAME, "tester", known, &g, &err);
    if (rc)
        print_message("%s\n", err.msg);
    assert_int_equal(rc, 0);
    return g;
}

static int open_fails(struct world *w, uint64_t known, struct sl_err *err)
{
    struct sl_growing *g = NULL;
    int rc = sl_growing_open(w->repo, NAME, "tester", known, &g, err);
    assert_true(rc < 0);
    assert_null(g);
    return rc;
}

static int append(struct world *w, struct sl_growing *g, const uint8_t *bytes, size_t count,
                  bool mark)
{
    static _Alignas(4096) uint8_t padded[SL_BLOCK_BYTES]; /* no call of ours is to fail */
    memset(padded, 0, sizeof padded);
    memcpy(padded, bytes, count);
    struct sl_id digest = sl_digest(w->repo->digest_seed, bytes, count);
    struct sl_err err = {0};
    int rc =
        sl_growing_append(g, padded, (uint32_t)count, mark ? SL_JOURNAL_MARK : 0, &digest, &err);
    return rc;
}

/* The test's content in pieces of awkward sizes, each marked and synced. */
static const size_t pieces[] = {1, 63, 64, 65, 4096, 100000, SL_BLOCK_BYTES, 7, 300000, 4032};
#define PIECES (sizeof pieces / sizeof *pieces)

static size_t total_of(size_t n)
{
    size_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += pieces[i];
    return total;
}

static void grow(struct world *w, struct sl_growing *g, size_t first, size_t last)
{
    uint8_t *bytes = content_new(total_of(PIECES), 7);
    for (size_t i = first; i < last; i++) {
        assert_int_equal(append(w, g, bytes + total_of(i), pieces[i], true), 0);
        assert_int_equal(sl_growing_sync(g, NULL), 0);
        assert_int_equal(sl_growing_durable(g), total_of(i + 1));
    }
    free(bytes);
}

static void expect_snapshot(struct world *w, size_t count)
{
    struct sl_object *object;
    struct sl_err err = {0};
    uint8_t *bytes = content_new(total_of(PIECES), 7), *block = sl_pages_alloc(SL_BLOCK_BYTES);
    int rc = sl_growing_snapshot(w->repo, JOURNAL, &object, &err);
    if (rc)
        print_message("%s\n", err.msg);
    assert_int_equal(rc, 0);
    assert_int_equal(object->trailer.length, count);
    for (uint32_t i = 0; i < object->trailer.blocks; i++) {
        size_t got;
        assert_int_equal(sl_object_block(object, i, block, &got, NULL), 0);
        assert_memory_equal(block, bytes + (size_t)i * SL_BLOCK_BYTES, got);
    }
    sl_object_close(object);
    struct sl_trailer trailer;
    assert_int_equal(sl_growing_stat(w->repo, JOURNAL, &trailer, NULL), 0);
    assert_int_equal(trailer.length, count);
    assert_string_equal(trailer.creator, "tester");
    sl_pages_free(block, SL_BLOCK_BYTES);
    free(bytes);
}

static void seal_must(struct sl_growing *g, size_t count, enum sl_codec codec,
                      enum sl_outcome expected)
{
    enum sl_outcome outcome;
    struct sl_id digest;
    struct sl_err err = {0};
    int rc = sl_growing_seal(g, count, codec, 1, &outcome, &digest, &err);
    if (rc)
        print_message("%s\n", err.msg);
    assert_int_equal(rc, 0);
    assert_int_equal(outcome, expected);
    sl_growing_close(g);
}

static bool is_there(struct world *w, const char *name)
{
    char path[1024];
    path_of(w, name, path);
    return access(path, F_OK) == 0;
}

/* --- the good way ------------------------------------------------------------------------------
 */

static void grows_and_is_sealed(void **state)
{
    struct world *w = *state;
    struct found found;
    struct sl_err err;
    for (size_t i = 0; i < PIECES; i++) { /* opened anew for each piece */
        struct sl_growing *g = open_must(w, total_of(i));
        assert_int_equal(sl_growing_length(g), total_of(i));
        grow(w, g, i, i + 1);
        expect_snapshot(w, total_of(i + 1));
        sl_growing_close(g);
    }
    verify(w, "main", &found, NULL);
    assert_int_equal(found.count, 0);
    assert_int_equal(sl_repo_fetch(w->repo, NAME, 1, NULL, NULL, &err), SL_ERR_NOT_FOUND);
    seal_must(open_must(w, 0), total_of(PIECES), SL_CODEC_ZSTD, SL_STORED_CREATED);
    expect_content(w, NAME, total_of(PIECES), 7);
    assert_false(is_there(w, JOURNAL));
    assert_int_equal(open_fails(w, 0, &err), SL_ERR_EXISTS);
    verify(w, "main", &found, NULL);
    assert_int_equal(found.count, 0);
}

static void empty_one_is_sealed(void **state)
{
    struct world *w = *state;
    seal_must(open_must(w, 0), 0, SL_CODEC_PLAIN, SL_STORED_CREATED);
    expect_content(w, NAME, 0, 7);
}

static void has_one_writer(void **state)
{
    struct world *w = *state;
    struct sl_err err;
    struct sl_growing *g = open_must(w, 0);
    assert_int_equal(open_fails(w, 0, &err), SL_ERR_BUSY);
    sl_growing_close(g);
    sl_growing_close(open_must(w, 0));
}

static void what_is_not_durable_or_marked_is_not_sealed(void **state)
{
    struct world *w = *state;
    struct sl_growing *g = open_must(w, 0);
    uint8_t *bytes = content_new(1000, 7);
    enum sl_outcome outcome;
    struct sl_id digest;
    assert_int_equal(append(w, g, bytes, 500, true), 0);
    assert_true(sl_growing_seal(g, 500, SL_CODEC_PLAIN, 0, &outcome, &digest, NULL) < 0);
    assert_int_equal(sl_growing_sync(g, NULL), 0);
    assert_true(sl_growing_seal(g, 499, SL_CODEC_PLAIN, 0, &outcome, &digest, NULL) < 0);
    assert_int_equal(append(w, g, bytes + 500, 500, false), 0);
    assert_int_equal(sl_growing_sync(g, NULL), 0);
    assert_true(sl_growing_seal(g, 1000, SL_CODEC_PLAIN, 0, &outcome, &digest, NULL) < 0);
    sl_growing_close(g);
    expect_snapshot(w, 500);
    g = open_must(w, 1000); /* what was behind the mark was durable, and is dropped */
    assert_int_equal(sl_growing_length(g), 500);
    seal_must(g, 500, SL_CODEC_PLAIN, SL_STORED_CREATED);
    expect_content(w, NAME, 500, 7);
    free(bytes);
}

static void other_content_under_the_name_stays(void **state)
{
    struct world *w = *state;
    enum sl_outcome outcome;
    struct sl_id digest;
    struct sl_err err;
    struct sl_growing *g = open_must(w, 0);
    grow(w, g, 0, 4);
    put_ok(w, NAME, 5, 9);
    assert_int_equal(sl_growing_seal(g, total_of(4), SL_CODEC_PLAIN, 0, &outcome, &digest, &err),
                     SL_ERR_EXISTS);
    sl_growing_close(g);
    expect_content(w, NAME, 5, 9);
    expect_snapshot(w, total_of(4));
}

/* --- the journal, damaged ----------------------------------------------------------------------
 */

static void torn_end_is_cut(void **state)
{
    struct world *w = *state;
    struct sl_growing *g = open_must(w, 0);
    size_t whole, longer;
    grow(w, g, 0, 5);
    uint8_t *before = file_get(w, JOURNAL, &whole);
    free(before);
    grow(w, g, 5, 6);
    sl_growing_close(g);
    uint8_t *bytes = file_get(w, JOURNAL, &longer);
    for (size_t cut = whole; cut < longer; cut += cut < whole + 130 ? 1 : 4999) {
        file_put(w, JOURNAL, bytes, cut);
        expect_snapshot(w, total_of(5));
        g = open_must(w, total_of(5));
        assert_int_equal(sl_growing_length(g), total_of(5));
        grow(w, g, 5, 7); /* and goes on */
        sl_growing_close(g);
        expect_snapshot(w, total_of(7));
    }
    free(bytes);
}

/* As after a power cut: of what was not synced, any pages may be missing. */
static void pages_of_the_end_are_missing(void **state)
{
    struct world *w = *state;
    struct sl_growing *g = open_must(w, 0);
    size_t whole, longer;
    unsigned x = 1;
    grow(w, g, 0, 3);
    free(file_get(w, JOURNAL, &whole));
    uint8_t *content = content_new(total_of(PIECES), 7);
    for (size_t i = 3; i < PIECES; i++) /* in one go, not synced */
        assert_int_equal(append(w, g, content + total_of(i), pieces[i], true), 0);
    sl_growing_close(g);
    uint8_t *bytes = file_get(w, JOURNAL, &longer);
    for (int round = 0; round < 60; round++) {
        uint8_t *lost = malloc(longer);
        memcpy(lost, bytes, longer);
        for (size_t at = (whole + 4095) / 4096 * 4096; at < longer; at += 4096) {
            x = x * 1664525u + 1013904223u;
            if (x >> 30 == 0 || round == 0)
                memset(lost + at, 0, longer - at < 4096 ? longer - at : 4096);
        }
        file_put(w, JOURNAL, lost, longer);
        g = open_must(w, total_of(3));
        uint64_t length = sl_growing_length(g);
        size_t n = 3;
        while (n < PIECES && total_of(n) < length)
            n++;
        assert_int_equal(length, total_of(n));
        grow(w, g, n, PIECES);
        sl_growing_close(g);
        expect_snapshot(w, total_of(PIECES));
        free(lost);
    }
    free(content);
    free(bytes);
}

static void damage_below_the_watermark_is_named(void **state)
{
    struct world *w = *state;
    struct sl_growing *g = open_must(w, 0);
    struct found found;
    struct sl_err err;
    size_t count;
    grow(w, g, 0, PIECES);
    sl_growing_close(g);
    uint8_t *bytes = file_get(w, JOURNAL, &count);
    size_t last = count - (SL_JOURNAL_RECORD_BYTES + 4032);
    for (size_t at = 0; at < last; at += at < 6000 ? 97 : 55555) {
        bytes[at] ^= 0x10;
        file_put(w, JOURNAL, bytes, count);
        int rc = open_fails(w, 0, &err);
        assert_true(rc == SL_ERR_CHECKSUM || rc == SL_ERR_FORMAT);
        assert_non_null(strstr(err.msg, JOURNAL));
        assert_true(sl_growing_snapshot(w->repo, JOURNAL, &(struct sl_object *){NULL}, NULL) < 0);
        verify(w, "main", &found, NULL);
        assert_int_equal(found.count, 1);
        assert_string_equal(found.names[0], JOURNAL);
        size_t now;
        uint8_t *kept = file_get(w, JOURNAL, &now);
        assert_int_equal(now, count); /* nothing was cut */
        assert_memory_equal(kept, bytes, count);
        free(kept);
        bytes[at] ^= 0x10;
    }
    /* the last record: only the client knows that it was durable */
    bytes[count - 1] ^= 1;
    file_put(w, JOURNAL, bytes, count);
    assert_int_equal(open_fails(w, total_of(PIECES), &err), SL_ERR_CHECKSUM);
    g = open_must(w, total_of(PIECES - 1));
    assert_int_equal(sl_growing_length(g), total_of(PIECES - 1));
    sl_growing_close(g);
    free(bytes);
}

static void journals_of_others_are_refused(void **state)
{
    struct world *w = *state;
    struct sl_growing *g = open_must(w, 0);
    struct sl_err err;
    size_t count;
    grow(w, g, 0, 3);
    sl_growing_close(g);
    uint8_t *bytes = file_get(w, JOURNAL, &count);
    file_put(w, "main/binlog/two" SL_JOURNAL_SUFFIX, bytes, count);
    assert_int_equal(sl_growing_check(w->repo, "main/binlog/two" SL_JOURNAL_SUFFIX, &err),
                     SL_ERR_REPO);
    /* records of another journal, at the right place */
    size_t other_count;
    file_remove(w, JOURNAL);
    g = open_must(w, 0);
    sl_growing_close(g);
    uint8_t *other = file_get(w, JOURNAL, &other_count);
    memcpy(bytes, other, SL_JOURNAL_HEAD_BYTES);
    file_put(w, JOURNAL, bytes, count);
    g = open_must(w, 0);
    assert_int_equal(sl_growing_length(g), 0);
    sl_growing_close(g);
    free(other);
    free(bytes);
}

/* --- the disk, failing -------------------------------------------------------------------------
 */

static void failed_sync_ends_the_writer(void **state)
{
    struct world *w = *state;
    struct sl_growing *g = open_must(w, 0);
    uint8_t *bytes = content_new(total_of(PIECES), 7);
    grow(w, g, 0, 2);
    assert_int_equal(append(w, g, bytes + total_of(2), pieces[2], true), 0);
    assert_int_equal(sl_fault_set("posix.grow_sync:EIO"), 0);
    assert_int_equal(sl_growing_sync(g, NULL), SL_ERR_SYNC);
    sl_fault_set(NULL);
    assert_int_equal(sl_growing_durable(g), total_of(2));
    assert_int_equal(sl_growing_sync(g, NULL), SL_ERR_SYNC); /* never again */
    assert_int_equal(append(w, g, bytes, 1, true), SL_ERR_SYNC);
    sl_growing_close(g);
    g = open_must(w, total_of(2));
    size_t n = sl_growing_length(g) == total_of(3) ? 3 : 2;
    assert_int_equal(sl_growing_length(g), total_of(n));
    grow(w, g, n, PIECES);
    sl_growing_close(g);
    expect_snapshot(w, total_of(PIECES));
    free(bytes);
}

/* Every call in turn fails once; afterwards all goes on, and nothing durable is missing. */
static void every_call_fails_in_turn(void **state)
{
    struct world *w = *state;
    static const char *const errors[] = {"EIO", "ENOSPC", "ENOMEM"};
    uint8_t *bytes = content_new(total_of(PIECES), 7);
    for (unsigned e = 0; e < 3; e++) {
        uint64_t passed = 1;
        unsigned n;
        for (n = 1; passed >= n - 1; n++) { /* until one run has met no fault */
            char rule[64];
            struct sl_growing *g = NULL;
            enum sl_outcome outcome;
            struct sl_id digest;
            uint64_t durable = 0;
            snprintf(rule, sizeof rule, "*:%s@%u", errors[e], n);
            assert_int_equal(sl_fault_set(rule), 0);
            int rc = sl_growing_open(w->repo, NAME, "tester", 0, &g, NULL);
            for (size_t i = 0; i < 5 && !rc; i++) {
                rc = append(w, g, bytes + total_of(i), pieces[i], true);
                if (!rc)
                    rc = sl_growing_sync(g, NULL);
                durable = sl_growing_durable(g);
            }
            if (!rc)
                rc = sl_growing_seal(g, total_of(5), SL_CODEC_PLAIN, 0, &outcome, &digest, NULL);
            bool sealed = !rc;
            sl_growing_close(g);
            passed = sl_fault_passed(); /* less than n: none failed any more */
            sl_fault_set(NULL);
            if (sl_store_poisoned(w->store)) { /* as after a restart */
                sl_repo_close(w->repo);
                w->store->ops->free(w->store);
                assert_int_equal(sl_store_posix_open(w->folder, false, &w->store, NULL), 0);
                assert_int_equal(sl_repo_open(w->store, false, &w->repo, NULL), 0);
            }
            struct sl_err err;
            rc = sl_growing_open(w->repo, NAME, "tester", durable, &g, &err);
            if (rc == SL_ERR_EXISTS) {
                assert_true(sealed || durable == total_of(5));
            } else {
                assert_int_equal(rc, 0);
                size_t i = 0;
                while (total_of(i) < sl_growing_length(g))
                    i++;
                assert_int_equal(total_of(i), sl_growing_length(g));
                grow(w, g, i, 5);
                assert_int_equal(
                    sl_growing_seal(g, total_of(5), SL_CODEC_PLAIN, 0, &outcome, &digest, NULL), 0);
                sl_growing_close(g);
            }
            expect_content(w, NAME, total_of(5), 7);
            assert_false(is_there(w, JOURNAL));
            file_remove(w, NAME);
        }
        assert_true(n > 50);
    }
    free(bytes);
}

/* --- killed -------------------------------------------------------------------------------------
 */

static void killed(struct world *w, const char *rule, bool seal)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct sl_growing *g = open_must(w, 0);
        enum sl_outcome outcome;
        struct sl_id digest;
        sl_fault_set(rule);
        grow(w, g, 0, 5);
        if (seal)
            sl_growing_seal(g, total_of(5), SL_CODEC_PLAIN, 0, &outcome, &digest, NULL);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void killed_between_naming_and_removing(void **state)
{
    struct world *w = *state;
    killed(w, "repo.grow_sealed:kill", true);
    assert_true(is_there(w, JOURNAL));
    assert_true(is_there(w, NAME));
    seal_must(open_must(w, total_of(5)), total_of(5), SL_CODEC_ZSTD, SL_STORED_IDENTICAL);
    assert_false(is_there(w, JOURNAL));
    expect_content(w, NAME, total_of(5), 7);
}

static void killed_between_head_and_content(void **state)
{
    struct world *w = *state;
    killed(w, "posix.pwrite:kill@6", false); /* the third record's content */
    struct sl_growing *g = open_must(w, total_of(2));
    assert_int_equal(sl_growing_length(g), total_of(2));
    grow(w, g, 2, 5);
    seal_must(g, total_of(5), SL_CODEC_PLAIN, SL_STORED_CREATED);
    expect_content(w, NAME, total_of(5), 7);
}

static void store_that_cannot_says_so(void **state)
{
    struct sl_err err;
    assert_int_equal(open_fails(*state, 0, &err), SL_ERR_UNSUPPORTED);
}

#define POSIX(test) cmocka_unit_test_setup_teardown(test, setup_posix, teardown)
#define TMPFS(test) cmocka_unit_test_setup_teardown(test, setup_posix_tmpfs, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        POSIX(grows_and_is_sealed),
        POSIX(empty_one_is_sealed),
        POSIX(has_one_writer),
        POSIX(what_is_not_durable_or_marked_is_not_sealed),
        POSIX(other_content_under_the_name_stays),
        TMPFS(torn_end_is_cut),
        TMPFS(pages_of_the_end_are_missing),
        TMPFS(damage_below_the_watermark_is_named),
        POSIX(journals_of_others_are_refused),
        POSIX(failed_sync_ends_the_writer),
        TMPFS(every_call_fails_in_turn),
        POSIX(killed_between_naming_and_removing),
        POSIX(killed_between_head_and_content),
        cmocka_unit_test_setup_teardown(store_that_cannot_says_so, setup_memory, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
