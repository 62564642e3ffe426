/* Groups of pages: what is written can be read in pieces of any size, what is not so is refused;
 * what a base has of a file, and where. */
#include "core/object/object.h"
#include "postgres/incr_internal.h"

#include "core/base/alloc.h"

#include "tests/unit/postgres/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#define SEED 7u
#define G    SL_PG_GROUP_BYTES

static uint8_t object[1 << 20]; /* as it lies in the repository */
static size_t object_bytes;
static uint8_t content[5 * G];

struct seen {
    unsigned count;
    struct {
        char path[64];
        uint64_t offset, length;
        uint32_t count;
        uint8_t groups[8 * SL_PG_GROUP_ENTRY];
        size_t bytes;
    } records[8];
    int answer;
};

static int see(void *arg, const struct sl_pg_group_record *record, const void *bytes,
               struct sl_err *err)
{
    struct seen *s = arg;
    struct sl_pg_group_record again;
    assert_int_equal(sl_pg_group_record_decode(bytes, record->bytes, &again, err), 1);
    assert_string_equal(again.path, record->path);
    assert_true(s->count < 8 && record->count <= 8);
    strncpy(s->records[s->count].path, record->path, 63);
    s->records[s->count].offset = record->offset;
    s->records[s->count].length = record->length;
    s->records[s->count].count = record->count;
    s->records[s->count].bytes = record->bytes;
    memcpy(s->records[s->count].groups, record->groups, (size_t)record->count * SL_PG_GROUP_ENTRY);
    s->count++;
    return s->answer;
}

static int read_object(const uint8_t *bytes, size_t count, size_t step, struct seen *seen)
{
    struct sl_pg_groups_reader *reader;
    struct sl_err err = {0};
    int answer = seen->answer;
    *seen = (struct seen){.answer = answer};
    assert_int_equal(sl_pg_groups_reader_new(see, seen, &reader, &err), 0);
    int rc = 0;
    for (size_t at = 0; !rc && at < count; at += step)
        rc = sl_pg_groups_reader_feed(reader, bytes + at, step < count - at ? step : count - at,
                                      &err);
    if (!rc)
        rc = sl_pg_groups_reader_finish(reader, &err);
    assert_int_equal(err.code, rc);
    sl_pg_groups_reader_free(reader);
    return rc;
}

static void put(struct sl_pg_groups *g, const char *path, uint64_t offset, size_t length,
                size_t step)
{
    sl_pg_groups_begin(g, path, offset);
    for (size_t at = 0; at < length; at += step)
        sl_pg_groups_feed(g, content + at, step < length - at ? step : length - at);
    assert_int_equal(sl_pg_groups_end(g, length, NULL), 0);
}

static int setup(void **state)
{
    (void)state;
    struct sl_pg_groups g;
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (uint8_t)(i * 31 + i / 1000);
    assert_int_equal(sl_pg_groups_init(&g, SEED, NULL), 0);
    put(&g, "base/5/16384", 0, 2 * G + 100, 1000);
    put(&g, "empty", 0, 0, 1);
    put(&g, "base/5/16384.1", 268435456, 3 * G, 7 * G);
    object_bytes = sl_pg_groups_head(object);
    memcpy(object + object_bytes, g.bytes, g.used);
    object_bytes += g.used;
    sl_pg_groups_fini(&g);
    return 0;
}

static void groups__written__are_read(void **state)
{
    (void)state;
    static const size_t steps[] = {1, 7, 16, 17, 100, sizeof object};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct seen seen = {0};
        assert_int_equal(read_object(object, object_bytes, steps[i], &seen), 0);
        assert_int_equal(seen.count, 3);
        assert_string_equal(seen.records[0].path, "base/5/16384");
        assert_int_equal(seen.records[0].length, 2 * G + 100);
        assert_int_equal(seen.records[0].count, 3);
        assert_int_equal(seen.records[1].count, 0);
        assert_int_equal(seen.records[2].offset, 268435456);
        assert_int_equal(seen.records[2].count, 3);
        for (unsigned group = 0; group < 3; group++) {
            size_t length = group == 2 ? 100 : G;
            struct sl_id id = sl_digest(SEED, content + group * G, length);
            const uint8_t *entry = seen.records[0].groups + group * SL_PG_GROUP_ENTRY;
            struct sl_reader r = sl_reader_on(entry + 8, 4);
            assert_memory_equal(entry, id.bytes, 8);
            assert_int_equal(sl_read_u32(&r), sl_crc32c(0, content + group * G, length));
        }
    }
}

