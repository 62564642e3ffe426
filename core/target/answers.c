/* What goes to the client. TAKEN and SENT are gathered and sent once a turn. A send that fails is
 * remembered by the control and ends the session: nobody who answers has to look. */
#include "core/target/target_internal.h"

#include <stdio.h>
#include <string.h>

void sl_target_answer(struct session *session, const struct sl_msg *msg)
{
    if (session->state > SESSION_LIVE)
        return;
    (void)sl_control_send(session->control, msg); /* a failure ends the next process() */
    session->dirty = true;
}

void sl_target_answer_error(struct session *session, enum sl_about kind, uint32_t about,
                            const struct sl_err *err)
{
    struct sl_msg msg = {.type = SL_MSG_ERROR};
    msg.error.code = (uint16_t)-err->code;
    msg.error.kind = (uint8_t)kind;
    msg.error.about = about;
    snprintf(msg.error.text, sizeof msg.error.text, "%s", err->msg);
    snprintf(msg.error.hint, sizeof msg.error.hint, "%s", err->hint);
    sl_target_answer_flush(session); /* what came before it stays before it */
    sl_target_answer(session, &msg);
}

static void flush_taken(struct session *session)
{
    uint8_t body[TAKEN_BATCH * 4];
    struct sl_writer w = sl_writer_on(body, sizeof body);
    for (unsigned i = 0; i < session->taken_count; i++)
        sl_write_u32(&w, session->taken[i]);
    session->taken_count = 0;
    struct sl_msg msg = {.type = SL_MSG_TAKEN};
    msg.taken.slots = body;
    msg.taken.slots_bytes = sl_writer_used(&w);
    sl_target_answer(session, &msg);
}

static void flush_sent(struct session *session)
{
    struct sl_msg msg = {.type = SL_MSG_SENT};
    msg.sent.blocks = session->sent;
    msg.sent.blocks_bytes = (size_t)session->sent_count * SL_SENT_BYTES;
    session->sent_count = 0;
    sl_target_answer(session, &msg);
}

void sl_target_answer_flush(struct session *session)
{
    if (session->taken_count)
        flush_taken(session);
    if (session->sent_count)
        flush_sent(session);
}

void sl_target_answer_taken(struct session *session, uint32_t slot)
{
    session->slot_states[slot] = SLOT_CLIENTS;
    if (session->taken_count == TAKEN_BATCH)
        flush_taken(session);
    session->taken[session->taken_count++] = slot;
}

void sl_target_answer_sent(struct session *session, const struct sl_offer *block, uint64_t push,
                           int code)
{
    if (session->sent_count == SENT_BATCH)
        flush_sent(session);
    struct sl_sent sent = {.block = *block, .push = code ? 0 : push, .code = (int16_t)code};
    struct sl_writer w =
        sl_writer_on(session->sent + (size_t)session->sent_count * SL_SENT_BYTES, SL_SENT_BYTES);
    session->slot_states[block->slot] = SLOT_CLIENTS;
    sl_sent_write(&w, &sent);
    session->sent_count++;
}
