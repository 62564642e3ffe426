/* Which block moves next, over which lane, with which buffer. A session's pieces wait in one queue
 * each; sessions take turns, and none holds more than its share of the pool, so that a hundred
 * clients cannot exhaust it and a slow one cannot starve the others. */
#include "core/target/target_internal.h"

#include "core/base/alloc.h"

#include <assert.h>

#define HELD_MIN 2u /* buffers every session may have: one moves while the other is written */

/* --- pieces ---------------------------------------------------------------------------------- */

struct piece *sl_target_piece_new(struct session *session, struct object *object,
                                  const struct sl_offer *block, bool out)
{
    struct piece *piece = sl_calloc(1, sizeof *piece);
    if (!piece)
        return NULL;
    piece->mail.kind = MAIL_PIECE;
    piece->taken_mail.kind = MAIL_TAKEN;
    piece->session = session;
    piece->object = object;
    piece->block = *block;
    piece->out = out;
    session->pieces++;
    object->pieces++;
    return piece;
}

void sl_target_piece_free(struct piece *piece)
{
    assert(!piece->buffer && !piece->carrier);
    piece->session->pieces--;
    piece->object->pieces--;
    sl_free(piece);
}

/* --- the ring of sessions that have work ------------------------------------------------------ */

static void ring_add(struct session *session)
{
    struct sl_target *target = session->target;
    if (session->ring_next)
        return;
    if (!target->ring) {
        session->ring_next = session->ring_prev = session;
        target->ring = session;
        return;
    }
    session->ring_next = target->ring; /* behind those that wait already */
    session->ring_prev = target->ring->ring_prev;
    session->ring_prev->ring_next = session;
    session->ring_next->ring_prev = session;
}

static void ring_remove(struct session *session)
{
    struct sl_target *target = session->target;
    if (session->ring_next == session) {
        target->ring = NULL;
    } else {
        session->ring_prev->ring_next = session->ring_next;
        session->ring_next->ring_prev = session->ring_prev;
        if (target->ring == session)
            target->ring = session->ring_next;
    }
    session->ring_next = session->ring_prev = NULL;
}

void sl_target_schedule_add(struct piece *piece)
{
    sl_target_piece_list_add(&piece->session->queue, piece);
    ring_add(piece->session);
}

void sl_target_schedule_again(struct piece *piece)
{
    piece->lost = false;
    piece->lane = NULL;
    piece->attempts++;
    sl_target_piece_to(piece, PIECE_QUEUED);
    sl_target_piece_list_add_first(&piece->session->queue, piece);
    ring_add(piece->session);
}

void sl_target_schedule_remove(struct piece *piece)
{
    sl_target_piece_list_remove(&piece->session->queue, piece);
    if (!piece->session->queue.count)
        ring_remove(piece->session);
}

/* --- giving ---------------------------------------------------------------------------------- */

/* The live lane with the fewest pieces in flight, NULL when all are at their depth. */
static struct lane *lane_choose(const struct session *session)
{
    struct lane *best = NULL;
    for (struct lane *lane = session->lanes; lane; lane = lane->next)
        if (lane->up && sl_target_memory_whole(session, lane->rail) &&
            lane->in_flight < lane->depth && (!best || lane->in_flight < best->in_flight))
            best = lane;
    return best;
}

static void give(struct piece *piece, struct lane *lane, struct buffer *buffer)
{
    struct session *session = piece->session;
    sl_target_schedule_remove(piece);
    lane->in_flight++;
    session->held++;
    piece->lane = piece->carrier = lane;
    piece->buffer = buffer;
    piece->pool = lane->pool;
    piece->memory = session->memory[lane->rail][piece->out];
    piece->memory_slot = piece->out ? session->slots_pulled : 0;
    sl_target_piece_to(piece, PIECE_GIVEN);
    sl_target_mail_chain_add(&lane->worker->given, &piece->mail);
}

/* The last buffers are for sessions that have next to none: one that took all while it was alone,
 * and now does not move, would hold up those that come. */
static bool is_scarce(const struct pool *pool)
{
    unsigned kept = pool->count / 8 < HELD_MIN ? HELD_MIN : pool->count / 8;
    return pool->count - pool->held <= kept;
}

enum turn { TURN_NOTHING, TURN_GAVE, TURN_NO_BUFFER };

static enum turn take_turn(struct session *session, unsigned share)
{
    struct lane *lane = lane_choose(session);
    if (!lane)
        return TURN_NOTHING;
    bool shared = lane->pool == &session->target->pool;
    if (shared && session->held >= share)
        return TURN_NOTHING;
    if (shared && session->held >= HELD_MIN && is_scarce(lane->pool))
        return TURN_NO_BUFFER;
    struct buffer *buffer = sl_target_pool_take(lane->pool);
    if (!buffer)
        return shared ? TURN_NO_BUFFER : TURN_NOTHING;
    give(session->queue.first, lane, buffer);
    return TURN_GAVE;
}

/* A session's share of the pool: an even part of it, never less than two blocks. */
static unsigned share_of_pool(const struct sl_target *target)
{
    unsigned active = 0;
    for (const struct session *s = target->sessions; s; s = s->next)
        active += s->queue.count || s->held;
    unsigned share = active ? target->pool.count / active : target->pool.count;
    return share < HELD_MIN ? HELD_MIN : share;
}

void sl_target_schedule_run(struct sl_target *target)
{
    if (!target->ring)
        return;
    unsigned share = share_of_pool(target);
    struct session *starved = NULL; /* the first that found the pool empty */
    bool gave = true;
    while (gave && target->ring) {
        struct session *last = target->ring->ring_prev, *session;
        gave = false;
        do {
            session = target->ring;
            target->ring = session->ring_next;
            enum turn turn = take_turn(session, share);
            gave |= turn == TURN_GAVE;
            if (turn == TURN_NO_BUFFER && !starved)
                starved = session;
        } while (target->ring && session != last);
    }
    if (starved) {
        COUNT(target, pool_waits, 1);
        target->ring = starved; /* its turn first when a buffer is back */
    }
    for (unsigned i = 0; i < target->worker_count; i++)
        sl_target_mailbox_post(&target->workers[i].box, &target->workers[i].given);
}

/* --- coming back ----------------------------------------------------------------------------- */

static void transfer_answered(struct piece *piece)
{
    struct lane *lane = piece->carrier;
    piece->carrier = NULL;
    if (lane)
        sl_target_lane_moved(lane);
}

void sl_target_piece_taken(struct piece *piece)
{
    transfer_answered(piece);
    sl_target_answer_taken(piece->session, piece->block.slot);
}

void sl_target_piece_release(struct piece *piece)
{
    sl_target_pool_give(piece->pool, piece->buffer);
    piece->buffer = NULL;
    piece->session->held--;
}

void sl_target_piece_over(struct piece *piece)
{
    transfer_answered(piece);
    if (piece->keep && !piece->code && piece->object->state == OBJECT_WRITING) {
        sl_target_growing_arrived(piece);
        return;
    }
    sl_target_piece_release(piece);
    if (piece->lost && piece->object->state != OBJECT_DROPPED && piece->attempts < ATTEMPTS_MAX)
        sl_target_schedule_again(piece);
    else
        (piece->out ? sl_target_reading_over : sl_target_writing_over)(piece);
}
