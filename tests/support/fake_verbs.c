/* The fake device; see the header. One lock around everything: this is for tests, not for speed. */
#include "tests/support/fake_verbs.h"

#include "core/base/fault.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PRIVATE_BYTES 256
#define ASYNC_MAX     64

struct fake_verbs fake_verbs;

struct fake_event {
    struct rdma_cm_event event;
    uint8_t private_data[PRIVATE_BYTES];
    struct fake_event *next;
};

struct fake_channel {
    struct rdma_event_channel channel;
    struct fake_event *first, **last;
};

struct fake_id {
    struct rdma_cm_id id;
    struct fake_id *peer, *next;
    bool listening, connector, connected, told; /* told: of the disconnection */
    unsigned unacked;
};

struct fake_mr {
    struct ibv_mr mr;
    unsigned access;
    struct fake_mr *next;
};

struct fake_comp {
    struct ibv_comp_channel comp;
    unsigned events;
    struct fake_cq *cq;
};

struct fake_cq {
    struct ibv_cq cq;
    struct ibv_wc *wcs;
    struct fake_qp **owners; /* whose send slot a poll frees; NULL for receives */
    int room, first, count;
    bool armed;
    unsigned unacked;
    struct fake_cq *next;
};

struct send {
    struct ibv_send_wr wr;
    struct ibv_sge sge;
};

struct recv {
    uint64_t wr_id;
    struct ibv_sge sge;
};

struct fake_qp {
    struct ibv_qp qp;
    struct fake_id *id;
    struct send *sends; /* posted, not executed */
    struct recv *recvs;
    uint32_t send_room, send_count, sends_unpolled, recv_room, recv_count;
    bool error, heard, connected;
    struct fake_qp *peer, *next;
};

static pthread_mutex_t lock;
static pthread_once_t lock_once = PTHREAD_ONCE_INIT;
static struct ibv_device device = {.name = "fake0", .dev_name = "uverbs0"};
static struct ibv_context context = {.device = &device, .async_fd = -1};
static struct fake_id *ids;
static struct fake_mr *mrs;
static struct fake_qp *qps; /* youngest first */
static struct fake_cq *cqs; /* likewise */
static struct ibv_async_event async_events[ASYNC_MAX];
static unsigned async_first, async_count, async_unacked;
static size_t live;
static uint32_t next_key, next_qp;
static uint16_t next_port;
static unsigned executed, posts;

static void lock_init(void)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &attr);
}

static void leave(int *unused)
{
    (void)unused;
    pthread_mutex_unlock(&lock);
}

#define LOCKED __attribute__((cleanup(leave), unused)) int locked_ = pthread_mutex_lock(&lock)

/* Fault points: -1 with errno, NULL with errno, or the errno itself. */
#define FAIL_AS(point, value)                                                                      \
    do {                                                                                           \
        int fault_ = sl_fault("verbs." point);                                                     \
        if (fault_ > 0) {                                                                          \
            errno = fault_;                                                                        \
            return value;                                                                          \
        }                                                                                          \
    } while (0)

static void violation(const char *what)
{
    if (fake_verbs.violations++ == 0)
        snprintf(fake_verbs.violation, sizeof fake_verbs.violation, "%s", what);
}

static void *object(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        abort();
    live++;
    return memory;
}

static void object_free(void *memory)
{
    live--;
    free(memory);
}

static void signal_fd(int fd)
{
    uint64_t one = 1;
    if (write(fd, &one, sizeof one) < 0)
        abort();
}

static void consume_fd(int fd)
{
    uint64_t one;
    if (read(fd, &one, sizeof one) < 0)
        abort();
}

/* --- asynchronous events --------------------------------------------------------------------- */

static void async_add(struct ibv_async_event event)
{
    if (async_count == ASYNC_MAX)
        abort();
    async_events[(async_first + async_count++) % ASYNC_MAX] = event;
    signal_fd(context.async_fd);
}

static int get_async_event(struct ibv_context *of, struct ibv_async_event *event)
{
    LOCKED;
    if (async_count == 0)
        return errno = EAGAIN, -1;
    consume_fd(of->async_fd);
    *event = async_events[async_first];
    async_first = (async_first + 1) % ASYNC_MAX;
    async_count--;
    async_unacked++;
    return 0;
}

static void ack_async_event(struct ibv_async_event *event)
{
    LOCKED;
    (void)event;
    async_unacked--;
}

/* --- completions ----------------------------------------------------------------------------- */

static struct fake_cq *cq_of(struct ibv_cq *cq)
{
    return (struct fake_cq *)cq;
}

