/* What backup tools say of their backups. */
#include "mysql/coordinates.h"

#include "tests/unit/mysql/cmocka_all.h"

#include <string.h>

#define INFO                                                                                       \
    "uuid = 9eea4090-ed0c-11f1-af0d-02fc00000001\nname = \ntool_name = mariadb-backup\n"           \
    "tool_command = --backup --stream=xbstream\ntool_version = 10.11.19-MariaDB\n"                 \
    "server_version = 10.11.19-MariaDB-log\nbinlog_pos = filename 'binlog.000001', position "      \
    "'325', GTID of the last change ''\ninnodb_from_lsn = 0\ninnodb_to_lsn = 44744\npartial = N\n" \
    "incremental = N\nformat = mbstream\ncompressed = N\n"

static struct sl_my_coordinates c; /* too big for a stack of threads */

static void coordinates__mariadb(void **state)
{
    (void)state;
    assert_int_equal(sl_my_coordinates_parse(INFO, "binlog.000002\t859\t0-7-3\n", &c, NULL), 0);
    assert_string_equal(c.tool, "mariadb-backup");
    assert_string_equal(c.tool_version, "10.11.19-MariaDB");
    assert_string_equal(c.server_version, "10.11.19-MariaDB-log");
    assert_int_equal(c.to_lsn, 44744);
    assert_string_equal(c.binlog_file, "binlog.000002");
    assert_int_equal(c.binlog_position, 859);
    assert_string_equal(c.gtid, "0-7-3");
    assert_false(c.incremental || c.partial || c.compressed || c.encrypted);
}

static void coordinates__mysql_gtid_set_over_lines(void **state)
{
    (void)state;
    static const char *const binlog =
        "binlog.000007\t197\t6a3c57e2-0000-11f1-af0d-02fc00000001:1-5,\n"
        "7b3c57e2-0000-11f1-af0d-02fc00000001:1-9\n";
    assert_int_equal(sl_my_coordinates_parse(INFO, binlog, &c, NULL), 0);
    assert_string_equal(c.gtid, "6a3c57e2-0000-11f1-af0d-02fc00000001:1-5,"
                                "7b3c57e2-0000-11f1-af0d-02fc00000001:1-9");
}

static void coordinates__no_binary_log(void **state)
{
    (void)state;
    assert_int_equal(sl_my_coordinates_parse(INFO, NULL, &c, NULL), 0);
    assert_string_equal(c.binlog_file, "");
    assert_int_equal(sl_my_coordinates_parse(INFO, "", &c, NULL), 0);
    assert_string_equal(c.binlog_file, "");
    assert_int_equal(sl_my_coordinates_parse(INFO, "binlog.000001\t4\n", &c, NULL), 0);
    assert_string_equal(c.gtid, "");
}

static void coordinates__what_cannot_be_read__fails(void **state)
{
    (void)state;
    static const char *const binlogs[] = {
        "\t4\t\n",        "binlog.000001\n",       "binlog.1\tx\n",
        "binlog.1\t-4\n", "../binlog.1\t4\t0-1-1", "a\t99999999999999999999\n"};
    static const char *const infos[] = {"", "\n", "tool_name = x\n",
                                        "tool_name = x\ntool_version = 1\nserver_version = "
                                        "1\ninnodb_from_lsn = 0\ninnodb_to_lsn = y\n"};
    for (size_t i = 0; i < sizeof binlogs / sizeof *binlogs; i++)
        assert_int_equal(sl_my_coordinates_parse(INFO, binlogs[i], &c, NULL), SL_ERR_FORMAT);
    for (size_t i = 0; i < sizeof infos / sizeof *infos; i++)
        assert_int_equal(sl_my_coordinates_parse(infos[i], NULL, &c, NULL), SL_ERR_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coordinates__mariadb),
        cmocka_unit_test(coordinates__mysql_gtid_set_over_lines),
        cmocka_unit_test(coordinates__no_binary_log),
        cmocka_unit_test(coordinates__what_cannot_be_read__fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
