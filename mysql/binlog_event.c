/* Packets of a binary log's stream. What they are: MariaDB's "Replication protocol" pages, and
 * measured; where measured and documented differ, the measured holds. It does not understand what
 * is in an event: files are archived byte by byte. */
#include "mysql/binlog_event.h"

#include "core/wire/cursor.h"

#include <isa-l/crc.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES   19u
#define CRC_BYTES    4u
#define ROTATE_NAME  (HEAD_BYTES + 8u) /* offset of the name in a ROTATE */
#define FORMAT_MIN   (HEAD_BYTES + 2u + 50u + 4u + 1u + 1u + CRC_BYTES)
#define TYPE_ROTATE  4u
#define TYPE_FORMAT  15u
#define TYPE_BEAT    27u
#define TYPE_BEAT_V2 41u
#define ARTIFICIAL   0x20u
#define ACK_MAGIC    0xefu
/* of objects' names, core/store/store.h */
#define NAME_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+=@:-"
#define CRC32           1u /* checksum algorithms: 0 none, 1 CRC-32 */

static uint32_t u32_at(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static bool crc_fits(const uint8_t *bytes, size_t count)
{
    return count >= HEAD_BYTES + CRC_BYTES &&
           crc32_gzip_refl(0, bytes, count - CRC_BYTES) == u32_at(bytes + count - CRC_BYTES);
}

bool sl_my_binlog_number(const char *name, uint64_t *ret_number, size_t *ret_base)
{
    const char *dot = strrchr(name, '.');
    size_t digits = dot ? strlen(dot + 1) : 0;
    if (!dot || dot == name || !digits || digits > 18 || strspn(dot + 1, "0123456789") != digits ||
        strlen(name) >= SL_MY_BINLOG_NAME_MAX || *name == '.' ||
        strspn(name, NAME_CHARACTERS) != strlen(name))
        return false;
    *ret_number = strtoull(dot + 1, NULL, 10);
    *ret_base = (size_t)(dot - name);
    return true;
}

/* The one that names the file has a checksum or not, whatever was agreed (measured). */
static int parse_rotate(struct sl_my_event *event, struct sl_err *err)
{
    size_t end = event->count - (crc_fits(event->bytes, event->count) ? CRC_BYTES : 0), base;
    uint64_t number;
    struct sl_reader r =
        sl_reader_on(event->bytes + HEAD_BYTES, end > HEAD_BYTES ? end - HEAD_BYTES : 0);
    event->position = sl_read_u64(&r);
    size_t length = sl_reader_left(&r);
    const uint8_t *name = sl_read_bytes(&r, length);
    if (r.failed || !length || length >= sizeof event->file)
        return sl_err_set(err, SL_ERR_PROTOCOL, "the server names a file of %zu bytes", length);
    memcpy(event->file, name, length);
    event->file[length] = '\0';
    if (strlen(event->file) != length || !sl_my_binlog_number(event->file, &number, &base))
        return sl_err_set(err, SL_ERR_PROTOCOL,
                          "the server's file \"%.60s\" has no name that can "
                          "be archived",
                          event->file);
    if (event->position < SL_MY_BINLOG_START)
        return sl_err_set(err, SL_ERR_PROTOCOL, "the server begins before the first event");
    event->kind = SL_MY_EVENT_FILE;
    return 0;
}

/* Has a checksum also where the events of its file have none; but when it is repeated for such a
 * file, the server changes two fields and leaves the old checksum (measured). */
static int parse_format(struct sl_my_event *event, struct sl_my_event_state *state,
                        struct sl_err *err)
{
    if (event->count < FORMAT_MIN)
        return sl_err_set(err, SL_ERR_PROTOCOL, "a format description of %zu bytes", event->count);
    uint8_t algorithm = event->bytes[event->count - CRC_BYTES - 1];
    if (algorithm > CRC32)
        return sl_err_set(err, SL_ERR_UNSUPPORTED,
                          "events have checksums of kind %u, not known "
                          "here",
                          algorithm);
    if (!crc_fits(event->bytes, event->count) && (event->next_position || algorithm == CRC32))
        return sl_err_set(err, SL_ERR_CHECKSUM, "a format description came damaged");
    state->checksums = algorithm == CRC32;
    event->kind = event->next_position ? SL_MY_EVENT_FORMAT : SL_MY_EVENT_REPEATED;
    return 0;
}

int sl_my_event_parse(const uint8_t *packet, size_t count, struct sl_my_event_state *state,
                      struct sl_my_event *event, struct sl_err *err)
{
    memset(event, 0, sizeof *event);
    if (state->semi_sync && count >= 2 && packet[0] == ACK_MAGIC) {
        event->wants_ack = packet[1] & 1;
        packet += 2;
        count -= 2;
    }
    if (count < HEAD_BYTES || u32_at(packet + 9) != count)
        return sl_err_set(err, SL_ERR_PROTOCOL, "an event of %zu bytes that is not so long", count);
    event->bytes = packet;
    event->count = count;
    event->created = u32_at(packet);
    event->type = packet[4];
    event->server_id = u32_at(packet + 5);
    event->next_position = u32_at(packet + 13);
    bool artificial = packet[17] & ARTIFICIAL;
    if (event->type == TYPE_BEAT || event->type == TYPE_BEAT_V2)
        return 0;
    if (event->type == TYPE_ROTATE && artificial)
        return parse_rotate(event, err);
    if (event->type == TYPE_FORMAT)
        return parse_format(event, state, err);
    if (artificial)
        return 0;
    if (state->checksums && !crc_fits(packet, count))
        return sl_err_set(err, SL_ERR_CHECKSUM, "an event of type %u came damaged", event->type);
    event->kind = SL_MY_EVENT_CONTENT;
    return 0;
}