static void complete(struct ibv_cq *on, struct ibv_wc wc, struct fake_qp *owner)
{
    struct fake_cq *cq = cq_of(on);
    if (cq->count == cq->room) {
        violation("completion queue overrun");
        return;
    }
    int at = (cq->first + cq->count++) % cq->room;
    cq->wcs[at] = wc;
    cq->owners[at] = owner;
    if (!cq->armed)
        return;
    cq->armed = false;
    struct fake_comp *comp = (struct fake_comp *)cq->cq.channel;
    comp->events++;
    signal_fd(comp->comp.fd);
}

static int poll_cq(struct ibv_cq *on, int max, struct ibv_wc *wc)
{
    LOCKED;
    struct fake_cq *cq = cq_of(on);
    int n = 0;
    for (; n < max && cq->count; n++) {
        wc[n] = cq->wcs[cq->first];
        if (cq->owners[cq->first])
            cq->owners[cq->first]->sends_unpolled--;
        cq->first = (cq->first + 1) % cq->room;
        cq->count--;
    }
    return n;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
    LOCKED;
    (void)solicited_only;
    FAIL_AS("req_notify_cq", errno);
    cq_of(cq)->armed = true;
    return 0;
}

static int get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ret_cq, void **ret_user)
{
    LOCKED;
    struct fake_comp *comp = (struct fake_comp *)channel;
    if (comp->events == 0)
        return errno = EAGAIN, -1;
    comp->events--;
    comp->cq->unacked++;
    consume_fd(channel->fd);
    *ret_cq = &comp->cq->cq;
    *ret_user = comp->cq->cq.cq_context;
    return 0;
}

static void ack_cq_events(struct ibv_cq *cq, unsigned count)
{
    LOCKED;
    cq_of(cq)->unacked -= count;
}

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *of)
{
    LOCKED;
    FAIL_AS("create_comp_channel", NULL);
    struct fake_comp *comp = object(sizeof *comp);
    comp->comp = (struct ibv_comp_channel){.context = of, .fd = eventfd(0, EFD_SEMAPHORE)};
    return &comp->comp;
}

static int destroy_comp_channel(struct ibv_comp_channel *comp)
{
    LOCKED;
    close(comp->fd);
    object_free(comp);
    return 0;
}

static struct ibv_cq *create_cq(struct ibv_context *of, int entries, void *user,
                                struct ibv_comp_channel *comp, int vector)
{
    LOCKED;
    (void)vector;
    FAIL_AS("create_cq", NULL);
    struct fake_cq *cq = object(sizeof *cq);
    cq->cq = (struct ibv_cq){.context = of, .channel = comp, .cq_context = user, .cqe = entries};
    cq->room = entries;
    cq->wcs = calloc((size_t)entries, sizeof *cq->wcs);
    cq->owners = calloc((size_t)entries, sizeof *cq->owners);
    ((struct fake_comp *)comp)->cq = cq;
    cq->next = cqs;
    cqs = cq;
    return &cq->cq;
}

static int destroy_cq(struct ibv_cq *of)
{
    LOCKED;
    struct fake_cq *cq = cq_of(of), **at = &cqs;
    if (cq->unacked)
        violation("completion queue destroyed with unacknowledged events");
    while (*at != cq)
        at = &(*at)->next;
    *at = cq->next;
    free(cq->wcs);
    free(cq->owners);
    object_free(cq);
    return 0;
}

/* --- domains and regions --------------------------------------------------------------------- */

static struct ibv_pd *alloc_pd(struct ibv_context *of)
{
    LOCKED;
    FAIL_AS("alloc_pd", NULL);
    struct ibv_pd *pd = object(sizeof *pd);
    pd->context = of;
    return pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
    LOCKED;
    for (struct fake_mr *mr = mrs; mr; mr = mr->next)
        if (mr->mr.pd == pd)
            violation("protection domain freed while it has regions");
    for (struct fake_qp *qp = qps; qp; qp = qp->next)
        if (qp->qp.pd == pd)
            violation("protection domain freed while it has queue pairs");
    object_free(pd);
    return 0;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *start, size_t bytes, unsigned access)
{
    LOCKED;
    FAIL_AS("reg_mr", NULL);
    if (access & IBV_ACCESS_REMOTE_WRITE && !(access & IBV_ACCESS_LOCAL_WRITE))
        return errno = EINVAL, NULL; /* ibv_reg_mr(3) */
    struct fake_mr *mr = object(sizeof *mr);
    uint32_t key = ++next_key << 8 | 0x5a;
    mr->mr = (struct ibv_mr){
        .context = pd->context, .pd = pd, .addr = start, .length = bytes, .lkey = key, .rkey = key};
    mr->access = access;
    mr->next = mrs;
    mrs = mr;
    return &mr->mr;
}

