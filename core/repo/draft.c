/* Drafts: objects under construction. The table of blocks is kept here and grows with them; the
 * blocks' bytes are written by the caller, to the places it is told. Naming is in publish.c. */
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/repo/repo_internal.h"

#include <stdio.h>
#include <string.h>

/* How far a block may be ahead of the number of blocks that have come. Slots are far fewer; without
 * a bound one block with a great index would cost a table for all before it. */
#define AHEAD_MAX 4096u
#define ROOM_MIN  16u

_Static_assert(SL_STORE_NAME_MAX <= SL_FULL_NAME_MAX, "a name that the store takes fits");

int sl_draft_new(struct sl_repo *repo, const char *full_name, uint64_t length_hint,
                 const char *creator, struct sl_object_draft **ret_draft, struct sl_err *err)
{
    struct sl_object_draft *draft = sl_calloc(1, sizeof *draft);
    if (!draft)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for an object");
    draft->repo = repo;
    draft->short_block = UINT32_MAX;
    int rc = sl_store_name_check(full_name, false, err);
    snprintf(draft->trailer.name, sizeof draft->trailer.name, "%s", full_name);
    snprintf(draft->trailer.creator, sizeof draft->trailer.creator, "%s",
             creator ? creator : "local");
    /* a hint is a hint: memory only for what it makes likely and bounded */
    uint32_t hint = sl_blocks_of(length_hint);
    draft->room = hint < ROOM_MIN ? ROOM_MIN : hint < AHEAD_MAX ? hint : AHEAD_MAX;
    draft->table = rc == 0 ? sl_calloc(draft->room, sizeof *draft->table) : NULL;
    if (rc == 0 && !draft->table)
        rc = sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for an object's table");
    if (rc == 0)
        rc = repo->store->ops->create(repo->store, full_name, length_hint, &draft->file, err);
    if (rc) {
        sl_draft_free(draft);
        return rc;
    }
    *ret_draft = draft;
    return 0;
}

void sl_draft_free(struct sl_object_draft *draft)
{
    if (!draft)
        return;
    if (draft->file)
        draft->repo->store->ops->close(draft->file);
    sl_free(draft->table);
    sl_free(draft);
}

struct sl_file *sl_draft_file(struct sl_object_draft *draft)
{
    return draft->file;
}

/* --- blocks ---------------------------------------------------------------------------------- */

static const char *zero_fault(const struct sl_object_draft *draft, const struct sl_offer *block)
{
    if (block->stored_bytes || block->codec != SL_CODEC_PLAIN)
        return "is zero, but stored";
    /* nothing is pulled whose digest could be checked, so the claim is checked here */
    struct sl_id zeros = sl_digest_zeros(draft->repo->digest_seed, block->plain_bytes);
    return sl_id_equal(&zeros, &block->plain_digest) ? NULL : "is zero, but its digest is not";
}

static const char *codec_fault(const struct sl_object_draft *draft, const struct sl_offer *block)
{
    if (block->codec > SL_CODEC_LZ4)
        return "has an unknown codec";
    if (block->codec == SL_CODEC_PLAIN) {
        if (block->stored_bytes != block->plain_bytes)
            return "is plain, but has two lengths";
        return sl_id_equal(&block->plain_digest, &block->stored_digest)
                   ? NULL
                   : "is plain, but has two digests";
    }
    if (!block->stored_bytes || block->stored_bytes >= block->plain_bytes)
        return "is compressed to an impossible length";
    /* its place is behind the one before it, whose length must be known */
    return draft->entered == draft->high ? NULL : "is compressed, but not the next";
}

/* What is wrong with the block by itself, or where it stands. */
static const char *block_fault(const struct sl_object_draft *draft, const struct sl_offer *block)
{
    uint32_t index = block->block;
    if (draft->finished)
        return "comes after the end";
    if (index >= SL_OBJECT_BLOCKS_MAX || index >= draft->entered + AHEAD_MAX)
        return "is too far ahead";
    if (index < draft->high && draft->table[index].plain_bytes)
        return "was there before";
    if (!block->plain_bytes || block->plain_bytes > SL_BLOCK_BYTES)
        return "has an impossible length";
    if (block->flags & ~SL_BLOCK_ZERO)
        return "has unknown flags";
    if (block->plain_bytes < SL_BLOCK_BYTES &&
        (draft->short_block != UINT32_MAX || index + 1 < draft->high))
        return "is short, but not the last";
    if (draft->short_block != UINT32_MAX && index > draft->short_block)
        return "comes after a short one";
    if (index != draft->high && (draft->packed || block->codec != SL_CODEC_PLAIN))
        return "is not the next, in an object with compressed blocks";
    if (block->flags & SL_BLOCK_ZERO)
        return zero_fault(draft, block);
    return codec_fault(draft, block);
}

static int grow_table(struct sl_object_draft *draft, uint32_t index, struct sl_err *err)
{
    if (index < draft->room)
        return 0;
    uint32_t room = draft->room;
    while (room <= index)
        room *= 2;
    struct sl_block *table = sl_realloc(draft->table, room * sizeof *table);
    if (!table)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a table of %u blocks", room);
    memset(table + draft->room, 0, (room - draft->room) * sizeof *table);
    draft->table = table;
    draft->room = room;
    return 0;
}

