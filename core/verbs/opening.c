/* What both ends do to bring a lane up: its memory, its fds, its last settings. */
#include "core/verbs/verbs_internal.h"

#include "core/base/alloc.h"
#include "core/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

static int books_new(struct verbs_lane *lane, uint16_t depth)
{
    lane->base.depth = depth;
    lane->sends = lane->active ? depth : SL_VERBS_GRANT_BUFFERS;
    lane->recvs = lane->active ? SL_VERBS_GRANT_BUFFERS + SL_VERBS_NUDGES : (uint16_t)(2 * depth);
    /* One batch of completions may lie there unfetched, then all work in flight is answered. */
    lane->event_room = (size_t)SL_VERBS_POLL + depth + lane->sends + lane->recvs + 4;
    lane->events = sl_calloc(lane->event_room, sizeof *lane->events);
    lane->works = sl_calloc(depth, sizeof *lane->works);
    lane->free_works = sl_calloc(depth, sizeof *lane->free_works);
    if (!lane->events || !lane->works || !lane->free_works)
        return SL_ERR_NO_MEMORY;
    for (uint16_t i = 0; i < depth; i++)
        lane->free_works[lane->free_count++] = (uint16_t)(depth - 1 - i);
    return 0;
}

static int fds_new(struct verbs_lane *lane, struct sl_err *err)
{
    lane->base.fd = epoll_create1(EPOLL_CLOEXEC);
    lane->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool nudging = lane->rail->device->iwarp && !lane->active;
    if (nudging)
        lane->nudge_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (lane->base.fd < 0 || lane->wake_fd < 0 || (nudging && lane->nudge_fd < 0))
        return sl_err_sys(err, SL_ERR_CONNECT, errno, "could not make a lane");
    return 0;
}

void sl_verbs_lane_release(struct verbs_lane *lane)
{
    sl_verbs_queues_free(lane);
    if (lane->base.fd >= 0)
        close(lane->base.fd);
    if (lane->wake_fd >= 0)
        close(lane->wake_fd);
    if (lane->nudge_fd >= 0)
        close(lane->nudge_fd);
    sl_verbs_domain_drop(lane->base.domain);
    sl_free(lane->works);
    sl_free(lane->free_works);
    sl_free(lane->events);
    sl_free(lane);
}

int sl_verbs_lane_new(struct sl_domain *domain, struct rdma_cm_id *id, bool active, uint16_t depth,
                      const struct sl_lane_hello *hello, struct verbs_lane **ret_lane,
                      struct sl_err *err)
{
    struct verbs_lane *lane = sl_calloc(1, sizeof *lane);
    if (!lane)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    lane->base = (struct sl_lane){.ops = &sl_verbs_lane_ops,
                                  .domain = domain,
                                  .fd = -1,
                                  .events_wanted = EPOLLIN,
                                  .id = hello->lane,
                                  .session = hello->session,
                                  .rail_number = hello->rail};
    lane->wake_fd = lane->nudge_fd = -1;
    lane->active = active;
    lane->rail = sl_verbs_rail(domain->rail);
    sl_verbs_domain_hold(domain);
    int rc = books_new(lane, depth);
    if (rc != 0)
        sl_err_set(err, rc, "out of memory");
    if (rc == 0)
        rc = fds_new(lane, err);
    if (rc == 0)
        rc = sl_verbs_queues_new(lane, id, err);
    if (rc != 0) {
        sl_verbs_lane_release(lane);
        return rc;
    }
    *ret_lane = lane;
    return 0;
}

void sl_verbs_lane_discard(struct verbs_lane *lane, struct rdma_cm_id *id)
{
    sl_verbs->destroy_qp(id);
    sl_verbs_lane_release(lane);
}

int sl_verbs_lane_take(struct verbs_lane *lane, struct rdma_event_channel *channel,
                       struct rdma_cm_id *id, struct sl_err *err)
{
    lane->channel = channel;
    lane->id = id;
    const int fds[] = {lane->wake_fd, lane->comp->fd, channel->fd,
                       lane->rail->device->context->async_fd, lane->nudge_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};
        if (fds[i] >= 0 && epoll_ctl(lane->base.fd, EPOLL_CTL_ADD, fds[i], &event) != 0)
            return sl_err_sys(err, SL_ERR_CONNECT, errno, "could not watch a lane");
    }
    if (sl_verbs_device_add(lane->rail->device, lane) != 0)
        return sl_err_set(err, SL_ERR_DEVICE, "RDMA device \"%s\" has failed",
                          lane->rail->device->context->device->name);
    return 0;
}

void sl_verbs_ack_timeout(struct rdma_cm_id *id)
{
    uint8_t timeout = SL_VERBS_ACK_TIMEOUT;
    /* Kernels before 5.1 lack it and iWARP ignores it: then the path's own value holds. */
    if (sl_verbs->set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                             sizeof timeout) != 0)
        sl_log(SL_LOG_DEBUG, "verbs", "could not set the ACK timeout: %s", strerror(errno));
}

static void fill_info(struct verbs_lane *lane)
{
    struct sl_lane_info *info = &lane->info;
    struct ibv_qp_attr attr = {0};
    struct ibv_qp_init_attr init = {0};
    snprintf(info->transport, sizeof info->transport, "rdma");
    snprintf(info->device, sizeof info->device, "%.31s", lane->rail->device->context->device->name);
    info->port = lane->rail->port;
    info->depth = lane->base.depth;
    snprintf(info->link_layer, sizeof info->link_layer, "%s",
             sl_verbs_link_name(lane->rail->device, &lane->rail->port_attr));
    sl_verbs_address_text(&lane->id->route.addr.src_addr, info->local, sizeof info->local);
    sl_verbs_address_text(&lane->id->route.addr.dst_addr, info->remote, sizeof info->remote);
    if (lane->rail->device->iwarp ||
        sl_verbs->query_qp(lane->qp, &attr, IBV_QP_AV | IBV_QP_PATH_MTU, &init) != 0)
        return;
    info->mtu = 128u << attr.path_mtu;
    snprintf(info->gid_type, sizeof info->gid_type, "%s",
             sl_verbs_gid_name(lane->rail->device, lane->rail->port, attr.ah_attr.grh.sgid_index));
}

void sl_verbs_lane_connected(struct verbs_lane *lane)
{
    struct ibv_qp_attr attr = {.min_rnr_timer = SL_VERBS_MIN_RNR_TIMER};
    /* A matter of InfiniBand and RoCE; grants make it moot, so a refusal is no failure. */
    if (!lane->rail->device->iwarp &&
        sl_verbs->modify_qp(lane->qp, &attr, IBV_QP_MIN_RNR_TIMER) != 0)
        sl_log(SL_LOG_DEBUG, "verbs", "could not set the RNR timer of %s", lane->rail->base.label);
    fill_info(lane);
}
