/* Loopback lanes: pull and push are a memcpy on the active end's thread, events wait in a ring
 * until process() fetches them. The reference of the lane contract. Not a transport between
 * processes.
 *
 * One lock per pair guards all that both ends touch, the copying included: so the passive end's
 * close() and free() wait for a copy that runs, and none runs after them.
 */
#include "core/transport/loopback.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/transport/memory.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define DEPTH_MAX 128

enum side { PASSIVE, ACTIVE };

struct pair;

struct end {
    struct sl_lane lane;
    struct pair *pair;
    enum side side;
    /* all below: guarded by pair->lock */
    bool signalled;             /* fd is readable */
    bool told;                  /* SL_LANE_CLOSED was given */
    uint16_t works, notices;    /* active: posted, not yet answered by an event */
    unsigned head, count, room; /* the ring of events */
    struct sl_lane_event *ring;
};

struct pair {
    pthread_mutex_t lock;
    bool open;
    bool by_self[2]; /* that end's owner closed it */
    int code[2];     /* for each end's SL_LANE_CLOSED */
    char reason[2][sizeof((struct sl_lane *)0)->reason];
    struct end *ends[2]; /* NULL once freed */
};

static struct end *end_of(struct sl_lane *lane)
{
    return (struct end *)lane;
}

/* --- with the lock held ---------------------------------------------------------------------- */

static void signal_end(struct end *end)
{
    static const uint64_t one = 1;
    if (!end || end->signalled)
        return;
    /* cannot fail: the counter is 0 or 1 (eventfd(2)) */
    if (write(end->lane.fd, &one, sizeof one) == (ssize_t)sizeof one)
        end->signalled = true;
}

static void unsignal_end(struct end *end)
{
    uint64_t count;
    if (end->signalled && read(end->lane.fd, &count, sizeof count) == (ssize_t)sizeof count)
        end->signalled = false;
}

/* The ring has room for every event that can be outstanding, by the depth limits. */
static void queue_event(struct end *end, struct sl_lane_event event)
{
    end->ring[(end->head + end->count++) % end->room] = event;
    signal_end(end);
}

static void shut(struct pair *pair, enum side by, bool by_owner, int code, const char *reason,
                 int peer_code, const char *peer_reason)
{
    if (!pair->open)
        return;
    enum side peer = by == ACTIVE ? PASSIVE : ACTIVE;
    pair->open = false;
    pair->by_self[by] = by_owner;
    pair->code[by] = code;
    snprintf(pair->reason[by], sizeof pair->reason[by], "%s", reason);
    pair->code[peer] = peer_code;
    snprintf(pair->reason[peer], sizeof pair->reason[peer], "%s", peer_reason);
    signal_end(pair->ends[by]);
    signal_end(pair->ends[peer]);
}

static void deny(struct pair *pair)
{
    shut(pair, ACTIVE, false, SL_ERR_DENIED, "the peer's memory does not hold that range",
         SL_ERR_DENIED, "the peer asked for memory that is not its to use");
}

/* --- active end ------------------------------------------------------------------------------ */

static int start(struct sl_lane *lane, bool is_pull, struct sl_local local,
                 const struct sl_remote *memory, uint64_t offset, uint32_t bytes, uint64_t context)
{
    struct end *end = end_of(lane);
    struct pair *pair = end->pair;
    if (end->side != ACTIVE)
        return SL_ERR_UNSUPPORTED;
    if (!sl_memory_is_local(lane->domain, local, bytes))
        return SL_ERR_LIMIT;

    int rc = 0;
    pthread_mutex_lock(&pair->lock);
    if (!pair->open) {
        rc = SL_ERR_CLOSED;
    } else if (end->works == lane->depth) {
        rc = SL_ERR_BUSY;
    } else {
        struct sl_lane_event event = {.kind = is_pull ? SL_LANE_PULLED : SL_LANE_PUSHED,
                                      .context = context};
        uint8_t *theirs = sl_memory_reach(pair->ends[PASSIVE]->lane.domain, memory->key,
                                          sl_memory_address(memory, offset), bytes,
                                          is_pull ? SL_ACCESS_PULLED : SL_ACCESS_PUSHED);
        if (!theirs)
            event.code = SL_ERR_DENIED;
        else if (is_pull)
            memcpy(local.start, theirs, bytes);
        else
            memcpy(theirs, local.start, bytes);
        end->works++;
        queue_event(end, event);
        if (!theirs)
            deny(pair);
    }
    pthread_mutex_unlock(&pair->lock);
    return rc;
}

