/* Reading objects: nothing leaves here that was not checked against the digests in the footer, and
 * the footer against the trailer. */
#include "core/base/alloc.h"
#include "core/object/codec.h"
#include "core/repo/repo_internal.h"

#include <inttypes.h>
#include <string.h>

bool sl_code_is_damage(int code)
{
    switch (code) {
    case SL_ERR_CHECKSUM:
    case SL_ERR_FORMAT:
    case SL_ERR_VERSION:
    case SL_ERR_UNSUPPORTED:
    case SL_ERR_REPO:
    case SL_ERR_OPEN:
    case SL_ERR_READ:
    case SL_ERR_DENIED:
    case SL_ERR_USAGE: /* a name that no object can have */
        return true;
    default:
        return false;
    }
}

static int name_failure(struct sl_repo *repo, const char *full_name, int rc, struct sl_err *err)
{
    sl_err_prefix(err, "object \"%s\" in %s", full_name, repo->store->label);
    return rc;
}

/* --- opening --------------------------------------------------------------------------------- */

static int read_trailer(struct sl_repo *repo, const char *full_name, struct sl_file *file,
                        uint64_t file_bytes, struct sl_trailer *trailer, struct sl_err *err)
{
    if (file_bytes < SL_OBJECT_TRAILER_BYTES)
        return sl_err_set(err, SL_ERR_FORMAT, "no object: it has only %" PRIu64 " bytes",
                          file_bytes);
    uint8_t *bytes = sl_pages_alloc(SL_OBJECT_TRAILER_BYTES);
    if (!bytes)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a trailer");
    int rc = repo->store->ops->read(file, bytes, SL_OBJECT_TRAILER_BYTES,
                                    file_bytes - SL_OBJECT_TRAILER_BYTES, err);
    if (rc == 0)
        rc = sl_trailer_decode(bytes, file_bytes, trailer, err);
    sl_pages_free(bytes, SL_OBJECT_TRAILER_BYTES);
    if (rc)
        return rc;
    if (!sl_id_equal(&trailer->repository, &repo->uuid)) {
        char theirs[SL_ID_TEXT], ours[SL_ID_TEXT];
        return sl_err_set(err, SL_ERR_REPO, "it belongs to repository %s, not to this one, %s",
                          sl_id_text(&trailer->repository, theirs), sl_id_text(&repo->uuid, ours));
    }
    if (strcmp(trailer->name, full_name) != 0)
        return sl_err_set(err, SL_ERR_REPO, "it was stored as \"%s\" and moved here",
                          trailer->name);
    return 0;
}

static int read_footer(struct sl_object *object, struct sl_err *err)
{
    const struct sl_trailer *trailer = &object->trailer;
    size_t bytes = sl_align_up(trailer->footer_bytes);
    object->table = sl_calloc(trailer->blocks, sizeof *object->table);
    uint8_t *footer = sl_pages_alloc(bytes ? bytes : 1);
    int rc = 0;
    if (!object->table || !footer)
        rc = sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a table of %u blocks",
                        trailer->blocks);
    if (rc == 0 && bytes)
        rc = object->repo->store->ops->read(object->file, footer, bytes, trailer->footer_offset,
                                            err);
    if (rc == 0)
        rc = sl_footer_decode(trailer, object->repo->digest_seed, footer, object->table, err);
    sl_pages_free(footer, bytes ? bytes : 1);
    return rc;
}

int sl_object_open(struct sl_repo *repo, const char *full_name, struct sl_object **ret_object,
                   struct sl_err *err)
{
    struct sl_object *object = sl_calloc(1, sizeof *object);
    if (!object)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for an object");
    object->repo = repo;
    int rc =
        repo->store->ops->open(repo->store, full_name, &object->file, &object->file_bytes, err);
    if (rc) { /* the store has named it */
        sl_free(object);
        return rc;
    }
    rc = read_trailer(repo, full_name, object->file, object->file_bytes, &object->trailer, err);
    if (rc == 0)
        rc = read_footer(object, err);
    if (rc) {
        sl_object_close(object);
        return name_failure(repo, full_name, rc, err);
    }
    *ret_object = object;
    return 0;
}

