/* The control thread's side of lanes: who may open one, where it is served, its end. The worker
 * owns the sl_lane itself. */
#include "core/target/target_internal.h"

#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/transport/loopback.h"

#include <stdio.h>

static enum sl_transport_kind kind_of(const struct sl_target *target, const struct sl_rail *rail)
{
    return rail == target->local_rail ? SL_TRANSPORT_LOCAL
           : rail == target->tcp_rail ? SL_TRANSPORT_TCP
                                      : SL_TRANSPORT_RDMA;
}

/* The pool that lanes of this rail move blocks with. */
static int pool_for(struct session *session, struct sl_rail *rail, struct pool **ret_pool,
                    struct pool_rail **ret_pool_rail, struct sl_err *err)
{
    struct pool *pool = &session->target->pool;
    if (rail->own_sink) {
        pool = &session->sink;
        int rc = pool->memory ? 0 : sl_target_pool_init(pool, SINK_BLOCKS, err);
        if (rc)
            return rc;
    }
    *ret_pool = pool;
    return sl_target_pool_meet(pool, rail, ret_pool_rail, err);
}

static bool number_used(const struct session *session, uint16_t id)
{
    return session->lanes_used[id / 8] & (1u << (id % 8));
}

/* Checks that do not depend on how the lane comes; marks its number as used. */
static int admit(struct session *session, struct sl_rail *rail, uint16_t id,
                 struct sl_domain **ret_domain, struct sl_err *err)
{
    struct pool *pool;
    struct pool_rail *pool_rail;
    enum sl_transport_kind kind = kind_of(session->target, rail);
    if (number_used(session, id))
        return sl_err_set(err, SL_ERR_PROTOCOL, "lane number %u was used before", id);
    if (session->kind != SL_TRANSPORT_AUTO && session->kind != kind && session->any_object)
        return sl_err_set(err, SL_ERR_PROTOCOL, "a session's lanes are of one kind");
    if (session->lane_count >= 2 * session->target->config.lanes_per_session)
        return sl_err_set(err, SL_ERR_LIMIT, "too many lanes");
    int rc = pool_for(session, rail, &pool, &pool_rail, err);
    if (rc)
        return rc;
    session->lanes_used[id / 8] |= (uint8_t)(1u << (id % 8));
    *ret_domain = pool_rail->domain;
    return 0;
}

int sl_target_lane_admit(struct sl_target *target, struct sl_rail *rail,
                         const struct sl_lane_hello *hello, struct sl_domain **ret_domain,
                         uint8_t reply[SL_LANE_HELLO_BYTES], struct sl_err *err)
{
    struct session *session = sl_target_session_find(target, &hello->session);
    if (!session || !sl_lane_hello_verify(hello, session->lane_key, 'c'))
        return sl_err_set(err, SL_ERR_DENIED, "a lane that belongs to no session");
    if (hello->rail >= RAILS_MAX)
        return sl_err_set(err, SL_ERR_PROTOCOL, "rail %u is out of range", hello->rail);
    int rc = admit(session, rail, hello->lane, ret_domain, err);
    if (rc)
        return rc;
    struct sl_lane_hello own = *hello;
    own.flags = 0;
    own.depth = (uint8_t)(target->config.depth > UINT8_MAX ? UINT8_MAX : target->config.depth);
    sl_lane_hello_sign(&own, session->lane_key, 't');
    sl_lane_hello_encode(&own, reply);
    return 0;
}

static struct worker *worker_choose(struct sl_target *target)
{
    struct worker *best = &target->workers[0];
    for (unsigned i = 1; i < target->worker_count; i++)
        if (target->workers[i].lane_count < best->lane_count)
            best = &target->workers[i];
    return best;
}

/* The session's lanes are of another kind than this one: it was tried first and did not do. */
static void kind_set(struct session *session, enum sl_transport_kind kind)
{
    if (session->kind != kind && session->kind != SL_TRANSPORT_AUTO)
        sl_target_lane_close_all(session);
    session->kind = kind;
}

void sl_target_lane_add(struct session *session, struct sl_lane *sl_lane)
{
    struct sl_target *target = session->target;
    struct sl_rail *rail = sl_lane->domain->rail;
    struct pool_rail *pool_rail;
    struct pool *pool;
    struct lane *lane = sl_calloc(1, sizeof *lane);
    if (!lane || session->state != SESSION_LIVE || sl_lane->rail_number >= RAILS_MAX ||
        pool_for(session, rail, &pool, &pool_rail, NULL) != 0) {
        sl_free(lane);
        sl_lane_free(sl_lane);
        return;
    }
    kind_set(session, kind_of(target, rail));
    lane->mail.kind = MAIL_LANE;
    lane->close_mail.kind = MAIL_LANE_CLOSE;
    lane->session = session;
    lane->lane = sl_lane;
    lane->pool = pool;
    lane->region = pool_rail->region;
    lane->id = sl_lane->id;
    lane->rail = sl_lane->rail_number;
    lane->depth =
        (uint16_t)(sl_lane->depth < target->config.depth ? sl_lane->depth : target->config.depth);
    lane->sealed = sl_seal_decided(session->seal_wanted, target->config.seal, session->kind);
    lane->worker = worker_choose(target);
    lane->worker->lane_count++;
    lane->up = true;
    lane->next = session->lanes;
    session->lanes = lane;
    session->lane_count++;
    struct sl_lane_info info = {0};
    sl_lane->ops->info(sl_lane, &info);
    sl_log(SL_LOG_DETAIL, "target", "%s: lane %u over %s%s%s%s", session->label, lane->id,
           info.transport, info.device[0] ? " " : "", info.device, lane->sealed ? ", sealed" : "");
    sl_target_mailbox_post_one(&lane->worker->box, &lane->mail);
    struct sl_msg msg = {.type = SL_MSG_LANE_UP};
    msg.lane_up.lane = lane->id;
    msg.lane_up.rail = lane->rail;
    sl_target_answer(session, &msg);
}

