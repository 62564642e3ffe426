/* What can go wrong with a device, on the fake one: each completion error, lost and stray
 * completions, device loss, a hostile peer, exhausted limits. */
#include "core/verbs/verbs_internal.h"
#include "tests/support/fake_verbs.h"
#include "tests/support/lane_conformance.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct sl_transport_plugin plugin = {
    .abi = SL_TRANSPORT_ABI, .rail = &sl_verbs_rail_ops, .listen = sl_verbs_listen};

static const struct lane_fixture fixture = {
    .name = "verbs faults",
    .rail = &sl_verbs_rail_ops,
    .host = "127.0.0.1",
    .target_open = lane_plugin_target_open,
    .target_accept = lane_plugin_target_accept,
    .target_close = lane_plugin_target_close,
    .plugin = &plugin,
};

static int setup(void **state)
{
    fake_verbs_install();
    if (lane_case_setup(state) != 0)
        return -1;
    struct lane_case *c = *state;
    LANE_WAIT(&c->world, c->world.passive.count > 0); /* READY */
    fake_verbs_count_from_here();
    return 0;
}

static int setup_iwarp(void **state)
{
    fake_verbs_install();
    fake_verbs_iwarp();
    return lane_case_setup(state);
}

static int teardown(void **state)
{
    int rc = lane_case_teardown(state);
    if (fake_verbs.violations || fake_verbs_live()) {
        print_error("%u violations (%s), %zu objects left\n", fake_verbs.violations,
                    fake_verbs.violation, fake_verbs_live());
        return -1;
    }
    return rc;
}

#define CASE(f)  cmocka_unit_test_setup_teardown(f, setup, teardown)
#define IWARP(f) cmocka_unit_test_setup_teardown(f, setup_iwarp, teardown)

static struct lane_end *active_of(struct lane_case *c)
{
    return &c->world.active;
}

static int code_of(struct lane_case *c, enum sl_lane_event_kind kind, uint64_t context)
{
    int code = 1;
    assert_int_equal(lane_answers(active_of(c), kind, context, &code), 1);
    return code;
}

/* --- completion errors ----------------------------------------------------------------------- */

static const struct {
    enum ibv_wc_status status;
    int code;
    const char *words;
} errors[] = {
    {IBV_WC_LOC_LEN_ERR, SL_ERR_PROTOCOL, "local length error"},
    {IBV_WC_LOC_QP_OP_ERR, SL_ERR_INTERNAL, "local QP operation error"},
    {IBV_WC_LOC_EEC_OP_ERR, SL_ERR_DEVICE, "local EE context"},
    {IBV_WC_LOC_PROT_ERR, SL_ERR_INTERNAL, "local protection error"},
    {IBV_WC_WR_FLUSH_ERR, SL_ERR_CLOSED, "flushed"},
    {IBV_WC_MW_BIND_ERR, SL_ERR_DEVICE, "memory"},
    {IBV_WC_BAD_RESP_ERR, SL_ERR_DEVICE, "bad response"},
    {IBV_WC_LOC_ACCESS_ERR, SL_ERR_INTERNAL, "local access"},
    {IBV_WC_REM_INV_REQ_ERR, SL_ERR_DENIED, "remote invalid request"},
    {IBV_WC_REM_ACCESS_ERR, SL_ERR_DENIED, "remote access error"},
    {IBV_WC_REM_OP_ERR, SL_ERR_DENIED, "remote operation error"},
    {IBV_WC_RETRY_EXC_ERR, SL_ERR_TIMEOUT, "transport retry counter exceeded"},
    {IBV_WC_RNR_RETRY_EXC_ERR, SL_ERR_TIMEOUT, "RNR retry counter exceeded"},
    {IBV_WC_LOC_RDD_VIOL_ERR, SL_ERR_DEVICE, "violation"},
    {IBV_WC_REM_INV_RD_REQ_ERR, SL_ERR_DENIED, "remote invalid RD request"},
    {IBV_WC_REM_ABORT_ERR, SL_ERR_TIMEOUT, "aborted"},
    {IBV_WC_INV_EECN_ERR, SL_ERR_DEVICE, "invalid"},
    {IBV_WC_INV_EEC_STATE_ERR, SL_ERR_DEVICE, "invalid"},
    {IBV_WC_FATAL_ERR, SL_ERR_DEVICE, "fatal error"},
    {IBV_WC_RESP_TIMEOUT_ERR, SL_ERR_TIMEOUT, "response timeout"},
    {IBV_WC_GENERAL_ERR, SL_ERR_DEVICE, "general error"},
};

