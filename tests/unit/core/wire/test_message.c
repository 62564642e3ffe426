/* Messages: every one there and back, every truncation, trailing bytes, strings that do not fit.
 * The cases are made from the same field lists as the codec, but compare field by field. */
#include "core/wire/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t rest_bytes[40] = "0123456789012345678901234567890123456789";
static uint64_t seed;

static uint64_t next_value(void)
{
    return seed = seed * 6364136223846793005ull + 1442695040888963407ull;
}

static void fill_string(char *to, size_t room)
{
    size_t length = next_value() % 3 == 0 ? room - 1 : (size_t)(next_value() % room);
    for (size_t i = 0; i < length; i++)
        to[i] = (char)(1 + next_value() % 255);
    to[length] = '\0';
}

#define FILL_u8(name)     m->name = (uint8_t)next_value();
#define FILL_u16(name)    m->name = (uint16_t)next_value();
#define FILL_u32(name)    m->name = (uint32_t)next_value();
#define FILL_u64(name)    m->name = next_value();
#define FILL_id(name)     memset(m->name.bytes, (int)(next_value() >> 33 & 0xff), 16);
#define FILL_str64(name)  fill_string(m->name, sizeof m->name);
#define FILL_str160(name) fill_string(m->name, sizeof m->name);
#define FILL_str384(name) fill_string(m->name, sizeof m->name);
#define FILL_str512(name) fill_string(m->name, sizeof m->name);
#define FILL_str768(name) fill_string(m->name, sizeof m->name);
#define FILL_rest(name)   m->name = rest_bytes, m->name##_bytes = sizeof rest_bytes;
#define FILL(kind, name)  FILL_##kind(name)

