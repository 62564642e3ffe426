/* The lane contract over one RC queue pair.
 *
 * A lane that fails or is closed dies at once: its queue pair is moved to the error state and
 * destroyed, which is the only promise verbs give that no memory is touched any more (a lost
 * completion would leave us waiting for a flush); then all posted work is answered from our own
 * books. Making lanes is connect.c's and listen.c's.
 *
 * MTU trouble (a path that does not carry the adapter's MTU, or loss without flow control) shows
 * as IBV_WC_RETRY_EXC_ERR, or the caller's deadline, on the first full block, while the 16-byte
 * messages have passed; the reason then says so.
 */
#include "core/verbs/verbs_internal.h"

#include "core/base/alloc.h"
#include "core/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

static struct verbs_lane *lane_of(struct sl_lane *lane)
{
    return (struct verbs_lane *)lane;
}

static const struct verbs_lane *const_lane_of(const struct sl_lane *lane)
{
    return (const struct verbs_lane *)lane;
}

/* --- events ---------------------------------------------------------------------------------- */

static struct sl_lane_event *add_event(struct verbs_lane *lane, enum sl_lane_event_kind kind,
                                       int code, uint64_t context)
{
    size_t at = (lane->event_head + lane->event_count++) % lane->event_room;
    lane->events[at] = (struct sl_lane_event){.kind = kind, .code = code, .context = context};
    return &lane->events[at];
}

static size_t take_events(struct verbs_lane *lane, struct sl_lane_event *events, size_t max)
{
    size_t count = 0;
    while (count < max && lane->event_count) {
        events[count++] = lane->events[lane->event_head];
        lane->event_head = (lane->event_head + 1) % lane->event_room;
        lane->event_count--;
    }
    return count;
}

static void wake(struct verbs_lane *lane)
{
    uint64_t one = 1;
    ssize_t n = write(lane->wake_fd, &one, sizeof one); /* full: it is awake */
    (void)n;
}

void sl_verbs_lane_alarm(struct verbs_lane *lane, int code, const char *reason)
{
    if (lane->alarm == 0) {
        lane->alarm = code;
        snprintf(lane->alarm_reason, sizeof lane->alarm_reason, "%s", reason);
    }
    wake(lane);
}

/* --- failing --------------------------------------------------------------------------------- */

/* The first cause stays; a flush is an echo of something else, so it may be replaced. */
static void fail(struct verbs_lane *lane, int code, bool weak, const char *reason)
{
    if (lane->fail_code != 0 && !(lane->fail_weak && !weak))
        return;
    lane->fail_code = code;
    lane->fail_weak = weak;
    snprintf(lane->fail_reason, sizeof lane->fail_reason, "%s", reason);
}

static int wc_code(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_SUCCESS:
        return 0;
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_INV_RD_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
        return SL_ERR_DENIED;
    case IBV_WC_WR_FLUSH_ERR:
        return SL_ERR_CLOSED;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_REM_ABORT_ERR:
        return SL_ERR_TIMEOUT;
    case IBV_WC_LOC_LEN_ERR:
        return SL_ERR_PROTOCOL; /* a message longer than 16 bytes */
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
        return SL_ERR_INTERNAL;
    default:
        return SL_ERR_DEVICE;
    }
}

static const char *work_name(enum work_kind kind)
{
    switch (kind) {
    case WORK_PULL:
        return "pull";
    case WORK_PUSH:
        return "push";
    case WORK_SEND:
        return "notice";
    case WORK_RECV:
        return "receive";
    }
    return "work";
}

static void fail_by_wc(struct verbs_lane *lane, const struct ibv_wc *wc, enum work_kind kind)
{
    char reason[160], mtu[80] = "";
    int code = wc_code(wc->status);
    if (code == SL_ERR_CLOSED) {
        fail(lane, code, true, "the queue pair was flushed: the peer closed, or its device failed");
        return;
    }
    if (wc->status == IBV_WC_RETRY_EXC_ERR && !lane->moved && kind != WORK_SEND)
        snprintf(mtu, sizeof mtu, "; no block ever came through: does the path carry MTU %" PRIu32,
                 lane->info.mtu);
    snprintf(reason, sizeof reason, "%s failed: %s (vendor error 0x%x)%s", work_name(kind),
             ibv_wc_status_str(wc->status), wc->vendor_err, mtu);
    fail(lane, code, false, reason);
}

/* --- completions ----------------------------------------------------------------------------- */

