/* Shared by the TCP lane's tests. */
#ifndef SL_TEST_TCP_H
#define SL_TEST_TCP_H

#include "tests/support/lane_conformance.h"
#include "tests/support/lane_fixtures.h"

extern const struct CMUnitTest tcp_hostile_tests[];
extern const size_t tcp_hostile_test_count;

#endif
