/* The client's end of a lane comes up: address, route, queue pair, connection, first grant. It
 * blocks, until a deadline; the MAC of the target's hello is the caller's to check.
 */
#include "core/verbs/verbs_internal.h"

#include "core/base/thread.h"
#include "core/wire/cursor.h"

#include <errno.h>
#include <string.h>

static int refused(const struct rdma_cm_event *event, const char *host, struct sl_err *err)
{
    const struct rdma_conn_param *conn = &event->param.conn;
    if (conn->private_data && conn->private_data_len >= SL_VERBS_REFUSAL_BYTES) {
        struct sl_reader r = sl_reader_on(conn->private_data, SL_VERBS_REFUSAL_BYTES);
        uint32_t magic = sl_read_u32(&r);
        int code = -(int)sl_read_u16(&r);
        if (magic == SL_VERBS_REFUSAL_MAGIC && strcmp(sl_code_name(code), sl_code_name(1)))
            return sl_err_set(err, code, "\"%s\" refused the lane: %s", host, sl_code_text(code));
    }
    return sl_err_set(err, SL_ERR_CONNECT, "\"%s\" refused the lane (status %d)", host,
                      event->status);
}

static int established(const struct rdma_cm_event *event, const char *host,
                       uint8_t reply[SL_LANE_HELLO_BYTES], struct sl_err *err)
{
    const struct rdma_conn_param *conn = &event->param.conn;
    switch (event->event) {
    case RDMA_CM_EVENT_ESTABLISHED:
        /* It may be longer than what was sent (rdma_connect(3)), never shorter. */
        if (!conn->private_data || conn->private_data_len < SL_LANE_HELLO_BYTES)
            return sl_err_set(err, SL_ERR_PROTOCOL, "\"%s\" answered with a short hello", host);
        memcpy(reply, conn->private_data, SL_LANE_HELLO_BYTES);
        return 0;
    case RDMA_CM_EVENT_REJECTED:
        return refused(event, host, err);
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        return sl_err_set(err, SL_ERR_DEVICE, "the RDMA device was removed");
    default:
        return sl_err_set(err, SL_ERR_CONNECT, "could not connect to \"%s\" by RDMA: %s (%d)", host,
                          rdma_event_str(event->event), event->status);
    }
}

static int shake_hands(struct verbs_lane *lane, const struct sl_connect *to,
                       uint8_t reply[SL_LANE_HELLO_BYTES], struct sl_err *err)
{
    struct rdma_cm_event *event;
    struct rdma_conn_param param = {
        .private_data = to->hello,
        .private_data_len = SL_LANE_HELLO_BYTES,
        /* READs that the target may have outstanding here; this end never reads. */
        .responder_resources =
            sl_verbs_reads(lane->rail->device->attr.max_qp_rd_atom, lane->base.depth),
        .initiator_depth = 0,
        .retry_count = SL_VERBS_RETRY,
        .rnr_retry_count = SL_VERBS_RNR_RETRY,
    };
    if (param.responder_resources == 0)
        return sl_err_set(err, SL_ERR_UNSUPPORTED, "RDMA device of \"%s\" serves no READs",
                          lane->rail->base.label);
    if (sl_verbs->connect(lane->id, &param) != 0)
        return sl_err_sys(err, SL_ERR_CONNECT, errno, "could not connect to \"%s\" by RDMA",
                          to->host);
    int rc = sl_verbs_cm_wait(lane->channel, to, &event, err);
    if (rc != 0)
        return sl_err_prefix(err, "no answer from \"%s\" by RDMA", to->host);
    rc = established(event, to->host, reply, err);
    sl_verbs->ack_cm_event(event);
    return rc;
}

/* Channel and cm_id become the lane's. */
static int make_lane(struct sl_domain *domain, const struct sl_connect *to,
                     struct rdma_event_channel *channel, struct rdma_cm_id *id,
                     struct verbs_lane **ret_lane, struct sl_err *err)
{
    struct sl_lane_hello hello;
    const struct verbs_rail *rail = sl_verbs_rail(domain->rail);
    int rc = sl_lane_hello_decode(to->hello, SL_LANE_HELLO_BYTES, &hello);
    if (rc != 0)
        sl_err_set(err, rc, "the lane's hello is malformed");
    /* The target will use no more than the hello says, whatever its own depth. */
    uint16_t depth = to->depth < hello.depth ? hello.depth : to->depth;
    if (depth > rail->base.max_depth)
        depth = rail->base.max_depth;
    if (rc == 0)
        rc = sl_verbs_lane_new(domain, id, false, depth ? depth : 1, &hello, ret_lane, err);
    if (rc != 0) {
        sl_verbs->destroy_id(id);
        sl_verbs->destroy_event_channel(channel);
        return rc;
    }
    sl_verbs_ack_timeout(id);
    rc = sl_verbs_lane_take(*ret_lane, channel, id, err);
    if (rc != 0)
        sl_lane_free(&(*ret_lane)->base);
    return rc;
}

static void *bury_in_thread(void *arg)
{
    sl_lane_free(arg);
    return NULL;
}

/* Frees a lane that did not open, because of `code`. iWARP's kernel drivers hold a queue pair until
 * the connection is answered or their own timer ends (siw: 10 s), so that destroying it would break
 * the caller's deadline. The lane keeps its domain, so the caller may free that meanwhile. */
static void bury(struct verbs_lane *lane, int code)
{
    pthread_t thread;
    if ((code == SL_ERR_TIMEOUT || code == SL_ERR_CANCELLED) && lane->rail->device->iwarp &&
        sl_thread_start(&thread, "sl-verbs-end", bury_in_thread, &lane->base, NULL) == 0)
        pthread_detach(thread);
    else
        sl_lane_free(&lane->base);
}

int sl_verbs_connect(struct sl_rail *rail, struct sl_domain *domain, const struct sl_connect *to,
                     uint8_t reply[SL_LANE_HELLO_BYTES], struct sl_lane **ret_lane,
                     struct sl_err *err)
{
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct verbs_lane *lane;
    if (domain->rail != rail)
        return sl_err_set(err, SL_ERR_INTERNAL, "a lane's domain is of another rail");
    int rc = sl_verbs_channel_new(&channel, err);
    if (rc != 0)
        return rc;
    rc = sl_verbs_resolve(to, sl_verbs_rail(rail), channel, &id, err);
    if (rc != 0) {
        sl_verbs->destroy_event_channel(channel);
        return rc;
    }
    rc = make_lane(domain, to, channel, id, &lane, err);
    if (rc != 0)
        return rc;
    uint8_t answer[SL_LANE_HELLO_BYTES];
    rc = shake_hands(lane, to, answer, err);
    if (rc == 0) {
        sl_verbs_lane_connected(lane);
        rc = sl_verbs_lane_greet(lane, err);
    }
    if (rc != 0) {
        bury(lane, rc);
        return rc;
    }
    memcpy(reply, answer, sizeof answer);
    *ret_lane = &lane->base;
    return 0;
}
