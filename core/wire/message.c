/* Messages: encoder and decoder made from the field lists of message.h, and the elements of the
 * list-like messages. Encode and decode stand side by side so that they are read together. */
#include "core/wire/message.h"

#include <string.h>

/* Writing and reading a field by its kind; m is the message's struct. */
#define PUT_u8(name)     sl_write_u8(w, m->name);
#define PUT_u16(name)    sl_write_u16(w, m->name);
#define PUT_u32(name)    sl_write_u32(w, m->name);
#define PUT_u64(name)    sl_write_u64(w, m->name);
#define PUT_id(name)     sl_write_bytes(w, m->name.bytes, sizeof m->name.bytes);
#define PUT_str64(name)  sl_write_string(w, m->name);
#define PUT_str160(name) sl_write_string(w, m->name);
#define PUT_str384(name) sl_write_string(w, m->name);
#define PUT_str512(name) sl_write_string(w, m->name);
#define PUT_str768(name) sl_write_string(w, m->name);
#define PUT_rest(name)   sl_write_bytes(w, m->name, m->name##_bytes);
#define PUT(kind, name)  PUT_##kind(name)

#define TAKE_u8(name)     m->name = sl_read_u8(r);
#define TAKE_u16(name)    m->name = sl_read_u16(r);
#define TAKE_u32(name)    m->name = sl_read_u32(r);
#define TAKE_u64(name)    m->name = sl_read_u64(r);
#define TAKE_id(name)     sl_read_into(r, m->name.bytes, sizeof m->name.bytes);
#define TAKE_str64(name)  sl_read_string(r, m->name, sizeof m->name);
#define TAKE_str160(name) sl_read_string(r, m->name, sizeof m->name);
#define TAKE_str384(name) sl_read_string(r, m->name, sizeof m->name);
#define TAKE_str512(name) sl_read_string(r, m->name, sizeof m->name);
#define TAKE_str768(name) sl_read_string(r, m->name, sizeof m->name);
#define TAKE_rest(name)                                                                            \
    m->name##_bytes = sl_reader_left(r);                                                           \
    m->name = sl_read_bytes(r, m->name##_bytes);
#define TAKE(kind, name) TAKE_##kind(name)

#define M(number, NAME, name)                                                                      \
    static void put_##name(struct sl_writer *w, const struct sl_msg_##name *m)                     \
    {                                                                                              \
        SL_MSG_##NAME##_FIELDS(PUT)                                                                \
    }                                                                                              \
    static void take_##name(struct sl_reader *r, struct sl_msg_##name *m)                          \
    {                                                                                              \
        SL_MSG_##NAME##_FIELDS(TAKE)                                                               \
    }
SL_MESSAGES(M)
#undef M

int sl_msg_encode(const struct sl_msg *msg, uint8_t *frame, size_t bytes)
{
    if (bytes > SL_FRAME_MAX + 4)
        bytes = SL_FRAME_MAX + 4;
    struct sl_writer writer = sl_writer_on(frame, bytes), *w = &writer;
    sl_write_u32(w, 0);
    sl_write_u16(w, (uint16_t)msg->type);
    switch (msg->type) {
#define M(number, NAME, name)                                                                      \
    case SL_MSG_##NAME:                                                                            \
        put_##name(w, &msg->name);                                                                 \
        break;
        SL_MESSAGES(M)
#undef M
    }
    if (w->failed)
        return SL_ERR_LIMIT;
    size_t used = sl_writer_used(w);
    struct sl_writer head = sl_writer_on(frame, 4);
    sl_write_u32(&head, (uint32_t)(used - 4));
    return (int)used;
}

int sl_msg_decode(const uint8_t *body, size_t bytes, struct sl_msg *msg)
{
    struct sl_reader reader = sl_reader_on(body, bytes), *r = &reader;
    uint16_t type = sl_read_u16(r);
    switch (type) {
#define M(number, NAME, name)                                                                      \
    case SL_MSG_##NAME:                                                                            \
        take_##name(r, &msg->name);                                                                \
        break;
        SL_MESSAGES(M)
#undef M
    default:
        return SL_ERR_PROTOCOL;
    }
    msg->type = (enum sl_msg_type)type;
    return sl_reader_done(r) ? 0 : SL_ERR_PROTOCOL;
}

const char *sl_msg_name(int type)
{
    switch (type) {
#define M(number, NAME, name)                                                                      \
    case SL_MSG_##NAME:                                                                            \
        return #NAME;
        SL_MESSAGES(M)
#undef M
    default:
        return "?";
    }
}

void sl_offer_write(struct sl_writer *w, const struct sl_offer *o)
{
    sl_write_u32(w, o->object);
    sl_write_u32(w, o->block);
    sl_write_u32(w, o->slot);
    sl_write_u32(w, o->stored_bytes);
    sl_write_u32(w, o->plain_bytes);
    sl_write_u8(w, o->codec);
    sl_write_u8(w, o->flags);
    sl_write_bytes(w, o->plain_digest.bytes, sizeof o->plain_digest);
    sl_write_bytes(w, o->stored_digest.bytes, sizeof o->stored_digest);
    sl_write_u64(w, o->seal_number);
    sl_write_bytes(w, o->seal_tag.bytes, sizeof o->seal_tag);
}

void sl_offer_read(struct sl_reader *r, struct sl_offer *o)
{
    o->object = sl_read_u32(r);
    o->block = sl_read_u32(r);
    o->slot = sl_read_u32(r);
    o->stored_bytes = sl_read_u32(r);
    o->plain_bytes = sl_read_u32(r);
    o->codec = sl_read_u8(r);
    o->flags = sl_read_u8(r);
    sl_read_into(r, o->plain_digest.bytes, sizeof o->plain_digest);
    sl_read_into(r, o->stored_digest.bytes, sizeof o->stored_digest);
    o->seal_number = sl_read_u64(r);
    sl_read_into(r, o->seal_tag.bytes, sizeof o->seal_tag);
}

void sl_get_write(struct sl_writer *w, const struct sl_get *g)
{
    sl_write_u32(w, g->object);
    sl_write_u32(w, g->block);
    sl_write_u32(w, g->slot);
}

void sl_get_read(struct sl_reader *r, struct sl_get *g)
{
    g->object = sl_read_u32(r);
    g->block = sl_read_u32(r);
    g->slot = sl_read_u32(r);
}

void sl_sent_write(struct sl_writer *w, const struct sl_sent *s)
{
    sl_offer_write(w, &s->block);
    sl_write_u64(w, s->push);
    sl_write_u16(w, (uint16_t)s->code);
}

void sl_sent_read(struct sl_reader *r, struct sl_sent *s)
{
    sl_offer_read(r, &s->block);
    s->push = sl_read_u64(r);
    s->code = (int16_t)sl_read_u16(r);
}

void sl_entry_write(struct sl_writer *w, const struct sl_entry *e)
{
    sl_write_u8(w, e->is_folder);
    sl_write_u64(w, e->length);
    sl_write_string(w, e->name);
}

void sl_entry_read(struct sl_reader *r, struct sl_entry *e)
{
    e->is_folder = sl_read_u8(r);
    e->length = sl_read_u64(r);
    sl_read_string(r, e->name, sizeof e->name);
}

void sl_lane_hello_encode(const struct sl_lane_hello *hello, uint8_t bytes[SL_LANE_HELLO_BYTES])
{
    struct sl_writer w = sl_writer_on(bytes, SL_LANE_HELLO_BYTES);
    sl_write_u32(&w, SL_LANE_MAGIC);
    sl_write_u16(&w, hello->version);
    sl_write_u16(&w, hello->flags);
    sl_write_bytes(&w, hello->session.bytes, sizeof hello->session);
    sl_write_u16(&w, hello->lane);
    sl_write_u8(&w, hello->rail);
    sl_write_u8(&w, hello->depth);
    sl_write_u64(&w, hello->nonce);
    sl_write_bytes(&w, hello->mac.bytes, sizeof hello->mac);
}

int sl_lane_hello_decode(const uint8_t *bytes, size_t length, struct sl_lane_hello *hello)
{
    /* rdma_cm may pad private data, so more than the hello is fine */
    struct sl_reader r = sl_reader_on(bytes, length);
    uint32_t magic = sl_read_u32(&r);
    hello->version = sl_read_u16(&r);
    hello->flags = sl_read_u16(&r);
    sl_read_into(&r, hello->session.bytes, sizeof hello->session);
    hello->lane = sl_read_u16(&r);
    hello->rail = sl_read_u8(&r);
    hello->depth = sl_read_u8(&r);
    hello->nonce = sl_read_u64(&r);
    sl_read_into(&r, hello->mac.bytes, sizeof hello->mac);
    if (r.failed || magic != SL_LANE_MAGIC || hello->version != SL_WIRE_VERSION)
        return SL_ERR_PROTOCOL;
    return 0;
}
