/* The socket of a TCP lane: frames out of a ring, gathered into few calls, and one frame at a time
 * in, its body received straight to where it belongs. What frames mean is not known here. */
#include "core/transport/tcp_internal.h"

#include "core/base/fault.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define GATHER_FRAMES 16

/* --- out ------------------------------------------------------------------------------------- */

struct tcp_out *tcp_out_new(struct tcp_lane *tcp)
{
    if (tcp->out_count == tcp->out_room)
        return NULL;
    struct tcp_out *out = &tcp->out[(tcp->out_head + tcp->out_count++) % tcp->out_room];
    memset(out, 0, sizeof *out);
    return out;
}

struct tcp_out *tcp_out_frame(struct tcp_lane *tcp, const struct tcp_frame *frame,
                              const uint8_t *data)
{
    struct tcp_out *out = tcp_out_new(tcp);
    if (!out)
        return NULL;
    tcp_frame_encode(frame, out->head);
    out->head_bytes = TCP_HEAD_BYTES;
    out->op = frame->op;
    if (data) {
        out->data = data;
        out->data_bytes = frame->bytes;
    }
    return out;
}

static void add_piece(struct iovec *pieces, size_t *count, const uint8_t *start, size_t bytes,
                      size_t *skip)
{
    size_t skipped = *skip < bytes ? *skip : bytes;
    *skip -= skipped;
    if (bytes > skipped)
        /* sendmsg(2) only reads what the pointer names */
        pieces[(*count)++] = (struct iovec){(void *)(uintptr_t)(start + skipped), bytes - skipped};
}

/* The first `frames` of the ring, less what was sent of them, until `budget` is used up. */
static size_t gather(const struct tcp_lane *tcp, size_t frames, size_t budget, struct iovec *pieces)
{
    size_t count = 0, total = 0, skip = tcp->out_sent;
    for (size_t i = 0; i < frames && total < budget; i++) {
        const struct tcp_out *out = &tcp->out[(tcp->out_head + i) % tcp->out_room];
        add_piece(pieces, &count, out->head, out->head_bytes, &skip);
        add_piece(pieces, &count, out->data, out->data_bytes, &skip);
        total += out->head_bytes + out->data_bytes;
    }
    return count;
}

static void advance(struct tcp_lane *tcp, size_t sent, struct tcp_events *events)
{
    tcp->out_sent += sent;
    while (tcp->out_count) {
        const struct tcp_out *out = &tcp->out[tcp->out_head];
        size_t bytes = (size_t)out->head_bytes + out->data_bytes;
        if (tcp->out_sent < bytes)
            return;
        if (tcp->is_active)
            tcp_active_sent(tcp, out, events);
        tcp->out_sent -= bytes;
        tcp->out_head = (tcp->out_head + 1) % tcp->out_room;
        tcp->out_count--;
    }
}

/* The peer's last words (REFUSED) may still lie in the socket: they say more than the errno. */
static void send_failed(struct tcp_lane *tcp, int sys, struct tcp_events *events)
{
    tcp_receive(tcp, events);
    tcp_fail(tcp, SL_ERR_CLOSED, "could not send to %s: %s", tcp->peer, strerrordesc_np(sys));
}

/* Each frame adds one event at most, so as many are gathered as there is room for events. */
void tcp_send(struct tcp_lane *tcp, struct tcp_events *events)
{
    size_t budget = TCP_BUDGET_BYTES;
    while (tcp->out_count && budget) {
        struct iovec pieces[2 * GATHER_FRAMES];
        size_t frames = tcp->out_count < GATHER_FRAMES ? tcp->out_count : GATHER_FRAMES;
        if (tcp->is_active && frames > events->max - events->count)
            frames = events->max - events->count;
        if (!frames)
            return;
        struct msghdr message = {.msg_iov = pieces,
                                 .msg_iovlen = gather(tcp, frames, budget, pieces)};
        size_t wanted = 0;
        for (size_t i = 0; i < message.msg_iovlen; i++)
            wanted += pieces[i].iov_len;

        int sys = sl_fault("tcp.send");
        ssize_t n = sys ? -1 : sendmsg(tcp->lane.fd, &message, MSG_NOSIGNAL);
        if (n < 0) {
            sys = sys ? sys : errno;
            if (sys == EINTR)
                continue;
            if (sys != EAGAIN)
                send_failed(tcp, sys, events);
            return;
        }
        advance(tcp, (size_t)n, events);
        if ((size_t)n < wanted)
            return; /* the socket's buffer is full */
        budget -= (size_t)n < budget ? (size_t)n : budget;
    }
}