static int loopback_pull(struct sl_lane *lane, struct sl_local to, const struct sl_remote *memory,
                         uint64_t offset, uint32_t bytes, uint64_t context)
{
    return start(lane, true, to, memory, offset, bytes, context);
}

static int loopback_push(struct sl_lane *lane, struct sl_local from, const struct sl_remote *memory,
                         uint64_t offset, uint32_t bytes, uint64_t context)
{
    return start(lane, false, from, memory, offset, bytes, context);
}

static int loopback_notice(struct sl_lane *lane, const uint8_t notice[SL_NOTICE_BYTES])
{
    struct end *end = end_of(lane);
    struct pair *pair = end->pair;
    if (end->side != ACTIVE)
        return SL_ERR_UNSUPPORTED;
    int rc = 0;
    pthread_mutex_lock(&pair->lock);
    if (!pair->open) {
        rc = SL_ERR_CLOSED;
    } else if (end->notices == lane->depth) {
        rc = SL_ERR_BUSY;
    } else {
        struct sl_lane_event event = {.kind = SL_LANE_NOTICE};
        memcpy(event.notice, notice, SL_NOTICE_BYTES);
        end->notices++;
        queue_event(pair->ends[PASSIVE], event);
    }
    pthread_mutex_unlock(&pair->lock);
    return rc;
}

/* --- both ends ------------------------------------------------------------------------------- */

static struct sl_lane_event next_event(struct end *end)
{
    struct sl_lane_event event = end->ring[end->head];
    end->head = (end->head + 1) % end->room;
    end->count--;
    if (event.kind == SL_LANE_PULLED || event.kind == SL_LANE_PUSHED)
        end->works--;
    else if (event.kind == SL_LANE_NOTICED)
        end->notices--;
    else if (event.kind == SL_LANE_NOTICE && end->pair->open)
        /* only now is the notice's place free again: that is the flow control */
        queue_event(end->pair->ends[ACTIVE], (struct sl_lane_event){.kind = SL_LANE_NOTICED});
    return event;
}

/* The events of a pair that is shut, one a call; false after SL_LANE_CLOSED. */
static bool last_event(struct end *end, struct sl_lane_event *event)
{
    struct pair *pair = end->pair;
    if (end->told)
        return false;
    if (end->notices) {
        end->notices--;
        *event = (struct sl_lane_event){.kind = SL_LANE_NOTICED, .code = SL_ERR_CLOSED};
        return true;
    }
    *event = (struct sl_lane_event){.kind = SL_LANE_CLOSED, .code = pair->code[end->side]};
    memcpy(end->lane.reason, pair->reason[end->side], sizeof end->lane.reason);
    end->told = true;
    return true;
}

static size_t loopback_process(struct sl_lane *lane, struct sl_lane_event *events, size_t max)
{
    struct end *end = end_of(lane);
    struct pair *pair = end->pair;
    size_t n = 0;
    pthread_mutex_lock(&pair->lock);
    unsignal_end(end);
    if (end->side == PASSIVE && pair->by_self[PASSIVE])
        end->count = 0; /* its owner wants no more notices */
    while (n < max && end->count)
        events[n++] = next_event(end);
    while (n < max && !pair->open && last_event(end, &events[n]))
        n++;
    if (end->count || (!pair->open && !end->told))
        signal_end(end);
    pthread_mutex_unlock(&pair->lock);
    return n;
}

static void loopback_close(struct sl_lane *lane, int code, const char *reason)
{
    struct end *end = end_of(lane);
    pthread_mutex_lock(&end->pair->lock);
    shut(end->pair, end->side, true, code, reason, SL_ERR_CLOSED, "closed by the peer");
    pthread_mutex_unlock(&end->pair->lock);
}

static void loopback_free(struct sl_lane *lane)
{
    struct end *end = end_of(lane);
    struct pair *pair = end->pair;
    pthread_mutex_lock(&pair->lock);
    shut(pair, end->side, true, SL_ERR_CLOSED, "freed", SL_ERR_CLOSED, "closed by the peer");
    pair->ends[end->side] = NULL;
    bool last = !pair->ends[PASSIVE] && !pair->ends[ACTIVE];
    pthread_mutex_unlock(&pair->lock);
    if (last) {
        pthread_mutex_destroy(&pair->lock);
        sl_free(pair);
    }
    close(lane->fd);
    sl_free(end->ring);
    sl_free(end);
}

