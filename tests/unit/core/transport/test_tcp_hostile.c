/* TCP lanes against a peer that is not one of ours: raw sockets that send what they should not.
 * Whatever comes, the lane closes with a reason, answers its work once, and touches nothing outside
 * what was asked for. (fuzz_tcp_lane does the same with arbitrary bytes.) */
#include "tests/unit/core/transport/test_tcp.h"

#include "core/transport/net.h"
#include "core/transport/tcp_internal.h"

#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define GUARD 0x77

struct raw {
    struct sl_rail *rail;
    struct sl_domain *domain;
    struct lane_memory memory; /* 2 MiB: SL_ACCESS_BOTH of a passive end, the sink of an active */
    struct lane_world world;   /* only its list of ends is used */
    struct lane_end end;
    int fd; /* the hostile side */
};

/* Not a socketpair(2): how bytes are discarded and connections reset is TCP's own. */
static void socket_pair(int fds[2])
{
    char port[8];
    struct sl_err err;
    struct addrinfo *addresses;
    int listener = lane_tcp_listen("127.0.0.1", port);
    const struct sl_net_connect to = {.host = "127.0.0.1",
                                      .port = port,
                                      .deadline = sl_deadline_in_ms(LANE_WAIT_MS),
                                      .traffic_class = -1};
    assert_int_equal(sl_net_lookup(&to, &addresses, &err), 0);
    assert_int_equal(sl_net_connect(addresses, &to, &fds[0], &err), 0);
    fds[1] = accept(listener, NULL, NULL);
    assert_true(fds[1] >= 0);
    /* small buffers, so that a block does not fit into them */
    int bytes = 65536;
    assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
    assert_int_equal(setsockopt(fds[1], SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes), 0);
    freeaddrinfo(addresses);
    close(listener);
}

static void raw_open(struct raw *raw, bool is_active)
{
    struct sl_err err;
    struct tcp_lane *tcp;
    int fds[2];
    *raw = (struct raw){0};
    assert_int_equal(sl_tcp_rail_new(&raw->rail, &err), 0);
    assert_int_equal(raw->rail->ops->domain_new(raw->rail, &raw->domain, &err), 0);
    assert_int_equal(lane_memory_new(&raw->memory, raw->domain, LANE_REGION_BYTES,
                                     is_active ? SL_ACCESS_LOCAL : SL_ACCESS_BOTH, &err),
                     0);
    memset(raw->memory.start, GUARD, raw->memory.bytes);
    socket_pair(fds);
    const struct sl_lane_hello hello = {.version = 1, .lane = 1, .depth = 4};
    assert_int_equal(sl_net_prepare(fds[0], &err), 0);
    assert_int_equal(tcp_lane_new(fds[0], raw->domain, &hello, 4, is_active, &tcp, &err), 0);
    lane_world_add(&raw->world, &raw->end, &tcp->lane);
    raw->fd = fds[1];
}

static void raw_close(struct raw *raw)
{
    lane_end_free(&raw->world, &raw->end);
    lane_memory_free(&raw->memory);
    raw->rail->ops->domain_free(raw->domain);
    raw->rail->ops->rail_free(raw->rail);
    close(raw->fd);
}

static void raw_send(struct raw *raw, const void *bytes, size_t count)
{
    assert_int_equal(send(raw->fd, bytes, count, MSG_NOSIGNAL), count);
}

static void raw_frame(struct raw *raw, uint8_t op, uint32_t bytes, uint64_t offset, uint64_t tag)
{
    const struct tcp_frame frame = {.op = op, .bytes = bytes, .offset = offset, .tag = tag};
    uint8_t head[TCP_HEAD_BYTES];
    tcp_frame_encode(&frame, head);
    raw_send(raw, head, sizeof head);
}

static void raw_receive(struct raw *raw, struct tcp_frame *frame)
{
    uint8_t head[TCP_HEAD_BYTES];
    size_t have = 0;
    sl_deadline until = sl_deadline_in_ms(LANE_WAIT_MS);
    while (have < sizeof head) {
        assert_false(sl_deadline_passed(until));
        lane_pump(raw->world.ends, 1, 0);
        ssize_t n = recv(raw->fd, head + have, sizeof head - have, MSG_DONTWAIT);
        assert_int_not_equal(n, 0);
        have += n > 0 ? (size_t)n : 0;
    }
    assert_true(tcp_frame_decode(head, frame));
}

