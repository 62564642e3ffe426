/* Publication: the one place where objects get their names, and where it is decided what a name
 * that is taken means. How files become durable is the store's business; that nothing is answered
 * before it is, is ours. */
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/repo/repo_internal.h"

#include <inttypes.h>
#include <string.h>

/* repo.json may have been linked by another process that has not synced it yet. Objects that
 * outlived it in a power cut could not be read: so before the first of ours is named, it is
 * durable. */
int sl_repo_settle(struct sl_repo *repo, struct sl_err *err)
{
    if (__atomic_load_n(&repo->settled, __ATOMIC_ACQUIRE))
        return 0;
    int rc = repo->store->ops->settle(repo->store, SL_REPO_FILE, err);
    if (rc == 0)
        __atomic_store_n(&repo->settled, true, __ATOMIC_RELEASE);
    return rc;
}

static int different(const struct sl_trailer *mine, const struct sl_trailer *theirs,
                     struct sl_err *err)
{
    char first[SL_ID_TEXT], second[SL_ID_TEXT], when[40];
    sl_err_set(err, SL_ERR_EXISTS,
               "\"%s\" exists with different content: stored is %s, %" PRIu64
               " bytes, by \"%s\" at %s; offered was %s, %" PRIu64 " bytes",
               mine->name, sl_id_text(&theirs->content_digest, first), theirs->length,
               theirs->creator, sl_wall_text(theirs->created_ns, when, sizeof when),
               sl_id_text(&mine->content_digest, second), mine->length);
    sl_err_hint(err, "another writer uses this stanza under the same names, or the source changed "
                     "after it was stored: find out which before removing either");
    return SL_ERR_EXISTS;
}

/* The whole of what is there: saying "identical" lets a client delete its copy, so a rotten one
 * must not pass. This happens only when something is stored a second time. */
static int check_whole(struct sl_object *existing, struct sl_err *err)
{
    void *buffer = sl_pages_alloc(SL_BLOCK_BYTES);
    if (!buffer)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory to compare an object");
    int rc = sl_object_check(existing, buffer, NULL, NULL, err);
    sl_pages_free(buffer, SL_BLOCK_BYTES);
    return rc;
}

static int compare(struct sl_repo *repo, const struct sl_trailer *mine, struct sl_err *err)
{
    struct sl_object *existing;
    int rc = sl_object_open(repo, mine->name, &existing, err);
    if (rc == SL_ERR_NOT_FOUND)
        return sl_err_set(err, SL_ERR_BUSY, "\"%s\" was removed while it was stored again",
                          mine->name);
    if (rc == 0) {
        const struct sl_trailer *theirs = &existing->trailer;
        if (theirs->length != mine->length ||
            !sl_id_equal(&theirs->content_digest, &mine->content_digest))
            rc = different(mine, theirs, err);
        else
            rc = check_whole(existing, err);
        sl_object_close(existing);
    }
    if (rc != SL_ERR_EXISTS && sl_code_is_damage(rc)) {
        sl_err_prefix(err, "the name is taken by an object that is damaged or foreign");
        sl_err_hint(err, "it is never overwritten: move \"%s\" out of the repository by hand",
                    mine->name);
    }
    return rc;
}

/* What the store answered for one file. */
static int conclude(struct sl_repo *repo, struct sl_repo_publish *item,
                    const struct sl_publish *stored)
{
    const char *name = item->draft->trailer.name;
    int rc;
    switch (stored->result) {
    case SL_PUBLISH_CREATED:
        item->outcome = SL_STORED_CREATED;
        return 0;
    case SL_PUBLISH_TAKEN:
        rc = compare(repo, &item->draft->trailer, &item->err);
        if (rc == 0) /* whoever linked it may not have synced it yet */
            rc = repo->store->ops->settle(repo->store, name, &item->err);
        item->outcome = SL_STORED_IDENTICAL;
        return rc;
    default:
        if (stored->err.code)
            return sl_err_copy(&item->err, &stored->err);
        return sl_err_set(&item->err, SL_ERR_WRITE, "\"%s\" could not be published", name);
    }
}

