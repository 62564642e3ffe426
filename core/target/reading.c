/* OPEN, TABLE, GET, CLOSE: objects on their way out of the repository. */
#include "core/target/target_internal.h"

#include "core/base/log.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define TABLE_MAX 4000u /* digests in one TABLED, docs: SL_MSG_TABLE_FIELDS */

void sl_target_open_arrived(struct session *session, const struct sl_msg_open *open)
{
    struct object *object = sl_target_object_new(session, open->object, open->name, false);
    if (object)
        sl_target_object_task(object, TASK_OPEN);
}

void sl_target_reading_opened(struct object *object)
{
    if (object->state == OBJECT_DROPPED)
        return;
    if (object->code) {
        if (object->code == SL_ERR_NOT_FOUND) { /* an answer, not a failure */
            sl_target_answer_error(object->session, SL_ABOUT_OBJECT, object->number, &object->err);
            sl_target_object_drop(object);
        } else {
            sl_target_object_fail(object, &object->err);
        }
        return;
    }
    const struct sl_trailer *trailer = &object->opened->trailer;
    struct sl_msg msg = {.type = SL_MSG_OPENED};
    msg.opened.object = object->number;
    msg.opened.length = trailer->length;
    msg.opened.index_bytes = trailer->index_bytes;
    msg.opened.digest = trailer->content_digest;
    msg.opened.created_ns = trailer->created_ns;
    snprintf(msg.opened.creator, sizeof msg.opened.creator, "%s", trailer->creator);
    sl_target_object_to(object, OBJECT_READING);
    sl_target_answer(object->session, &msg);
}

/* The object a message is about, or NULL: it has ended, or the session has been. */
static struct object *being_read(struct session *session, uint32_t number, const char *what)
{
    struct object *object = sl_target_object_find(session, number);
    if (object && object->state == OBJECT_READING)
        return object;
    if (object ? object->state != OBJECT_DROPPED : !sl_target_object_past(session, number))
        sl_target_session_violation(session, "%s of object %u, which is not open for reading", what,
                                    number);
    return NULL;
}

void sl_target_table_arrived(struct session *session, const struct sl_msg_table *table)
{
    struct object *object = being_read(session, table->object, "TABLE");
    if (!object)
        return;
    uint32_t blocks = object->opened->trailer.blocks;
    if (table->count > TABLE_MAX || table->first > blocks || table->count > blocks - table->first) {
        sl_target_session_violation(session, "TABLE of blocks that object %u has not",
                                    table->object);
        return;
    }
    uint8_t body[TABLE_MAX * sizeof(struct sl_id)];
    struct sl_writer w = sl_writer_on(body, sizeof body);
    for (uint32_t i = 0; i < table->count; i++)
        sl_write_bytes(&w, object->opened->table[table->first + i].plain_digest.bytes,
                       sizeof(struct sl_id));
    struct sl_msg msg = {.type = SL_MSG_TABLED};
    msg.tabled.object = table->object;
    msg.tabled.first = table->first;
    msg.tabled.digests = body;
    msg.tabled.digests_bytes = sl_writer_used(&w);
    sl_target_answer(session, &msg);
}

static struct sl_offer describe(const struct object *object, const struct sl_get *get)
{
    const struct sl_block *block = &object->opened->table[get->block];
    return (struct sl_offer){
        .object = get->object,
        .block = get->block,
        .slot = get->slot,
        .stored_bytes = block->stored_bytes,
        .plain_bytes = block->plain_bytes,
        .codec = block->codec,
        .flags = block->flags,
        .plain_digest = block->plain_digest,
        .stored_digest = block->stored_digest,
    };
}

static void get_from(struct object *object, const struct sl_get *get)
{
    struct session *session = object->session;
    struct sl_offer block = describe(object, get);
    if (block.flags & SL_BLOCK_ZERO) {
        sl_target_answer_sent(session, &block, 0, 0);
        return;
    }
    struct piece *piece = sl_target_piece_new(session, object, &block, true);
    if (!piece) {
        sl_target_answer_sent(session, &block, 0, SL_ERR_NO_MEMORY);
        return;
    }
    session->slot_states[get->slot] = SLOT_ASKED;
    piece->file = object->opened->file;
    piece->file_offset = object->opened->table[get->block].offset;
    sl_target_schedule_add(piece);
}

static void get_arrived(struct session *session, const struct sl_get *get)
{
    if (get->slot >= session->slots || get->slot < session->slots_pulled ||
        session->slot_states[get->slot] != SLOT_CLIENTS || !session->any_memory) {
        sl_target_session_violation(session, "GET into slot %u, which is not the client's to give",
                                    get->slot);
        return;
    }
    struct object *object = being_read(session, get->object, "GET");
    if (!object && session->state == SESSION_LIVE) { /* it has been closed */
        struct sl_offer block = {.object = get->object, .block = get->block, .slot = get->slot};
        sl_target_answer_sent(session, &block, 0, SL_ERR_CANCELLED);
    } else if (object && get->block >= object->opened->trailer.blocks) {
        sl_target_session_violation(session, "GET of block %u, which object %u has not", get->block,
                                    get->object);
    } else if (object) {
        get_from(object, get);
    }
}

void sl_target_gets_arrived(struct session *session, const struct sl_msg_get *gets)
{
    struct sl_reader r = sl_reader_on(gets->gets, gets->gets_bytes);
    if (gets->gets_bytes == 0 || gets->gets_bytes % SL_GET_BYTES) {
        sl_target_session_violation(session, "GET of a wrong length");
        return;
    }
    while (sl_reader_left(&r) && session->state == SESSION_LIVE) {
        struct sl_get get;
        sl_get_read(&r, &get);
        get_arrived(session, &get);
    }
}

void sl_target_reading_over(struct piece *piece)
{
    struct object *object = piece->object;
    struct session *session = piece->session;
    if (piece->code) {
        sl_log(SL_LOG_WARN, "target", "%s: block %u of \"%s\" could not be sent: %s%s%s",
               session->label, piece->block.block, object->name, sl_code_text(piece->code),
               piece->sys ? ": " : "", piece->sys ? strerror(piece->sys) : "");
    } else {
        COUNT(session->target, blocks_out, 1);
        COUNT(session->target, bytes_out, piece->block.plain_bytes);
    }
    sl_target_answer_sent(session, &piece->block, piece->push_number, piece->code);
    sl_target_piece_free(piece);
    sl_target_object_settle(object);
}

void sl_target_close_arrived(struct session *session, uint32_t number)
{
    struct object *object = sl_target_object_find(session, number);
    if (!object && !sl_target_object_past(session, number))
        sl_target_session_violation(session, "CLOSE of an unknown object %u", number);
    else if (object && object->state <= OBJECT_PUBLISHING)
        sl_target_session_violation(session, "CLOSE of object %u, which is being written", number);
    else if (object)
        sl_target_object_drop(object);
}
