/* The bytes of an object's footer and trailer: encoding and decoding side by side, with every check
 * that needs no more than these bytes. docs/repository.md has the offsets. Not here: files, names'
 * rules, whether this is the object that was asked for (core/repo). */
#include "core/object/object.h"
#include "core/wire/cursor.h"

#include <inttypes.h>
#include <string.h>

#define MAGIC        "SLUICEOB"
#define MAGIC_BYTES  8
#define DIGEST_AT    (SL_OBJECT_TRAILER_BYTES - sizeof(struct sl_id))
#define TRAILER_SEED 0 /* the trailer must be readable by one who does not know the repository */
#define LENGTH_MAX   ((uint64_t)SL_OBJECT_BLOCKS_MAX * SL_BLOCK_BYTES)

static const struct sl_id no_id;

/* --- geometry -------------------------------------------------------------------------------- */

uint32_t sl_blocks_of(uint64_t length)
{
    uint64_t blocks = length / SL_BLOCK_BYTES + (length % SL_BLOCK_BYTES != 0);
    return blocks > SL_OBJECT_BLOCKS_MAX ? SL_OBJECT_BLOCKS_MAX + 1 : (uint32_t)blocks;
}

uint32_t sl_block_length(uint64_t length, uint32_t block)
{
    uint64_t start = (uint64_t)block * SL_BLOCK_BYTES;
    if (start >= length)
        return 0;
    return length - start < SL_BLOCK_BYTES ? (uint32_t)(length - start) : SL_BLOCK_BYTES;
}

uint64_t sl_align_up(uint64_t bytes)
{
    return (bytes + SL_OBJECT_ALIGN - 1) & ~(uint64_t)(SL_OBJECT_ALIGN - 1);
}

uint64_t sl_block_room(const struct sl_block *block)
{
    return sl_align_up(block->flags & SL_BLOCK_ZERO ? block->plain_bytes : block->stored_bytes);
}

/* --- footer ---------------------------------------------------------------------------------- */

static void write_block(struct sl_writer *w, const struct sl_block *block)
{
    sl_write_u64(w, block->offset);
    sl_write_u32(w, block->stored_bytes);
    sl_write_u32(w, block->plain_bytes);
    sl_write_u8(w, block->codec);
    sl_write_u8(w, block->flags);
    sl_write_u16(w, 0);
    sl_write_u32(w, block->key_id);
    sl_write_bytes(w, block->plain_digest.bytes, sizeof block->plain_digest.bytes);
    sl_write_bytes(w, block->stored_digest.bytes, sizeof block->stored_digest.bytes);
    sl_write_bytes(w, block->tag.bytes, sizeof block->tag.bytes);
}

void sl_footer_encode(const struct sl_block *table, uint32_t blocks, uint8_t *bytes)
{
    size_t used = (size_t)blocks * SL_BLOCK_ENTRY_BYTES, whole = sl_align_up(used);
    struct sl_writer w = sl_writer_on(bytes, used);
    for (uint32_t i = 0; i < blocks; i++)
        write_block(&w, &table[i]);
    if (whole > used)
        memset(bytes + used, 0, whole - used);
}

/* Returns what is wrong with the entry as bytes, or NULL. */
static const char *read_block(struct sl_reader *r, struct sl_block *block)
{
    block->offset = sl_read_u64(r);
    block->stored_bytes = sl_read_u32(r);
    block->plain_bytes = sl_read_u32(r);
    block->codec = sl_read_u8(r);
    block->flags = sl_read_u8(r);
    uint16_t reserved = sl_read_u16(r);
    block->key_id = sl_read_u32(r);
    sl_read_into(r, block->plain_digest.bytes, sizeof block->plain_digest.bytes);
    sl_read_into(r, block->stored_digest.bytes, sizeof block->stored_digest.bytes);
    sl_read_into(r, block->tag.bytes, sizeof block->tag.bytes);
    if (r->failed)
        return "is cut short";
    return reserved ? "has reserved bytes set" : NULL;
}

static const char *check_hole(const struct sl_block *block, uint64_t seed)
{
    struct sl_id zeros = sl_digest_zeros(seed, block->plain_bytes);
    if (block->codec != SL_CODEC_PLAIN)
        return "is a hole, but compressed";
    if (!sl_id_equal(&block->stored_digest, &block->plain_digest))
        return "is a hole but has two digests";
    if (!sl_id_equal(&block->plain_digest, &zeros))
        return "is a hole without the digest of zeros";
    return block->offset || block->stored_bytes ? "is a hole that has a place" : NULL;
}

/* Returns what is wrong with the place and lengths of an unencrypted entry, or NULL. `place` is
 * where it should begin, if it is no hole. */
