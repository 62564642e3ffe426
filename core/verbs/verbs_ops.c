/* The real verbs behind sl_verbs_ops: libibverbs and librdmacm, with fault points on the calls
 * that may fail for want of resources. Not the place for policy: it only forwards.
 */
#include "core/verbs/verbs_ops.h"

#include "core/base/fault.h"

#include <errno.h>

/* Post verbs have reported ENOMEM as a return value and as -1 with errno, by provider
 * (rdma-core#824 and libfabric#824): callers get an errno value. */
static int errno_value(int rc)
{
    return rc < 0 ? (errno ? errno : EIO) : rc;
}

static int real_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    int fault = sl_fault("verbs.create_qp");
    if (fault > 0)
        return errno = fault, -1;
    return rdma_create_qp(id, pd, attr);
}

static int real_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
    int fault = sl_fault("verbs.connect");
    if (fault > 0)
        return errno = fault, -1;
    return rdma_connect(id, param);
}

static int real_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
    int fault = sl_fault("verbs.accept");
    if (fault > 0)
        return errno = fault, -1;
    return rdma_accept(id, param);
}

static int real_fork_init(void)
{
    if (ibv_is_fork_initialized() != IBV_FORK_DISABLED)
        return 0;
    return ibv_fork_init();
}

static int real_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
    return ibv_query_port(context, port, attr);
}

static int real_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                             struct ibv_gid_entry *entry, uint32_t flags)
{
    return ibv_query_gid_ex(context, port, index, entry, flags);
}

static struct ibv_mr *real_reg_mr(struct ibv_pd *pd, void *start, size_t bytes, unsigned access)
{
    int fault = sl_fault("verbs.reg_mr");
    if (fault > 0)
        return errno = fault, NULL;
    return ibv_reg_mr(pd, start, bytes, access);
}

static struct ibv_cq *real_create_cq(struct ibv_context *context, int entries, void *user,
                                     struct ibv_comp_channel *channel, int vector)
{
    int fault = sl_fault("verbs.create_cq");
    if (fault > 0)
        return errno = fault, NULL;
    return ibv_create_cq(context, entries, user, channel, vector);
}

static int real_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
    return ibv_poll_cq(cq, max, wc);
}

static int real_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
    return errno_value(ibv_req_notify_cq(cq, solicited_only));
}

static int real_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
    int fault = sl_fault("verbs.post_send");
    if (fault > 0)
        return fault;
    return errno_value(ibv_post_send(qp, wr, ret_bad));
}

static int real_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad)
{
    int fault = sl_fault("verbs.post_recv");
    if (fault > 0)
        return fault;
    return errno_value(ibv_post_recv(qp, wr, ret_bad));
}

const struct sl_verbs_ops sl_verbs_real = {
    .create_event_channel = rdma_create_event_channel,
    .destroy_event_channel = rdma_destroy_event_channel,
    .create_id = rdma_create_id,
    .destroy_id = rdma_destroy_id,
    .bind_addr = rdma_bind_addr,
    .resolve_addr = rdma_resolve_addr,
    .resolve_route = rdma_resolve_route,
    .create_qp = real_create_qp,
    .destroy_qp = rdma_destroy_qp,
    .connect = real_connect,
    .listen = rdma_listen,
    .accept = real_accept,
    .reject = rdma_reject,
    .disconnect = rdma_disconnect,
    .get_cm_event = rdma_get_cm_event,
    .ack_cm_event = rdma_ack_cm_event,
    .set_option = rdma_set_option,
    .migrate_id = rdma_migrate_id,
    .get_devices = rdma_get_devices,
    .free_devices = rdma_free_devices,
    .fork_init = real_fork_init,
    .query_device = ibv_query_device,
    .query_port = real_query_port,
    .query_gid_ex = real_query_gid_ex,
    .query_qp = ibv_query_qp,
    .alloc_pd = ibv_alloc_pd,
    .dealloc_pd = ibv_dealloc_pd,
    .reg_mr = real_reg_mr,
    .dereg_mr = ibv_dereg_mr,
    .create_comp_channel = ibv_create_comp_channel,
    .destroy_comp_channel = ibv_destroy_comp_channel,
    .create_cq = real_create_cq,
    .destroy_cq = ibv_destroy_cq,
    .poll_cq = real_poll_cq,
    .req_notify_cq = real_req_notify_cq,
    .get_cq_event = ibv_get_cq_event,
    .ack_cq_events = ibv_ack_cq_events,
    .modify_qp = ibv_modify_qp,
    .post_send = real_post_send,
    .post_recv = real_post_recv,
    .get_async_event = ibv_get_async_event,
    .ack_async_event = ibv_ack_async_event,
};

const struct sl_verbs_ops *sl_verbs = &sl_verbs_real;