void sl_object_close(struct sl_object *object)
{
    if (!object)
        return;
    object->repo->store->ops->close(object->file);
    sl_unpacker_free(object->unpacker);
    sl_pages_free(object->packed, SL_BLOCK_BYTES);
    sl_free(object->table);
    sl_free(object);
}

int sl_object_stat(struct sl_repo *repo, const char *full_name, struct sl_trailer *ret_trailer,
                   struct sl_err *err)
{
    struct sl_file *file;
    struct sl_trailer trailer;
    uint64_t file_bytes;
    int rc = repo->store->ops->open(repo->store, full_name, &file, &file_bytes, err);
    if (rc)
        return rc;
    rc = read_trailer(repo, full_name, file, file_bytes, &trailer, err);
    repo->store->ops->close(file);
    if (rc)
        return name_failure(repo, full_name, rc, err);
    *ret_trailer = trailer;
    return 0;
}

/* --- blocks ---------------------------------------------------------------------------------- */

int sl_object_block_check(const struct sl_object *object, uint32_t index, const void *bytes,
                          struct sl_err *err)
{
    const struct sl_block *block = &object->table[index];
    struct sl_id digest = sl_digest(object->repo->digest_seed, bytes, block->stored_bytes);
    if (!sl_id_equal(&digest, &block->stored_digest))
        return sl_err_set(err, SL_ERR_CHECKSUM, "block %u is damaged", index);
    const uint8_t *padding = (const uint8_t *)bytes + block->stored_bytes;
    if (!sl_bytes_are_zero(padding, sl_align_up(block->stored_bytes) - block->stored_bytes))
        return sl_err_set(err, SL_ERR_FORMAT, "the padding of block %u is not zero", index);
    return 0;
}

static int prepare_unpacking(struct sl_object *object, struct sl_err *err)
{
    if (!object->packed)
        object->packed = sl_pages_alloc(SL_BLOCK_BYTES);
    if (!object->packed)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a compressed block");
    return object->unpacker ? 0 : sl_unpacker_new(&object->unpacker, err);
}

static int read_packed(struct sl_object *object, uint32_t index, void *to, struct sl_err *err)
{
    const struct sl_block *block = &object->table[index];
    int rc = prepare_unpacking(object, err);
    if (!rc)
        rc = object->repo->store->ops->read(object->file, object->packed,
                                            sl_align_up(block->stored_bytes), block->offset, err);
    if (!rc)
        rc = sl_object_block_check(object, index, object->packed, err);
    if (rc)
        return rc;
    rc = sl_unpack(object->unpacker, block->codec, object->packed, block->stored_bytes, to,
                   block->plain_bytes);
    struct sl_id digest = {0};
    if (!rc)
        digest = sl_digest(object->repo->digest_seed, to, block->plain_bytes);
    if (rc || !sl_id_equal(&digest, &block->plain_digest))
        return sl_err_set(err, rc ? rc : SL_ERR_CHECKSUM, "block %u does not unpack to what it was",
                          index);
    return 0;
}

static int read_block(struct sl_object *object, uint32_t index, void *to, struct sl_err *err)
{
    const struct sl_block *block = &object->table[index];
    if (block->flags & SL_BLOCK_ZERO) {
        memset(to, 0, block->plain_bytes);
        return 0;
    }
    if (block->codec != SL_CODEC_PLAIN)
        return read_packed(object, index, to, err);
    int rc = object->repo->store->ops->read(object->file, to, sl_align_up(block->stored_bytes),
                                            block->offset, err);
    return rc ? rc : sl_object_block_check(object, index, to, err);
}

int sl_object_block(struct sl_object *object, uint32_t index, void *to, size_t *ret_bytes,
                    struct sl_err *err)
{
    if (index >= object->trailer.blocks)
        return sl_err_set(err, SL_ERR_USAGE, "\"%s\" has no block %u", object->trailer.name, index);
    int rc = read_block(object, index, to, err);
    if (rc)
        return name_failure(object->repo, object->trailer.name, rc, err);
    *ret_bytes = object->table[index].plain_bytes;
    return 0;
}

