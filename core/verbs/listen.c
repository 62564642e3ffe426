/* The target's end of a lane comes up: requests are admitted from their private data before
 * anything is made for them, and count as half open until the client's first grant is here.
 */
#include "core/verbs/verbs_internal.h"

#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/wire/cursor.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define BACKLOG       128
#define HALF_OPEN_MAX 1024
#define AGAIN_MS      1000

struct attempt {
    struct verbs_lane *lane;
    sl_deadline deadline;
};

struct listener {
    struct sl_listener base;
    struct sl_listen config;
    struct rdma_event_channel *channel;
    struct rdma_cm_id *ids[2];       /* IPv4 and IPv6 */
    struct sockaddr_storage address; /* of ids[0], which is made again if its device vanishes */
    sl_deadline again;               /* when to try, 0: it listens */
    int timer_fd;
    struct verbs_rail *rails;
    struct attempt *attempts; /* half_open_max of them */
    uint32_t attempt_count;
};

static struct listener *listener_of(struct sl_listener *listener)
{
    return (struct listener *)listener;
}

/* --- requests -------------------------------------------------------------------------------- */

struct request {
    struct rdma_cm_id *id;
    uint8_t hello_bytes[SL_LANE_HELLO_BYTES];
    size_t hello_length;
    struct sl_lane_hello hello;
    uint8_t reads; /* that the client serves at a time */
};

static void reject(struct rdma_cm_id *id, int code)
{
    uint8_t bytes[SL_VERBS_REFUSAL_BYTES];
    struct sl_writer w = sl_writer_on(bytes, sizeof bytes);
    sl_write_u32(&w, SL_VERBS_REFUSAL_MAGIC);
    sl_write_u16(&w, (uint16_t)-code);
    sl_write_u16(&w, 0);
    sl_verbs->reject(id, bytes, sizeof bytes);
}

static int rail_for(struct listener *listener, struct ibv_context *context, uint8_t port,
                    struct verbs_rail **ret_rail, struct sl_err *err)
{
    struct verbs_rail *rail;
    for (rail = listener->rails; rail; rail = rail->next)
        if (rail->device->context == context && rail->port == port) {
            *ret_rail = rail;
            return 0;
        }
    int rc = sl_verbs_rail_new(context, port, &rail, err);
    if (rc != 0)
        return rc;
    rc = listener->config.rail_met
             ? listener->config.rail_met(listener->config.admit_arg, &rail->base, err)
             : 0;
    if (rc != 0) {
        sl_verbs_rail_drop(rail);
        return rc;
    }
    rail->met = true;
    rail->next = listener->rails;
    listener->rails = rail;
    *ret_rail = rail;
    return 0;
}

static int check_hello(struct request *request, struct sl_err *err)
{
    if (sl_lane_hello_decode(request->hello_bytes, request->hello_length, &request->hello) != 0)
        return sl_err_set(err, SL_ERR_PROTOCOL, "an RDMA connection sent no lane hello");
    if (request->hello.depth == 0 || request->reads == 0)
        return sl_err_set(err, SL_ERR_PROTOCOL, "a client's lane serves no RDMA READs");
    return 0;
}

static uint16_t lane_depth(const struct listener *listener, const struct verbs_rail *rail,
                           const struct sl_lane_hello *hello)
{
    uint16_t depth = listener->config.depth;
    if (depth == 0 || depth > hello->depth)
        depth = hello->depth;
    return depth < rail->base.max_depth ? depth : rail->base.max_depth;
}

/* From here on the cm_id is the lane's, on a channel of its own. */
static int begin_lane(struct sl_domain *domain, uint16_t depth, const struct request *request,
                      struct verbs_lane **ret_lane, struct sl_err *err)
{
    struct rdma_event_channel *channel;
    struct verbs_lane *lane;
    int rc = sl_verbs_lane_new(domain, request->id, true, depth, &request->hello, &lane, err);
    if (rc != 0)
        return rc;
    rc = sl_verbs_channel_new(&channel, err);
    if (rc == 0 && sl_verbs->migrate_id(request->id, channel) != 0) {
        rc = sl_err_sys(err, SL_ERR_CONNECT, errno, "could not take an RDMA connection over");
        sl_verbs->destroy_event_channel(channel);
    }
    if (rc != 0) {
        sl_verbs_lane_discard(lane, request->id);
        return rc;
    }
    *ret_lane = lane;
    return sl_verbs_lane_take(lane, channel, request->id, err);
}

