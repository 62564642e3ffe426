/* Progress: the bottleneck, the report, the lines. */
#include "core/base/fault.h"
#include "core/base/progress.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct sl_progress *make(enum sl_progress_mode mode, const char *what)
{
    struct sl_progress *p = NULL;
    assert_int_equal(sl_progress_new(mode, what, &p, NULL), 0);
    return p;
}

/* Runs a whole life with standard error in a file; returns what was printed. */
static char *life(enum sl_progress_mode mode, uint64_t total, uint64_t moved, unsigned wait_ms)
{
    static char text[8192];
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    struct sl_progress *p = make(mode, "backup");
    if (total)
        sl_progress_total(p, total, 1);
    sl_progress_add(p, moved, 1);
    usleep(wait_ms * 1000);
    sl_progress_done(p);
    sl_progress_done(p);
    sl_progress_free(p);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static void progress__no_object__accepted(void **state)
{
    (void)state;
    sl_progress_total(NULL, 1, 1);
    sl_progress_add(NULL, 1, 1);
    sl_progress_stage(NULL, SL_STAGE_SLOT, 1);
    sl_progress_done(NULL);
    sl_progress_free(NULL);
    json_decref(sl_progress_report(NULL));
    char text[8];
    sl_progress_summary(NULL, text, sizeof text);
    assert_string_equal(text, "done");
}

static void progress_report__stages__bottleneck_named(void **state)
{
    (void)state;
    struct sl_progress *p = make(SL_PROGRESS_NONE, "backup");
    sl_progress_add(p, 1000, 2);
    sl_progress_stage(p, SL_STAGE_SOURCE, 100);
    sl_progress_stage(p, SL_STAGE_COMMIT, 250);
    sl_progress_stage(p, SL_STAGE_COMMIT, 50);
    sl_progress_stage(p, SL_STAGE_DIGEST, 100);
    sl_progress_done(p);
    json_t *report = sl_progress_report(p);
    assert_string_equal(json_string_value(json_object_get(report, "bottleneck")),
                        "target write or sync");
    json_t *stages = json_object_get(report, "stages");
    assert_float_equal(json_real_value(json_object_get(stages, "target write or sync")), 0.6, 1e-9);
    assert_float_equal(json_real_value(json_object_get(stages, "source read")), 0.2, 1e-9);
    assert_float_equal(json_real_value(json_object_get(stages, "wire")), 0, 1e-9);
    assert_int_equal(json_integer_value(json_object_get(report, "bytes")), 1000);
    assert_int_equal(json_integer_value(json_object_get(report, "files")), 2);
    json_decref(report);
    char text[200];
    sl_progress_summary(p, text, sizeof text);
    assert_non_null(strstr(text, "1.00 kB in "));
    assert_non_null(strstr(text, ", bottleneck: target write or sync (60%)"));
    sl_progress_free(p);
}

static void progress_report__nothing_measured__null(void **state)
{
    (void)state;
    struct sl_progress *p = make(SL_PROGRESS_NONE, "restore");
    json_t *report = sl_progress_report(p);
    assert_true(json_is_null(json_object_get(report, "bottleneck")));
    json_decref(report);
    sl_progress_stage(p, SL_STAGE_SOURCE, 1);
    report = sl_progress_report(p);
    assert_string_equal(json_string_value(json_object_get(report, "bottleneck")), "file write");
    json_decref(report);
    sl_progress_free(p);
}

static void progress__none__prints_nothing(void **state)
{
    (void)state;
    assert_string_equal(life(SL_PROGRESS_NONE, 100, 50, 0), "");
}

static void progress__never_begun__prints_nothing(void **state)
{
    (void)state;
    assert_string_equal(life(SL_PROGRESS_TEXT, 0, 0, 0), "");
}

static void progress__text__lines_like_pg_basebackup(void **state)
{
    (void)state;
    char *text = life(SL_PROGRESS_TEXT, 1000 * 1024, 500 * 1024, 1300);
    char *second = strchr(text, '\n') + 1;
    assert_memory_equal(text, "500/1000 kB (50%), ", 19);
    assert_non_null(strstr(text, " MB/s, 0:01 left\n"));
    assert_memory_equal(second, "500/1000 kB (50%), ", 19);
    assert_non_null(strstr(second, " MB/s, done\n"));
}

static void progress__json__lines_parse(void **state)
{
    (void)state;
    char *text = life(SL_PROGRESS_JSON, 1000, 2000, 0); /* more than all */
    json_t *line = json_loads(text, 0, NULL);
    json_t *progress = json_object_get(line, "progress");
    assert_string_equal(json_string_value(json_object_get(progress, "command")), "backup");
    assert_int_equal(json_integer_value(json_object_get(progress, "bytes")), 2000);
    assert_int_equal(json_integer_value(json_object_get(progress, "bytes_total")), 2000);
    assert_true(json_is_true(json_object_get(progress, "done")));
    json_decref(line);
}

static void progress_new__no_memory__fails(void **state)
{
    (void)state;
    struct sl_progress *p = NULL;
    sl_fault_set("alloc:ENOMEM@1");
    assert_int_equal(sl_progress_new(SL_PROGRESS_TEXT, "x", &p, NULL), SL_ERR_NO_MEMORY);
    sl_fault_set(NULL);
    assert_null(p);
}

static void *add_many(void *arg)
{
    for (int i = 0; i < 10000; i++) {
        sl_progress_add(arg, 3, 1);
        sl_progress_stage(arg, SL_STAGE_SLOT, 2);
    }
    return NULL;
}

static void progress__many_threads__nothing_lost(void **state)
{
    (void)state;
    struct sl_progress *p = make(SL_PROGRESS_NONE, "backup");
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, add_many, p);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    json_t *report = sl_progress_report(p);
    assert_int_equal(json_integer_value(json_object_get(report, "bytes")), 120000);
    assert_int_equal(json_integer_value(json_object_get(report, "files")), 40000);
    json_decref(report);
    sl_progress_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress__no_object__accepted),
        cmocka_unit_test(progress_report__stages__bottleneck_named),
        cmocka_unit_test(progress_report__nothing_measured__null),
        cmocka_unit_test(progress__none__prints_nothing),
        cmocka_unit_test(progress__never_begun__prints_nothing),
        cmocka_unit_test(progress__text__lines_like_pg_basebackup),
        cmocka_unit_test(progress__json__lines_parse),
        cmocka_unit_test(progress_new__no_memory__fails),
        cmocka_unit_test(progress__many_threads__nothing_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
