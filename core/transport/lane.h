/* The lane contract: what every transport (loopback, tcp, verbs) does, and how it is used.
 *
 * A lane is one data connection between a client and a target. It moves blocks and nothing else:
 *
 *   pull    the target reads bytes from the client's exposed memory into its own (RDMA READ)
 *   push    the target writes bytes from its own memory into the client's (RDMA WRITE)
 *   notice  the target sends a few bytes; they arrive after the bytes of every push posted
 *           before it on the same lane (SEND on the same queue pair)
 *
 * Only the target starts work; the client's end serves. Who is who is fixed when the lane is
 * made: sl_rail_connect() makes the client's end ("passive"), a listener the target's ("active").
 *
 * Objects, and who owns them:
 *
 *   rail    one way to reach the peer: an RDMA device port, or TCP. Made by the program at start
 *           (listener side) or for one session (client side). Outlives everything made from it.
 *   domain  a protection domain of a rail: memory registered in it can be used by the lanes made
 *           in it and no others. Client: one per session. Target: one shared, or one per session
 *           where rail->own_sink is set (iWARP, whose READ sink must be remotely writable).
 *   region  registered memory of a domain.
 *   lane    as above. A lane has one owning thread at a time: only that thread calls its
 *           functions. Handing a lane to another thread is allowed while nothing is posted.
 *
 * Life of a lane: connecting → ready → closing → closed. Work posted is answered by exactly one
 * event each, also when the lane dies (then with a failure code); after SL_LANE_CLOSED no event
 * follows, no memory of its is touched any more, and the lane may be freed. No buffer or slot may
 * be reused before its work was answered, and, for the passive end, before SL_LANE_CLOSED.
 *
 * Nothing here blocks but the functions that say so. Deadlines for posted work are the caller's:
 * it closes the lane when they pass.
 */
#ifndef SL_TRANSPORT_LANE_H
#define SL_TRANSPORT_LANE_H

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/wire/message.h"

#include <stddef.h>
#include <stdint.h>

#define SL_NOTICE_BYTES 16 /* exactly; what they mean is the user's business */

enum sl_access {
    SL_ACCESS_LOCAL,  /* sink of own pulls, source of own pushes: never reachable by the peer,
                         but on iWARP, where a pull's sink must be (see rail->own_sink) */
    SL_ACCESS_PULLED, /* the peer may pull from it, not write */
    SL_ACCESS_PUSHED, /* the peer may push into it */
    SL_ACCESS_BOTH = SL_ACCESS_PULLED | SL_ACCESS_PUSHED, /* no slot of Sluice's is */
};

struct sl_rail;
struct sl_domain;
struct sl_region;
struct sl_lane;
struct sl_listener;

/* What the peer needs to reach a region; travels in MEMORY. */
struct sl_remote {
    uint64_t address; /* of the region's first byte, as the peer must name it */
    uint32_t key;
    uint64_t length;
};

/* A piece of a local region. */
struct sl_local {
    struct sl_region *region;
    void *start; /* inside the region */
};

enum sl_lane_event_kind {
    SL_LANE_READY,   /* passive end only, its first event: connected and accepted by the target */
    SL_LANE_PULLED,  /* `context` of the pull, `code` 0 or why not */
    SL_LANE_PUSHED,  /* the source buffer may be reused; says nothing of the peer */
    SL_LANE_NOTICED, /* active end, one for each notice: it no longer counts for the depth */
    SL_LANE_NOTICE,  /* passive end: `notice` arrived */
    SL_LANE_CLOSED,  /* last event; `code` and lane->reason say why */
};

struct sl_lane_event {
    enum sl_lane_event_kind kind;
    int code; /* 0 or a negative enum sl_code */
    uint64_t context;
    uint8_t notice[SL_NOTICE_BYTES];
};

/* Filled by a transport for `sluice check` and the log. */
struct sl_lane_info {
    char transport[16]; /* "tcp", "rdma", "local" */
    char device[32];    /* "mlx5_0", "" for TCP */
    uint8_t port;
    char link_layer[16];        /* "Ethernet", "InfiniBand", "iWARP", "" */
    char gid_type[16];          /* "RoCE v2", "RoCE v1", "IB", "" */
    uint32_t mtu;               /* path MTU in bytes, 0 unknown */
    char local[64], remote[64]; /* addresses with ports */
    uint16_t depth;
};

