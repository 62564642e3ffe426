/* The fake device's connection manager: ids, event channels, requests and refusals. */
#include "tests/support/fake_verbs_internal.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct fake_id *id_of(struct rdma_cm_id *id)
{
    return (struct fake_id *)id;
}

/* --- the connection manager ------------------------------------------------------------------ */

static struct fake_channel *channel_of(struct rdma_event_channel *channel)
{
    return (struct fake_channel *)channel;
}

static struct rdma_event_channel *create_event_channel(void)
{
    FAKE_LOCKED;
    FAKE_FAIL("create_event_channel", NULL);
    if (fake_verbs.absent)
        return errno = ENODEV, NULL;
    struct fake_channel *channel = fake_object(sizeof *channel);
    channel->channel.fd = eventfd(0, EFD_SEMAPHORE);
    channel->last = &channel->first;
    return &channel->channel;
}

static int destroy_id(struct rdma_cm_id *of);

static void destroy_event_channel(struct rdma_event_channel *channel)
{
    FAKE_LOCKED;
    /* Requests that nobody has fetched are the kernel's still: it rejects them. */
    struct fake_event *event;
    while ((event = channel_of(channel)->first)) {
        struct rdma_cm_id *id = event->event.id;
        if (event->event.event != RDMA_CM_EVENT_CONNECT_REQUEST) {
            fake_violation("event channel destroyed while it has events");
            break;
        }
        destroy_id(id);
    }
    for (struct fake_id *id = fake.ids; id; id = id->next)
        if (id->id.channel == channel)
            fake_violation("event channel destroyed while it has fake.ids");
    close(channel->fd);
    fake_object_free(channel);
}

static void append(struct rdma_event_channel *to, struct fake_event *event)
{
    struct fake_channel *channel = channel_of(to);
    event->next = NULL;
    *channel->last = event;
    channel->last = &event->next;
    fake_signal(to->fd);
}

struct fake_event *fake_tell(struct fake_id *id, enum rdma_cm_event_type type, int status)
{
    struct fake_event *event = fake_object(sizeof *event);
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
    FAKE_LOCKED;
    struct fake_channel *channel = channel_of(from);
    struct fake_event *event = channel->first;
    if (!event)
        return errno = EAGAIN, -1;
    fake_consume(from->fd);
    channel->first = event->next;
    if (!channel->first)
        channel->last = &channel->first;
    id_of(event->event.id)->unacked++;
    *ret_event = &event->event;
    return 0;
}

static int ack_cm_event(struct rdma_cm_event *event)
{
    FAKE_LOCKED;
    id_of(event->id)->unacked--;
    fake_object_free((struct fake_event *)event);
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
        fake_consume(channel->channel.fd);
        if (to)
            append(to, event);
        else
            fake_object_free(event);
    }
    channel->last = &channel->first;
    while (*channel->last)
        channel->last = &(*channel->last)->next;
}

static struct fake_id *id_new(struct rdma_event_channel *channel)
{
    struct fake_id *id = fake_object(sizeof *id);
    id->id.channel = channel;
    id->id.ps = RDMA_PS_TCP;
    id->next = fake.ids;
    fake.ids = id;
    return id;
}

static int create_id(struct rdma_event_channel *channel, struct rdma_cm_id **ret_id, void *user,
                     enum rdma_port_space space)
{
    FAKE_LOCKED;
    FAKE_FAIL("create_id", -1);
    if (space != RDMA_PS_TCP)
        fake_violation("another port space");
    *ret_id = &id_new(channel)->id;
    (*ret_id)->context = user;
    return 0;
}

static void tell_disconnected(struct fake_id *id)
{
    if (id && id->connected && !id->told) {
        id->told = true;
        fake_tell(id, RDMA_CM_EVENT_DISCONNECTED, 0);
    }
}

static int disconnect(struct rdma_cm_id *of)
{
    FAKE_LOCKED;
    struct fake_id *id = id_of(of);
    if (of->qp)
        fake_fall((struct fake_qp *)of->qp);
    if (!id->connected)
        return errno = EINVAL, -1;
    if (!fake_verbs.lose_disconnects)
        tell_disconnected(id->peer);
    tell_disconnected(id);
    return 0;
}

static int destroy_id(struct rdma_cm_id *of)
{
    FAKE_LOCKED;
    struct fake_id *id = id_of(of), **at = &fake.ids;
    if (of->qp)
        fake_violation("id destroyed while it has a queue pair");
    if (id->unacked)
        fake_violation("id destroyed with unacknowledged events");
    if (id->peer) {
        if (!fake_verbs.lose_disconnects)
            tell_disconnected(id->peer);
        if (!id->connected && id->connector == false) /* neither accepted nor rejected */
            fake_tell(id->peer, RDMA_CM_EVENT_REJECTED, 28);
        id->peer->peer = NULL;
    }
    move_events(id, NULL);
    while (*at != id)
        at = &(*at)->next;
    *at = id->next;
    fake_object_free(id);
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
    for (struct fake_id *id = fake.ids; id; id = id->next)
        if (id->listening && port_of(&id->id.route.addr.src_addr) == port)
            return id;
    return NULL;
}

static int bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
    FAKE_LOCKED;
    FAKE_FAIL("bind_addr", -1);
    memcpy(&id->route.addr.src_storage, address, address_bytes(address));
    if (port_of(address) == 0)
        id->route.addr.src_sin.sin_port = htons(++fake.next_port);
    return 0;
}

