/* Digests, zero detection, CRC-32C. */
#include "core/object/object.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void digest__known_vectors(void **state)
{
    (void)state;
    char text[SL_ID_TEXT];
    /* `xxhsum -H2` prints the canonical, big-endian form: the empty input's is
     * 99aa06d3014798d86001c324468d497f (xxHash's own sanity tests, seed 0). */
    struct sl_id id = sl_digest(0, "", 0);
    assert_string_equal(sl_id_text(&id, text), "99aa06d3014798d86001c324468d497f");
    id = sl_digest(0, "sluice", 6);
    struct sl_id seeded = sl_digest(1, "sluice", 6);
    assert_string_equal(sl_id_text(&id, text), "adbab6796a85b84128d6b41d9413a19d");
    assert_string_equal(sl_id_text(&seeded, text), "990aaa2fe63d96199636b805b0cdb576");
}

/* The dispatched (wide) code must agree with the scalar one, from which these values are
 * (XXH_VECTOR=XXH_SCALAR), at the lengths where XXH3 changes its way. */
static void digest__long_inputs__known_vectors(void **state)
{
    (void)state;
    static uint8_t bytes[SL_BLOCK_BYTES];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 31 + (i >> 8));
    static const struct {
        size_t count;
        const char *text;
    } vectors[] = {
        {3, "635221976f62dec2f210b41c18895a9e"},       {8, "dde7123aad9c1d5be54425620dcb62d9"},
        {16, "67886944fde22f2476d57cd391342eb1"},      {17, "82eac678f0b0b8c7a31f3d534177c80e"},
        {128, "b3250dc46aedd301c1843e11eea58398"},     {129, "4f85b234b99c39c7be200a3a7162c92d"},
        {240, "0b576317fb876a3aae35027ee6d7307c"},     {241, "9e252c4b407dfabdd2135479b0547c8e"},
        {1024, "65bd0762e534b37381457fea095b5e64"},    {1025, "c848347e2c588ecdf3a3b8d1ed4c1277"},
        {8192, "5be219286bd39a4a613f2c1262b27080"},    {65537, "1e0e95c6c3ba0e8efa42b7d41579c872"},
        {1048576, "33039e95dbf6566e0dd2d9d487b0a713"},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        char text[SL_ID_TEXT];
        struct sl_id id = sl_digest(0x1122334455667788, bytes, vectors[i].count);
        assert_string_equal(sl_id_text(&id, text), vectors[i].text);
    }
}

static void digest_content__is_digest_of_leaves(void **state)
{
    (void)state;
    struct sl_id leaves[3] = {sl_digest(7, "a", 1), sl_digest(7, "b", 1), sl_digest(7, "c", 1)};
    struct sl_id expect = sl_digest(7, leaves, sizeof leaves);
    struct sl_id got = sl_digest_content(7, leaves, 3);
    assert_true(sl_id_equal(&expect, &got));
    struct sl_block table[3] = {{0}};
    for (int i = 0; i < 3; i++)
        table[i].plain_digest = leaves[i];
    assert_int_equal(sl_digest_table(7, table, 3, &got, NULL), 0);
    assert_true(sl_id_equal(&expect, &got));

    struct sl_id swapped[3] = {leaves[1], leaves[0], leaves[2]};
    got = sl_digest_content(7, swapped, 3);
    assert_false(sl_id_equal(&expect, &got));

    expect = sl_digest(7, NULL, 0);
    got = sl_digest_content(7, NULL, 0);
    assert_true(sl_id_equal(&expect, &got));
    assert_int_equal(sl_digest_table(7, NULL, 0, &got, NULL), 0);
    assert_true(sl_id_equal(&expect, &got));
}

static void digest_table__no_memory__fails(void **state)
{
    (void)state;
    struct sl_block table[1] = {{0}};
    struct sl_id got = {{42}};
    struct sl_err err = {0};
    sl_fault_set("alloc:ENOMEM");
    assert_int_equal(sl_digest_table(7, table, 1, &got, &err), SL_ERR_NO_MEMORY);
    sl_fault_set(NULL);
    assert_int_equal(err.code, SL_ERR_NO_MEMORY);
    assert_int_equal(got.bytes[0], 42);
}

static void digest_zeros__any_count_and_seed(void **state)
{
    (void)state;
    static const uint8_t zeros[SL_BLOCK_BYTES];
    static const size_t counts[] = {1, 2, 4095, 8192, SL_BLOCK_BYTES - 1, SL_BLOCK_BYTES};
    for (int round = 0; round < 2; round++) /* twice: the second from the cache */
        for (uint64_t seed = 0; seed < 3; seed++)
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                struct sl_id expect = sl_digest(seed, zeros, counts[i]);
                struct sl_id got = sl_digest_zeros(seed, counts[i]);
                assert_true(sl_id_equal(&expect, &got));
            }
}

static void bytes_are_zero__finds_each_single_byte(void **state)
{
    (void)state;
    /* exactly at the end of an allocation, so that ASan sees a read too far (of ours) */
    for (size_t count = 0; count <= 600; count++) {
        uint8_t *bytes = calloc(1, count + 1);
        assert_true(sl_bytes_are_zero(bytes, count));
        bytes[count] = 1;
        assert_true(sl_bytes_are_zero(bytes, count));
        for (size_t i = 0; i < count; i++) {
            bytes[i] = (uint8_t)(1u << (i % 8));
            assert_false(sl_bytes_are_zero(bytes, count));
            bytes[i] = 0;
        }
        free(bytes);
    }
}

