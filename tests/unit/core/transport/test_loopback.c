/* Loopback lanes: the conformance suite, and what only they promise. */
#include "tests/support/lane_conformance.h"
#include "tests/support/lane_fixtures.h"

#include "core/transport/loopback.h"

static void loopback_pair__depths__clamped(void **state)
{
    struct lane_case *c = *state;
    const uint16_t asked[] = {0, 1, 128, UINT16_MAX}, given[] = {1, 1, 128, 128};
    for (size_t i = 0; i < 4; i++) {
        struct sl_lane *passive, *active;
        struct sl_err err;
        assert_int_equal(sl_loopback_pair(c->world.client, c->world.target_domain, 1, asked[i],
                                          &passive, &active, &err),
                         0);
        assert_int_equal(passive->depth, given[i]);
        assert_int_equal(active->depth, given[i]);
        sl_lane_free(active);
        sl_lane_free(passive);
    }
}

static void loopback_rail__cannot_reach_hosts(void **state)
{
    struct lane_case *c = *state;
    const struct sl_connect to = {.host = "db1", .port = "7430"};
    struct sl_rail *rail;
    struct sl_lane *lane;
    struct sl_err err;
    uint8_t reply[SL_LANE_HELLO_BYTES];
    const struct sl_rail_ops *ops = c->world.client_rail->ops;
    assert_int_equal(ops->resolve(&to, &rail, &err), SL_ERR_UNSUPPORTED);
    assert_int_equal(ops->connect(c->world.client_rail, c->world.client, &to, reply, &lane, &err),
                     SL_ERR_UNSUPPORTED);
}

static void loopback_passive__starts_nothing(void **state)
{
    struct lane_case *c = *state;
    struct sl_lane *passive = c->world.passive.lane;
    uint8_t notice[SL_NOTICE_BYTES] = {0};
    struct sl_local local = lane_local(&c->local, 0);
    assert_int_equal(sl_lane_pull(passive, local, &c->pulled.region->remote, 0, 1, 0),
                     SL_ERR_UNSUPPORTED);
    assert_int_equal(sl_lane_push(passive, local, &c->pushed.region->remote, 0, 1, 0),
                     SL_ERR_UNSUPPORTED);
    assert_int_equal(sl_lane_notice(passive, notice), SL_ERR_UNSUPPORTED);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest extra[] = {
        LANE_CASE(loopback_pair__depths__clamped),
        LANE_CASE(loopback_rail__cannot_reach_hosts),
        LANE_CASE(loopback_passive__starts_nothing),
    };
    return lane_conformance_main(argc, argv, &lane_loopback_fixture, extra,
                                 sizeof extra / sizeof *extra);
}
