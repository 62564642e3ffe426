/* Packing and unpacking of blocks: what comes back, what is left plain, and that hostile bytes
 * never write more than the plain length. */
#include "core/object/codec.h"

#include "core/base/fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include <cmocka.h>

#define GUARD 64u

/* Repeating with a change every so often, about 5:1; or noise. */
static void fill(uint8_t *bytes, size_t count, bool noise)
{
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < count; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        bytes[i] = (uint8_t)(noise || i % 61 == 0 ? x : 'a' + i % 97 % 23);
    }
}

static void pack__every_codec_level_and_length__comes_back(void **state)
{
    (void)state;
    static const size_t lengths[] = {8192, 8193, 100000, SL_BLOCK_BYTES - 1, SL_BLOCK_BYTES};
    uint8_t *plain = malloc(SL_BLOCK_BYTES), *packed = malloc(SL_BLOCK_BYTES), *again;
    struct sl_unpacker *unpacker;
    fill(plain, SL_BLOCK_BYTES, false);
    assert_int_equal(sl_unpacker_new(&unpacker, NULL), 0);
    for (enum sl_codec codec = SL_CODEC_ZSTD; codec <= SL_CODEC_LZ4; codec++)
        for (int level = 1; level < 22; level += 5)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
                struct sl_packer *packer;
                assert_int_equal(sl_packer_new(codec, level, &packer, NULL), 0);
                for (int twice = 0; twice < 2; twice++) { /* no state stays */
                    size_t stored = sl_pack(packer, plain, lengths[i], packed);
                    assert_in_range(stored, 1, lengths[i] - 4096);
                    again = malloc(lengths[i]);
                    assert_int_equal(
                        sl_unpack(unpacker, (uint8_t)codec, packed, stored, again, lengths[i]), 0);
                    assert_memory_equal(again, plain, lengths[i]);
                    free(again);
                }
                sl_packer_free(packer);
            }
    sl_unpacker_free(unpacker);
    free(plain);
    free(packed);
}

static void pack__what_gains_nothing__is_left_plain(void **state)
{
    (void)state;
    uint8_t *plain = malloc(SL_BLOCK_BYTES), *packed = malloc(SL_BLOCK_BYTES);
    for (enum sl_codec codec = SL_CODEC_ZSTD; codec <= SL_CODEC_LZ4; codec++) {
        struct sl_packer *packer;
        assert_int_equal(sl_packer_new(codec, 1, &packer, NULL), 0);
        fill(plain, SL_BLOCK_BYTES, true);
        assert_int_equal(sl_pack(packer, plain, SL_BLOCK_BYTES, packed), 0);
        fill(plain, SL_BLOCK_BYTES / 32, false); /* a 32nd is not worth it */
        assert_int_equal(sl_pack(packer, plain, SL_BLOCK_BYTES, packed), 0);
        fill(plain, SL_BLOCK_BYTES / 4, false);
        assert_int_not_equal(sl_pack(packer, plain, SL_BLOCK_BYTES, packed), 0);
        memset(plain, 'x', 4096); /* a page takes a page, however small it would be */
        assert_int_equal(sl_pack(packer, plain, 1, packed), 0);
        assert_int_equal(sl_pack(packer, plain, 4096, packed), 0);
        assert_int_not_equal(sl_pack(packer, plain, 4097, packed), 0);
        sl_packer_free(packer);
    }
    free(plain);
    free(packed);
}

/* A few bytes that claim to be much. */
static void unpack__bombs__bounded_by_the_plain_length(void **state)
{
    (void)state;
    size_t huge = 256u << 20, room = ZSTD_compressBound(huge);
    uint8_t *zeros = calloc(1, huge), *bomb = malloc(room), *to = malloc(SL_BLOCK_BYTES + GUARD);
    size_t stored = ZSTD_compress(bomb, room, zeros, huge, 19);
    assert_false(ZSTD_isError(stored));
    struct sl_unpacker *unpacker;
    assert_int_equal(sl_unpacker_new(&unpacker, NULL), 0);
    memset(to, 0xa5, SL_BLOCK_BYTES + GUARD);
    assert_int_equal(sl_unpack(unpacker, SL_CODEC_ZSTD, bomb, stored, to, SL_BLOCK_BYTES),
                     SL_ERR_CHECKSUM);
    memset(bomb, 0xff, 5000); /* lz4: a literal, then one match of a million bytes */
    bomb[0] = 0x1f, bomb[1] = 'x', bomb[2] = 1, bomb[3] = 0;
    assert_int_equal(sl_unpack(unpacker, SL_CODEC_LZ4, bomb, 5000, to, SL_BLOCK_BYTES),
                     SL_ERR_CHECKSUM);
    for (size_t i = 0; i < GUARD; i++)
        assert_int_equal(to[SL_BLOCK_BYTES + i], 0xa5);
    sl_unpacker_free(unpacker);
    free(zeros);
    free(bomb);
    free(to);
}

