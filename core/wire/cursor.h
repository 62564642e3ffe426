/* Cursors: the only way bytes from a peer or a repository are parsed, and the only way they
 * are made. Integers are little-endian and of fixed size. A reader that ran out of bytes, or a
 * writer out of room, turns `failed`; later calls do nothing and yield zeros, so a decoder reads
 * all its fields and asks once at the end.
 */
#ifndef SL_WIRE_CURSOR_H
#define SL_WIRE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_reader {
    const uint8_t *at, *end; /* borrows */
    bool failed;
};

struct sl_writer {
    uint8_t *start, *at, *end; /* borrows */
    bool failed;
};

struct sl_reader sl_reader_on(const void *bytes, size_t length);
size_t sl_reader_left(const struct sl_reader *r);
uint8_t sl_read_u8(struct sl_reader *r);
uint16_t sl_read_u16(struct sl_reader *r);
uint32_t sl_read_u32(struct sl_reader *r);
uint64_t sl_read_u64(struct sl_reader *r);
/* `count` bytes in place, or NULL (failed). */
const uint8_t *sl_read_bytes(struct sl_reader *r, size_t count);
/* `count` bytes copied to `to`, zeros if failed. */
void sl_read_into(struct sl_reader *r, void *to, size_t count);
/* A string: u16 length, then bytes without NUL; copied with a NUL to `to`. Failed if it has
 * `room` bytes or more, or holds a NUL. */
void sl_read_string(struct sl_reader *r, char *to, size_t room);
/* True when nothing failed and nothing is left over. */
bool sl_reader_done(const struct sl_reader *r);

struct sl_writer sl_writer_on(void *bytes, size_t room);
size_t sl_writer_used(const struct sl_writer *w);
void sl_write_u8(struct sl_writer *w, uint8_t v);
void sl_write_u16(struct sl_writer *w, uint16_t v);
void sl_write_u32(struct sl_writer *w, uint32_t v);
void sl_write_u64(struct sl_writer *w, uint64_t v);
void sl_write_bytes(struct sl_writer *w, const void *bytes, size_t count);
void sl_write_string(struct sl_writer *w, const char *text);

#endif