/* --- whole objects --------------------------------------------------------------------------- */

/* A part of the file that no block lies in: a hole, or zeros on the disk. */
static int check_zeros(struct sl_object *object, uint64_t from, uint64_t to, void *buffer,
                       struct sl_err *err)
{
    const struct sl_store_ops *ops = object->repo->store->ops;
    if (from >= to)
        return 0;
    int rc = ops->has_data(object->file, from, to - from, err);
    while (rc > 0 && from < to) {
        size_t count = to - from < SL_BLOCK_BYTES ? (size_t)(to - from) : SL_BLOCK_BYTES;
        int failed = ops->read(object->file, buffer, count, from, err);
        if (failed)
            return failed;
        if (!sl_bytes_are_zero(buffer, count))
            return sl_err_set(err, SL_ERR_CHECKSUM,
                              "there is data where zeros should be, at byte %" PRIu64 " or after",
                              from);
        from += count;
    }
    return rc < 0 ? rc : 0;
}

static int check(struct sl_object *object, void *buffer,
                 int (*visit)(void *arg, uint64_t offset, const void *bytes, size_t count,
                              struct sl_err *err),
                 void *arg, struct sl_err *err)
{
    uint64_t at = 0; /* up to here the file was looked at */
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < object->trailer.blocks; i++) {
        const struct sl_block *block = &object->table[i];
        if (!(block->flags & SL_BLOCK_ZERO)) {
            rc = check_zeros(object, at, block->offset, buffer, err);
            at = block->offset + sl_align_up(block->stored_bytes);
        }
        if (rc == 0)
            rc = read_block(object, i, buffer, err);
        if (rc == 0 && visit)
            rc = visit(arg, (uint64_t)i * SL_BLOCK_BYTES, buffer, block->plain_bytes, err);
    }
    return rc ? rc : check_zeros(object, at, object->trailer.footer_offset, buffer, err);
}

int sl_object_check(struct sl_object *object, void *buffer,
                    int (*visit)(void *arg, uint64_t offset, const void *bytes, size_t count,
                                 struct sl_err *err),
                    void *arg, struct sl_err *err)
{
    int rc = check(object, buffer, visit, arg, err);
    return rc ? name_failure(object->repo, object->trailer.name, rc, err) : 0;
}

struct fetched {
    char *bytes;
};

static int fetch_block(void *arg, uint64_t offset, const void *bytes, size_t count,
                       struct sl_err *err)
{
    (void)err;
    memcpy(((struct fetched *)arg)->bytes + offset, bytes, count);
    return 0;
}

int sl_repo_fetch(struct sl_repo *repo, const char *full_name, size_t max, char **ret_bytes,
                  size_t *ret_count, struct sl_err *err)
{
    struct sl_object *object;
    int rc = sl_object_open(repo, full_name, &object, err);
    if (rc)
        return rc;
    if (object->trailer.length > max) {
        rc = sl_err_set(err, SL_ERR_LIMIT, "\"%s\" has %" PRIu64 " bytes, more than %zu", full_name,
                        object->trailer.length, max);
        sl_object_close(object);
        return rc;
    }
    size_t count = (size_t)object->trailer.length;
    struct fetched fetched = {.bytes = sl_alloc(count + 1)};
    void *buffer = sl_pages_alloc(SL_BLOCK_BYTES);
    if (fetched.bytes && buffer)
        rc = sl_object_check(object, buffer, fetch_block, &fetched, err);
    else
        rc = sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for an object of %zu bytes", count);
    sl_pages_free(buffer, SL_BLOCK_BYTES);
    sl_object_close(object);
    if (rc) {
        sl_free(fetched.bytes);
        return rc;
    }
    fetched.bytes[count] = '\0';
    *ret_bytes = fetched.bytes;
    *ret_count = count;
    return 0;
}
