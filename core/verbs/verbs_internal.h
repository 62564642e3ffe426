/* Inside of core/verbs: devices, rails, lanes, and who calls whom.
 *
 *   device.c    one per ibv_context of the process: limits, asynchronous events, its lanes
 *   describe.c  devices and their addresses as text; RLIMIT_MEMLOCK
 *   rail.c      rails, domains, regions
 *   address.c   from host:port to a cm_id that is bound to a device and has a route
 *   queue.c     what a lane is made of: completion queue, queue pair, notice buffers
 *   opening.c   what both ends do to bring a lane up
 *   lane.c      the lane contract: work, completions, events, closing
 *   connect.c   the passive end comes up
 *   listen.c    the active end comes up
 *   grant.c     grants as bytes
 *
 * Lanes talk besides blocks in messages of 16 bytes (SEND):
 *
 *   target → client   a notice: its bytes are the user's
 *   client → target   a grant: u32 magic "SLg1", u32 n, u64 zero: n more notices may be sent
 *
 * The client's first message after the connection is established is a grant of all its receive
 * buffers. The target posts nothing before it: on iWARP the connecting side must send first
 * (rdma_connect(3); RFC 5044 §7.1.2), and here it does so everywhere. Later grants go out when half
 * of the buffers were used and posted anew, so a SEND always finds a buffer: on InfiniBand and
 * RoCE an RNR NAK never happens, and on iWARP, where a SEND without a buffer ends the connection,
 * a slow client costs nothing but time.
 *
 * On iWARP a few grants of nothing ("nudges") follow the first, each a little later. Linux' siw
 * answers a connection before it watches the socket for the queue pair (siw_accept()), so a first
 * message that comes at once can lie there unseen until the next one.
 */
#ifndef SL_VERBS_INTERNAL_H
#define SL_VERBS_INTERNAL_H

#include "core/transport/lane.h"
#include "core/verbs/grant.h"
#include "core/verbs/verbs_ops.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* The numbers that NCCL, SPDK and NFS/RDMA have settled on, but for the retries: a dead peer shows
 * after 2 to 8 s (retries × ACK timeout). They are 6, because Soft-RoCE never gives up at 7
 * (drivers/infiniband/sw/rxe/rxe_comp.c), and one less is nothing to an adapter. */
#define SL_VERBS_RETRY         6
#define SL_VERBS_ACK_TIMEOUT   16 /* 4.096 µs × 2^16 = 268 ms */
#define SL_VERBS_RNR_RETRY     6  /* finite: 7 means for ever and would hide a stuck peer */
#define SL_VERBS_MIN_RNR_TIMER 12 /* 0.64 ms; rdma_cm leaves 0, which is 655 ms */
#define SL_VERBS_READS_MAX     16 /* outstanding READs we ask for; older adapters serve 16 */
#define SL_VERBS_DEPTH_MAX     255
#define SL_VERBS_CQ_SPARE      16
#define SL_VERBS_GRANT_BUFFERS 4 /* client: grants in flight; at most two are ever unseen */
#define SL_VERBS_NUDGES        3
#define SL_VERBS_NUDGE_MS      10 /* until the first; ten times as long until each later one */
#define SL_VERBS_POLL          32
#define SL_VERBS_REFUSAL_BYTES 8

/* --- device.c -------------------------------------------------------------------------------- */

struct verbs_lane;

struct verbs_device {
    struct ibv_context *context;
    struct ibv_device_attr attr;
    bool iwarp;
    unsigned refs;             /* under the registry's lock */
    struct verbs_device *next; /* likewise */
    pthread_mutex_t lock;      /* all below, and the lanes' alarms */
    bool fatal;
    struct verbs_lane *lanes;
};

/* The process's device for `context`, made at the first call. Returns owned (sl_verbs_device_put).
 */
int sl_verbs_device_get(struct ibv_context *context, struct verbs_device **ret_device,
                        struct sl_err *err);
void sl_verbs_device_put(struct verbs_device *device);
/* Let the device tell `lane` what befalls it, until removed. SL_ERR_DEVICE if it has failed. */
int sl_verbs_device_add(struct verbs_device *device, struct verbs_lane *lane);
void sl_verbs_device_remove(struct verbs_device *device, struct verbs_lane *lane);
/* Take what the asynchronous event fd holds and alarm the lanes concerned. Any thread. */
void sl_verbs_device_events(struct verbs_device *device);
/* ibv_fork_init(), once, before anything is registered; 0 or a code with a hint. */
int sl_verbs_fork_safe(struct sl_err *err);
/* A failed call of the verbs: SL_ERR_LIMIT with a hint on RLIMIT_MEMLOCK for ENOMEM. */
int sl_verbs_err(struct sl_err *err, int sys, const char *what);

