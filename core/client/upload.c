/* Uploads: bytes into blocks, blocks digested while hot in cache, packed, sealed, offered. Does
 * no disk I/O and starts nothing; the caller's thread does all the work. */
#include "core/base/alloc.h"
#include "core/client/client_internal.h"

#include <string.h>

#define LEAVES_FIRST 16u

/* --- beginning and ending -------------------------------------------------------------------- */

int sl_client_upload_place(struct session *session, sl_deadline deadline, struct sl_err *err)
{
    int rc = sl_client_session_check(session, err);
    while (!rc && session->writing >=
                      session->welcome.objects) /* other calls of ours, each with its limit */
        rc = sl_client_session_wait(session, &session->changed, deadline, err);
    if (rc == SL_ERR_TIMEOUT)
        sl_err_prefix(err, "the target has %u objects open, as many as it will",
                      session->welcome.objects);
    return rc;
}

static int prepare(struct sl_upload *upload, uint64_t length_hint, struct sl_err *err)
{
    struct session *session = upload->object.session;
    upload->slot = SL_SLOT_NONE;
    uint64_t blocks = length_hint / SL_BLOCK_BYTES + 1;
    upload->leaves_room = blocks < LEAVES_FIRST ? LEAVES_FIRST
                          : blocks > 8192       ? 8192
                                                : (uint32_t)blocks;
    upload->leaves = sl_calloc(upload->leaves_room, sizeof *upload->leaves);
    if (!upload->leaves)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    enum sl_codec codec = session->client->config.codec;
    if (!session->sealed && codec == SL_CODEC_PLAIN)
        return 0;
    upload->buffer = sl_pages_alloc(SL_BLOCK_BYTES);
    if (!upload->buffer)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    if (codec != SL_CODEC_PLAIN) {
        upload->packed = sl_pages_alloc(SL_BLOCK_BYTES);
        if (!upload->packed)
            return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
        int rc = sl_packer_new(codec, session->client->config.codec_level, &upload->packer, err);
        if (rc)
            return rc;
    }
    return session->sealed ? sl_sealer_new(session->secret_up, &upload->sealer, err) : 0;
}

void sl_client_upload_fini(struct sl_upload *upload)
{
    sl_sealer_free(upload->sealer);
    sl_packer_free(upload->packer);
    sl_pages_free(upload->packed, SL_BLOCK_BYTES);
    sl_pages_free(upload->buffer, SL_BLOCK_BYTES);
    sl_free(upload->leaves);
}

static int create(struct sl_upload *upload, uint64_t length_hint, sl_deadline deadline,
                  struct sl_err *err)
{
    struct session *session = upload->object.session;
    pthread_mutex_lock(&session->lock);
    int rc = sl_client_upload_place(session, deadline, err);
    if (!rc) {
        struct sl_msg msg = {.type = SL_MSG_CREATE};
        sl_client_object_list(session, &upload->object);
        msg.create.object = upload->object.number;
        msg.create.length_hint = length_hint;
        strcpy(msg.create.name, upload->object.name); /* both of SL_NAME_MAX */
        sl_client_session_send(session, &msg);
    }
    pthread_mutex_unlock(&session->lock);
    return rc;
}

int sl_upload_begin(struct sl_client *client, const char *name, uint64_t length_hint,
                    sl_deadline deadline, struct sl_upload **ret_upload, struct sl_err *err)
{
    struct session *session;
    int rc = sl_client_session(client, deadline, &session, err);
    if (rc)
        return rc;
    struct sl_upload *upload = sl_calloc(1, sizeof *upload);
    rc = upload ? sl_client_object_init(&upload->object, OBJECT_UPLOAD, session, name, err)
                : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    if (rc) {
        sl_free(upload);
        sl_client_session_unref(session);
        return rc;
    }
    rc = prepare(upload, length_hint, err);
    if (!rc)
        rc = create(upload, length_hint, deadline, err);
    if (rc) {
        sl_client_object_free(&upload->object);
        return rc;
    }
    *ret_upload = upload;
    return 0;
}

uint64_t sl_upload_length(const struct sl_upload *upload)
{
    return upload->length + upload->filled;
}

/* Ends what the caller and the target have of it. After COMMIT the number stays known until the
 * target has answered. */
