/* Fragments: pieces of many workers become the entries of one manifest; rewinding; indexes. */
#include "tests/unit/core/repo/manifest_support.h"

#include "core/base/fault.h"
#include "core/object/object.h"

#include <unistd.h>

static struct sl_fragment *fragment_new(void)
{
    struct sl_fragment *f;
    assert_int_equal(sl_fragment_new(NULL, &f, NULL), 0);
    return f;
}

/* A piece of a file: [from, to) of `size` bytes, whose content is byte i = i × 7. */
static int add_piece(struct sl_fragment *f, const char *path, uint64_t size, uint64_t from,
                     uint64_t to, uint32_t pack, uint64_t pack_offset, struct sl_err *err)
{
    struct sl_manifest_entry *e = entry_new(SL_ENTRY_FILE, path);
    uint8_t content[4096];
    assert_true(to - from <= sizeof content);
    for (uint64_t i = from; i < to; i++)
        content[i - from] = (uint8_t)(i * 7);
    e->size = size;
    e->flags = SL_ENTRY_HAS_CRC32C;
    e->crc32c = sl_crc32c(0, content, to - from);
    if (to > from)
        extent_add(e, from, to - from, pack, pack_offset);
    int rc = sl_fragment_add(f, e, err);
    entry_free(e);
    return rc;
}

static uint32_t crc_of(uint64_t size)
{
    uint8_t *content = malloc(size ? size : 1);
    for (uint64_t i = 0; i < size; i++)
        content[i] = (uint8_t)(i * 7);
    uint32_t crc = sl_crc32c(0, content, size);
    free(content);
    return crc;
}

struct seen {
    char text[4096];
    size_t used;
    uint64_t entries;
    char last[SL_PATH_MAX];
};

static int see(void *arg, const struct sl_manifest_entry *e, struct sl_err *err)
{
    struct seen *seen = arg;
    (void)err;
    assert_true(!seen->entries++ || strcmp(seen->last, e->path) < 0);
    memcpy(seen->last, e->path, strlen(e->path) + 1);
    if (e->flags & SL_ENTRY_HAS_CRC32C)
        assert_int_equal(e->crc32c, crc_of(e->size));
    if (seen->used > sizeof seen->text - 1200)
        return 0;
    seen->used += (size_t)snprintf(seen->text + seen->used, 200, "%s:", e->path);
    for (uint32_t i = 0; i < e->extent_count && i < 8; i++)
        seen->used += (size_t)snprintf(seen->text + seen->used, 100, " %lu+%lu@%u:%lu",
                                       (unsigned long)e->extents[i].offset,
                                       (unsigned long)e->extents[i].length, e->extents[i].pack,
                                       (unsigned long)e->extents[i].pack_offset);
    seen->used += (size_t)snprintf(seen->text + seen->used, 10, "\n");
    return 0;
}

static struct seen seen;

static int merge(struct sl_fragment **fragments, size_t count, struct sl_err *err)
{
    memset(&seen, 0, sizeof seen);
    return sl_fragments_merge(fragments, count, see, &seen, err);
}

static void merge__pieces_of_three_workers__are_joined(void **state)
{
    (void)state;
    struct sl_fragment *f[3] = {fragment_new(), fragment_new(), fragment_new()};
    assert_int_equal(add_piece(f[0], "a", 10, 0, 10, 1, 0, NULL), 0);
    assert_int_equal(add_piece(f[0], "m", 9000, 3000, 6000, 1, 10, NULL), 0);
    assert_int_equal(add_piece(f[1], "b", 0, 0, 0, 2, 0, NULL), 0);
    assert_int_equal(add_piece(f[1], "m", 9000, 0, 3000, 2, 0, NULL), 0);
    assert_int_equal(add_piece(f[1], "m", 9000, 6000, 9000, 2, 3000, NULL), 0);
    assert_int_equal(add_piece(f[2], "a/b", 5, 0, 5, 3, 0, NULL), 0);
    assert_int_equal(add_piece(f[2], "z", 6000, 0, 4000, 3, 5, NULL), 0);
    assert_int_equal(add_piece(f[2], "z", 6000, 4000, 6000, 3, 4005, NULL), 0);
    assert_int_equal(merge(f, 3, NULL), 0);
    assert_string_equal(seen.text, "a: 0+10@1:0\n"
                                   "a/b: 0+5@3:0\n"
                                   "b:\n"
                                   "m: 0+3000@2:0 3000+3000@1:10 6000+3000@2:3000\n"
                                   "z: 0+6000@3:5\n");
    for (int i = 0; i < 3; i++)
        sl_fragment_free(f[i]);
}

