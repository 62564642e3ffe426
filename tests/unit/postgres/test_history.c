/* History files and backup labels. */
#include "postgres/history.h"

#include "tests/unit/postgres/cmocka_all.h"

#include <string.h>

struct seen {
    size_t count;
    struct sl_pg_switch lines[8];
};

static void see(void *arg, const struct sl_pg_switch *line)
{
    struct seen *seen = arg;
    seen->lines[seen->count++] = *line;
}

static int parse(const char *text, uint32_t timeline, struct seen *seen)
{
    *seen = (struct seen){0};
    return sl_pg_history_parse(text, strlen(text), timeline, see, seen, NULL);
}

static void history__written_by_the_server__is_read(void **state)
{
    (void)state;
    struct seen seen;
    const char *text = "1\t0/5000110\tno recovery target specified\n\n"
                       "# by hand\n2\t1/A0000000\tbefore 2026-11-30 16:25:37+00\n";
    assert_int_equal(parse(text, 3, &seen), 0);
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.lines[0].timeline, 1);
    assert_int_equal(seen.lines[0].switch_lsn, 0x5000110);
    assert_int_equal(seen.lines[1].timeline, 2);
    assert_int_equal(seen.lines[1].switch_lsn, 0x1A0000000);
    assert_int_equal(parse("1\t0/5000110", 2, &seen), 0); /* no newline, no reason */
}

static void history__malformed__fails(void **state)
{
    (void)state;
    struct seen seen;
    static const char *const bad[] = {
        "",
        "\n# nothing\n",
        "x\t0/1\tr\n",
        "1\n",
        "1\t\n",
        "1\t0-1\tr\n",
        "1 0/1/1 r\n",
        "2\t0/1\tr\n1\t0/2\tr\n",
        "1\t0/1\tr\n1\t0/2\tr\n",
        "3\t0/1\tr\n",
        "4\t0/1\tr\n",
        "99999999999\t0/1\tr\n",
        "-1\t0/1\tr\n",
        "0\t0/1\tr\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(parse(bad[i], 3, &seen), SL_ERR_FORMAT);
    assert_int_equal(sl_pg_history_parse("1\t0/1\tr\0\n", 9, 3, NULL, NULL, NULL), SL_ERR_FORMAT);
}

static const char label_15[] = "START WAL LOCATION: 1/2000028 (file 000000020000000100000002)\n"
                               "CHECKPOINT LOCATION: 1/2000060\n"
                               "BACKUP METHOD: streamed\n"
                               "BACKUP FROM: primary\n"
                               "START TIME: 2026-11-30 16:25:37 UTC\n"
                               "LABEL: sluice 20261130-162537F\n"
                               "START TIMELINE: 2\n";

static void backup_label__of_15__is_read(void **state)
{
    (void)state;
    struct sl_pg_backup_label label;
    assert_int_equal(sl_pg_backup_label_parse(label_15, strlen(label_15), &label, NULL), 0);
    assert_int_equal(label.start_lsn, 0x102000028);
    assert_int_equal(label.checkpoint_lsn, 0x102000060);
    assert_int_equal(label.timeline, 2);
    assert_string_equal(label.start_segment.text, "000000020000000100000002");
}

static void backup_label__cut_anywhere__fails_or_is_whole(void **state)
{
    (void)state;
    struct sl_pg_backup_label label;
    size_t needed = (size_t)(strstr(label_15, "\nBACKUP METHOD") - label_15);
    for (size_t count = 0; count < strlen("START WAL LOCATION: 1/2000028 (file 0000"); count++)
        assert_int_equal(sl_pg_backup_label_parse(label_15, count, &label, NULL), SL_ERR_FORMAT);
    assert_int_equal(sl_pg_backup_label_parse(label_15, needed, &label, NULL), 0);
    assert_int_equal(label.timeline, 2); /* from the segment's name */
    static const char *const bad[] = {
        "START WAL LOCATION: 1/2000028\nCHECKPOINT LOCATION: 1/2000060\n",
        "START WAL LOCATION: 1/2000028 (file 00000002.history)\nCHECKPOINT LOCATION: 1/2000060\n",
        "START WAL LOCATION: 1/2000028 (file 000000020000000100000002)\nCHECKPOINT LOCATION: x\n",
        "START WAL LOCATION: 1/2000028 (file 000000020000000100000002)\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sl_pg_backup_label_parse(bad[i], strlen(bad[i]), &label, NULL),
                         SL_ERR_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(history__written_by_the_server__is_read),
        cmocka_unit_test(history__malformed__fails),
        cmocka_unit_test(backup_label__of_15__is_read),
        cmocka_unit_test(backup_label__cut_anywhere__fails_or_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