/* Of five pieces of work the third fails: two succeed, one has the error's code, the rest are
 * flushed; the lane's reason names the status and the vendor's number. */
static void one_error(size_t i, bool is_pull)
{
    void *state;
    assert_int_equal(setup(&state), 0);
    struct lane_case *c = state;
    fake_verbs.hold = true;
    for (uint64_t n = 0; n < 5; n++)
        assert_int_equal(
            is_pull ? lane_pull(c, n * 4096, 0, 4096, n) : lane_push(c, 0, n * 4096, 4096, n), 0);
    fake_verbs.fail_at = 3;
    fake_verbs.fail_status = errors[i].status;
    fake_verbs.vendor_error = 0xdead;
    fake_verbs_run(100, false);
    LANE_WAIT(&c->world, active_of(c)->closed);
    enum sl_lane_event_kind kind = is_pull ? SL_LANE_PULLED : SL_LANE_PUSHED;
    const int codes[] = {0, 0, errors[i].code, SL_ERR_CLOSED, SL_ERR_CLOSED};
    for (uint64_t n = 0; n < 5; n++)
        if (code_of(c, kind, n) != codes[n])
            fail_msg("%s: work %d has code %s", errors[i].words, (int)n,
                     sl_code_name(code_of(c, kind, n)));
    assert_int_equal(active_of(c)->close_code, errors[i].code);
    if (!strstr(active_of(c)->lane->reason, errors[i].words) ||
        (errors[i].status != IBV_WC_WR_FLUSH_ERR &&
         !strstr(active_of(c)->lane->reason, "vendor error 0xdead")))
        fail_msg("status %d: reason \"%s\"", errors[i].status, active_of(c)->lane->reason);
    assert_int_equal(lane_pull(c, 0, 0, 1, 9), SL_ERR_CLOSED);
    LANE_WAIT(&c->world, c->world.passive.closed);
    assert_int_equal(teardown(&state), 0);
}

static void completion_error__each_status__named_and_all_answered(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        one_error(i, true);
        one_error(i, false);
    }
}

static void completion_error__of_a_notice__lane_closes(void **state)
{
    struct lane_case *c = *state;
    fake_verbs.fail_at = 1;
    fake_verbs.fail_status = IBV_WC_RNR_RETRY_EXC_ERR;
    assert_int_equal(lane_notice(c, 1), 0);
    LANE_WAIT(&c->world, active_of(c)->closed && c->world.passive.closed);
    assert_int_equal(lane_count(active_of(c), SL_LANE_NOTICED), 1);
    assert_int_equal(active_of(c)->close_code, SL_ERR_TIMEOUT);
    assert_non_null(strstr(active_of(c)->lane->reason, "notice failed: RNR"));
}

static void completion_error__retries_exceeded_on_first_block__mtu_is_named(void **state)
{
    struct lane_case *c = *state;
    assert_int_equal(lane_notice(c, 1), 0);
    fake_verbs.fail_at = 2;
    fake_verbs.fail_status = IBV_WC_RETRY_EXC_ERR;
    assert_int_equal(lane_pull(c, 0, 0, SL_SLOT_BYTES_MAX, 1), 0);
    LANE_WAIT(&c->world, active_of(c)->closed);
    assert_non_null(strstr(active_of(c)->lane->reason, "MTU 4096"));
}