static void merge__nothing__is_nothing(void **state)
{
    (void)state;
    struct sl_fragment *f[2] = {fragment_new(), fragment_new()};
    assert_int_equal(merge(f, 2, NULL), 0);
    assert_int_equal(merge(f, 0, NULL), 0);
    assert_int_equal(seen.entries, 0);
    sl_fragment_free(f[0]);
    sl_fragment_free(f[1]);
}

static void merge__folder_given_twice__comes_once(void **state)
{
    (void)state;
    struct sl_fragment *f[2] = {fragment_new(), fragment_new()};
    struct sl_manifest_entry *e = entry_new(SL_ENTRY_FOLDER, "base");
    struct sl_manifest_entry *link = entry_new(SL_ENTRY_LINK, "x");
    strcpy(link->link, "somewhere");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sl_fragment_add(f[i], e, NULL), 0);
        assert_int_equal(sl_fragment_add(f[i], link, NULL), 0);
    }
    assert_int_equal(merge(f, 2, NULL), 0);
    assert_string_equal(seen.text, "base:\nx:\n");
    strcpy(link->link, "elsewhere"); /* a contradiction */
    assert_int_equal(sl_fragment_add(f[1], link, NULL), 0);
    assert_int_equal(merge(f, 2, NULL), SL_ERR_INTERNAL);
    entry_free(e);
    entry_free(link);
    sl_fragment_free(f[0]);
    sl_fragment_free(f[1]);
}

static void merge__missing_double_or_contradicting_pieces__fail(void **state)
{
    (void)state;
    static const uint64_t cases[][2][3] = {
        {{100, 0, 50}, {100, 60, 100}},  /* a gap */
        {{100, 0, 50}, {100, 40, 100}},  /* an overlap */
        {{100, 0, 50}, {100, 50, 90}},   /* no end */
        {{100, 10, 50}, {100, 50, 100}}, /* no beginning */
        {{100, 0, 100}, {100, 0, 100}},  /* twice */
        {{100, 0, 50}, {101, 50, 101}},  /* another size */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_fragment *f[2];
        struct sl_err err = {0};
        for (int k = 0; k < 2; k++) {
            f[k] = fragment_new();
            assert_int_equal(
                add_piece(f[k], "f", cases[i][k][0], cases[i][k][1], cases[i][k][2], 1, 0, NULL),
                0);
        }
        assert_int_equal(merge(f, 2, &err), SL_ERR_INTERNAL);
        assert_non_null(strstr(err.msg, "\"f\""));
        sl_fragment_free(f[0]);
        sl_fragment_free(f[1]);
    }
}

static void fragment__piece_with_a_gap__is_refused(void **state)
{
    (void)state;
    struct sl_fragment *f = fragment_new();
    struct sl_manifest_entry *e = entry_new(SL_ENTRY_FILE, "f");
    e->size = 100;
    assert_int_equal(sl_fragment_add(f, e, NULL), SL_ERR_FORMAT); /* nothing of something */
    extent_add(e, 0, 10, 1, 0);
    extent_add(e, 20, 10, 1, 0);
    assert_int_equal(sl_fragment_add(f, e, NULL), SL_ERR_FORMAT);
    assert_int_equal(sl_fragment_mark(f), 0);
    entry_free(e);
    sl_fragment_free(f);
}

static void fragment__file_read_last__is_merged_in_its_place(void **state)
{
    (void)state;
    struct sl_fragment *f = fragment_new();
    assert_int_equal(add_piece(f, "base/1", 1, 0, 1, 1, 0, NULL), 0);
    assert_int_equal(add_piece(f, "global/1", 1, 0, 1, 1, 1, NULL), 0);
    assert_int_equal(add_piece(f, "global/pg_control", 1, 0, 1, 1, 3, NULL), 0);
    assert_int_equal(add_piece(f, "backup_label", 1, 0, 1, 1, 2, NULL), 0);
    assert_int_equal(merge(&f, 1, NULL), 0);
    assert_string_equal(seen.text, "backup_label: 0+1@1:2\nbase/1: 0+1@1:0\n"
                                   "global/1: 0+1@1:1\nglobal/pg_control: 0+1@1:3\n");
    sl_fragment_free(f);
}

static void fragment__disorder_without_end__is_refused(void **state)
{
    (void)state;
    struct sl_fragment *f = fragment_new();
    int rc = 0, added = 0;
    for (; rc == 0 && added < 5000; added++) {
        char path[32];
        snprintf(path, sizeof path, "%08d", 99999 - added);
        rc = add_piece(f, path, 1, 0, 1, 1, 0, NULL);
    }
    assert_int_equal(rc, SL_ERR_INTERNAL);
    assert_true(added > 100 && added < 1000);
    assert_int_equal(merge(&f, 1, NULL), 0); /* what was taken is still good */
    assert_int_equal(seen.entries, added - 1);
    sl_fragment_free(f);
}

