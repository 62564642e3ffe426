/* Errors, fault points, time: the small things everything else stands on. */
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/fault.h"
#include "core/base/thread.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

static int fail_with_hint(struct sl_err *err)
{
    sl_err_set(err, SL_ERR_NOT_FOUND, "\"%s\" is not there", "x");
    return sl_err_hint(err, "look elsewhere");
}

static void hint__no_err__keeps_code(void **state)
{
    (void)state;
    struct sl_err err;
    assert_int_equal(fail_with_hint(&err), SL_ERR_NOT_FOUND);
    assert_string_equal(err.msg, "\"x\" is not there");
    assert_string_equal(err.hint, "look elsewhere");
    assert_int_equal(fail_with_hint(NULL), SL_ERR_NOT_FOUND);
    sl_err_set(NULL, SL_ERR_BUSY, "busy");
    assert_int_equal(sl_err_prefix(NULL, "while working"), SL_ERR_BUSY);
}

static void prefix__stands_before(void **state)
{
    (void)state;
    struct sl_err err;
    sl_err_set(&err, SL_ERR_READ, "inner");
    assert_int_equal(sl_err_prefix(&err, "outer %d", 1), SL_ERR_READ);
    assert_string_equal(err.msg, "outer 1: inner");
    char longest[SL_ERR_MSG_BYTES * 2];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    sl_err_set(&err, SL_ERR_READ, "%s", longest);
    sl_err_prefix(&err, "outer");
    assert_int_equal(strlen(err.msg), SL_ERR_MSG_BYTES - 1);
    assert_memory_equal(err.msg, "outer: aaa", 10);
}

static void sys__errno_chooses_code(void **state)
{
    (void)state;
    struct sl_err err;
    assert_int_equal(sl_err_sys(&err, SL_ERR_WRITE, ENOSPC, "w"), SL_ERR_FULL);
    assert_int_equal(err.code, SL_ERR_FULL);
    assert_int_equal(err.sys, ENOSPC);
    assert_string_equal(err.msg, "w: No space left on device");
    assert_int_equal(sl_err_sys(NULL, SL_ERR_WRITE, EDQUOT, "w"), SL_ERR_FULL);
    assert_int_equal(sl_err_sys(NULL, SL_ERR_WRITE, ENOMEM, "w"), SL_ERR_NO_MEMORY);
    assert_int_equal(sl_err_sys(NULL, SL_ERR_WRITE, EACCES, "w"), SL_ERR_DENIED);
    assert_int_equal(sl_err_sys(NULL, SL_ERR_WRITE, EIO, "w"), SL_ERR_WRITE);
}

static void codes__any_int__answered(void **state)
{
    (void)state;
    for (int code = -1000; code < 1000; code++) {
        assert_non_null(sl_code_name(code));
        assert_non_null(sl_code_text(code));
        assert_in_range(sl_code_exit(code), code == 0 ? 0 : 1, code == 0 ? 0 : 125);
    }
    assert_string_equal(sl_code_name(SL_ERR_REPO), "REPO");
    assert_true(sl_code_retryable(SL_ERR_CLOSED));
    assert_false(sl_code_retryable(SL_ERR_EXISTS));
    assert_false(sl_code_retryable(0));
}

#ifdef SLUICE_FAULTS
static void fault__nth__once(void **state)
{
    (void)state;
    assert_int_equal(sl_fault_set("a.b:EIO@2,c:skip@1+"), 0);
    assert_int_equal(sl_fault("a.b"), 0);
    assert_int_equal(sl_fault("a.b"), EIO);
    assert_int_equal(sl_fault("a.b"), 0);
    assert_int_equal(sl_fault("c"), SL_FAULT_SKIP);
    assert_int_equal(sl_fault("c"), SL_FAULT_SKIP);
    assert_int_equal(sl_fault("d"), 0);
    assert_int_equal(sl_fault_passed(), 6);
    assert_int_equal(sl_fault_set("*:ENOSPC@3"), 0);
    assert_int_equal(sl_fault("x") + sl_fault("y"), 0);
    assert_int_equal(sl_fault("z"), ENOSPC);
    assert_int_equal(sl_fault_set(NULL), 0);
}

static void fault__unreadable__refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"a", "a:", ":EIO", "a:EWHAT", "a:EIO@0", "a:EIO@x", "a:b:c"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (sl_fault_set(bad[i]) != SL_ERR_USAGE)
            fail_msg("\"%s\" was taken", bad[i]);
    assert_int_equal(sl_fault_set(NULL), 0);
}

static void alloc__fault__null(void **state)
{
    (void)state;
    sl_fault_set("alloc:ENOMEM@1+");
    assert_null(sl_alloc(1));
    assert_null(sl_calloc(1, 1));
    assert_null(sl_realloc(NULL, 1));
    assert_null(sl_strdup("x"));
    assert_null(sl_asprintf("%d", 1));
    assert_null(sl_pages_alloc(1));
    sl_fault_set(NULL);
}
#endif

static void pages__whole_and_zero(void **state)
{
    (void)state;
    uint8_t *pages = sl_pages_alloc(4097);
    assert_non_null(pages);
    assert_int_equal((uintptr_t)pages % 4096, 0);
    for (size_t i = 0; i < 8192; i++)
        assert_int_equal(pages[i], 0);
    sl_pages_free(pages, 4097);
    assert_null(sl_pages_alloc(0));
    sl_pages_free(NULL, 1);
}

static void deadline__far_and_past(void **state)
{
    (void)state;
    assert_true(sl_deadline_in_ms(UINT64_MAX) == UINT64_MAX);
    assert_int_equal(sl_deadline_poll_ms(UINT64_MAX), INT_MAX);
    assert_true(sl_deadline_passed(0));
    assert_int_equal(sl_deadline_poll_ms(0), 0);
    sl_deadline soon = sl_deadline_in_ms(100000);
    assert_false(sl_deadline_passed(soon));
    assert_in_range(sl_deadline_poll_ms(soon), 90000, 100000);
}

static void wall_text__utc(void **state)
{
    (void)state;
    char text[40];
    assert_string_equal(sl_wall_text(1796056057123456789ull, text, sizeof text),
                        "2026-11-30 16:27:37.123+00");
}

static void cond__nobody_signals__deadline(void **state)
{
    (void)state;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    assert_int_equal(sl_cond_init(&cond), 0);
    pthread_mutex_lock(&mutex);
    while (sl_cond_wait(&cond, &mutex, sl_deadline_in_ms(20)))
        ; /* spurious wake-ups */
    pthread_mutex_unlock(&mutex);
    pthread_cond_destroy(&cond);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hint__no_err__keeps_code),
        cmocka_unit_test(prefix__stands_before),
        cmocka_unit_test(sys__errno_chooses_code),
        cmocka_unit_test(codes__any_int__answered),
#ifdef SLUICE_FAULTS
        cmocka_unit_test(fault__nth__once),
        cmocka_unit_test(fault__unreadable__refused),
        cmocka_unit_test(alloc__fault__null),
#endif
        cmocka_unit_test(pages__whole_and_zero),
        cmocka_unit_test(deadline__far_and_past),
        cmocka_unit_test(wall_text__utc),
        cmocka_unit_test(cond__nobody_signals__deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
