/* Seals. The known answers were computed with Python's hmac and hashlib (HKDF-Expand written out)
 * and the `cryptography` package's AESGCM. */
#include "core/object/seal.h"

#include "core/base/fault.h"
#include "core/object/object.h"

#include <openssl/crypto.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 100u
#define EPOCH (UINT64_C(1) << 20)

static atomic_ulong openssl_allocations;

static void *counted_malloc(size_t bytes, const char *file, int line)
{
    (void)file, (void)line;
    openssl_allocations++;
    return malloc(bytes);
}

static void *counted_realloc(void *old, size_t bytes, const char *file, int line)
{
    (void)file, (void)line;
    openssl_allocations++;
    return realloc(old, bytes);
}

static void counted_free(void *memory, const char *file, int line)
{
    (void)file, (void)line;
    free(memory);
}

struct fixture {
    struct sl_sealer *out, *in; /* the same secret */
    struct sl_offer block;
    uint8_t plain[BYTES], wire[BYTES], back[BYTES];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    uint8_t secret[SL_SEAL_SECRET_BYTES];
    for (size_t i = 0; i < sizeof secret; i++)
        secret[i] = (uint8_t)i;
    assert_int_equal(sl_sealer_new(secret, &f->out, NULL), 0);
    assert_int_equal(sl_sealer_new(secret, &f->in, NULL), 0);
    f->block = (struct sl_offer){.object = 0x01020304,
                                 .block = 5,
                                 .slot = 9,
                                 .stored_bytes = BYTES,
                                 .plain_bytes = BYTES,
                                 .seal_number = 1};
    for (size_t i = 0; i < 16; i++)
        f->block.plain_digest.bytes[i] = (uint8_t)(0xa0 + i);
    for (size_t i = 0; i < BYTES; i++)
        f->plain[i] = (uint8_t)(i * 7 + 3);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    sl_sealer_free(f->out);
    sl_sealer_free(f->in);
    sl_sealer_free(NULL);
    free(f);
    return 0;
}

