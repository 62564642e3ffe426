/* Reaching a target: addresses, sockets, and the client's blocking handshake. */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/thread.h"
#include "core/session/control_internal.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

int sl_control_wait(int fd, short events, int cancel_fd, sl_deadline deadline)
{
    struct pollfd fds[2] = {{.fd = fd, .events = events}, {.fd = cancel_fd, .events = POLLIN}};
    for (;;) {
        int ready = poll(fds, 2, sl_deadline_poll_ms(deadline)); /* a negative fd is skipped */
        if (ready < 0 && errno != EINTR)
            return SL_ERR_INTERNAL;
        if (ready > 0 && fds[1].revents)
            return SL_ERR_CANCELLED;
        if (ready > 0)
            return 0;
        if (sl_deadline_passed(deadline))
            return SL_ERR_TIMEOUT;
    }
}

static int wait_error(int rc, const struct sl_control_route *route, const char *doing,
                      struct sl_err *err)
{
    if (rc == SL_ERR_TIMEOUT)
        return sl_err_set(err, rc, "%s:%s %s in time", route->host, route->port, doing);
    return sl_err_set(err, rc, "%s", sl_code_text(rc));
}

/* --- names to addresses ---------------------------------------------------------------------- */

/* getaddrinfo(3) has no deadline (a dead name server takes tens of seconds), so a name is looked
 * up by a thread that may be left behind; who is last frees the question. */
struct lookup {
    char host[256], port[32];
    int done_fd; /* eventfd: the answer is there */
    struct addrinfo *found;
    int result;
    _Atomic bool done; /* found and result are there: the eventfd only wakes */
    _Atomic int holders;
};

static void lookup_drop(struct lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->holders, 1) != 1)
        return;
    if (lookup->found)
        freeaddrinfo(lookup->found);
    close(lookup->done_fd);
    sl_free(lookup);
}

static int ask(const char *host, const char *port, int flags, struct addrinfo **ret_found)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags};
    return getaddrinfo(host, port, &hints, ret_found);
}

static void *lookup_run(void *arg)
{
    struct lookup *lookup = arg;
    static const uint64_t one = 1;
    lookup->result = ask(lookup->host, lookup->port, 0, &lookup->found);
    atomic_store(&lookup->done, true);
    while (write(lookup->done_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
    lookup_drop(lookup);
    return NULL;
}

static int resolve_by_thread(const struct sl_control_route *route, sl_deadline deadline,
                             struct addrinfo **ret_found, struct sl_err *err)
{
    struct lookup *lookup = sl_calloc(1, sizeof *lookup);
    if (!lookup)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    lookup->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (lookup->done_fd < 0) {
        int sys = errno;
        sl_free(lookup);
        return sl_err_sys(err, SL_ERR_LIMIT, sys, "could not make an eventfd");
    }
    snprintf(lookup->host, sizeof lookup->host, "%s", route->host);
    snprintf(lookup->port, sizeof lookup->port, "%s", route->port);
    atomic_init(&lookup->holders, 2);
    pthread_t thread;
    int rc = sl_thread_start(&thread, "sl-resolve", lookup_run, lookup, err);
    if (rc) {
        lookup_drop(lookup);
        lookup_drop(lookup);
        return rc;
    }
    pthread_detach(thread);
    rc = sl_control_wait(lookup->done_fd, POLLIN, route->cancel_fd, deadline);
    if (!rc && !atomic_load(&lookup->done))
        rc = SL_ERR_INTERNAL;
    if (rc) {
        wait_error(rc, route, "could not be looked up", err);
    } else if (lookup->result) {
        rc = sl_err_set(err, SL_ERR_CONNECT, "could not look up host \"%s\": %s", route->host,
                        gai_strerror(lookup->result));
    } else {
        *ret_found = lookup->found;
        lookup->found = NULL;
    }
    lookup_drop(lookup);
    return rc;
}

static int resolve(const struct sl_control_route *route, sl_deadline deadline,
                   struct addrinfo **ret_found, struct sl_err *err)
{
    if (strlen(route->host) >= 256 || strlen(route->port) >= 32)
        return sl_err_set(err, SL_ERR_CONFIG, "host or port is too long");
    if (ask(route->host, route->port, AI_NUMERICHOST | AI_NUMERICSERV, ret_found) == 0)
        return 0;
    return resolve_by_thread(route, deadline, ret_found, err);
}

/* --- sockets --------------------------------------------------------------------------------- */

static int bind_to(int fd, int family, const char *address, struct sl_err *err)
{
    struct addrinfo hints = {
        .ai_family = family, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_PASSIVE};
    struct addrinfo *found;
    int rc = getaddrinfo(address, NULL, &hints, &found);
    if (rc)
        return sl_err_set(err, SL_ERR_CONFIG, "cannot bind to \"%s\": %s", address,
                          gai_strerror(rc));
    rc = bind(fd, found->ai_addr, found->ai_addrlen);
    int sys = errno;
    freeaddrinfo(found);
    return rc ? sl_err_sys(err, SL_ERR_CONNECT, sys, "could not bind to \"%s\"", address) : 0;
}

static int connected(int fd, struct sl_err *err, const struct sl_control_route *route)
{
    int sys = 0;
    socklen_t length = sizeof sys;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &sys, &length))
        sys = errno;
    if (!sys)
        return 0;
    sl_err_sys(err, SL_ERR_CONNECT, sys, "could not connect to %s:%s", route->host, route->port);
    if (sys == ECONNREFUSED)
        sl_err_hint(err, "is sluiced running there, and is this its port?");
    /* whatever errno the network gave, it is the connection that failed */
    if (err)
        err->code = SL_ERR_CONNECT;
    return SL_ERR_CONNECT;
}

