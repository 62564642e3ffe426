/* sl_footer_decode on any bytes. Input: u8 flags, u8 number of blocks (taken mod 9), u32 bytes that
 * the last block lacks, then the footer (cut or filled with zeros to its size). With flag 1 footer
 * and content digest are made right, so that the fuzzer gets past them; with flag 2 blocks may be
 * packed and the other bits say where they end. What is accepted must be exactly what the encoder
 * writes. */
#include "core/object/object.h"

#include <stdlib.h>
#include <string.h>

#define SEED       7
#define BLOCKS_MAX 8u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The content digest of whatever leaf digests lie in the bytes. */
static struct sl_id content_digest(const uint8_t *bytes, uint32_t blocks)
{
    struct sl_id leaves[BLOCKS_MAX] = {0};
    for (uint32_t i = 0; i < blocks; i++)
        memcpy(&leaves[i], bytes + (size_t)i * SL_BLOCK_ENTRY_BYTES + 24, sizeof *leaves);
    return sl_digest_content(SEED, leaves, blocks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t bytes[SL_OBJECT_ALIGN] = {0}, again[SL_OBJECT_ALIGN];
    struct sl_block table[BLOCKS_MAX];
    struct sl_err err;
    struct sl_reader r = sl_reader_on(data, size);
    uint8_t flags = sl_read_u8(&r);
    uint32_t blocks = sl_read_u8(&r) % (BLOCKS_MAX + 1), lack = sl_read_u32(&r) % SL_BLOCK_BYTES;
    struct sl_trailer trailer = {.version = SL_OBJECT_VERSION, .name = "fuzz", .blocks = blocks};
    trailer.length = blocks ? (uint64_t)blocks * SL_BLOCK_BYTES - lack : 0;
    trailer.footer_offset = sl_align_up(trailer.length);
    if (flags & 2) { /* where packed blocks end is the trailer's word */
        trailer.version = SL_OBJECT_VERSION_PACKED;
        trailer.footer_offset = (uint64_t)(flags >> 2) * SL_OBJECT_ALIGN;
    }
    trailer.footer_bytes = blocks * SL_BLOCK_ENTRY_BYTES;
    size_t whole = sl_align_up(trailer.footer_bytes), left = sl_reader_left(&r);
    sl_read_into(&r, bytes, left < whole ? left : whole);
    if (flags & 1) {
        trailer.footer_digest = sl_digest(SEED, bytes, whole);
        trailer.content_digest = content_digest(bytes, blocks);
    }
    if (sl_footer_decode(&trailer, SEED, bytes, table, &err) != 0)
        return 0;
    sl_footer_encode(table, blocks, again);
    if (memcmp(bytes, again, whole) != 0)
        abort();
    return 0;
}
