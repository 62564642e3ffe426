/* The conformance suite of lanes: what core/transport/lane.h promises, as cases that every
 * transport passes. A test program describes its transport (struct lane_fixture) and calls
 *
 *     int main(int argc, char **argv) { return lane_conformance_main(argc, argv, &fixture, …); }
 *
 * The cases with a peer in another process start the same program again with "--peer …"; main must
 * hand over to lane_conformance_main() before it does anything else. Environment: LANE_TESTS, a
 * pattern (cmocka's * and ?) of the cases to run.
 */
#ifndef SL_TESTS_LANE_CONFORMANCE_H
#define SL_TESTS_LANE_CONFORMANCE_H

#include "tests/support/lane_world.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Runs the suite and then `extra` cases of the transport's own (may be NULL). Returns main's exit
 * status. */
int lane_conformance_main(int argc, char **argv, const struct lane_fixture *fixture,
                          const struct CMUnitTest *extra, size_t extra_count);

/* --- for the cases themselves ---------------------------------------------------------------- */

#define LANE_REGION_BYTES (2u * SL_SLOT_BYTES_MAX)

extern const struct lane_fixture *lane_fixture; /* under test */

/* A world with one pair, and memory on both sides. */
struct lane_case {
    struct lane_world world;
    struct lane_memory pulled, pushed; /* the client's, LANE_REGION_BYTES each */
    struct lane_memory local;          /* the target's */
};

int lane_case_open(struct lane_case *c, struct sl_err *err);
bool lane_case_close(struct lane_case *c); /* false: an end broke the rules of events */
int lane_case_setup(void **state);
int lane_case_teardown(void **state);
#define LANE_CASE(f) cmocka_unit_test_setup_teardown(f, lane_case_setup, lane_case_teardown)

/* Abbreviations for posting on the first pair. */
int lane_pull(struct lane_case *c, size_t to, uint64_t offset, uint32_t bytes, uint64_t context);
int lane_push(struct lane_case *c, size_t from, uint64_t offset, uint32_t bytes, uint64_t context);
int lane_notice(struct lane_case *c, uint64_t number);
uint64_t lane_notice_number(const struct sl_lane_event *event);
/* All works 0 … count-1 answered exactly once, with 0 or a failure code if `may_fail`. */
void lane_expect_answered(const struct lane_end *active, uint64_t count, bool may_fail);

struct lane_tests {
    const struct CMUnitTest *tests;
    size_t count;
};
extern const struct lane_tests lane_transfer_tests, lane_refuse_tests, lane_close_tests,
    lane_peer_tests, lane_torture_tests;

int lane_peer_main(int argc, char **argv); /* the other process */

#endif