static void add_many(struct sl_fragment *f, int from, int to, uint32_t pack)
{
    for (int i = from; i < to; i++) {
        char path[64];
        snprintf(path, sizeof path, "base/16384/%08d", i);
        assert_int_equal(add_piece(f, path, 3, 0, 3, pack, (uint64_t)i * 3, NULL), 0);
    }
}

static void fragment__rewound__forgets_what_came_after(void **state)
{
    (void)state;
    /* marks in the buffer, on the disk, at the beginning and at the end */
    static const int kept[] = {0, 1, 10, 3000, 5000};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        struct sl_fragment *f = fragment_new(), *same = fragment_new();
        add_many(f, 0, kept[i], 1);
        uint64_t mark = sl_fragment_mark(f);
        add_many(f, kept[i], 5000, 2);
        assert_int_equal(sl_fragment_rewind(f, mark, NULL), 0);
        assert_int_equal(sl_fragment_mark(f), mark);
        add_many(f, kept[i], 6000, 3); /* the pack is done over: the same paths again */
        add_many(same, 0, kept[i], 1);
        add_many(same, kept[i], 6000, 3);
        struct bytes a = {0}, b = {0};
        uint64_t a_bytes, b_bytes;
        assert_int_equal(sl_fragment_index(f, 0, to_bytes, &a, &a_bytes, NULL), 0);
        assert_int_equal(sl_fragment_index(same, 0, to_bytes, &b, &b_bytes, NULL), 0);
        assert_int_equal(a.count, b.count);
        assert_memory_equal(a.at, b.at, a.count);
        assert_int_equal(a_bytes, a.count);
        assert_int_equal(merge(&f, 1, NULL), 0);
        assert_int_equal(seen.entries, 6000);
        free(a.at);
        free(b.at);
        sl_fragment_free(f);
        sl_fragment_free(same);
    }
}

static void fragment__rewound_often__needs_no_new_runs(void **state)
{
    (void)state;
    struct sl_fragment *f = fragment_new();
    add_many(f, 0, 3000, 1);
    for (int i = 0; i < 1000; i++) {
        uint64_t mark = sl_fragment_mark(f);
        add_many(f, 3000, 3002, 1);
        assert_int_equal(sl_fragment_rewind(f, mark, NULL), 0);
    }
    add_many(f, 3000, 3001, 1);
    assert_int_equal(merge(&f, 1, NULL), 0);
    assert_int_equal(seen.entries, 3001);
    assert_int_equal(sl_fragment_rewind(f, sl_fragment_mark(f) + 1, NULL), SL_ERR_INTERNAL);
    sl_fragment_free(f);
}

struct counted {
    uint64_t entries;
};

static int count_entry(void *arg, const struct sl_manifest_entry *e)
{
    (void)e;
    ((struct counted *)arg)->entries++;
    return 0;
}

static void fragment__index_after_a_mark__is_readable(void **state)
{
    (void)state;
    struct sl_fragment *f = fragment_new();
    struct bytes b = {0};
    uint64_t bytes, entries, covered;
    add_many(f, 0, 2500, 1);
    uint64_t mark = sl_fragment_mark(f);
    add_many(f, 2500, 4000, 2);
    assert_int_equal(sl_fragment_index(f, mark, to_bytes, &b, &bytes, NULL), 0);
    assert_int_equal(bytes, b.count);
    struct counted counted = {0};
    struct sl_manifest_visitor visitor = {.entry = count_entry, .arg = &counted};
    struct sl_manifest_reader *r;
    assert_int_equal(sl_pack_index_reader_new(&visitor, &r, NULL), 0);
    for (size_t at = 0; at < b.count; at += 1000)
        assert_int_equal(
            sl_manifest_feed(r, b.at + at, b.count - at < 1000 ? b.count - at : 1000, NULL), 0);
    assert_int_equal(sl_manifest_finish(r, &entries, &covered, NULL), 0);
    assert_int_equal(entries, 1500);
    assert_int_equal(counted.entries, 1500);
    assert_int_equal(covered, 4500);
    sl_manifest_reader_free(r);
    free(b.at);
    sl_fragment_free(f);
}

