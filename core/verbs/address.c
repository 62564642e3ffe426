/* Addresses: from host:port to a cm_id bound to a device. rdma_cm chooses device, port and GID from
 * the IP address and the routing tables; there is no other way to choose them, because a GID index
 * picked by hand is the most frequent mistake with RoCE.
 */
#include "core/verbs/verbs_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

int sl_verbs_channel_new(struct rdma_event_channel **ret_channel, struct sl_err *err)
{
    struct rdma_event_channel *channel = sl_verbs->create_event_channel();
    if (!channel) {
        int sys = errno;
        if (sys != ENODEV && sys != ENOENT && sys != ENOSYS)
            return sl_err_sys(err, SL_ERR_UNSUPPORTED, sys, "RDMA cannot be used");
        sl_err_set(err, SL_ERR_UNSUPPORTED, "this host has no RDMA device");
        return sl_err_hint(err, "'rdma link show' lists devices; /dev/infiniband/rdma_cm belongs "
                                "to the kernel module rdma_ucm");
    }
    int flags = fcntl(channel->fd, F_GETFL);
    if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) < 0) {
        int sys = errno;
        sl_verbs->destroy_event_channel(channel);
        return sl_err_sys(err, SL_ERR_CONNECT, sys, "could not watch the RDMA event channel");
    }
    *ret_channel = channel;
    return 0;
}

int sl_verbs_cm_wait(struct rdma_event_channel *channel, const struct sl_connect *to,
                     struct rdma_cm_event **ret_event, struct sl_err *err)
{
    for (;;) {
        struct rdma_cm_event *event;
        if (sl_verbs->get_cm_event(channel, &event) == 0) {
            *ret_event = event;
            return 0;
        }
        if (errno != EAGAIN && errno != EINTR)
            return sl_err_sys(err, SL_ERR_CONNECT, errno, "could not wait for RDMA");
        if (sl_deadline_passed(to->deadline))
            return sl_err_set(err, SL_ERR_TIMEOUT, "deadline passed");
        struct pollfd wait[2] = {{.fd = channel->fd, .events = POLLIN},
                                 {.fd = to->cancel_fd, .events = POLLIN}};
        if (poll(wait, to->cancel_fd > 0 ? 2 : 1, sl_deadline_poll_ms(to->deadline)) < 0 &&
            errno != EINTR)
            return sl_err_sys(err, SL_ERR_CONNECT, errno, "could not wait for RDMA");
        if (wait[1].revents)
            return sl_err_set(err, SL_ERR_CANCELLED, "cancelled");
    }
}