static void groups__cut_anywhere__are_refused(void **state)
{
    (void)state;
    struct seen seen = {0};
    assert_int_equal(read_object(object, object_bytes, sizeof object, &seen), 0);
    size_t ends[4] = {16}, end = 16;
    for (unsigned i = 0; i < 3; i++)
        ends[i + 1] = end += seen.records[i].bytes;
    for (size_t cut = 0; cut < object_bytes; cut++) {
        bool whole = cut == ends[0] || cut == ends[1] || cut == ends[2];
        assert_int_equal(read_object(object, cut, sizeof object, &seen), whole ? 0 : SL_ERR_FORMAT);
    }
}

static void groups__malformed__are_refused(void **state)
{
    (void)state;
    struct seen seen = {0};
    static const struct {
        size_t at;
        uint8_t value;
        int code;
    } bad[] = {
        {0, 'X', SL_ERR_VERSION},              /* magic */
        {8, 2, SL_ERR_VERSION},                /* version */
        {13, 0, SL_ERR_VERSION},               /* another size of groups */
        {16, 0, SL_ERR_FORMAT},                /* no path: then all else is shifted */
        {18 + 12 + 8 + 2, 9, SL_ERR_FORMAT},   /* more length than groups */
        {18 + 12 + 8 + 7, 255, SL_ERR_FORMAT}, /* an absurd length */
        {18 + 12 + 16, 2, SL_ERR_FORMAT},      /* fewer groups than length */
        {18 + 12 + 19, 255, SL_ERR_FORMAT},    /* an absurd number of them */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint8_t saved = object[bad[i].at];
        object[bad[i].at] = bad[i].value;
        /* behind it there is enough for the decoder to be sure */
        int rc = read_object(object, sizeof object, sizeof object, &seen);
        object[bad[i].at] = saved;
        if (rc != bad[i].code)
            fail_msg("case %zu: %d", i, rc);
    }
    object[20] = '\0'; /* in the path */
    assert_int_equal(read_object(object, sizeof object, 100, &seen), SL_ERR_FORMAT);
    memset(object + 16, 0xff, 2);
    assert_int_equal(read_object(object, sizeof object, 100, &seen), SL_ERR_FORMAT);
}

static void groups__visitor_that_fails__ends_it(void **state)
{
    (void)state;
    struct sl_pg_groups_reader *reader;
    struct seen seen = {.answer = SL_ERR_WRITE};
    assert_int_equal(sl_pg_groups_reader_new(see, &seen, &reader, NULL), 0);
    assert_int_equal(sl_pg_groups_reader_feed(reader, object, object_bytes, NULL), SL_ERR_WRITE);
    assert_int_equal(seen.count, 1);
    sl_pg_groups_reader_free(reader);
}

static void groups__of_groups_not_read__are_the_earlier_ones(void **state)
{
    (void)state;
    struct seen seen = {0}, first = {0};
    struct sl_pg_groups g;
    uint8_t bytes[2000];
    assert_int_equal(read_object(object, object_bytes, sizeof object, &first), 0);
    struct sl_pg_based based = {
        .length = first.records[0].length, .group_count = 3, .groups = first.records[0].groups};
    assert_int_equal(sl_pg_groups_init(&g, SEED, NULL), 0);
    sl_pg_groups_begin(&g, "base/5/16384", 0);
    sl_pg_groups_feed(&g, content, G);
    sl_pg_groups_repeat(&g, &based, 1);
    sl_pg_groups_feed(&g, content + 2 * G, 100);
    assert_int_equal(sl_pg_groups_end(&g, 2 * G + 100, NULL), 0);
    size_t used = sl_pg_groups_head(bytes);
    memcpy(bytes + used, g.bytes, g.used);
    assert_int_equal(read_object(bytes, used + g.used, 3, &seen), 0);
    assert_memory_equal(seen.records[0].groups, first.records[0].groups, 3 * SL_PG_GROUP_ENTRY);
    sl_pg_groups_fini(&g);
}