static void completion_error__retries_exceeded_later__mtu_is_not_blamed(void **state)
{
    struct lane_case *c = *state;
    assert_int_equal(lane_pull(c, 0, 0, SL_SLOT_BYTES_MAX, 1), 0);
    fake_verbs.fail_at = 2;
    fake_verbs.fail_status = IBV_WC_RETRY_EXC_ERR;
    assert_int_equal(lane_pull(c, 0, 0, SL_SLOT_BYTES_MAX, 2), 0);
    LANE_WAIT(&c->world, active_of(c)->closed);
    assert_null(strstr(active_of(c)->lane->reason, "MTU"));
}

/* A device that never completes: the caller's deadline closes the lane, and all is answered. */
static void completion_missing__close__each_answered_once(void **state)
{
    struct lane_case *c = *state;
    fake_verbs.hang_at = 2;
    for (uint64_t n = 0; n < 4; n++)
        assert_int_equal(lane_pull(c, n * 4096, 0, 4096, n), 0);
    LANE_WAIT(&c->world, lane_count(active_of(c), SL_LANE_PULLED) == 3);
    for (int i = 0; i < 5; i++)
        lane_pump(c->world.ends, c->world.end_count, 5);
    assert_false(active_of(c)->closed);
    sl_lane_close(active_of(c)->lane, SL_ERR_TIMEOUT, "work waits too long");
    LANE_WAIT(&c->world, active_of(c)->closed);
    lane_expect_answered(active_of(c), 4, true);
    assert_int_equal(code_of(c, SL_LANE_PULLED, 1), SL_ERR_CLOSED);
    assert_int_equal(active_of(c)->close_code, SL_ERR_TIMEOUT);
}

static void completion_stray__lane_closes(void **state)
{
    (void)state;
    const uint64_t ids[] = {0,
                            sl_verbs_wr_id(WORK_PULL, 0),
                            sl_verbs_wr_id(WORK_PUSH, 999),
                            sl_verbs_wr_id(WORK_RECV, 999),
                            sl_verbs_wr_id(WORK_SEND, 0),
                            UINT64_MAX};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        void *own;
        assert_int_equal(setup(&own), 0);
        struct lane_case *d = own;
        fake_verbs_stray_completion(ids[i]);
        LANE_WAIT(&d->world, active_of(d)->closed || d->world.passive.closed);
        assert_int_equal(teardown(&own), 0);
    }
}

/* Two lanes, the younger served first: each one's work is right. */
static void lanes_two__served_in_reverse__right_bytes(void **state)
{
    struct lane_case *c = *state;
    struct lane_end passive, active;
    struct sl_err err;
    assert_int_equal(lane_pair(&c->world, LANE_DEPTH, &passive, &active, &err), 0);
    LANE_WAIT(&c->world, passive.count > 0);
    lane_fill(c->pulled.start, c->pulled.bytes, 5);
    fake_verbs.hold = true;
    for (uint64_t n = 0; n < 8; n++) {
        assert_int_equal(lane_pull(c, n * 4096, n * 4096, 4096, n), 0);
        assert_int_equal(sl_lane_pull(active.lane, lane_local(&c->local, (n + 8) * 4096),
                                      &c->pulled.region->remote, (n + 8) * 4096, 4096, n),
                         0);
    }
    assert_int_equal(fake_verbs_run(100, true), 16);
    LANE_WAIT(&c->world, lane_count(active_of(c), SL_LANE_PULLED) == 8 &&
                             lane_count(&active, SL_LANE_PULLED) == 8);
    assert_true(lane_holds(c->local.start, 16 * 4096, 5));
    lane_end_free(&c->world, &passive);
    lane_end_free(&c->world, &active);
}

/* --- posting --------------------------------------------------------------------------------- */