static int dereg_mr(struct ibv_mr *of)
{
    LOCKED;
    struct fake_mr **at = &mrs;
    while (&(*at)->mr != of)
        at = &(*at)->next;
    struct fake_mr *mr = *at;
    *at = mr->next;
    object_free(mr);
    return 0;
}

static uint8_t *reach(const struct ibv_pd *pd, uint32_t key, uint64_t address, uint32_t bytes,
                      unsigned access)
{
    for (struct fake_mr *mr = mrs; mr; mr = mr->next) {
        uint64_t start = (uintptr_t)mr->mr.addr;
        if (mr->mr.rkey != key || mr->mr.pd != pd || (mr->access & access) != access)
            continue;
        if (address >= start && address - start <= mr->mr.length &&
            bytes <= mr->mr.length - (address - start))
            return (uint8_t *)mr->mr.addr + (address - start);
    }
    return NULL;
}

/* --- queue pairs ----------------------------------------------------------------------------- */

static enum ibv_wc_opcode wc_opcode(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_RDMA_READ    ? IBV_WC_RDMA_READ
           : opcode == IBV_WR_RDMA_WRITE ? IBV_WC_RDMA_WRITE
                                         : IBV_WC_SEND;
}

static void end_send(struct fake_qp *qp, const struct send *send, enum ibv_wc_status status,
                     uint32_t vendor)
{
    complete(qp->qp.send_cq,
             (struct ibv_wc){.wr_id = send->wr.wr_id,
                             .status = status,
                             .opcode = wc_opcode(send->wr.opcode),
                             .vendor_err = vendor,
                             .qp_num = qp->qp.qp_num},
             qp);
}

/* To the error state: what is posted is flushed, in order. */
static void fall(struct fake_qp *qp)
{
    if (qp->error)
        return;
    qp->error = true;
    for (uint32_t i = 0; i < qp->send_count; i++, fake_verbs.flushed++)
        end_send(qp, &qp->sends[i], IBV_WC_WR_FLUSH_ERR, 0);
    for (uint32_t i = 0; i < qp->recv_count; i++)
        complete(qp->qp.recv_cq,
                 (struct ibv_wc){.wr_id = qp->recvs[i].wr_id, .status = IBV_WC_WR_FLUSH_ERR}, NULL);
    qp->send_count = qp->recv_count = 0;
}