void sl_client_upload_drop(struct sl_upload *upload)
{
    struct object *object = &upload->object;
    struct session *session = object->session;
    bool keep = false;
    pthread_mutex_lock(&session->lock);
    if (upload->slot != SL_SLOT_NONE)
        sl_client_slot_release(session, upload->slot);
    upload->slot = SL_SLOT_NONE;
    if (object->listed && upload->committed && !session->failure.code) {
        keep = object->abandoned = true;
    } else if (object->listed) {
        if (!object->answered && !session->failure.code) {
            struct sl_msg msg = {.type = SL_MSG_ABORT};
            msg.abort.object = object->number;
            sl_client_offers_flush(session);
            sl_client_session_send(session, &msg);
        }
        sl_client_object_unlist(object);
    }
    pthread_mutex_unlock(&session->lock);
    if (!keep)
        sl_client_object_free(object);
}

void sl_upload_abort(struct sl_upload *upload)
{
    if (upload)
        sl_client_upload_drop(upload);
}

/* --- filling --------------------------------------------------------------------------------- */

/* With the lock held: may this upload still become something? */
int sl_client_upload_check(struct sl_upload *upload, struct sl_err *err)
{
    int rc = sl_client_session_check(upload->object.session, err);
    return rc ? rc : sl_client_object_error(&upload->object, err);
}

int sl_upload_check(struct sl_upload *upload, struct sl_err *err)
{
    struct session *session = upload->object.session;
    pthread_mutex_lock(&session->lock);
    int rc = sl_client_upload_check(upload, err);
    pthread_mutex_unlock(&session->lock);
    return rc;
}

int sl_client_upload_slot(struct sl_upload *upload, struct sl_err *err)
{
    struct session *session = upload->object.session;
    uint64_t began = sl_client_stage_begin(session->client);
    pthread_mutex_lock(&session->lock);
    int rc = sl_client_upload_check(upload, err);
    if (!rc)
        rc = sl_client_slot_take(session, SLOT_PULLED,
                                 sl_client_session_io_deadline(session, UINT64_MAX), &upload->slot,
                                 err);
    pthread_mutex_unlock(&session->lock);
    sl_client_stage_end(session->client, SL_STAGE_SLOT, began);
    return rc;
}

static int open_block(struct sl_upload *upload, struct sl_err *err)
{
    if (upload->blocks == SL_OBJECT_BLOCKS_MAX)
        return sl_err_set(err, SL_ERR_LIMIT, "\"%s\" is longer than an object can be (1 TiB)",
                          upload->object.name);
    if (upload->buffer) {
        int rc = sl_upload_check(upload, err);
        if (rc)
            return rc;
        upload->at = upload->buffer;
        return 0;
    }
    int rc = sl_client_upload_slot(upload, err);
    if (!rc)
        upload->at = sl_client_slot_memory(&upload->object.session->slots, upload->slot);
    return rc;
}

int sl_upload_space(struct sl_upload *upload, uint8_t **ret_at, size_t *ret_room,
                    struct sl_err *err)
{
    int rc = upload->failed
                 ? sl_err_set(err, upload->failed, "the upload of \"%s\" has failed before",
                              upload->object.name)
                 : 0;
    if (!rc && !upload->at) {
        rc = open_block(upload, err);
        upload->failed = rc;
    }
    if (rc)
        return rc;
    *ret_at = upload->at + upload->filled;
    *ret_room = SL_BLOCK_BYTES - upload->filled;
    return 0;
}

static int keep_leaf(struct sl_upload *upload, const struct sl_id *leaf, struct sl_err *err)
{
    if (upload->blocks == upload->leaves_room) {
        size_t room = upload->leaves_room * (size_t)2;
        struct sl_id *grown = sl_realloc(upload->leaves, room * sizeof *grown);
        if (!grown)
            return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
        upload->leaves = grown;
        upload->leaves_room = (uint32_t)room;
    }
    upload->leaves[upload->blocks++] = *leaf;
    return 0;
}

/* Digest of the block, or that it is zero. */
static void examine(struct sl_upload *upload, struct sl_offer *offer)
{
    struct session *session = upload->object.session;
    uint64_t began = sl_client_stage_begin(session->client);
    uint64_t seed = session->welcome.digest_seed;
    size_t count = upload->filled;
    *offer = (struct sl_offer){.object = upload->object.number,
                               .block = upload->blocks,
                               .slot = SL_SLOT_NONE,
                               .plain_bytes = (uint32_t)count,
                               .codec = SL_CODEC_PLAIN};
    if (sl_bytes_are_zero(upload->at, count)) {
        offer->flags = SL_BLOCK_ZERO;
        offer->plain_digest = sl_digest_zeros(seed, count);
    } else {
        offer->stored_bytes = (uint32_t)count;
        offer->plain_digest = sl_digest(seed, upload->at, count);
    }
    offer->stored_digest = offer->plain_digest;
    sl_client_stage_end(session->client, SL_STAGE_DIGEST, began);
}