static int answer(struct verbs_lane *lane, const struct request *request,
                  const uint8_t reply[SL_LANE_HELLO_BYTES], struct sl_err *err)
{
    struct rdma_conn_param param = {
        .private_data = reply,
        .private_data_len = SL_LANE_HELLO_BYTES,
        .responder_resources = 0, /* the client never reads */
        .initiator_depth =
            sl_verbs_reads(lane->rail->device->attr.max_qp_init_rd_atom, request->reads),
        .rnr_retry_count = SL_VERBS_RNR_RETRY,
    };
    sl_verbs_ack_timeout(lane->id);
    if (sl_verbs->accept(lane->id, &param) != 0)
        return sl_err_sys(err, SL_ERR_CONNECT, errno, "could not accept an RDMA connection");
    sl_verbs_lane_connected(lane);
    return 0;
}

static int watch(struct listener *listener, int fd, struct sl_err *err)
{
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(listener->base.fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return sl_err_sys(err, SL_ERR_CONNECT, errno, "could not watch an RDMA listener");
    return 0;
}

/* On failure the request's cm_id is gone. */
static int admit(struct listener *listener, struct request *request, struct sl_err *err)
{
    struct verbs_rail *rail = NULL;
    struct verbs_lane *lane = NULL;
    struct sl_domain *domain = NULL;
    uint8_t reply[SL_LANE_HELLO_BYTES];
    int rc = check_hello(request, err);
    if (rc == 0 && listener->attempt_count == listener->config.half_open_max)
        rc = sl_err_set(err, SL_ERR_BUSY, "too many RDMA connections are opening");
    if (rc == 0)
        rc = rail_for(listener, request->id->verbs, request->id->port_num, &rail, err);
    if (rc == 0)
        rc = listener->config.admit(listener->config.admit_arg, &rail->base, &request->hello,
                                    request->hello_bytes, &domain, reply, err);
    if (rc == 0 && (!domain || domain->rail != &rail->base))
        rc = sl_err_set(err, SL_ERR_INTERNAL, "a lane's domain is of another rail");
    if (rc == 0)
        rc = begin_lane(domain, lane_depth(listener, rail, &request->hello), request, &lane, err);
    if (rc == 0)
        rc = answer(lane, request, reply, err);
    if (rc == 0)
        rc = watch(listener, lane->base.fd, err);
    if (rc == 0) {
        listener->attempts[listener->attempt_count++] =
            (struct attempt){lane, sl_deadline_in_ms(listener->config.handshake_ms)};
        return 0;
    }
    reject(request->id, rc);
    if (lane)
        sl_lane_free(&lane->base);
    else
        sl_verbs->destroy_id(request->id);
    return rc;
}

/* An id bound to one address falls with its device, and must be destroyed (rdma_get_cm_event(3)).
 * Listeners on all addresses are moved by the kernel. */
static int device_removed(struct listener *listener, const struct rdma_cm_id *id,
                          struct sl_err *err)
{
    for (size_t i = 0; i < 2; i++)
        if (listener->ids[i] == id) {
            sl_verbs->destroy_id(listener->ids[i]);
            listener->ids[i] = NULL;
            listener->again = sl_deadline_in_ms(AGAIN_MS);
        }
    return sl_err_set(err, SL_ERR_DEVICE, "the RDMA device that was listened on is gone");
}

static int handle_event(struct listener *listener, struct rdma_cm_event *event, struct sl_err *err)
{
    struct rdma_cm_id *id = event->id;
    if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
        sl_verbs->ack_cm_event(event);
        return device_removed(listener, id, err);
    }
    if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
        sl_log(SL_LOG_DEBUG, "verbs", "listener: %s", rdma_event_str(event->event));
        sl_verbs->ack_cm_event(event);
        return 0;
    }
    struct request request = {.id = id, .reads = event->param.conn.initiator_depth};
    if (event->param.conn.private_data) {
        request.hello_length = event->param.conn.private_data_len;
        if (request.hello_length > SL_LANE_HELLO_BYTES)
            request.hello_length = SL_LANE_HELLO_BYTES; /* the rest is padding */
        memcpy(request.hello_bytes, event->param.conn.private_data, request.hello_length);
    }
    /* rdma_migrate_id waits for the acknowledgement of all events of the channel. */
    sl_verbs->ack_cm_event(event);
    return admit(listener, &request, err);
}

/* --- attempts -------------------------------------------------------------------------------- */

