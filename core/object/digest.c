/* Digests of blocks and contents, zero detection, and digests as text. They find damage and
 * decide sameness among honest writers; they are no defence against a forger (XXH3 is not a
 * cryptographic hash): authenticity comes from the control connection and from seals. */
#include "core/base/alloc.h"
#include "core/object/object.h"

#include <isa-l.h>
#include <limits.h>
#include <string.h>
#ifdef SLUICE_XXH_DISPATCH
#include <xxh_x86dispatch.h> /* redirects XXH3_… to the widest vectors of this processor */
#else
#include <xxhash.h>
#endif

_Static_assert(sizeof(struct sl_id) == sizeof(XXH128_canonical_t), "an id holds an XXH3-128");

struct sl_id sl_digest(uint64_t seed, const void *bytes, size_t count)
{
    XXH128_canonical_t canonical;
    struct sl_id id;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_withSeed(bytes, count, seed));
    memcpy(&id, &canonical, sizeof id);
    return id;
}

struct sl_id sl_digest_content(uint64_t seed, const struct sl_id *leaves, size_t n)
{
    return sl_digest(seed, n ? leaves->bytes : NULL, n * sizeof *leaves);
}

int sl_digest_table(uint64_t seed, const struct sl_block *table, uint32_t blocks,
                    struct sl_id *ret_digest, struct sl_err *err)
{
    SL_CLEANUP_FREE struct sl_id *leaves = sl_alloc(blocks * sizeof *leaves);
    if (!leaves)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for the digests of %u blocks",
                          blocks);
    for (uint32_t i = 0; i < blocks; i++)
        leaves[i] = table[i].plain_digest;
    *ret_digest = sl_digest_content(seed, leaves, blocks);
    return 0;
}

struct sl_id sl_digest_zeros(uint64_t seed, size_t count)
{
    /* Never written: reads of it all fall on the kernel's one zero page. */
    static uint8_t zeros[SL_BLOCK_BYTES];
    static _Thread_local struct {
        bool known;
        uint64_t seed;
        struct sl_id digest;
    } full;
    if (count != SL_BLOCK_BYTES)
        return sl_digest(seed, zeros, count < SL_BLOCK_BYTES ? count : SL_BLOCK_BYTES);
    if (!full.known || full.seed != seed) {
        full.digest = sl_digest(seed, zeros, sizeof zeros);
        full.seed = seed;
        full.known = true;
    }
    return full.digest;
}

bool sl_bytes_are_zero(const void *bytes, size_t count)
{
    /* isa-l dispatches to AVX2/AVX-512 and leaves at the first nonzero stride; it takes an int. */
    union {
        const void *in;
        void *out; /* isa-l lacks the const, but only reads */
    } at = {.in = bytes};
    while (count) {
        size_t part = count < SL_BLOCK_BYTES ? count : SL_BLOCK_BYTES;
        if (isal_zero_detect(at.out, part) != 0)
            return false;
        at.in = (const uint8_t *)at.in + part;
        count -= part;
    }
    return true;
}

bool sl_id_equal(const struct sl_id *a, const struct sl_id *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

const char *sl_id_text(const struct sl_id *id, char text[SL_ID_TEXT])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof id->bytes; i++) {
        text[2 * i] = digits[id->bytes[i] >> 4];
        text[2 * i + 1] = digits[id->bytes[i] & 15];
    }
    text[SL_ID_TEXT - 1] = '\0';
    return text;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int sl_id_parse(const char *text, struct sl_id *ret_id)
{
    struct sl_id id;
    for (size_t i = 0; i < sizeof id.bytes; i++) {
        int high = hex_value(text[2 * i]);
        int low = high < 0 ? -1 : hex_value(text[2 * i + 1]);
        if (low < 0)
            return SL_ERR_FORMAT;
        id.bytes[i] = (uint8_t)(high << 4 | low);
    }
    if (text[SL_ID_TEXT - 1] != '\0')
        return SL_ERR_FORMAT;
    *ret_id = id;
    return 0;
}