static uint64_t raw_tag(const struct raw *raw)
{
    return (uint64_t)raw->memory.region->remote.key << 32;
}

static void expect_closed(struct raw *raw, int code)
{
    LANE_WAIT(&raw->world, raw->end.closed);
    assert_int_equal(raw->end.close_code, code);
    assert_string_not_equal(raw->end.lane->reason, "");
    assert_true(lane_all(raw->memory.start, raw->memory.bytes, GUARD));
}

/* --- a hostile target ------------------------------------------------------------------------ */

static void tcp_passive__forbidden_frames__protocol(void **state)
{
    (void)state;
    const struct tcp_frame frames[] = {
        {.op = 0},
        {.op = 6, .bytes = 4096},
        {.op = 255},
        {.op = TCP_PULLED, .bytes = 4096}, /* a client's own */
        {.op = TCP_REFUSED},
        {.op = TCP_PULL, .bytes = 0},
        {.op = TCP_PULL, .bytes = SL_SLOT_BYTES_MAX + 1},
        {.op = TCP_PULL, .bytes = UINT32_MAX},
        {.op = TCP_PUSH, .bytes = 0},
        {.op = TCP_PUSH, .bytes = SL_SLOT_BYTES_MAX + 1},
        {.op = TCP_NOTICE, .bytes = 15},
        {.op = TCP_NOTICE, .bytes = 17},
        {.op = TCP_NOTICE, .bytes = SL_NOTICE_BYTES, .offset = 1},
    };
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        struct raw raw;
        raw_open(&raw, false);
        raw_frame(&raw, frames[i].op, frames[i].bytes, frames[i].offset, raw_tag(&raw));
        expect_closed(&raw, SL_ERR_PROTOCOL);
        raw_close(&raw);
    }
}

static void tcp_passive__reserved_bytes_set__protocol(void **state)
{
    (void)state;
    for (size_t i = 1; i <= 3; i++) {
        struct raw raw;
        raw_open(&raw, false);
        const struct tcp_frame frame = {.op = TCP_PULL, .bytes = 1, .tag = raw_tag(&raw)};
        uint8_t head[TCP_HEAD_BYTES];
        tcp_frame_encode(&frame, head);
        head[i] = 1;
        raw_send(&raw, head, sizeof head);
        expect_closed(&raw, SL_ERR_PROTOCOL);
        raw_close(&raw);
    }
}

static void tcp_passive__more_pulls_than_depth__protocol(void **state)
{
    (void)state;
    struct raw raw;
    raw_open(&raw, false);
    /* answers that do not fit into the socket, so that none of the pulls is done with */
    for (int i = 0; i < 5; i++)
        raw_frame(&raw, TCP_PULL, SL_SLOT_BYTES_MAX, 0, raw_tag(&raw));
    expect_closed(&raw, SL_ERR_PROTOCOL);
    raw_close(&raw);
}

static void tcp_passive__target_does_not_read__no_spin_and_closes(void **state)
{
    (void)state;
    struct raw raw;
    raw_open(&raw, false);
    for (int i = 0; i < 4; i++)
        raw_frame(&raw, TCP_PULL, SL_SLOT_BYTES_MAX, 0, raw_tag(&raw));
    for (int i = 0; i < 50; i++)
        lane_pump(raw.world.ends, 1, 1);
    struct pollfd stuck = {.fd = raw.end.lane->fd, .events = raw.end.lane->events_wanted};
    assert_int_equal(poll(&stuck, 1, 0), 0);
    assert_false(raw.end.closed);
    sl_lane_close(raw.end.lane, SL_ERR_TIMEOUT, "too slow");
    expect_closed(&raw, SL_ERR_TIMEOUT);
    raw_close(&raw);
}

