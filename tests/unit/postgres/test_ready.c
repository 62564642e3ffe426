/* What the archive module sends ahead: the files that the server will ask for next, in its order.
 */
#include "postgres/archive_module/pusher_internal.h"

#include "tests/unit/postgres/cmocka_all.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/sluice-ready-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static void touch(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static size_t look(const char *last, struct sl_pg_wal_name *names)
{
    struct sl_pg_wal_name name;
    assert_int_equal(sl_pg_wal_name_parse(last, &name, NULL), 0);
    return sl_pg_ready_look(folder, &name, names);
}

static void look__files_of_all_kinds__those_after_in_order(void **state)
{
    (void)state;
    struct sl_pg_wal_name names[SL_PG_AHEAD_MAX];
    touch("000000010000000000000007.ready");
    touch("000000010000000000000004.ready");
    touch("000000010000000000000005.ready");
    touch("000000010000000000000006.00000028.backup.ready");
    touch("000000010000000000000006.done");
    touch("000000010000000000000006.partial.ready");
    touch("00000001000000000000000a.ready");
    touch("notes.ready");
    touch("000000010000000000000008");
    assert_int_equal(look("000000010000000000000005", names), 3);
    assert_string_equal(names[0].text, "000000010000000000000006.00000028.backup");
    assert_string_equal(names[1].text, "000000010000000000000006.partial");
    assert_string_equal(names[2].text, "000000010000000000000007");
    assert_int_equal(look("000000010000000000000007", names), 0);
}

static void look__history_not_asked_for__nothing_ahead(void **state)
{
    (void)state;
    struct sl_pg_wal_name names[SL_PG_AHEAD_MAX];
    touch("000000010000000000000007.ready");
    touch("00000002.history.ready");
    assert_int_equal(look("000000010000000000000005", names), 0);
    assert_int_equal(look("00000002.history", names), 1); /* it is under way, and goes before */
    assert_string_equal(names[0].text, "000000010000000000000007");
    touch("00000003.history.ready");
    assert_int_equal(look("00000002.history", names), 2);
    assert_string_equal(names[0].text, "00000003.history");
}

static void look__more_than_are_wanted__the_first(void **state)
{
    (void)state;
    struct sl_pg_wal_name names[SL_PG_AHEAD_MAX];
    char name[64];
    for (int i = 200; i > 0; i--) { /* a folder's order is any */
        snprintf(name, sizeof name, "0000000100000000%08X.ready", i * 37 % 200 + 1);
        touch(name);
    }
    assert_int_equal(look("000000010000000000000014", names), SL_PG_AHEAD_MAX);
    for (unsigned i = 0; i < SL_PG_AHEAD_MAX; i++)
        assert_int_equal(names[i].low, 0x15 + i);
}

static void look__no_folder__nothing(void **state)
{
    (void)state;
    struct sl_pg_wal_name names[SL_PG_AHEAD_MAX], last;
    assert_int_equal(sl_pg_wal_name_parse("000000010000000000000014", &last, NULL), 0);
    assert_int_equal(sl_pg_ready_look("/nonexistent/archive_status", &last, names), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(look__files_of_all_kinds__those_after_in_order),
        TEST(look__history_not_asked_for__nothing_ahead),
        TEST(look__more_than_are_wanted__the_first),
        TEST(look__no_folder__nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
