/* The checker of xbstream: whole streams in any pieces, and every way of not being whole. */
#include "mysql/xbstream.h"

#include "core/base/alloc.h"
#include "core/wire/cursor.h"
#include "tests/unit/mysql/cmocka_all.h"

#include <isa-l.h>
#include <string.h>

#define ROOM 4096

static void put_head(struct sl_writer *w, char type, const char *path)
{
    sl_write_bytes(w, "XBSTCK01", 8);
    sl_write_u8(w, 0);
    sl_write_u8(w, (uint8_t)type);
    sl_write_u32(w, (uint32_t)strlen(path));
    sl_write_bytes(w, path, strlen(path));
}

static void put_payload(struct sl_writer *w, const char *path, uint64_t offset, const char *text)
{
    put_head(w, 'P', path);
    sl_write_u64(w, strlen(text));
    sl_write_u64(w, offset);
    sl_write_u32(w, crc32_gzip_refl(0, (const unsigned char *)text, strlen(text)));
    sl_write_bytes(w, text, strlen(text));
}

static void put_sparse(struct sl_writer *w, const char *path, uint64_t offset, uint32_t skip,
                       const char *text)
{
    uint8_t map[8];
    struct sl_writer m = sl_writer_on(map, sizeof map);
    sl_write_u32(&m, skip);
    sl_write_u32(&m, (uint32_t)strlen(text));
    put_head(w, 'S', path);
    sl_write_u32(w, 1);
    sl_write_u64(w, strlen(text));
    sl_write_u64(w, offset);
    uint32_t crc = crc32_gzip_refl(0, map, sizeof map);
    sl_write_u32(w, crc32_gzip_refl(crc, (const unsigned char *)text, strlen(text)));
    sl_write_bytes(w, map, sizeof map);
    sl_write_bytes(w, text, strlen(text));
}

/* two files with their chunks mixed, one empty, one sparse */
static size_t sample(uint8_t bytes[ROOM])
{
    struct sl_writer w = sl_writer_on(bytes, ROOM);
    put_payload(&w, "ibdata1", 0, "first page");
    put_payload(&w, "test/t1.ibd", 0, "table");
    put_payload(&w, "ibdata1", 10, ", second page");
    put_head(&w, 'E', "ibdata1");
    put_sparse(&w, "test/t2.ibd", 0, 4096, "behind a hole");
    put_sparse(&w, "test/t2.ibd", 4109, 10, "and one more");
    put_head(&w, 'E', "test/t2.ibd");
    put_head(&w, 'E', "test/t1.ibd");
    put_payload(&w, "info", 0, "binlog.000001\t4");
    put_payload(&w, "info", 15, "2\n");
    put_head(&w, 'E', "info");
    put_head(&w, 'E', "test/db.opt");
    assert_false(w.failed);
    return sl_writer_used(&w);
}

static int check(const uint8_t *bytes, size_t count, size_t piece, struct sl_err *err)
{
    struct sl_my_xbstream *s;
    int rc = sl_my_xbstream_new(NULL, &s, err);
    assert_int_equal(rc, 0);
    for (size_t at = 0; !rc && at < count; at += piece)
        rc = sl_my_xbstream_take(s, bytes + at, count - at < piece ? count - at : piece, err);
    if (!rc)
        rc = sl_my_xbstream_end(s, err);
    sl_my_xbstream_free(s);
    return rc;
}

static void xbstream__whole__in_pieces_of_any_size(void **state)
{
    (void)state;
    uint8_t bytes[ROOM];
    size_t count = sample(bytes);
    for (size_t piece = 1; piece <= count; piece++)
        assert_int_equal(check(bytes, count, piece, NULL), 0);
}

static void xbstream__totals_and_kept_files(void **state)
{
    (void)state;
    static const char *const keep[] = {"info", "none", "test/db.opt", NULL};
    uint8_t bytes[ROOM];
    size_t count = sample(bytes);
    struct sl_my_xbstream *s;
    struct sl_my_xb_totals totals;
    assert_int_equal(sl_my_xbstream_new(keep, &s, NULL), 0);
    assert_int_equal(sl_my_xbstream_take(s, bytes, count, NULL), 0);
    assert_int_equal(sl_my_xbstream_end(s, NULL), 0);
    sl_my_xbstream_totals(s, &totals);
    assert_int_equal(totals.bytes, count);
    assert_int_equal(totals.chunks, 12);
    assert_int_equal(totals.files, 5);
    assert_int_equal(totals.payload, 10 + 5 + 13 + 13 + 12 + 15 + 2);
    assert_string_equal(sl_my_xbstream_kept(s, "info"), "binlog.000001\t42\n");
    assert_string_equal(sl_my_xbstream_kept(s, "test/db.opt"), "");
    assert_null(sl_my_xbstream_kept(s, "none"));
    assert_null(sl_my_xbstream_kept(s, "ibdata1"));
    sl_my_xbstream_free(s);
}