static enum ibv_wc_status deliver(struct fake_qp *qp, const void *bytes, uint32_t count)
{
    if (qp->recv_count == 0) {
        fake_verbs.rnr++;
        return IBV_WC_RNR_RETRY_EXC_ERR;
    }
    struct recv recv = qp->recvs[0];
    memmove(qp->recvs, qp->recvs + 1, --qp->recv_count * sizeof recv);
    uint8_t *to =
        reach(qp->qp.pd, recv.sge.lkey, recv.sge.addr, recv.sge.length, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_wc wc = {.wr_id = recv.wr_id, .opcode = IBV_WC_RECV, .byte_len = count};
    if (!to || count > recv.sge.length) {
        wc.status = to ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR;
        complete(qp->qp.recv_cq, wc, NULL);
        fall(qp);
        return IBV_WC_REM_INV_REQ_ERR;
    }
    memcpy(to, bytes, count);
    qp->heard = true;
    complete(qp->qp.recv_cq, wc, NULL);
    return IBV_WC_SUCCESS;
}

/* The responder saw a request it must not serve. On iWARP it sends a terminate message, and the
 * requester's work is flushed. */
static enum ibv_wc_status refuse(struct fake_qp *responder)
{
    async_add((struct ibv_async_event){.event_type = IBV_EVENT_QP_ACCESS_ERR,
                                       .element.qp = &responder->qp});
    fall(responder);
    return fake_verbs.transport == IBV_TRANSPORT_IWARP ? IBV_WC_WR_FLUSH_ERR
                                                       : IBV_WC_REM_ACCESS_ERR;
}

static enum ibv_wc_status transfer(struct fake_qp *qp, const struct send *send)
{
    const struct ibv_sge *sge = &send->sge;
    struct fake_qp *peer = qp->peer;
    bool read = send->wr.opcode == IBV_WR_RDMA_READ;
    bool iwarp = fake_verbs.transport == IBV_TRANSPORT_IWARP;
    unsigned local_access = !read   ? 0
                            : iwarp ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
                                    : IBV_ACCESS_LOCAL_WRITE;
    uint8_t *local = reach(qp->qp.pd, sge->lkey, sge->addr, sge->length, local_access);
    if (!local)
        return IBV_WC_LOC_PROT_ERR;
    if (!peer || peer->error || !peer->connected)
        return IBV_WC_RETRY_EXC_ERR;
    if (send->wr.opcode == IBV_WR_SEND)
        return deliver(peer, local, sge->length);
    uint8_t *remote = reach(peer->qp.pd, send->wr.wr.rdma.rkey, send->wr.wr.rdma.remote_addr,
                            sge->length, read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE);
    if (!remote)
        return refuse(peer);
    memcpy(read ? local : remote, read ? remote : local, sge->length);
    return IBV_WC_SUCCESS;
}

static void execute(struct fake_qp *qp)
{
    struct send send = qp->sends[0];
    memmove(qp->sends, qp->sends + 1, --qp->send_count * sizeof send);
    executed++;
    if (executed == fake_verbs.hang_at)
        return;
    bool fail = executed == fake_verbs.fail_at;
    enum ibv_wc_status status = fail ? fake_verbs.fail_status : transfer(qp, &send);
    end_send(qp, &send, status, fail ? fake_verbs.vendor_error : 0);
    if (status != IBV_WC_SUCCESS)
        fall(qp);
}

static int post_send(struct ibv_qp *of, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
    LOCKED;
    struct fake_qp *qp = (struct fake_qp *)of;
    *ret_bad = wr;
    FAIL_AS("post_send", errno);
    if (++posts == fake_verbs.post_error_at)
        return fake_verbs.post_error;
    if (qp->sends_unpolled == qp->send_room) {
        violation("send queue overrun");
        return ENOMEM;
    }
    if (!qp->connected)
        return EINVAL;
    if (fake_verbs.transport == IBV_TRANSPORT_IWARP && !qp->id->connector && !qp->heard)
        violation("the accepting side spoke first");
    if (wr->num_sge != 1 || wr->next)
        violation("more than one piece of memory, or of work");
    if (wr->opcode == IBV_WR_SEND && wr->sg_list->length != 16)
        violation("a message that is not 16 bytes long");
    struct send send = {.wr = *wr, .sge = *wr->sg_list};
    qp->sends_unpolled++;
    if (qp->error) {
        fake_verbs.flushed++;
        end_send(qp, &send, IBV_WC_WR_FLUSH_ERR, 0);
        return 0;
    }
    qp->sends[qp->send_count++] = send;
    while (!fake_verbs.hold && qp->send_count)
        execute(qp);
    return 0;
}

static int post_recv(struct ibv_qp *of, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad)
{
    LOCKED;
    struct fake_qp *qp = (struct fake_qp *)of;
    *ret_bad = wr;
    FAIL_AS("post_recv", errno);
    if (qp->recv_count == qp->recv_room) {
        violation("receive queue overrun");
        return ENOMEM;
    }
    if (qp->error)
        complete(qp->qp.recv_cq, (struct ibv_wc){.wr_id = wr->wr_id, .status = IBV_WC_WR_FLUSH_ERR},
                 NULL);
    else
        qp->recvs[qp->recv_count++] = (struct recv){wr->wr_id, *wr->sg_list};
    return 0;
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    (void)qp, (void)attr, (void)mask;
    FAIL_AS("modify_qp", errno);
    return 0;
}

static int query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                    struct ibv_qp_init_attr *init)
{
    (void)qp, (void)mask, (void)init;
    FAIL_AS("query_qp", errno);
    attr->path_mtu = IBV_MTU_4096;
    attr->ah_attr.grh.sgid_index = 1;
    return 0;
}

static struct fake_id *id_of(struct rdma_cm_id *id)
{
    return (struct fake_id *)id;
}

static int create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    LOCKED;
    FAIL_AS("create_qp", -1);
    struct fake_qp *qp = object(sizeof *qp);
    qp->qp = (struct ibv_qp){.context = &context,
                             .qp_context = attr->qp_context,
                             .pd = pd,
                             .send_cq = attr->send_cq,
                             .recv_cq = attr->recv_cq,
                             .qp_num = ++next_qp,
                             .qp_type = attr->qp_type};
    qp->id = id_of(id);
    qp->send_room = attr->cap.max_send_wr;
    qp->recv_room = attr->cap.max_recv_wr;
    qp->sends = calloc(qp->send_room, sizeof *qp->sends);
    qp->recvs = calloc(qp->recv_room, sizeof *qp->recvs);
    if (attr->qp_type != IBV_QPT_RC || attr->srq || attr->cap.max_send_sge != 1)
        violation("not the queue pair that every device can make");
    qp->next = qps;
    qps = qp;
    id->qp = &qp->qp;
    return 0;
}