/* As long as all blocks are plain they lie at multiples of their size and may come in any order. */
static uint64_t place_of(const struct sl_object_draft *draft, uint32_t index)
{
    return index == draft->high ? draft->cursor : (uint64_t)index * SL_BLOCK_BYTES;
}

int sl_draft_block(struct sl_object_draft *draft, const struct sl_offer *block,
                   uint64_t *ret_offset, struct sl_err *err)
{
    const char *fault = block_fault(draft, block);
    if (fault)
        return sl_err_set(err, SL_ERR_PROTOCOL, "block %u of \"%s\" %s", block->block,
                          draft->trailer.name, fault);
    int rc = grow_table(draft, block->block, err);
    if (rc)
        return rc;
    bool zero = block->flags & SL_BLOCK_ZERO;
    struct sl_block *entry = &draft->table[block->block];
    *entry = (struct sl_block){
        .offset = zero ? 0 : place_of(draft, block->block),
        .stored_bytes = block->stored_bytes,
        .plain_bytes = block->plain_bytes,
        .codec = block->codec,
        .flags = block->flags,
        .plain_digest = block->plain_digest,
        .stored_digest = zero ? block->plain_digest : block->stored_digest,
    };
    draft->entered++;
    draft->packed |= block->codec != SL_CODEC_PLAIN;
    if (block->block >= draft->high) {
        draft->cursor = place_of(draft, block->block) + sl_block_room(entry);
        draft->high = block->block + 1;
    }
    if (block->plain_bytes < SL_BLOCK_BYTES)
        draft->short_block = block->block;
    *ret_offset = entry->offset;
    return 0;
}

/* --- the end --------------------------------------------------------------------------------- */

static int check_complete(const struct sl_object_draft *draft, uint64_t length,
                          uint64_t index_bytes, struct sl_err *err)
{
    const char *name = draft->trailer.name;
    uint32_t blocks = sl_blocks_of(length);
    if (draft->finished)
        return sl_err_set(err, SL_ERR_PROTOCOL, "\"%s\" was finished before", name);
    if (blocks > SL_OBJECT_BLOCKS_MAX)
        return sl_err_set(err, SL_ERR_LIMIT, "\"%s\" would be too long", name);
    if (draft->entered != draft->high || draft->high != blocks)
        return sl_err_set(err, SL_ERR_PROTOCOL, "\"%s\" has %u blocks of %u", name, draft->entered,
                          draft->high > blocks ? draft->high : blocks);
    if (blocks && draft->table[blocks - 1].plain_bytes != sl_block_length(length, blocks - 1))
        return sl_err_set(err, SL_ERR_PROTOCOL, "\"%s\" has not the length it should have", name);
    if (index_bytes > length)
        return sl_err_set(err, SL_ERR_PROTOCOL, "\"%s\" has an index longer than itself", name);
    return 0;
}

int sl_draft_finish(struct sl_object_draft *draft, uint64_t length, uint64_t index_bytes,
                    const struct sl_id *expect, struct sl_err *err)
{
    struct sl_trailer *trailer = &draft->trailer;
    struct sl_id digest;
    int rc = check_complete(draft, length, index_bytes, err);
    if (rc == 0)
        rc = sl_digest_table(draft->repo->digest_seed, draft->table, draft->high, &digest, err);
    if (rc)
        return rc;
    if (!sl_id_equal(&digest, expect)) {
        char found[SL_ID_TEXT], wanted[SL_ID_TEXT];
        return sl_err_set(err, SL_ERR_CHECKSUM, "the content of \"%s\" is %s, it should be %s",
                          trailer->name, sl_id_text(&digest, found), sl_id_text(expect, wanted));
    }
    trailer->version = draft->packed ? SL_OBJECT_VERSION_PACKED : SL_OBJECT_VERSION;
    trailer->repository = draft->repo->uuid;
    trailer->length = length;
    trailer->index_bytes = index_bytes;
    trailer->blocks = draft->high;
    trailer->footer_bytes = draft->high * SL_BLOCK_ENTRY_BYTES;
    trailer->footer_offset = draft->packed ? draft->cursor : sl_align_up(length);
    trailer->content_digest = digest;
    trailer->created_ns = sl_wall_ns();
    draft->finished = true;
    return 0;
}

int sl_draft_write_tail(struct sl_object_draft *draft, struct sl_err *err)
{
    const struct sl_store_ops *ops = draft->repo->store->ops;
    struct sl_trailer *trailer = &draft->trailer;
    if (!draft->finished)
        return sl_err_set(err, SL_ERR_INTERNAL, "\"%s\" is not finished", trailer->name);
    size_t footer = sl_align_up(trailer->footer_bytes), bytes = footer + SL_OBJECT_TRAILER_BYTES;
    uint8_t *tail = sl_pages_alloc(bytes);
    if (!tail)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for an object's footer");
    sl_footer_encode(draft->table, trailer->blocks, tail);
    trailer->footer_digest = sl_digest(draft->repo->digest_seed, tail, footer);
    sl_trailer_encode(trailer, tail + footer);
    /* the length first: it makes holes of zero blocks at the end, and drops what the store may have
     * reserved by the hint */
    int rc = ops->truncate(draft->file, trailer->footer_offset + bytes, err);
    if (rc == 0)
        rc = ops->write(draft->file, tail, bytes, trailer->footer_offset, err);
    sl_pages_free(tail, bytes);
    return rc;
}
