/* TCP lanes: the conformance suite, and what only they promise. */
#include "tests/unit/core/transport/test_tcp.h"

#include "core/base/fault.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- only TCP -------------------------------------------------------------------------------- */

static void tcp_call__interrupted_or_not_ready__goes_on(void **state)
{
#ifdef SLUICE_FAULTS
    struct lane_case *c = *state;
    struct lane_world *w = &c->world;
    const char *const rules[] = {"tcp.send:EINTR", "tcp.recv:EINTR", "tcp.send:EAGAIN",
                                 "tcp.recv:EAGAIN"};
    lane_fill(c->pulled.start, c->pulled.bytes, 1);
    uint64_t n = 0;
    for (size_t i = 0; i < 4; i++)
        for (int at = 1; at < 12; at++, n++) {
            char rule[32];
            snprintf(rule, sizeof rule, "%s@%d", rules[i], at);
            assert_int_equal(sl_fault_set(rule), 0);
            memset(c->local.start, 0, 700000);
            assert_int_equal(lane_pull(c, 0, n, 700000, n), 0);
            assert_int_equal(lane_push(c, 700000, n, 700000, n), 0);
            assert_int_equal(lane_notice(c, n), 0);
            LANE_WAIT(w, lane_count(&w->passive, SL_LANE_NOTICE) == n + 1 &&
                             lane_count(&w->active, SL_LANE_PULLED) == n + 1);
            sl_fault_set(NULL);
            assert_memory_equal(c->local.start, c->pulled.start + n, 700000);
        }
    assert_false(w->active.closed || w->passive.closed);
#else
    (void)state;
    skip();
#endif
}

/* POLLOUT is wanted only while something waits to be sent: else poll(2) would spin. */
static void tcp_events_wanted__pollout_only_while_output_waits(void **state)
{
    struct lane_case *c = *state;
    struct lane_world *w = &c->world;
    LANE_WAIT(w, w->passive.count > 0);
    assert_int_equal(w->active.lane->events_wanted, POLLIN);
    assert_int_equal(w->passive.lane->events_wanted, POLLIN);
    for (int i = 0; i < 8; i++)
        assert_int_equal(lane_push(c, 0, 0, SL_SLOT_BYTES_MAX, (uint64_t)i), 0);
    assert_int_equal(w->active.lane->events_wanted, POLLIN | POLLOUT);
    struct lane_end *active = &w->active;
    for (int i = 0; i < 200 && lane_count(active, SL_LANE_PUSHED) < 8; i++)
        lane_pump(&active, 1, 1);
    /* the peer reads nothing: 8 MiB do not fit into the sockets */
    assert_true(lane_count(active, SL_LANE_PUSHED) < 8);
    assert_int_equal(active->lane->events_wanted, POLLIN | POLLOUT);
    struct pollfd stuck = {.fd = active->lane->fd, .events = active->lane->events_wanted};
    assert_int_equal(poll(&stuck, 1, 0), 0);
    LANE_WAIT(w, lane_count(active, SL_LANE_PUSHED) == 8);
    assert_int_equal(active->lane->events_wanted, POLLIN);
}

/* One process() call moves a bounded number of bytes, however much is there. */
static void tcp_process__much_to_send__bounded_work(void **state)
{
    struct lane_case *c = *state;
    struct sl_lane *active = c->world.active.lane;
    for (uint64_t i = 0; i < LANE_DEPTH; i++)
        assert_int_equal(lane_push(c, 0, 0, SL_SLOT_BYTES_MAX, i), 0);
    struct lane_end *passive = &c->world.passive;
    size_t most = 0;
    for (size_t done = 0; done < LANE_DEPTH;) {
        struct sl_lane_event events[64];
        size_t n = sl_lane_process(active, events, 64);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(events[i].kind, SL_LANE_PUSHED);
        most = n > most ? n : most;
        done += n;
        lane_pump(&passive, 1, 20);
    }
    assert_in_range(most, 1, 5);
}

