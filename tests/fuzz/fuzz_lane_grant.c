/* The 16 bytes that a client sends on an RDMA lane: decoded, they encode to the same. */
#include "core/verbs/grant.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t count;
    uint8_t again[SL_NOTICE_BYTES];
    if (sl_verbs_grant_decode(data, size, &count) != 0)
        return 0;
    if (count > SL_VERBS_GRANT_MAX || size != sizeof again)
        abort();
    sl_verbs_grant_encode(count, again);
    if (memcmp(again, data, sizeof again) != 0)
        abort();
    return 0;
}