/* Cut, flipped, too long, too short: refused or something of the right length, never beyond it. */
static void unpack__damaged__refused_within_bounds(void **state)
{
    (void)state;
    const size_t count = 20000;
    uint8_t *plain = malloc(count), *packed = malloc(count), *to = malloc(count + GUARD);
    struct sl_unpacker *unpacker;
    assert_int_equal(sl_unpacker_new(&unpacker, NULL), 0);
    fill(plain, count, false);
    for (uint8_t codec = SL_CODEC_ZSTD; codec <= SL_CODEC_LZ4; codec++) {
        struct sl_packer *packer;
        assert_int_equal(sl_packer_new(codec, 1, &packer, NULL), 0);
        size_t stored = sl_pack(packer, plain, count, packed);
        for (size_t cut = 0; cut < stored; cut++) {
            uint8_t *exact = malloc(cut + 1); /* a reader beyond it is seen by the sanitizer */
            memcpy(exact, packed, cut);
            assert_int_equal(sl_unpack(unpacker, codec, exact, cut, to, count), SL_ERR_CHECKSUM);
            free(exact);
        }
        memset(to, 0xa5, count + GUARD);
        for (size_t bit = 0; bit < stored * 8; bit += 3) {
            packed[bit / 8] ^= (uint8_t)(1u << bit % 8);
            sl_unpack(unpacker, codec, packed, stored, to, count);
            packed[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        for (size_t i = 0; i < GUARD; i++)
            assert_int_equal(to[count + i], 0xa5);
        assert_int_equal(sl_unpack(unpacker, codec, packed, stored, to, count - 1),
                         SL_ERR_CHECKSUM);
        assert_int_equal(sl_unpack(unpacker, codec, packed, stored, to, count + 1),
                         SL_ERR_CHECKSUM);
        assert_int_equal(sl_unpack(unpacker, codec, packed, stored, to, 0), SL_ERR_CHECKSUM);
        assert_int_equal(sl_unpack(unpacker, codec, packed, stored, to, SL_BLOCK_BYTES + 1),
                         SL_ERR_CHECKSUM);
        assert_int_equal(sl_unpack(unpacker, codec, packed, 0, to, count), SL_ERR_CHECKSUM);
        sl_packer_free(packer);
    }
    assert_int_equal(sl_unpack(unpacker, SL_CODEC_PLAIN, packed, 5, to, 5), SL_ERR_UNSUPPORTED);
    assert_int_equal(sl_unpack(unpacker, 3, packed, 5, to, 5), SL_ERR_UNSUPPORTED);
    sl_unpacker_free(unpacker);
    free(plain);
    free(packed);
    free(to);
}

static void codec__names(void **state)
{
    (void)state;
    enum sl_codec codec = SL_CODEC_PLAIN;
    assert_int_equal(sl_codec_parse("lz4", &codec), 0);
    assert_int_equal(codec, SL_CODEC_LZ4);
    assert_int_equal(sl_codec_parse("zstd", &codec), 0);
    assert_int_equal(codec, SL_CODEC_ZSTD);
    assert_int_equal(sl_codec_parse("none", &codec), 0);
    assert_int_equal(codec, SL_CODEC_PLAIN);
    assert_int_equal(sl_codec_parse("gzip", &codec), SL_ERR_USAGE);
    assert_null(sl_codec_name((enum sl_codec)3));
}

static void codec__no_memory__fails(void **state)
{
    (void)state;
    static const char *const faults[] = {"alloc:ENOMEM", "codec.new:ENOMEM"};
    for (size_t i = 0; i < 2; i++) {
        struct sl_packer *packer;
        struct sl_unpacker *unpacker;
        struct sl_err err;
        sl_fault_set(faults[i]);
        assert_int_equal(sl_packer_new(SL_CODEC_ZSTD, 1, &packer, &err), SL_ERR_NO_MEMORY);
        sl_fault_set(faults[i]);
        assert_int_equal(sl_unpacker_new(&unpacker, &err), SL_ERR_NO_MEMORY);
        sl_fault_set(NULL);
    }
    sl_fault_set("alloc:ENOMEM@2");
    struct sl_packer *packer;
    assert_int_equal(sl_packer_new(SL_CODEC_LZ4, 9, &packer, NULL), SL_ERR_NO_MEMORY);
    sl_fault_set(NULL);
    sl_packer_free(NULL);
    sl_unpacker_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pack__every_codec_level_and_length__comes_back),
        cmocka_unit_test(pack__what_gains_nothing__is_left_plain),
        cmocka_unit_test(unpack__bombs__bounded_by_the_plain_length),
        cmocka_unit_test(unpack__damaged__refused_within_bounds),
        cmocka_unit_test(codec__names),
        cmocka_unit_test(codec__no_memory__fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
