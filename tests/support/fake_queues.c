/* The fake device's memory, completion queues and queue pairs: where bytes move. */
#include "tests/support/fake_verbs_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* --- completions ----------------------------------------------------------------------------- */

static struct fake_cq *cq_of(struct ibv_cq *cq)
{
    return (struct fake_cq *)cq;
}

void fake_complete(struct ibv_cq *on, struct ibv_wc wc, struct fake_qp *owner)
{
    struct fake_cq *cq = cq_of(on);
    if (cq->count == cq->room) {
        fake_violation("completion queue overrun");
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
    fake_signal(comp->comp.fd);
}

static int poll_cq(struct ibv_cq *on, int max, struct ibv_wc *wc)
{
    FAKE_LOCKED;
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
    FAKE_LOCKED;
    (void)solicited_only;
    FAKE_FAIL("req_notify_cq", errno);
    cq_of(cq)->armed = true;
    return 0;
}

static int get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ret_cq, void **ret_user)
{
    FAKE_LOCKED;
    struct fake_comp *comp = (struct fake_comp *)channel;
    if (comp->events == 0)
        return errno = EAGAIN, -1;
    comp->events--;
    comp->cq->unacked++;
    fake_consume(channel->fd);
    *ret_cq = &comp->cq->cq;
    *ret_user = comp->cq->cq.cq_context;
    return 0;
}

static void ack_cq_events(struct ibv_cq *cq, unsigned count)
{
    FAKE_LOCKED;
    cq_of(cq)->unacked -= count;
}

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *of)
{
    FAKE_LOCKED;
    FAKE_FAIL("create_comp_channel", NULL);
    struct fake_comp *comp = fake_object(sizeof *comp);
    comp->comp = (struct ibv_comp_channel){.context = of, .fd = eventfd(0, EFD_SEMAPHORE)};
    return &comp->comp;
}

static int destroy_comp_channel(struct ibv_comp_channel *comp)
{
    FAKE_LOCKED;
    close(comp->fd);
    fake_object_free(comp);
    return 0;
}

static struct ibv_cq *create_cq(struct ibv_context *of, int entries, void *user,
                                struct ibv_comp_channel *comp, int vector)
{
    FAKE_LOCKED;
    (void)vector;
    FAKE_FAIL("create_cq", NULL);
    struct fake_cq *cq = fake_object(sizeof *cq);
    cq->cq = (struct ibv_cq){.context = of, .channel = comp, .cq_context = user, .cqe = entries};
    cq->room = entries;
    cq->wcs = calloc((size_t)entries, sizeof *cq->wcs);
    cq->owners = calloc((size_t)entries, sizeof *cq->owners);
    ((struct fake_comp *)comp)->cq = cq;
    cq->next = fake.cqs;
    fake.cqs = cq;
    return &cq->cq;
}

static int destroy_cq(struct ibv_cq *of)
{
    FAKE_LOCKED;
    struct fake_cq *cq = cq_of(of), **at = &fake.cqs;
    if (cq->unacked)
        fake_violation("completion queue destroyed with unacknowledged events");
    while (*at != cq)
        at = &(*at)->next;
    *at = cq->next;
    free(cq->wcs);
    free(cq->owners);
    fake_object_free(cq);
    return 0;
}

/* --- domains and regions --------------------------------------------------------------------- */

static struct ibv_pd *alloc_pd(struct ibv_context *of)
{
    FAKE_LOCKED;
    FAKE_FAIL("alloc_pd", NULL);
    struct ibv_pd *pd = fake_object(sizeof *pd);
    pd->context = of;
    return pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
    FAKE_LOCKED;
    for (struct fake_mr *mr = fake.mrs; mr; mr = mr->next)
        if (mr->mr.pd == pd)
            fake_violation("protection domain freed while it has regions");
    for (struct fake_qp *qp = fake.qps; qp; qp = qp->next)
        if (qp->qp.pd == pd)
            fake_violation("protection domain freed while it has queue pairs");
    fake_object_free(pd);
    return 0;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *start, size_t bytes, unsigned access)
{
    FAKE_LOCKED;
    FAKE_FAIL("reg_mr", NULL);
    if (access & IBV_ACCESS_REMOTE_WRITE && !(access & IBV_ACCESS_LOCAL_WRITE))
        return errno = EINVAL, NULL; /* ibv_reg_mr(3) */
    struct fake_mr *mr = fake_object(sizeof *mr);
    uint32_t key = ++fake.next_key << 8 | 0x5a;
    mr->mr = (struct ibv_mr){
        .context = pd->context, .pd = pd, .addr = start, .length = bytes, .lkey = key, .rkey = key};
    mr->access = access;
    mr->next = fake.mrs;
    fake.mrs = mr;
    return &mr->mr;
}

