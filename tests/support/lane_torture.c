/* Conformance: each call that can fail is failed in turn. A lane's whole life must then end in an
 * error code: no hang, no leak, no crash; and succeed when nothing was failed. */
#include "tests/support/lane_conformance.h"

#include "core/base/fault.h"

#include <stdio.h>
#include <string.h>

#define WAIT_MS 5000

/* Waits in the world for `count` events of a kind at an end. */
static int await(struct lane_world *w, const struct lane_end *end, enum sl_lane_event_kind kind,
                 size_t count)
{
    sl_deadline until = sl_deadline_in_ms(WAIT_MS);
    while (lane_count(end, kind) < count) {
        if (end->closed)
            return end->close_code;
        if (sl_deadline_passed(until))
            return SL_ERR_TIMEOUT;
        lane_pump(w->ends, w->end_count, 20);
    }
    return 0;
}

static int use(struct lane_case *c)
{
    struct lane_world *w = &c->world;
    lane_fill(c->pulled.start, c->pulled.bytes, 1);
    int rc = lane_pull(c, 0, 0, 300000, 0);
    if (!rc)
        rc = await(w, &w->active, SL_LANE_PULLED, 1);
    if (!rc)
        rc = lane_push(c, 0, 0, 300000, 1);
    if (!rc)
        rc = lane_notice(c, 1);
    if (!rc)
        rc = await(w, &w->passive, SL_LANE_NOTICE, 1);
    if (!rc && !lane_holds(c->pushed.start, 300000, 1))
        rc = SL_ERR_CHECKSUM;
    sl_lane_close(w->active.lane, SL_ERR_CLOSED, "done");
    int ended = await(w, &w->active, SL_LANE_CLOSED, 1);
    if (ended != SL_ERR_TIMEOUT)
        ended = await(w, &w->passive, SL_LANE_CLOSED, 1);
    return ended == SL_ERR_TIMEOUT ? ended : rc;
}

static int whole_life(void)
{
    struct lane_case c = {0};
    struct sl_err err;
    int rc = lane_case_open(&c, &err);
    if (!rc)
        rc = use(&c);
    return lane_case_close(&c) ? rc : SL_ERR_INTERNAL;
}

static void lane_life__each_call_fails_once__no_hang_no_leak(void **state)
{
    (void)state;
#ifdef SLUICE_FAULTS
    assert_int_equal(whole_life(), 0);
    size_t before = lane_open_fds();
    int failures = 0;
    for (unsigned n = 1;; n++) {
        char rule[32];
        snprintf(rule, sizeof rule, "*:EIO@%u", n);
        assert_int_equal(sl_fault_set(rule), 0);
        int rc = whole_life();
        uint64_t passed = sl_fault_passed();
        sl_fault_set(NULL);
        if (rc == SL_ERR_TIMEOUT || rc == SL_ERR_CHECKSUM || rc == SL_ERR_INTERNAL)
            fail_msg("with %s: %s", rule, sl_code_name(rc));
        assert_int_equal(lane_open_fds(), before);
        failures += rc != 0;
        if (passed < n) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_true(n < 10000);
    }
    assert_true(failures >= 5);
#else
    skip();
#endif
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(lane_life__each_call_fails_once__no_hang_no_leak),
};

const struct lane_tests lane_torture_tests = {tests, sizeof tests / sizeof *tests};
