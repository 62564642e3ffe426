/* The life of a TCP lane: made of a connected socket, driven by process(), closed, freed. Both
 * ends; what differs between them is in tcp_active.c and tcp_passive.c. */
#include "core/transport/tcp_internal.h"

#include "core/base/alloc.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void tcp_want(struct tcp_lane *tcp)
{
    short wanted = 0;
    if (tcp->state != TCP_CLOSED)
        wanted = POLLIN;
    if ((tcp->out_count && tcp->state <= TCP_DRAINING) || tcp->ready_due)
        wanted |= POLLOUT;
    tcp->lane.events_wanted = wanted;
}

void tcp_fail(struct tcp_lane *tcp, int code, const char *fmt, ...)
{
    bool refused = code == SL_ERR_DENIED && !tcp->is_active;
    if (tcp->state == TCP_OPEN) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(tcp->lane.reason, sizeof tcp->lane.reason, fmt, args);
        va_end(args);
        tcp->code = code;
    }
    if (tcp->state >= TCP_CLOSING)
        return;
    tcp->state = refused ? TCP_DRAINING : TCP_CLOSING;
    if (!refused)
        /* makes the socket readable, so that the owner's poll(2) comes back to process() */
        (void)shutdown(tcp->lane.fd, SHUT_RDWR);
}

/* Both ways, as far as it goes without waiting. */
static void transfer(struct tcp_lane *tcp, struct tcp_events *events)
{
    tcp_receive(tcp, events);
    if (tcp->state <= TCP_DRAINING)
        tcp_send(tcp, events);
    if (tcp->state == TCP_DRAINING) {
        if (!tcp->out_count)
            (void)shutdown(tcp->lane.fd, SHUT_WR); /* the peer sees REFUSED, then the end */
        tcp_drain(tcp);
    }
}

static void finish(struct tcp_lane *tcp, struct tcp_events *events)
{
    while (!tcp_events_full(events)) {
        if (tcp->is_active && tcp_active_give_up(tcp, events))
            continue;
        tcp_event(events, SL_LANE_CLOSED, tcp->code, 0);
        tcp->state = TCP_CLOSED;
        return;
    }
}

static size_t tcp_process(struct sl_lane *lane, struct sl_lane_event *at, size_t max)
{
    struct tcp_lane *tcp = tcp_of(lane);
    struct tcp_events events = {.at = at, .max = max};
    if (tcp->ready_due && max) {
        tcp->ready_due = false;
        tcp_event(&events, SL_LANE_READY, 0, 0);
    }
    if (tcp->state <= TCP_DRAINING)
        transfer(tcp, &events);
    if (tcp->state == TCP_CLOSING)
        finish(tcp, &events);
    tcp_want(tcp);
    return events.count;
}

static void tcp_close(struct sl_lane *lane, int code, const char *reason)
{
    struct tcp_lane *tcp = tcp_of(lane);
    if (tcp->state == TCP_OPEN) {
        tcp_fail(tcp, SL_ERR_CLOSED, "%s", reason);
        tcp->code = code;
    } else if (tcp->state == TCP_DRAINING) {
        (void)shutdown(lane->fd, SHUT_RDWR);
        tcp->state = TCP_CLOSING;
    }
    tcp_want(tcp);
}

static void tcp_free(struct sl_lane *lane)
{
    struct tcp_lane *tcp = tcp_of(lane);
    close(lane->fd);
    sl_free(tcp->out);
    sl_free(tcp->works);
    sl_free(tcp->unused);
    sl_free(tcp);
}

static void tcp_info(const struct sl_lane *lane, struct sl_lane_info *info)
{
    *info = (struct sl_lane_info){.transport = "tcp", .depth = lane->depth};
    int mtu;
    socklen_t bytes = sizeof mtu;
    /* the path's MTU as the kernel knows it (ip(7)) */
    if (getsockopt(lane->fd, IPPROTO_IP, IP_MTU, &mtu, &bytes) == 0 && mtu > 0)
        info->mtu = (uint32_t)mtu;
    sl_net_local_name(lane->fd, info->local);
    snprintf(info->remote, sizeof info->remote, "%s", ((const struct tcp_lane *)lane)->peer);
}

static const struct sl_lane_ops tcp_lane_ops = {
    .name = "tcp",
    .pull = tcp_pull,
    .push = tcp_push,
    .notice = tcp_notice,
    .process = tcp_process,
    .close = tcp_close,
    .free = tcp_free,
    .info = tcp_info,
};

static bool works_new(struct tcp_lane *tcp, uint16_t depth)
{
    tcp->works = sl_calloc(depth, sizeof *tcp->works);
    tcp->unused = tcp->works ? sl_calloc(depth, sizeof *tcp->unused) : NULL;
    if (!tcp->unused)
        return false;
    for (uint16_t i = 0; i < depth; i++)
        tcp->unused[i] = (uint16_t)(depth - 1 - i);
    tcp->unused_count = depth;
    return true;
}

int tcp_lane_new(int fd, struct sl_domain *domain, const struct sl_lane_hello *hello,
                 uint16_t depth, bool is_active, struct tcp_lane **ret_lane, struct sl_err *err)
{
    struct tcp_lane *tcp = sl_calloc(1, sizeof *tcp);
    if (!tcp)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    tcp->lane = (struct sl_lane){.ops = &tcp_lane_ops,
                                 .domain = domain,
                                 .fd = fd,
                                 .depth = depth,
                                 .id = hello->lane,
                                 .session = hello->session,
                                 .rail_number = hello->rail};
    tcp->is_active = is_active;
    tcp->ready_due = !is_active;
    /* active: all works, as many notices, the hello; passive: an answer to each pull, REFUSED */
    tcp->out_room = is_active ? 2u * depth + 1 : depth + 1u;
    tcp->out = sl_calloc(tcp->out_room, sizeof *tcp->out);
    if (!tcp->out || (is_active && !works_new(tcp, depth))) {
        sl_free(tcp->out);
        sl_free(tcp->works);
        sl_free(tcp);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    }
    sl_net_peer_name(fd, tcp->peer);
    tcp_want(tcp);
    *ret_lane = tcp;
    return 0;
}
