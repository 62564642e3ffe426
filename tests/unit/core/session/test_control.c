/* The control connection once it is open, over TLS and as a pair: traffic, frames and time; and the
 * proofs of lanes. Who may open one over TLS is in test_control_tls.c. */
#include "core/base/fault.h"
#include "core/session/control_internal.h"
#include "tests/unit/core/session/control_support.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct certs ours;

static int setup(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_DFL); /* the tests die if one is ever raised */
    certs_for_two(&ours);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    certs_remove(&ours);
    return 0;
}

/* --- traffic, over TLS and over a pair ------------------------------------------------------- */

/* An end with its owner thread: counts what comes, checks the order of each sender. */
#define SENDERS 4

struct end {
    struct sl_control *control;
    pthread_t thread;
    _Atomic uint32_t next[SENDERS]; /* expected of each sender */
    uint32_t wanted;                /* of each */
    int rc;
    struct sl_err err;
    _Atomic bool full;
    struct end *other;
};

static int count_message(void *arg, struct sl_control *control, const struct sl_msg *msg,
                         struct sl_err *err)
{
    struct end *end = arg;
    (void)control;
    if (msg->type != SL_MSG_TABLED)
        return sl_err_set(err, SL_ERR_INTERNAL, "unexpected %s", sl_msg_name((int)msg->type));
    uint32_t sender = msg->tabled.object, number = msg->tabled.first;
    if (sender >= SENDERS || number != end->next[sender])
        return sl_err_set(err, SL_ERR_INTERNAL, "out of order");
    for (size_t i = 0; i < msg->tabled.digests_bytes; i++)
        if (msg->tabled.digests[i] != (uint8_t)(number + i))
            return sl_err_set(err, SL_ERR_INTERNAL, "other bytes");
    end->next[sender]++;
    return 0;
}

static bool satisfied(const struct end *end)
{
    for (int i = 0; i < SENDERS; i++)
        if (end->next[i] < end->wanted)
            return false;
    return true;
}

static void *own(void *arg)
{
    struct end *end = arg;
    sl_deadline deadline = sl_deadline_in_ms(60000);
    /* an end that has all it wants goes on writing until the other has too */
    while (!end->rc && !(atomic_load(&end->full) && atomic_load(&end->other->full))) {
        MUST(!sl_deadline_passed(deadline));
        end->rc = sl_control_process(end->control, count_message, end, &end->err);
        struct pollfd wait = {.fd = sl_control_fd(end->control), .events = POLLIN};
        int ms = sl_control_next_ms(end->control);
        if (satisfied(end))
            atomic_store(&end->full, true);
        if (!end->rc)
            poll(&wait, 1, ms < 0 || ms > 20 ? 20 : ms);
    }
    return NULL;
}

#define SENDER_WINDOW 24u

struct sender {
    struct sl_control *control;
    struct end *reader;
    uint32_t number, count;
    size_t bytes;
    pthread_t thread;
    int rc;
};

static void *send_all(void *arg)
{
    struct sender *s = arg;
    sl_deadline deadline = sl_deadline_in_ms(60000);
    uint8_t *bytes = malloc(s->bytes + 1);
    for (uint32_t i = 0; i < s->count && !s->rc; i++) {
        size_t count = (i * 7919u) % (s->bytes + 1);
        for (size_t k = 0; k < count; k++)
            bytes[k] = (uint8_t)(i + k);
        struct sl_msg msg = {.type = SL_MSG_TABLED};
        msg.tabled = (struct sl_msg_tabled){s->number, i, bytes, count};
        s->rc = sl_control_send(s->control, &msg);
        /* stays below the queue's bound, however slow the reader is */
        while (!s->rc && atomic_load(&s->reader->next[s->number]) + SENDER_WINDOW < i &&
               !sl_deadline_passed(deadline))
            usleep(100);
    }
    free(bytes);
    return NULL;
}

