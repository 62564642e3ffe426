/* CREATE, OFFER, COMMIT, ABORT: objects on their way into the repository. */
#include "core/target/target_internal.h"

#include "core/base/fault.h"
#include "core/base/log.h"

#include <assert.h>

void sl_target_create_arrived(struct session *session, const struct sl_msg_create *create)
{
    struct object *object = sl_target_object_new(session, create->object, create->name, true);
    if (!object)
        return;
    object->length_hint = create->length_hint;
    sl_target_object_task(object, TASK_CREATE);
}

/* A writing object's only task is its creation. */
static bool has_draft(const struct object *object)
{
    return !object->disk_busy;
}

/* --- offers ---------------------------------------------------------------------------------- */

/* What is wrong with an offer by itself, or NULL. */
static const char *offer_fault(const struct session *session, const struct sl_offer *offer)
{
    if (offer->flags & ~(SL_BLOCK_ZERO | SL_BLOCK_MARK))
        return "unknown block flags";
    if (offer->plain_bytes == 0 || offer->plain_bytes > SL_BLOCK_BYTES)
        return "block length out of range";
    if (offer->flags & SL_BLOCK_ZERO)
        return offer->slot == SL_SLOT_NONE && offer->stored_bytes == 0 ? NULL
                                                                       : "zero block with bytes";
    if (offer->slot >= session->slots_pulled)
        return "slot out of range, or one to push into";
    if (session->slot_states[offer->slot] != SLOT_CLIENTS)
        return "slot offered twice";
    if (!session->any_memory)
        return "OFFER before MEMORY";
    if (offer->stored_bytes == 0 || offer->stored_bytes > SL_BLOCK_BYTES)
        return "stored length out of range";
    if (offer->codec != SL_CODEC_PLAIN && offer->stored_bytes >= offer->plain_bytes)
        return "packed block that is not shorter";
    if (offer->codec == SL_CODEC_PLAIN &&
        (offer->stored_bytes != offer->plain_bytes ||
         !sl_id_equal(&offer->stored_digest, &offer->plain_digest)))
        return "plain block with two digests or lengths";
    return NULL;
}

static void counted_in(struct session *session, const struct sl_offer *block)
{
    COUNT(session->target, blocks_in, 1);
    COUNT(session->target, bytes_in, block->plain_bytes);
}

/* Enters the block in the object's draft. 0, or the object or the session has been ended. */
static int enter(struct object *object, const struct sl_offer *block, uint64_t *ret_offset)
{
    struct sl_err err;
    int rc = sl_draft_block(object->draft, block, ret_offset, &err);
    if (rc == SL_ERR_PROTOCOL)
        sl_target_session_refuse(object->session, &err);
    else if (rc)
        sl_target_object_fail(object, &err);
    return rc;
}

/* The piece's object has its draft: finds its place, and lets it be moved. */
static void place(struct piece *piece)
{
    struct object *object = piece->object;
    struct session *session = piece->session;
    bool zero = piece->zero;
    /* in the queue first, so that ending object or session finds it there */
    if (!zero)
        sl_target_schedule_add(piece);
    if (enter(object, &piece->block, &piece->file_offset) == 0) {
        piece->file = sl_draft_file(object->draft);
        if (zero)
            counted_in(session, &piece->block);
    }
    if (zero)
        sl_target_piece_free(piece);
}

static void checksum_failed(struct object *object, uint32_t block, int code)
{
    struct sl_err err;
    sl_err_set(&err, code, "block %u of \"%s\" %s", block, object->name,
               code == SL_ERR_CRYPTO ? "does not fit its seal" : "does not have its digest");
    sl_target_object_fail(object, &err);
}

static void offer_to(struct object *object, const struct sl_offer *offer)
{
    struct session *session = object->session;
    bool zero = offer->flags & SL_BLOCK_ZERO;
    if (object->grows) {
        sl_target_growing_offered(object, offer);
        return;
    }
    if (zero && has_draft(object)) { /* by far the most frequent case: no piece is needed */
        uint64_t offset;
        if (enter(object, offer, &offset) == 0)
            counted_in(session, offer);
        return;
    }
    struct piece *piece =
        session->waiting < WAITING_MAX ? sl_target_piece_new(session, object, offer, false) : NULL;
    if (!piece) {
        struct sl_err err;
        sl_err_set(&err, SL_ERR_NO_MEMORY, "out of memory for the blocks of \"%s\"", object->name);
        if (!zero)
            sl_target_answer_taken(session, offer->slot);
        sl_target_object_fail(object, &err);
        return;
    }
    piece->zero = zero;
    if (!zero)
        session->slot_states[offer->slot] = SLOT_OFFERED;
    if (has_draft(object)) {
        place(piece);
        return;
    }
    sl_target_piece_list_add(&object->waiting, piece);
    session->waiting++;
}

