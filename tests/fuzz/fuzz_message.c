/* Bodies of control frames: what decodes is encoded again and must be the same bytes, since a
 * message has one encoding. */
#include "core/wire/message.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sl_msg msg;
    static uint8_t frame[SL_FRAME_MAX + 4];
    if (size > SL_FRAME_MAX || sl_msg_decode(data, size, &msg) != 0)
        return 0;
    int length = sl_msg_encode(&msg, frame, sizeof frame);
    if (length < 0 || (size_t)length != size + 4 || memcmp(frame + 4, data, size) != 0)
        abort();
    if (msg.type == SL_MSG_OFFER || msg.type == SL_MSG_SENT || msg.type == SL_MSG_LISTED) {
        struct sl_reader r = sl_reader_on(data, size);
        struct sl_offer offer;
        struct sl_sent sent;
        struct sl_entry entry;
        sl_offer_read(&r, &offer);
        sl_sent_read(&r, &sent);
        sl_entry_read(&r, &entry);
    }
    return 0;
}
