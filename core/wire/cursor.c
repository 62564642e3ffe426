/* Cursors: bounds-checked reading and writing of little-endian integers and strings. */
#include "core/wire/cursor.h"

#include <endian.h>
#include <string.h>

struct sl_reader sl_reader_on(const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    return (struct sl_reader){.at = at, .end = at ? at + length : at};
}

size_t sl_reader_left(const struct sl_reader *r)
{
    return r->failed ? 0 : (size_t)(r->end - r->at);
}

const uint8_t *sl_read_bytes(struct sl_reader *r, size_t count)
{
    if (r->failed || (size_t)(r->end - r->at) < count) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *bytes = r->at;
    r->at += count;
    return bytes;
}

void sl_read_into(struct sl_reader *r, void *to, size_t count)
{
    const uint8_t *bytes = sl_read_bytes(r, count);
    if (bytes && count)
        memcpy(to, bytes, count);
    else if (count)
        memset(to, 0, count);
}

uint8_t sl_read_u8(struct sl_reader *r)
{
    uint8_t v;
    sl_read_into(r, &v, sizeof v);
    return v;
}

uint16_t sl_read_u16(struct sl_reader *r)
{
    uint16_t v;
    sl_read_into(r, &v, sizeof v);
    return le16toh(v);
}

uint32_t sl_read_u32(struct sl_reader *r)
{
    uint32_t v;
    sl_read_into(r, &v, sizeof v);
    return le32toh(v);
}

uint64_t sl_read_u64(struct sl_reader *r)
{
    uint64_t v;
    sl_read_into(r, &v, sizeof v);
    return le64toh(v);
}

void sl_read_string(struct sl_reader *r, char *to, size_t room)
{
    size_t length = sl_read_u16(r);
    const uint8_t *bytes = sl_read_bytes(r, length);
    to[0] = '\0';
    if (!bytes)
        return;
    if (length >= room || memchr(bytes, '\0', length)) {
        r->failed = true;
        return;
    }
    memcpy(to, bytes, length);
    to[length] = '\0';
}

bool sl_reader_done(const struct sl_reader *r)
{
    return !r->failed && r->at == r->end;
}

struct sl_writer sl_writer_on(void *bytes, size_t room)
{
    uint8_t *start = bytes;
    return (struct sl_writer){.start = start, .at = start, .end = start + room};
}

size_t sl_writer_used(const struct sl_writer *w)
{
    return (size_t)(w->at - w->start);
}

void sl_write_bytes(struct sl_writer *w, const void *bytes, size_t count)
{
    if (w->failed || (size_t)(w->end - w->at) < count) {
        w->failed = true;
        return;
    }
    if (count)
        memcpy(w->at, bytes, count);
    w->at += count;
}

void sl_write_u8(struct sl_writer *w, uint8_t v)
{
    sl_write_bytes(w, &v, sizeof v);
}

void sl_write_u16(struct sl_writer *w, uint16_t v)
{
    v = htole16(v);
    sl_write_bytes(w, &v, sizeof v);
}

void sl_write_u32(struct sl_writer *w, uint32_t v)
{
    v = htole32(v);
    sl_write_bytes(w, &v, sizeof v);
}

void sl_write_u64(struct sl_writer *w, uint64_t v)
{
    v = htole64(v);
    sl_write_bytes(w, &v, sizeof v);
}

void sl_write_string(struct sl_writer *w, const char *text)
{
    size_t length = strlen(text);
    if (length > UINT16_MAX) {
        w->failed = true;
        return;
    }
    sl_write_u16(w, (uint16_t)length);
    sl_write_bytes(w, text, length);
}
