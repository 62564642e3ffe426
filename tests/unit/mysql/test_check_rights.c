/* Lines of SHOW GRANTS as servers write them. */
#include "mysql/check_rights.h"

#include "tests/unit/mysql/cmocka_all.h"

#include <string.h>

static const char *missing_after(bool mariadb, const char *const *grants)
{
    static struct sl_my_rights rights;
    rights = (struct sl_my_rights){0};
    for (; *grants; grants++)
        sl_my_rights_take(&rights, mariadb, *grants);
    sl_my_rights_judge(&rights, mariadb);
    return rights.missing;
}

#define MISSING(mariadb, ...) missing_after(mariadb, (const char *const[]){__VA_ARGS__, NULL})

static void rights__mariadb_lines__understood(void **state)
{
    (void)state;
    assert_string_equal(
        MISSING(true,
                "GRANT RELOAD, PROCESS, LOCK TABLES, BINLOG MONITOR, REPLICATION SLAVE ON *.* "
                "TO `sluice`@`localhost` IDENTIFIED BY PASSWORD '*14E6'"),
        "");
    assert_string_equal(MISSING(true, "GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost`"), "");
    assert_string_equal(
        MISSING(true, "GRANT RELOAD, PROCESS, LOCK TABLES, REPLICATION CLIENT, REPLICATION SLAVE "
                      "ON *.* TO `a`@`%`"),
        ""); /* before 10.5 */
    assert_string_equal(MISSING(true, "GRANT USAGE ON *.* TO `a`@`%`"),
                        "RELOAD, PROCESS, LOCK TABLES, BINLOG MONITOR, REPLICATION SLAVE");
    assert_string_equal(MISSING(true, "GRANT `backups` TO `a`@`%`",
                                "GRANT RELOAD ON *.* TO `backups`",
                                "GRANT PROCESS, LOCK TABLES ON *.* TO `a`@`%`"),
                        "BINLOG MONITOR, REPLICATION SLAVE");
}

static void rights__of_one_database_or_longer_names__do_not_count(void **state)
{
    (void)state;
    assert_string_equal(MISSING(true, "GRANT ALL PRIVILEGES ON `shop`.* TO `a`@`%`"),
                        "RELOAD, PROCESS, LOCK TABLES, BINLOG MONITOR, REPLICATION SLAVE");
    assert_string_equal(MISSING(true, "GRANT REPLICATION SLAVE ADMIN, BINLOG MONITOR, PROCESS, "
                                      "LOCK TABLES, RELOAD ON *.* TO `a`@`%`"),
                        "REPLICATION SLAVE");
    assert_string_equal(MISSING(true, "", "GRANT ", "nonsense ON *.* TO x", "GRANT  ON *.* TO ,"),
                        "RELOAD, PROCESS, LOCK TABLES, BINLOG MONITOR, REPLICATION SLAVE");
}

static void rights__mysql_lines__dynamic_ones_apart(void **state)
{
    (void)state;
    assert_string_equal(
        MISSING(false,
                "GRANT RELOAD, PROCESS, LOCK TABLES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* "
                "TO `a`@`localhost`",
                "GRANT BACKUP_ADMIN ON *.* TO `a`@`localhost`"),
        "");
    assert_string_equal(MISSING(false, "GRANT RELOAD, PROCESS, LOCK TABLES, REPLICATION SLAVE, "
                                       "REPLICATION CLIENT ON *.* TO `a`@`localhost`"),
                        "BACKUP_ADMIN");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rights__mariadb_lines__understood),
        cmocka_unit_test(rights__of_one_database_or_longer_names__do_not_count),
        cmocka_unit_test(rights__mysql_lines__dynamic_ones_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