static int dereg_mr(struct ibv_mr *of)
{
    FAKE_LOCKED;
    struct fake_mr **at = &fake.mrs;
    while (&(*at)->mr != of)
        at = &(*at)->next;
    struct fake_mr *mr = *at;
    *at = mr->next;
    fake_object_free(mr);
    return 0;
}

static uint8_t *reach(const struct ibv_pd *pd, uint32_t key, uint64_t address, uint32_t bytes,
                      unsigned access)
{
    for (struct fake_mr *mr = fake.mrs; mr; mr = mr->next) {
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
    fake_complete(qp->qp.send_cq,
                  (struct ibv_wc){.wr_id = send->wr.wr_id,
                                  .status = status,
                                  .opcode = wc_opcode(send->wr.opcode),
                                  .vendor_err = vendor,
                                  .qp_num = qp->qp.qp_num},
                  qp);
}

/* To the error state: what is posted is flushed, in order. */
void fake_fall(struct fake_qp *qp)
{
    if (qp->error)
        return;
    qp->error = true;
    for (uint32_t i = 0; i < qp->send_count; i++, fake_verbs.flushed++)
        end_send(qp, &qp->sends[i], IBV_WC_WR_FLUSH_ERR, 0);
    for (uint32_t i = 0; i < qp->recv_count; i++)
        fake_complete(qp->qp.recv_cq,
                      (struct ibv_wc){.wr_id = qp->recvs[i].wr_id, .status = IBV_WC_WR_FLUSH_ERR},
                      NULL);
    qp->send_count = qp->recv_count = 0;
}

enum ibv_wc_status fake_deliver(struct fake_qp *qp, const void *bytes, uint32_t count)
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
        fake_complete(qp->qp.recv_cq, wc, NULL);
        fake_fall(qp);
        return IBV_WC_REM_INV_REQ_ERR;
    }
    memcpy(to, bytes, count);
    qp->heard = true;
    fake_complete(qp->qp.recv_cq, wc, NULL);
    return IBV_WC_SUCCESS;
}

/* The responder saw a request it must not serve. On iWARP it sends a terminate message, and the
 * requester's work is flushed. */
static enum ibv_wc_status refuse(struct fake_qp *responder)
{
    fake_async_add((struct ibv_async_event){.event_type = IBV_EVENT_QP_ACCESS_ERR,
                                            .element.qp = &responder->qp});
    fake_fall(responder);
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
        return fake_deliver(peer, local, sge->length);
    uint8_t *remote = reach(peer->qp.pd, send->wr.wr.rdma.rkey, send->wr.wr.rdma.remote_addr,
                            sge->length, read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE);
    if (!remote)
        return refuse(peer);
    memcpy(read ? local : remote, read ? remote : local, sge->length);
    return IBV_WC_SUCCESS;
}

void fake_execute(struct fake_qp *qp)
{
    struct send send = qp->sends[0];
    memmove(qp->sends, qp->sends + 1, --qp->send_count * sizeof send);
    fake.executed++;
    if (fake.executed == fake_verbs.hang_at)
        return;
    bool fail = fake.executed == fake_verbs.fail_at;
    enum ibv_wc_status status = fail ? fake_verbs.fail_status : transfer(qp, &send);
    end_send(qp, &send, status, fail ? fake_verbs.vendor_error : 0);
    if (status != IBV_WC_SUCCESS)
        fake_fall(qp);
}

static int post_send(struct ibv_qp *of, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
    FAKE_LOCKED;
    struct fake_qp *qp = (struct fake_qp *)of;
    *ret_bad = wr;
    FAKE_FAIL("post_send", errno);
    if (++fake.posts == fake_verbs.post_error_at)
        return fake_verbs.post_error;
    if (qp->sends_unpolled == qp->send_room) {
        fake_violation("send queue overrun");
        return ENOMEM;
    }
    if (!qp->connected)
        return EINVAL;
    if (fake_verbs.transport == IBV_TRANSPORT_IWARP && !qp->id->connector && !qp->heard)
        fake_violation("the accepting side spoke first");
    if (wr->num_sge != 1 || wr->next)
        fake_violation("more than one piece of memory, or of work");
    if (wr->opcode == IBV_WR_SEND && wr->sg_list->length != 16)
        fake_violation("a message that is not 16 bytes long");
    struct send send = {.wr = *wr, .sge = *wr->sg_list};
    qp->sends_unpolled++;
    if (qp->error) {
        fake_verbs.flushed++;
        end_send(qp, &send, IBV_WC_WR_FLUSH_ERR, 0);
        return 0;
    }
    qp->sends[qp->send_count++] = send;
    while (!fake_verbs.hold && qp->send_count)
        fake_execute(qp);
    return 0;
}

