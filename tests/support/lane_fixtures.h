/* The transports of core/transport as the lane tests and benches see them. */
#ifndef SL_TESTS_LANE_FIXTURES_H
#define SL_TESTS_LANE_FIXTURES_H

#include "tests/support/lane_world.h"

extern const struct lane_fixture lane_loopback_fixture;
extern const struct lane_fixture lane_tcp_fixture; /* at 127.0.0.1; a copy may have another host */

/* A listening socket on `host` (numeric), its port in `port`; -1 when that cannot be had. */
int lane_tcp_listen(const char *host, char port[8]);

#endif
