/* Recovery's orders as text, the target time, base64. */
#include "core/base/alloc.h"
#include "postgres/base64.h"
#include "postgres/recovery_conf.h"
#include "postgres/target_time.h"
#include "tests/unit/postgres/cmocka_all.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static void conf__inherited_targets__are_removed(void **state)
{
    (void)state;
    static const char old[] = "# kept\n"
                              "shared_buffers = '1GB'\n"
                              "Recovery_Target_Time = 'x'\n"
                              "  recovery_target_name='y'\n"
                              "recovery_target = 'immediate'\n"
                              "restore_command = 'cp'\n"
                              "restore_command_x = 'kept'\n"
                              "archive_mode = 'on'\n"
                              "archive_mode_x = 'kept'";
    const struct sl_pg_recovery_conf conf = {.kind = SL_PG_TO_TIME,
                                             .restore_command = "sluice archive-get %f \"%p\"",
                                             .target = "2026-11-30 16:25:37+00",
                                             .target_action = "promote",
                                             .archive_off = true};
    char *text = sl_pg_recovery_conf_text(old, &conf);
    assert_non_null(text);
    assert_non_null(strstr(text, "# kept\nshared_buffers = '1GB'\nrestore_command_x = 'kept'\n"
                                 "archive_mode_x = 'kept'\n"));
    assert_null(strstr(text, "'x'"));
    assert_null(strstr(text, "'y'"));
    assert_null(strstr(text, "'cp'"));
    assert_null(strstr(text, "archive_mode = 'on'"));
    assert_non_null(strstr(text, "\nrestore_command = 'sluice archive-get %f \"%p\"'\n"));
    assert_non_null(strstr(text, "\nrecovery_target_time = '2026-11-30 16:25:37+00'\n"));
    assert_non_null(strstr(text, "\nrecovery_target = ''\n"));
    /* the server wants the one that is set last */
    assert_true(strstr(text, "recovery_target_lsn") < strstr(text, "recovery_target_time"));
    assert_non_null(strstr(text, "\nrecovery_target_action = 'promote'\n"));
    assert_non_null(strstr(text, "\narchive_mode = 'off'\n"));
    sl_free(text);
}

static void conf__to_the_end__sets_no_target(void **state)
{
    (void)state;
    const struct sl_pg_recovery_conf conf = {.kind = SL_PG_TO_END, .restore_command = "x"};
    char *text = sl_pg_recovery_conf_text("archive_mode = 'on'\n", &conf);
    assert_non_null(text);
    assert_non_null(strstr(text, "archive_mode = 'on'\n"));
    assert_non_null(strstr(text, "\nrecovery_target_time = ''\n"));
    /* an inherited postgresql.conf could say otherwise */
    assert_non_null(strstr(text, "\nrecovery_target_action = 'pause'\n"));
    assert_non_null(strstr(text, "\nrecovery_target_inclusive = 'on'\n"));
    assert_non_null(strstr(text, "\nrecovery_target_timeline = 'latest'\n"));
    sl_free(text);
}

static void quoting__shell_and_conf(void **state)
{
    (void)state;
    static const char *const words[][2] = {
        {"/usr/bin/sluice", "/usr/bin/sluice"},
        {"--a=b", "--a=b"},
        {"50%", "50%%"},
        {"a b", "'a b'"},
        {"it's", "'it'\\''s'"},
        {"", "''"},
        {"$(x)%", "'$(x)%%'"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char *word = sl_pg_shell_word(words[i][0]);
        assert_string_equal(word, words[i][1]);
        sl_free(word);
    }
    char *value = sl_pg_conf_value("it's \\ here");
    assert_string_equal(value, "'it''s \\\\ here'");
    sl_free(value);
}

static void target_time__zones__give_one_instant(void **state)
{
    (void)state;
    static const char *const same[] = {
        "2026-11-30 16:25:37.5+00", "2026-11-30T16:25:37.5Z",      "2026-11-30 16:25:37.500 UTC",
        "2026-11-30 17:25:37.5+01", "2026-11-30 12:55:37.5-03:30", "2026-11-30 21:55:37.5 +0530",
    };
    struct sl_pg_target_time t;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        assert_int_equal(sl_pg_target_time_parse(same[i], &t, NULL), 0);
        assert_true(t.zone_given);
        assert_true(t.epoch == 1796055937.5);
        assert_string_equal(t.text, same[i]);
    }
}

static void target_time__no_zone__takes_the_local_one_and_says_so(void **state)
{
    (void)state;
    struct sl_pg_target_time t;
    setenv("TZ", "Europe/Berlin", 1);
    tzset();
    assert_int_equal(sl_pg_target_time_parse("2026-07-01 12:00:00", &t, NULL), 0);
    assert_false(t.zone_given);
    assert_string_equal(t.text, "2026-07-01 12:00:00+02:00");
    assert_int_equal(sl_pg_target_time_parse("2026-11-30 17:25", &t, NULL), 0);
    assert_string_equal(t.text, "2026-11-30 17:25+01:00");
    assert_true(t.epoch == 1796055900);
    setenv("TZ", "America/St_Johns", 1);
    tzset();
    assert_int_equal(sl_pg_target_time_parse("2026-11-30 12:55:00", &t, NULL), 0);
    assert_string_equal(t.text, "2026-11-30 12:55:00-03:30");
    assert_true(t.epoch == 1796055900);
    unsetenv("TZ");
    tzset();
}

static void target_time__not_a_time__is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "yesterday",
        "2026-11-30",
        "2026-11-31 00:00:00",
        "2026-02-30 00:00:00+00",
        "2026-11-30 24:00:00+00",
        "2026-11-30 16:25:37.",
        "2026-11-30 16:25:37 Europe/Berlin",
        "2026-11-30 16:25:37+1",
        "2026-11-30 16:25:37+01:",
        "2026-11-30 16:25:37+01:75",
        "2026-11-30 16:25:37+99",
        "2026-11-30 16:25:37'; DROP",
        "2026-11-30 16:25:37.1234567890123456789012345678901234567890123456789012345678901234",
    };
    struct sl_pg_target_time t = {.epoch = 7};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sl_pg_target_time_parse(bad[i], &t, NULL), SL_ERR_USAGE);
    assert_true(t.epoch == 7);
}

static void base64__any_length__comes_back(void **state)
{
    (void)state;
    uint8_t bytes[300];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 251 + 7);
    for (size_t count = 0; count < sizeof bytes; count++) {
        char *text = sl_pg_base64_encode(bytes, count);
        size_t got;
        char *back = sl_pg_base64_decode(text, &got);
        assert_int_equal(got, count);
        assert_memory_equal(back, bytes, count);
        sl_free(text);
        sl_free(back);
    }
    char *text = sl_pg_base64_encode("any carnal pleas", 16);
    assert_string_equal(text, "YW55IGNhcm5hbCBwbGVhcw==");
    sl_free(text);
    size_t got;
    assert_null(sl_pg_base64_decode("YW5", &got));
    assert_null(sl_pg_base64_decode("YW5*", &got));
    assert_null(sl_pg_base64_decode("=W55", &got));
    assert_null(sl_pg_base64_decode("YW==YW55", &got));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conf__inherited_targets__are_removed),
        cmocka_unit_test(conf__to_the_end__sets_no_target),
        cmocka_unit_test(quoting__shell_and_conf),
        cmocka_unit_test(target_time__zones__give_one_instant),
        cmocka_unit_test(target_time__no_zone__takes_the_local_one_and_says_so),
        cmocka_unit_test(target_time__not_a_time__is_refused),
        cmocka_unit_test(base64__any_length__comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
