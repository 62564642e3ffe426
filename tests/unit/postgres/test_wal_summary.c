/* WAL summaries: rows that the server gives, gaps, and which groups of which file may have changed.
 */
#include "postgres/wal_summary_internal.h"

#include "tests/unit/postgres/cmocka_all.h"

#define ROWS(...)                                                                                  \
    (const char *const[][SL_PG_SUMMARY_COLUMNS])                                                   \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static struct sl_pg_summary *make(const char *const rows[][SL_PG_SUMMARY_COLUMNS], size_t count)
{
    struct sl_pg_summary *s = sl_pg_summary_new();
    assert_non_null(s);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(sl_pg_summary_add(s, rows[i], NULL), 0);
    sl_pg_summary_end(s);
    return s;
}

static bool changed(const struct sl_pg_summary *s, const char *path, uint32_t group)
{
    struct sl_pg_summary_file file;
    return !sl_pg_summary_find(s, path, &file) || sl_pg_summary_changed(s, &file, group);
}

static void summary__names_groups__only_they_changed(void **state)
{
    (void)state;
    struct sl_pg_summary *s =
        make(ROWS({"1663", "5", "16384", "0", "70000"}, {"1663", "5", "16384", "0", "3"},
                  {"1664", "0", "1262", "0", "0"}, {"16400", "5", "16390", "0", "1"}),
             4);
    assert_true(changed(s, "base/5/16384", 3));
    assert_true(
        changed(s, "base/5/16384.2", 70000)); /* groups are counted from the first segment */
    assert_false(changed(s, "base/5/16384", 2));
    assert_false(changed(s, "base/5/16384", 4));
    assert_false(changed(s, "base/6/16384", 3));
    assert_false(changed(s, "base/5/1638", 3));
    assert_true(changed(s, "global/1262", 0));
    assert_false(changed(s, "global/1263", 0));
    assert_true(changed(s, "pg_tblspc/16400/PG_17_202406281/5/16390", 1));
    assert_false(changed(s, "pg_tblspc/16401/PG_17_202406281/5/16390", 1));
    assert_false(changed(s, "base/5/16390", 1));
    sl_pg_summary_free(s);
}

static void summary__tells_nothing_of_a_file__it_is_read(void **state)
{
    (void)state;
    struct sl_pg_summary *s = make(ROWS({"1663", "5", "16384", "0", "3"}), 1);
    struct sl_pg_summary_file file;
    static const char *const others[] = {
        "base/5/16384_fsm",
        "base/5/16384_vm",
        "base/5/16384_vm.1",
        "base/5/16384_init",
        "base/5/PG_VERSION",
        "pg_xact/0000",
        "16384",
        "log/16384",
        "base/5/t3_16384",
        "global/pg_control",
        "base/pgsql_tmp/1",
        "pg_multixact/members/0000",
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (sl_pg_summary_find(s, others[i], &file))
            fail_msg("%s", others[i]);
    sl_pg_summary_free(s);
}

static void summary__has_a_limit__all_behind_it_changed(void **state)
{
    (void)state;
    struct sl_pg_summary *s =
        make(ROWS({"1663", "5", "16384", "0", "2"}, {"1663", "5", "16384", "1", "9"},
                  {"1663", "5", "16384", "1", "5"}, {"1663", "5", "16385", "0", "1"}),
             4);
    assert_true(changed(s, "base/5/16384", 2));
    assert_false(changed(s, "base/5/16384", 4));
    for (uint32_t group = 5; group < 12; group++) /* the lowest limit of several */
        assert_true(changed(s, "base/5/16384", group));
    assert_true(changed(s, "base/5/16384.7", UINT32_MAX));
    assert_false(changed(s, "base/5/16385", 5));
    sl_pg_summary_free(s);
}

static void summary__has_a_copied_database__all_of_it_is_read(void **state)
{
    (void)state;
    struct sl_pg_summary *s =
        make(ROWS({"1663", "16500", "0", "1", "0"}, {"1663", "16500", "16384", "0", "3"}), 2);
    assert_true(changed(s, "base/16500/16384", 7));
    assert_true(changed(s, "base/16500/1259", 0));
    assert_false(changed(s, "base/5/1259", 0));
    assert_false(changed(s, "pg_tblspc/16400/PG_17_202406281/16500/1259", 0));
    sl_pg_summary_free(s);
}

static void row__malformed__is_refused(void **state)
{
    (void)state;
    struct sl_pg_summary *s = sl_pg_summary_new();
    const char *const good[] = {"1663", "5", "16384", "0", "4294967295"};
    static const char *const bad[] = {
        NULL, "", "-1", "+1", "1 ", "x", "4294967296", "99999999999999999999999", "1.0"};
    assert_int_equal(sl_pg_summary_add(s, good, NULL), 0);
    for (size_t column = 0; column < SL_PG_SUMMARY_COLUMNS; column++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            const char *row[SL_PG_SUMMARY_COLUMNS];
            for (size_t j = 0; j < SL_PG_SUMMARY_COLUMNS; j++)
                row[j] = j == column ? bad[i] : good[j];
            assert_int_equal(sl_pg_summary_add(s, row, NULL), SL_ERR_FORMAT);
        }
    const char *const flag[] = {"1663", "5", "16384", "2", "1"};
    assert_int_equal(sl_pg_summary_add(s, flag, NULL), SL_ERR_FORMAT);
    sl_pg_summary_free(s);
}

static void summaries__in_order__go_on_without_a_gap(void **state)
{
    (void)state;
    uint64_t reached = 0x5000028;
    assert_true(sl_pg_summary_goes_on(&reached, "0/4000000", "0/6000000"));
    assert_int_equal(reached, 0x6000000);
    assert_true(sl_pg_summary_goes_on(&reached, "0/5000000", "0/5500000")); /* within */
    assert_int_equal(reached, 0x6000000);
    assert_true(sl_pg_summary_goes_on(&reached, "0/6000000", "1/10"));
    assert_false(sl_pg_summary_goes_on(&reached, "1/11", "2/0"));
    assert_int_equal(reached, 0x100000010);
    assert_false(sl_pg_summary_goes_on(&reached, NULL, "2/0"));
    assert_false(sl_pg_summary_goes_on(&reached, "0/0", "2-0"));
    assert_int_equal(reached, 0x100000010);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(summary__names_groups__only_they_changed),
        cmocka_unit_test(summary__tells_nothing_of_a_file__it_is_read),
        cmocka_unit_test(summary__has_a_limit__all_behind_it_changed),
        cmocka_unit_test(summary__has_a_copied_database__all_of_it_is_read),
        cmocka_unit_test(row__malformed__is_refused),
        cmocka_unit_test(summaries__in_order__go_on_without_a_gap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
