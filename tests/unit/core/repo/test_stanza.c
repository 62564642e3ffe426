/* stanza.json: there and back, and what is not one. */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/repo/manifest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static struct sl_stanza sample(void)
{
    struct sl_stanza s = {.engine = "postgres", .life_count = 2};
    s.lives[0] = (struct sl_stanza_life){"7301234567890123456", "15", 1796055937123456789};
    s.lives[1] = (struct sl_stanza_life){"7409999999999999999", "16", 1806055937000000000};
    return s;
}

static void stanza__there_and_back__is_the_same(void **state)
{
    (void)state;
    struct sl_stanza s = sample(), *got = calloc(1, sizeof *got);
    char *json;
    assert_int_equal(sl_stanza_encode(&s, &json, NULL), 0);
    assert_string_equal(json,
                        "{\"version\":1,\"engine\":\"postgres\",\"lives\":["
                        "{\"id\":\"7301234567890123456\",\"version\":\"15\",\"created_ns\":"
                        "1796055937123456789},{\"id\":\"7409999999999999999\",\"version\":\"16\","
                        "\"created_ns\":1806055937000000000}]}\n");
    assert_int_equal(sl_stanza_decode(json, strlen(json), got, NULL), 0);
    assert_string_equal(got->engine, "postgres");
    assert_int_equal(got->life_count, 2);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(got->lives[i].id, s.lives[i].id);
        assert_string_equal(got->lives[i].version, s.lives[i].version);
        assert_true(got->lives[i].created_ns == s.lives[i].created_ns);
    }
    for (size_t count = 0; count + 1 < strlen(json); count++)
        assert_int_equal(sl_stanza_decode(json, count, got, NULL), SL_ERR_FORMAT);
    free(got);
    sl_free(json);
}

#define LIFE "{\"id\":\"1\",\"version\":\"15\",\"created_ns\":1}"

static void stanza__what_is_none__is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "[]",
        "1",
        "{}",
        "null",
        "{\"version\":1}",
        "{\"version\":\"1\",\"engine\":\"e\",\"lives\":[" LIFE "]}",
        "{\"version\":1,\"version\":1,\"engine\":\"e\",\"lives\":[" LIFE "]}",
        "{\"version\":1,\"engine\":\"e\",\"lives\":[]}",
        "{\"version\":1,\"engine\":\"\",\"lives\":[" LIFE "]}",
        "{\"version\":1,\"engine\":5,\"lives\":[" LIFE "]}",
        "{\"version\":1,\"engine\":\"e\",\"lives\":[" LIFE "," LIFE "]}",
        "{\"version\":1,\"engine\":\"e\",\"lives\":[5]}",
        "{\"version\":1,\"engine\":\"e\",\"lives\":{\"a\":1}}",
        "{\"version\":1,\"engine\":\"e\",\"lives\":[{\"id\":\"\",\"version\":\"\",\"created_ns\":1}"
        "]}",
        "{\"version\":1,\"engine\":\"e\",\"lives\":[{\"id\":\"1\",\"created_ns\":1}]}",
        "{\"version\":1,\"engine\":\"e\",\"lives\":[{\"id\":\"1\",\"version\":\"\",\"created_ns\":-"
        "1}]}",
        "{\"version\":1,\"engine\":\"e\",\"lives\":[{\"id\":\"1\",\"version\":\"\",\"created_ns\":"
        "1.5}]}",
        "{\"version\":1,\"engine\":\"e\\u0000x\",\"lives\":[" LIFE "]}",
        "{\"version\":1,\"engine\":\"12345678901234567890123456789012\",\"lives\":[" LIFE "]}",
        "{\"version\":1,\"engine\":\"e\",\"lives\":[" LIFE "]} x",
    };
    struct sl_stanza *got = malloc(sizeof *got), *before = malloc(sizeof *before);
    memset(got, 0x55, sizeof *got);
    memset(before, 0x55, sizeof *before);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sl_err err = {0};
        assert_int_equal(sl_stanza_decode(bad[i], strlen(bad[i]), got, &err), SL_ERR_FORMAT);
        assert_int_equal(err.code, SL_ERR_FORMAT);
        assert_memory_equal(got, before, sizeof *got);
    }
    static const char later[] = "{\"version\":2,\"engine\":\"e\",\"lives\":[" LIFE "]}";
    assert_int_equal(sl_stanza_decode(later, strlen(later), got, NULL), SL_ERR_VERSION);
    static const char more[] = "{\"version\":1,\"engine\":\"e\",\"new\":[],\"lives\":[" LIFE "]}";
    assert_int_equal(sl_stanza_decode(more, strlen(more), got, NULL), 0); /* unknown keys pass */
    free(got);
    free(before);
}

static void stanza__too_many_lives_or_none__cannot_be_written(void **state)
{
    (void)state;
    char *json;
    struct sl_stanza s = sample();
    s.life_count = 0;
    assert_int_equal(sl_stanza_encode(&s, &json, NULL), SL_ERR_INTERNAL);
    s.life_count = SL_LIVES_MAX + 1;
    assert_int_equal(sl_stanza_encode(&s, &json, NULL), SL_ERR_INTERNAL);
    s.life_count = SL_LIVES_MAX;
    for (uint32_t i = 0; i < SL_LIVES_MAX; i++)
        snprintf(s.lives[i].id, sizeof s.lives[i].id, "%u", i + 1);
    assert_int_equal(sl_stanza_encode(&s, &json, NULL), 0);
    assert_int_equal(sl_stanza_decode(json, strlen(json), &s, NULL), 0);
    assert_int_equal(s.life_count, SL_LIVES_MAX);
    sl_free(json);
}

/* jansson's own allocations are failed too. Its lexer (2.14) calls a failed one an invalid token,
 * or even drops a character: neither may be believed. */
static void stanza__no_memory__is_said(void **state)
{
    (void)state;
    struct sl_stanza s = sample();
    for (unsigned n = 1;; n++) {
        char rule[32], *json = NULL;
        struct sl_err err = {0};
        snprintf(rule, sizeof rule, "alloc:ENOMEM@%u", n);
        assert_int_equal(sl_fault_set(rule), 0);
        struct sl_stanza got = {0};
        int rc = sl_stanza_encode(&s, &json, &err);
        if (rc == 0)
            rc = sl_stanza_decode(json, strlen(json), &got, &err);
        if (rc == 0)
            assert_string_equal(got.lives[0].id, s.lives[0].id);
        bool untouched = n > sl_fault_passed();
        sl_fault_set(NULL);
        sl_free(json);
        assert_true(rc == 0 || rc == SL_ERR_NO_MEMORY);
        if (untouched) {
            assert_int_equal(rc, 0);
            assert_true(n > 20);
            break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stanza__there_and_back__is_the_same),
        cmocka_unit_test(stanza__what_is_none__is_refused),
        cmocka_unit_test(stanza__too_many_lives_or_none__cannot_be_written),
        cmocka_unit_test(stanza__no_memory__is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