/* Returns what will be stored: the block packed, or as it is. */
static const uint8_t *pack(struct sl_upload *upload, struct sl_offer *offer)
{
    struct session *session = upload->object.session;
    if (!upload->packer)
        return upload->at;
    uint64_t began = sl_client_stage_begin(session->client);
    size_t packed = sl_pack(upload->packer, upload->at, offer->plain_bytes, upload->packed);
    if (packed) {
        offer->codec = (uint8_t)session->client->config.codec;
        offer->stored_bytes = (uint32_t)packed;
        offer->stored_digest =
            sl_digest(session->welcome.digest_seed, upload->packed, offer->stored_bytes);
    }
    sl_client_stage_end(session->client, SL_STAGE_PACK, began);
    return packed ? upload->packed : upload->at;
}

/* From the private buffer into a slot: packed, sealed, or both. */
static int fill_slot(struct sl_upload *upload, struct sl_offer *offer, struct sl_err *err)
{
    struct session *session = upload->object.session;
    const uint8_t *from = pack(upload, offer);
    int rc = sl_client_upload_slot(upload, err);
    if (rc)
        return rc;
    uint8_t *to = sl_client_slot_memory(&session->slots, upload->slot);
    if (!upload->sealer) {
        memcpy(to, from, offer->stored_bytes);
        return 0;
    }
    uint64_t began = sl_client_stage_begin(session->client);
    offer->seal_number = atomic_fetch_add(&session->seal_next, 1);
    rc = sl_seal(upload->sealer, offer, from, to, err);
    sl_client_stage_end(session->client, SL_STAGE_SEAL, began);
    return rc;
}

static int offer_block(struct sl_upload *upload, struct sl_err *err)
{
    struct session *session = upload->object.session;
    struct sl_offer offer;
    examine(upload, &offer);
    bool zero = offer.flags & SL_BLOCK_ZERO;
    int rc = keep_leaf(upload, &offer.plain_digest, err);
    if (!rc && !zero && upload->buffer)
        rc = fill_slot(upload, &offer, err);
    if (rc)
        return rc;
    upload->stored += offer.stored_bytes;
    upload->length += upload->filled;
    upload->filled = 0;
    pthread_mutex_lock(&session->lock);
    rc = sl_client_upload_check(upload, err);
    if (!rc) {
        if (!zero) {
            offer.slot = upload->slot;
            upload->slot = SL_SLOT_NONE; /* the target's now */
            upload->at = NULL;
        }
        sl_client_offers_add(session, &offer);
    }
    pthread_mutex_unlock(&session->lock);
    if (upload->buffer)
        upload->at = NULL; /* looks for an error at the next block's start */
    return rc;
}

int sl_upload_advance(struct sl_upload *upload, size_t filled, struct sl_err *err)
{
    if (upload->failed || !upload->at || filled > SL_BLOCK_BYTES - upload->filled)
        return sl_err_set(err, upload->failed ? upload->failed : SL_ERR_INTERNAL,
                          "more bytes than there was room for, or after a failure");
    upload->filled += filled;
    if (upload->filled < SL_BLOCK_BYTES)
        return 0;
    upload->failed = offer_block(upload, err);
    return upload->failed;
}

