/* Labels: what is one, and that each new one is greater than the latest. */
#include "core/base/clock.h"
#include "core/repo/manifest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static void label__valid_ones__and_others(void **state)
{
    (void)state;
    static const char *const good[] = {
        "20261130-162537F",
        "20240229-000000F",
        "20261130-162537F_20261130-162538D",
        "20261130-162537F_20270101-000000I",
        "99991231-235959F",
    };
    static const char *const bad[] = {
        "",
        "F",
        "20261130-162537",
        "20261130-162537D",
        "20261130-162537f",
        "20261130-162537F_",
        "20261130-162537FF",
        "20261131-000000F",
        "20250229-000000F",
        "20261330-000000F",
        "20261130-240000F",
        "20261130-006000F",
        "20261130-000060F",
        "2026113O-162537F",
        "20261130_162537F",
        "20261130-162537F_20261130-162537D" /* not later */,
        "20261130-162537F_20261130-162536I",
        "20261130-162537F_20261130-162538F",
        "20261130-162537F_20261130-162538D_20261130-162539I",
        "20261130-162537F/20261130-162538D",
        "../../etc/passwd",
        " 20261130-162537F",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(sl_label_valid(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(sl_label_valid(bad[i]));
    char text[] = "20261130-162537F_20261130-162538D";
    for (size_t length = 0; length < strlen("20261130-162537F_20261130-162538D"); length++) {
        char cut[64];
        snprintf(cut, sizeof cut, "%.*s", (int)length, text);
        assert_true(sl_label_valid(cut) == (length == 16));
    }
}

static void label_new__full__is_the_time(void **state)
{
    (void)state;
    char label[SL_LABEL_MAX], before[32], after[32];
    struct tm tm;
    time_t now = (time_t)(sl_wall_ns() / SL_NS_PER_S);
    strftime(before, sizeof before, "%Y%m%d-%H%M%SF", gmtime_r(&now, &tm));
    assert_int_equal(sl_label_new('F', NULL, NULL, label, NULL), 0);
    now = (time_t)(sl_wall_ns() / SL_NS_PER_S);
    strftime(after, sizeof after, "%Y%m%d-%H%M%SF", gmtime_r(&now, &tm));
    assert_true(sl_label_valid(label));
    assert_true(strcmp(before, label) <= 0 && strcmp(label, after) <= 0);
}

static void label_new__in_a_row__ascends(void **state)
{
    (void)state;
    char latest[SL_LABEL_MAX], full[SL_LABEL_MAX], label[SL_LABEL_MAX];
    assert_int_equal(sl_label_new('F', NULL, NULL, full, NULL), 0);
    memcpy(latest, full, sizeof latest);
    for (int i = 0; i < 200; i++) { /* much faster than a second each */
        char kind = "FDI"[i % 3];
        assert_int_equal(sl_label_new(kind, kind == 'F' ? NULL : full, latest, label, NULL), 0);
        assert_true(sl_label_valid(label));
        assert_true(strcmp(latest, label) < 0);
        memcpy(latest, label, sizeof latest);
        if (kind == 'F')
            memcpy(full, label, sizeof full);
    }
}

static void label_new__clock_behind_the_latest__goes_on_from_it(void **state)
{
    (void)state;
    char label[SL_LABEL_MAX];
    assert_int_equal(sl_label_new('F', NULL, "20991231-235959F", label, NULL), 0);
    assert_string_equal(label, "21000101-000000F");
    assert_int_equal(sl_label_new('F', NULL, "20991231-235900F_20991231-235959I", label, NULL), 0);
    assert_string_equal(label, "21000101-000000F");
    assert_int_equal(sl_label_new('D', "20991231-235959F", "20991231-235959F", label, NULL), 0);
    assert_string_equal(label, "20991231-235959F_21000101-000000D");
    assert_int_equal(
        sl_label_new('I', "20991231-235959F", "20991231-235959F_21000101-000000D", label, NULL), 0);
    assert_string_equal(label, "20991231-235959F_21000101-000001I");
    assert_int_equal(sl_label_new('D', "20991231-235959F", NULL, label, NULL), 0);
    assert_string_equal(label, "20991231-235959F_21000101-000000D");
}

static void label_new__what_cannot_be__is_refused(void **state)
{
    (void)state;
    char label[SL_LABEL_MAX] = "untouched";
    assert_int_equal(sl_label_new('X', NULL, NULL, label, NULL), SL_ERR_USAGE);
    assert_int_equal(sl_label_new('D', NULL, NULL, label, NULL), SL_ERR_USAGE);
    assert_int_equal(sl_label_new('F', "20261130-162537F", NULL, label, NULL), SL_ERR_USAGE);
    assert_int_equal(sl_label_new('F', NULL, "latest", label, NULL), SL_ERR_USAGE);
    assert_int_equal(sl_label_new('D', "20261130-162537F_20261130-162538D", NULL, label, NULL),
                     SL_ERR_USAGE);
    /* the prior full is older than the latest one: the label would sort before it */
    assert_int_equal(sl_label_new('D', "20261130-162537F", "20991231-235959F", label, NULL),
                     SL_ERR_USAGE);
    assert_int_equal(sl_label_new('F', NULL, "99991231-235959F", label, NULL), SL_ERR_LIMIT);
    assert_string_equal(label, "untouched");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(label__valid_ones__and_others),
        cmocka_unit_test(label_new__full__is_the_time),
        cmocka_unit_test(label_new__in_a_row__ascends),
        cmocka_unit_test(label_new__clock_behind_the_latest__goes_on_from_it),
        cmocka_unit_test(label_new__what_cannot_be__is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
