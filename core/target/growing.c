/* GROW, the OFFERs of growing objects, SEAL. A block of one is pulled and checked as any other, but
 * not written by its worker: control keeps it until all before it have come (lanes have no order
 * between them) and gives a disk thread what is next, as many as there are; so blocks that came
 * while a sync was under way share the next one. What a journal is, is core/repo/grow.h's business.
 */
#include "core/target/target_internal.h"

#include "core/base/fault.h"

void sl_target_grow_arrived(struct session *session, const struct sl_msg_grow *grow)
{
    struct object *object = sl_target_object_new(session, grow->object, grow->name, true);
    if (!object)
        return;
    object->grows = true;
    object->known = grow->known;
    sl_target_object_task(object, TASK_GROW);
}

/* --- blocks ----------------------------------------------------------------------------------- */

static const char *append_fault(const struct object *object, const struct sl_offer *offer)
{
    if (!object->grown)
        return "block of a growing object before GROWN";
    if (offer->flags & SL_BLOCK_ZERO || offer->codec != SL_CODEC_PLAIN)
        return "block of a growing object that is not plain";
    if (offer->block != object->offered)
        return "block of a growing object out of turn";
    if (object->pieces >= APPENDS_MAX)
        return "too many blocks of a growing object at once";
    return NULL;
}

void sl_target_growing_offered(struct object *object, const struct sl_offer *offer)
{
    struct session *session = object->session;
    const char *fault = append_fault(object, offer);
    if (fault) {
        sl_target_session_violation(session, "%s (object %u, block %u)", fault, offer->object,
                                    offer->block);
        return;
    }
    struct piece *piece = sl_target_piece_new(session, object, offer, false);
    if (!piece) {
        struct sl_err err;
        sl_err_set(&err, SL_ERR_NO_MEMORY, "out of memory for the blocks of \"%s\"", object->name);
        sl_target_answer_taken(session, offer->slot);
        sl_target_object_fail(object, &err);
        return;
    }
    object->offered++;
    piece->keep = true;
    session->slot_states[offer->slot] = SLOT_OFFERED;
    sl_target_schedule_add(piece);
}

static void piece_done(struct piece *piece)
{
    sl_target_piece_release(piece);
    sl_target_piece_free(piece);
}

void sl_target_growing_arrived(struct piece *piece)
{
    struct piece_list *list = &piece->object->arrived;
    struct piece *after = list->first;
    while (after && after->block.block < piece->block.block)
        after = after->next;
    if (!after) {
        sl_target_piece_list_add(list, piece);
    } else {
        piece->next = after;
        piece->prev = after->prev;
        *(after->prev ? &after->prev->next : &list->first) = piece;
        after->prev = piece;
        list->count++;
    }
    sl_target_growing_pump(piece->object);
}

void sl_target_growing_pump(struct object *object)
{
    struct piece *piece;
    if (object->disk_busy || object->state != OBJECT_WRITING)
        return;
    while ((piece = object->arrived.first) && piece->block.block == object->appended) {
        sl_target_piece_list_remove(&object->arrived, piece);
        sl_target_piece_list_add(&object->appending, piece);
        object->appended++;
    }
    if (object->appending.count)
        sl_target_object_task(object, TASK_APPEND);
}

void sl_target_growing_drop(struct object *object)
{
    struct piece *piece;
    while ((piece = sl_target_piece_list_pop(&object->arrived)))
        piece_done(piece);
}

/* --- the end ---------------------------------------------------------------------------------- */

void sl_target_seal_arrived(struct session *session, const struct sl_msg_seal *seal)
{
    struct object *object = sl_target_object_find(session, seal->object);
    if (!object ? sl_target_object_past(session, seal->object) : object->state == OBJECT_DROPPED)
        return; /* crossed our ERROR */
    if (!object || object->state != OBJECT_WRITING || !object->grown || object->pieces ||
        object->disk_busy) {
        sl_target_session_violation(session,
                                    "SEAL of object %u, which does not grow or has blocks "
                                    "that are not durable",
                                    seal->object);
        return;
    }
    if (seal->codec > SL_CODEC_LZ4) {
        sl_target_session_violation(session, "SEAL with an unknown codec");
        return;
    }
    object->length = seal->length;
    object->codec = seal->codec;
    object->level = seal->level;
    sl_target_object_to(object, OBJECT_COMMITTED);
    sl_target_object_to(object, OBJECT_PUBLISHING);
    sl_target_object_task(object, TASK_SEAL);
}

/* --- the disk --------------------------------------------------------------------------------- */

static int append(struct object *object)
{
    int fault = sl_fault("target.append"), rc = 0;
    if (fault > 0)
        return sl_err_sys(&object->err, SL_ERR_WRITE, fault, "could not append to \"%s\"",
                          object->name);
    for (struct piece *piece = object->appending.first; piece && !rc; piece = piece->next) {
        uint8_t flags = piece->block.flags & SL_BLOCK_MARK ? SL_JOURNAL_MARK : 0;
        rc = sl_growing_append(object->growing, piece->buffer->start, piece->block.stored_bytes,
                               flags, &piece->block.stored_digest, &object->err);
    }
    (void)sl_fault("target.appended"); /* a place to die at */
    return rc ? rc : sl_growing_sync(object->growing, &object->err);
}

void sl_target_growing_run(struct sl_target *target, struct object *object)
{
    if (object->task.kind == TASK_GROW)
        object->code = sl_growing_open(target->config.repo, object->name, object->session->client,
                                       object->known, &object->growing, &object->err);
    else if (object->task.kind == TASK_APPEND)
        object->code = append(object);
    else
        object->code =
            sl_growing_seal(object->growing, object->length, (enum sl_codec)object->codec,
                            object->level, &object->outcome, &object->digest, &object->err);
    if (object->growing)
        object->durable = sl_growing_durable(object->growing);
}

static void tell(struct object *object)
{
    struct sl_msg msg = {.type = object->grown ? SL_MSG_GREW : SL_MSG_GROWN};
    if (object->grown) {
        msg.grew.object = object->number;
        msg.grew.length = object->durable;
    } else {
        msg.grown.object = object->number;
        msg.grown.length = object->durable;
    }
    object->grown = true;
    (void)sl_fault("target.grew"); /* a place to die at */
    sl_target_answer(object->session, &msg);
}

void sl_target_growing_done(struct object *object)
{
    struct piece *piece;
    while ((piece = sl_target_piece_list_pop(&object->appending))) {
        COUNT(object->session->target, blocks_in, 1);
        COUNT(object->session->target, bytes_in, piece->block.plain_bytes);
        piece_done(piece);
    }
    if (object->state == OBJECT_DROPPED)
        return;
    if (object->task.kind == TASK_SEAL) {
        sl_target_writing_published(object);
    } else if (object->code == SL_ERR_BUSY) { /* an answer, not a failure; it is asked often */
        sl_target_answer_error(object->session, SL_ABOUT_OBJECT, object->number, &object->err);
        sl_target_object_drop(object);
    } else if (object->code) {
        sl_target_object_fail(object, &object->err);
    } else {
        tell(object);
    }
}