/* --- rail.c ---------------------------------------------------------------------------------- */

struct verbs_rail {
    struct sl_rail base;
    struct verbs_device *device;
    uint8_t port;
    struct ibv_port_attr port_attr;
    atomic_uint refs;        /* its holder, its domains, its lanes */
    bool met;                /* made by a listener: sl_rail_ops.rail_free is not its end */
    struct verbs_rail *next; /* listener's list */
};

struct verbs_domain {
    struct sl_domain base;
    struct ibv_pd *pd;
    atomic_uint refs; /* its holder, its lanes: see connect.c on lanes that outlive it */
};

struct verbs_region {
    struct sl_region base;
    struct ibv_mr *mr;
};

extern const struct sl_rail_ops sl_verbs_rail_ops;

int sl_verbs_rail_new(struct ibv_context *context, uint8_t port, struct verbs_rail **ret_rail,
                      struct sl_err *err);
void sl_verbs_rail_hold(struct verbs_rail *rail);
void sl_verbs_rail_drop(struct verbs_rail *rail);
void sl_verbs_domain_hold(struct sl_domain *domain); /* and so its rail */
void sl_verbs_domain_drop(struct sl_domain *domain);

static inline struct verbs_rail *sl_verbs_rail(struct sl_rail *rail)
{
    return (struct verbs_rail *)rail;
}

static inline struct verbs_domain *sl_verbs_domain(struct sl_domain *domain)
{
    return (struct verbs_domain *)domain;
}

static inline struct verbs_region *sl_verbs_region(struct sl_region *region)
{
    return (struct verbs_region *)region;
}

/* --- address.c ------------------------------------------------------------------------------- */

/* An event channel whose fd does not block. */
int sl_verbs_channel_new(struct rdma_event_channel **ret_channel, struct sl_err *err);
/* The next event of `channel`, waiting as long as `to` says; the caller acknowledges it.
 * SL_ERR_TIMEOUT, SL_ERR_CANCELLED, SL_ERR_CONNECT. */
int sl_verbs_cm_wait(struct rdma_event_channel *channel, const struct sl_connect *to,
                     struct rdma_cm_event **ret_event, struct sl_err *err);
/* Tries the addresses of to->host in turn; `rail` NULL: any device will do, else only its port.
 * Returns owned a cm_id on `channel`, bound to a device, with a route. */
int sl_verbs_resolve(const struct sl_connect *to, const struct verbs_rail *rail,
                     struct rdma_event_channel *channel, struct rdma_cm_id **ret_id,
                     struct sl_err *err);
/* "10.99.0.1:7431", "[fe80::1]:7431"; returns `text`. */
const char *sl_verbs_address_text(const struct sockaddr *address, char *text, size_t bytes);

/* --- describe.c ------------------------------------------------------------------------------ */

int sl_verbs_describe(char *text, size_t bytes, struct sl_err *err);
int sl_verbs_memlock(size_t bytes, struct sl_err *err);
const char *sl_verbs_link_name(const struct verbs_device *device, const struct ibv_port_attr *port);
const char *sl_verbs_gid_name(const struct verbs_device *device, uint8_t port, uint32_t index);

/* --- queue.c, lane.c ------------------------------------------------------------------------- */

enum lane_state {
    LANE_OPENING, /* client: in rdma_connect; target: accepted, first grant not yet here */
    LANE_READY,
    LANE_DEAD, /* nothing of the device is left; events may be */
};

enum work_kind { WORK_PULL = 1, WORK_PUSH, WORK_SEND, WORK_RECV };

struct work {
    uint64_t context;
    enum work_kind kind;
    bool used;
};

struct verbs_lane {
    struct sl_lane base;
    struct verbs_rail *rail;
    bool active;
    enum lane_state state;
    bool established; /* CM said so; with the first grant, the target's end is ready */
    struct sl_lane_info info;

    /* the device's things; NULL or -1 once dead */
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_comp_channel *comp;
    struct ibv_cq *cq;
    struct ibv_qp *qp;  /* id->qp */
    int wake_fd;        /* eventfd: an alarm, or events to fetch */
    bool armed;         /* the CQ will raise an event */
    unsigned cq_events; /* to acknowledge: ibv_destroy_cq waits for that */

    /* under device->lock */
    struct verbs_lane *device_next;
    int alarm; /* code, 0 none */
    char alarm_reason[96];

    /* blocks */
    struct work *works; /* base.depth of them */
    uint16_t *free_works, free_count;
    bool moved; /* some block has come through */

