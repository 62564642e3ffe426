/* The client's end of a TCP lane: serves pulls from, and takes pushes into, the regions of its
 * domain. Never starts anything itself. */
#include "core/transport/memory.h"
#include "core/transport/tcp_internal.h"

#include <string.h>

/* Answers REFUSED and closes: whoever names a wrong range once is not asked a second time. What
 * had not begun to leave is dropped; a frame that had must be finished, or REFUSED would be taken
 * for its data. */
static void refuse(struct tcp_lane *tcp)
{
    tcp->out_count = tcp->out_sent ? 1 : 0;
    const struct tcp_frame refused = {.op = TCP_REFUSED, .tag = tcp->in.tag};
    (void)tcp_out_frame(tcp, &refused, NULL); /* the ring has at least two places */
    tcp_fail(tcp, SL_ERR_DENIED, "%s asked for memory that is not its to use", tcp->peer);
}

static uint8_t *reach(struct tcp_lane *tcp, enum sl_access access)
{
    const struct tcp_frame *in = &tcp->in;
    return sl_memory_reach(tcp->lane.domain, (uint32_t)(in->tag >> 32), in->offset, in->bytes,
                           access);
}

static void begin_pull(struct tcp_lane *tcp)
{
    uint8_t *start = reach(tcp, SL_ACCESS_PULLED);
    if (!start) {
        refuse(tcp);
        return;
    }
    const struct tcp_frame answer = {
        .op = TCP_PULLED, .bytes = tcp->in.bytes, .offset = tcp->in.offset, .tag = tcp->in.tag};
    if (tcp->out_count >= tcp->lane.depth || !tcp_out_frame(tcp, &answer, start))
        tcp_fail(tcp, SL_ERR_PROTOCOL, "%s asked for more at once than agreed", tcp->peer);
}

static void begin_push(struct tcp_lane *tcp)
{
    uint8_t *start = reach(tcp, SL_ACCESS_PUSHED);
    if (!start) {
        refuse(tcp);
        return;
    }
    tcp->body = start;
    tcp->body_left = tcp->in.bytes;
}

void tcp_passive_begin(struct tcp_lane *tcp)
{
    const struct tcp_frame *in = &tcp->in;
    bool sized = in->bytes > 0 && in->bytes <= SL_SLOT_BYTES_MAX;
    if (in->op == TCP_PULL && sized) {
        begin_pull(tcp);
    } else if (in->op == TCP_PUSH && sized) {
        begin_push(tcp);
    } else if (in->op == TCP_NOTICE && in->bytes == SL_NOTICE_BYTES && !in->offset && !in->tag) {
        tcp->body = tcp->notice;
        tcp->body_left = SL_NOTICE_BYTES;
    } else {
        tcp_fail(tcp, SL_ERR_PROTOCOL, "%s sent a frame that is not allowed", tcp->peer);
    }
}

void tcp_passive_end(struct tcp_lane *tcp, struct tcp_events *events)
{
    if (tcp->in.op != TCP_NOTICE)
        return;
    tcp_event(events, SL_LANE_NOTICE, 0, 0);
    memcpy(events->at[events->count - 1].notice, tcp->notice, SL_NOTICE_BYTES);
}