/* A file of very many extents: records longer than the buffers. */
static void fragment__record_longer_than_the_buffer__survives(void **state)
{
    (void)state;
    struct sl_fragment *f = fragment_new();
    struct sl_manifest_entry *e = entry_new(SL_ENTRY_FILE, "big");
    const uint32_t count = 20000;
    e->extents = realloc(e->extents, count * sizeof *e->extents);
    for (uint32_t i = 0; i < count; i++)
        e->extents[i] =
            (struct sl_extent){.offset = i, .length = 1, .pack_offset = 2ull * i + 1, .pack = 1};
    e->extent_count = count;
    e->size = count;
    add_many(f, 0, 10, 1);
    assert_int_equal(sl_fragment_add(f, e, NULL), 0);
    strcpy(e->path, "bigger");
    assert_int_equal(sl_fragment_add(f, e, NULL), 0);
    assert_int_equal(merge(&f, 1, NULL), 0);
    assert_int_equal(seen.entries, 12);
    struct bytes b = {0};
    uint64_t bytes;
    assert_int_equal(sl_fragment_index(f, 0, to_bytes, &b, &bytes, NULL), 0);
    struct sl_manifest_reader *r;
    struct sl_manifest_visitor visitor = {0};
    assert_int_equal(sl_pack_index_reader_new(&visitor, &r, NULL), 0);
    for (size_t at = 0; at < b.count; at += 777)
        assert_int_equal(
            sl_manifest_feed(r, b.at + at, b.count - at < 777 ? b.count - at : 777, NULL), 0);
    assert_int_equal(sl_manifest_finish(r, NULL, NULL, NULL), 0);
    sl_manifest_reader_free(r);
    free(b.at);
    entry_free(e);
    sl_fragment_free(f);
}

static int scenario(struct sl_err *err)
{
    struct sl_fragment *f[2] = {NULL, NULL};
    struct bytes b = {0};
    uint64_t mark, bytes;
    int rc = sl_fragment_new("/tmp", &f[0], err);
    if (rc == 0)
        rc = sl_fragment_new("/tmp", &f[1], err);
    for (int i = 0; rc == 0 && i < 1200; i++) {
        char path[16];
        snprintf(path, sizeof path, "%08d", i);
        rc = add_piece(f[i % 2], path, 3, 0, 3, 1, 0, err);
    }
    if (rc == 0) {
        mark = sl_fragment_mark(f[0]);
        rc = add_piece(f[0], "x", 3, 0, 3, 1, 0, err);
        if (rc == 0)
            rc = sl_fragment_rewind(f[0], mark, err);
    }
    if (rc == 0)
        rc = sl_fragment_index(f[0], 0, to_bytes, &b, &bytes, err);
    if (rc == 0)
        rc = merge(f, 2, err);
    if (rc == 0)
        assert_int_equal(seen.entries, 1200);
    sl_fragment_free(f[0]);
    sl_fragment_free(f[1]);
    free(b.at);
    return rc;
}

static void fragment__each_call_failed_in_turn__is_said(void **state)
{
    (void)state;
    for (unsigned n = 1;; n++) {
        char rule[32];
        struct sl_err err = {0};
        snprintf(rule, sizeof rule, "*:EIO@%u", n);
        assert_int_equal(sl_fault_set(rule), 0);
        int rc = scenario(&err);
        bool untouched = n > sl_fault_passed();
        sl_fault_set(NULL);
        if (untouched) {
            assert_int_equal(rc, 0);
            assert_true(n > 12);
            return;
        }
        assert_true(rc == SL_ERR_NO_MEMORY || rc == SL_ERR_OPEN || rc == SL_ERR_WRITE ||
                    rc == SL_ERR_READ);
        assert_int_equal(err.code, rc);
    }
}

static void fragment__no_such_folder__is_said(void **state)
{
    (void)state;
    struct sl_fragment *f;
    struct sl_err err;
    assert_int_equal(sl_fragment_new("/nonexistent/folder", &f, &err), SL_ERR_OPEN);
    assert_non_null(strstr(err.msg, "/nonexistent/folder"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merge__pieces_of_three_workers__are_joined),
        cmocka_unit_test(merge__nothing__is_nothing),
        cmocka_unit_test(merge__folder_given_twice__comes_once),
        cmocka_unit_test(merge__missing_double_or_contradicting_pieces__fail),
        cmocka_unit_test(fragment__piece_with_a_gap__is_refused),
        cmocka_unit_test(fragment__file_read_last__is_merged_in_its_place),
        cmocka_unit_test(fragment__disorder_without_end__is_refused),
        cmocka_unit_test(fragment__rewound__forgets_what_came_after),
        cmocka_unit_test(fragment__rewound_often__needs_no_new_runs),
        cmocka_unit_test(fragment__index_after_a_mark__is_readable),
        cmocka_unit_test(fragment__record_longer_than_the_buffer__survives),
        cmocka_unit_test(fragment__each_call_failed_in_turn__is_said),
        cmocka_unit_test(fragment__no_such_folder__is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