int sl_upload_write(struct sl_upload *upload, const void *bytes, size_t count, struct sl_err *err)
{
    const uint8_t *from = bytes;
    while (count) {
        uint8_t *at;
        size_t room;
        int rc = sl_upload_space(upload, &at, &room, err);
        if (rc)
            return rc;
        size_t part = count < room ? count : room;
        memcpy(at, from, part);
        from += part;
        count -= part;
        rc = sl_upload_advance(upload, part, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* --- commit ---------------------------------------------------------------------------------- */

static int await_stored(struct sl_upload *upload, uint64_t index_bytes, sl_deadline deadline,
                        struct sl_err *err)
{
    struct session *session = upload->object.session;
    uint64_t began = sl_client_stage_begin(session->client);
    struct sl_msg msg = {.type = SL_MSG_COMMIT};
    msg.commit = (struct sl_msg_commit){.object = upload->object.number,
                                        .length = upload->length,
                                        .index_bytes = index_bytes,
                                        .digest = upload->digest};
    uint64_t sent = sl_now_ns();
    pthread_mutex_lock(&session->lock);
    int rc = sl_client_upload_check(upload, err);
    if (!rc) {
        sl_client_offers_flush(session);
        upload->committed = true;
        sl_client_session_send(session, &msg);
    }
    while (!rc && !upload->object.answered)
        rc = sl_client_session_wait(session, &upload->object.changed,
                                    sl_client_session_quiet_deadline(session, sent, deadline), err);
    if (upload->object.answered) /* even if the session has ended since */
        rc = sl_client_object_error(&upload->object, err);
    pthread_mutex_unlock(&session->lock);
    sl_client_stage_end(session->client, SL_STAGE_COMMIT, began);
    return rc;
}

int sl_upload_commit(struct sl_upload *upload, uint64_t index_bytes, sl_deadline deadline,
                     struct sl_stored *ret_stored, struct sl_err *err)
{
    int rc = upload->failed ? sl_err_set(err, upload->failed, "the upload has failed before") : 0;
    if (!rc && index_bytes > sl_upload_length(upload))
        rc = sl_err_set(err, SL_ERR_USAGE, "an index longer than its object");
    if (!rc && upload->filled)
        rc = offer_block(upload, err);
    if (!rc) {
        upload->digest = sl_digest_content(upload->object.session->welcome.digest_seed,
                                           upload->leaves, upload->blocks);
        if (upload->slot != SL_SLOT_NONE) { /* of a zero block, or empty */
            pthread_mutex_lock(&upload->object.session->lock);
            sl_client_slot_release(upload->object.session, upload->slot);
            pthread_mutex_unlock(&upload->object.session->lock);
            upload->slot = SL_SLOT_NONE;
        }
        rc = await_stored(upload, index_bytes, deadline, err);
    }
    if (!rc && ret_stored)
        *ret_stored =
            (struct sl_stored){upload->outcome, upload->digest, upload->length, upload->stored};
    if (rc)
        sl_err_prefix(err, "\"%s\"", upload->object.name);
    sl_client_upload_drop(upload);
    return rc;
}

/* Control thread, lock held. */
int sl_client_upload_stored(struct session *session, const struct sl_msg_stored *stored,
                            struct sl_err *err)
{
    struct object *object = sl_client_object_find(session, stored->object);
    if (!object && stored->object < session->next_object)
        return 0; /* it was given up here */
    struct sl_upload *upload = (struct sl_upload *)object;
    if (!object || object->kind != OBJECT_UPLOAD || !upload->committed)
        return sl_err_set(err, SL_ERR_PROTOCOL, "STORED of object %u, which was not committed",
                          stored->object);
    if (stored->outcome != SL_STORED_CREATED && stored->outcome != SL_STORED_IDENTICAL)
        return sl_err_set(err, SL_ERR_PROTOCOL, "unknown outcome %u", stored->outcome);
    if (upload->growing) { /* who continued it has not seen all of it */
        upload->digest = stored->digest;
    } else if (!sl_id_equal(&stored->digest, &upload->digest)) {
        char ours[SL_ID_TEXT], theirs[SL_ID_TEXT];
        sl_err_set(&object->err, SL_ERR_CHECKSUM,
                   "the target stored content with digest %s, ours is %s",
                   sl_id_text(&stored->digest, theirs), sl_id_text(&upload->digest, ours));
    }
    session->progress_ns = sl_now_ns();
    upload->outcome = (enum sl_outcome)stored->outcome;
    sl_client_object_answer(object);
    return 0;
}

static int put_once(struct sl_client *client, const char *name, const void *bytes, size_t count,
                    sl_deadline deadline, struct sl_stored *ret_stored, struct sl_err *err)
{
    struct sl_upload *upload;
    int rc = sl_upload_begin(client, name, count, deadline, &upload, err);
    if (rc)
        return rc;
    rc = sl_upload_write(upload, bytes, count, err);
    if (rc) {
        sl_upload_abort(upload);
        return rc;
    }
    return sl_upload_commit(upload, 0, deadline, ret_stored, err);
}

int sl_client_put(struct sl_client *client, const char *name, const void *bytes, size_t count,
                  sl_deadline deadline, struct sl_stored *ret_stored, struct sl_err *err)
{
    unsigned tries = 0;
    int rc;
    do
        rc = put_once(client, name, bytes, count, deadline, ret_stored, err);
    while (sl_client_again(rc, &tries, deadline));
    return rc;
}