static void from_hex(const char *text, uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char pair[3] = {text[2 * i], text[2 * i + 1], 0};
        bytes[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
}

static void seal__known_answers(void **state)
{
    struct fixture *f = *state;
    static const struct {
        uint64_t number;
        const char *wire, *tag;
    } answers[] = {
        {1,
         "c2d540a29b4912307794c4ec28e85152284b39e47e1f1f3c4eee24dbf25116f78a7aa7326d2b5c15"
         "47f39e0ddef3037f06a484cc171879469894c3e9a120dbe5c5b1163494a59951dede01630417c2d7"
         "05ab93406b888ef731b603fd51d840239e883034",
         "5724de95d7f70749add3d7349ecdcdb5"},
        {1048583,
         "df63bdf3ce5f8fffc7c9de6f5de93dfa3f8500c17e57272374f7320adc5434caf724c85fc3ca8472"
         "410c91bc74394c5236d6b0837357eaf1f3c6113f6d4dd65f391901e45a48b1774ae87cf41616d735"
         "426d711699fd287bc4a0b218f3c99de4e8246ed5",
         "e5dbb5bbd7754557e5e4d3d0a524768a"},
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        uint8_t wire[BYTES], tag[16];
        from_hex(answers[i].wire, wire, sizeof wire);
        from_hex(answers[i].tag, tag, sizeof tag);
        f->block.seal_number = answers[i].number;
        assert_int_equal(sl_seal(f->out, &f->block, f->plain, f->wire, NULL), 0);
        assert_memory_equal(f->wire, wire, sizeof wire);
        assert_memory_equal(f->block.seal_tag.bytes, tag, sizeof tag);
        assert_int_equal(sl_unseal(f->in, &f->block, wire, f->back, NULL), 0);
        assert_memory_equal(f->back, f->plain, BYTES);
    }
}

/* Sealed as `f->block`; what does the receiver say to `told`? */
static void expect_broken(struct fixture *f, const struct sl_offer *told)
{
    static const uint8_t zeros[BYTES];
    struct sl_err err = {0};
    memset(f->back, 0xee, sizeof f->back);
    assert_int_equal(sl_unseal(f->in, told, f->wire, f->back, &err), SL_ERR_CRYPTO);
    assert_int_equal(err.code, SL_ERR_CRYPTO);
    assert_memory_equal(f->back, zeros, told->stored_bytes);
    /* and the sealer is none the worse */
    assert_int_equal(sl_unseal(f->in, &f->block, f->wire, f->back, NULL), 0);
    assert_memory_equal(f->back, f->plain, BYTES);
}

static void unseal__any_bit_of_tag_or_bytes__refused(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(sl_seal(f->out, &f->block, f->plain, f->wire, NULL), 0);
    for (size_t bit = 0; bit < 128; bit++) {
        struct sl_offer told = f->block;
        told.seal_tag.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        expect_broken(f, &told);
    }
    for (size_t bit = 0; bit < BYTES * 8; bit++) {
        f->wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(sl_unseal(f->in, &f->block, f->wire, f->back, NULL), SL_ERR_CRYPTO);
        f->wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void unseal__any_described_field_changed__refused(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(sl_seal(f->out, &f->block, f->plain, f->wire, NULL), 0);
    struct sl_offer told;
#define CASE(change)                                                                               \
    do {                                                                                           \
        told = f->block;                                                                           \
        change;                                                                                    \
        expect_broken(f, &told);                                                                   \
    } while (0)
    CASE(told.object++);
    CASE(told.block++);
    CASE(told.stored_bytes--);
    CASE(told.plain_bytes--);
    CASE(told.codec = 1);
    CASE(told.flags = SL_BLOCK_ZERO);
    CASE(told.seal_number++);
    CASE(told.seal_number += EPOCH);
    for (size_t i = 0; i < 16; i++)
        CASE(told.plain_digest.bytes[i] ^= 0x10);
#undef CASE
    /* the slot is where it lies, not what it is: a retried block may use another */
    told = f->block;
    told.slot++;
    assert_int_equal(sl_unseal(f->in, &told, f->wire, f->back, NULL), 0);
}

static void unseal__swapped_blocks__refused(void **state)
{
    struct fixture *f = *state;
    struct sl_offer second = f->block;
    uint8_t wire[BYTES];
    second.block++;
    second.seal_number++;
    assert_int_equal(sl_seal(f->out, &f->block, f->plain, f->wire, NULL), 0);
    assert_int_equal(sl_seal(f->out, &second, f->plain, wire, NULL), 0);
    assert_int_equal(sl_unseal(f->in, &second, f->wire, f->back, NULL), SL_ERR_CRYPTO);
    assert_int_equal(sl_unseal(f->in, &f->block, wire, f->back, NULL), SL_ERR_CRYPTO);
    /* in any order, though, each is itself */
    assert_int_equal(sl_unseal(f->in, &second, wire, f->back, NULL), 0);
    assert_int_equal(sl_unseal(f->in, &f->block, f->wire, f->back, NULL), 0);
}

static void unseal__other_secret__refused(void **state)
{
    struct fixture *f = *state;
    uint8_t secret[SL_SEAL_SECRET_BYTES] = {1};
    struct sl_sealer *other;
    assert_int_equal(sl_sealer_new(secret, &other, NULL), 0);
    assert_int_equal(sl_seal(f->out, &f->block, f->plain, f->wire, NULL), 0);
    assert_int_equal(sl_unseal(other, &f->block, f->wire, f->back, NULL), SL_ERR_CRYPTO);
    sl_sealer_free(other);
}

static void seal__in_place__same_bytes(void **state)
{
    struct fixture *f = *state;
    struct sl_offer again = f->block;
    assert_int_equal(sl_seal(f->out, &f->block, f->plain, f->wire, NULL), 0);
    memcpy(f->back, f->plain, BYTES);
    assert_int_equal(sl_seal(f->out, &again, f->back, f->back, NULL), 0);
    assert_memory_equal(f->back, f->wire, BYTES);
    assert_true(sl_id_equal(&again.seal_tag, &f->block.seal_tag));
    assert_int_equal(sl_unseal(f->in, &again, f->back, f->back, NULL), 0);
    assert_memory_equal(f->back, f->plain, BYTES);
    again.seal_tag.bytes[0] ^= 1;
    static const uint8_t zeros[BYTES];
    assert_int_equal(sl_unseal(f->in, &again, f->wire, f->wire, NULL), SL_ERR_CRYPTO);
    assert_memory_equal(f->wire, zeros, BYTES);
}

static void seal__number_or_length_out_of_range__refused(void **state)
{
    struct fixture *f = *state;
    struct sl_offer bad = f->block;
    bad.seal_number = 0;
    assert_int_equal(sl_seal(f->out, &bad, f->plain, f->wire, NULL), SL_ERR_CRYPTO);
    assert_int_equal(sl_unseal(f->in, &bad, f->wire, f->back, NULL), SL_ERR_CRYPTO);
    static const uint32_t lengths[] = {0, SL_BLOCK_BYTES + 1, INT32_MAX, UINT32_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        bad = f->block;
        bad.stored_bytes = lengths[i];
        assert_int_equal(sl_seal(f->out, &bad, f->plain, f->wire, NULL), SL_ERR_CRYPTO);
        assert_int_equal(sl_unseal(f->in, &bad, f->wire, f->back, NULL), SL_ERR_CRYPTO);
    }
}

/* Around a border numbers come out of order; every key must be that of its own number. */
static void seal__epoch_borders__each_with_its_own_key(void **state)
{
    struct fixture *f = *state;
    static const uint64_t numbers[] = {EPOCH - 1,     EPOCH, EPOCH - 2, EPOCH + 1,     3 * EPOCH,
                                       2 * EPOCH - 1, EPOCH, 5,         5 + 2 * EPOCH, UINT64_MAX};
    enum { N = sizeof numbers / sizeof *numbers };
    struct sl_offer blocks[N];
    uint8_t wires[N][BYTES];
    for (size_t i = 0; i < N; i++) {
        blocks[i] = f->block;
        blocks[i].seal_number = numbers[i];
        assert_int_equal(sl_seal(f->out, &blocks[i], f->plain, wires[i], NULL), 0);
        uint8_t secret[SL_SEAL_SECRET_BYTES];
        for (size_t k = 0; k < sizeof secret; k++)
            secret[k] = (uint8_t)k;
        struct sl_sealer *fresh; /* knows no other epoch */
        assert_int_equal(sl_sealer_new(secret, &fresh, NULL), 0);
        assert_int_equal(sl_unseal(fresh, &blocks[i], wires[i], f->back, NULL), 0);
        sl_sealer_free(fresh);
    }
    for (size_t i = N; i-- > 0;) {
        memset(f->back, 0, BYTES);
        assert_int_equal(sl_unseal(f->in, &blocks[i], wires[i], f->back, NULL), 0);
        assert_memory_equal(f->back, f->plain, BYTES);
    }
    assert_memory_not_equal(wires[0], wires[1], BYTES);
}

static void seal__full_block(void **state)
{
    struct fixture *f = *state;
    uint8_t *plain = malloc(SL_BLOCK_BYTES), *wire = malloc(SL_BLOCK_BYTES);
    for (size_t i = 0; i < SL_BLOCK_BYTES; i++)
        plain[i] = (uint8_t)(i >> 3);
    f->block.stored_bytes = f->block.plain_bytes = SL_BLOCK_BYTES;
    assert_int_equal(sl_seal(f->out, &f->block, plain, wire, NULL), 0);
    assert_memory_not_equal(plain, wire, SL_BLOCK_BYTES);
    assert_int_equal(sl_unseal(f->in, &f->block, wire, wire, NULL), 0);
    assert_memory_equal(plain, wire, SL_BLOCK_BYTES);
    free(plain);
    free(wire);
}

static void seal__after_the_first_block__allocates_nothing(void **state)
{
    struct fixture *f = *state;
    unsigned long before = 0;
    for (uint64_t i = 0; i < 200; i++) {
        if (i == 2) /* one block of each epoch has passed */
            before = openssl_allocations;
        f->block.seal_number = i % 2 * EPOCH + i + 1;
        assert_int_equal(sl_seal(f->out, &f->block, f->plain, f->wire, NULL), 0);
        assert_int_equal(sl_unseal(f->in, &f->block, f->wire, f->back, NULL), 0);
    }
    assert_true(before > 0);
    assert_int_equal(openssl_allocations, before);
}

static void sealer__each_fault__clean_failure(void **state)
{
    struct fixture *f = *state;
    uint8_t secret[SL_SEAL_SECRET_BYTES] = {1};
    struct sl_sealer *sealer = NULL;
    struct sl_err err = {0};
    sl_fault_set("alloc:ENOMEM");
    assert_int_equal(sl_sealer_new(secret, &sealer, &err), SL_ERR_NO_MEMORY);
    sl_fault_set("seal.new:EIO");
    assert_int_equal(sl_sealer_new(secret, &sealer, &err), SL_ERR_CRYPTO);
    assert_null(sealer);
    sl_fault_set("seal.key:EIO@1,seal.key:EIO@3");
    assert_int_equal(sl_seal(f->out, &f->block, f->plain, f->wire, &err), SL_ERR_CRYPTO);
    assert_int_equal(sl_seal(f->out, &f->block, f->plain, f->wire, &err), 0);
    memset(f->back, 0xee, BYTES);
    static const uint8_t zeros[BYTES];
    assert_int_equal(sl_unseal(f->in, &f->block, f->wire, f->back, &err), SL_ERR_CRYPTO);
    assert_memory_equal(f->back, zeros, BYTES);
    assert_int_equal(sl_unseal(f->in, &f->block, f->wire, f->back, &err), 0);
    sl_fault_set(NULL);
}

int main(void)
{
    /* before OpenSSL allocates anything (CRYPTO_set_mem_functions(3)) */
    if (!CRYPTO_set_mem_functions(counted_malloc, counted_realloc, counted_free))
        return 1;
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(seal__known_answers),
        TEST(unseal__any_bit_of_tag_or_bytes__refused),
        TEST(unseal__any_described_field_changed__refused),
        TEST(unseal__swapped_blocks__refused),
        TEST(unseal__other_secret__refused),
        TEST(seal__in_place__same_bytes),
        TEST(seal__number_or_length_out_of_range__refused),
        TEST(seal__epoch_borders__each_with_its_own_key),
        TEST(seal__full_block),
        TEST(seal__after_the_first_block__allocates_nothing),
        TEST(sealer__each_fault__clean_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