static void post_fails__work_answered_and_lane_closed(void **state)
{
    (void)state;
    const int sys[] = {ENOMEM, EINVAL, EIO};
    for (size_t i = 0; i < 3; i++)
        for (unsigned nth = 1; nth <= 4; nth++) {
            void *own;
            assert_int_equal(setup(&own), 0);
            struct lane_case *c = own;
            fake_verbs.post_error_at = nth;
            fake_verbs.post_error = sys[i];
            uint64_t posted = 0;
            for (uint64_t n = 0; n < 2; n++) {
                posted += lane_push(c, 0, 0, 4096, n) == 0;
                (void)lane_notice(c, n);
            }
            LANE_WAIT(&c->world, active_of(c)->closed && c->world.passive.closed);
            lane_expect_answered(active_of(c), posted, true);
            assert_int_equal(active_of(c)->close_code, SL_ERR_DEVICE);
            assert_non_null(strstr(active_of(c)->lane->reason, strerror(sys[i])));
            assert_int_equal(teardown(&own), 0);
        }
}

/* --- the device ------------------------------------------------------------------------------ */

static void device_fatal__every_lane_closes_and_no_new_one(void **state)
{
    struct lane_case *c = *state;
    struct lane_end passive, active;
    struct sl_err err;
    assert_int_equal(lane_pair(&c->world, LANE_DEPTH, &passive, &active, &err), 0);
    fake_verbs.hold = true;
    for (uint64_t n = 0; n < 3; n++)
        assert_int_equal(lane_pull(c, 0, 0, 4096, n), 0);
    fake_verbs_device_fatal();
    LANE_WAIT(&c->world,
              active_of(c)->closed && c->world.passive.closed && active.closed && passive.closed);
    lane_expect_answered(active_of(c), 3, true);
    for (size_t i = 0; i < c->world.end_count; i++) {
        assert_int_equal(c->world.ends[i]->close_code, SL_ERR_DEVICE);
        assert_string_equal(c->world.ends[i]->lane->reason, "the RDMA device failed");
    }
    lane_end_free(&c->world, &passive);
    lane_end_free(&c->world, &active);
    assert_true(lane_pair(&c->world, LANE_DEPTH, &passive, &active, &err) < 0);
}

static void device_removed__lane_closes(void **state)
{
    struct lane_case *c = *state;
    fake_verbs.hold = true;
    assert_int_equal(lane_pull(c, 0, 0, 4096, 0), 0);
    fake_verbs_remove();
    LANE_WAIT(&c->world, active_of(c)->closed && c->world.passive.closed);
    assert_int_equal(active_of(c)->close_code, SL_ERR_DEVICE);
    assert_non_null(strstr(active_of(c)->lane->reason, "removed"));
    assert_int_equal(c->world.passive.close_code, SL_ERR_DEVICE);
    lane_expect_answered(active_of(c), 1, true);
}

static void port_flaps__lane_stays(void **state)
{
    struct lane_case *c = *state;
    fake_verbs_port(false);
    fake_verbs_port(true);
    assert_int_equal(lane_pull(c, 0, 0, 4096, 0), 0);
    LANE_WAIT(&c->world, lane_count(active_of(c), SL_LANE_PULLED) == 1);
    assert_int_equal(code_of(c, SL_LANE_PULLED, 0), 0);
}

static void completion_queue_overrun__lane_closes(void **state)
{
    struct lane_case *c = *state;
    fake_verbs_overrun();
    LANE_WAIT(&c->world, active_of(c)->closed && c->world.passive.closed);
    bool named = strstr(active_of(c)->lane->reason, "overrun") ||
                 strstr(c->world.passive.lane->reason, "overrun");
    assert_true(named);
}

/* --- the peer -------------------------------------------------------------------------------- */