/* Also where a chunk ends, which the tools' own reader takes for whole. */
static void xbstream__cut_anywhere__fails(void **state)
{
    (void)state;
    uint8_t bytes[ROOM];
    struct sl_err err;
    size_t count = sample(bytes), whole = 0, last = count - 14 - strlen("test/db.opt");
    for (size_t cut = 0; cut < count; cut++) {
        int rc = check(bytes, cut, ROOM, &err);
        if (cut == last) { /* all files that began have ended: nothing can tell */
            assert_int_equal(rc, 0);
            whole++;
        } else if (rc) {
            assert_int_equal(rc, SL_ERR_FORMAT);
        } else {
            whole++;
        }
    }
    assert_int_equal(whole, 2); /* before test/db.opt, and before info */
}

static void xbstream__any_bit_flipped__fails(void **state)
{
    (void)state;
    uint8_t bytes[ROOM];
    size_t count = sample(bytes), passed = 0;
    for (size_t at = 0; at < count; at++)
        for (unsigned bit = 0; bit < 8; bit++) {
            bytes[at] ^= (uint8_t)(1u << bit);
            passed += check(bytes, count, ROOM, NULL) == 0;
            bytes[at] ^= (uint8_t)(1u << bit);
        }
    /* flags say nothing but "ignorable" (8 bits of 12 chunks); the name of a file that has nothing
     * but its end is nobody's */
    assert_in_range(passed, 0, 12 * 8 + strlen("test/db.opt") * 8);
}

static void expect_bad(const struct sl_writer *w, int code)
{
    assert_false(w->failed);
    assert_int_equal(check(w->start, sl_writer_used(w), ROOM, NULL), code);
}

static void xbstream__wrong_in_itself__fails(void **state)
{
    (void)state;
    static const char *const paths[] = {"/etc/passwd", "..", "../x", "a/../../x", "a/.."};
    uint8_t bytes[ROOM];
    struct sl_writer w = sl_writer_on(bytes, ROOM);
    put_payload(&w, "a", 1, "does not begin at 0");
    put_head(&w, 'E', "a");
    expect_bad(&w, SL_ERR_FORMAT);
    w = sl_writer_on(bytes, ROOM);
    put_payload(&w, "a", 0, "twice");
    put_payload(&w, "a", 0, "twice");
    put_head(&w, 'E', "a");
    expect_bad(&w, SL_ERR_FORMAT);
    w = sl_writer_on(bytes, ROOM);
    put_head(&w, 'Q', "a");
    expect_bad(&w, SL_ERR_FORMAT);
    w = sl_writer_on(bytes, ROOM);
    put_head(&w, 'P', "a");
    sl_write_u64(&w, UINT64_MAX);
    sl_write_u64(&w, 0);
    sl_write_u32(&w, 0);
    expect_bad(&w, SL_ERR_FORMAT);
    w = sl_writer_on(bytes, ROOM);
    sl_write_bytes(&w, "not an xbstream at all, but long enough", 39);
    expect_bad(&w, SL_ERR_FORMAT);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        w = sl_writer_on(bytes, ROOM);
        put_head(&w, 'E', paths[i]);
        expect_bad(&w, SL_ERR_FORMAT);
    }
    assert_int_equal(check(bytes, 0, 1, NULL), SL_ERR_FORMAT);
}

static void xbstream__after_a_failure__fails_for_good(void **state)
{
    (void)state;
    uint8_t bytes[ROOM];
    size_t count = sample(bytes);
    struct sl_my_xbstream *s;
    assert_int_equal(sl_my_xbstream_new(NULL, &s, NULL), 0);
    assert_int_equal(sl_my_xbstream_take(s, "nonsense nonsense", 17, NULL), SL_ERR_FORMAT);
    assert_int_equal(sl_my_xbstream_take(s, bytes, count, NULL), SL_ERR_FORMAT);
    assert_int_equal(sl_my_xbstream_end(s, NULL), SL_ERR_FORMAT);
    sl_my_xbstream_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(xbstream__whole__in_pieces_of_any_size),
        cmocka_unit_test(xbstream__totals_and_kept_files),
        cmocka_unit_test(xbstream__cut_anywhere__fails),
        cmocka_unit_test(xbstream__any_bit_flipped__fails),
        cmocka_unit_test(xbstream__wrong_in_itself__fails),
        cmocka_unit_test(xbstream__after_a_failure__fails_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