    /* 16-byte messages: one page, `sends` then `recvs` of them */
    uint8_t *messages;
    size_t messages_bytes;
    struct ibv_mr *messages_mr;
    uint16_t sends, recvs;
    uint64_t send_tail, send_posted, send_head; /* queued, posted, completed: numbers of messages */
    uint64_t credits;                           /* target: SENDs that will find a buffer */
    uint32_t ungranted; /* client: buffers posted anew since the last grant */
    uint32_t nudges;    /* client: sent, target: seen */
    int nudge_fd;       /* client, iWARP: timerfd of the next one; else -1 */

    /* why it dies: the first cause that says something */
    int fail_code;
    bool fail_weak; /* a flush: look for the real cause */
    char fail_reason[160];

    struct sl_lane_event *events; /* a ring */
    size_t event_room, event_head, event_count;
};

extern const struct sl_lane_ops sl_verbs_lane_ops;

/* Take what the fds and the CQ hold, into the ring. */
void sl_verbs_lane_look(struct verbs_lane *lane);
/* The end: QP, cm_id and all else of the device are destroyed, work is answered, CLOSED queued. */
void sl_verbs_lane_die(struct verbs_lane *lane, int code, const char *reason);
/* Client, established: the first grant goes out, READY is the first event. */
int sl_verbs_lane_greet(struct verbs_lane *lane, struct sl_err *err);
/* Client, iWARP: the next nudge, and the timer of the one after it. */
void sl_verbs_lane_nudge(struct verbs_lane *lane);
/* Under device->lock; any thread. */
void sl_verbs_lane_alarm(struct verbs_lane *lane, int code, const char *reason);

/* queue.c */
int sl_verbs_queues_new(struct verbs_lane *lane, struct rdma_cm_id *id, struct sl_err *err);
void sl_verbs_queues_free(struct verbs_lane *lane); /* QP must be gone */
/* Each 0 or an errno value. Numbers of messages count from 0 for ever. */
int sl_verbs_post_recv(struct verbs_lane *lane, uint16_t index);
int sl_verbs_post_message(struct verbs_lane *lane, uint64_t number);
int sl_verbs_post_block(struct verbs_lane *lane, uint16_t index, const struct sl_local *local,
                        uint64_t address, uint32_t key, uint32_t bytes);
uint8_t *sl_verbs_send_buffer(struct verbs_lane *lane, uint64_t number);
uint8_t *sl_verbs_recv_buffer(struct verbs_lane *lane, uint16_t index);

static inline uint64_t sl_verbs_wr_id(enum work_kind kind, uint16_t index)
{
    return (uint64_t)kind << 16 | index;
}

/* opening.c */
/* A lane with queue pair on `id` (bound to the rail's device) and receives posted; `id` stays the
 * caller's. `depth` becomes lane->depth; number and rail come from `hello`. */
int sl_verbs_lane_new(struct sl_domain *domain, struct rdma_cm_id *id, bool active, uint16_t depth,
                      const struct sl_lane_hello *hello, struct verbs_lane **ret_lane,
                      struct sl_err *err);
/* Undo lane_new; before sl_verbs_lane_take. */
void sl_verbs_lane_discard(struct verbs_lane *lane, struct rdma_cm_id *id);
/* Memory and fds, when nothing of the device is left. */
void sl_verbs_lane_release(struct verbs_lane *lane);
/* The lane becomes the owner of both, watches the channel, and hears of the device; also if it
 * fails. From here on sl_lane_free() ends it. */
int sl_verbs_lane_take(struct verbs_lane *lane, struct rdma_event_channel *channel,
                       struct rdma_cm_id *id, struct sl_err *err);
/* Connected: RNR timer; addresses and path for info(). */
void sl_verbs_lane_connected(struct verbs_lane *lane);
void sl_verbs_ack_timeout(struct rdma_cm_id *id);

/* --- connect.c, listen.c --------------------------------------------------------------------- */

int sl_verbs_connect(struct sl_rail *rail, struct sl_domain *domain, const struct sl_connect *to,
                     uint8_t reply[SL_LANE_HELLO_BYTES], struct sl_lane **ret_lane,
                     struct sl_err *err);
int sl_verbs_listen(const struct sl_listen *listen, struct sl_listener **ret_listener,
                    struct sl_err *err);
/* A refusal travels as private data of the reject: u32 magic "SLr1", u16 code, u16 zero. */
#define SL_VERBS_REFUSAL_MAGIC 0x31724c53u

static inline uint8_t sl_verbs_reads(int device_limit, unsigned wanted)
{
    unsigned limit = device_limit < 0 ? 0 : (unsigned)device_limit;
    if (limit > SL_VERBS_READS_MAX)
        limit = SL_VERBS_READS_MAX;
    return (uint8_t)(wanted < limit ? wanted : limit);
}

#endif