/* --- a base ------------------------------------------------------------------------------------
 */

static void add_groups(struct sl_pg_base *base, uint32_t pack)
{
    struct seen seen = {0};
    size_t at = 16;
    assert_int_equal(read_object(object, object_bytes, sizeof object, &seen), 0);
    for (unsigned i = 0; i < seen.count; i++) {
        assert_int_equal(
            sl_pg_index_add(&base->groups,
                            sl_pg_index_key(seen.records[i].path, seen.records[i].offset), pack,
                            object + at, seen.records[i].bytes, NULL),
            0);
        at += seen.records[i].bytes;
    }
}

/* As on_entry() of incr_load.c writes it. */
static void add_entry(struct sl_pg_base *base, const char *path, uint64_t offset, uint32_t pack,
                      const struct sl_extent *extents, uint32_t count)
{
    uint8_t bytes[500];
    struct sl_writer w = sl_writer_on(bytes, sizeof bytes);
    sl_write_string(&w, path);
    sl_write_u64(&w, 2 * G + 100);
    sl_write_u32(&w, count);
    for (uint32_t i = 0; i < count; i++) {
        sl_write_u64(&w, extents[i].offset);
        sl_write_u64(&w, extents[i].length);
        sl_write_u64(&w, extents[i].pack_offset);
        sl_write_u32(&w, extents[i].pack);
    }
    assert_int_equal(sl_pg_index_add(&base->entries, sl_pg_index_key(path, offset), pack, bytes,
                                     sl_writer_used(&w), NULL),
                     0);
}

static const struct sl_extent three[] = {{0, G, 500, 3}, {G, G, 0, 0}, {2 * G, 100, 0, 9}};

static struct sl_pg_base *new_base(bool by_piece)
{
    struct sl_pg_base *base = sl_calloc(1, sizeof *base);
    assert_non_null(base);
    assert_int_equal(sl_pg_spool_new(&base->entries.spool, NULL), 0);
    assert_int_equal(sl_pg_spool_new(&base->groups.spool, NULL), 0);
    base->by_piece = by_piece;
    for (uint32_t number = 3; number <= 9; number += 3) {
        const struct sl_manifest_pack pack = {.number = number, .length = 1 << 20};
        assert_int_equal(sl_pg_base_add_pack(base, &pack), 0);
    }
    base->used = sl_calloc(base->pack_count, sizeof *base->used);
    return base;
}

static void end_base(struct sl_pg_base *base)
{
    assert_int_equal(sl_pg_index_end(&base->groups, NULL), 0);
    assert_int_equal(sl_pg_index_end(&base->entries, NULL), 0);
}

static void base__has_a_file__finds_its_groups_and_extents(void **state)
{
    (void)state;
    struct sl_pg_base *base = new_base(false);
    struct sl_pg_based based = {0};
    struct sl_extent extents[SL_PG_BASED_MOST + 4];
    uint32_t count = 0;
    add_groups(base, 0);
    add_entry(base, "base/5/16384", 0, 0, three, 3);
    end_base(base);
    assert_int_equal(sl_pg_base_find(base, "base/5/16384", 0, &based, NULL), 1);
    assert_int_equal(sl_pg_based_length(&based, 1), G);
    assert_int_equal(sl_pg_based_length(&based, 2), 100);
    assert_int_equal(sl_pg_based_length(&based, 3), 0);
    struct sl_id id = sl_digest(SEED, content + 2 * G, 100);
    assert_true(sl_pg_based_same(&based, 2, &id, 100));
    assert_false(sl_pg_based_same(&based, 2, &id, 99));
    assert_false(sl_pg_based_same(&based, 1, &id, G));
    assert_int_equal(sl_pg_based_crc(&based, 2), sl_crc32c(0, content + 2 * G, 100));

    assert_true(sl_pg_base_extents(base, &based, 10, 2 * G, extents, &count));
    assert_int_equal(count, 3);
    assert_int_equal(extents[0].pack_offset, 510);
    assert_int_equal(extents[1].pack, 0);
    assert_int_equal(extents[2].length, 10);
    assert_true(base->used[0] && !base->used[1] && base->used[2]);
    /* what comes next goes on in file and pack: one extent */
    assert_true(sl_pg_base_extents(base, &based, 2 * G + 10, 90, extents, &count));
    assert_int_equal(count, 3);
    assert_int_equal(extents[2].length, 100);
    assert_false(sl_pg_base_extents(base, &based, 2 * G, 101, extents, &count));

    assert_int_equal(sl_pg_base_find(base, "base/5/16384", G, &based, NULL), 0);
    assert_int_equal(sl_pg_base_find(base, "base/5/16385", 0, &based, NULL), 0);
    assert_int_equal(sl_pg_base_find(base, "empty", 0, &based, NULL), 0); /* no entry */
    sl_pg_based_fini(&based);
    sl_pg_base_free(base);
}