void sl_repo_publish(struct sl_repo *repo, struct sl_repo_publish *batch, size_t count)
{
    struct sl_publish *files = sl_calloc(count, sizeof *files);
    size_t *owner = sl_calloc(count, sizeof *owner), ready = 0;
    for (size_t i = 0; i < count; i++) {
        struct sl_repo_publish *item = &batch[i];
        item->err = (struct sl_err){0};
        item->digest = item->draft->trailer.content_digest;
        item->code = files && owner ? sl_repo_settle(repo, &item->err)
                                    : sl_err_set(&item->err, SL_ERR_NO_MEMORY,
                                                 "out of memory to publish %zu objects", count);
        if (item->code == 0)
            item->code = sl_draft_write_tail(item->draft, &item->err);
        if (item->code)
            continue;
        files[ready] =
            (struct sl_publish){.file = item->draft->file, .name = item->draft->trailer.name};
        owner[ready++] = i;
    }
    if (ready)
        repo->store->ops->publish(repo->store, files, ready);
    for (size_t k = 0; k < ready; k++) {
        struct sl_repo_publish *item = &batch[owner[k]];
        item->code = conclude(repo, item, &files[k]);
    }
    sl_free(files);
    sl_free(owner);
}

/* --- small objects --------------------------------------------------------------------------- */

/* One block of a small object, by way of an aligned buffer; its leaf goes to `leaf`. */
static int put_block(struct sl_object_draft *draft, uint32_t index, const uint8_t *bytes,
                     uint32_t count, uint8_t *buffer, struct sl_id *leaf, struct sl_err *err)
{
    const struct sl_repo *repo = draft->repo;
    bool zero = sl_bytes_are_zero(bytes, count);
    *leaf = sl_digest(repo->digest_seed, bytes, count);
    struct sl_offer block = {
        .block = index,
        .stored_bytes = zero ? 0 : count,
        .plain_bytes = count,
        .flags = zero ? SL_BLOCK_ZERO : 0,
        .plain_digest = *leaf,
        .stored_digest = *leaf,
    };
    uint64_t offset;
    int rc = sl_draft_block(draft, &block, &offset, err);
    if (rc || zero)
        return rc;
    memcpy(buffer, bytes, count);
    memset(buffer + count, 0, sl_align_up(count) - count);
    return repo->store->ops->write(draft->file, buffer, sl_align_up(count), offset, err);
}

static int put_content(struct sl_object_draft *draft, const uint8_t *bytes, size_t count,
                       struct sl_id *leaves, uint8_t *buffer, struct sl_err *err)
{
    uint32_t blocks = sl_blocks_of(count);
    for (uint32_t i = 0; i < blocks; i++) {
        int rc = put_block(draft, i, bytes + (size_t)i * SL_BLOCK_BYTES, sl_block_length(count, i),
                           buffer, &leaves[i], err);
        if (rc)
            return rc;
    }
    struct sl_id digest = sl_digest_content(draft->repo->digest_seed, leaves, blocks);
    return sl_draft_finish(draft, count, 0, &digest, err);
}

int sl_repo_put(struct sl_repo *repo, const char *full_name, const void *bytes, size_t count,
                const char *creator, enum sl_outcome *ret_outcome, struct sl_err *err)
{
    struct sl_object_draft *draft;
    int rc = sl_draft_new(repo, full_name, count, creator, &draft, err);
    if (rc)
        return rc;
    struct sl_id *leaves = sl_calloc(sl_blocks_of(count), sizeof *leaves);
    uint8_t *buffer = sl_pages_alloc(SL_BLOCK_BYTES);
    if (leaves && buffer)
        rc = put_content(draft, bytes, count, leaves, buffer, err);
    else
        rc = sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for an object of %zu bytes", count);
    if (rc == 0) {
        struct sl_repo_publish item = {.draft = draft};
        sl_repo_publish(repo, &item, 1);
        rc = item.code ? sl_err_copy(err, &item.err) : 0;
        if (rc == 0 && ret_outcome)
            *ret_outcome = item.outcome;
    }
    sl_free(leaves);
    sl_pages_free(buffer, SL_BLOCK_BYTES);
    sl_draft_free(draft);
    return rc;
}