const char *sl_verbs_address_text(const struct sockaddr *address, char *text, size_t bytes)
{
    char host[INET6_ADDRSTRLEN + 16], port[8];
    socklen_t length =
        address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (getnameinfo(address, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV))
        snprintf(text, bytes, "?");
    else
        snprintf(text, bytes, address->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    return text;
}

static int look_up(const char *host, const char *port, int flags, struct addrinfo **ret_list,
                   struct sl_err *err)
{
    /* Not rdma_getaddrinfo(3): it may answer with AF_IB addresses, which siw and RoCE lack. */
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags};
    int rc = getaddrinfo(host, port, &hints, ret_list);
    if (rc != 0)
        return sl_err_set(err, SL_ERR_CONNECT, "could not find the address of \"%s\": %s", host,
                          rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    return 0;
}

/* Say what this host has, because the usual cause is an address on an ordinary card. */
static int no_device(struct sl_err *err, const char *to)
{
    char devices[256];
    struct sl_err why;
    sl_err_set(err, SL_ERR_CONNECT, "no RDMA device of this host leads to %s", to);
    if (sl_verbs_describe(devices, sizeof devices, &why) != 0)
        return sl_err_hint(err, "%s", why.msg);
    return sl_err_hint(err, "use an address that is reached through one of: %s", devices);
}

static int wait_for(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted,
                    const char *text, const struct sl_connect *to, struct sl_err *err)
{
    struct rdma_cm_event *event;
    int rc = sl_verbs_cm_wait(channel, to, &event, err);
    if (rc != 0)
        return sl_err_prefix(err, "could not reach %s by RDMA", text);
    enum rdma_cm_event_type got = event->event;
    int status = event->status;
    sl_verbs->ack_cm_event(event);
    if (got == wanted)
        return 0;
    if (status == -ENODEV || status == -EADDRNOTAVAIL)
        return no_device(err, text);
    if (status == -ETIMEDOUT)
        return sl_err_set(err, SL_ERR_TIMEOUT, "no answer from %s (%s)", text, rdma_event_str(got));
    return sl_err_set(err, SL_ERR_CONNECT, "could not reach %s by RDMA: %s (%d)", text,
                      rdma_event_str(got), status);
}

static int cm_timeout_ms(sl_deadline deadline)
{
    int ms = sl_deadline_poll_ms(deadline);
    return ms < 1 ? 1 : ms > 5000 ? 5000 : ms;
}

static int resolve_one(const struct sl_connect *to, const struct addrinfo *from,
                       const struct addrinfo *address, const struct verbs_rail *rail,
                       struct rdma_cm_id *id, struct sl_err *err)
{
    char text[64];
    sl_verbs_address_text(address->ai_addr, text, sizeof text);
    if (to->traffic_class >= 0) {
        uint8_t tos = (uint8_t)to->traffic_class;
        if (sl_verbs->set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos) != 0)
            return sl_err_sys(err, SL_ERR_CONNECT, errno, "could not set the traffic class");
    }
    if (sl_verbs->resolve_addr(id, from ? from->ai_addr : NULL, address->ai_addr,
                               cm_timeout_ms(to->deadline)) != 0)
        return errno == ENODEV || errno == EADDRNOTAVAIL
                   ? no_device(err, text)
                   : sl_err_sys(err, SL_ERR_CONNECT, errno, "could not reach %s by RDMA", text);
    int rc = wait_for(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED, text, to, err);
    if (rc != 0)
        return rc;
    if (rail && (id->verbs != rail->device->context || id->port_num != rail->port))
        return sl_err_set(err, SL_ERR_CONNECT, "the way to %s leaves rail \"%s\"", text,
                          rail->base.label);
    if (sl_verbs->resolve_route(id, cm_timeout_ms(to->deadline)) != 0)
        return sl_err_sys(err, SL_ERR_CONNECT, errno, "no RDMA route to %s", text);
    return wait_for(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED, text, to, err);
}

int sl_verbs_resolve(const struct sl_connect *to, const struct verbs_rail *rail,
                     struct rdma_event_channel *channel, struct rdma_cm_id **ret_id,
                     struct sl_err *err)
{
    struct addrinfo *list, *from = NULL;
    int rc = look_up(to->host, to->port, AI_NUMERICSERV, &list, err);
    if (rc != 0)
        return rc;
    if (to->bind_address)
        rc = look_up(to->bind_address, NULL, AI_NUMERICHOST, &from, err);
    if (rc == 0)
        rc = SL_ERR_CONNECT;
    else
        goto out;
    for (const struct addrinfo *a = list; a && rc != 0 && rc != SL_ERR_CANCELLED; a = a->ai_next) {
        struct rdma_cm_id *id;
        if (from && from->ai_family != a->ai_family) {
            sl_err_set(err, rc, "\"%s\" and \"%s\" are not of one address family", to->bind_address,
                       to->host);
            continue;
        }
        if (sl_verbs->create_id(channel, &id, NULL, RDMA_PS_TCP) != 0) {
            rc = sl_err_sys(err, SL_ERR_CONNECT, errno, "could not begin an RDMA connection");
            break;
        }
        rc = resolve_one(to, from, a, rail, id, err);
        if (rc == 0)
            *ret_id = id;
        else
            sl_verbs->destroy_id(id);
    }
out:
    if (from)
        freeaddrinfo(from);
    freeaddrinfo(list);
    return rc;
}