static void peer_gone_untold__next_work_fails(void **state)
{
    struct lane_case *c = *state;
    fake_verbs.lose_disconnects = true;
    lane_end_free(&c->world, &c->world.passive);
    for (int i = 0; i < 5; i++)
        lane_pump(c->world.ends, c->world.end_count, 5);
    assert_false(active_of(c)->closed);
    assert_int_equal(lane_pull(c, 0, 0, 4096, 0), 0);
    LANE_WAIT(&c->world, active_of(c)->closed);
    assert_int_equal(active_of(c)->close_code, SL_ERR_TIMEOUT);
    assert_int_equal(code_of(c, SL_LANE_PULLED, 0), SL_ERR_TIMEOUT);
}

/* A client that does not look at its notices: they queue, are BUSY at the depth, and none is lost;
 * no RNR NAK is ever seen. */
static void client_asleep__notices_wait_for_grants(void **state)
{
    struct lane_case *c = *state;
    uint64_t sent = 0, rounds = 0;
    for (; rounds < 40; rounds++) {
        while (lane_notice(c, sent) == 0)
            sent++;
        lane_process(active_of(c));
    }
    /* buffers of the client, and the depth on top of them */
    assert_int_equal(sent, 2 * LANE_DEPTH + LANE_DEPTH);
    assert_int_equal(lane_count(active_of(c), SL_LANE_NOTICED), 2 * LANE_DEPTH);
    LANE_WAIT(&c->world, lane_count(&c->world.passive, SL_LANE_NOTICE) == sent);
    LANE_WAIT(&c->world, lane_count(active_of(c), SL_LANE_NOTICED) == sent);
    assert_int_equal(fake_verbs.rnr, 0);
}

static void forge(char to, const void *bytes, uint32_t count, int code, const char *words)
{
    void *own;
    assert_int_equal(setup(&own), 0);
    struct lane_case *c = own;
    fake_verbs_forge(to, bytes, count);
    struct lane_end *end = to == 't' ? active_of(c) : &c->world.passive;
    LANE_WAIT(&c->world, end->closed);
    assert_int_equal(end->close_code, code);
    if (!strstr(end->lane->reason, words))
        fail_msg("reason \"%s\"", end->lane->reason);
    assert_int_equal(teardown(&own), 0);
}

static void hostile_messages__lane_closes(void **state)
{
    (void)state;
    uint8_t bytes[64] = {0};
    struct sl_writer w;
    forge('t', bytes, 16, SL_ERR_PROTOCOL, "malformed grant");
    forge('t', bytes, 15, SL_ERR_PROTOCOL, "not 16 bytes");
    forge('t', bytes, 0, SL_ERR_PROTOCOL, "not 16 bytes");
    forge('t', bytes, 64, SL_ERR_PROTOCOL, "local length error");
    forge('c', bytes, 8, SL_ERR_PROTOCOL, "not 16 bytes");
    forge('c', bytes, 17, SL_ERR_PROTOCOL, "local length error");
    const uint32_t counts[] = {UINT16_MAX, UINT16_MAX + 1, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        w = sl_writer_on(bytes, sizeof bytes);
        sl_write_u32(&w, SL_VERBS_GRANT_MAGIC);
        sl_write_u32(&w, counts[i]);
        sl_write_u64(&w, 0);
        forge('t', bytes, 16, SL_ERR_PROTOCOL, "malformed grant");
    }
    w = sl_writer_on(bytes, sizeof bytes);
    sl_write_u32(&w, SL_VERBS_GRANT_MAGIC);
    sl_write_u32(&w, 1);
    sl_write_u64(&w, 1);
    forge('t', bytes, 16, SL_ERR_PROTOCOL, "malformed grant");
}

