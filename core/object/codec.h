/* Codecs: how a block is packed for its way and its rest. The client packs (before it seals), the
 * target stores and sends what it was given, and the reading client unpacks; the target itself
 * unpacks only to verify. Each block is by itself: no dictionary, no state between blocks.
 *
 * What is unpacked comes from a repository or a peer: it can never be more than the block's plain
 * length, which the caller bounds by SL_BLOCK_BYTES, whatever the packed bytes claim.
 */
#ifndef SL_OBJECT_CODEC_H
#define SL_OBJECT_CODEC_H

#include "core/base/err.h"
#include "core/object/object.h"

#define SL_CODEC_LEVEL_DEFAULT  1
#define SL_CODEC_LEVEL_MAX_ZSTD 19
#define SL_CODEC_LEVEL_MAX_LZ4  12

/* One thread at a time. Owns what the libraries need: about 1.5 MB for zstd's level 1. */
struct sl_packer;
struct sl_unpacker;

/* "none", "zstd", "lz4"; NULL for any other number. */
const char *sl_codec_name(enum sl_codec codec);
int sl_codec_parse(const char *name, enum sl_codec *ret_codec); /* or SL_ERR_USAGE */

/* `codec` is not plain; `level` 1..SL_CODEC_LEVEL_MAX_…, what is above counts as the greatest.
 * Returns owned; freed with sl_packer_free (NULL ok). SL_ERR_NO_MEMORY. */
int sl_packer_new(enum sl_codec codec, int level, struct sl_packer **ret_packer,
                  struct sl_err *err);
void sl_packer_free(struct sl_packer *packer);
/* Packs `count` (1..SL_BLOCK_BYTES) bytes into `to`, which has room for as many. Returns the packed
 * length, or 0 when the block is to be stored plain: packing saves less than one sixteenth or not
 * one page of the file. Then `to` is undefined. Never fails: what cannot be packed is plain. */
size_t sl_pack(struct sl_packer *packer, const void *from, size_t count, void *to);

/* Any codec. Returns owned; freed with sl_unpacker_free (NULL ok). SL_ERR_NO_MEMORY. */
int sl_unpacker_new(struct sl_unpacker **ret_unpacker, struct sl_err *err);
void sl_unpacker_free(struct sl_unpacker *unpacker);
/* Unpacks `stored` bytes to exactly `plain` bytes (at most SL_BLOCK_BYTES) at `to`, and never
 * writes more. SL_ERR_CHECKSUM when they are not that (then `to` is undefined), SL_ERR_UNSUPPORTED
 * for a codec that is not known. Whether it is the right content only the leaf digest tells. */
int sl_unpack(struct sl_unpacker *unpacker, uint8_t codec, const void *from, size_t stored,
              void *to, size_t plain);

#endif
