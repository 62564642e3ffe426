/* Cursors: byte order, bounds, what a failed cursor yields. */
#include "core/wire/cursor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void cursor__integers__are_little_endian(void **state)
{
    (void)state;
    uint8_t bytes[15];
    struct sl_writer w = sl_writer_on(bytes, sizeof bytes);
    sl_write_u8(&w, 0x01);
    sl_write_u16(&w, 0x0203);
    sl_write_u32(&w, 0x04050607);
    sl_write_u64(&w, 0x08090a0b0c0d0e0full);
    assert_false(w.failed);
    assert_int_equal(sl_writer_used(&w), 15);
    const uint8_t expected[15] = {1,    3,    2,    7,    6,    5,    4,   0x0f,
                                  0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09, 0x08};
    assert_memory_equal(bytes, expected, sizeof bytes);

    struct sl_reader r = sl_reader_on(bytes, sizeof bytes);
    assert_int_equal(sl_read_u8(&r), 0x01);
    assert_int_equal(sl_read_u16(&r), 0x0203);
    assert_int_equal(sl_read_u32(&r), 0x04050607);
    assert_false(sl_reader_done(&r));
    assert_true(sl_read_u64(&r) == 0x08090a0b0c0d0e0full);
    assert_true(sl_reader_done(&r));
}

static void writer__out_of_room__fails_and_stays_so(void **state)
{
    (void)state;
    uint8_t bytes[4] = {9, 9, 9, 9};
    struct sl_writer w = sl_writer_on(bytes, 3);
    sl_write_u16(&w, 1);
    sl_write_u32(&w, 2);
    assert_true(w.failed);
    sl_write_u8(&w, 3); /* there would be room for it */
    assert_int_equal(sl_writer_used(&w), 2);
    assert_int_equal(bytes[2], 9);
    assert_int_equal(bytes[3], 9);
}

static void reader__out_of_bytes__yields_zeros_and_stays_so(void **state)
{
    (void)state;
    const uint8_t bytes[3] = {1, 2, 3};
    struct sl_reader r = sl_reader_on(bytes, sizeof bytes);
    uint8_t into[4] = {9, 9, 9, 9};
    assert_int_equal(sl_read_u32(&r), 0);
    assert_true(r.failed);
    assert_int_equal(sl_read_u8(&r), 0);
    assert_int_equal(sl_reader_left(&r), 0);
    assert_null(sl_read_bytes(&r, 1));
    sl_read_into(&r, into, sizeof into);
    assert_int_equal(into[0] | into[3], 0);
    assert_false(sl_reader_done(&r));
}

static void reader__nothing__is_done(void **state)
{
    (void)state;
    struct sl_reader r = sl_reader_on(NULL, 0);
    assert_true(sl_reader_done(&r));
    sl_read_into(&r, NULL, 0);
    assert_true(sl_reader_done(&r));
    assert_int_equal(sl_read_u8(&r), 0);
    assert_true(r.failed);
}

static void string__fits_exactly__or_fails(void **state)
{
    (void)state;
    uint8_t bytes[6];
    struct sl_writer w = sl_writer_on(bytes, sizeof bytes);
    sl_write_string(&w, "abcd");
    assert_false(w.failed);
    char to[5];
    struct sl_reader r = sl_reader_on(bytes, sizeof bytes);
    sl_read_string(&r, to, sizeof to);
    assert_true(sl_reader_done(&r));
    assert_string_equal(to, "abcd");

    r = sl_reader_on(bytes, sizeof bytes);
    sl_read_string(&r, to, 4); /* no room for the NUL */
    assert_true(r.failed);
    assert_string_equal(to, "");

    r = sl_reader_on(bytes, 5); /* cut short */
    sl_read_string(&r, to, sizeof to);
    assert_true(r.failed);

    bytes[3] = 0; /* a NUL inside would hide what follows */
    r = sl_reader_on(bytes, sizeof bytes);
    sl_read_string(&r, to, sizeof to);
    assert_true(r.failed);
}

static void string__of_64_KiB__cannot_be_written(void **state)
{
    (void)state;
    char *text = malloc(65537);
    uint8_t *bytes = malloc(70000);
    memset(text, 'x', 65536);
    text[65536] = '\0';
    struct sl_writer w = sl_writer_on(bytes, 70000);
    sl_write_string(&w, text);
    assert_true(w.failed);
    free(text);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cursor__integers__are_little_endian),
        cmocka_unit_test(writer__out_of_room__fails_and_stays_so),
        cmocka_unit_test(reader__out_of_bytes__yields_zeros_and_stays_so),
        cmocka_unit_test(reader__nothing__is_done),
        cmocka_unit_test(string__fits_exactly__or_fails),
        cmocka_unit_test(string__of_64_KiB__cannot_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