static struct verbs_lane *remove_attempt(struct listener *listener, uint32_t index)
{
    struct verbs_lane *lane = listener->attempts[index].lane;
    epoll_ctl(listener->base.fd, EPOLL_CTL_DEL, lane->base.fd, NULL);
    listener->attempts[index] = listener->attempts[--listener->attempt_count];
    return lane;
}

/* 1 and a lane, 0, or the failure of one attempt. */
static int look_at_attempts(struct listener *listener, struct sl_lane **ret_lane,
                            struct sl_err *err)
{
    for (uint32_t i = 0; i < listener->attempt_count; i++) {
        struct verbs_lane *lane = listener->attempts[i].lane;
        sl_verbs_lane_look(lane);
        if (lane->state == LANE_READY) {
            *ret_lane = &remove_attempt(listener, i)->base;
            return 1;
        }
        bool late = sl_deadline_passed(listener->attempts[i].deadline);
        if (lane->state != LANE_DEAD && !late)
            continue;
        remove_attempt(listener, i);
        int code = late ? SL_ERR_TIMEOUT : lane->fail_code;
        sl_err_set(err, code, "an RDMA lane from %s did not open: %s", lane->info.remote,
                   late ? "deadline passed" : lane->base.reason);
        sl_lane_free(&lane->base);
        return code;
    }
    return 0;
}

static int listen_on(struct listener *listener, struct sockaddr *address,
                     struct rdma_cm_id **ret_id, struct sl_err *err)
{
    struct rdma_cm_id *id;
    char text[64];
    int v6_only = 1;
    sl_verbs_address_text(address, text, sizeof text);
    if (sl_verbs->create_id(listener->channel, &id, NULL, RDMA_PS_TCP) != 0)
        return sl_err_sys(err, SL_ERR_CONNECT, errno, "could not make an RDMA listener");
    if (address->sa_family == AF_INET6) /* IPv4 has a listener of its own */
        sl_verbs->set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &v6_only, sizeof v6_only);
    if (sl_verbs->bind_addr(id, address) != 0 || sl_verbs->listen(id, BACKLOG) != 0) {
        int sys = errno;
        sl_verbs->destroy_id(id);
        return sl_err_sys(err, SL_ERR_CONNECT, sys, "could not listen for RDMA on %s", text);
    }
    /* Both families have the port at the same place. */
    listener->base.port = ntohs(id->route.addr.src_sin.sin_port);
    *ret_id = id;
    return 0;
}

static void listen_again(struct listener *listener)
{
    struct sl_err err;
    if (!listener->again || !sl_deadline_passed(listener->again))
        return;
    int rc = listen_on(listener, (struct sockaddr *)&listener->address, &listener->ids[0], &err);
    listener->again = rc == 0 ? 0 : sl_deadline_in_ms(AGAIN_MS);
    sl_log(rc == 0 ? SL_LOG_INFO : SL_LOG_DEBUG, "verbs", "%s",
           rc == 0 ? "listening for RDMA again" : err.msg);
}

/* The timer makes the listener's fd ready when an attempt is late, or it is time to listen again.
 */
