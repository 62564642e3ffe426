/* Inside the TCP lane: the state both ends share, and what its files offer one another.
 *
 *   tcp_frame    header bytes ↔ struct (pure)
 *   tcp_io       the socket: a ring of frames going out, one frame coming in
 *   tcp_active   the target's end: requests, their answers
 *   tcp_passive  the client's end: serving them
 *   tcp_lane     states, process(), close(), free()
 *   tcp_rail     connecting, accepting
 *
 * Data are sent from and received into registered memory directly; only headers are copied.
 */
#ifndef SL_TRANSPORT_TCP_INTERNAL_H
#define SL_TRANSPORT_TCP_INTERNAL_H

#include "core/transport/net.h"
#include "core/transport/tcp.h"

#define TCP_HEAD_BYTES 24
#define TCP_DEPTH_MAX  128
/* Most bytes that one process() call moves each way, so that one lane cannot starve a loop. */
#define TCP_BUDGET_BYTES (4u * SL_SLOT_BYTES_MAX)

enum tcp_op { TCP_PULL = 1, TCP_PULLED, TCP_PUSH, TCP_NOTICE, TCP_REFUSED };

struct tcp_frame {
    uint8_t op; /* enum tcp_op, once checked */
    uint32_t bytes;
    uint64_t offset, tag;
};

void tcp_frame_encode(const struct tcp_frame *frame, uint8_t head[TCP_HEAD_BYTES]);
/* False: not a frame (unknown op, reserved bytes set). */
bool tcp_frame_decode(const uint8_t head[TCP_HEAD_BYTES], struct tcp_frame *frame);

/*  OPEN ──refused a request──> DRAINING ─┐
 *    └──close, error, end of file────────┴─> CLOSING ──all answered──> CLOSED
 * In DRAINING the passive end sends its REFUSED and reads away what still comes: closing at once
 * would reset the connection, and the peer could lose the answer (tcp(7), RFC 2525 §2.17). From
 * CLOSING on no memory is touched and the socket is shut down. */
enum tcp_state { TCP_OPEN, TCP_DRAINING, TCP_CLOSING, TCP_CLOSED };

/* A frame on its way out, or the hello. */
struct tcp_out {
    uint8_t head[SL_LANE_HELLO_BYTES], head_bytes;
    uint8_t op;          /* enum tcp_op; 0: the hello */
    uint16_t work;       /* active: the work of a PULL or PUSH */
    const uint8_t *data; /* after the head; borrowed from a region */
    uint32_t data_bytes;
};

/* A pull or push that was posted and not yet answered. */
struct tcp_work {
    bool used, is_pull;
    bool asked;          /* pull: the request has left, so an answer can come */
    uint16_t generation; /* so that an answer given twice is not taken for a new one's */
    int code;            /* how to answer when the lane closes, 0: SL_ERR_CLOSED */
    uint8_t *sink;
    uint32_t bytes;
    uint64_t context, offset, tag;
};

struct tcp_lane {
    struct sl_lane lane;
    bool is_active;
    bool ready_due; /* passive: SL_LANE_READY was not given yet */
    enum tcp_state state;
    int code; /* for SL_LANE_CLOSED */
    char peer[SL_NET_NAME_BYTES];

    struct tcp_out *out; /* ring; room for all that the depth allows */
    unsigned out_head, out_count, out_room;
    size_t out_sent; /* bytes of the first that were sent */

    uint8_t head[TCP_HEAD_BYTES];
    size_t head_have;
    struct tcp_frame in; /* whose body is awaited, if body_left */
    uint8_t *body;       /* where its next byte goes */
    size_t body_left;
    uint8_t notice[SL_NOTICE_BYTES];
    uint64_t drained;

    /* active */
    struct tcp_work *works; /* `depth` of them */
    uint16_t *unused, unused_count;
    uint16_t notices; /* posted, not yet answered */
};

struct tcp_events {
    struct sl_lane_event *at;
    size_t count, max;
};

static inline struct tcp_lane *tcp_of(struct sl_lane *lane)
{
    return (struct tcp_lane *)lane;
}

static inline bool tcp_events_full(const struct tcp_events *events)
{
    return events->count == events->max;
}

static inline void tcp_event(struct tcp_events *events, enum sl_lane_event_kind kind, int code,
                             uint64_t context)
{
    events->at[events->count++] =
        (struct sl_lane_event){.kind = kind, .code = code, .context = context};
}

/* tcp_lane: makes a lane of a connected socket, which it takes on success only. */
int tcp_lane_new(int fd, struct sl_domain *domain, const struct sl_lane_hello *hello,
                 uint16_t depth, bool is_active, struct tcp_lane **ret_lane, struct sl_err *err);
/* Begin to close (the first reason stays). */
void tcp_fail(struct tcp_lane *tcp, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void tcp_want(struct tcp_lane *tcp); /* set lane.events_wanted by the state */

/* tcp_io */
struct tcp_out *tcp_out_new(struct tcp_lane *tcp); /* NULL: the ring is full */
struct tcp_out *tcp_out_frame(struct tcp_lane *tcp, const struct tcp_frame *frame,
                              const uint8_t *data); /* data of frame->bytes, or NULL */
void tcp_send(struct tcp_lane *tcp, struct tcp_events *events);
void tcp_receive(struct tcp_lane *tcp, struct tcp_events *events);
void tcp_drain(struct tcp_lane *tcp);

/* tcp_active, tcp_passive: what came in. `_begin`: a header; sets body and body_left, or fails
 * the lane. `_end`: its body is complete; adds at most one event. */
void tcp_active_begin(struct tcp_lane *tcp);
void tcp_active_end(struct tcp_lane *tcp, struct tcp_events *events);
void tcp_active_sent(struct tcp_lane *tcp, const struct tcp_out *out, struct tcp_events *events);
/* Answers one more piece of work of a closing lane; false: none is left. */
bool tcp_active_give_up(struct tcp_lane *tcp, struct tcp_events *events);
void tcp_passive_begin(struct tcp_lane *tcp);
void tcp_passive_end(struct tcp_lane *tcp, struct tcp_events *events);

int tcp_pull(struct sl_lane *lane, struct sl_local to, const struct sl_remote *memory,
             uint64_t offset, uint32_t bytes, uint64_t context);
int tcp_push(struct sl_lane *lane, struct sl_local from, const struct sl_remote *memory,
             uint64_t offset, uint32_t bytes, uint64_t context);
int tcp_notice(struct sl_lane *lane, const uint8_t notice[SL_NOTICE_BYTES]);

#endif