static void loopback_info(const struct sl_lane *lane, struct sl_lane_info *info)
{
    *info = (struct sl_lane_info){
        .transport = "local", .local = "local", .remote = "local", .depth = lane->depth};
}

static const struct sl_lane_ops lane_ops = {
    .name = "local",
    .pull = loopback_pull,
    .push = loopback_push,
    .notice = loopback_notice,
    .process = loopback_process,
    .close = loopback_close,
    .free = loopback_free,
    .info = loopback_info,
};

/* --- making them ----------------------------------------------------------------------------- */

static int end_new(struct pair *pair, enum side side, struct sl_domain *domain, uint16_t lane_id,
                   uint16_t depth, struct sl_err *err)
{
    struct end *end = sl_calloc(1, sizeof *end);
    /* active: an answer to every work and every notice; passive: the notices and READY */
    unsigned room = 2u * depth + 1;
    struct sl_lane_event *ring = end ? sl_calloc(room, sizeof *ring) : NULL;
    if (!ring) {
        sl_free(end);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    }
    int fault = sl_fault("loopback.eventfd");
    int fd = fault ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) {
        int sys = fault ? fault : errno;
        sl_free(ring);
        sl_free(end);
        return sl_err_sys(err, SL_ERR_LIMIT, sys, "could not make an eventfd");
    }
    *end = (struct end){.lane = {.ops = &lane_ops,
                                 .domain = domain,
                                 .fd = fd,
                                 .events_wanted = POLLIN,
                                 .depth = depth,
                                 .id = lane_id},
                        .pair = pair,
                        .side = side,
                        .room = room,
                        .ring = ring};
    pair->ends[side] = end;
    return 0;
}

int sl_loopback_pair(struct sl_domain *client, struct sl_domain *target, uint16_t lane_id,
                     uint16_t depth, struct sl_lane **ret_passive, struct sl_lane **ret_active,
                     struct sl_err *err)
{
    depth = depth < 1 ? 1 : depth > DEPTH_MAX ? DEPTH_MAX : depth;
    struct pair *pair = sl_calloc(1, sizeof *pair);
    if (!pair)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    pthread_mutex_init(&pair->lock, NULL);
    pair->open = true;
    int rc = end_new(pair, PASSIVE, client, lane_id, depth, err);
    if (rc) {
        pthread_mutex_destroy(&pair->lock);
        sl_free(pair);
        return rc;
    }
    rc = end_new(pair, ACTIVE, target, lane_id, depth, err);
    if (rc) {
        loopback_free(&pair->ends[PASSIVE]->lane);
        return rc;
    }
    queue_event(pair->ends[PASSIVE], (struct sl_lane_event){.kind = SL_LANE_READY});
    *ret_passive = &pair->ends[PASSIVE]->lane;
    *ret_active = &pair->ends[ACTIVE]->lane;
    return 0;
}

static int no_resolve(const struct sl_connect *to, struct sl_rail **ret_rail, struct sl_err *err)
{
    (void)ret_rail;
    return sl_err_set(err, SL_ERR_UNSUPPORTED, "loopback cannot reach host \"%s\"", to->host);
}

static int no_connect(struct sl_rail *rail, struct sl_domain *domain, const struct sl_connect *to,
                      uint8_t reply[SL_LANE_HELLO_BYTES], struct sl_lane **ret_lane,
                      struct sl_err *err)
{
    (void)rail, (void)domain, (void)reply, (void)ret_lane;
    return sl_err_set(err, SL_ERR_UNSUPPORTED, "loopback cannot reach host \"%s\"", to->host);
}

static void rail_free(struct sl_rail *rail)
{
    sl_free(rail);
}

static const struct sl_rail_ops rail_ops = {
    .name = "local",
    .resolve = no_resolve,
    .connect = no_connect,
    .domain_new = sl_memory_domain_new,
    .domain_free = sl_memory_domain_free,
    .region_new = sl_memory_region_new,
    .region_free = sl_memory_region_free,
    .rail_free = rail_free,
};

int sl_loopback_rail_new(struct sl_rail **ret_rail, struct sl_err *err)
{
    struct sl_rail *rail = sl_calloc(1, sizeof *rail);
    if (!rail)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    *rail = (struct sl_rail){.ops = &rail_ops, .max_depth = DEPTH_MAX, .label = "local"};
    *ret_rail = rail;
    return 0;
}