static void exchange(struct sl_control *a, struct sl_control *b, uint32_t count, size_t bytes)
{
    struct end ends[2] = {{.control = a, .wanted = count}, {.control = b, .wanted = count}};
    struct sender senders[2][SENDERS] = {0};
    for (int i = 0; i < 2; i++)
        ends[i].other = &ends[1 - i];
    for (int i = 0; i < 2; i++)
        MUST(pthread_create(&ends[i].thread, NULL, own, &ends[i]) == 0);
    for (int i = 0; i < 2; i++)
        for (uint32_t k = 0; k < SENDERS; k++) {
            senders[i][k] = (struct sender){ends[i].control, &ends[1 - i], k, count, bytes, 0, 0};
            MUST(pthread_create(&senders[i][k].thread, NULL, send_all, &senders[i][k]) == 0);
        }
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < SENDERS; k++) {
            pthread_join(senders[i][k].thread, NULL);
            assert_int_equal(senders[i][k].rc, 0);
        }
    for (int i = 0; i < 2; i++)
        pthread_join(ends[i].thread, NULL);
    for (int i = 0; i < 2; i++) {
        if (ends[i].rc)
            print_error("%s\n", ends[i].err.msg);
        assert_int_equal(ends[i].rc, 0);
        assert_true(satisfied(&ends[i]));
    }
}

static void control__bursts_of_many_senders_over_tls__whole_and_in_order(void **state)
{
    (void)state;
    struct meeting m;
    meet(&m, &ours, "db1", &ours, "backup1", "backup1");
    assert_int_equal(m.client_rc | m.server_rc, 0);
    exchange(m.client, m.server, 600, 6000);
    exchange(m.client, m.server, 40, SL_BODY_MAX - 8);
    part(&m);
}

static void control__bursts_of_many_senders_over_a_pair__whole_and_in_order(void **state)
{
    (void)state;
    struct sl_control *a, *b;
    assert_int_equal(sl_control_pair("local:me@here", &a, &b, NULL), 0);
    assert_true(sl_control_ready(a) && sl_control_ready(b));
    assert_string_equal(sl_control_peer(b), "local:me@here");
    exchange(a, b, 2000, 3000);
    exchange(a, b, 60, SL_BODY_MAX - 8);
    uint8_t ka[48], kb[48];
    struct sl_id id = {{7}};
    assert_int_equal(sl_control_export(a, SL_EXPORT_LANE, &id, ka, sizeof ka, NULL), 0);
    assert_int_equal(sl_control_export(b, SL_EXPORT_LANE, &id, kb, sizeof kb, NULL), 0);
    assert_memory_equal(ka, kb, sizeof ka);
    assert_memory_not_equal(ka, ka + 16, 16);
    sl_control_free(a);
    sl_control_free(b);
}

static void control_send__peer_does_not_read__bounded_and_ends(void **state)
{
    (void)state;
    struct sl_control *a, *b;
    assert_int_equal(sl_control_pair("x", &a, &b, NULL), 0);
    static uint8_t bytes[60000];
    struct sl_msg msg = {.type = SL_MSG_TABLED};
    msg.tabled = (struct sl_msg_tabled){0, 0, bytes, sizeof bytes};
    int rc = 0;
    size_t sent = 0;
    struct sl_err err;
    while (!rc) {
        rc = sl_control_send(a, &msg);
        sent += sizeof bytes;
        if (!rc)
            assert_int_equal(sl_control_process(a, ignore, NULL, &err), 0);
    }
    assert_int_equal(rc, SL_ERR_LIMIT);
    assert_in_range(sent, 7 * 1024 * 1024, 10 * 1024 * 1024);
    assert_int_equal(sl_control_process(a, ignore, NULL, &err), SL_ERR_LIMIT);
    assert_int_equal(sl_control_process(a, ignore, NULL, &err), SL_ERR_LIMIT);
    assert_int_equal(sl_control_send(a, &msg), SL_ERR_CLOSED);
    sl_control_free(a);
    sl_control_free(b);
}

static void control_send__out_of_memory__ends(void **state)
{
    (void)state;
    struct sl_control *a, *b;
    assert_int_equal(sl_control_pair("x", &a, &b, NULL), 0);
    struct sl_msg bye = {.type = SL_MSG_BYE};
    struct sl_err err;
    sl_fault_set("alloc:ENOMEM@1");
    assert_int_equal(sl_control_send(a, &bye), SL_ERR_NO_MEMORY);
    sl_fault_set(NULL);
    assert_int_equal(sl_control_process(a, ignore, NULL, &err), SL_ERR_NO_MEMORY);
    sl_control_free(a);
    sl_control_free(b);
}

