/* Footer and trailer. A small object stands for all: a full block, a hole, a last block of 100
 * bytes. */
#include "core/object/object.h"

#include "core/base/fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SEED         0x5eedu
#define BLOCKS       3u
#define LAST         100u
#define LENGTH       (2ull * SL_BLOCK_BYTES + LAST)
#define CONTENT      (2ull * SL_BLOCK_BYTES + 4096)
#define FOOTER_BYTES 4096u
#define FILE_BYTES   (CONTENT + FOOTER_BYTES + SL_OBJECT_TRAILER_BYTES)

struct fixture {
    struct sl_block table[BLOCKS];
    struct sl_trailer trailer;
    uint8_t footer[FOOTER_BYTES], bytes[SL_OBJECT_TRAILER_BYTES];
};

/* Make the bytes anew from table and trailer, with right digests. */
static void encode(struct fixture *f)
{
    sl_footer_encode(f->table, BLOCKS, f->footer);
    f->trailer.footer_digest = sl_digest(SEED, f->footer, FOOTER_BYTES);
    assert_int_equal(sl_digest_table(SEED, f->table, BLOCKS, &f->trailer.content_digest, NULL), 0);
    sl_trailer_encode(&f->trailer, f->bytes);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        struct sl_block *block = &f->table[i];
        block->plain_bytes = sl_block_length(LENGTH, i);
        if (i == 1) {
            block->flags = SL_BLOCK_ZERO;
            block->plain_digest = sl_digest_zeros(SEED, block->plain_bytes);
        } else {
            block->offset = (uint64_t)i * SL_BLOCK_BYTES;
            block->stored_bytes = block->plain_bytes;
            block->plain_digest = sl_digest(SEED, &i, sizeof i);
        }
        block->stored_digest = block->plain_digest;
    }
    f->trailer = (struct sl_trailer){
        .version = SL_OBJECT_VERSION,
        .repository = {{1, 2, 3}},
        .length = LENGTH,
        .index_bytes = 7,
        .blocks = BLOCKS,
        .footer_offset = CONTENT,
        .footer_bytes = BLOCKS * SL_BLOCK_ENTRY_BYTES,
        .created_ns = 1796000000000000000u,
    };
    strcpy(f->trailer.name, "main/wal/7123/00000001/0000000100000000/000000010000000000000001");
    strcpy(f->trailer.creator, "local:postgres@db1");
    encode(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

/* Decode both as a reader does; 0 or the first refusal. */
static int decode(const struct fixture *f, struct sl_trailer *trailer, struct sl_block *table)
{
    struct sl_err err = {0};
    int rc = sl_trailer_decode(f->bytes, FILE_BYTES, trailer, &err);
    if (!rc)
        rc = sl_footer_decode(trailer, SEED, f->footer, table, &err);
    assert_int_equal(err.code, rc);
    assert_true(!rc == !err.msg[0]);
    return rc;
}

static int decode_code(const struct fixture *f)
{
    struct sl_trailer trailer;
    struct sl_block table[BLOCKS];
    return decode(f, &trailer, table);
}

static void format__round_trip(void **state)
{
    struct fixture *f = *state, again = *f;
    memset(again.table, 0xaa, sizeof again.table);
    assert_int_equal(decode(f, &again.trailer, again.table), 0);
    assert_string_equal(again.trailer.name, f->trailer.name);
    assert_string_equal(again.trailer.creator, f->trailer.creator);
    assert_int_equal(again.trailer.length, LENGTH);
    assert_int_equal(again.trailer.index_bytes, 7);
    assert_int_equal(again.trailer.created_ns, f->trailer.created_ns);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        assert_int_equal(again.table[i].offset, f->table[i].offset);
        assert_int_equal(again.table[i].stored_bytes, f->table[i].stored_bytes);
        assert_int_equal(again.table[i].flags, f->table[i].flags);
        assert_true(sl_id_equal(&again.table[i].plain_digest, &f->table[i].plain_digest));
    }
    encode(&again);
    assert_memory_equal(again.footer, f->footer, sizeof f->footer);
    assert_memory_equal(again.bytes, f->bytes, sizeof f->bytes);
}

