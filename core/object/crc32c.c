/* CRC-32C (Castagnoli, RFC 3720 appendix B.4): PostgreSQL's manifest checksum, and the joining of
 * the CRCs of pieces. PostgreSQL's pg_crc32c.h: INIT_CRC32C is 0xFFFFFFFF, FIN_CRC32C xors with
 * the same; isa-l's crc32_iscsi does neither, so both are done here. Not used for blocks. */
#include "core/object/object.h"

#include <isa-l.h>

#define PART_MAX (1u << 30) /* isa-l counts in int */

uint32_t sl_crc32c(uint32_t crc, const void *bytes, size_t count)
{
    union {
        const uint8_t *in;
        unsigned char *out; /* isa-l lacks the const, but only reads */
    } at = {.in = bytes};
    crc = ~crc;
    while (count) {
        size_t part = count < PART_MAX ? count : PART_MAX;
        crc = crc32_iscsi(at.out, (int)part, crc);
        at.in += part;
        count -= part;
    }
    return ~crc;
}

/* Polynomials over GF(2) modulo the CRC's, bit-reversed: bit 31 is the coefficient of x^0. */
#define POLYNOMIAL 0x82f63b78u
#define X_TO_THE_0 0x80000000u
#define X_TO_THE_8 0x00800000u

static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (uint32_t bit = X_TO_THE_0; bit; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = b & 1 ? (b >> 1) ^ POLYNOMIAL : b >> 1; /* times x */
    }
    return product;
}

uint32_t sl_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t b_bytes)
{
    /* crc(A‖B) = crc(A) · x^(8·bytes of B) + crc(B); initial and final inversions cancel out
     * (zlib's crc32_combine rests on the same). */
    uint32_t shift = X_TO_THE_0, square = X_TO_THE_8;
    for (uint64_t left = b_bytes; left; left >>= 1) {
        if (left & 1)
            shift = multiply(shift, square);
        square = multiply(square, square);
    }
    return multiply(shift, crc_a) ^ crc_b;
}
