/* Packets of a binary log's stream, looked at: what is an event of the file, what only tells about
 * the stream. Pure: bytes to facts. */
#ifndef SL_MYSQL_BINLOG_EVENT_H
#define SL_MYSQL_BINLOG_EVENT_H

#include "core/base/err.h"

#include <stddef.h>
#include <stdint.h>

#define SL_MY_BINLOG_NAME_MAX 128 /* with the NUL */
#define SL_MY_BINLOG_MAGIC                                                                         \
    "\xfe"                                                                                         \
    "bin"
#define SL_MY_BINLOG_START 4u /* of the first event: behind the magic */

enum sl_my_event_kind {
    SL_MY_EVENT_NOTHING,  /* heartbeats, and what the server makes up for its replicas */
    SL_MY_EVENT_FILE,     /* artificial ROTATE: what follows is of `file`, from `position` on */
    SL_MY_EVENT_REPEATED, /* the format description again, after a start inside of a file */
    SL_MY_EVENT_FORMAT,   /* the format description, the first event of a file */
    SL_MY_EVENT_CONTENT,
};

/* What the next event's meaning depends on. */
struct sl_my_event_state {
    bool checksums; /* of the file that passes, by its format description */
    bool semi_sync; /* asked for: two bytes more before each event */
};

struct sl_my_event {
    enum sl_my_event_kind kind;
    uint8_t type;
    bool wants_ack;
    const uint8_t *bytes; /* borrows */
    size_t count;
    uint32_t created;       /* when the event was made: seconds since 1970 */
    uint32_t server_id;     /* that made it */
    uint32_t next_position; /* where the event ends, modulo 2^32; 0: not said */
    /* SL_MY_EVENT_FILE */
    char file[SL_MY_BINLOG_NAME_MAX];
    uint64_t position;
};

/* `packet` without the leading 0 byte. Lengths and, where the file has them, checksums are checked.
 * SL_ERR_PROTOCOL, SL_ERR_CHECKSUM. */
int sl_my_event_parse(const uint8_t *packet, size_t count, struct sl_my_event_state *state,
                      struct sl_my_event *event, struct sl_err *err);

/* "binlog.000012" → 12 and the length of "binlog". False for anything that is no such name, or that
 * no object could have. */
bool sl_my_binlog_number(const char *name, uint64_t *ret_number, size_t *ret_base);

#endif