static void destroy_qp(struct rdma_cm_id *id)
{
    LOCKED;
    struct fake_qp *qp = (struct fake_qp *)id->qp, **at = &qps;
    while (*at != qp)
        at = &(*at)->next;
    *at = qp->next;
    if (qp->peer)
        qp->peer->peer = NULL;
    /* its completions stay in the queue, but must not touch it any more */
    for (struct fake_cq *cq = cqs; cq; cq = cq->next)
        for (int i = 0; i < cq->room; i++)
            if (cq->owners[i] == qp)
                cq->owners[i] = NULL;
    /* events of a queue pair that is gone are not delivered (ibv_destroy_qp(3)) */
    unsigned kept = 0;
    for (unsigned i = 0; i < async_count; i++) {
        struct ibv_async_event event = async_events[(async_first + i) % ASYNC_MAX];
        if (event.element.qp == &qp->qp && event.event_type <= IBV_EVENT_QP_ACCESS_ERR &&
            event.event_type != IBV_EVENT_CQ_ERR)
            consume_fd(context.async_fd);
        else
            async_events[(async_first + kept++) % ASYNC_MAX] = event;
    }
    async_count = kept;
    free(qp->sends);
    free(qp->recvs);
    object_free(qp);
    id->qp = NULL;
}

/* --- the connection manager ------------------------------------------------------------------ */

static struct fake_channel *channel_of(struct rdma_event_channel *channel)
{
    return (struct fake_channel *)channel;
}

static struct rdma_event_channel *create_event_channel(void)
{
    LOCKED;
    FAIL_AS("create_event_channel", NULL);
    if (fake_verbs.absent)
        return errno = ENODEV, NULL;
    struct fake_channel *channel = object(sizeof *channel);
    channel->channel.fd = eventfd(0, EFD_SEMAPHORE);
    channel->last = &channel->first;
    return &channel->channel;
}

static int destroy_id(struct rdma_cm_id *of);

static void destroy_event_channel(struct rdma_event_channel *channel)
{
    LOCKED;
    /* Requests that nobody has fetched are the kernel's still: it rejects them. */
    struct fake_event *event;
    while ((event = channel_of(channel)->first)) {
        struct rdma_cm_id *id = event->event.id;
        if (event->event.event != RDMA_CM_EVENT_CONNECT_REQUEST) {
            violation("event channel destroyed while it has events");
            break;
        }
        destroy_id(id);
    }
    for (struct fake_id *id = ids; id; id = id->next)
        if (id->id.channel == channel)
            violation("event channel destroyed while it has ids");
    close(channel->fd);
    object_free(channel);
}

static void append(struct rdma_event_channel *to, struct fake_event *event)
{
    struct fake_channel *channel = channel_of(to);
    event->next = NULL;
    *channel->last = event;
    channel->last = &event->next;
    signal_fd(to->fd);
}

static struct fake_event *tell(struct fake_id *id, enum rdma_cm_event_type type, int status)
{
    struct fake_event *event = object(sizeof *event);
    event->event = (struct rdma_cm_event){.id = &id->id, .event = type, .status = status};
    append(id->id.channel, event);
    return event;
}

static void give_private_data(struct fake_event *event, const void *bytes, uint8_t count)
{
    uint8_t given = count < 56 ? 56 : count; /* padded, as on InfiniBand */
    if (fake_verbs.private_max)
        given = count < fake_verbs.private_max ? count : fake_verbs.private_max;
    if (count)
        memcpy(event->private_data, bytes, count);
    event->event.param.conn.private_data = event->private_data;
    event->event.param.conn.private_data_len = given;
}

static int get_cm_event(struct rdma_event_channel *from, struct rdma_cm_event **ret_event)
{
    LOCKED;
    struct fake_channel *channel = channel_of(from);
    struct fake_event *event = channel->first;
    if (!event)
        return errno = EAGAIN, -1;
    consume_fd(from->fd);
    channel->first = event->next;
    if (!channel->first)
        channel->last = &channel->first;
    id_of(event->event.id)->unacked++;
    *ret_event = &event->event;
    return 0;
}

static int ack_cm_event(struct rdma_cm_event *event)
{
    LOCKED;
    id_of(event->id)->unacked--;
    object_free((struct fake_event *)event);
    return 0;
}

