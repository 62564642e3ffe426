/* sl_trailer_decode on any bytes. Input: u8 flags, u64 the file's length, then the trailer (cut or
 * filled with zeros to its size). With flag 1 the digest is made right, so that the fuzzer gets
 * past it; with flag 2 the file's length is what the trailer's geometry asks for. What is accepted
 * must be exactly what the encoder writes. */
#include "core/object/object.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t bytes[SL_OBJECT_TRAILER_BYTES] = {0}, again[SL_OBJECT_TRAILER_BYTES];
    struct sl_trailer trailer;
    struct sl_err err;
    struct sl_reader r = sl_reader_on(data, size);
    uint8_t flags = sl_read_u8(&r);
    uint64_t file_bytes = sl_read_u64(&r);
    size_t left = sl_reader_left(&r);
    sl_read_into(&r, bytes, left < sizeof bytes ? left : sizeof bytes);
    if (flags & 1) {
        struct sl_id digest = sl_digest(0, bytes, sizeof bytes - sizeof digest);
        memcpy(bytes + sizeof bytes - sizeof digest, &digest, sizeof digest);
    }
    if (flags & 2) {
        struct sl_reader at = sl_reader_on(bytes + 52, 12);
        uint32_t footer_bytes = sl_read_u32(&at);
        file_bytes = sl_read_u64(&at) + sl_align_up(footer_bytes) + SL_OBJECT_TRAILER_BYTES;
    }
    if (sl_trailer_decode(bytes, file_bytes, &trailer, &err) != 0)
        return 0;
    sl_trailer_encode(&trailer, again);
    if (memcmp(bytes, again, sizeof again) != 0)
        abort();
    return 0;
}
