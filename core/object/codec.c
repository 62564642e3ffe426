/* Packing and unpacking of single blocks by zstd and lz4. Nothing here decides which codec is used
 * (core/client) or how packed blocks lie in a file (format.c). */
#include "core/object/codec.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"

#include <lz4.h>
#include <lz4hc.h>
#include <string.h>
#include <zstd.h>

#define GAIN_PARTS 16u /* a block is packed when that saves one of so many parts */

struct sl_packer {
    enum sl_codec codec;
    int level;
    ZSTD_CCtx *zstd;
    void *lz4; /* state of LZ4_compress_…_extState */
};

struct sl_unpacker {
    ZSTD_DCtx *zstd;
};

static int no_memory(struct sl_err *err)
{
    return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for compression");
}

const char *sl_codec_name(enum sl_codec codec)
{
    static const char *const names[] = {
        [SL_CODEC_PLAIN] = "none", [SL_CODEC_ZSTD] = "zstd", [SL_CODEC_LZ4] = "lz4"};
    return (unsigned)codec < sizeof names / sizeof *names ? names[codec] : NULL;
}

int sl_codec_parse(const char *name, enum sl_codec *ret_codec)
{
    for (enum sl_codec codec = SL_CODEC_PLAIN; codec <= SL_CODEC_LZ4; codec++)
        if (strcmp(name, sl_codec_name(codec)) == 0) {
            *ret_codec = codec;
            return 0;
        }
    return SL_ERR_USAGE;
}

/* --- packing --------------------------------------------------------------------------------- */

static bool prepare_zstd(struct sl_packer *packer)
{
    packer->zstd = sl_fault("codec.new") ? NULL : ZSTD_createCCtx();
    return packer->zstd && !ZSTD_isError(ZSTD_CCtx_setParameter(
                               packer->zstd, ZSTD_c_compressionLevel, packer->level));
}

static bool prepare_lz4(struct sl_packer *packer)
{
    int bytes = packer->level == 1 ? LZ4_sizeofState() : LZ4_sizeofStateHC();
    packer->lz4 = sl_alloc((size_t)bytes);
    return packer->lz4 != NULL;
}

int sl_packer_new(enum sl_codec codec, int level, struct sl_packer **ret_packer, struct sl_err *err)
{
    int most = codec == SL_CODEC_ZSTD ? SL_CODEC_LEVEL_MAX_ZSTD : SL_CODEC_LEVEL_MAX_LZ4;
    struct sl_packer *packer = sl_calloc(1, sizeof *packer);
    if (!packer)
        return no_memory(err);
    packer->codec = codec;
    packer->level = level < 1 ? 1 : level > most ? most : level;
    bool ready = codec == SL_CODEC_ZSTD  ? prepare_zstd(packer)
                 : codec == SL_CODEC_LZ4 ? prepare_lz4(packer)
                                         : false;
    if (!ready) {
        sl_packer_free(packer);
        return no_memory(err);
    }
    *ret_packer = packer;
    return 0;
}

void sl_packer_free(struct sl_packer *packer)
{
    if (!packer)
        return;
    ZSTD_freeCCtx(packer->zstd);
    sl_free(packer->lz4);
    sl_free(packer);
}

/* The most that packed bytes may be, so that they are worth unpacking; 0: no length is. Blocks
 * begin on pages of the file, so less than a page saved is nothing saved. */
static size_t worth(size_t count)
{
    size_t most = count - count / GAIN_PARTS - 1;
    size_t pages = (size_t)sl_align_up(count);
    if (pages <= SL_OBJECT_ALIGN)
        return 0;
    return most < pages - SL_OBJECT_ALIGN ? most : pages - SL_OBJECT_ALIGN;
}

/* Both libraries give up as soon as `room` is full: what cannot be packed costs little. */
size_t sl_pack(struct sl_packer *packer, const void *from, size_t count, void *to)
{
    size_t room = worth(count);
    if (!room)
        return 0;
    if (packer->codec == SL_CODEC_ZSTD) {
        size_t packed = ZSTD_compress2(packer->zstd, to, room, from, count);
        return ZSTD_isError(packed) ? 0 : packed;
    }
    int packed = packer->level == 1
                     ? LZ4_compress_fast_extState(packer->lz4, from, to, (int)count, (int)room, 1)
                     : LZ4_compress_HC_extStateHC(packer->lz4, from, to, (int)count, (int)room,
                                                  packer->level);
    return packed > 0 ? (size_t)packed : 0;
}

/* --- unpacking ------------------------------------------------------------------------------- */

int sl_unpacker_new(struct sl_unpacker **ret_unpacker, struct sl_err *err)
{
    struct sl_unpacker *unpacker = sl_calloc(1, sizeof *unpacker);
    if (!unpacker)
        return no_memory(err);
    unpacker->zstd = sl_fault("codec.new") ? NULL : ZSTD_createDCtx();
    if (!unpacker->zstd) {
        sl_free(unpacker);
        return no_memory(err);
    }
    *ret_unpacker = unpacker;
    return 0;
}

void sl_unpacker_free(struct sl_unpacker *unpacker)
{
    if (!unpacker)
        return;
    ZSTD_freeDCtx(unpacker->zstd);
    sl_free(unpacker);
}

int sl_unpack(struct sl_unpacker *unpacker, uint8_t codec, const void *from, size_t stored,
              void *to, size_t plain)
{
    if (!stored || stored > SL_BLOCK_BYTES || !plain || plain > SL_BLOCK_BYTES)
        return SL_ERR_CHECKSUM;
    if (codec == SL_CODEC_ZSTD)
        return ZSTD_decompressDCtx(unpacker->zstd, to, plain, from, stored) == plain
                   ? 0
                   : SL_ERR_CHECKSUM;
    if (codec == SL_CODEC_LZ4)
        return LZ4_decompress_safe(from, to, (int)stored, (int)plain) == (int)plain
                   ? 0
                   : SL_ERR_CHECKSUM;
    return SL_ERR_UNSUPPORTED;
}
