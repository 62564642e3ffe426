/* The first bytes on a lane, which anybody can send. */
#include "core/wire/message.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_lane_hello hello;
    uint8_t again[SL_LANE_HELLO_BYTES];
    if (sl_lane_hello_decode(data, size, &hello) != 0)
        return 0;
    sl_lane_hello_encode(&hello, again);
    if (memcmp(again, data, sizeof again) != 0)
        abort();
    return 0;
}