/* --- frames ---------------------------------------------------------------------------------- */

static int feed(const void *bytes, size_t count, int *seen, struct sl_err *err)
{
    struct sl_control *a, *b;
    MUST(sl_control_pair("x", &a, &b, NULL) == 0);
    MUST(send(a->fd, bytes, count, MSG_NOSIGNAL) == (ssize_t)count);
    shutdown(a->fd, SHUT_WR);
    int rc = sl_control_process(b, ignore, seen, err);
    /* after bytes were refused, last words still reach the peer */
    if (rc == SL_ERR_PROTOCOL) {
        struct sl_msg words = {.type = SL_MSG_ERROR};
        int heard = 0;
        words.error.code = (uint16_t)-rc;
        MUST(sl_control_send(b, &words) == 0);
        MUST(sl_control_flush(b, sl_deadline_in_ms(1000)) == 0);
        MUST(sl_control_process(a, ignore, &heard, NULL) == 0);
        MUST(heard == 1);
    }
    sl_control_free(a);
    sl_control_free(b);
    return rc;
}

static void control__frame_lengths_out_of_bounds__protocol(void **state)
{
    (void)state;
    struct sl_err err;
    int seen = 0;
    assert_int_equal(feed("\0\0\0\0", 4, &seen, &err), SL_ERR_PROTOCOL);
    assert_int_equal(feed("\1\0\0\0x", 5, &seen, &err), SL_ERR_PROTOCOL);
    assert_int_equal(feed("\1\0\1\0", 4, &seen, &err), SL_ERR_PROTOCOL); /* 64 KiB + 1 */
    assert_int_equal(feed("\377\377\377\377", 4, &seen, &err), SL_ERR_PROTOCOL);
    assert_int_equal(feed("\2\0\0\0\143\0", 6, &seen, &err), SL_ERR_PROTOCOL);   /* unknown type */
    assert_int_equal(feed("\4\0\0\0\5\0\0\0", 8, &seen, &err), SL_ERR_PROTOCOL); /* trailing byte */
    assert_non_null(strstr(err.msg, "BYE"));
    assert_int_equal(seen, 0);
}

static void control__cut_off_in_a_frame__closed_after_the_whole_ones(void **state)
{
    (void)state;
    struct sl_err err;
    int seen = 0;
    assert_int_equal(feed("\3\0\0\0\5\0\0\3\0\0\0\5\0", 13, &seen, &err), SL_ERR_CLOSED);
    assert_int_equal(seen, 1);
}

static void control__greatest_frame__accepted(void **state)
{
    (void)state;
    struct sl_control *a, *b;
    MUST(sl_control_pair("x", &a, &b, NULL) == 0);
    static uint8_t bytes[SL_FRAME_MAX + 4];
    struct sl_writer w = sl_writer_on(bytes, sizeof bytes);
    sl_write_u32(&w, SL_FRAME_MAX);
    sl_write_u16(&w, SL_MSG_TAKEN);
    int seen = 0;
    for (size_t at = 0; at < sizeof bytes;) { /* in pieces, as a network would */
        size_t part = sizeof bytes - at < 1000 ? sizeof bytes - at : 1000;
        MUST(send(a->fd, bytes + at, part, MSG_NOSIGNAL) == (ssize_t)part);
        at += part;
        assert_int_equal(sl_control_process(b, ignore, &seen, NULL), 0);
    }
    assert_int_equal(seen, 1);
    sl_control_free(a);
    sl_control_free(b);
}

static int refuse(void *arg, struct sl_control *control, const struct sl_msg *msg,
                  struct sl_err *err)
{
    (void)control;
    (void)msg;
    (void)err; /* fills nothing in */
    return *(int *)arg;
}