/* The bytes themselves are the contract (docs/repository.md): some of them by their offsets. */
static void format__bytes_are_those_of_the_specification(void **state)
{
    struct fixture *f = *state;
    assert_memory_equal(f->bytes, "SLUICEOB\x01\x00\x00\x00\x00\x00\x10\x00\x01\x02\x03", 19);
    assert_memory_equal(f->bytes + 32, "\x64\x00\x20\x00\x00\x00\x00\x00\x07", 9);
    assert_memory_equal(f->bytes + 48, "\x03\x00\x00\x00\xd8\x00\x00\x00\x00\x10\x20", 11);
    assert_memory_equal(f->bytes + 64, &f->trailer.footer_digest, 16);
    assert_memory_equal(f->bytes + 80, &f->trailer.content_digest, 16);
    assert_memory_equal(f->bytes + 104, "\x12\x00local:postgres@db1", 20);
    struct sl_id digest = sl_digest(0, f->bytes, 4080);
    assert_memory_equal(f->bytes + 4080, &digest, 16);
    const uint8_t *last = f->footer + (size_t)2 * SL_BLOCK_ENTRY_BYTES;
    assert_memory_equal(last, "\x00\x00\x20\x00\x00\x00\x00\x00\x64\x00\x00\x00\x64\x00", 14);
    assert_memory_equal(last + 24, &f->table[2].plain_digest, 16);
    assert_memory_equal(last + 40, &f->table[2].stored_digest, 16);
}