static int dial_one(const struct addrinfo *to, const struct sl_control_route *route,
                    sl_deadline deadline, int *ret_fd, struct sl_err *err)
{
    int fault = sl_fault("control.socket");
    int fd = fault > 0 ? -1 : socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return sl_err_sys(err, SL_ERR_CONNECT, fault > 0 ? fault : errno,
                          "could not make a socket");
    int rc = route->bind_address ? bind_to(fd, to->ai_family, route->bind_address, err) : 0;
    fault = sl_fault("control.connect");
    if (!rc && (fault > 0 || connect(fd, to->ai_addr, to->ai_addrlen))) {
        int sys = fault > 0 ? fault : errno;
        if (sys == EINPROGRESS || sys == EINTR) {
            rc = sl_control_wait(fd, POLLOUT, route->cancel_fd, deadline);
            if (rc)
                wait_error(rc, route, "did not answer", err);
        } else {
            rc = sl_err_sys(err, SL_ERR_CONNECT, sys, "could not connect to %s:%s", route->host,
                            route->port);
        }
    }
    if (!rc)
        rc = connected(fd, err, route);
    if (rc) {
        close(fd);
        return rc;
    }
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *ret_fd = fd;
    return 0;
}

int sl_control_dial(const struct sl_control_route *route, sl_deadline deadline, int *ret_fd,
                    struct sl_err *err)
{
    struct addrinfo *found;
    int rc = resolve(route, deadline, &found, err);
    if (rc)
        return rc;
    size_t left = 0;
    for (const struct addrinfo *to = found; to; to = to->ai_next)
        left++;
    for (const struct addrinfo *to = found; to; to = to->ai_next, left--) {
        /* an address that does not answer may not eat the time of those after it */
        uint64_t now = sl_now_ns();
        sl_deadline share = now < deadline ? now + (deadline - now) / left : deadline;
        rc = dial_one(to, route, share, ret_fd, err);
        if (!rc || rc == SL_ERR_CANCELLED)
            break;
    }
    freeaddrinfo(found);
    return rc;
}

void sl_control_name_socket(struct sl_control *control)
{
    struct sockaddr_storage peer;
    socklen_t length = sizeof peer;
    char port[16];
    if (getpeername(control->fd, (struct sockaddr *)&peer, &length) ||
        getnameinfo((struct sockaddr *)&peer, length, control->peer_ip, sizeof control->peer_ip,
                    port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV)) {
        snprintf(control->address, sizeof control->address, "the peer");
        return;
    }
    snprintf(control->address, sizeof control->address,
             strchr(control->peer_ip, ':') ? "[%s]:%s" : "%s:%s", control->peer_ip, port);
}

/* --- the client's connection ----------------------------------------------------------------- */

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
        rc = sl_control_wait(control->epoll_fd, POLLIN, cancel_fd, deadline);
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
    int rc = sl_control_dial(route, deadline, &fd, err);
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
