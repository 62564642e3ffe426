/* The object format: how content lies in a file of a repository. docs/repository.md is the
 * specification, with offsets; this header is its implementation's interface. Pure: bytes to
 * bytes, no files.
 *
 *   content   blocks, each at the next multiple of 4096 behind the one before it; as long as all
 *             are stored plain, block i lies at i × 1 MiB and the file begins with the original
 *             bytes
 *   footer    a table of blocks (struct sl_block), starts on 4096
 *   trailer   the last 4096 bytes: what this is, whose it is, where the footer is, digests
 *
 * Padding is zero and checked. All-zero blocks are holes. The trailer carries the repository's
 * UUID and the object's own name, so that a foreign or renamed file is found out.
 */
#ifndef SL_OBJECT_OBJECT_H
#define SL_OBJECT_OBJECT_H

#include "core/base/err.h"
#include "core/wire/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_OBJECT_VERSION        1 /* every block plain */
#define SL_OBJECT_VERSION_PACKED 2 /* some blocks are compressed */
#define SL_OBJECT_ALIGN          4096u
#define SL_OBJECT_TRAILER_BYTES  4096u
#define SL_OBJECT_BLOCKS_MAX     (1u << 20) /* 1 TiB of content */
#define SL_FULL_NAME_MAX         (SL_STANZA_MAX + SL_NAME_MAX)

enum sl_codec { SL_CODEC_PLAIN = 0, SL_CODEC_ZSTD = 1, SL_CODEC_LZ4 = 2 };

/* One entry of the footer's table. */
struct sl_block {
    uint64_t offset;       /* in the file; a multiple of 4096 */
    uint32_t stored_bytes; /* 0 for a zero block */
    uint32_t plain_bytes;
    uint8_t codec, flags; /* SL_BLOCK_ZERO */
    uint32_t key_id;      /* 0: not encrypted */
    struct sl_id plain_digest, stored_digest, tag;
};
#define SL_BLOCK_ENTRY_BYTES 72

struct sl_trailer {
    uint16_t version;
    struct sl_id repository;
    char name[SL_FULL_NAME_MAX]; /* "<stanza>/<name>", or "repo.json" */
    uint64_t length;             /* plain bytes */
    uint64_t index_bytes;        /* of them, at the end, an index (packs) */
    uint32_t blocks;
    uint64_t footer_offset;
    uint32_t footer_bytes;      /* without padding */
    struct sl_id footer_digest; /* XXH3-128 over the footer with its padding */
    struct sl_id content_digest;
    uint64_t created_ns; /* wall clock of the target */
    char creator[64];    /* the client's certificate name, or "local:<user>@<host>" */
};

/* Digests. `seed` is the repository's (WELCOME). */
struct sl_id sl_digest(uint64_t seed, const void *bytes, size_t count); /* XXH3-128, canonical */
/* Content digest: over the leaf digests in order. n may be 0 (empty content). */
struct sl_id sl_digest_content(uint64_t seed, const struct sl_id *leaves, size_t n);
/* The same from a footer's table. Fails with SL_ERR_NO_MEMORY only. */
int sl_digest_table(uint64_t seed, const struct sl_block *table, uint32_t blocks,
                    struct sl_id *ret_digest, struct sl_err *err);
/* The leaf digest of `count` zero bytes (1..SL_BLOCK_BYTES); a full block's is cached per seed. */
struct sl_id sl_digest_zeros(uint64_t seed, size_t count);
/* True also for count 0. Near memory speed; leaves at the first nonzero stride. */
bool sl_bytes_are_zero(const void *bytes, size_t count);
bool sl_id_equal(const struct sl_id *a, const struct sl_id *b);
#define SL_ID_TEXT 33
const char *sl_id_text(const struct sl_id *id, char text[SL_ID_TEXT]); /* 32 hex digits */
int sl_id_parse(const char *text, struct sl_id *ret_id); /* exactly 32, or SL_ERR_FORMAT */
uint32_t sl_crc32c(uint32_t crc, const void *bytes, size_t count); /* start with 0; PostgreSQL's */
/* CRC-32C of A‖B from crc(A), crc(B) and B's length. */
uint32_t sl_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t b_bytes);

/* How many blocks content of `length` bytes has (more than SL_OBJECT_BLOCKS_MAX reads as that
 * + 1), and how long block i is (0 behind the end). */
uint32_t sl_blocks_of(uint64_t length);
uint32_t sl_block_length(uint64_t length, uint32_t block);
uint64_t sl_align_up(uint64_t bytes); /* to SL_OBJECT_ALIGN */
/* How much of the file a block takes: a hole as much as its plain bytes would. */
uint64_t sl_block_room(const struct sl_block *block);

/* Footer and trailer as they lie in the file. `bytes` of sl_align_up(blocks × entry size), and of
 * SL_OBJECT_TRAILER_BYTES; written with their padding. */
void sl_footer_encode(const struct sl_block *table, uint32_t blocks, uint8_t *bytes);
/* Needs a decoded trailer; `bytes` are the sl_align_up(trailer->footer_bytes) at footer_offset.
 * Checks digest, padding, every entry (lengths, place, flags, codec, digests of holes) and the
 * content digest. `table` has room for trailer->blocks; after a failure its content is undefined.
 * A zero block has offset, stored_bytes, codec, key_id and tag 0 and both digests that of zeros.
 * SL_ERR_FORMAT, SL_ERR_CHECKSUM, SL_ERR_NO_MEMORY, or SL_ERR_UNSUPPORTED for a block that is
 * encrypted (this version writes none). */
int sl_footer_decode(const struct sl_trailer *trailer, uint64_t seed, const uint8_t *bytes,
                     struct sl_block *table, struct sl_err *err);
void sl_trailer_encode(const struct sl_trailer *trailer, uint8_t bytes[SL_OBJECT_TRAILER_BYTES]);
/* Checks magic, own digest, version, padding and that the geometry fits `file_bytes`, the whole
 * file's length. Whether repository and name are those asked for is the caller's to compare.
 * SL_ERR_FORMAT, SL_ERR_CHECKSUM or SL_ERR_VERSION. */
int sl_trailer_decode(const uint8_t bytes[SL_OBJECT_TRAILER_BYTES], uint64_t file_bytes,
                      struct sl_trailer *trailer, struct sl_err *err);

#endif