static void bytes_are_zero__large_and_unaligned(void **state)
{
    (void)state;
    size_t count = 3 * SL_BLOCK_BYTES + 77;
    uint8_t *bytes = calloc(1, count + 64);
    for (size_t shift = 0; shift < 64; shift += 7) {
        assert_true(sl_bytes_are_zero(bytes + shift, count));
        static const size_t places[] = {0,
                                        1,
                                        63,
                                        SL_BLOCK_BYTES - 1,
                                        SL_BLOCK_BYTES,
                                        2 * SL_BLOCK_BYTES + 12345,
                                        3 * SL_BLOCK_BYTES + 76};
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            bytes[shift + places[i]] = 0x80;
            assert_false(sl_bytes_are_zero(bytes + shift, count));
            bytes[shift + places[i]] = 0;
        }
    }
    free(bytes);
}

static void id_parse__round_trip_and_refusals(void **state)
{
    (void)state;
    char text[SL_ID_TEXT];
    struct sl_id id = sl_digest(3, "x", 1), back;
    assert_int_equal(sl_id_parse(sl_id_text(&id, text), &back), 0);
    assert_true(sl_id_equal(&id, &back));
    assert_int_equal(sl_id_parse("ABCDEF0123456789abcdef0123456789", &back), 0);
    assert_int_equal(back.bytes[0], 0xab);
    assert_int_equal(back.bytes[15], 0x89);
    static const char *const bad[] = {"",
                                      "a",
                                      "abcdef0123456789abcdef012345678",
                                      "abcdef0123456789abcdef01234567890",
                                      "gbcdef0123456789abcdef0123456789",
                                      "abcdef0123456789abcdef012345678 "};
    id = back;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sl_id_parse(bad[i], &back), SL_ERR_FORMAT);
    assert_true(sl_id_equal(&id, &back));
}

/* Bit by bit, from the definition: polynomial 0x1EDC6F41 reflected, init and final xor ~0. */
static uint32_t slow_crc32c(const uint8_t *bytes, size_t count)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return crc ^ 0xffffffffu;
}

static void crc32c__known_vectors(void **state)
{
    (void)state;
    static const uint8_t zeros[32], ones[32] = {[0 ... 31] = 0xff};
    assert_int_equal(sl_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(sl_crc32c(0, "", 0), 0);
    assert_int_equal(sl_crc32c(0, zeros, 32), 0x8a9136aau); /* RFC 3720 B.4 */
    assert_int_equal(sl_crc32c(0, ones, 32), 0x62a8ab43u);  /* RFC 3720 B.4 */
}

static void crc32c__any_split__equals_whole(void **state)
{
    (void)state;
    uint8_t bytes[300];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * i + 5);
    uint32_t whole = slow_crc32c(bytes, sizeof bytes);
    assert_int_equal(sl_crc32c(0, bytes, sizeof bytes), whole);
    for (size_t cut = 0; cut <= sizeof bytes; cut++) {
        uint32_t a = sl_crc32c(0, bytes, cut);
        uint32_t b = sl_crc32c(0, bytes + cut, sizeof bytes - cut);
        assert_int_equal(sl_crc32c(a, bytes + cut, sizeof bytes - cut), whole);
        assert_int_equal(sl_crc32c_combine(a, b, sizeof bytes - cut), whole);
    }
}

static void crc32c_combine__long_and_empty(void **state)
{
    (void)state;
    size_t count = (5u << 20) + 3;
    uint8_t *bytes = calloc(1, count);
    memcpy(bytes, "head", 4);
    uint32_t a = sl_crc32c(0, bytes, 4), b = sl_crc32c(0, bytes + 4, count - 4);
    assert_int_equal(sl_crc32c_combine(a, b, count - 4), sl_crc32c(0, bytes, count));
    free(bytes);
    assert_int_equal(sl_crc32c_combine(a, 0, 0), a);
    assert_int_equal(sl_crc32c_combine(0, a, 4), a);
    /* associative, also where bytes are counted beyond 2^61 */
    uint64_t far = UINT64_C(1) << 62;
    uint32_t left = sl_crc32c_combine(sl_crc32c_combine(1, 2, far), 3, 5);
    uint32_t right = sl_crc32c_combine(1, sl_crc32c_combine(2, 3, 5), far + 5);
    assert_int_equal(left, right);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digest__known_vectors),
        cmocka_unit_test(digest__long_inputs__known_vectors),
        cmocka_unit_test(digest_content__is_digest_of_leaves),
        cmocka_unit_test(digest_table__no_memory__fails),
        cmocka_unit_test(digest_zeros__any_count_and_seed),
        cmocka_unit_test(bytes_are_zero__finds_each_single_byte),
        cmocka_unit_test(bytes_are_zero__large_and_unaligned),
        cmocka_unit_test(id_parse__round_trip_and_refusals),
        cmocka_unit_test(crc32c__known_vectors),
        cmocka_unit_test(crc32c__any_split__equals_whole),
        cmocka_unit_test(crc32c_combine__long_and_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