static void offer_arrived(struct session *session, const struct sl_offer *offer)
{
    const char *fault = offer_fault(session, offer);
    if (fault) {
        sl_target_session_violation(session, "%s (object %u, block %u, slot %u)", fault,
                                    offer->object, offer->block, offer->slot);
        return;
    }
    struct object *object = sl_target_object_find(session, offer->object);
    if (object && object->state == OBJECT_WRITING)
        offer_to(object, offer);
    else if (object ? object->state != OBJECT_DROPPED
                    : !sl_target_object_past(session, offer->object))
        sl_target_session_violation(session, "block of an unknown object %u", offer->object);
    else if (!(offer->flags & SL_BLOCK_ZERO)) /* crossed our ERROR */
        sl_target_answer_taken(session, offer->slot);
}

void sl_target_offers_arrived(struct session *session, const struct sl_msg_offer *offers)
{
    struct sl_reader r = sl_reader_on(offers->offers, offers->offers_bytes);
    if (offers->offers_bytes == 0 || offers->offers_bytes % SL_OFFER_BYTES) {
        sl_target_session_violation(session, "OFFER of a wrong length");
        return;
    }
    while (sl_reader_left(&r) && session->state == SESSION_LIVE) {
        struct sl_offer offer;
        sl_offer_read(&r, &offer);
        offer_arrived(session, &offer);
    }
}

/* --- its draft is there ----------------------------------------------------------------------- */

void sl_target_writing_created(struct object *object)
{
    struct piece *piece;
    if (object->state == OBJECT_DROPPED)
        return;
    if (object->code) {
        sl_target_object_fail(object, &object->err);
        return;
    }
    while (object->state != OBJECT_DROPPED &&
           (piece = sl_target_piece_list_pop(&object->waiting))) {
        object->session->waiting--;
        place(piece);
    }
}

/* --- the end of a piece ----------------------------------------------------------------------- */

static void piece_failed(struct piece *piece)
{
    struct object *object = piece->object;
    struct sl_err err;
    switch (piece->code) {
    case SL_ERR_CRYPTO:
    case SL_ERR_CHECKSUM:
        checksum_failed(object, piece->block.block, piece->code);
        return;
    case SL_ERR_CLOSED:
        sl_err_set(&err, SL_ERR_CLOSED, "%u lanes died under block %u of \"%s\"",
                   piece->attempts + 1, piece->block.block, object->name);
        break;
    default:
        if (piece->sys)
            sl_err_sys(&err, piece->code, piece->sys, "could not write block %u of \"%s\"",
                       piece->block.block, object->name);
        else
            sl_err_set(&err, piece->code, "could not write block %u of \"%s\": %s",
                       piece->block.block, object->name, sl_code_text(piece->code));
    }
    sl_target_object_fail(object, &err);
}

void sl_target_writing_over(struct piece *piece)
{
    struct object *object = piece->object;
    if (!piece->taken)
        sl_target_answer_taken(piece->session, piece->block.slot);
    if (piece->code)
        piece_failed(piece);
    else
        counted_in(piece->session, &piece->block);
    sl_target_piece_free(piece);
    sl_target_object_settle(object);
}

/* --- the end of an object --------------------------------------------------------------------- */

void sl_target_commit_arrived(struct session *session, const struct sl_msg_commit *commit)
{
    struct object *object = sl_target_object_find(session, commit->object);
    if (!object ? sl_target_object_past(session, commit->object) : object->state == OBJECT_DROPPED)
        return; /* crossed our ERROR */
    if (!object || object->state != OBJECT_WRITING || object->grows) {
        sl_target_session_violation(session, "COMMIT of object %u, which is not being written",
                                    commit->object);
        return;
    }
    object->length = commit->length;
    object->index_bytes = commit->index_bytes;
    object->digest = commit->digest;
    sl_target_object_to(object, OBJECT_COMMITTED);
    sl_target_object_settle(object);
}

void sl_target_abort_arrived(struct session *session, uint32_t number)
{
    struct object *object = sl_target_object_find(session, number);
    if (!object && !sl_target_object_past(session, number)) {
        sl_target_session_violation(session, "ABORT of an unknown object %u", number);
        return;
    }
    if (!object || object->state == OBJECT_DROPPED || object->state == OBJECT_PUBLISHING)
        return;
    if (object->state == OBJECT_OPENING || object->state == OBJECT_READING)
        sl_target_session_violation(session, "ABORT of object %u, which is being read", number);
    else
        sl_target_object_drop(object);
}

void sl_target_writing_published(struct object *object)
{
    struct session *session = object->session;
    struct sl_target *target = session->target;
    assert(object->state == OBJECT_PUBLISHING);
    if (object->code) {
        sl_target_object_fail(object, &object->err);
        return;
    }
    if (object->outcome == SL_STORED_CREATED)
        COUNT(target, objects_created, 1);
    else
        COUNT(target, objects_identical, 1);
    struct sl_msg msg = {.type = SL_MSG_STORED};
    msg.stored.object = object->number;
    msg.stored.outcome = (uint8_t)object->outcome;
    msg.stored.digest = object->digest;
    (void)sl_fault("target.stored"); /* a place to die at */
    sl_target_answer(session, &msg);
    sl_target_object_drop(object);
}