struct sl_lane_ops {
    const char *name;
    /* Active end. 0, SL_ERR_BUSY (depth reached), SL_ERR_CLOSED, SL_ERR_LIMIT (length 0, beyond
     * SL_SLOT_BYTES_MAX, or outside the local region). A remote range that is not the peer's to
     * give fails the work with SL_ERR_DENIED and closes the lane. */
    int (*pull)(struct sl_lane *lane, struct sl_local to, const struct sl_remote *memory,
                uint64_t offset, uint32_t bytes, uint64_t context);
    int (*push)(struct sl_lane *lane, struct sl_local from, const struct sl_remote *memory,
                uint64_t offset, uint32_t bytes, uint64_t context);
    int (*notice)(struct sl_lane *lane, const uint8_t notice[SL_NOTICE_BYTES]);
    /* Do what can be done without waiting; fill up to `max` events. Returns their number; the
     * caller calls again until it returns less than `max`. Posting may only queue: call it (or
     * poll) after a batch. `fd` is ready whenever there is something for it to do, also after
     * close() and until SL_LANE_CLOSED was fetched. */
    size_t (*process)(struct sl_lane *lane, struct sl_lane_event *events, size_t max);
    /* Begin to close: posted work is answered with SL_ERR_CLOSED, then SL_LANE_CLOSED comes. May
     * be called in any state and more than once; the first reason stays. */
    void (*close)(struct sl_lane *lane, int code, const char *reason);
    /* Free a lane in any state. Implies that work not answered will never be; the memory is not
     * touched any more when it returns (a queue pair is destroyed first). NULL is allowed. */
    void (*free)(struct sl_lane *lane);
    void (*info)(const struct sl_lane *lane, struct sl_lane_info *info);
};

#define SL_SLOT_BYTES_MAX (SL_BLOCK_BYTES)

struct sl_lane {
    const struct sl_lane_ops *ops;
    struct sl_domain *domain;
    int fd;              /* poll for `events_wanted`; call process() when it is ready */
    short events_wanted; /* POLLIN, and POLLOUT while output is stuck; may change in any call */
    uint16_t depth;      /* most pulls plus pushes in flight; notices: as many again */
    uint16_t id;         /* number in the session, from the hello */
    uint8_t rail_number;
    struct sl_id session; /* active end: whose lane it is, from the hello that was admitted */
    void *user;           /* the owner's */
    char reason[160];     /* why it closed, "" before */
};

/* Decides on a lane that asks to be let in, from its hello, before anything is allocated for it.
 * On yes returns 0, and sets `*ret_domain` (made earlier, in the rail given; on an own_sink rail
 * the session's own) and `reply` (the target's hello, MAC included). */
typedef int (*sl_lane_admit)(void *arg, struct sl_rail *rail, const struct sl_lane_hello *hello,
                             const uint8_t *hello_bytes, struct sl_domain **ret_domain,
                             uint8_t reply[SL_LANE_HELLO_BYTES], struct sl_err *err);

struct sl_connect {
    const char *host, *port;
    const char *bind_address; /* or NULL */
    const uint8_t *hello;     /* SL_LANE_HELLO_BYTES */
    uint16_t depth;           /* wanted; clamped to what the device can */
    sl_deadline deadline;
    int traffic_class; /* IP TOS / traffic class 0..255, -1 leaves it alone */
    int cancel_fd;     /* readable: give up with SL_ERR_CANCELLED; 0 or less: there is none */
};

struct sl_rail_ops {
    const char *name; /* "tcp", "rdma" */
    /* Passive end. Two steps, because the domain must exist before the queue pair and the device
     * is known only once the address is resolved:
     * 1. resolve: blocks until the deadline, or cancelled; returns owned the rail that leads to
     * host:port. */
    int (*resolve)(const struct sl_connect *to, struct sl_rail **ret_rail, struct sl_err *err);
    /* 2. connect: blocks until accepted, refused, cancelled or past the deadline. `reply` receives
     * the target's hello (not yet checked: the caller checks its MAC and closes if it is wrong). */
    int (*connect)(struct sl_rail *rail, struct sl_domain *domain, const struct sl_connect *to,
                   uint8_t reply[SL_LANE_HELLO_BYTES], struct sl_lane **ret_lane,
                   struct sl_err *err);
    int (*domain_new)(struct sl_rail *rail, struct sl_domain **ret_domain, struct sl_err *err);
    void (*domain_free)(struct sl_domain *domain); /* no lane or region of it may be left */
    /* Any thread, also while lanes of the domain are live. The memory is borrowed. A region is
     * freed only when no live lane can be using it: for the client when its lanes have said
     * SL_LANE_CLOSED or were freed, for the target when no work on it is posted. */
    int (*region_new)(struct sl_domain *domain, void *start, size_t bytes, enum sl_access access,
                      struct sl_region **ret_region, struct sl_err *err);
    void (*region_free)(struct sl_region *region);
    void (*rail_free)(struct sl_rail *rail);
};