/* Take the id's waiting events out of its channel, and hand them to another or drop them. */
static void move_events(struct fake_id *id, struct rdma_event_channel *to)
{
    struct fake_channel *channel = channel_of(id->id.channel);
    for (struct fake_event **at = &channel->first; *at;) {
        struct fake_event *event = *at;
        if (event->event.id != &id->id) {
            at = &event->next;
            continue;
        }
        *at = event->next;
        consume_fd(channel->channel.fd);
        if (to)
            append(to, event);
        else
            object_free(event);
    }
    channel->last = &channel->first;
    while (*channel->last)
        channel->last = &(*channel->last)->next;
}

static struct fake_id *id_new(struct rdma_event_channel *channel)
{
    struct fake_id *id = object(sizeof *id);
    id->id.channel = channel;
    id->id.ps = RDMA_PS_TCP;
    id->next = ids;
    ids = id;
    return id;
}

static int create_id(struct rdma_event_channel *channel, struct rdma_cm_id **ret_id, void *user,
                     enum rdma_port_space space)
{
    LOCKED;
    FAIL_AS("create_id", -1);
    if (space != RDMA_PS_TCP)
        violation("another port space");
    *ret_id = &id_new(channel)->id;
    (*ret_id)->context = user;
    return 0;
}

static void tell_disconnected(struct fake_id *id)
{
    if (id && id->connected && !id->told) {
        id->told = true;
        tell(id, RDMA_CM_EVENT_DISCONNECTED, 0);
    }
}

static int disconnect(struct rdma_cm_id *of)
{
    LOCKED;
    struct fake_id *id = id_of(of);
    if (of->qp)
        fall((struct fake_qp *)of->qp);
    if (!id->connected)
        return errno = EINVAL, -1;
    if (!fake_verbs.lose_disconnects)
        tell_disconnected(id->peer);
    tell_disconnected(id);
    return 0;
}

static int destroy_id(struct rdma_cm_id *of)
{
    LOCKED;
    struct fake_id *id = id_of(of), **at = &ids;
    if (of->qp)
        violation("id destroyed while it has a queue pair");
    if (id->unacked)
        violation("id destroyed with unacknowledged events");
    if (id->peer) {
        if (!fake_verbs.lose_disconnects)
            tell_disconnected(id->peer);
        if (!id->connected && id->connector == false) /* neither accepted nor rejected */
            tell(id->peer, RDMA_CM_EVENT_REJECTED, 28);
        id->peer->peer = NULL;
    }
    move_events(id, NULL);
    while (*at != id)
        at = &(*at)->next;
    *at = id->next;
    object_free(id);
    return 0;
}

static uint16_t port_of(const struct sockaddr *address)
{
    struct sockaddr_in v4;
    memcpy(&v4, address, sizeof v4);
    return v4.sin_port; /* at the same place in IPv6 */
}

static size_t address_bytes(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in);
}

static struct fake_id *listener_at(uint16_t port)
{
    for (struct fake_id *id = ids; id; id = id->next)
        if (id->listening && port_of(&id->id.route.addr.src_addr) == port)
            return id;
    return NULL;
}

static int bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
    LOCKED;
    FAIL_AS("bind_addr", -1);
    memcpy(&id->route.addr.src_storage, address, address_bytes(address));
    if (port_of(address) == 0)
        id->route.addr.src_sin.sin_port = htons(++next_port);
    return 0;
}

static int listen_id(struct rdma_cm_id *id, int backlog)
{
    LOCKED;
    (void)backlog;
    FAIL_AS("listen", -1);
    struct fake_id *other = listener_at(port_of(&id->route.addr.src_addr));
    if (other && other->id.route.addr.src_addr.sa_family == id->route.addr.src_addr.sa_family)
        return errno = EADDRINUSE, -1;
    id_of(id)->listening = true;
    return 0;
}