static void control__handler_refuses__that_code_and_last_words(void **state)
{
    (void)state;
    struct sl_control *a, *b;
    struct sl_err err = {0};
    int code = SL_ERR_CLOSED, heard = 0; /* even a code that a lost connection has, too */
    MUST(sl_control_pair("x", &a, &b, NULL) == 0);
    struct sl_msg bye = {.type = SL_MSG_BYE};
    sl_control_send(a, &bye);
    MUST(sl_control_process(a, ignore, NULL, NULL) == 0);
    assert_int_equal(sl_control_process(b, refuse, &code, &err), SL_ERR_CLOSED);
    assert_int_equal(err.code, SL_ERR_CLOSED);
    assert_true(err.msg[0]);
    assert_int_equal(sl_control_send(b, &bye), 0);
    assert_int_equal(sl_control_flush(b, sl_deadline_in_ms(1000)), 0);
    assert_int_equal(sl_control_process(a, ignore, &heard, NULL), 0);
    assert_int_equal(heard, 1);
    sl_control_free(a);
    sl_control_free(b);
}

static void control__endless_sender__does_not_hold_the_owner(void **state)
{
    (void)state;
    struct sl_control *a, *b;
    MUST(sl_control_pair("x", &a, &b, NULL) == 0);
    b->in_more = false;
    int seen = 0;
    /* more reads than one turn takes: the fd must stay ready */
    for (int i = 0; i < 100; i++) {
        struct sl_msg bye = {.type = SL_MSG_BYE};
        sl_control_send(a, &bye);
    }
    MUST(sl_control_process(a, ignore, NULL, NULL) == 0);
    int turns = 0;
    while (seen < 100) {
        struct pollfd wait = {.fd = sl_control_fd(b), .events = POLLIN};
        MUST(poll(&wait, 1, 1000) == 1);
        assert_int_equal(sl_control_process(b, ignore, &seen, NULL), 0);
        MUST(++turns < 100);
    }
    sl_control_free(a);
    sl_control_free(b);
}

/* --- time ------------------------------------------------------------------------------------ */

static void control__heartbeats__keep_an_idle_connection(void **state)
{
    (void)state;
    struct sl_control *a, *b;
    MUST(sl_control_pair("x", &a, &b, NULL) == 0);
    sl_control_heartbeat(a, 30, 200);
    sl_control_heartbeat(b, 30, 200);
    int seen = 0;
    sl_deadline deadline = sl_deadline_in_ms(700);
    while (!sl_deadline_passed(deadline)) {
        assert_int_equal(sl_control_process(a, ignore, &seen, NULL), 0);
        assert_int_equal(sl_control_process(b, ignore, &seen, NULL), 0);
        int ms = sl_control_next_ms(a);
        assert_in_range(ms, 0, 30);
        usleep((useconds_t)(ms > 10 ? 10 : ms) * 1000);
    }
    assert_int_equal(seen, 0); /* they are not handed out */
    sl_control_free(a);
    sl_control_free(b);
}

static void control__silent_peer__dead_in_time(void **state)
{
    (void)state;
    struct sl_control *a, *b;
    struct sl_err err;
    MUST(sl_control_pair("x", &a, &b, NULL) == 0);
    sl_control_heartbeat(a, 50, 300);
    uint64_t began = sl_now_ns();
    assert_int_equal(next_failure(a, &err), SL_ERR_TIMEOUT);
    assert_in_range((sl_now_ns() - began) / SL_NS_PER_MS, 295, 2000);
    assert_non_null(strstr(err.msg, "0.3 s"));
    struct sl_msg bye = {.type = SL_MSG_BYE};
    assert_int_equal(sl_control_send(a, &bye), SL_ERR_CLOSED);
    sl_control_free(a);
    sl_control_free(b);
}

static void control__owner_slept_too_long__peers_bytes_count_first(void **state)
{
    (void)state;
    struct sl_control *a, *b;
    MUST(sl_control_pair("x", &a, &b, NULL) == 0);
    sl_control_heartbeat(a, 20, 60);
    struct sl_msg bye = {.type = SL_MSG_BYE};
    sl_control_send(b, &bye);
    MUST(sl_control_process(b, ignore, NULL, NULL) == 0);
    usleep(120000); /* as after SIGSTOP and SIGCONT */
    assert_int_equal(sl_control_process(a, ignore, NULL, NULL), 0);
    sl_control_free(a);
    sl_control_free(b);
}

