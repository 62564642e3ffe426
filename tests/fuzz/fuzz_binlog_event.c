/* sl_my_event_parse on any bytes. Input: u8 flags (1: checksums, 2: semi-sync, 4: the checksum is
 * made right), then the packet. What is accepted lies within it, and a file's name is one that an
 * object can have. */
#include "mysql/binlog_event.h"

#include <isa-l/crc.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    struct sl_my_event_state state = {.checksums = data[0] & 1, .semi_sync = data[0] & 2};
    struct sl_my_event event;
    struct sl_err err;
    size_t count = size - 1, base;
    uint64_t number;
    uint8_t *packet = malloc(count ? count : 1);
    if (!packet)
        return 0;
    memcpy(packet, data + 1, count);
    if (data[0] & 4 && count >= 4) {
        uint32_t crc = crc32_gzip_refl(0, packet, count - 4);
        for (int i = 0; i < 4; i++)
            packet[count - 4 + (size_t)i] = (uint8_t)(crc >> 8 * i);
    }
    if (sl_my_event_parse(packet, count, &state, &event, &err) == 0) {
        if (event.bytes < packet || event.bytes + event.count != packet + count)
            abort();
        if (event.kind == SL_MY_EVENT_FILE && !sl_my_binlog_number(event.file, &number, &base))
            abort();
    }
    free(packet);
    return 0;
}