static void tcp_passive__push_outside__refused_said_then_closed(void **state)
{
    (void)state;
    struct raw raw;
    struct tcp_frame answer;
    raw_open(&raw, false);
    uint64_t tag = raw_tag(&raw) | 77;
    static uint8_t data[SL_SLOT_BYTES_MAX];
    raw_frame(&raw, TCP_PUSH, 4096, LANE_REGION_BYTES - 4095, tag);
    raw_send(&raw, data, 4096);
    raw_receive(&raw, &answer);
    assert_int_equal(answer.op, TCP_REFUSED);
    assert_int_equal(answer.bytes, 0);
    assert_true(answer.tag == tag);
    /* it reads away what still comes, and takes none of it */
    raw_frame(&raw, TCP_PUSH, 4096, 0, raw_tag(&raw));
    raw_send(&raw, data, 4096);
    for (int i = 0; i < 10; i++)
        lane_pump(raw.world.ends, 1, 1);
    assert_false(raw.end.closed);
    assert_int_equal(recv(raw.fd, data, 1, 0), 0); /* it has shut its side */
    shutdown(raw.fd, SHUT_WR);
    expect_closed(&raw, SL_ERR_DENIED);
    raw_close(&raw);
}

/* A target that is refused and never stops sending is not listened to for ever. */
static void tcp_passive__refused_target_sends_on__closed_after_a_limit(void **state)
{
    (void)state;
    struct raw raw;
    raw_open(&raw, false);
    raw_frame(&raw, TCP_PULL, 1, UINT64_MAX, raw_tag(&raw));
    static uint8_t data[SL_SLOT_BYTES_MAX];
    size_t sent = 0;
    sl_deadline until = sl_deadline_in_ms(LANE_WAIT_MS);
    while (!raw.end.closed && !sl_deadline_passed(until)) {
        ssize_t n = send(raw.fd, data, sizeof data, MSG_DONTWAIT | MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
        lane_pump(raw.world.ends, 1, 1);
    }
    assert_true(sent < 16u * SL_SLOT_BYTES_MAX);
    expect_closed(&raw, SL_ERR_DENIED);
    raw_close(&raw);
}

/* A pull that is refused while an answer is half sent: that frame is finished first. */
static void tcp_passive__refusal_during_an_answer__framing_kept(void **state)
{
    (void)state;
    struct raw raw;
    struct tcp_frame answer;
    raw_open(&raw, false);
    raw_frame(&raw, TCP_PULL, SL_SLOT_BYTES_MAX, 0, raw_tag(&raw) | 1);
    for (int i = 0; i < 5; i++)
        lane_pump(raw.world.ends, 1, 1);
    raw_frame(&raw, TCP_PULL, 4096, 0, raw_tag(&raw) | 2); /* still waiting: dropped */
    raw_frame(&raw, TCP_PULL, 4096, UINT64_MAX, raw_tag(&raw) | 3);
    raw_receive(&raw, &answer);
    assert_int_equal(answer.op, TCP_PULLED);
    assert_true(answer.tag == (raw_tag(&raw) | 1));
    sl_deadline until = sl_deadline_in_ms(LANE_WAIT_MS);
    for (size_t left = SL_SLOT_BYTES_MAX; left;) {
        assert_false(sl_deadline_passed(until));
        uint8_t data[4096];
        lane_pump(raw.world.ends, 1, 0);
        ssize_t n = recv(raw.fd, data, left < sizeof data ? left : sizeof data, MSG_DONTWAIT);
        for (ssize_t i = 0; i < n; i++)
            assert_int_equal(data[i], GUARD);
        left -= n > 0 ? (size_t)n : 0;
    }
    raw_receive(&raw, &answer);
    assert_int_equal(answer.op, TCP_REFUSED);
    assert_true(answer.tag == (raw_tag(&raw) | 3));
    shutdown(raw.fd, SHUT_WR);
    expect_closed(&raw, SL_ERR_DENIED);
    raw_close(&raw);
}

static void tcp_passive__ends_within_a_frame__closed(void **state)
{
    (void)state;
    for (size_t cut = 0; cut < TCP_HEAD_BYTES + 10; cut++) {
        struct raw raw;
        raw_open(&raw, false);
        const struct tcp_frame frame = {
            .op = TCP_NOTICE, .bytes = SL_NOTICE_BYTES, .offset = 0, .tag = 0};
        uint8_t bytes[TCP_HEAD_BYTES + SL_NOTICE_BYTES] = {0};
        tcp_frame_encode(&frame, bytes);
        /* byte by byte, so that every split of a header is met */
        for (size_t i = 0; i < cut; i++) {
            raw_send(&raw, bytes + i, 1);
            lane_pump(raw.world.ends, 1, 0);
        }
        shutdown(raw.fd, SHUT_WR);
        expect_closed(&raw, SL_ERR_CLOSED);
        assert_int_equal(lane_count(&raw.end, SL_LANE_NOTICE), 0);
        raw_close(&raw);
    }
}

static void tcp_passive__frames_byte_by_byte__understood(void **state)
{
    (void)state;
    struct raw raw;
    raw_open(&raw, false);
    const struct tcp_frame push = {.op = TCP_PUSH, .bytes = 100, .offset = 5, .tag = raw_tag(&raw)};
    uint8_t bytes[TCP_HEAD_BYTES + 100];
    tcp_frame_encode(&push, bytes);
    lane_fill(bytes + TCP_HEAD_BYTES, 100, 1);
    for (size_t i = 0; i < sizeof bytes; i++) {
        raw_send(&raw, bytes + i, 1);
        lane_pump(raw.world.ends, 1, 100);
    }
    raw_frame(&raw, TCP_NOTICE, SL_NOTICE_BYTES, 0, 0);
    raw_send(&raw, "0123456789abcdef", 16);
    LANE_WAIT(&raw.world, lane_count(&raw.end, SL_LANE_NOTICE) == 1);
    assert_memory_equal(raw.end.events[raw.end.count - 1].notice, "0123456789abcdef", 16);
    assert_true(lane_holds(raw.memory.start + 5, 100, 1));
    assert_int_equal(raw.memory.start[4], GUARD);
    assert_int_equal(raw.memory.start[105], GUARD);
    raw_close(&raw);
}

/* --- a hostile client ------------------------------------------------------------------------ */

static void post_pull(struct raw *raw, uint64_t context)
{
    const struct sl_remote memory = {.key = 0x1234, .length = LANE_REGION_BYTES};
    assert_int_equal(
        sl_lane_pull(raw->end.lane, lane_local(&raw->memory, 4096), &memory, 8192, 4096, context),
        0);
}

static void expect_one_failure(struct raw *raw, int code, int close_code)
{
    int got = 0;
    expect_closed(raw, close_code);
    assert_int_equal(lane_answers(&raw->end, SL_LANE_PULLED, 1, &got), 1);
    assert_int_equal(got, code);
}

static void tcp_active__answers_not_asked_for__protocol(void **state)
{
    (void)state;
    for (int i = 0; i < 9; i++) {
        struct raw raw;
        struct tcp_frame asked;
        raw_open(&raw, true);
        post_pull(&raw, 1);
        raw_receive(&raw, &asked);
        assert_int_equal(asked.op, TCP_PULL);
        assert_int_equal(asked.bytes, 4096);
        assert_true(asked.offset == 8192 && asked.tag >> 32 == 0x1234);
        uint64_t tag = asked.tag;
        uint8_t op = TCP_PULLED;
        uint32_t bytes = 4096;
        uint64_t offset = 8192;
        switch (i) {
        case 0:
            tag ^= 1; /* another number */
            break;
        case 1:
            tag ^= 1ull << 16; /* an older generation */
            break;
        case 2:
            tag ^= 1ull << 40; /* another key */
            break;
        case 3:
            tag |= 0xffff;
            break;
        case 4:
            bytes = 4095;
            break;
        case 5:
            bytes = 4097;
            break;
        case 6:
            offset = 0;
            break;
        case 7:
            op = TCP_PULL;
            break;
        default:
            op = TCP_NOTICE;
            bytes = SL_NOTICE_BYTES;
            offset = tag = 0;
        }
        raw_frame(&raw, op, bytes, offset, tag);
        expect_one_failure(&raw, SL_ERR_CLOSED, SL_ERR_PROTOCOL);
        raw_close(&raw);
    }
}

static void tcp_active__refused__denied(void **state)
{
    (void)state;
    struct raw raw;
    struct tcp_frame asked;
    raw_open(&raw, true);
    post_pull(&raw, 1);
    raw_receive(&raw, &asked);
    raw_frame(&raw, TCP_REFUSED, 0, 0, asked.tag);
    expect_one_failure(&raw, SL_ERR_DENIED, SL_ERR_DENIED);
    raw_close(&raw);
}

static void tcp_active__answered_twice__protocol_and_sink_left_alone(void **state)
{
    (void)state;
    struct raw raw;
    struct tcp_frame asked;
    static const uint8_t evil[4096];
    static uint8_t good[4096];
    memset(good, GUARD, sizeof good);
    raw_open(&raw, true);
    post_pull(&raw, 1);
    raw_receive(&raw, &asked);
    raw_frame(&raw, TCP_PULLED, 4096, 8192, asked.tag);
    raw_send(&raw, good, 4096);
    LANE_WAIT(&raw.world, lane_count(&raw.end, SL_LANE_PULLED) == 1);
    post_pull(&raw, 2); /* the same place, so the same number but for its generation */
    struct tcp_frame again;
    raw_receive(&raw, &again);
    assert_true(again.tag != asked.tag);
    raw_frame(&raw, TCP_PULLED, 4096, 8192, asked.tag);
    raw_send(&raw, evil, 4096);
    expect_one_failure(&raw, 0, SL_ERR_PROTOCOL);
    int code;
    assert_int_equal(lane_answers(&raw.end, SL_LANE_PULLED, 2, &code), 1);
    assert_int_equal(code, SL_ERR_CLOSED);
    raw_close(&raw);
}

/* An answer that comes before the request has left: the client has guessed. */
static void tcp_active__answered_before_asked__protocol(void **state)
{
    (void)state;
    struct raw raw;
    raw_open(&raw, true);
    post_pull(&raw, 1);
    raw_frame(&raw, TCP_PULLED, 4096, 8192, (uint64_t)0x1234 << 32 | 0);
    expect_one_failure(&raw, SL_ERR_CLOSED, SL_ERR_PROTOCOL);
    raw_close(&raw);
}

static void tcp_active__ends_within_an_answer__closed(void **state)
{
    (void)state;
    struct raw raw;
    struct tcp_frame asked;
    static uint8_t good[4000];
    memset(good, GUARD, sizeof good);
    raw_open(&raw, true);
    post_pull(&raw, 1);
    raw_receive(&raw, &asked);
    raw_frame(&raw, TCP_PULLED, 4096, 8192, asked.tag);
    raw_send(&raw, good, sizeof good);
    shutdown(raw.fd, SHUT_WR);
    expect_one_failure(&raw, SL_ERR_CLOSED, SL_ERR_CLOSED);
    raw_close(&raw);
}

#define RAW(f) cmocka_unit_test(f)

const struct CMUnitTest tcp_hostile_tests[] = {
    RAW(tcp_passive__forbidden_frames__protocol),
    RAW(tcp_passive__reserved_bytes_set__protocol),
    RAW(tcp_passive__more_pulls_than_depth__protocol),
    RAW(tcp_passive__target_does_not_read__no_spin_and_closes),
    RAW(tcp_passive__push_outside__refused_said_then_closed),
    RAW(tcp_passive__refused_target_sends_on__closed_after_a_limit),
    RAW(tcp_passive__refusal_during_an_answer__framing_kept),
    RAW(tcp_passive__ends_within_a_frame__closed),
    RAW(tcp_passive__frames_byte_by_byte__understood),
    RAW(tcp_active__answers_not_asked_for__protocol),
    RAW(tcp_active__refused__denied),
    RAW(tcp_active__answered_twice__protocol_and_sink_left_alone),
    RAW(tcp_active__answered_before_asked__protocol),
    RAW(tcp_active__ends_within_an_answer__closed),
};

const size_t tcp_hostile_test_count = sizeof tcp_hostile_tests / sizeof *tcp_hostile_tests;