/* --- in -------------------------------------------------------------------------------------- */

/* recvmsg(2) into what is awaited: the rest of a body and the header after it, or a header. */
static ssize_t receive_some(struct tcp_lane *tcp, size_t *ret_wanted)
{
    struct iovec pieces[2];
    struct msghdr message = {.msg_iov = pieces};
    if (tcp->body_left)
        pieces[message.msg_iovlen++] = (struct iovec){tcp->body, tcp->body_left};
    pieces[message.msg_iovlen++] =
        (struct iovec){tcp->head + tcp->head_have, TCP_HEAD_BYTES - tcp->head_have};
    *ret_wanted = tcp->body_left + TCP_HEAD_BYTES - tcp->head_have;
    int sys = sl_fault("tcp.recv");
    if (sys) {
        errno = sys;
        return -1;
    }
    return recvmsg(tcp->lane.fd, &message, 0);
}

/* What a failed or empty receive means for the lane. */
static void receive_failed(struct tcp_lane *tcp, ssize_t n, int sys)
{
    if (n == 0)
        tcp_fail(tcp, SL_ERR_CLOSED, "%s closed the lane", tcp->peer);
    else if (sys != EAGAIN && sys != EINTR)
        tcp_fail(tcp, SL_ERR_CLOSED, "lane to %s lost: %s", tcp->peer, strerrordesc_np(sys));
}

static void frame_end(struct tcp_lane *tcp, struct tcp_events *events)
{
    if (tcp->is_active)
        tcp_active_end(tcp, events);
    else
        tcp_passive_end(tcp, events);
}

static void frame_begin(struct tcp_lane *tcp)
{
    tcp->head_have = 0;
    if (!tcp_frame_decode(tcp->head, &tcp->in))
        tcp_fail(tcp, SL_ERR_PROTOCOL, "%s sent what is not a frame", tcp->peer);
    else if (tcp->is_active)
        tcp_active_begin(tcp);
    else
        tcp_passive_begin(tcp);
}

static void consume(struct tcp_lane *tcp, size_t n, struct tcp_events *events)
{
    size_t of_body = n < tcp->body_left ? n : tcp->body_left;
    if (of_body) {
        tcp->body += of_body;
        tcp->body_left -= of_body;
        if (tcp->body_left)
            return;
        frame_end(tcp, events);
    }
    tcp->head_have += n - of_body;
    if (tcp->head_have == TCP_HEAD_BYTES && tcp->state == TCP_OPEN)
        frame_begin(tcp);
}

void tcp_receive(struct tcp_lane *tcp, struct tcp_events *events)
{
    size_t budget = TCP_BUDGET_BYTES;
    while (tcp->state == TCP_OPEN && budget && !tcp_events_full(events)) {
        size_t wanted;
        ssize_t n = receive_some(tcp, &wanted);
        if (n <= 0) {
            receive_failed(tcp, n, errno);
            return;
        }
        consume(tcp, (size_t)n, events);
        if ((size_t)n < wanted)
            return; /* nothing more is there now: poll(2) tells when */
        budget -= (size_t)n < budget ? (size_t)n : budget;
    }
}

void tcp_drain(struct tcp_lane *tcp)
{
    /* more than an honest peer can have had in flight */
    uint64_t limit = (tcp->lane.depth + 1ull) * 2 * SL_SLOT_BYTES_MAX;
    for (size_t done = 0; done < TCP_BUDGET_BYTES && tcp->state == TCP_DRAINING;) {
        /* MSG_TRUNC: the bytes are discarded in the kernel (tcp(7)) */
        ssize_t n = recv(tcp->lane.fd, NULL, SL_SLOT_BYTES_MAX, MSG_TRUNC);
        if (n <= 0) {
            if (n == 0 || (errno != EAGAIN && errno != EINTR))
                tcp->state = TCP_CLOSING;
            return;
        }
        done += (size_t)n;
        tcp->drained += (uint64_t)n;
        if (tcp->drained > limit)
            tcp->state = TCP_CLOSING;
    }
}