/* --- every call failing ---------------------------------------------------------------------- */

static void control_pair__each_call_failing__no_leak(void **state)
{
    (void)state;
    bool untouched = false;
    for (unsigned n = 1; !untouched && n < 50; n++) {
        struct sl_control *a = NULL, *b = NULL;
        struct sl_err err;
        char rule[32];
        snprintf(rule, sizeof rule, "*:EIO@%u", n);
        sl_fault_set(rule);
        int rc = sl_control_pair("x", &a, &b, &err);
        untouched = sl_fault_passed() < n;
        sl_fault_set(NULL);
        if (rc) {
            assert_int_equal(err.code, rc);
            assert_null(a);
            assert_null(b);
        }
        assert_int_equal(rc == 0, untouched);
        sl_control_free(a);
        sl_control_free(b);
    }
    assert_true(untouched);
}

/* --- lanes' proofs --------------------------------------------------------------------------- */

static void lane_hello__signed__any_changed_bit_is_found(void **state)
{
    (void)state;
    uint8_t key[SL_LANE_KEY_BYTES] = {3}, bytes[SL_LANE_HELLO_BYTES];
    struct sl_lane_hello hello = {.version = SL_WIRE_VERSION,
                                  .session = {{9}},
                                  .lane = 4,
                                  .rail = 1,
                                  .depth = 16,
                                  .nonce = 77};
    sl_lane_hello_sign(&hello, key, 'c');
    assert_true(sl_lane_hello_verify(&hello, key, 'c'));
    assert_false(sl_lane_hello_verify(&hello, key, 't'));
    sl_lane_hello_encode(&hello, bytes);
    for (unsigned bit = 0; bit < SL_LANE_HELLO_BYTES * 8; bit++) {
        struct sl_lane_hello changed;
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (sl_lane_hello_decode(bytes, sizeof bytes, &changed) == 0)
            assert_false(sl_lane_hello_verify(&changed, key, 'c'));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    key[31] ^= 1;
    assert_false(sl_lane_hello_verify(&hello, key, 'c'));
}

static void seal_decided__every_case__as_the_wire_page_says(void **state)
{
    (void)state;
    const enum sl_seal_kind A = SL_SEAL_AUTO, F = SL_SEAL_OFF, N = SL_SEAL_ON;
    assert_true(sl_seal_decided(A, A, SL_TRANSPORT_TCP));
    assert_false(sl_seal_decided(A, A, SL_TRANSPORT_RDMA));
    assert_false(sl_seal_decided(A, A, SL_TRANSPORT_LOCAL));
    assert_false(sl_seal_decided(F, A, SL_TRANSPORT_TCP));
    assert_false(sl_seal_decided(A, F, SL_TRANSPORT_TCP));
    assert_true(sl_seal_decided(N, F, SL_TRANSPORT_RDMA));
    assert_true(sl_seal_decided(F, N, SL_TRANSPORT_RDMA));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control__bursts_of_many_senders_over_tls__whole_and_in_order),
        cmocka_unit_test(control__bursts_of_many_senders_over_a_pair__whole_and_in_order),
        cmocka_unit_test(control_send__peer_does_not_read__bounded_and_ends),
        cmocka_unit_test(control_send__out_of_memory__ends),
        cmocka_unit_test(control__frame_lengths_out_of_bounds__protocol),
        cmocka_unit_test(control__cut_off_in_a_frame__closed_after_the_whole_ones),
        cmocka_unit_test(control__greatest_frame__accepted),
        cmocka_unit_test(control__handler_refuses__that_code_and_last_words),
        cmocka_unit_test(control__endless_sender__does_not_hold_the_owner),
        cmocka_unit_test(control__heartbeats__keep_an_idle_connection),
        cmocka_unit_test(control__silent_peer__dead_in_time),
        cmocka_unit_test(control__owner_slept_too_long__peers_bytes_count_first),
        cmocka_unit_test(control_pair__each_call_failing__no_leak),
        cmocka_unit_test(lane_hello__signed__any_changed_bit_is_found),
        cmocka_unit_test(seal_decided__every_case__as_the_wire_page_says),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