static void base__pack_it_does_not_name__is_not_referred_to(void **state)
{
    (void)state;
    static const struct sl_extent foreign[] = {{0, 2 * G + 100, 0, 4}};
    struct sl_pg_base *base = new_base(false);
    struct sl_pg_based based = {0};
    struct sl_extent extents[SL_PG_BASED_MOST];
    uint32_t count = 0;
    add_groups(base, 0);
    add_entry(base, "base/5/16384", 0, 0, foreign, 1);
    end_base(base);
    assert_int_equal(sl_pg_base_find(base, "base/5/16384", 0, &based, NULL), 1);
    assert_false(sl_pg_base_extents(base, &based, 0, G, extents, &count));
    sl_pg_based_fini(&based);
    sl_pg_base_free(base);
}

static void base__extent_behind_its_pack__is_not_referred_to(void **state)
{
    (void)state;
    static const struct sl_extent far[] = {{0, 2 * G, (1 << 20) - 2 * G, 3},
                                           {2 * G, 100, (1 << 20) - 99, 6}};
    struct sl_pg_base *base = new_base(false);
    struct sl_pg_based based = {0};
    struct sl_extent extents[SL_PG_BASED_MOST];
    uint32_t count = 0;
    add_groups(base, 0);
    add_entry(base, "base/5/16384", 0, 0, far, 2);
    end_base(base);
    assert_int_equal(sl_pg_base_find(base, "base/5/16384", 0, &based, NULL), 1);
    assert_true(sl_pg_base_extents(base, &based, 0, 2 * G, extents, &count));
    assert_false(sl_pg_base_extents(base, &based, 2 * G, 100, extents, &count));
    assert_true(base->used[0] && !base->used[1]);
    sl_pg_based_fini(&based);
    sl_pg_base_free(base);
}

static void base__of_packs__mixes_no_two_packs(void **state)
{
    (void)state;
    struct sl_pg_base *base = new_base(true);
    struct sl_pg_based based = {0};
    add_groups(base, 3);
    add_entry(base, "base/5/16384", 0, 6, three, 3);
    end_base(base);
    assert_int_equal(sl_pg_base_find(base, "base/5/16384", 0, &based, NULL), 0);
    sl_pg_based_fini(&based);
    sl_pg_base_free(base);
    base = new_base(true);
    add_groups(base, 3);
    add_groups(base, 6);
    add_entry(base, "base/5/16384", 0, 3, three, 3);
    add_entry(base, "base/5/16384", 0, 6, three, 3);
    end_base(base);
    assert_int_equal(sl_pg_base_find(base, "base/5/16384", 0, &based, NULL), 1);
    assert_int_equal(based.groups_pack, 6);
    assert_int_equal(based.entry_pack, 6);
    sl_pg_based_fini(&based);
    sl_pg_base_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(groups__written__are_read, setup),
        cmocka_unit_test_setup(groups__cut_anywhere__are_refused, setup),
        cmocka_unit_test_setup(groups__malformed__are_refused, setup),
        cmocka_unit_test_setup(groups__visitor_that_fails__ends_it, setup),
        cmocka_unit_test_setup(groups__of_groups_not_read__are_the_earlier_ones, setup),
        cmocka_unit_test_setup(base__has_a_file__finds_its_groups_and_extents, setup),
        cmocka_unit_test_setup(base__pack_it_does_not_name__is_not_referred_to, setup),
        cmocka_unit_test_setup(base__extent_behind_its_pack__is_not_referred_to, setup),
        cmocka_unit_test_setup(base__of_packs__mixes_no_two_packs, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
