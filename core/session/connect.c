/* Reaching a target: the client's connection and its blocking handshake. Sockets and names are
 * core/transport/net.h's. */
#include "core/session/control_internal.h"
#include "core/transport/net.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int dial(const struct sl_control_route *route, sl_deadline deadline, int *ret_fd,
                struct sl_err *err)
{
    const struct sl_net_connect to = {.host = route->host,
                                      .port = route->port,
                                      .bind_address = route->bind_address,
                                      .deadline = deadline,
                                      .traffic_class = -1,
                                      .cancel_fd = route->cancel_fd};
    struct addrinfo *addresses;
    int rc = sl_net_lookup(&to, &addresses, err);
    if (rc)
        return rc;
    rc = sl_net_connect(addresses, &to, ret_fd, err);
    freeaddrinfo(addresses);
    if (rc && err && err->sys == ECONNREFUSED)
        sl_err_hint(err, "is sluiced running there, and is this its port?");
    return rc;
}

void sl_control_name_socket(struct sl_control *control)
{
    struct sockaddr_storage peer;
    socklen_t length = sizeof peer;
    sl_net_peer_name(control->fd, control->address);
    if (getpeername(control->fd, (struct sockaddr *)&peer, &length) ||
        getnameinfo((struct sockaddr *)&peer, length, control->peer_ip, sizeof control->peer_ip,
                    NULL, 0, NI_NUMERICHOST))
        control->peer_ip[0] = '\0';
}

static int no_messages_yet(void *arg, struct sl_control *control, const struct sl_msg *msg,
                           struct sl_err *err)
{
    (void)arg;
    (void)control;
    return sl_err_set(err, SL_ERR_PROTOCOL, "%s came before HELLO", sl_msg_name((int)msg->type));
}

static int shake_hands(struct sl_control *control, int cancel_fd, sl_deadline deadline,
                       struct sl_err *err)
{
    for (;;) {
        int rc = sl_control_process(control, no_messages_yet, NULL, err);
        if (rc || sl_control_ready(control))
            return rc;
        rc = sl_net_wait(control->epoll_fd, POLLIN, cancel_fd, deadline);
        if (rc == SL_ERR_TIMEOUT)
            return sl_err_set(err, rc, "%s did not finish the TLS handshake in time",
                              control->address);
        if (rc)
            return sl_err_set(err, rc, "%s", sl_code_text(rc));
    }
}

int sl_control_connect_route(struct sl_tls *tls, const struct sl_control_route *route,
                             sl_deadline deadline, struct sl_control **ret_control,
                             struct sl_err *err)
{
    int fd;
    int rc = dial(route, deadline, &fd, err);
    if (rc)
        return rc;
    SSL *ssl;
    rc = sl_tls_engine(tls, fd, route->name, &ssl, err);
    if (rc) {
        close(fd);
        return rc;
    }
    struct sl_control *control;
    rc = sl_control_new(fd, ssl, false, &control, err);
    if (rc)
        return rc;
    control->handshake_by = deadline;
    snprintf(control->expected, sizeof control->expected, "%s", route->name);
    sl_control_name_socket(control);
    rc = shake_hands(control, route->cancel_fd, deadline, err);
    if (rc) {
        sl_control_free(control);
        return rc;
    }
    *ret_control = control;
    return 0;
}

int sl_control_connect(struct sl_tls *tls, const char *host, const char *port, const char *name,
                       sl_deadline deadline, struct sl_control **ret_control, struct sl_err *err)
{
    struct sl_control_route route = {.host = host, .port = port, .name = name, .cancel_fd = -1};
    return sl_control_connect_route(tls, &route, deadline, ret_control, err);
}
