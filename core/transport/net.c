/* TCP connections: lookup, connect with a deadline, names. No frames and no TLS here. */
#include "core/transport/net.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

int sl_net_wait(int fd, short events, int cancel_fd, sl_deadline deadline)
{
    struct pollfd pollers[2] = {{.fd = fd, .events = events}, {.fd = cancel_fd, .events = POLLIN}};
    for (;;) {
        int ready = poll(pollers, cancel_fd > 0 ? 2 : 1, sl_deadline_poll_ms(deadline));
        if (ready < 0 && errno != EINTR)
            return SL_ERR_INTERNAL;
        if (ready > 0)
            return pollers[1].revents ? SL_ERR_CANCELLED : 0;
        if (sl_deadline_passed(deadline))
            return SL_ERR_TIMEOUT;
    }
}

/* --- names to addresses ---------------------------------------------------------------------- */

/* A question that a thread asks. Both sides hold it; who lets go last, frees it. */
struct question {
    char host[NI_MAXHOST], port[NI_MAXSERV];
    int done_fd; /* eventfd: the answer is there */
    int result;  /* of getaddrinfo(3) */
    struct addrinfo *found;
    atomic_bool done;
    atomic_int holders;
};

static void let_go(struct question *question)
{
    if (atomic_fetch_sub(&question->holders, 1) != 1)
        return;
    if (question->found)
        freeaddrinfo(question->found);
    close(question->done_fd);
    sl_free(question);
}

static int ask(const char *host, const char *port, int flags, struct addrinfo **ret_found)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags};
    return sl_fault("net.lookup") ? EAI_AGAIN : getaddrinfo(host, port, &hints, ret_found);
}

static void *ask_in_thread(void *arg)
{
    struct question *question = arg;
    question->result = ask(question->host, question->port, 0, &question->found);
    atomic_store(&question->done, true);
    (void)eventfd_write(question->done_fd, 1); /* cannot fail: its counter is 0 (eventfd(2)) */
    let_go(question);
    return NULL;
}

static int question_new(const struct sl_net_connect *to, struct question **ret_question,
                        struct sl_err *err)
{
    struct question *question = sl_calloc(1, sizeof *question);
    if (!question)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    if (snprintf(question->host, sizeof question->host, "%s", to->host) >= NI_MAXHOST ||
        snprintf(question->port, sizeof question->port, "%s", to->port) >= NI_MAXSERV) {
        sl_free(question);
        return sl_err_set(err, SL_ERR_CONFIG, "host or port is too long");
    }
    int fault = sl_fault("net.eventfd");
    question->done_fd = fault ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (question->done_fd < 0) {
        int sys = fault ? fault : errno;
        sl_free(question);
        return sl_err_sys(err, SL_ERR_LIMIT, sys, "could not make an eventfd");
    }
    atomic_init(&question->holders, 2);
    *ret_question = question;
    return 0;
}

static int lookup_failed(const struct sl_net_connect *to, int result, struct sl_err *err)
{
    return sl_err_set(err, result == EAI_MEMORY ? SL_ERR_NO_MEMORY : SL_ERR_CONNECT,
                      "could not look up \"%s\" port \"%s\": %s", to->host, to->port,
                      gai_strerror(result));
}

static int lookup_name(const struct sl_net_connect *to, struct addrinfo **ret_addresses,
                       struct sl_err *err)
{
    struct question *question = NULL;
    pthread_t thread;
    int rc = question_new(to, &question, err);
    if (rc)
        return rc;
    rc = sl_thread_start(&thread, "sl-lookup", ask_in_thread, question, err);
    if (rc) {
        let_go(question);
        let_go(question);
        return rc;
    }
    pthread_detach(thread);
    rc = sl_net_wait(question->done_fd, POLLIN, to->cancel_fd, to->deadline);
    if (rc) {
        sl_err_set(err, rc, "could not look up \"%s\": %s", to->host, sl_code_text(rc));
    } else if (!atomic_load(&question->done)) {
        rc = sl_err_set(err, SL_ERR_INTERNAL, "woken before the answer was there");
    } else if (question->result) {
        rc = lookup_failed(to, question->result, err);
    } else {
        *ret_addresses = question->found;
        question->found = NULL;
    }
    let_go(question);
    return rc;
}