#define SAME_u8(name)     assert_true(a->name == b->name);
#define SAME_u16(name)    assert_true(a->name == b->name);
#define SAME_u32(name)    assert_true(a->name == b->name);
#define SAME_u64(name)    assert_true(a->name == b->name);
#define SAME_id(name)     assert_memory_equal(a->name.bytes, b->name.bytes, 16);
#define SAME_str64(name)  assert_string_equal(a->name, b->name);
#define SAME_str160(name) assert_string_equal(a->name, b->name);
#define SAME_str384(name) assert_string_equal(a->name, b->name);
#define SAME_str512(name) assert_string_equal(a->name, b->name);
#define SAME_str768(name) assert_string_equal(a->name, b->name);
#define SAME_rest(name)                                                                            \
    assert_int_equal(a->name##_bytes, b->name##_bytes);                                            \
    assert_memory_equal(a->name, b->name, a->name##_bytes);
#define SAME(kind, name) SAME_##kind(name)

/* How many bytes a message ends in that may be cut off without making it malformed. */
#define LOOSE_u8(name)
#define LOOSE_u16(name)
#define LOOSE_u32(name)
#define LOOSE_u64(name)
#define LOOSE_id(name)
#define LOOSE_str64(name)
#define LOOSE_str160(name)
#define LOOSE_str384(name)
#define LOOSE_str512(name)
#define LOOSE_str768(name)
#define LOOSE_rest(name)  loose += m->name##_bytes;
#define LOOSE(kind, name) LOOSE_##kind(name)

#define M(number, NAME, name)                                                                      \
    static void fill_##name(struct sl_msg_##name *m)                                               \
    {                                                                                              \
        SL_MSG_##NAME##_FIELDS(FILL)                                                               \
    }                                                                                              \
    static void same_##name(const struct sl_msg_##name *a, const struct sl_msg_##name *b)          \
    {                                                                                              \
        SL_MSG_##NAME##_FIELDS(SAME)                                                               \
    }                                                                                              \
    static size_t loose_##name(const struct sl_msg_##name *m)                                      \
    {                                                                                              \
        size_t loose = 0;                                                                          \
        (void)m;                                                                                   \
        SL_MSG_##NAME##_FIELDS(LOOSE) return loose;                                                \
    }
SL_MESSAGES(M)
#undef M

/* Decode exactly `bytes` from the heap, so that a sanitizer sees a read behind them. */
static int decode(const uint8_t *body, size_t bytes, struct sl_msg *msg, uint8_t **ret_copy)
{
    uint8_t *copy = malloc(bytes ? bytes : 1);
    memcpy(copy, body, bytes);
    int rc = sl_msg_decode(copy, bytes, msg);
    if (ret_copy)
        *ret_copy = copy;
    else
        free(copy);
    return rc;
}

static void check_sizes(const uint8_t *body, size_t bytes, size_t loose)
{
    struct sl_msg msg;
    uint8_t longer[SL_FRAME_MAX + 1];
    for (size_t cut = 1; cut <= bytes; cut++)
        assert_int_equal(decode(body, bytes - cut, &msg, NULL), cut <= loose ? 0 : SL_ERR_PROTOCOL);
    memcpy(longer, body, bytes);
    longer[bytes] = 0;
    assert_int_equal(decode(longer, bytes + 1, &msg, NULL), loose ? 0 : SL_ERR_PROTOCOL);
}

static void message__every_one__survives_and_refuses_other_lengths(void **state)
{
    (void)state;
    static uint8_t frame[SL_FRAME_MAX + 4];
    static struct sl_msg sent, got;
    for (int round = 0; round < 5; round++) {
#define M(number, NAME, name)                                                                      \
    {                                                                                              \
        memset(&sent, 0, sizeof sent);                                                             \
        memset(&got, 0xee, sizeof got);                                                            \
        sent.type = SL_MSG_##NAME;                                                                 \
        fill_##name(&sent.name);                                                                   \
        int length = sl_msg_encode(&sent, frame, sizeof frame);                                    \
        assert_true(length >= SL_FRAME_HEAD_BYTES);                                                \
        struct sl_reader head = sl_reader_on(frame, SL_FRAME_HEAD_BYTES);                          \
        assert_int_equal(sl_read_u32(&head), length - 4);                                          \
        assert_int_equal(sl_read_u16(&head), number);                                              \
        uint8_t *body;                                                                             \
        assert_int_equal(decode(frame + 4, (size_t)length - 4, &got, &body), 0);                   \
        assert_int_equal(got.type, SL_MSG_##NAME);                                                 \
        same_##name(&sent.name, &got.name);                                                        \
        free(body);                                                                                \
        check_sizes(frame + 4, (size_t)length - 4, loose_##name(&sent.name));                      \
        for (int room = 0; room < length; room++)                                                  \
            assert_int_equal(sl_msg_encode(&sent, frame, (size_t)room), SL_ERR_LIMIT);             \
        assert_string_equal(sl_msg_name(number), #NAME);                                           \
    }
        SL_MESSAGES(M)
#undef M
    }
}

static void message__unknown_type__is_refused(void **state)
{
    (void)state;
    struct sl_msg msg;
    bool known[65536 / 8] = {0};
#define M(number, NAME, name) known[number] = true;
    SL_MESSAGES(M)
#undef M
    for (unsigned type = 0; type < 200; type++) {
        const uint8_t body[2] = {(uint8_t)type, 0};
        if (!known[type]) {
            assert_int_equal(sl_msg_decode(body, 2, &msg), SL_ERR_PROTOCOL);
            assert_string_equal(sl_msg_name((int)type), "?");
        }
    }
    assert_int_equal(sl_msg_decode((const uint8_t *)"\x03\x01", 2, &msg), SL_ERR_PROTOCOL);
    assert_int_equal(sl_msg_decode(NULL, 0, &msg), SL_ERR_PROTOCOL);
    msg.type = (enum sl_msg_type)999;
    uint8_t frame[64];
    assert_true(sl_msg_encode(&msg, frame, sizeof frame) <= SL_FRAME_HEAD_BYTES);
}

/* BYE has one byte, LANE_DOWN a u16 and a str(160): a string of 160 bytes does not fit. */
static void message__oversize_string__is_refused(void **state)
{
    (void)state;
    static struct sl_msg msg;
    for (size_t length = 158; length <= 162; length++) {
        uint8_t body[256];
        char text[256];
        memset(text, 'x', length);
        text[length] = '\0';
        struct sl_writer w = sl_writer_on(body, sizeof body);
        sl_write_u16(&w, SL_MSG_LANE_DOWN);
        sl_write_u16(&w, 7);
        sl_write_string(&w, text);
        assert_int_equal(sl_msg_decode(body, sl_writer_used(&w), &msg),
                         length < 160 ? 0 : SL_ERR_PROTOCOL);
    }
}

static void message__string_with_nul__is_refused(void **state)
{
    (void)state;
    static struct sl_msg msg;
    uint8_t body[64];
    struct sl_writer w = sl_writer_on(body, sizeof body);
    sl_write_u16(&w, SL_MSG_OPEN);
    sl_write_u32(&w, 1);
    sl_write_u16(&w, 3);
    sl_write_bytes(&w, "a\0b", 3);
    assert_int_equal(sl_msg_decode(body, sl_writer_used(&w), &msg), SL_ERR_PROTOCOL);
}

static void message__rest_of_64_KiB__is_the_limit(void **state)
{
    (void)state;
    static uint8_t frame[SL_FRAME_MAX + 64], rest[SL_FRAME_MAX];
    static struct sl_msg msg;
    msg.type = SL_MSG_TAKEN;
    msg.taken.slots = rest;
    msg.taken.slots_bytes = SL_BODY_MAX;
    assert_int_equal(sl_msg_encode(&msg, frame, sizeof frame), SL_FRAME_MAX + 4);
    msg.taken.slots_bytes = SL_BODY_MAX + 1;
    assert_int_equal(sl_msg_encode(&msg, frame, sizeof frame), SL_ERR_LIMIT);
}

static void elements__every_one__survives(void **state)
{
    (void)state;
    uint8_t bytes[512];
    struct sl_sent sent = {.block = {1, 2, 3, 4, 5, 6, 7, {{8}}, {{9}}, 10, {{11}}},
                           .push = 12,
                           .code = SL_ERR_CHECKSUM};
    struct sl_sent got;
    struct sl_writer w = sl_writer_on(bytes, sizeof bytes);
    sl_sent_write(&w, &sent);
    assert_int_equal(sl_writer_used(&w), SL_SENT_BYTES);
    struct sl_reader r = sl_reader_on(bytes, SL_SENT_BYTES);
    sl_sent_read(&r, &got);
    assert_true(sl_reader_done(&r));
    assert_int_equal(got.code, SL_ERR_CHECKSUM);
    assert_int_equal(got.push, 12);
    const struct sl_offer *a = &sent.block, *b = &got.block;
    assert_true(a->object == b->object && a->block == b->block && a->slot == b->slot);
    assert_true(a->stored_bytes == b->stored_bytes && a->plain_bytes == b->plain_bytes);
    assert_true(a->codec == b->codec && a->flags == b->flags);
    assert_memory_equal(&a->plain_digest, &b->plain_digest, 16);
    assert_memory_equal(&a->stored_digest, &b->stored_digest, 16);
    assert_true(a->seal_number == b->seal_number);
    assert_memory_equal(&a->seal_tag, &b->seal_tag, 16);

    w = sl_writer_on(bytes, sizeof bytes);
    sl_offer_write(&w, &sent.block);
    assert_int_equal(sl_writer_used(&w), SL_OFFER_BYTES);

    struct sl_get get = {1, 2, 0xfffffffe}, got_get;
    w = sl_writer_on(bytes, sizeof bytes);
    sl_get_write(&w, &get);
    assert_int_equal(sl_writer_used(&w), SL_GET_BYTES);
    r = sl_reader_on(bytes, SL_GET_BYTES);
    sl_get_read(&r, &got_get);
    assert_true(sl_reader_done(&r));
    assert_true(got_get.object == 1 && got_get.block == 2 && got_get.slot == 0xfffffffe);

    struct sl_entry entry = {.is_folder = 1, .length = 77, .name = "pack-0001"}, got_entry;
    w = sl_writer_on(bytes, sizeof bytes);
    sl_entry_write(&w, &entry);
    for (size_t cut = 1; cut <= sl_writer_used(&w); cut++) {
        r = sl_reader_on(bytes, sl_writer_used(&w) - cut);
        sl_entry_read(&r, &got_entry);
        assert_true(r.failed);
    }
    r = sl_reader_on(bytes, sl_writer_used(&w));
    sl_entry_read(&r, &got_entry);
    assert_true(sl_reader_done(&r));
    assert_string_equal(got_entry.name, "pack-0001");
    assert_int_equal(got_entry.is_folder, 1);
    assert_int_equal(got_entry.length, 77);
}

static void lane_hello__round_trip__and_refusals(void **state)
{
    (void)state;
    uint8_t bytes[SL_LANE_HELLO_BYTES + 4] = {0};
    struct sl_lane_hello hello = {SL_WIRE_VERSION, 0x1234, {{1}}, 5, 6, 7, 8, {{9}}}, got;
    sl_lane_hello_encode(&hello, bytes);
    assert_memory_equal(bytes, "SLn1", 4);
    assert_int_equal(sl_lane_hello_decode(bytes, SL_LANE_HELLO_BYTES, &got), 0);
    assert_true(got.version == SL_WIRE_VERSION && got.flags == 0x1234 && got.lane == 5);
    assert_true(got.rail == 6 && got.depth == 7 && got.nonce == 8);
    assert_memory_equal(&got.session, &hello.session, 16);
    assert_memory_equal(&got.mac, &hello.mac, 16);
    /* rdma_cm pads */
    assert_int_equal(sl_lane_hello_decode(bytes, sizeof bytes, &got), 0);
    for (size_t length = 0; length < SL_LANE_HELLO_BYTES; length++)
        assert_int_equal(sl_lane_hello_decode(bytes, length, &got), SL_ERR_PROTOCOL);
    for (int i = 0; i < 6; i++) { /* magic and version */
        bytes[i] ^= 0x40;
        assert_int_equal(sl_lane_hello_decode(bytes, SL_LANE_HELLO_BYTES, &got), SL_ERR_PROTOCOL);
        bytes[i] ^= 0x40;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(message__every_one__survives_and_refuses_other_lengths),
        cmocka_unit_test(message__unknown_type__is_refused),
        cmocka_unit_test(message__oversize_string__is_refused),
        cmocka_unit_test(message__string_with_nul__is_refused),
        cmocka_unit_test(message__rest_of_64_KiB__is_the_limit),
        cmocka_unit_test(elements__every_one__survives),
        cmocka_unit_test(lane_hello__round_trip__and_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
