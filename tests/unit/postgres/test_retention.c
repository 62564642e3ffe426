/* Which backups stay, and which WAL. Times are days; segments are of 1 MiB. */
#include "core/cli/retention.h"
#include "postgres/retention.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MiB 0x100000ull

/* A set of backups as one line: "F1 I2 D3 F4k": kind, day, and k or s for kept (standalone). The
 * answer in the same form: those that stay. */
static const char *stay(const char *line, unsigned fulls, unsigned days, unsigned now)
{
    static char answer[200];
    struct sl_candidate c[20] = {0};
    char full[SL_LABEL_MAX] = "";
    size_t n = 0;
    for (const char *at = line; *at; at += strspn(at, " ")) {
        unsigned day;
        int used;
        char kind = *at;
        sscanf(at + 1, "%u%n", &day, &used);
        at += 1 + used;
        if (kind == 'F')
            snprintf(full, sizeof full, "202611%02u-000000F", day);
        if (kind == 'F')
            snprintf(c[n].label, sizeof c[n].label, "%s", full);
        else
            snprintf(c[n].label, sizeof c[n].label, "%.16s_202611%02u-000000%c", full, day, kind);
        c[n].stop_epoch = day * 86400.0;
        c[n].keep = *at == 'k' ? SL_KEEP_PITR : *at == 's' ? SL_KEEP_STANDALONE : 0;
        at += strcspn(at, " ");
        n++;
    }
    for (size_t i = 0; i < n / 2; i++) { /* the order they are given in does not matter */
        struct sl_candidate swap = c[i];
        c[i] = c[n - 1 - i];
        c[n - 1 - i] = swap;
    }
    sl_retention(c, n, fulls, days, now * 86400.0);
    answer[0] = '\0';
    for (size_t i = 0; i < n; i++)
        if (!c[i].expired)
            snprintf(answer + strlen(answer), sizeof answer - strlen(answer), "%s%c%d",
                     *answer ? " " : "", c[i].label[strlen(c[i].label) - 1],
                     (int)(c[i].stop_epoch / 86400));
    return answer;
}

static void retention__by_number(void **state)
{
    (void)state;
    assert_string_equal(stay("F1 F2 F3", 2, 0, 9), "F2 F3");
    assert_string_equal(stay("F1 F2 F3", 3, 0, 9), "F1 F2 F3");
    assert_string_equal(stay("F1 F2 F3", 7, 0, 9), "F1 F2 F3");
    assert_string_equal(stay("F1 I2 D3 F4 I5", 1, 0, 9), "F4 I5");
    assert_string_equal(stay("F1 I2 D3 F4 I5", 2, 0, 9), "F1 I2 D3 F4 I5");
    assert_string_equal(stay("", 1, 0, 9), "");
    assert_string_equal(stay("F1 F2", 0, 0, 9), "F1 F2");
}

static void retention__by_time(void **state)
{
    (void)state;
    /* every moment of the last 3 days, from day 7: the full of day 6 is the newest before it */
    assert_string_equal(stay("F1 F4 F6 F8", 0, 3, 10), "F6 F8");
    assert_string_equal(stay("F1 F4 F7 F8", 0, 3, 10), "F7 F8");
    assert_string_equal(stay("F1 I3 F4 I5 F9", 0, 3, 10), "F4 I5 F9");
    assert_string_equal(stay("F8 F9", 0, 3, 10), "F8 F9");
    assert_string_equal(stay("F1 F2", 0, 3, 10), "F2");
    assert_string_equal(stay("F1 F4 F6 F8", 1, 3, 10), "F6 F8"); /* what either wants */
    assert_string_equal(stay("F1 F4 F6 F8", 3, 3, 10), "F4 F6 F8");
}

static void retention__kept__stays_with_what_it_builds_on(void **state)
{
    (void)state;
    assert_string_equal(stay("F1k F2 F3", 1, 0, 9), "F1 F3");
    assert_string_equal(stay("F1s F2 F3", 1, 0, 9), "F1 F3");
    assert_string_equal(stay("F1 I2 I3k I4 F5", 1, 0, 9), "F1 I2 I3 F5");
    assert_string_equal(stay("F1k I2 F3", 1, 0, 9), "F1 F3");
}

static struct sl_pg_ancestry line_of(uint32_t timeline, uint32_t count, ...)
{
    struct sl_pg_ancestry a = {.timeline = timeline, .known = timeline != 1, .count = count};
    va_list list;
    va_start(list, count);
    for (uint32_t i = 0; i < count; i++) {
        a.switches[i].timeline = va_arg(list, unsigned);
        a.switches[i].switch_lsn = va_arg(list, unsigned) * MiB;
    }
    va_end(list);
    return a;
}

/* Segments 0..29 of a timeline as "from-to", the first and last that are needed. */
static const char *needed(const struct sl_pg_need *needs, size_t count, struct sl_pg_ancestry t)
{
    static char text[32];
    int first = -1, last = -1;
    for (int i = 0; i < 30; i++)
        if (sl_pg_wal_needed(needs, count, &t, (uint64_t)i, MiB)) {
            first = first < 0 ? i : first;
            last = i;
        }
    snprintf(text, sizeof text, first < 0 ? "none" : "%d-%d", first, last);
    return text;
}

static void wal__of_timelines(void **state)
{
    (void)state;
    const struct sl_pg_need one = {1, 10, UINT64_MAX}, alone = {1, 10, 12},
                            third = {3, 20, UINT64_MAX};
    const struct sl_pg_need both[] = {alone, third};
    assert_string_equal(needed(&one, 1, line_of(1, 0)), "10-29");
    assert_string_equal(needed(&alone, 1, line_of(1, 0)), "10-12");
    assert_string_equal(needed(&one, 0, line_of(1, 0)), "0-29"); /* nobody to ask: all stays */
    /* timeline 2 branched off after, or before, the backup of timeline 1 began */
    assert_string_equal(needed(&one, 1, line_of(2, 1, 1u, 15u)), "0-29");
    assert_string_equal(needed(both, 2, line_of(2, 1, 1u, 15u)), "none");
    assert_string_equal(needed(both, 2, line_of(1, 0)), "10-12");
    assert_string_equal(needed(both, 2, line_of(3, 2, 1u, 15u, 2u, 18u)), "20-29");
    assert_string_equal(needed(&third, 1, line_of(1, 0)), "none");
    assert_string_equal(needed(&third, 1, line_of(2, 1, 1u, 15u)), "none");
    /* a later timeline is perhaps where the cluster is now, whatever it branched off from */
    assert_string_equal(needed(&third, 1, line_of(4, 1, 1u, 3u)), "0-29");
    const struct sl_pg_need fifth[] = {{5, 1, UINT64_MAX}, {1, 10, UINT64_MAX}};
    assert_string_equal(needed(fifth, 2, line_of(4, 1, 1u, 9u)), "none");
    assert_string_equal(needed(fifth, 2, line_of(4, 1, 1u, 10u)), "0-29");
    struct sl_pg_ancestry unknown = line_of(4, 1, 1u, 3u);
    unknown.known = false;
    assert_string_equal(needed(fifth, 2, unknown), "0-29");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(retention__by_number),
        cmocka_unit_test(retention__by_time),
        cmocka_unit_test(retention__kept__stays_with_what_it_builds_on),
        cmocka_unit_test(wal__of_timelines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