static int listen_id(struct rdma_cm_id *id, int backlog)
{
    FAKE_LOCKED;
    (void)backlog;
    FAKE_FAIL("listen", -1);
    struct fake_id *other = listener_at(port_of(&id->route.addr.src_addr));
    if (other && other->id.route.addr.src_addr.sa_family == id->route.addr.src_addr.sa_family)
        return errno = EADDRINUSE, -1;
    id_of(id)->listening = true;
    return 0;
}

static int resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to,
                        int timeout_ms)
{
    FAKE_LOCKED;
    FAKE_FAIL("resolve_addr", -1);
    if (timeout_ms <= 0)
        fake_violation("no time to resolve");
    memcpy(&id->route.addr.dst_storage, to, address_bytes(to));
    memcpy(&id->route.addr.src_storage, from ? from : to, address_bytes(to));
    id->route.addr.src_sin.sin_port = htons(++fake.next_port);
    if (fake_verbs.address_status) {
        fake_tell(id_of(id), RDMA_CM_EVENT_ADDR_ERROR, fake_verbs.address_status);
        return 0;
    }
    id->verbs = &fake.context;
    id->port_num = 1;
    fake_tell(id_of(id), RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    return 0;
}

static int resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
    FAKE_LOCKED;
    (void)timeout_ms;
    FAKE_FAIL("resolve_route", -1);
    fake_tell(id_of(id), RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
    return 0;
}

static int connect_id(struct rdma_cm_id *of, struct rdma_conn_param *param)
{
    FAKE_LOCKED;
    struct fake_id *id = id_of(of);
    FAKE_FAIL("connect", -1);
    if (param->private_data_len > 56)
        fake_violation("more private data than a connection request holds");
    if (param->retry_count > 7 || param->rnr_retry_count > 6)
        fake_violation("retry counts that do not fit, or wait for ever");
    id->connector = true;
    if (fake_verbs.silent)
        return 0;
    struct fake_id *listener = listener_at(port_of(&of->route.addr.dst_addr));
    if (!listener) {
        fake_tell(id, RDMA_CM_EVENT_REJECTED, 8);
        return 0;
    }
    struct fake_id *child = id_new(listener->id.channel);
    child->peer = id;
    id->peer = child;
    child->id.verbs = &fake.context;
    child->id.port_num = 1;
    child->id.route.addr.src_storage = of->route.addr.dst_storage;
    child->id.route.addr.dst_storage = of->route.addr.src_storage;
    struct fake_event *event = fake_tell(child, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    event->event.listen_id = &listener->id;
    event->event.param.conn = *param;
    event->event.param.conn.initiator_depth = param->responder_resources;
    event->event.param.conn.responder_resources = param->initiator_depth;
    give_private_data(event, param->private_data, param->private_data_len);
    return 0;
}

static int accept_id(struct rdma_cm_id *of, struct rdma_conn_param *param)
{
    FAKE_LOCKED;
    struct fake_id *id = id_of(of);
    FAKE_FAIL("accept", -1);
    if (!id->peer)
        return errno = ECONNRESET, -1; /* the other end has given up */
    struct fake_qp *here = (struct fake_qp *)of->qp, *there = (struct fake_qp *)id->peer->id.qp;
    here->peer = there;
    there->peer = here;
    here->connected = there->connected = true;
    id->connected = id->peer->connected = true;
    fake_tell(id, RDMA_CM_EVENT_ESTABLISHED, 0);
    struct fake_event *event = fake_tell(id->peer, RDMA_CM_EVENT_ESTABLISHED, 0);
    event->event.param.conn = *param;
    give_private_data(event, param->private_data, param->private_data_len);
    return 0;
}

static int reject_id(struct rdma_cm_id *of, const void *private_data, uint8_t bytes)
{
    FAKE_LOCKED;
    struct fake_id *id = id_of(of);
    if (!id->peer || id->connected)
        return errno = EINVAL, -1;
    struct fake_event *event = fake_tell(id->peer, RDMA_CM_EVENT_REJECTED, 28);
    give_private_data(event, private_data, bytes);
    id->peer->peer = NULL;
    id->peer = NULL;
    return 0;
}

static int set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t bytes)
{
    (void)id, (void)level, (void)name, (void)value, (void)bytes;
    FAKE_FAIL("set_option", -1);
    return 0;
}

static int migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
    FAKE_LOCKED;
    FAKE_FAIL("migrate_id", -1);
    if (id_of(id)->unacked)
        fake_violation("id migrated with unacknowledged events");
    move_events(id_of(id), channel);
    id->channel = channel;
    return 0;
}

void fake_cm_fill(struct sl_verbs_ops *ops)
{
    ops->create_event_channel = create_event_channel;
    ops->destroy_event_channel = destroy_event_channel;
    ops->create_id = create_id;
    ops->destroy_id = destroy_id;
    ops->bind_addr = bind_addr;
    ops->resolve_addr = resolve_addr;
    ops->resolve_route = resolve_route;
    ops->connect = connect_id;
    ops->listen = listen_id;
    ops->accept = accept_id;
    ops->reject = reject_id;
    ops->disconnect = disconnect;
    ops->get_cm_event = get_cm_event;
    ops->ack_cm_event = ack_cm_event;
    ops->set_option = set_option;
    ops->migrate_id = migrate_id;
}