/* Grants of nothing are known from iWARP clients, but only a few of them. */
static void nudges__endless__lane_closes(void **state)
{
    struct lane_case *c = *state;
    uint8_t bytes[SL_NOTICE_BYTES];
    struct sl_writer w = sl_writer_on(bytes, sizeof bytes);
    sl_write_u32(&w, SL_VERBS_GRANT_MAGIC);
    sl_write_u32(&w, 0);
    sl_write_u64(&w, 0);
    for (int i = 0; i < SL_VERBS_NUDGES; i++) {
        assert_true(fake_verbs_forge('t', bytes, sizeof bytes));
        lane_process(active_of(c));
    }
    assert_false(active_of(c)->closed);
    assert_true(fake_verbs_forge('t', bytes, sizeof bytes));
    lane_process(active_of(c));
    assert_true(active_of(c)->closed);
    assert_int_equal(active_of(c)->close_code, SL_ERR_PROTOCOL);
}

static void lane_iwarp__nudges_end(void **state)
{
    struct lane_case *c = *state;
    sl_deadline until = sl_deadline_in_ms(1500);
    while (!sl_deadline_passed(until))
        lane_pump(c->world.ends, c->world.end_count, 20);
    assert_int_equal(((struct verbs_lane *)active_of(c)->lane)->nudges, SL_VERBS_NUDGES);
    assert_false(active_of(c)->closed);
}

/* --- opening --------------------------------------------------------------------------------- */

static int connect_once(struct lane_case *c, uint64_t ms, struct sl_err *err)
{
    struct sl_lane *lane;
    int rc = lane_connect(c->world.client_rail, c->world.client, lane_fixture,
                          c->world.target->port, 77, LANE_DEPTH, sl_deadline_in_ms(ms), &lane, err);
    if (rc == 0)
        sl_lane_free(lane);
    return rc;
}

static void connect__request_lost__fails_at_the_deadline(void **state)
{
    struct lane_case *c = *state;
    struct sl_err err;
    fake_verbs.silent = true;
    uint64_t begin = sl_now_ns();
    assert_int_equal(connect_once(c, 200, &err), SL_ERR_TIMEOUT);
    assert_true(sl_now_ns() - begin >= 190 * SL_NS_PER_MS);
    assert_non_null(strstr(err.msg, "no answer"));
}

static void connect__no_device_on_the_way__says_what_there_is(void **state)
{
    struct lane_case *c = *state;
    struct sl_err err;
    fake_verbs.address_status = -ENODEV;
    assert_int_equal(connect_once(c, 1000, &err), SL_ERR_CONNECT);
    assert_non_null(strstr(err.msg, "no RDMA device of this host leads to 127.0.0.1"));
    assert_non_null(strstr(err.hint, "fake0/1 Ethernet"));
    fake_verbs.address_status = -ETIMEDOUT;
    assert_int_equal(connect_once(c, 1000, &err), SL_ERR_TIMEOUT);
    fake_verbs.address_status = -EHOSTUNREACH;
    assert_int_equal(connect_once(c, 1000, &err), SL_ERR_CONNECT);
}

static void resolve__device_unfit__refused(void **state)
{
    (void)state;
    fake_verbs_install();
    struct sl_rail *rail;
    struct sl_err err;
    const struct sl_connect to = {.host = "127.0.0.1",
                                  .port = "7431",
                                  .deadline = sl_deadline_in_ms(1000),
                                  .traffic_class = 32};
    const struct sl_rail_ops *ops = &sl_verbs_rail_ops;
    fake_verbs.port.state = IBV_PORT_DOWN;
    assert_int_equal(ops->resolve(&to, &rail, &err), SL_ERR_CONNECT);
    assert_non_null(strstr(err.msg, "down"));
    fake_verbs.port.state = IBV_PORT_ACTIVE;
    fake_verbs.port.max_msg_sz = SL_SLOT_BYTES_MAX - 1;
    assert_int_equal(ops->resolve(&to, &rail, &err), SL_ERR_UNSUPPORTED);
    fake_verbs.port.max_msg_sz = SL_SLOT_BYTES_MAX;
    fake_verbs.device.max_qp_wr = 4;
    assert_int_equal(ops->resolve(&to, &rail, &err), SL_ERR_UNSUPPORTED);
    fake_verbs.device.max_qp_wr = 56;
    assert_int_equal(ops->resolve(&to, &rail, &err), 0);
    assert_int_equal(rail->max_depth, 28);
    assert_string_equal(rail->label, "rdma fake0/1");
    ops->rail_free(rail);
    fake_verbs.absent = true;
    assert_int_equal(ops->resolve(&to, &rail, &err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "no RDMA device"));
    assert_int_equal(fake_verbs_live(), 0);
    assert_int_equal(fake_verbs.violations, 0);
}

