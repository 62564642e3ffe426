/* sl_unpack on any bytes: u8 codec, u24 plain length, then packed bytes. Never writes beyond the
 * plain length (the sanitizer sees it); what unpacks, packs and unpacks again to the same. */
#include "core/object/codec.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void again(enum sl_codec codec, struct sl_unpacker *unpacker, const uint8_t *plain,
                  size_t count)
{
    struct sl_packer *packer;
    uint8_t *packed = malloc(count), *back = malloc(count);
    if (sl_packer_new(codec, 1, &packer, NULL) || !packed || !back)
        abort();
    size_t stored = sl_pack(packer, plain, count, packed);
    if (stored && (sl_unpack(unpacker, (uint8_t)codec, packed, stored, back, count) ||
                   memcmp(plain, back, count) != 0))
        abort();
    sl_packer_free(packer);
    free(packed);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sl_unpacker *unpacker; /* as a download keeps it */
    if (!unpacker && sl_unpacker_new(&unpacker, NULL))
        abort();
    struct sl_reader r = sl_reader_on(data, size);
    uint8_t codec = sl_read_u8(&r) % 4;
    size_t count = ((size_t)sl_read_u8(&r) << 16 | sl_read_u16(&r)) % (SL_BLOCK_BYTES + 2);
    size_t stored = sl_reader_left(&r);
    uint8_t *to = malloc(count ? count : 1);
    if (!to)
        abort();
    if (sl_unpack(unpacker, codec, r.at, stored, to, count) == 0)
        again((enum sl_codec)codec, unpacker, to, count);
    free(to);
    return 0;
}
