/* Packets of a binary log's stream. */
#include "mysql/binlog_event.h"

#include "tests/unit/mysql/cmocka_all.h"

#include <isa-l/crc.h>
#include <string.h>

static uint8_t packet[512];

/* An event at `to`: its length. */
static size_t event_new(uint8_t *to, uint8_t type, uint8_t flags, uint32_t next, const void *body,
                        size_t count, bool crc)
{
    size_t length = 19 + count + (crc ? 4 : 0);
    memset(to, 0, length);
    to[0] = 0x11; /* made */
    to[4] = type;
    to[5] = 7; /* server id */
    for (int i = 0; i < 4; i++) {
        to[9 + i] = (uint8_t)(length >> 8 * i);
        to[13 + i] = (uint8_t)(next >> 8 * i);
    }
    to[17] = flags;
    memcpy(to + 19, body, count);
    if (crc) {
        uint32_t value = crc32_gzip_refl(0, to, length - 4);
        for (int i = 0; i < 4; i++)
            to[length - 4 + (size_t)i] = (uint8_t)(value >> 8 * i);
    }
    return length;
}

static int parse(size_t count, struct sl_my_event_state *state, struct sl_my_event *event)
{
    return sl_my_event_parse(packet, count, state, event, NULL);
}

static void content__checksum(void **state_)
{
    (void)state_;
    struct sl_my_event_state state = {.checksums = true};
    struct sl_my_event event;
    size_t n = event_new(packet, 2, 0, 1234, "insert", 6, true);
    assert_int_equal(parse(n, &state, &event), 0);
    assert_int_equal(event.kind, SL_MY_EVENT_CONTENT);
    assert_int_equal(event.next_position, 1234);
    assert_int_equal(event.created, 0x11);
    assert_int_equal(event.server_id, 7);
    assert_ptr_equal(event.bytes, packet);
    assert_int_equal(event.count, n);
    for (size_t at = 0; at < n; at++) { /* no bit may differ */
        packet[at] ^= 4;
        assert_true(parse(n, &state, &event) < 0 || event.kind != SL_MY_EVENT_CONTENT);
        packet[at] ^= 4;
    }
    for (size_t less = 0; less < n; less++)
        assert_true(parse(less, &state, &event) < 0);
    state.checksums = false;
    n = event_new(packet, 2, 0, 1234, "insert", 6, false);
    assert_int_equal(parse(n, &state, &event), 0);
}

static void rotate__names(void **state_)
{
    (void)state_;
    static const char *const bad[] = {"",           "binlog",        "binlog.",        ".000001",
                                      "a/b.000001", "binlog.00000x", "bin log.000001", "../x.1"};
    struct sl_my_event_state state = {.checksums = true};
    struct sl_my_event event;
    uint8_t body[200] = {4};
    for (int crc = 0; crc < 2; crc++) {
        memcpy(body + 8, "my-bin.000012", 13);
        size_t n = event_new(packet, 4, 0x20, 0, body, 21, crc);
        assert_int_equal(parse(n, &state, &event), 0);
        assert_int_equal(event.kind, SL_MY_EVENT_FILE);
        assert_string_equal(event.file, "my-bin.000012");
        assert_int_equal(event.position, 4);
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            memcpy(body + 8, bad[i], strlen(bad[i]));
            n = event_new(packet, 4, 0x20, 0, body, 8 + strlen(bad[i]), crc);
            assert_true(parse(n, &state, &event) < 0);
        }
    }
    memset(body + 8, 'x', 190);
    assert_true(parse(event_new(packet, 4, 0x20, 0, body, 198, true), &state, &event) < 0);
    memcpy(body + 8, "my-bin.000013", 13); /* a real one is content */
    assert_int_equal(parse(event_new(packet, 4, 0, 99, body, 21, true), &state, &event), 0);
    assert_int_equal(event.kind, SL_MY_EVENT_CONTENT);
}

static void format__checksums_on_and_off(void **state_)
{
    (void)state_;
    struct sl_my_event_state state = {0};
    struct sl_my_event event;
    uint8_t body[100] = {4};
    for (uint8_t algorithm = 0; algorithm < 3; algorithm++) {
        body[99] = algorithm;
        size_t n = event_new(packet, 15, 0, 256, body, 100, true);
        if (algorithm == 2) {
            assert_int_equal(parse(n, &state, &event), SL_ERR_UNSUPPORTED);
            continue;
        }
        assert_int_equal(parse(n, &state, &event), 0);
        assert_int_equal(event.kind, SL_MY_EVENT_FORMAT);
        assert_int_equal(state.checksums, algorithm);
        packet[30] ^= 1;
        assert_int_equal(parse(n, &state, &event), SL_ERR_CHECKSUM);
        n = event_new(packet, 15, 0, 0, body, 100, true);
        packet[n - 1] ^= 1; /* what the server leaves wrong where there are none */
        assert_int_equal(parse(n, &state, &event), algorithm ? SL_ERR_CHECKSUM : 0);
        if (!algorithm)
            assert_int_equal(event.kind, SL_MY_EVENT_REPEATED);
    }
}

static void made_up__is_nothing(void **state_)
{
    (void)state_;
    struct sl_my_event_state state = {.checksums = true};
    struct sl_my_event event;
    assert_int_equal(parse(event_new(packet, 27, 0, 9, "x", 1, true), &state, &event), 0);
    assert_int_equal(event.kind, SL_MY_EVENT_NOTHING);
    assert_int_equal(parse(event_new(packet, 163, 0x20, 9, "x", 1, false), &state, &event), 0);
    assert_int_equal(event.kind, SL_MY_EVENT_NOTHING);
}

static void semi_sync__asks_for_acknowledgement(void **state_)
{
    (void)state_;
    struct sl_my_event_state state = {.checksums = true, .semi_sync = true};
    struct sl_my_event event;
    size_t n = event_new(packet + 2, 16, 0, 9, "xid", 3, true);
    packet[0] = 0xef;
    packet[1] = 1;
    assert_int_equal(parse(n + 2, &state, &event), 0);
    assert_true(event.wants_ack);
    assert_ptr_equal(event.bytes, packet + 2);
    packet[1] = 0;
    assert_int_equal(parse(n + 2, &state, &event), 0);
    assert_false(event.wants_ack);
    state.semi_sync = false;
    assert_true(parse(n + 2, &state, &event) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content__checksum),
        cmocka_unit_test(rotate__names),
        cmocka_unit_test(format__checksums_on_and_off),
        cmocka_unit_test(made_up__is_nothing),
        cmocka_unit_test(semi_sync__asks_for_acknowledgement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
