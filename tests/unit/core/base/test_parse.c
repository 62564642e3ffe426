/* Sizes and durations: what reads, and what must not. */
#include "core/base/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void parse_bytes__units__read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } cases[] = {
        {"0", 0},
        {"4096", 4096},
        {"1B", 1},
        {"64MiB", 64 << 20},
        {"64M", 64 << 20},
        {"64mib", 64 << 20},
        {"1GB", 1000000000},
        {"1 GB", 1000000000},
        {"5k", 5120},
        {"5kB", 5000},
        {"100MB/s", 100000000},
        {"3TiB", 3ll << 40},
        {"8191PiB", 8191ll << 50},
        {"9223372036854775807", INT64_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t bytes = -1;
        assert_int_equal(sl_parse_bytes(cases[i].text, &bytes, NULL), 0);
        assert_int_equal(bytes, cases[i].bytes);
    }
}

static void parse_bytes__nonsense__fails(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        " ",
        "-1",
        "+1",
        "x",
        "MiB",
        "1.5GiB",
        "1 2",
        "0x10",
        "64MiBs",
        "64MiB/h",
        "/s",
        "8192PiB" /* 2^63 */,
        "9223372036854775808",
        "99999999999999999999999999",
        "1e3",
        "1\n",
        "1                                                                           MB",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t bytes = 77;
        struct sl_err err;
        assert_int_equal(sl_parse_bytes(cases[i], &bytes, &err), SL_ERR_USAGE);
        assert_int_equal(bytes, 77);
        assert_true(err.hint[0] != '\0');
    }
}

static void parse_duration__units__read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } cases[] = {
        {"500ms", 500},  {"30s", 30000},    {"30", 30000},     {"5min", 300000}, {"5m", 300000},
        {"2h", 7200000}, {"7d", 604800000}, {"1w", 604800000}, {"0", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t ms = -1;
        assert_int_equal(sl_parse_duration_ms(cases[i].text, &ms, NULL), 0);
        assert_int_equal(ms, cases[i].ms);
    }
}

static void parse_duration__nonsense__fails(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "", "s", "-5s", "5 fortnights", "1.5s", "106751991168d", "9223372036854775807"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t ms = 77;
        assert_int_equal(sl_parse_duration_ms(cases[i], &ms, NULL), SL_ERR_USAGE);
        assert_int_equal(ms, 77);
    }
}

static void bytes_text__sizes__three_digits(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {999, "999 B"},
        {1000, "1.00 kB"},
        {9994, "9.99 kB"},
        {9996, "10.0 kB"},
        {123456, "123.5 kB"},
        {999949, "999.9 kB"},
        {999950, "1.00 MB"},
        {2100000000, "2.10 GB"},
        {UINT64_MAX, "18.4 EB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[16];
        assert_string_equal(sl_bytes_text(cases[i].bytes, text, sizeof text), cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_bytes__units__read),
        cmocka_unit_test(parse_bytes__nonsense__fails),
        cmocka_unit_test(parse_duration__units__read),
        cmocka_unit_test(parse_duration__nonsense__fails),
        cmocka_unit_test(bytes_text__sizes__three_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