static void set_timer(struct listener *listener)
{
    sl_deadline first = listener->again;
    for (uint32_t i = 0; i < listener->attempt_count; i++)
        if (first == 0 || listener->attempts[i].deadline < first)
            first = listener->attempts[i].deadline;
    struct itimerspec when = {.it_value = sl_deadline_timespec(first)};
    timerfd_settime(listener->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static int accept_lane(struct sl_listener *base, struct sl_lane **ret_lane, struct sl_err *err)
{
    struct listener *listener = listener_of(base);
    struct rdma_cm_event *event;
    int rc = 0;
    while (rc == 0 && sl_verbs->get_cm_event(listener->channel, &event) == 0)
        rc = handle_event(listener, event, err);
    if (rc == 0)
        rc = look_at_attempts(listener, ret_lane, err);
    listen_again(listener);
    set_timer(listener);
    return rc;
}

/* --- listening ------------------------------------------------------------------------------- */

static void free_listener(struct sl_listener *base)
{
    struct listener *listener = listener_of(base);
    if (!listener)
        return;
    while (listener->attempt_count)
        sl_lane_free(&remove_attempt(listener, 0)->base);
    for (size_t i = 0; i < 2; i++)
        if (listener->ids[i])
            sl_verbs->destroy_id(listener->ids[i]);
    if (listener->channel)
        sl_verbs->destroy_event_channel(listener->channel);
    while (listener->rails) {
        struct verbs_rail *rail = listener->rails;
        listener->rails = rail->next;
        sl_verbs_rail_drop(rail);
    }
    if (listener->base.fd >= 0)
        close(listener->base.fd);
    if (listener->timer_fd >= 0)
        close(listener->timer_fd);
    sl_free(listener->attempts);
    sl_free(listener);
}

static int listen_address(struct listener *listener, const char *address, uint16_t port,
                          struct sl_err *err)
{
    char service[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_PASSIVE},
                    *list;
    snprintf(service, sizeof service, "%u", port);
    int rc = getaddrinfo(address, service, &hints, &list);
    if (rc != 0)
        return sl_err_set(err, SL_ERR_CONFIG, "\"%s\" is no address: %s", address,
                          gai_strerror(rc));
    rc = listen_on(listener, list->ai_addr, &listener->ids[0], err);
    memcpy(&listener->address, list->ai_addr, list->ai_addrlen);
    if (rc == 0) /* the same port later, if any was asked for */
        memcpy(&listener->address, &listener->ids[0]->route.addr.src_storage, list->ai_addrlen);
    freeaddrinfo(list);
    return rc;
}

static int listen_everywhere(struct listener *listener, uint16_t port, struct sl_err *err)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address = {.v4 = {.sin_family = AF_INET, .sin_port = htons(port)}};
    struct sl_err v6_err;
    int rc = listen_on(listener, &address.any, &listener->ids[0], err);
    if (rc != 0)
        return rc;
    uint16_t chosen = listener->base.port;
    memset(&address, 0, sizeof address);
    address.v6.sin6_family = AF_INET6;
    address.v6.sin6_port = htons(chosen);
    if (listen_on(listener, &address.any, &listener->ids[1], &v6_err) != 0)
        sl_log_err(SL_LOG_DETAIL, "verbs", &v6_err, "no RDMA lanes over IPv6");
    listener->base.port = chosen;
    return 0;
}

/* Every port that clients may come through is met now: the owner registers its pool then, and to
 * pin memory takes seconds for each GiB, in which nobody is listened to. What is not active yet, or
 * cannot be used, is met when the first client comes. */
static void meet_devices(struct listener *listener)
{
    int count = 0;
    struct ibv_context **list = sl_verbs->get_devices(&count);
    for (int i = 0; list && i < count; i++) {
        struct verbs_device *device;
        bool other = listener->ids[0]->verbs && listener->ids[0]->verbs != list[i];
        if (other || sl_verbs_device_get(list[i], &device, NULL) != 0)
            continue;
        for (unsigned port = 1; port <= device->attr.phys_port_cnt; port++) {
            struct verbs_rail *rail;
            struct sl_err err;
            if (rail_for(listener, list[i], (uint8_t)port, &rail, &err) != 0)
                sl_log_err(SL_LOG_DEBUG, "verbs", &err, "not listening through it yet");
        }
        sl_verbs_device_put(device);
    }
    if (list)
        sl_verbs->free_devices(list);
}

static const struct sl_listener_ops listener_ops = {.accept = accept_lane, .free = free_listener};

int sl_verbs_listen(const struct sl_listen *config, struct sl_listener **ret_listener,
                    struct sl_err *err)
{
    struct listener *listener = sl_calloc(1, sizeof *listener);
    if (!listener)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    listener->config = *config;
    if (listener->config.half_open_max == 0 || listener->config.half_open_max > HALF_OPEN_MAX)
        listener->config.half_open_max = HALF_OPEN_MAX;
    listener->base.ops = &listener_ops;
    listener->base.fd = epoll_create1(EPOLL_CLOEXEC);
    listener->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    listener->attempts = sl_calloc(listener->config.half_open_max, sizeof *listener->attempts);
    int rc = listener->base.fd < 0 || listener->timer_fd < 0
                 ? sl_err_sys(err, SL_ERR_CONNECT, errno, "could not make an RDMA listener")
             : listener->attempts ? sl_verbs_channel_new(&listener->channel, err)
                                  : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    if (rc == 0)
        rc = watch(listener, listener->channel->fd, err);
    if (rc == 0)
        rc = watch(listener, listener->timer_fd, err);
    if (rc == 0)
        rc = config->address ? listen_address(listener, config->address, config->port, err)
                             : listen_everywhere(listener, config->port, err);
    if (rc != 0) {
        free_listener(&listener->base);
        return rc;
    }
    meet_devices(listener);
    *ret_listener = &listener->base;
    return 0;
}