int sl_net_lookup(const struct sl_net_connect *to, struct addrinfo **ret_addresses,
                  struct sl_err *err)
{
    int result = ask(to->host, to->port, AI_NUMERICHOST, ret_addresses);
    if (!result)
        return 0;
    /* EAI_SERVICE: the host was numeric, the port is no number and no service */
    if (result != EAI_NONAME)
        return lookup_failed(to, result, err);
    return lookup_name(to, ret_addresses, err);
}

/* --- names for messages ---------------------------------------------------------------------- */

const char *sl_net_name(const struct sockaddr *address, socklen_t bytes,
                        char name[SL_NET_NAME_BYTES])
{
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getnameinfo(address, bytes, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV))
        return strcpy(name, "?");
    bool bracket = address->sa_family == AF_INET6;
    int used = snprintf(name, SL_NET_NAME_BYTES, bracket ? "[%s]:%s" : "%s:%s", host, port);
    return used < 0 ? strcpy(name, "?") : name;
}

static const char *name_by(int (*get)(int, struct sockaddr *, socklen_t *), int fd, char *name)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    if (get(fd, (struct sockaddr *)&address, &bytes))
        return strcpy(name, "?");
    return sl_net_name((struct sockaddr *)&address, bytes, name);
}

const char *sl_net_local_name(int fd, char name[SL_NET_NAME_BYTES])
{
    return name_by(getsockname, fd, name);
}

const char *sl_net_peer_name(int fd, char name[SL_NET_NAME_BYTES])
{
    return name_by(getpeername, fd, name);
}

int sl_net_prepare(int fd, struct sl_err *err)
{
    int on = 1, flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC))
        return sl_err_sys(err, SL_ERR_CONNECT, errno, "could not make a socket non-blocking");
    /* Frames are written whole; Nagle would hold back the last part of each (tcp(7)). Fails on
     * socket pairs of tests, which have no such delay. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return 0;
}

/* --- connecting ------------------------------------------------------------------------------ */

static int bind_to(int fd, int family, const char *address, struct sl_err *err)
{
    struct addrinfo hints = {
        .ai_family = family, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *found;
    int rc = getaddrinfo(address, NULL, &hints, &found);
    if (rc)
        return sl_err_set(err, SL_ERR_CONFIG, "could not bind to \"%s\": %s", address,
                          gai_strerror(rc));
    rc = bind(fd, found->ai_addr, found->ai_addrlen) ? errno : 0;
    freeaddrinfo(found);
    if (rc)
        return sl_err_sys(err, SL_ERR_CONNECT, rc, "could not bind to \"%s\"", address);
    return 0;
}

int sl_net_traffic_class(int fd, int family, int traffic_class, struct sl_err *err)
{
    /* a socket of IPv6 sends IPv4 to mapped addresses, with the TOS; it fails if it never can */
    int rc = setsockopt(fd, IPPROTO_IP, IP_TOS, &traffic_class, sizeof traffic_class);
    if (family == AF_INET6)
        rc = setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &traffic_class, sizeof traffic_class);
    if (rc)
        return sl_err_sys(err, SL_ERR_CONFIG, errno, "could not set traffic class %d",
                          traffic_class);
    return 0;
}

/* connect(2) on a non-blocking socket, then the wait for its outcome. */
static int finish_connect(int fd, const struct addrinfo *address, const char *name,
                          const struct sl_net_connect *to, sl_deadline deadline, struct sl_err *err)
{
    int sys = sl_fault("net.connect");
    if (!sys && connect(fd, address->ai_addr, address->ai_addrlen))
        sys = errno;
    if (sys == EINPROGRESS || sys == EINTR) {
        int rc = sl_net_wait(fd, POLLOUT, to->cancel_fd, deadline);
        if (rc)
            return sl_err_set(err, rc, "could not connect to %s: %s", name, sl_code_text(rc));
        socklen_t bytes = sizeof sys;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &sys, &bytes))
            sys = errno;
    }
    if (!sys)
        return 0;
    sl_err_sys(err, SL_ERR_CONNECT, sys, "could not connect to %s", name);
    /* whatever errno the network gave (a firewall's EACCES, say), it may be otherwise next time */
    if (err)
        err->code = SL_ERR_CONNECT;
    return SL_ERR_CONNECT;
}