static void tcp_depth__is_the_smaller_of_both_ends(void **state)
{
    struct lane_case *c = *state;
    struct lane_end passive, active;
    struct sl_err err;
    assert_int_equal(lane_pair(&c->world, 3, &passive, &active, &err), 0);
    assert_int_equal(passive.lane->depth, 3);
    assert_int_equal(active.lane->depth, 3);
    lane_end_free(&c->world, &active);
    lane_end_free(&c->world, &passive);
}

static void tcp_accept__peer_of_depth_0__refused_and_socket_closed(void **state)
{
    struct lane_case *c = *state;
    struct lane_end passive, active;
    struct sl_err err;
    assert_int_equal(lane_pair(&c->world, 0, &passive, &active, &err), SL_ERR_CLOSED);
    assert_non_null(strstr(err.msg, lane_fixture->host));
}

static void tcp_info__names_addresses(void **state)
{
    struct lane_case *c = *state;
    struct sl_lane_info active, passive;
    c->world.active.lane->ops->info(c->world.active.lane, &active);
    c->world.passive.lane->ops->info(c->world.passive.lane, &passive);
    assert_string_equal(active.local, passive.remote);
    assert_string_equal(active.remote, passive.local);
    assert_non_null(strstr(active.remote, "127.0.0.1:"));
    assert_string_equal(active.transport, "tcp");
    assert_true(active.mtu > 0);
}

static void tcp_errors__name_the_peer(void **state)
{
    struct lane_case *c = *state;
    struct lane_world *w = &c->world;
    struct sl_lane_info info;
    w->active.lane->ops->info(w->active.lane, &info);
    lane_end_free(w, &w->passive);
    LANE_WAIT(w, w->active.closed);
    assert_non_null(strstr(w->active.lane->reason, info.remote));
}

static void tcp_lane__over_ipv6(void **state)
{
    (void)state;
    struct lane_fixture ipv6 = lane_tcp_fixture;
    ipv6.host = "::1";
    const struct lane_fixture *before = lane_fixture;
    char port[8];
    int fd = lane_tcp_listen("::1", port);
    if (fd < 0)
        skip(); /* a host without IPv6 */
    close(fd);
    lane_fixture = &ipv6;
    struct lane_case c = {0};
    struct sl_err err = {0};
    int rc = lane_case_open(&c, &err);
    lane_fixture = before;
    assert_string_equal(err.msg, "");
    assert_int_equal(rc, 0);
    assert_int_equal(lane_pull(&c, 0, 0, 100000, 0), 0);
    LANE_WAIT(&c.world, lane_count(&c.world.active, SL_LANE_PULLED) == 1);
    struct sl_lane_info info;
    c.world.active.lane->ops->info(c.world.active.lane, &info);
    assert_non_null(strstr(info.remote, "[::1]:"));
    assert_true(lane_case_close(&c));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest extra[] = {
        LANE_CASE(tcp_call__interrupted_or_not_ready__goes_on),
        LANE_CASE(tcp_events_wanted__pollout_only_while_output_waits),
        LANE_CASE(tcp_process__much_to_send__bounded_work),
        LANE_CASE(tcp_depth__is_the_smaller_of_both_ends),
        LANE_CASE(tcp_accept__peer_of_depth_0__refused_and_socket_closed),
        LANE_CASE(tcp_info__names_addresses),
        LANE_CASE(tcp_errors__name_the_peer),
        cmocka_unit_test(tcp_lane__over_ipv6),
    };
    const size_t own = sizeof extra / sizeof *extra;
    struct CMUnitTest *all = calloc(own + tcp_hostile_test_count, sizeof *all);
    if (!all)
        return 1;
    memcpy(all, extra, sizeof extra);
    memcpy(all + own, tcp_hostile_tests, tcp_hostile_test_count * sizeof *all);
    int rc =
        lane_conformance_main(argc, argv, &lane_tcp_fixture, all, own + tcp_hostile_test_count);
    free(all);
    return rc;
}