/* --- the end of a lane ----------------------------------------------------------------------- */

void sl_target_lane_close(struct lane *lane)
{
    lane->up = false;
    if (lane->gone || lane->close_sent)
        return;
    lane->close_sent = true;
    sl_target_mailbox_post_one(&lane->worker->box, &lane->close_mail);
}

void sl_target_lane_close_all(struct session *session)
{
    for (struct lane *lane = session->lanes; lane; lane = lane->next)
        sl_target_lane_close(lane);
}

static void lane_settle(struct lane *lane)
{
    if (!lane->gone || lane->in_flight || lane->close_sent)
        return;
    for (struct lane **at = &lane->session->lanes; *at; at = &(*at)->next)
        if (*at == lane) {
            *at = lane->next;
            break;
        }
    sl_free(lane);
}

void sl_target_lane_moved(struct lane *lane)
{
    lane->in_flight--;
    lane_settle(lane);
}

void sl_target_lane_close_seen(struct lane *lane)
{
    lane->close_sent = false;
    lane_settle(lane);
}

void sl_target_lane_gone(struct lane *lane)
{
    struct session *session = lane->session;
    lane->gone = true;
    lane->up = false;
    lane->worker->lane_count--;
    session->lane_count--;
    if (session->state == SESSION_LIVE) {
        sl_log(SL_LOG_DETAIL, "target", "%s: lane %u is down: %s", session->label, lane->id,
               lane->reason);
        COUNT(session->target, lanes_lost, 1);
        struct sl_msg msg = {.type = SL_MSG_LANE_DOWN};
        msg.lane_down.lane = lane->id;
        snprintf(msg.lane_down.reason, sizeof msg.lane_down.reason, "%s", lane->reason);
        sl_target_answer_flush(session); /* SENTs of this lane go before */
        sl_target_answer(session, &msg);
    }
    lane_settle(lane);
}

void sl_target_lane_down_arrived(struct session *session, uint16_t id)
{
    for (struct lane *lane = session->lanes; lane; lane = lane->next)
        if (lane->id == id)
            sl_target_lane_close(lane);
}

void sl_target_memory_arrived(struct session *session, const struct sl_msg_memory *memory)
{
    struct sl_remote remote = {memory->address, memory->key, memory->length};
    uint16_t rail = memory->rail;
    uint8_t access = memory->access;
    bool pushed = access == SL_ACCESS_PUSHED;
    uint32_t slots = pushed ? session->slots - session->slots_pulled : session->slots_pulled;
    if (rail >= RAILS_MAX) {
        sl_target_session_violation(session, "rail %u is out of range", rail);
        return;
    }
    if (access != SL_ACCESS_PULLED && !pushed) {
        sl_target_session_violation(session, "memory of unknown access %u", access);
        return;
    }
    struct sl_remote *known = &session->memory[rail][pushed];
    if (remote.length < (uint64_t)slots * SL_BLOCK_BYTES) {
        sl_target_session_violation(session, "the memory is too small for the slots");
    } else if ((session->memory_set[rail] & access) &&
               (known->address != remote.address || known->key != remote.key ||
                known->length != remote.length)) {
        sl_target_session_violation(session, "the memory of rail %u was changed", rail);
    } else {
        *known = remote;
        session->memory_set[rail] |= access;
        session->any_memory |= sl_target_memory_whole(session, rail);
    }
}

bool sl_target_memory_whole(const struct session *session, uint16_t rail)
{
    return session->memory_wanted &&
           (session->memory_set[rail] & session->memory_wanted) == session->memory_wanted;
}

/* --- lanes of an embedded target -------------------------------------------------------------- */

int sl_target_lane_local(struct sl_target *target, struct ask *ask, struct sl_err *err)
{
    struct local_ask *local = CONTAINER(ask, struct local_ask, ask);
    struct session *session = sl_target_session_find(target, &local->session);
    struct sl_domain *domain;
    struct sl_lane *active;
    if (!session)
        return sl_err_set(err, SL_ERR_CLOSED, "the session has ended");
    int rc = admit(session, target->local_rail, local->lane_id, &domain, err);
    if (rc)
        return rc;
    rc = sl_loopback_pair(local->client_domain, domain, local->lane_id,
                          (uint16_t)target->config.depth, &local->passive, &active, err);
    if (rc)
        return rc;
    sl_target_lane_add(session, active);
    return 0;
}