static int connect_one(const struct addrinfo *address, const struct sl_net_connect *to,
                       sl_deadline deadline, int *ret_fd, struct sl_err *err)
{
    char name[SL_NET_NAME_BYTES];
    sl_net_name(address->ai_addr, address->ai_addrlen, name);
    int sys = sl_fault("net.socket");
    int fd = sys ? -1 : socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return sl_err_sys(err, SL_ERR_CONNECT, sys ? sys : errno, "could not make a socket for %s",
                          name);
    int rc = sl_net_prepare(fd, err);
    if (!rc && to->traffic_class >= 0)
        rc = sl_net_traffic_class(fd, address->ai_family, to->traffic_class, err);
    if (!rc && to->bind_address)
        rc = bind_to(fd, address->ai_family, to->bind_address, err);
    if (!rc)
        rc = finish_connect(fd, address, name, to, deadline, err);
    if (rc)
        close(fd);
    else
        *ret_fd = fd;
    return rc;
}

int sl_net_connect(const struct addrinfo *addresses, const struct sl_net_connect *to, int *ret_fd,
                   struct sl_err *err)
{
    unsigned left = 0;
    for (const struct addrinfo *address = addresses; address; address = address->ai_next)
        left++;
    int rc = sl_err_set(err, SL_ERR_CONNECT, "no address is known for \"%s\"", to->host);
    for (const struct addrinfo *address = addresses; address; address = address->ai_next, left--) {
        uint64_t now = sl_now_ns();
        if (now >= to->deadline)
            return sl_err_set(err, SL_ERR_TIMEOUT, "could not connect to \"%s\" port %s in time",
                              to->host, to->port);
        rc = connect_one(address, to, now + (to->deadline - now) / left, ret_fd, err);
        if (!rc || rc == SL_ERR_CANCELLED)
            return rc;
    }
    return rc;
}

static int transfer_all(int fd, bool is_send, uint8_t *data, size_t bytes, const char *peer,
                        int cancel_fd, sl_deadline deadline, struct sl_err *err)
{
    size_t done = 0;
    while (done < bytes) {
        int sys = sl_fault(is_send ? "net.send" : "net.recv");
        ssize_t n = sys       ? -1
                    : is_send ? send(fd, data + done, bytes - done, MSG_NOSIGNAL)
                              : recv(fd, data + done, bytes - done, 0);
        sys = sys ? sys : errno;
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0) {
            return sl_err_set(err, SL_ERR_CLOSED, "%s closed the connection", peer);
        } else if (sys == EAGAIN) {
            int rc = sl_net_wait(fd, is_send ? POLLOUT : POLLIN, cancel_fd, deadline);
            if (rc == SL_ERR_TIMEOUT || rc == SL_ERR_CANCELLED)
                return sl_err_set(
                    err, rc, rc == SL_ERR_TIMEOUT ? "%s does not answer" : "%s: cancelled", peer);
            if (rc)
                return sl_err_sys(err, SL_ERR_CLOSED, errno, "connection to %s lost", peer);
        } else if (sys != EINTR) {
            return sl_err_sys(err, SL_ERR_CLOSED, sys, "connection to %s lost", peer);
        }
    }
    return 0;
}

int sl_net_send_all(int fd, const void *data, size_t bytes, const char *peer, int cancel_fd,
                    sl_deadline deadline, struct sl_err *err)
{
    /* transfer_all() does not write through `data` when it sends */
    return transfer_all(fd, true, (uint8_t *)(uintptr_t)data, bytes, peer, cancel_fd, deadline,
                        err);
}

int sl_net_receive_all(int fd, void *data, size_t bytes, const char *peer, int cancel_fd,
                       sl_deadline deadline, struct sl_err *err)
{
    return transfer_all(fd, false, data, bytes, peer, cancel_fd, deadline, err);
}
