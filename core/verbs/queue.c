/* What a lane is made of: completion channel, completion queue, queue pair, and one page for the
 * 16-byte messages. Sizes are fixed at birth (iWARP cannot resize a completion queue) and chosen so
 * that nothing here can overflow. Posting lives here too; deciding what to post is lane.c's.
 */
#include "core/verbs/verbs_internal.h"

#include "core/base/alloc.h"

#include <errno.h>
#include <fcntl.h>

static uint32_t send_queue_size(const struct verbs_lane *lane)
{
    return lane->active ? 2u * lane->base.depth : lane->sends;
}

static int messages_new(struct verbs_lane *lane, struct sl_err *err)
{
    lane->messages_bytes = (size_t)(lane->sends + lane->recvs) * SL_NOTICE_BYTES;
    lane->messages = sl_pages_alloc(lane->messages_bytes);
    if (!lane->messages)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    lane->messages_mr = sl_verbs->reg_mr(sl_verbs_domain(lane->base.domain)->pd, lane->messages,
                                         lane->messages_bytes, IBV_ACCESS_LOCAL_WRITE);
    if (!lane->messages_mr)
        return sl_verbs_err(err, errno, "could not register a lane's notices for RDMA");
    return 0;
}

static int completions_new(struct verbs_lane *lane, struct sl_err *err)
{
    struct ibv_context *context = lane->rail->device->context;
    int entries = (int)(send_queue_size(lane) + lane->recvs + SL_VERBS_CQ_SPARE);
    lane->comp = sl_verbs->create_comp_channel(context);
    if (!lane->comp)
        return sl_verbs_err(err, errno, "could not create an RDMA completion channel");
    int flags = fcntl(lane->comp->fd, F_GETFL);
    if (flags < 0 || fcntl(lane->comp->fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return sl_err_sys(err, SL_ERR_DEVICE, errno, "could not watch RDMA completions");
    lane->cq = sl_verbs->create_cq(context, entries, lane, lane->comp, 0);
    if (!lane->cq)
        return sl_verbs_err(err, errno, "could not create an RDMA completion queue");
    return 0;
}

static int queue_pair_new(struct verbs_lane *lane, struct rdma_cm_id *id, struct sl_err *err)
{
    struct ibv_qp_init_attr attr = {
        .qp_context = lane, /* asynchronous events find the lane by it */
        .send_cq = lane->cq,
        .recv_cq = lane->cq,
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 0,
        .cap = {.max_send_wr = send_queue_size(lane),
                .max_recv_wr = lane->recvs,
                .max_send_sge = 1,
                .max_recv_sge = 1},
    };
    if (sl_verbs->create_qp(id, sl_verbs_domain(lane->base.domain)->pd, &attr) != 0)
        return sl_verbs_err(err, errno, "could not create an RDMA queue pair");
    lane->qp = id->qp;
    return 0;
}

int sl_verbs_queues_new(struct verbs_lane *lane, struct rdma_cm_id *id, struct sl_err *err)
{
    int rc = messages_new(lane, err);
    if (rc == 0)
        rc = completions_new(lane, err);
    if (rc == 0)
        rc = queue_pair_new(lane, id, err);
    if (rc != 0)
        return rc;
    for (uint16_t i = 0; i < lane->recvs && rc == 0; i++)
        if ((rc = sl_verbs_post_recv(lane, i)) != 0)
            rc = sl_verbs_err(err, rc, "could not post an RDMA receive");
    if (rc != 0) {
        sl_verbs->destroy_qp(id);
        lane->qp = NULL;
    }
    return rc;
}

void sl_verbs_queues_free(struct verbs_lane *lane)
{
    if (lane->cq) {
        if (lane->cq_events)
            sl_verbs->ack_cq_events(lane->cq, lane->cq_events);
        lane->cq_events = 0;
        sl_verbs->destroy_cq(lane->cq);
        lane->cq = NULL;
    }
    if (lane->comp) {
        sl_verbs->destroy_comp_channel(lane->comp);
        lane->comp = NULL;
    }
    if (lane->messages_mr) {
        sl_verbs->dereg_mr(lane->messages_mr);
        lane->messages_mr = NULL;
    }
    if (lane->messages)
        sl_pages_free(lane->messages, lane->messages_bytes);
    lane->messages = NULL;
}

uint8_t *sl_verbs_send_buffer(struct verbs_lane *lane, uint64_t number)
{
    return lane->messages + (size_t)(number % lane->sends) * SL_NOTICE_BYTES;
}

uint8_t *sl_verbs_recv_buffer(struct verbs_lane *lane, uint16_t index)
{
    return lane->messages + (size_t)(lane->sends + index) * SL_NOTICE_BYTES;
}

int sl_verbs_post_recv(struct verbs_lane *lane, uint16_t index)
{
    struct ibv_sge sge = {.addr = (uintptr_t)sl_verbs_recv_buffer(lane, index),
                          .length = SL_NOTICE_BYTES,
                          .lkey = lane->messages_mr->lkey};
    struct ibv_recv_wr wr = {
        .wr_id = sl_verbs_wr_id(WORK_RECV, index), .sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr *bad;
    return sl_verbs->post_recv(lane->qp, &wr, &bad);
}

int sl_verbs_post_message(struct verbs_lane *lane, uint64_t number)
{
    struct ibv_sge sge = {.addr = (uintptr_t)sl_verbs_send_buffer(lane, number),
                          .length = SL_NOTICE_BYTES,
                          .lkey = lane->messages_mr->lkey};
    struct ibv_send_wr wr = {.wr_id = sl_verbs_wr_id(WORK_SEND, (uint16_t)(number % lane->sends)),
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    return sl_verbs->post_send(lane->qp, &wr, &bad);
}

int sl_verbs_post_block(struct verbs_lane *lane, uint16_t index, const struct sl_local *local,
                        uint64_t address, uint32_t key, uint32_t bytes)
{
    enum work_kind kind = lane->works[index].kind;
    struct ibv_sge sge = {.addr = (uintptr_t)local->start,
                          .length = bytes,
                          .lkey = sl_verbs_region(local->region)->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = sl_verbs_wr_id(kind, index),
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = kind == WORK_PULL ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {.remote_addr = address, .rkey = key}};
    struct ibv_send_wr *bad;
    return sl_verbs->post_send(lane->qp, &wr, &bad);
}