static const char *check_block(const struct sl_block *block, const struct sl_trailer *trailer,
                               uint32_t index, uint64_t place, uint64_t seed)
{
    if (block->plain_bytes != sl_block_length(trailer->length, index))
        return "has a length that does not fit the content's";
    if (block->flags & (uint8_t)~SL_BLOCK_ZERO)
        return "has unknown flags";
    if (!sl_id_equal(&block->tag, &no_id))
        return "has a tag but no key";
    if (block->flags & SL_BLOCK_ZERO)
        return check_hole(block, seed);
    if (block->codec != SL_CODEC_PLAIN) {
        if (trailer->version < SL_OBJECT_VERSION_PACKED)
            return "is compressed, in a format version that has no such blocks";
        if (!block->stored_bytes || block->stored_bytes >= block->plain_bytes)
            return "is compressed to a length that it cannot have";
    } else if (block->stored_bytes != block->plain_bytes) {
        return "is stored plain but has two lengths";
    } else if (!sl_id_equal(&block->stored_digest, &block->plain_digest)) {
        return "is stored plain but has two digests";
    }
    return block->offset == place ? NULL : "is out of its place";
}

/* `*place` is where the block should begin, and then where the one behind it should. */
static int decode_block(struct sl_reader *r, const struct sl_trailer *trailer, uint64_t seed,
                        uint32_t index, uint64_t *place, struct sl_block *block, struct sl_err *err)
{
    const char *wrong = read_block(r, block);
    if (!wrong && block->codec > SL_CODEC_LZ4)
        wrong = "has an unknown codec";
    if (!wrong && block->key_id) {
        sl_err_set(err, SL_ERR_UNSUPPORTED,
                   "\"%s\": block %u is encrypted, which this version cannot read", trailer->name,
                   index);
        sl_err_hint(err, "a newer version of Sluice wrote it; use that one to read it");
        return SL_ERR_UNSUPPORTED;
    }
    if (!wrong)
        wrong = check_block(block, trailer, index, *place, seed);
    if (wrong)
        return sl_err_set(err, SL_ERR_FORMAT, "\"%s\": block %u of the footer %s", trailer->name,
                          index, wrong);
    *place += sl_block_room(block);
    return 0;
}

int sl_footer_decode(const struct sl_trailer *trailer, uint64_t seed, const uint8_t *bytes,
                     struct sl_block *table, struct sl_err *err)
{
    size_t used = trailer->footer_bytes, whole = sl_align_up(used);
    struct sl_id digest = sl_digest(seed, bytes, whole);
    if (!sl_id_equal(&digest, &trailer->footer_digest))
        return sl_err_set(err, SL_ERR_CHECKSUM, "\"%s\": footer is damaged", trailer->name);
    if (used != (size_t)trailer->blocks * SL_BLOCK_ENTRY_BYTES ||
        trailer->blocks != sl_blocks_of(trailer->length))
        return sl_err_set(err, SL_ERR_FORMAT, "\"%s\": footer has a wrong size", trailer->name);
    if (!sl_bytes_are_zero(bytes + used, whole - used))
        return sl_err_set(err, SL_ERR_FORMAT, "\"%s\": footer's padding is not zero",
                          trailer->name);
    struct sl_reader r = sl_reader_on(bytes, used);
    uint64_t place = 0;
    bool packed = false;
    for (uint32_t i = 0; i < trailer->blocks; i++) {
        int rc = decode_block(&r, trailer, seed, i, &place, &table[i], err);
        if (rc)
            return rc;
        packed |= table[i].codec != SL_CODEC_PLAIN;
    }
    if (packed != (trailer->version == SL_OBJECT_VERSION_PACKED))
        return sl_err_set(err, SL_ERR_FORMAT,
                          "\"%s\": no block is compressed in a version for that", trailer->name);
    if (trailer->footer_offset != place)
        return sl_err_set(err, SL_ERR_FORMAT, "\"%s\": footer does not follow the content",
                          trailer->name);
    int rc = sl_digest_table(seed, table, trailer->blocks, &digest, err);
    if (rc)
        return rc;
    if (!sl_id_equal(&digest, &trailer->content_digest))
        return sl_err_set(err, SL_ERR_CHECKSUM,
                          "\"%s\": content digest does not fit the blocks' digests", trailer->name);
    return 0;
}

/* --- trailer --------------------------------------------------------------------------------- */

void sl_trailer_encode(const struct sl_trailer *trailer, uint8_t bytes[SL_OBJECT_TRAILER_BYTES])
{
    memset(bytes, 0, SL_OBJECT_TRAILER_BYTES);
    struct sl_writer w = sl_writer_on(bytes, DIGEST_AT);
    sl_write_bytes(&w, MAGIC, MAGIC_BYTES);
    sl_write_u16(&w, trailer->version);
    sl_write_u16(&w, 0);
    sl_write_u32(&w, SL_BLOCK_BYTES);
    sl_write_bytes(&w, trailer->repository.bytes, sizeof trailer->repository.bytes);
    sl_write_u64(&w, trailer->length);
    sl_write_u64(&w, trailer->index_bytes);
    sl_write_u32(&w, trailer->blocks);
    sl_write_u32(&w, trailer->footer_bytes);
    sl_write_u64(&w, trailer->footer_offset);
    sl_write_bytes(&w, trailer->footer_digest.bytes, sizeof trailer->footer_digest.bytes);
    sl_write_bytes(&w, trailer->content_digest.bytes, sizeof trailer->content_digest.bytes);
    sl_write_u64(&w, trailer->created_ns);
    sl_write_string(&w, trailer->creator);
    sl_write_string(&w, trailer->name);
    struct sl_id digest = sl_digest(TRAILER_SEED, bytes, DIGEST_AT);
    memcpy(bytes + DIGEST_AT, digest.bytes, sizeof digest.bytes);
}

