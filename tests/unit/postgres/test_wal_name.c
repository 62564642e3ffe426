/* Names of WAL files: what is one, what is none, and which object it becomes. */
#include "postgres/wal_name.h"

#include "tests/unit/postgres/cmocka_all.h"

#include <string.h>

static void wal_name_parse__each_kind__is_known(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum sl_pg_wal_kind kind;
        const char *object;
    } cases[] = {
        {"000000010000000A000000FF", SL_PG_SEGMENT,
         "wal/42/00000001/000000010000000A/000000010000000A000000FF"},
        {"000000010000000A00000FFF.partial", SL_PG_PARTIAL,
         "wal/42/00000001/000000010000000A/000000010000000A00000FFF.partial"},
        {"000000010000000000000002.00000028.backup", SL_PG_BACKUP,
         "wal/42/00000001/0000000100000000/000000010000000000000002.00000028.backup"},
        {"0000001F.history", SL_PG_HISTORY, "wal/42/0000001F/0000001F.history"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_pg_wal_name name;
        char object[512];
        assert_int_equal(sl_pg_wal_name_parse(cases[i].text, &name, NULL), 0);
        assert_int_equal(name.kind, cases[i].kind);
        assert_string_equal(name.text, cases[i].text);
        sl_pg_wal_object(42, &name, object, sizeof object);
        assert_string_equal(object, cases[i].object);
    }
}

static void wal_name_parse__anything_else__fails(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "0000000100000000",
        "00000001000000000000000",
        "0000000100000000000000020",
        "00000001000000000000000g",
        "00000001000000000000000a", /* the server writes upper case */
        "000000000000000000000002", /* timeline 0 */
        "00000000.history",
        "00000001.History",
        "00000001.history.tmp",
        "000000010000000000001000", /* beyond 4 GiB of 1 MiB segments */
        "000000010000000000000002.partial.tmp",
        "000000010000000000000002.0000028.backup",
        "000000010000000000000002.0000002G.backup",
        "000000010000000000000002.00000028.backup2",
        "../00000001000000000000000200",
        "RECOVERYXLOG",
        "pg_wal/RECOVERYXLOG",
        "000000010000000000000002.00000028.backup.000000000000000000000000000000000000000",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sl_pg_wal_name name = {.timeline = 77};
        struct sl_err err = {0};
        assert_int_equal(sl_pg_wal_name_parse(bad[i], &name, &err), SL_ERR_USAGE);
        assert_int_equal(name.timeline, 77);
        assert_non_null(strstr(err.msg, "not the name of a WAL file"));
    }
}

static void segment_numbers__every_size__go_there_and_back(void **state)
{
    (void)state;
    for (uint32_t bytes = SL_PG_SEGMENT_MIN; bytes <= SL_PG_SEGMENT_MAX && bytes; bytes <<= 1) {
        assert_true(sl_pg_segment_bytes_valid(bytes));
        assert_false(sl_pg_segment_bytes_valid(bytes + 1));
        static const uint64_t lsns[] = {0, 1, 0xFFFFFFFF, 0x100000000, 0x12345678ABCDEF};
        for (size_t i = 0; i < sizeof lsns / sizeof *lsns; i++) {
            uint64_t number = sl_pg_lsn_segment(lsns[i], bytes);
            struct sl_pg_wal_name made, parsed;
            sl_pg_segment_name(3, number, bytes, &made);
            assert_int_equal(sl_pg_wal_name_parse(made.text, &parsed, NULL), 0);
            assert_int_equal(sl_pg_segment_number(&parsed, bytes), number);
            assert_int_equal((uint64_t)parsed.high, lsns[i] >> 32);
        }
    }
    assert_false(sl_pg_segment_bytes_valid(SL_PG_SEGMENT_MIN / 2));
    assert_false(sl_pg_segment_bytes_valid(2ull * SL_PG_SEGMENT_MAX));
    assert_int_equal(sl_pg_lsn_segment_before(16 << 20, 16 << 20), 0);
    assert_int_equal(sl_pg_lsn_segment_before((16 << 20) + 1, 16 << 20), 1);
}

static void lsn_parse__text__is_read_strictly(void **state)
{
    (void)state;
    uint64_t lsn = 0;
    char text[SL_PG_LSN_BYTES];
    assert_int_equal(sl_pg_lsn_parse("1A/2b000028", &lsn, NULL), 0);
    assert_int_equal(lsn, 0x1A2B000028);
    assert_string_equal(sl_pg_lsn_text(lsn, text), "1A/2B000028");
    static const char *const bad[] = {"",    "/",    "1",           "1/",
                                      "/1",  "1/1 ", "123456789/0", "0/123456789",
                                      "x/0", "0/x",  "1//1",        " 1/1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sl_pg_lsn_parse(bad[i], &lsn, NULL), SL_ERR_FORMAT);
    assert_int_equal(lsn, 0x1A2B000028);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wal_name_parse__each_kind__is_known),
        cmocka_unit_test(wal_name_parse__anything_else__fails),
        cmocka_unit_test(segment_numbers__every_size__go_there_and_back),
        cmocka_unit_test(lsn_parse__text__is_read_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