static void answer_work(struct verbs_lane *lane, uint16_t index, int code)
{
    struct work *work = &lane->works[index];
    add_event(lane, work->kind == WORK_PULL ? SL_LANE_PULLED : SL_LANE_PUSHED, code, work->context);
    work->used = false;
    lane->free_works[lane->free_count++] = index;
}

static void post_messages(struct verbs_lane *lane)
{
    while (lane->fail_code == 0 && lane->send_posted < lane->send_tail &&
           (!lane->active || lane->credits > 0)) {
        int rc = sl_verbs_post_message(lane, lane->send_posted);
        if (rc != 0) {
            char reason[96];
            snprintf(reason, sizeof reason, "could not post a notice: %s", strerror(rc));
            fail(lane, SL_ERR_DEVICE, false, reason);
            return;
        }
        lane->send_posted++;
        if (lane->active)
            lane->credits--;
    }
}

static void queue_grant(struct verbs_lane *lane, uint32_t count)
{
    sl_verbs_grant_encode(count, sl_verbs_send_buffer(lane, lane->send_tail));
    lane->send_tail++;
    post_messages(lane);
}

int sl_verbs_lane_greet(struct verbs_lane *lane, struct sl_err *err)
{
    lane->established = true;
    queue_grant(lane, lane->recvs);
    if (lane->fail_code != 0)
        return sl_err_set(err, lane->fail_code, "%s", lane->fail_reason);
    lane->state = LANE_READY;
    add_event(lane, SL_LANE_READY, 0, 0);
    wake(lane);
    if (lane->nudge_fd >= 0) {
        sl_verbs_lane_nudge(lane);
        /* The first is waited for: the caller need not drive the lane before it has a partner. */
        struct pollfd due = {.fd = lane->nudge_fd, .events = POLLIN};
        poll(&due, 1, 2 * SL_VERBS_NUDGE_MS);
        sl_verbs_lane_nudge(lane);
    }
    return 0;
}

