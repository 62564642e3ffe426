/* The target's end of a TCP lane: posts requests, takes the answers. */
#include "core/transport/memory.h"
#include "core/transport/tcp_internal.h"

#include <string.h>

static uint64_t tag_of(uint32_t key, const struct tcp_lane *tcp, uint16_t index)
{
    uint32_t number = (uint32_t)tcp->works[index].generation << 16 | index;
    return (uint64_t)key << 32 | number;
}

static int start(struct sl_lane *lane, bool is_pull, struct sl_local local,
                 const struct sl_remote *memory, uint64_t offset, uint32_t bytes, uint64_t context)
{
    struct tcp_lane *tcp = tcp_of(lane);
    if (!tcp->is_active)
        return SL_ERR_UNSUPPORTED;
    if (tcp->state != TCP_OPEN)
        return SL_ERR_CLOSED;
    if (!sl_memory_is_local(lane->domain, local, bytes))
        return SL_ERR_LIMIT;
    if (!tcp->unused_count)
        return SL_ERR_BUSY;

    uint16_t index = tcp->unused[tcp->unused_count - 1];
    struct tcp_work *work = &tcp->works[index];
    struct tcp_frame frame = {.op = is_pull ? TCP_PULL : TCP_PUSH,
                              .bytes = bytes,
                              .offset = sl_memory_address(memory, offset),
                              .tag = tag_of(memory->key, tcp, index)};
    struct tcp_out *out = tcp_out_frame(tcp, &frame, is_pull ? NULL : local.start);
    if (!out)
        return SL_ERR_BUSY;
    out->work = index;
    tcp->unused_count--;
    *work = (struct tcp_work){.used = true,
                              .is_pull = is_pull,
                              .generation = work->generation,
                              .sink = local.start,
                              .bytes = bytes,
                              .context = context,
                              .offset = frame.offset,
                              .tag = frame.tag};
    tcp_want(tcp);
    return 0;
}

int tcp_pull(struct sl_lane *lane, struct sl_local to, const struct sl_remote *memory,
             uint64_t offset, uint32_t bytes, uint64_t context)
{
    return start(lane, true, to, memory, offset, bytes, context);
}

int tcp_push(struct sl_lane *lane, struct sl_local from, const struct sl_remote *memory,
             uint64_t offset, uint32_t bytes, uint64_t context)
{
    return start(lane, false, from, memory, offset, bytes, context);
}

int tcp_notice(struct sl_lane *lane, const uint8_t notice[SL_NOTICE_BYTES])
{
    struct tcp_lane *tcp = tcp_of(lane);
    if (!tcp->is_active)
        return SL_ERR_UNSUPPORTED;
    if (tcp->state != TCP_OPEN)
        return SL_ERR_CLOSED;
    if (tcp->notices == lane->depth)
        return SL_ERR_BUSY;
    struct tcp_frame frame = {.op = TCP_NOTICE, .bytes = SL_NOTICE_BYTES};
    struct tcp_out *out = tcp_out_frame(tcp, &frame, NULL);
    if (!out)
        return SL_ERR_BUSY;
    memcpy(out->head + TCP_HEAD_BYTES, notice, SL_NOTICE_BYTES);
    out->head_bytes = TCP_HEAD_BYTES + SL_NOTICE_BYTES;
    tcp->notices++;
    tcp_want(tcp);
    return 0;
}

static void answer(struct tcp_lane *tcp, struct tcp_work *work, int code, struct tcp_events *events)
{
    tcp_event(events, work->is_pull ? SL_LANE_PULLED : SL_LANE_PUSHED, code, work->context);
    work->used = false;
    work->generation++;
    tcp->unused[tcp->unused_count++] = (uint16_t)(work - tcp->works);
}

void tcp_active_sent(struct tcp_lane *tcp, const struct tcp_out *out, struct tcp_events *events)
{
    struct tcp_work *work = &tcp->works[out->work];
    if (out->op == TCP_PULL) {
        work->asked = true;
    } else if (out->op == TCP_PUSH) {
        answer(tcp, work, 0, events);
    } else if (out->op == TCP_NOTICE) {
        tcp->notices--;
        tcp_event(events, SL_LANE_NOTICED, 0, 0);
    }
}

/* The work that a tag of the peer's means, or NULL. */
static struct tcp_work *work_of(struct tcp_lane *tcp, uint64_t tag)
{
    uint16_t index = (uint16_t)tag;
    if (index >= tcp->lane.depth)
        return NULL;
    struct tcp_work *work = &tcp->works[index];
    return work->used && work->tag == tag ? work : NULL;
}

void tcp_active_begin(struct tcp_lane *tcp)
{
    const struct tcp_frame *in = &tcp->in;
    struct tcp_work *work = work_of(tcp, in->tag);
    if (in->op == TCP_REFUSED) {
        /* a push may have been answered long before: "pushed" says nothing of the peer */
        if (work)
            work->code = SL_ERR_DENIED;
        tcp_fail(tcp, SL_ERR_DENIED, "%s refused access to its memory", tcp->peer);
    } else if (in->op == TCP_PULLED && work && work->is_pull && work->asked &&
               work->bytes == in->bytes && work->offset == in->offset) {
        tcp->body = work->sink;
        tcp->body_left = in->bytes;
    } else {
        tcp_fail(tcp, SL_ERR_PROTOCOL, "%s sent an answer that was not asked for", tcp->peer);
    }
}

void tcp_active_end(struct tcp_lane *tcp, struct tcp_events *events)
{
    answer(tcp, work_of(tcp, tcp->in.tag), 0, events);
}

bool tcp_active_give_up(struct tcp_lane *tcp, struct tcp_events *events)
{
    if (tcp->notices) {
        tcp->notices--;
        tcp_event(events, SL_LANE_NOTICED, SL_ERR_CLOSED, 0);
        return true;
    }
    for (uint16_t i = 0; i < tcp->lane.depth && tcp->unused_count < tcp->lane.depth; i++) {
        struct tcp_work *work = &tcp->works[i];
        if (work->used) {
            answer(tcp, work, work->code ? work->code : SL_ERR_CLOSED, events);
            return true;
        }
    }
    return false;
}