static int resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to,
                        int timeout_ms)
{
    LOCKED;
    FAIL_AS("resolve_addr", -1);
    if (timeout_ms <= 0)
        violation("no time to resolve");
    memcpy(&id->route.addr.dst_storage, to, address_bytes(to));
    memcpy(&id->route.addr.src_storage, from ? from : to, address_bytes(to));
    id->route.addr.src_sin.sin_port = htons(++next_port);
    if (fake_verbs.address_status) {
        tell(id_of(id), RDMA_CM_EVENT_ADDR_ERROR, fake_verbs.address_status);
        return 0;
    }
    id->verbs = &context;
    id->port_num = 1;
    tell(id_of(id), RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    return 0;
}

static int resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
    LOCKED;
    (void)timeout_ms;
    FAIL_AS("resolve_route", -1);
    tell(id_of(id), RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
    return 0;
}

static int connect_id(struct rdma_cm_id *of, struct rdma_conn_param *param)
{
    LOCKED;
    struct fake_id *id = id_of(of);
    FAIL_AS("connect", -1);
    if (param->private_data_len > 56)
        violation("more private data than a connection request holds");
    if (param->retry_count > 7 || param->rnr_retry_count > 6)
        violation("retry counts that do not fit, or wait for ever");
    id->connector = true;
    if (fake_verbs.silent)
        return 0;
    struct fake_id *listener = listener_at(port_of(&of->route.addr.dst_addr));
    if (!listener) {
        tell(id, RDMA_CM_EVENT_REJECTED, 8);
        return 0;
    }
    struct fake_id *child = id_new(listener->id.channel);
    child->peer = id;
    id->peer = child;
    child->id.verbs = &context;
    child->id.port_num = 1;
    child->id.route.addr.src_storage = of->route.addr.dst_storage;
    child->id.route.addr.dst_storage = of->route.addr.src_storage;
    struct fake_event *event = tell(child, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    event->event.listen_id = &listener->id;
    event->event.param.conn = *param;
    event->event.param.conn.initiator_depth = param->responder_resources;
    event->event.param.conn.responder_resources = param->initiator_depth;
    give_private_data(event, param->private_data, param->private_data_len);
    return 0;
}

static int accept_id(struct rdma_cm_id *of, struct rdma_conn_param *param)
{
    LOCKED;
    struct fake_id *id = id_of(of);
    FAIL_AS("accept", -1);
    if (!id->peer)
        return errno = ECONNRESET, -1; /* the other end has given up */
    struct fake_qp *here = (struct fake_qp *)of->qp, *there = (struct fake_qp *)id->peer->id.qp;
    here->peer = there;
    there->peer = here;
    here->connected = there->connected = true;
    id->connected = id->peer->connected = true;
    tell(id, RDMA_CM_EVENT_ESTABLISHED, 0);
    struct fake_event *event = tell(id->peer, RDMA_CM_EVENT_ESTABLISHED, 0);
    event->event.param.conn = *param;
    give_private_data(event, param->private_data, param->private_data_len);
    return 0;
}

static int reject_id(struct rdma_cm_id *of, const void *private_data, uint8_t bytes)
{
    LOCKED;
    struct fake_id *id = id_of(of);
    if (!id->peer || id->connected)
        return errno = EINVAL, -1;
    struct fake_event *event = tell(id->peer, RDMA_CM_EVENT_REJECTED, 28);
    give_private_data(event, private_data, bytes);
    id->peer->peer = NULL;
    id->peer = NULL;
    return 0;
}

static int set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t bytes)
{
    (void)id, (void)level, (void)name, (void)value, (void)bytes;
    FAIL_AS("set_option", -1);
    return 0;
}

static int migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
    LOCKED;
    FAIL_AS("migrate_id", -1);
    if (id_of(id)->unacked)
        violation("id migrated with unacknowledged events");
    move_events(id_of(id), channel);
    id->channel = channel;
    return 0;
}

/* --- the device ------------------------------------------------------------------------------ */

static struct ibv_context **get_devices(int *ret_count)
{
    struct ibv_context **list = calloc(2, sizeof *list);
    FAIL_AS("get_devices", (free(list), NULL));
    if (list && !fake_verbs.absent)
        list[0] = &context;
    *ret_count = fake_verbs.absent ? 0 : 1;
    return list;
}

static void free_devices(struct ibv_context **list)
{
    free(list);
}

static int fork_init(void)
{
    FAIL_AS("fork_init", errno);
    return 0;
}

static int query_device(struct ibv_context *of, struct ibv_device_attr *attr)
{
    (void)of;
    FAIL_AS("query_device", errno);
    *attr = fake_verbs.device;
    return 0;
}

static int query_port(struct ibv_context *of, uint8_t port, struct ibv_port_attr *attr)
{
    (void)of;
    FAIL_AS("query_port", errno);
    if (port != 1)
        return EINVAL;
    *attr = fake_verbs.port;
    return 0;
}

static int query_gid_ex(struct ibv_context *of, uint32_t port, uint32_t index,
                        struct ibv_gid_entry *entry, uint32_t flags)
{
    (void)of, (void)flags;
    if (port != 1 || index > 1)
        return ENODATA;
    *entry = (struct ibv_gid_entry){.gid_index = index,
                                    .port_num = port,
                                    .gid_type = index ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1,
                                    .ndev_ifindex = 1}; /* lo */
    return 0;
}