static void connect__device_serves_no_reads__refused(void **state)
{
    (void)state;
    void *own;
    fake_verbs_install();
    fake_verbs.device.max_qp_rd_atom = 0;
    assert_int_equal(lane_case_setup(&own), SL_ERR_UNSUPPORTED);
    assert_int_equal(teardown(&own), 0);
}

static void connect__short_private_data__refused(void **state)
{
    (void)state;
    for (uint8_t bytes = 1; bytes < SL_LANE_HELLO_BYTES; bytes = (uint8_t)(bytes + 10)) {
        void *own;
        fake_verbs_install();
        fake_verbs.private_max = bytes;
        assert_true(lane_case_setup(&own) < 0);
        assert_int_equal(teardown(&own), 0);
    }
    void *own; /* and exactly enough, without padding */
    fake_verbs_install();
    fake_verbs.private_max = SL_LANE_HELLO_BYTES;
    assert_int_equal(lane_case_setup(&own), 0);
    assert_int_equal(teardown(&own), 0);
}

static void lane_depth__small_device__clamped(void **state)
{
    (void)state;
    void *own;
    fake_verbs_install();
    fake_verbs.device.max_qp_wr = 8;
    fake_verbs.device.max_qp_rd_atom = 1;
    assert_int_equal(lane_case_setup(&own), 0);
    struct lane_case *c = own;
    assert_int_equal(active_of(c)->lane->depth, 4);
    for (uint64_t n = 0; n < 4; n++)
        assert_int_equal(lane_pull(c, 0, 0, 4096, n), 0);
    LANE_WAIT(&c->world, lane_count(active_of(c), SL_LANE_PULLED) == 4);
    assert_int_equal(teardown(&own), 0);
}

static void lane_info__says_what_was_chosen(void **state)
{
    struct lane_case *c = *state;
    struct sl_lane_info info;
    active_of(c)->lane->ops->info(active_of(c)->lane, &info);
    assert_string_equal(info.transport, "rdma");
    assert_string_equal(info.device, "fake0");
    assert_int_equal(info.port, 1);
    assert_string_equal(info.link_layer, "Ethernet");
    assert_string_equal(info.gid_type, "RoCE v2");
    assert_int_equal(info.mtu, 4096);
    assert_int_equal(info.depth, LANE_DEPTH);
    assert_non_null(strstr(info.local, "127.0.0.1:"));
    assert_non_null(strstr(info.remote, "127.0.0.1:"));
}

static void lane_iwarp__own_sink_and_no_gid(void **state)
{
    struct lane_case *c = *state;
    struct sl_lane_info info;
    active_of(c)->lane->ops->info(active_of(c)->lane, &info);
    assert_true(c->world.client_rail->own_sink);
    assert_true(active_of(c)->lane->domain->rail->own_sink);
    assert_string_equal(info.link_layer, "iWARP");
    assert_string_equal(info.gid_type, "");
    assert_int_equal(info.mtu, 0);
}

/* --- what the host has ----------------------------------------------------------------------- */

