/* Logging: thresholds, the sinks' lines, hostile text. */
#include "core/base/log.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct seen {
    int calls;
    enum sl_log_level level;
    char component[32], text[2048], hint[512];
};

static void remember(void *arg, enum sl_log_level level, const char *component, const char *text,
                     const char *hint)
{
    struct seen *seen = arg;
    seen->calls++;
    seen->level = level;
    snprintf(seen->component, sizeof seen->component, "%s", component);
    snprintf(seen->text, sizeof seen->text, "%s", text);
    snprintf(seen->hint, sizeof seen->hint, "%s", hint);
}

/* Standard error of one call, as text. */
static const char *captured(sl_log_sink sink, enum sl_log_level level, const char *text,
                            const char *hint)
{
    static char buffer[8192];
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    sink(NULL, level, "verbs", text, hint);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    buffer[fread(buffer, 1, sizeof buffer - 1, file)] = '\0';
    fclose(file);
    return buffer;
}

static void log__threshold__filters(void **state)
{
    (void)state;
    struct seen seen = {0};
    sl_log_threshold(SL_LOG_DEBUG); /* no sink: stays silent */
    assert_false(sl_log_wanted(SL_LOG_ERROR));
    sl_log_set(remember, &seen, SL_LOG_INFO);
    sl_log(SL_LOG_DETAIL, "a", "no");
    assert_int_equal(seen.calls, 0);
    sl_log(SL_LOG_INFO, "a", "%d", 5);
    assert_int_equal(seen.calls, 1);
    assert_string_equal(seen.text, "5");
    sl_log_threshold(SL_LOG_DEBUG);
    assert_true(sl_log_wanted(SL_LOG_DEBUG));
    sl_log_set(NULL, NULL, SL_LOG_DEBUG);
    assert_false(sl_log_wanted(SL_LOG_ERROR));
}

static void log_err__message_and_hint__handed_out(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct sl_err err;
    sl_err_set(&err, SL_ERR_CONFIG, "no such thing");
    sl_err_hint(&err, "look elsewhere");
    sl_log_set(remember, &seen, SL_LOG_INFO);
    sl_log_err(SL_LOG_WARN, "cli", &err, "backup of \"%s\" failed", "x");
    sl_log_set(NULL, NULL, SL_LOG_INFO);
    assert_string_equal(seen.text, "backup of \"x\" failed: no such thing");
    assert_string_equal(seen.hint, "look elsewhere");
    assert_int_equal(seen.level, SL_LOG_WARN);
    assert_string_equal(seen.component, "cli");
}

static void log_sink_text__line__as_documented(void **state)
{
    (void)state;
    const char *line = captured(sl_log_sink_text, SL_LOG_INFO, "hello", "");
    /* 2026-11-30 16:25:37.123 P00   INFO: hello */
    assert_int_equal(strlen(line), 23 + strlen(" P00   INFO: hello\n"));
    assert_string_equal(line + 23, " P00   INFO: hello\n");
    line = captured(sl_log_sink_text, SL_LOG_ERROR, "bad", "do this");
    assert_string_equal(line + 23, strstr(line, " P00  ERROR: bad\n"));
    assert_non_null(strstr(line, " P00   HINT: do this\n"));
}

static void log_sink_text__control_characters__one_line(void **state)
{
    (void)state;
    const char *line = captured(sl_log_sink_text, SL_LOG_INFO, "a\nb\x1b[31m\x7f", "");
    assert_string_equal(line + 23, " P00   INFO: a?b?[31m?\n");
}

static void log_sink_text__huge__cut(void **state)
{
    (void)state;
    char big[5000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    const char *line = captured(sl_log_sink_text, SL_LOG_INFO, big, big);
    const char *hint = strstr(line, " HINT: x");
    assert_non_null(hint);
    assert_int_equal(line[strlen(line) - 1], '\n');
}

static void log_sink_json__any_bytes__parses(void **state)
{
    (void)state;
    const char *line = captured(sl_log_sink_json, SL_LOG_WARN, "a\n\"b\xff", "h");
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    json_t *json = json_loads(line, 0, NULL);
    assert_non_null(json);
    assert_string_equal(json_string_value(json_object_get(json, "message")), "a\n\"b?");
    assert_string_equal(json_string_value(json_object_get(json, "level")), "warn");
    assert_string_equal(json_string_value(json_object_get(json, "component")), "verbs");
    assert_string_equal(json_string_value(json_object_get(json, "hint")), "h");
    assert_non_null(json_object_get(json, "time"));
    json_decref(json);
}

static void log__huge_message__fits(void **state)
{
    (void)state;
    struct seen seen = {0};
    char big[5000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    struct sl_err err;
    sl_err_set(&err, SL_ERR_CONFIG, "%s", big);
    sl_log_set(remember, &seen, SL_LOG_INFO);
    sl_log(SL_LOG_INFO, "a", "%s", big);
    sl_log_err(SL_LOG_INFO, "a", &err, "%s", big);
    sl_log_set(NULL, NULL, SL_LOG_INFO);
    assert_int_equal(seen.calls, 2);
    assert_true(strlen(seen.text) > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log__threshold__filters),
        cmocka_unit_test(log_err__message_and_hint__handed_out),
        cmocka_unit_test(log_sink_text__line__as_documented),
        cmocka_unit_test(log_sink_text__control_characters__one_line),
        cmocka_unit_test(log_sink_text__huge__cut),
        cmocka_unit_test(log_sink_json__any_bytes__parses),
        cmocka_unit_test(log__huge_message__fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