static const struct sl_verbs_ops ops = {
    .create_event_channel = create_event_channel,
    .destroy_event_channel = destroy_event_channel,
    .create_id = create_id,
    .destroy_id = destroy_id,
    .bind_addr = bind_addr,
    .resolve_addr = resolve_addr,
    .resolve_route = resolve_route,
    .create_qp = create_qp,
    .destroy_qp = destroy_qp,
    .connect = connect_id,
    .listen = listen_id,
    .accept = accept_id,
    .reject = reject_id,
    .disconnect = disconnect,
    .get_cm_event = get_cm_event,
    .ack_cm_event = ack_cm_event,
    .set_option = set_option,
    .migrate_id = migrate_id,
    .get_devices = get_devices,
    .free_devices = free_devices,
    .fork_init = fork_init,
    .query_device = query_device,
    .query_port = query_port,
    .query_gid_ex = query_gid_ex,
    .query_qp = query_qp,
    .alloc_pd = alloc_pd,
    .dealloc_pd = dealloc_pd,
    .reg_mr = reg_mr,
    .dereg_mr = dereg_mr,
    .create_comp_channel = create_comp_channel,
    .destroy_comp_channel = destroy_comp_channel,
    .create_cq = create_cq,
    .destroy_cq = destroy_cq,
    .poll_cq = poll_cq,
    .req_notify_cq = req_notify_cq,
    .get_cq_event = get_cq_event,
    .ack_cq_events = ack_cq_events,
    .modify_qp = modify_qp,
    .post_send = post_send,
    .post_recv = post_recv,
    .get_async_event = get_async_event,
    .ack_async_event = ack_async_event,
};

/* --- for the tests --------------------------------------------------------------------------- */

void fake_verbs_install(void)
{
    pthread_once(&lock_once, lock_init);
    LOCKED;
    fake_verbs = (struct fake_verbs){
        .transport = IBV_TRANSPORT_IB,
        .device = {.max_qp_wr = 1024,
                   .max_cqe = 4096,
                   .max_qp_rd_atom = 128,
                   .max_qp_init_rd_atom = 128,
                   .phys_port_cnt = 1},
        .port = {.state = IBV_PORT_ACTIVE,
                 .active_mtu = IBV_MTU_4096,
                 .max_msg_sz = 1u << 31,
                 .gid_tbl_len = 16,
                 .link_layer = IBV_LINK_LAYER_ETHERNET},
    };
    device.transport_type = IBV_TRANSPORT_IB;
    if (context.async_fd >= 0)
        close(context.async_fd);
    context.async_fd = eventfd(0, EFD_SEMAPHORE);
    async_first = async_count = async_unacked = 0;
    executed = posts = 0;
    next_port = 40000;
    sl_verbs = &ops;
}

void fake_verbs_iwarp(void)
{
    LOCKED;
    device.transport_type = fake_verbs.transport = IBV_TRANSPORT_IWARP;
}

void fake_verbs_count_from_here(void)
{
    LOCKED;
    executed = posts = 0;
}

size_t fake_verbs_live(void)
{
    LOCKED;
    return live;
}

size_t fake_verbs_run(size_t max, bool reverse)
{
    LOCKED;
    size_t done = 0;
    while (done < max) {
        struct fake_qp *chosen = NULL;
        for (struct fake_qp *qp = qps; qp; qp = qp->next)
            if (qp->send_count && !(reverse && chosen))
                chosen = qp;
        if (!chosen)
            break;
        execute(chosen);
        done++;
    }
    return done;
}

void fake_verbs_device_fatal(void)
{
    LOCKED;
    for (struct fake_qp *qp = qps; qp; qp = qp->next)
        fall(qp);
    async_add((struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL});
}

void fake_verbs_remove(void)
{
    LOCKED;
    for (struct fake_id *id = ids; id; id = id->next)
        tell(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
}

void fake_verbs_port(bool up)
{
    LOCKED;
    async_add((struct ibv_async_event){
        .event_type = up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, .element.port_num = 1});
}

void fake_verbs_overrun(void)
{
    LOCKED;
    async_add((struct ibv_async_event){.event_type = IBV_EVENT_CQ_ERR, .element.cq = &cqs->cq});
}

bool fake_verbs_forge(char to, const void *bytes, uint32_t count)
{
    LOCKED;
    for (struct fake_qp *qp = qps; qp; qp = qp->next)
        if (qp->connected && qp->id->connector == (to == 'c'))
            return deliver(qp, bytes, count) == IBV_WC_SUCCESS;
    return false;
}

void fake_verbs_stray_completion(uint64_t wr_id)
{
    LOCKED;
    complete(&cqs->cq, (struct ibv_wc){.wr_id = wr_id, .opcode = IBV_WC_RDMA_READ}, NULL);
}