/* Magic, digest and version, in this order: in every version the magic begins and the digest ends
 * the trailer, so that damage is told apart from a newer format. */
static int check_envelope(const uint8_t *bytes, struct sl_reader *r, struct sl_trailer *t,
                          struct sl_err *err)
{
    const uint8_t *magic = sl_read_bytes(r, MAGIC_BYTES);
    if (!magic || memcmp(magic, MAGIC, MAGIC_BYTES) != 0) {
        if (sl_bytes_are_zero(bytes, SL_OBJECT_TRAILER_BYTES))
            return sl_err_set(err, SL_ERR_FORMAT, "trailer is missing: the file ends in zeros");
        return sl_err_set(err, SL_ERR_FORMAT, "not an object of Sluice, or its end is damaged");
    }
    struct sl_id digest = sl_digest(TRAILER_SEED, bytes, DIGEST_AT);
    if (memcmp(digest.bytes, bytes + DIGEST_AT, sizeof digest.bytes) != 0)
        return sl_err_set(err, SL_ERR_CHECKSUM, "trailer is damaged");
    t->version = sl_read_u16(r);
    if (t->version < SL_OBJECT_VERSION || t->version > SL_OBJECT_VERSION_PACKED) {
        sl_err_set(err, SL_ERR_VERSION, "object has format version %u, this Sluice reads up to %u",
                   t->version, SL_OBJECT_VERSION_PACKED);
        sl_err_hint(err, "a newer version of Sluice wrote it; use that one to read it");
        return SL_ERR_VERSION;
    }
    return 0;
}

/* Returns what does not fit, or NULL. */
static const char *check_geometry(const struct sl_trailer *t, uint64_t file_bytes)
{
    if (t->length > LENGTH_MAX || t->blocks != sl_blocks_of(t->length))
        return "number of blocks does not fit the content's length";
    if (t->index_bytes > t->length)
        return "index is longer than the content";
    if (t->footer_bytes != t->blocks * SL_BLOCK_ENTRY_BYTES)
        return "footer has a wrong size";
    if (t->footer_offset % SL_OBJECT_ALIGN || t->footer_offset > sl_align_up(t->length))
        return "footer has a wrong place";
    if (file_bytes != t->footer_offset + sl_align_up(t->footer_bytes) + SL_OBJECT_TRAILER_BYTES)
        return "file has a wrong length";
    return NULL;
}

int sl_trailer_decode(const uint8_t bytes[SL_OBJECT_TRAILER_BYTES], uint64_t file_bytes,
                      struct sl_trailer *ret_trailer, struct sl_err *err)
{
    struct sl_trailer t = {0};
    struct sl_reader r = sl_reader_on(bytes, DIGEST_AT);
    int rc = check_envelope(bytes, &r, &t, err);
    if (rc)
        return rc;
    uint16_t reserved = sl_read_u16(&r);
    uint32_t block_bytes = sl_read_u32(&r);
    sl_read_into(&r, t.repository.bytes, sizeof t.repository.bytes);
    t.length = sl_read_u64(&r);
    t.index_bytes = sl_read_u64(&r);
    t.blocks = sl_read_u32(&r);
    t.footer_bytes = sl_read_u32(&r);
    t.footer_offset = sl_read_u64(&r);
    sl_read_into(&r, t.footer_digest.bytes, sizeof t.footer_digest.bytes);
    sl_read_into(&r, t.content_digest.bytes, sizeof t.content_digest.bytes);
    t.created_ns = sl_read_u64(&r);
    sl_read_string(&r, t.creator, sizeof t.creator);
    sl_read_string(&r, t.name, sizeof t.name);
    const char *wrong = NULL;
    if (r.failed || !t.name[0])
        wrong = "name or creator cannot be read";
    else if (reserved || !sl_bytes_are_zero(r.at, sl_reader_left(&r)))
        wrong = "padding is not zero";
    else if (block_bytes != SL_BLOCK_BYTES)
        wrong = "blocks have an unknown size";
    else
        wrong = check_geometry(&t, file_bytes);
    if (wrong)
        return sl_err_set(err, SL_ERR_FORMAT, "trailer: %s", wrong);
    *ret_trailer = t;
    return 0;
}