static void format__any_bit_flipped__refused(void **state)
{
    struct fixture *f = *state;
    for (size_t bit = 0; bit < FOOTER_BYTES * 8u; bit++) {
        f->footer[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(decode_code(f), 0);
        f->footer[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t bit = 0; bit < SL_OBJECT_TRAILER_BYTES * 8u; bit++) {
        f->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(decode_code(f), 0);
        f->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(decode_code(f), 0);
}

/* The digests stand aside: every bit of the footer means something that is checked. */
static void footer__any_bit_flipped_and_digest_made_anew__refused(void **state)
{
    struct fixture *f = *state;
    for (size_t bit = 0; bit < FOOTER_BYTES * 8u; bit++) {
        f->footer[bit / 8] ^= (uint8_t)(1u << bit % 8);
        f->trailer.footer_digest = sl_digest(SEED, f->footer, FOOTER_BYTES);
        sl_trailer_encode(&f->trailer, f->bytes);
        assert_int_not_equal(decode_code(f), 0);
        f->footer[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

/* Likewise the trailer: refused, or read as exactly what stands there and differs in what only the
 * caller can judge. */
static void trailer__any_bit_flipped_and_digest_made_anew__refused_or_told(void **state)
{
    struct fixture *f = *state;
    unsigned told = 0;
    for (size_t bit = 0; bit < (SL_OBJECT_TRAILER_BYTES - 16) * 8u; bit++) {
        uint8_t again[SL_OBJECT_TRAILER_BYTES];
        struct sl_trailer trailer;
        struct sl_block table[BLOCKS];
        f->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        struct sl_id digest = sl_digest(0, f->bytes, sizeof f->bytes - 16);
        memcpy(f->bytes + sizeof f->bytes - 16, &digest, 16);
        if (decode(f, &trailer, table) == 0) {
            told++;
            sl_trailer_encode(&trailer, again);
            assert_memory_equal(again, f->bytes, sizeof again);
            assert_true(strcmp(trailer.name, f->trailer.name) != 0 ||
                        strcmp(trailer.creator, f->trailer.creator) != 0 ||
                        !sl_id_equal(&trailer.repository, &f->trailer.repository) ||
                        trailer.created_ns != f->trailer.created_ns ||
                        trailer.index_bytes != f->trailer.index_bytes);
        }
        f->bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    /* repository, created, index (21 bits below the length), creator and name (but not to NUL) */
    assert_in_range(told, 128, 128 + 64 + 22 + (18 + 64) * 8);
}

/* --- each rule by itself --------------------------------------------------------------------- */

static void expect(struct fixture *f, int code, const char *words)
{
    struct sl_trailer trailer;
    struct sl_block table[BLOCKS];
    struct sl_err err = {0};
    encode(f);
    int rc = sl_trailer_decode(f->bytes, FILE_BYTES, &trailer, &err);
    if (!rc)
        rc = sl_footer_decode(&trailer, SEED, f->footer, table, &err);
    if (rc != code || !strstr(err.msg, words))
        fail_msg("expected %d \"%s\", got %d \"%s\"", code, words, rc, err.msg);
}

static void footer__bad_entries__refused_with_reason(void **state)
{
    struct fixture *f = *state, good = *f;
#define CASE(change, code, words)                                                                  \
    do {                                                                                           \
        *f = good;                                                                                 \
        change;                                                                                    \
        expect(f, code, words);                                                                    \
    } while (0)
    CASE(f->table[2].plain_bytes++, SL_ERR_FORMAT, "block 2 of the footer has a length");
    CASE(f->table[0].flags = 2, SL_ERR_FORMAT, "unknown flags");
    CASE(f->table[0].codec = 3, SL_ERR_FORMAT, "unknown codec");
    CASE(f->table[0].codec = SL_CODEC_ZSTD, SL_ERR_FORMAT, "has no such blocks");
    CASE(f->table[0].key_id = 1, SL_ERR_UNSUPPORTED, "encrypted");
    CASE(f->table[0].tag.bytes[9] = 1, SL_ERR_FORMAT, "has a tag but no key");
    CASE(f->table[0].stored_digest.bytes[0] ^= 1, SL_ERR_FORMAT, "two digests");
    CASE(f->table[0].stored_bytes--, SL_ERR_FORMAT, "two lengths");
    CASE(f->table[2].offset -= 4096, SL_ERR_FORMAT, "out of its place");
    CASE(f->table[0].offset = f->table[2].offset, SL_ERR_FORMAT, "out of its place");
    CASE(f->table[1].offset = SL_BLOCK_BYTES, SL_ERR_FORMAT, "a hole that has a place");
    CASE(f->table[1].stored_bytes = 1, SL_ERR_FORMAT, "a hole that has a place");
    CASE(f->table[1].plain_digest = f->table[1].stored_digest = f->table[0].plain_digest,
         SL_ERR_FORMAT, "without the digest of zeros");
    CASE(f->table[0].flags = SL_BLOCK_ZERO, SL_ERR_FORMAT, "without the digest of zeros");
    CASE((void)0, 0, "");
}

static void trailer__bad_geometry__refused_with_reason(void **state)
{
    struct fixture *f = *state, good = *f;
    CASE(f->trailer.version = 2, SL_ERR_FORMAT, "no block is compressed");
    CASE(f->trailer.version = 3, SL_ERR_VERSION, "format version 3");
    CASE(f->trailer.version = 0, SL_ERR_VERSION, "format version 0");
    CASE(f->trailer.blocks = 2, SL_ERR_FORMAT, "number of blocks");
    CASE(f->trailer.length = UINT64_MAX, SL_ERR_FORMAT, "number of blocks");
    CASE(f->trailer.length = (1ull << 40) + 1, SL_ERR_FORMAT, "number of blocks");
    CASE(f->trailer.index_bytes = LENGTH + 1, SL_ERR_FORMAT, "index is longer");
    CASE(f->trailer.footer_bytes -= 72, SL_ERR_FORMAT, "footer has a wrong size");
    CASE(f->trailer.footer_offset += 1, SL_ERR_FORMAT, "footer has a wrong place");
    CASE(f->trailer.footer_offset += 4096, SL_ERR_FORMAT, "footer has a wrong place");
    CASE(f->trailer.footer_offset = UINT64_MAX - 4095, SL_ERR_FORMAT, "footer has a wrong place");
    CASE(f->trailer.footer_offset -= 4096, SL_ERR_FORMAT, "file has a wrong length");
    CASE(f->trailer.name[0] = '\0', SL_ERR_FORMAT, "name or creator");
    CASE(f->trailer.length -= 1, SL_ERR_FORMAT, "block 2 of the footer has a length");
    CASE((void)0, 0, "");
#undef CASE
}

/* Version 2: block 0 packed to 5000 bytes, a hole, and the last block plain. */
static void make_packed(struct fixture *f)
{
    f->table[0].codec = SL_CODEC_ZSTD;
    f->table[0].stored_bytes = 5000;
    f->table[0].stored_digest.bytes[0] ^= 1;
    f->table[2].offset = 8192 + SL_BLOCK_BYTES;
    f->trailer.version = SL_OBJECT_VERSION_PACKED;
    f->trailer.footer_offset = 8192 + SL_BLOCK_BYTES + 4096;
}

static int decode_packed(struct fixture *f, struct sl_err *err)
{
    struct sl_trailer trailer;
    struct sl_block table[BLOCKS];
    encode(f);
    int rc = sl_trailer_decode(
        f->bytes, f->trailer.footer_offset + FOOTER_BYTES + SL_OBJECT_TRAILER_BYTES, &trailer, err);
    if (!rc)
        rc = sl_footer_decode(&trailer, SEED, f->footer, table, err);
    if (!rc)
        assert_memory_equal(&table[0].stored_digest, &f->table[0].stored_digest, 16);
    return rc;
}

static void footer__packed_blocks__follow_one_another(void **state)
{
    struct fixture *f = *state, good;
    struct sl_err err = {0};
    make_packed(f);
    good = *f;
    assert_int_equal(decode_packed(f, &err), 0);
#define PACKED(change, words)                                                                      \
    do {                                                                                           \
        *f = good;                                                                                 \
        change;                                                                                    \
        assert_int_equal(decode_packed(f, &err), SL_ERR_FORMAT);                                   \
        assert_non_null(strstr(err.msg, words));                                                   \
    } while (0)
    PACKED(f->table[2].offset = 2 * SL_BLOCK_BYTES, "out of its place");
    PACKED(f->table[2].offset += 4096, "out of its place");
    PACKED(f->table[0].offset = 4096, "out of its place");
    PACKED(f->table[0].stored_bytes = 0, "a length that it cannot have");
    PACKED(f->table[0].stored_bytes = SL_BLOCK_BYTES, "a length that it cannot have");
    PACKED(f->table[0].stored_bytes = UINT32_MAX, "a length that it cannot have");
    PACKED(f->table[1].codec = SL_CODEC_LZ4, "a hole, but compressed");
    PACKED(f->table[0].codec = 3, "unknown codec");
    PACKED(f->trailer.footer_offset += 4096, "does not follow the content");
    PACKED(f->trailer.footer_offset -= 4096, "does not follow the content");
    PACKED(f->trailer.version = SL_OBJECT_VERSION, "has no such blocks");
#undef PACKED
}

/* The footer one page too early in a file that is one page shorter: only the footer sees it. */
static void footer__not_after_the_content__refused(void **state)
{
    struct fixture *f = *state;
    struct sl_trailer trailer;
    struct sl_block table[BLOCKS];
    struct sl_err err = {0};
    f->trailer.footer_offset -= 4096;
    encode(f);
    assert_int_equal(sl_trailer_decode(f->bytes, FILE_BYTES - 4096, &trailer, &err), 0);
    assert_int_equal(sl_footer_decode(&trailer, SEED, f->footer, table, &err), SL_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "does not follow the content"));
}

static void trailer__wrong_file_length__refused(void **state)
{
    struct fixture *f = *state;
    struct sl_trailer trailer;
    static const uint64_t wrong[] = {
        0, 4096, FILE_BYTES - 4096, FILE_BYTES - 1, FILE_BYTES + 1, FILE_BYTES + 4096, UINT64_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(sl_trailer_decode(f->bytes, wrong[i], &trailer, NULL), SL_ERR_FORMAT);
}

static void trailer__not_an_object__told(void **state)
{
    struct fixture *f = *state;
    struct sl_trailer trailer = {.version = 77};
    struct sl_err err;
    memset(f->bytes, 0, sizeof f->bytes);
    assert_int_equal(sl_trailer_decode(f->bytes, FILE_BYTES, &trailer, &err), SL_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "ends in zeros"));
    memset(f->bytes, 'x', sizeof f->bytes);
    assert_int_equal(sl_trailer_decode(f->bytes, FILE_BYTES, &trailer, &err), SL_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "not an object of Sluice"));
    assert_int_equal(trailer.version, 77);
}

static void decode__without_err__same_codes(void **state)
{
    struct fixture *f = *state;
    struct sl_trailer trailer;
    struct sl_block table[BLOCKS];
    f->trailer.version = 9;
    encode(f);
    assert_int_equal(sl_trailer_decode(f->bytes, FILE_BYTES, &trailer, NULL), SL_ERR_VERSION);
    f->trailer.version = SL_OBJECT_VERSION;
    f->table[0].key_id = 1;
    encode(f);
    assert_int_equal(sl_trailer_decode(f->bytes, FILE_BYTES, &trailer, NULL), 0);
    assert_int_equal(sl_footer_decode(&trailer, SEED, f->footer, table, NULL), SL_ERR_UNSUPPORTED);
}

static void footer__foreign_seed__refused(void **state)
{
    struct fixture *f = *state;
    struct sl_block table[BLOCKS];
    assert_int_equal(sl_footer_decode(&f->trailer, SEED + 1, f->footer, table, NULL),
                     SL_ERR_CHECKSUM);
}

static void footer__no_memory__fails(void **state)
{
    struct fixture *f = *state;
    struct sl_block table[BLOCKS];
    struct sl_err err;
    sl_fault_set("alloc:ENOMEM");
    int rc = sl_footer_decode(&f->trailer, SEED, f->footer, table, &err);
    sl_fault_set(NULL);
    assert_int_equal(rc, SL_ERR_NO_MEMORY);
    assert_int_equal(err.code, SL_ERR_NO_MEMORY);
}

static void format__empty_content__is_a_trailer_alone(void **state)
{
    struct fixture *f = *state;
    struct sl_trailer trailer = {.version = SL_OBJECT_VERSION, .name = "repo.json"};
    trailer.footer_digest = sl_digest(SEED, NULL, 0);
    trailer.content_digest = sl_digest_content(SEED, NULL, 0);
    sl_trailer_encode(&trailer, f->bytes);
    sl_footer_encode(NULL, 0, f->footer);
    assert_int_equal(sl_trailer_decode(f->bytes, 4096, &f->trailer, NULL), 0);
    assert_int_equal(sl_footer_decode(&f->trailer, SEED, f->footer, f->table, NULL), 0);
}

static void format__longest_names(void **state)
{
    struct fixture *f = *state;
    memset(f->trailer.name, 'n', sizeof f->trailer.name - 1);
    memset(f->trailer.creator, 'c', sizeof f->trailer.creator - 1);
    encode(f);
    struct sl_trailer trailer;
    struct sl_block table[BLOCKS];
    assert_int_equal(decode(f, &trailer, table), 0);
    assert_string_equal(trailer.name, f->trailer.name);
    assert_string_equal(trailer.creator, f->trailer.creator);
}

static void blocks_of__borders(void **state)
{
    (void)state;
    assert_int_equal(sl_blocks_of(0), 0);
    assert_int_equal(sl_blocks_of(1), 1);
    assert_int_equal(sl_blocks_of(SL_BLOCK_BYTES), 1);
    assert_int_equal(sl_blocks_of(SL_BLOCK_BYTES + 1), 2);
    assert_int_equal(sl_blocks_of(1ull << 40), SL_OBJECT_BLOCKS_MAX);
    assert_int_equal(sl_blocks_of((1ull << 40) + 1), SL_OBJECT_BLOCKS_MAX + 1);
    assert_int_equal(sl_blocks_of(UINT64_MAX), SL_OBJECT_BLOCKS_MAX + 1);
    assert_int_equal(sl_block_length(0, 0), 0);
    assert_int_equal(sl_block_length(SL_BLOCK_BYTES, 0), SL_BLOCK_BYTES);
    assert_int_equal(sl_block_length(SL_BLOCK_BYTES, 1), 0);
    assert_int_equal(sl_block_length(SL_BLOCK_BYTES + 9, 1), 9);
    assert_int_equal(sl_block_length(UINT64_MAX, UINT32_MAX), SL_BLOCK_BYTES);
    assert_int_equal(sl_align_up(0), 0);
    assert_int_equal(sl_align_up(1), 4096);
    assert_int_equal(sl_align_up(4096), 4096);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(format__round_trip),
        TEST(format__bytes_are_those_of_the_specification),
        TEST(format__any_bit_flipped__refused),
        TEST(footer__any_bit_flipped_and_digest_made_anew__refused),
        TEST(trailer__any_bit_flipped_and_digest_made_anew__refused_or_told),
        TEST(footer__bad_entries__refused_with_reason),
        TEST(trailer__bad_geometry__refused_with_reason),
        TEST(footer__packed_blocks__follow_one_another),
        TEST(footer__not_after_the_content__refused),
        TEST(trailer__wrong_file_length__refused),
        TEST(trailer__not_an_object__told),
        TEST(decode__without_err__same_codes),
        TEST(footer__foreign_seed__refused),
        TEST(footer__no_memory__fails),
        TEST(format__empty_content__is_a_trailer_alone),
        TEST(format__longest_names),
        TEST(blocks_of__borders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