void sl_verbs_lane_nudge(struct verbs_lane *lane)
{
    uint64_t expired;
    ssize_t n = read(lane->nudge_fd, &expired, sizeof expired);
    (void)n;
    if (lane->nudges > 0 && lane->send_tail - lane->send_head < lane->sends)
        queue_grant(lane, 0);
    uint64_t wait_ms = SL_VERBS_NUDGE_MS;
    for (uint32_t i = 0; i < lane->nudges; i++)
        wait_ms *= 10;
    struct itimerspec when = {.it_value = sl_deadline_timespec(sl_deadline_in_ms(wait_ms))};
    if (lane->nudges++ < SL_VERBS_NUDGES)
        timerfd_settime(lane->nudge_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

/* Client: tell the target of the buffers that were posted anew. */
static void grant(struct verbs_lane *lane)
{
    if (lane->ungranted * 2u < lane->recvs || lane->send_tail - lane->send_head >= lane->sends)
        return;
    uint32_t count = lane->ungranted;
    lane->ungranted = 0;
    queue_grant(lane, count);
}

static void take_grant(struct verbs_lane *lane, const uint8_t *bytes)
{
    uint32_t count = 0;
    int rc = sl_verbs_grant_decode(bytes, SL_NOTICE_BYTES, &count);
    if (rc == 0 && count == 0 && lane->nudges < SL_VERBS_NUDGES) {
        lane->nudges++;
        return;
    }
    if (rc != 0 || count == 0 || lane->credits + count > SL_VERBS_GRANT_MAX) {
        fail(lane, SL_ERR_PROTOCOL, false, "the client sent a malformed grant");
        return;
    }
    lane->credits += count;
    if (lane->state == LANE_OPENING && lane->established)
        lane->state = LANE_READY;
    post_messages(lane);
}

static void handle_receive(struct verbs_lane *lane, const struct ibv_wc *wc, uint16_t index)
{
    if (index >= lane->recvs || wc->byte_len != SL_NOTICE_BYTES || wc->opcode != IBV_WC_RECV) {
        fail(lane, SL_ERR_PROTOCOL, false, "the peer sent a message that is not 16 bytes long");
        return;
    }
    const uint8_t *bytes = sl_verbs_recv_buffer(lane, index);
    if (lane->active)
        take_grant(lane, bytes);
    else
        memcpy(add_event(lane, SL_LANE_NOTICE, 0, 0)->notice, bytes, SL_NOTICE_BYTES);
    /* Nothing can be posted on a queue pair that is about to be destroyed. */
    if (lane->fail_code != 0)
        return;
    int rc = sl_verbs_post_recv(lane, index);
    if (rc != 0) {
        char reason[96];
        snprintf(reason, sizeof reason, "could not post a receive: %s", strerror(rc));
        fail(lane, SL_ERR_DEVICE, false, reason);
        return;
    }
    if (!lane->active) {
        lane->ungranted++;
        grant(lane);
    }
}

static void handle_sent(struct verbs_lane *lane, int code)
{
    if (lane->send_head == lane->send_posted) {
        fail(lane, SL_ERR_INTERNAL, false, "the device completed a notice twice");
        return;
    }
    lane->send_head++; /* sends complete in order */
    if (lane->active)
        add_event(lane, SL_LANE_NOTICED, code, 0);
    else if (code == 0)
        grant(lane);
}

static void handle_wc(struct verbs_lane *lane, const struct ibv_wc *wc)
{
    enum work_kind kind = (enum work_kind)(wc->wr_id >> 16);
    uint16_t index = (uint16_t)(wc->wr_id & 0xffff);
    int code = wc_code(wc->status);
    if (code != 0)
        fail_by_wc(lane, wc, kind);
    switch (kind) {
    case WORK_PULL:
    case WORK_PUSH:
        if (!lane->active || index >= lane->base.depth || !lane->works[index].used) {
            fail(lane, SL_ERR_INTERNAL, false, "the device completed work that was not posted");
            return;
        }
        lane->moved |= code == 0;
        answer_work(lane, index, code);
        return;
    case WORK_SEND:
        handle_sent(lane, code);
        return;
    case WORK_RECV:
        if (code == 0)
            handle_receive(lane, wc, index);
        return;
    }
    fail(lane, SL_ERR_INTERNAL, false, "the device completed work that was not posted");
}

/* Returns whether there was anything. The ring has room for SL_VERBS_POLL events besides one for
 * each piece of work in flight. */
static bool poll_completions(struct verbs_lane *lane)
{
    struct ibv_wc wc[SL_VERBS_POLL];
    int n = sl_verbs->poll_cq(lane->cq, SL_VERBS_POLL, wc);
    if (n < 0)
        fail(lane, SL_ERR_DEVICE, false, "could not poll the completion queue");
    for (int i = 0; i < n; i++)
        handle_wc(lane, &wc[i]);
    return n > 0;
}

/* --- file descriptors ------------------------------------------------------------------------ */

static void take_cq_events(struct verbs_lane *lane)
{
    struct ibv_cq *cq;
    void *user;
    while (sl_verbs->get_cq_event(lane->comp, &cq, &user) == 0)
        lane->cq_events++;
    lane->armed = false;
    if (lane->cq_events >= 64) { /* a lock each time: in batches */
        sl_verbs->ack_cq_events(lane->cq, lane->cq_events);
        lane->cq_events = 0;
    }
}

static void arm(struct verbs_lane *lane)
{
    int rc = sl_verbs->req_notify_cq(lane->cq, 0);
    if (rc != 0)
        fail(lane, SL_ERR_DEVICE, false, "could not ask for RDMA completion events");
    lane->armed = true;
}

static void handle_cm_event(struct verbs_lane *lane, const struct rdma_cm_event *event)
{
    char reason[96];
    switch (event->event) {
    case RDMA_CM_EVENT_ESTABLISHED:
        lane->established = true;
        if (lane->credits > 0 && lane->state == LANE_OPENING)
            lane->state = LANE_READY;
        return;
    case RDMA_CM_EVENT_DISCONNECTED:
        fail(lane, SL_ERR_CLOSED, false, "closed by the peer");
        return;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        fail(lane, SL_ERR_DEVICE, false, "the RDMA device was removed");
        return;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        return;
    case RDMA_CM_EVENT_ADDR_CHANGE:
        sl_log(SL_LOG_DETAIL, "verbs", "the hardware address behind %s changed", lane->info.local);
        return;
    default:
        snprintf(reason, sizeof reason, "connection failed: %s (%d)", rdma_event_str(event->event),
                 event->status);
        fail(lane, SL_ERR_CONNECT, false, reason);
        return;
    }
}

static void take_cm_events(struct verbs_lane *lane)
{
    struct rdma_cm_event *event;
    while (sl_verbs->get_cm_event(lane->channel, &event) == 0) {
        handle_cm_event(lane, event);
        sl_verbs->ack_cm_event(event);
    }
    /* The channel of a vanished device would wake us for ever. */
    if (errno != EAGAIN && errno != EINTR)
        fail(lane, SL_ERR_DEVICE, true, "the RDMA event channel failed");
}

static void take_alarm(struct verbs_lane *lane)
{
    uint64_t count;
    ssize_t n = read(lane->wake_fd, &count, sizeof count);
    (void)n;
    pthread_mutex_lock(&lane->rail->device->lock);
    if (lane->alarm != 0)
        fail(lane, lane->alarm, false, lane->alarm_reason);
    pthread_mutex_unlock(&lane->rail->device->lock);
}

static void look_at_fds(struct verbs_lane *lane)
{
    struct epoll_event ready[5];
    int n = epoll_wait(lane->base.fd, ready, 5, 0);
    for (int i = 0; i < n; i++) {
        if (ready[i].data.fd == lane->wake_fd)
            take_alarm(lane);
        else if (ready[i].data.fd == lane->comp->fd)
            take_cq_events(lane);
        else if (ready[i].data.fd == lane->channel->fd)
            take_cm_events(lane);
        else if (ready[i].data.fd == lane->nudge_fd)
            sl_verbs_lane_nudge(lane);
        else
            sl_verbs_device_events(lane->rail->device);
    }
}

/* Why was it flushed? The connection manager or the device may know. */
static void seek_cause(struct verbs_lane *lane)
{
    sl_verbs_device_events(lane->rail->device);
    take_alarm(lane);
    if (lane->fail_weak)
        take_cm_events(lane);
}

static void die_of_failure(struct verbs_lane *lane)
{
    if (lane->fail_weak)
        seek_cause(lane);
    sl_verbs_lane_die(lane, lane->fail_code, lane->fail_reason);
}

void sl_verbs_lane_look(struct verbs_lane *lane)
{
    bool looked = false;
    while (lane->state != LANE_DEAD && lane->event_count == 0) {
        bool found = poll_completions(lane);
        if (lane->fail_code != 0) {
            die_of_failure(lane);
        } else if (found) {
            continue;
        } else if (!looked) {
            look_at_fds(lane);
            looked = true;
        } else if (!lane->armed) {
            arm(lane); /* and poll once more: one may have come just before */
        } else {
            return;
        }
    }
}

static size_t process(struct sl_lane *base, struct sl_lane_event *events, size_t max)
{
    struct verbs_lane *lane = lane_of(base);
    size_t count = 0;
    while (count < max) {
        size_t n = take_events(lane, events + count, max - count);
        count += n;
        if (n > 0)
            continue;
        sl_verbs_lane_look(lane);
        if (lane->event_count == 0)
            break;
    }
    /* A dead lane has no other way to say that there is more to fetch. */
    if (lane->state == LANE_DEAD && lane->event_count == 0) {
        uint64_t drained;
        ssize_t n = read(lane->wake_fd, &drained, sizeof drained);
        (void)n;
    }
    return count;
}

/* --- dying ----------------------------------------------------------------------------------- */

/* What completed before the queue pair fell is told as it was; the rest has not happened. */
static void drain(struct verbs_lane *lane)
{
    struct ibv_wc wc[SL_VERBS_POLL];
    int n;
    while ((n = sl_verbs->poll_cq(lane->cq, SL_VERBS_POLL, wc)) > 0)
        for (int i = 0; i < n; i++)
            handle_wc(lane, &wc[i]);
}

static void answer_rest(struct verbs_lane *lane)
{
    for (uint16_t i = 0; lane->active && i < lane->base.depth; i++)
        if (lane->works[i].used)
            answer_work(lane, i, SL_ERR_CLOSED);
    for (; lane->send_head < lane->send_tail; lane->send_head++)
        if (lane->active)
            add_event(lane, SL_LANE_NOTICED, SL_ERR_CLOSED, 0);
}

void sl_verbs_lane_die(struct verbs_lane *lane, int code, const char *reason)
{
    if (lane->state == LANE_DEAD)
        return;
    struct verbs_device *device = lane->rail->device;
    snprintf(lane->base.reason, sizeof lane->base.reason, "%s", reason);
    if (lane->fail_code == 0)
        fail(lane, code, false, reason); /* from here on nothing is posted */
    if (lane->id) {
        /* Queue pair to the error state, peer told. Before the connection is there, no work is
         * posted, and iWARP's connection manager would wait for it to come. */
        if (lane->established)
            sl_verbs->disconnect(lane->id);
        drain(lane);
        sl_verbs->destroy_qp(lane->id);
        drain(lane);
    }
    sl_verbs_device_remove(device, lane);
    epoll_ctl(lane->base.fd, EPOLL_CTL_DEL, device->context->async_fd, NULL);
    if (lane->nudge_fd >= 0)
        epoll_ctl(lane->base.fd, EPOLL_CTL_DEL, lane->nudge_fd, NULL);
    if (lane->id)
        sl_verbs->destroy_id(lane->id);
    if (lane->channel)
        sl_verbs->destroy_event_channel(lane->channel);
    lane->id = NULL;
    lane->qp = NULL;
    lane->channel = NULL;
    answer_rest(lane);
    sl_verbs_queues_free(lane);
    lane->state = LANE_DEAD;
    add_event(lane, SL_LANE_CLOSED, code, 0);
    wake(lane);
}

static void close_lane(struct sl_lane *base, int code, const char *reason)
{
    sl_verbs_lane_die(lane_of(base), code, reason);
}

static void free_lane(struct sl_lane *base)
{
    struct verbs_lane *lane = lane_of(base);
    sl_verbs_lane_die(lane, SL_ERR_CLOSED, "freed");
    sl_verbs_lane_release(lane);
}

/* --- work ------------------------------------------------------------------------------------ */

static bool inside(const struct sl_local *local, uint32_t bytes, const struct sl_lane *lane)
{
    const struct sl_region *region = local->region;
    if (!region || region->domain != lane->domain)
        return false;
    uintptr_t start = (uintptr_t)local->start, from = (uintptr_t)region->start;
    return start >= from && start - from <= region->bytes &&
           bytes <= region->bytes - (start - from);
}

static int post_block(struct sl_lane *base, enum work_kind kind, struct sl_local local,
                      const struct sl_remote *memory, uint64_t offset, uint32_t bytes,
                      uint64_t context)
{
    struct verbs_lane *lane = lane_of(base);
    if (!lane->active)
        return SL_ERR_UNSUPPORTED;
    if (lane->state != LANE_READY || lane->fail_code != 0)
        return SL_ERR_CLOSED;
    if (bytes == 0 || bytes > SL_SLOT_BYTES_MAX || !inside(&local, bytes, base))
        return SL_ERR_LIMIT;
    if (lane->free_count == 0)
        return SL_ERR_BUSY;
    uint16_t index = lane->free_works[--lane->free_count];
    lane->works[index] = (struct work){.context = context, .kind = kind, .used = true};
    if (offset > memory->length || bytes > memory->length - offset) {
        answer_work(lane, index, SL_ERR_DENIED);
        sl_verbs_lane_die(lane, SL_ERR_DENIED, "a range outside of the peer's memory");
        return 0;
    }
    int rc = sl_verbs_post_block(lane, index, &local, memory->address + offset, memory->key, bytes);
    if (rc != 0) {
        char reason[96];
        snprintf(reason, sizeof reason, "could not post a %s: %s", work_name(kind), strerror(rc));
        answer_work(lane, index, SL_ERR_DEVICE);
        sl_verbs_lane_die(lane, SL_ERR_DEVICE, reason);
    }
    return 0;
}

static int pull(struct sl_lane *lane, struct sl_local to, const struct sl_remote *memory,
                uint64_t offset, uint32_t bytes, uint64_t context)
{
    return post_block(lane, WORK_PULL, to, memory, offset, bytes, context);
}

static int push(struct sl_lane *lane, struct sl_local from, const struct sl_remote *memory,
                uint64_t offset, uint32_t bytes, uint64_t context)
{
    return post_block(lane, WORK_PUSH, from, memory, offset, bytes, context);
}

static int notice(struct sl_lane *base, const uint8_t bytes[SL_NOTICE_BYTES])
{
    struct verbs_lane *lane = lane_of(base);
    if (!lane->active)
        return SL_ERR_UNSUPPORTED;
    if (lane->state != LANE_READY || lane->fail_code != 0)
        return SL_ERR_CLOSED;
    if (lane->send_tail - lane->send_head >= lane->sends)
        return SL_ERR_BUSY;
    memcpy(sl_verbs_send_buffer(lane, lane->send_tail), bytes, SL_NOTICE_BYTES);
    lane->send_tail++;
    post_messages(lane);
    if (lane->fail_code != 0)
        die_of_failure(lane);
    return 0;
}

static void info(const struct sl_lane *base, struct sl_lane_info *info)
{
    *info = const_lane_of(base)->info;
}

const struct sl_lane_ops sl_verbs_lane_ops = {
    .name = "rdma",
    .pull = pull,
    .push = push,
    .notice = notice,
    .process = process,
    .close = close_lane,
    .free = free_lane,
    .info = info,
};