struct sl_rail {
    const struct sl_rail_ops *ops;
    bool own_sink; /* pulls need a sink the peer could write: give each session its own */
    uint16_t max_depth;
    char label[80]; /* "rdma rxe0/1", "tcp" for logs */
    void *user;     /* the owner's (the target keeps its shared domain and pool here) */
};

struct sl_domain {
    struct sl_rail *rail;
};

struct sl_region {
    struct sl_domain *domain;
    uint8_t *start;
    size_t bytes;
    struct sl_remote remote; /* what to tell the peer */
};

/* Active end, RDMA. (TCP lanes arrive on the control port: sl_tcp_lane_accept.) One thread owns a
 * listener; `fd` is polled for POLLIN. accept() takes what is pending without waiting: returns
 * 1 and a lane that is ready, 0 when nothing is complete yet, or a negative code for an attempt
 * that failed (already cleaned up; keep going). */
struct sl_listener_ops {
    int (*accept)(struct sl_listener *listener, struct sl_lane **ret_lane, struct sl_err *err);
    void (*free)(struct sl_listener *listener);
};

struct sl_listener {
    const struct sl_listener_ops *ops;
    int fd;
    uint16_t port;
};

struct sl_listen {
    const char *address; /* or NULL: all */
    uint16_t port;       /* 0: any, see listener->port */
    sl_lane_admit admit;
    void *admit_arg;
    /* called once for each rail met, by listen() for those that are ready, else before the first
     * admit with it, so that the owner can make its shared domain; a failure refuses the lane, and
     * it is called again for the next */
    int (*rail_met)(void *arg, struct sl_rail *rail, struct sl_err *err);
    uint16_t depth;
    uint32_t half_open_max; /* attempts that have not completed, in all */
    uint32_t handshake_ms;  /* and how long each may take */
};

/* A transport that is loaded at run time exports one symbol, sluice_transport, of this type. */
#define SL_TRANSPORT_ABI 1
struct sl_transport_plugin {
    uint32_t abi; /* SL_TRANSPORT_ABI */
    const struct sl_rail_ops *rail;
    int (*listen)(const struct sl_listen *listen, struct sl_listener **ret_listener,
                  struct sl_err *err);
    /* What this host has, for `check`, WELCOME and the log: "rxe0/1 Ethernet 4096 active, …".
     * 0, or an error saying why RDMA cannot be used (no device, no permission, memlock). */
    int (*describe)(char *text, size_t bytes, struct sl_err *err);
    /* RLIMIT_MEMLOCK check: would `bytes` of registered memory fit? 0, or SL_ERR_LIMIT with the
     * exact figure needed and how to set it. */
    int (*memlock)(size_t bytes, struct sl_err *err);
};

/* Inline wrappers, so that call sites read well. */
static inline int sl_lane_pull(struct sl_lane *lane, struct sl_local to,
                               const struct sl_remote *memory, uint64_t offset, uint32_t bytes,
                               uint64_t context)
{
    return lane->ops->pull(lane, to, memory, offset, bytes, context);
}

static inline int sl_lane_push(struct sl_lane *lane, struct sl_local from,
                               const struct sl_remote *memory, uint64_t offset, uint32_t bytes,
                               uint64_t context)
{
    return lane->ops->push(lane, from, memory, offset, bytes, context);
}

static inline int sl_lane_notice(struct sl_lane *lane, const uint8_t notice[SL_NOTICE_BYTES])
{
    return lane->ops->notice(lane, notice);
}

static inline size_t sl_lane_process(struct sl_lane *lane, struct sl_lane_event *events, size_t max)
{
    return lane->ops->process(lane, events, max);
}

static inline void sl_lane_close(struct sl_lane *lane, int code, const char *reason)
{
    lane->ops->close(lane, code, reason);
}

static inline void sl_lane_free(struct sl_lane *lane)
{
    if (lane)
        lane->ops->free(lane);
}

#endif