static int post_recv(struct ibv_qp *of, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad)
{
    FAKE_LOCKED;
    struct fake_qp *qp = (struct fake_qp *)of;
    *ret_bad = wr;
    FAKE_FAIL("post_recv", errno);
    if (qp->recv_count == qp->recv_room) {
        fake_violation("receive queue overrun");
        return ENOMEM;
    }
    if (qp->error)
        fake_complete(qp->qp.recv_cq,
                      (struct ibv_wc){.wr_id = wr->wr_id, .status = IBV_WC_WR_FLUSH_ERR}, NULL);
    else
        qp->recvs[qp->recv_count++] = (struct recv){wr->wr_id, *wr->sg_list};
    return 0;
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    (void)qp, (void)attr, (void)mask;
    FAKE_FAIL("modify_qp", errno);
    return 0;
}

static int query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                    struct ibv_qp_init_attr *init)
{
    (void)qp, (void)mask, (void)init;
    FAKE_FAIL("query_qp", errno);
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
    FAKE_LOCKED;
    FAKE_FAIL("create_qp", -1);
    struct fake_qp *qp = fake_object(sizeof *qp);
    qp->qp = (struct ibv_qp){.context = &fake.context,
                             .qp_context = attr->qp_context,
                             .pd = pd,
                             .send_cq = attr->send_cq,
                             .recv_cq = attr->recv_cq,
                             .qp_num = ++fake.next_qp,
                             .qp_type = attr->qp_type};
    qp->id = id_of(id);
    qp->send_room = attr->cap.max_send_wr;
    qp->recv_room = attr->cap.max_recv_wr;
    qp->sends = calloc(qp->send_room, sizeof *qp->sends);
    qp->recvs = calloc(qp->recv_room, sizeof *qp->recvs);
    if (attr->qp_type != IBV_QPT_RC || attr->srq || attr->cap.max_send_sge != 1)
        fake_violation("not the queue pair that every device can make");
    qp->next = fake.qps;
    fake.qps = qp;
    id->qp = &qp->qp;
    return 0;
}

static void destroy_qp(struct rdma_cm_id *id)
{
    FAKE_LOCKED;
    struct fake_qp *qp = (struct fake_qp *)id->qp, **at = &fake.qps;
    while (*at != qp)
        at = &(*at)->next;
    *at = qp->next;
    if (qp->peer)
        qp->peer->peer = NULL;
    /* its completions stay in the queue, but must not touch it any more */
    for (struct fake_cq *cq = fake.cqs; cq; cq = cq->next)
        for (int i = 0; i < cq->room; i++)
            if (cq->owners[i] == qp)
                cq->owners[i] = NULL;
    /* events of a queue pair that is gone are not delivered (ibv_destroy_qp(3)) */
    unsigned kept = 0;
    for (unsigned i = 0; i < fake.async_count; i++) {
        struct ibv_async_event event = fake.async_events[(fake.async_first + i) % ASYNC_MAX];
        if (event.element.qp == &qp->qp && event.event_type <= IBV_EVENT_QP_ACCESS_ERR &&
            event.event_type != IBV_EVENT_CQ_ERR)
            fake_consume(fake.context.async_fd);
        else
            fake.async_events[(fake.async_first + kept++) % ASYNC_MAX] = event;
    }
    fake.async_count = kept;
    free(qp->sends);
    free(qp->recvs);
    fake_object_free(qp);
    id->qp = NULL;
}

void fake_queues_fill(struct sl_verbs_ops *ops)
{
    ops->create_qp = create_qp;
    ops->destroy_qp = destroy_qp;
    ops->query_qp = query_qp;
    ops->alloc_pd = alloc_pd;
    ops->dealloc_pd = dealloc_pd;
    ops->reg_mr = reg_mr;
    ops->dereg_mr = dereg_mr;
    ops->create_comp_channel = create_comp_channel;
    ops->destroy_comp_channel = destroy_comp_channel;
    ops->create_cq = create_cq;
    ops->destroy_cq = destroy_cq;
    ops->poll_cq = poll_cq;
    ops->req_notify_cq = req_notify_cq;
    ops->get_cq_event = get_cq_event;
    ops->ack_cq_events = ack_cq_events;
    ops->modify_qp = modify_qp;
    ops->post_send = post_send;
    ops->post_recv = post_recv;
}