static void describe__lists_devices_with_addresses(void **state)
{
    (void)state;
    char text[200], cut[24];
    struct sl_err err;
    fake_verbs_install();
    assert_int_equal(sl_verbs_describe(text, sizeof text, &err), 0);
    assert_non_null(strstr(text, "fake0/1 Ethernet RoCE v2 MTU 4096 active on 127.0.0.1"));
    assert_int_equal(sl_verbs_describe(cut, sizeof cut, &err), 0);
    assert_int_equal(strlen(cut), sizeof cut - 1);
    fake_verbs.port.state = IBV_PORT_DOWN;
    assert_int_equal(sl_verbs_describe(text, sizeof text, &err), 0);
    assert_non_null(strstr(text, " down"));
    fake_verbs.absent = true;
    assert_int_equal(sl_verbs_describe(text, sizeof text, &err), SL_ERR_UNSUPPORTED);
}

/* CAP_IPC_LOCK exempts from the limit, so it is put away for the while. */
static void memlock__beyond_the_limit__exact_figure(void **state)
{
    (void)state;
    struct sl_err err;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2], fewer[2];
    struct rlimit before, low = {65536, 65536};
    assert_int_equal(syscall(SYS_capget, &header, caps), 0);
    memcpy(fewer, caps, sizeof caps);
    fewer[0].effective &= ~(1u << CAP_IPC_LOCK);
    getrlimit(RLIMIT_MEMLOCK, &before);
    low.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
    assert_int_equal(syscall(SYS_capset, &header, fewer), 0);
    int rc = sl_verbs_memlock(8u << 20, &err);
    int fits = sl_verbs_memlock(4096, NULL);
    assert_int_equal(syscall(SYS_capset, &header, caps), 0);
    setrlimit(RLIMIT_MEMLOCK, &before);
    assert_int_equal(rc, SL_ERR_LIMIT);
    assert_int_equal(fits, 0);
    assert_non_null(strstr(err.msg, "RDMA needs 8192 KiB"));
    assert_non_null(strstr(err.msg, "RLIMIT_MEMLOCK is 64 KiB"));
    assert_non_null(strstr(err.hint, "ulimit -l 8192"));
}

int main(int argc, char **argv)
{
    (void)argc, (void)argv;
    lane_fixture = &fixture;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(completion_error__each_status__named_and_all_answered),
        CASE(completion_error__of_a_notice__lane_closes),
        CASE(completion_error__retries_exceeded_on_first_block__mtu_is_named),
        CASE(completion_error__retries_exceeded_later__mtu_is_not_blamed),
        CASE(completion_missing__close__each_answered_once),
        cmocka_unit_test(completion_stray__lane_closes),
        CASE(lanes_two__served_in_reverse__right_bytes),
        cmocka_unit_test(post_fails__work_answered_and_lane_closed),
        CASE(device_fatal__every_lane_closes_and_no_new_one),
        CASE(device_removed__lane_closes),
        CASE(port_flaps__lane_stays),
        CASE(completion_queue_overrun__lane_closes),
        CASE(peer_gone_untold__next_work_fails),
        CASE(client_asleep__notices_wait_for_grants),
        cmocka_unit_test(hostile_messages__lane_closes),
        CASE(nudges__endless__lane_closes),
        IWARP(lane_iwarp__nudges_end),
        CASE(connect__request_lost__fails_at_the_deadline),
        CASE(connect__no_device_on_the_way__says_what_there_is),
        cmocka_unit_test(resolve__device_unfit__refused),
        cmocka_unit_test(connect__device_serves_no_reads__refused),
        cmocka_unit_test(connect__short_private_data__refused),
        cmocka_unit_test(lane_depth__small_device__clamped),
        CASE(lane_info__says_what_was_chosen),
        IWARP(lane_iwarp__own_sink_and_no_gid),
        cmocka_unit_test(describe__lists_devices_with_addresses),
        cmocka_unit_test(memlock__beyond_the_limit__exact_figure),
    };
    return cmocka_run_group_tests_name("verbs faults", tests, NULL, NULL);
}
