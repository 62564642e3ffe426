/* New connections: told apart by their first bytes, let in within ten seconds or closed, and never
 * more half-open ones than a bound. Nothing is allocated for a lane before its hello was checked;
 * what a TLS handshake costs is bounded by the number of them. */
#include "core/target/target_internal.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/log.h"
#include "core/transport/net.h"
#include "core/transport/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TLS_RECORD 0x16 /* handshake, RFC 8446 §5.1 */
#define ACCEPT_MAX 64   /* in one turn, so that others get theirs */
#define RETRY_MS   100u /* after accept() ran out of files */

struct half_open {
    struct watch watch;
    struct half_open *next;
    int fd;
    struct in6_addr address;
    sl_deadline deadline;
    uint8_t hello[SL_LANE_HELLO_BYTES];
    size_t used;
};

/* --- half-open connections -------------------------------------------------------------------- */

static void half_open_free(struct sl_target *target, struct half_open *half, bool close_fd)
{
    struct half_open **at = &target->half_open;
    while (*at != half)
        at = &(*at)->next;
    *at = half->next;
    target->half_open_count--;
    sl_target_control_unwatch(target, half->fd);
    if (close_fd)
        close(half->fd);
    sl_free(half);
}

static void complain(struct sl_target *target, const struct in6_addr *from, int code,
                     const char *what)
{
    char text[INET6_ADDRSTRLEN] = "?";
    struct sl_err err;
    if (IN6_IS_ADDR_V4MAPPED(from))
        inet_ntop(AF_INET, &from->s6_addr[12], text, sizeof text);
    else
        inet_ntop(AF_INET6, from, text, sizeof text);
    sl_err_set(&err, code, "%s", what);
    sl_target_complain(target, COMPLAIN_STRANGER, &err, "connection from %s refused", text);
}

static bool same_address(const struct in6_addr *a, const struct in6_addr *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Connections that have not come to WELCOME, in all and from this address. */
static void count_half_open(const struct sl_target *target, const struct in6_addr *address,
                            unsigned *ret_all, unsigned *ret_same)
{
    unsigned all = 0, same = 0;
    for (const struct half_open *half = target->half_open; half; half = half->next) {
        all++;
        same += same_address(&half->address, address);
    }
    for (const struct session *session = target->sessions; session; session = session->next)
        if (session->remote && session->state == SESSION_HANDSHAKE) {
            all++;
            same += same_address(&session->address, address);
        }
    *ret_all = all;
    *ret_same = same;
}

static void begin_control(struct sl_target *target, struct half_open *half)
{
    struct sl_control *control;
    struct sl_err err;
    struct in6_addr address = half->address;
    sl_deadline deadline = half->deadline;
    int fd = half->fd;
    half_open_free(target, half, false);
    int rc = sl_control_accept(target->config.tls, fd, &control, &err);
    if (!rc) {
        sl_control_handshake_by(control, deadline);
        rc = sl_target_session_new(target, control, &address, deadline, &err);
    }
    if (rc)
        sl_target_complain(target, COMPLAIN_STRANGER, &err,
                           "a control connection could not be begun");
}

static void begin_lane(struct sl_target *target, struct half_open *half)
{
    struct sl_lane_hello hello;
    uint8_t reply[SL_LANE_HELLO_BYTES];
    struct sl_domain *domain;
    struct sl_lane *lane;
    struct sl_err err = {0};
    int rc = sl_lane_hello_decode(half->hello, half->used, &hello);
    if (rc)
        sl_err_set(&err, rc, "a lane's hello that is none");
    else
        rc = sl_target_lane_admit(target, target->tcp_rail, &hello, &domain, reply, &err);
    if (rc) {
        complain(target, &half->address, rc, err.msg);
        half_open_free(target, half, true);
        return;
    }
    int fd = half->fd;
    uint16_t depth = (uint16_t)target->config.depth;
    if (hello.depth && hello.depth < depth)
        depth = hello.depth;
    half_open_free(target, half, false);
    rc = sl_tcp_lane_accept(fd, domain, &hello, reply, depth, &lane, &err);
    struct session *session = sl_target_session_find(target, &hello.session);
    if (rc)
        sl_log_err(SL_LOG_WARN, "target", &err, "a lane could not be begun");
    else
        sl_target_lane_add(session, lane);
}

static void half_open_ready(struct sl_target *target, struct watch *watch)
{
    struct half_open *half = CONTAINER(watch, struct half_open, watch);
    uint8_t first;
    if (half->used == 0) {
        ssize_t n = recv(half->fd, &first, 1, MSG_PEEK);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n == 1 && first == TLS_RECORD) {
            begin_control(target, half);
            return;
        }
        if (n != 1 || first != (uint8_t)(SL_LANE_MAGIC & 0xff)) {
            if (n == 1) /* one that only looks whether we are there is welcome */
                complain(target, &half->address, SL_ERR_PROTOCOL, "it speaks neither TLS nor ours");
            half_open_free(target, half, true);
            return;
        }
    }
    ssize_t n = recv(half->fd, half->hello + half->used, sizeof half->hello - half->used, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        half_open_free(target, half, true);
        return;
    }
    half->used += (size_t)n;
    if (half->used == sizeof half->hello)
        begin_lane(target, half);
}

/* --- the listener ----------------------------------------------------------------------------- */

static struct in6_addr address_of(const struct sockaddr_storage *from)
{
    struct in6_addr address = {0};
    if (from->ss_family == AF_INET6) {
        address = ((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
    } else if (from->ss_family == AF_INET) { /* mapped, RFC 4291 §2.5.5.2 */
        address.s6_addr[10] = address.s6_addr[11] = 0xff;
        memcpy(&address.s6_addr[12], &((const struct sockaddr_in *)(const void *)from)->sin_addr,
               4);
    }
    return address;
}

static void accepted(struct sl_target *target, int fd, const struct in6_addr *address)
{
    unsigned all, same;
    struct sl_err err;
    count_half_open(target, address, &all, &same);
    struct half_open *half = NULL;
    if (all < HALF_OPEN_MAX && same < HALF_OPEN_ADDRESS_MAX)
        half = sl_calloc(1, sizeof *half);
    if (!half) {
        complain(target, address, SL_ERR_LIMIT, "too many connections have not said who they are");
        close(fd);
        return;
    }
    half->watch.ready = half_open_ready;
    half->fd = fd;
    half->address = *address;
    half->deadline = sl_deadline_in_ms(HANDSHAKE_MS);
    if (sl_target_control_watch(target, fd, &half->watch, &err) != 0) {
        close(fd);
        sl_free(half);
        return;
    }
    half->next = target->half_open;
    target->half_open = half;
    target->half_open_count++;
}

static void listen_ready(struct sl_target *target, struct watch *watch)
{
    (void)watch;
    for (int i = 0; i < ACCEPT_MAX && target->listen_fd >= 0; i++) {
        struct sockaddr_storage from = {0};
        socklen_t bytes = sizeof from;
        int fault = sl_fault("target.accept");
        int fd = fault > 0 ? -1
                           : accept4(target->listen_fd, (struct sockaddr *)&from, &bytes,
                                     SOCK_NONBLOCK | SOCK_CLOEXEC);
        int error = fault > 0 ? fault : errno;
        if (fd >= 0) {
            struct in6_addr address = address_of(&from);
            accepted(target, fd, &address);
            continue;
        }
        if (error == EAGAIN)
            return;
        if (error == ECONNABORTED || error == EINTR)
            continue;
        /* out of files or memory: the connection stays in the backlog, so do not spin on it */
        struct sl_err err;
        sl_err_sys(&err, SL_ERR_LIMIT, error, "could not accept a connection");
        sl_log_err(SL_LOG_WARN, "target", &err, "listener");
        sl_target_control_unwatch(target, target->listen_fd);
        target->listen_again = sl_deadline_in_ms(RETRY_MS);
        return;
    }
}

void sl_target_accept_tick(struct sl_target *target, uint64_t now_ns)
{
    struct half_open *next;
    for (struct half_open *half = target->half_open; half; half = next) {
        next = half->next;
        if (now_ns < half->deadline)
            continue;
        complain(target, &half->address, SL_ERR_TIMEOUT, "it did not say what it wants");
        half_open_free(target, half, true);
    }
    if (target->listen_again && now_ns >= target->listen_again && target->listen_fd >= 0 &&
        sl_target_control_watch(target, target->listen_fd, &target->listen_watch, NULL) == 0)
        target->listen_again = 0;
}

uint64_t sl_target_accept_due_ns(const struct sl_target *target)
{
    uint64_t due = UINT64_MAX;
    for (const struct half_open *half = target->half_open; half; half = half->next)
        if (half->deadline < due)
            due = half->deadline;
    return target->listen_again && target->listen_again < due ? target->listen_again : due;
}

static int listen_on(const struct addrinfo *at, int traffic_class, struct sl_err *err)
{
    int one = 1, zero = 0;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (at->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    /* accepted sockets inherit it; "::" takes IPv4 connections too, which have the other option */
    if (traffic_class && sl_net_traffic_class(fd, at->ai_family, traffic_class, err))
        sl_log_err(SL_LOG_WARN, "target", err, "listener");
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int open_listener(struct sl_target *target, struct sl_err *err)
{
    const struct sl_target_config *config = &target->config;
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    char port[8];
    snprintf(port, sizeof port, "%u", config->listen_port);
    int rc = getaddrinfo(config->listen_address, port, &hints, &found);
    if (rc)
        return sl_err_set(err, SL_ERR_CONFIG, "could not resolve \"%s\": %s",
                          config->listen_address ? config->listen_address : "any address",
                          gai_strerror(rc));
    /* "::" first where there is IPv6: it takes IPv4 too */
    int error = EADDRNOTAVAIL;
    for (int pass = 0; pass < 2 && target->listen_fd < 0; pass++)
        for (struct addrinfo *at = found; at && target->listen_fd < 0; at = at->ai_next) {
            if ((at->ai_family == AF_INET6) != (pass == 0))
                continue;
            target->listen_fd = listen_on(at, config->traffic_class, err);
            if (target->listen_fd < 0)
                error = errno;
        }
    freeaddrinfo(found);
    if (target->listen_fd < 0) {
        rc = sl_err_sys(err, SL_ERR_CONNECT, error, "could not listen on \"%s\" port %u",
                        config->listen_address ? config->listen_address : "*", config->listen_port);
        if (error == EADDRINUSE)
            sl_err_hint(err,
                        "is sluiced running already? \"ss -ltnp\" shows who listens; port sets "
                        "another one");
        return rc;
    }
    struct sockaddr_storage own = {0};
    socklen_t bytes = sizeof own;
    getsockname(target->listen_fd, (struct sockaddr *)&own, &bytes);
    target->port = ntohs(own.ss_family == AF_INET6
                             ? ((const struct sockaddr_in6 *)(const void *)&own)->sin6_port
                             : ((const struct sockaddr_in *)(const void *)&own)->sin_port);
    target->listen_watch.ready = listen_ready;
    return sl_target_control_watch(target, target->listen_fd, &target->listen_watch, err);
}

/* --- RDMA --------------------------------------------------------------------------------------
 */

static int rdma_admit(void *arg, struct sl_rail *rail, const struct sl_lane_hello *hello,
                      const uint8_t *hello_bytes, struct sl_domain **ret_domain,
                      uint8_t reply[SL_LANE_HELLO_BYTES], struct sl_err *err)
{
    (void)hello_bytes;
    return sl_target_lane_admit(arg, rail, hello, ret_domain, reply, err);
}

/* The shared domain of a device; where a pull's sink must be writable, each session makes its
 * own instead (lanes.c). */
static int rdma_met(void *arg, struct sl_rail *rail, struct sl_err *err)
{
    struct sl_target *target = arg;
    struct pool_rail *pool_rail;
    size_t bytes = (size_t)(rail->own_sink ? SINK_BLOCKS : target->pool.count) * SL_BLOCK_BYTES;
    int rc = target->config.rdma->memlock(bytes, err);
    if (!rc && !rail->own_sink)
        rc = sl_target_pool_meet(&target->pool, rail, &pool_rail, err);
    if (rc)
        sl_log_err(SL_LOG_WARN, "target", err, "device %s cannot be used", rail->label);
    else
        sl_log(SL_LOG_INFO, "target", "lanes over %s", rail->label);
    return rc;
}

static void rdma_ready(struct sl_target *target, struct watch *watch)
{
    (void)watch;
    for (int i = 0; i < ACCEPT_MAX && target->rdma_listener; i++) {
        struct sl_lane *lane;
        struct sl_err err = {0};
        int rc = target->rdma_listener->ops->accept(target->rdma_listener, &lane, &err);
        if (rc == 0)
            return;
        if (rc < 0) {
            sl_log_err(SL_LOG_DETAIL, "target", &err, "a lane was not made");
            continue;
        }
        struct session *session = sl_target_session_find(target, &lane->session);
        if (session)
            sl_target_lane_add(session, lane);
        else
            sl_lane_free(lane); /* the session has ended meanwhile */
    }
}

static void open_rdma(struct sl_target *target)
{
    const struct sl_transport_plugin *rdma = target->config.rdma;
    struct sl_err err = {0};
    struct sl_listen listen = {
        .address = target->config.listen_address,
        .port = target->config.rdma_port ? target->config.rdma_port : (uint16_t)(target->port + 1),
        .admit = rdma_admit,
        .admit_arg = target,
        .rail_met = rdma_met,
        .depth = (uint16_t)target->config.depth,
        .half_open_max = HALF_OPEN_MAX,
        .handshake_ms = HANDSHAKE_MS,
    };
    if (!rdma) {
        snprintf(target->rdma_note, sizeof target->rdma_note, "%s",
                 target->config.rdma_note ? target->config.rdma_note : "");
        return;
    }
    int rc = rdma->describe(target->rdma_note, sizeof target->rdma_note, &err);
    if (!rc)
        rc = rdma->listen(&listen, &target->rdma_listener, &err);
    if (!rc) {
        target->rdma_watch.ready = rdma_ready;
        rc = sl_target_control_watch(target, target->rdma_listener->fd, &target->rdma_watch, &err);
    }
    if (!rc)
        return;
    if (target->rdma_listener)
        target->rdma_listener->ops->free(target->rdma_listener);
    target->rdma_listener = NULL;
    snprintf(target->rdma_note, sizeof target->rdma_note, "%.159s", err.msg);
    sl_log_err(SL_LOG_WARN, "target", &err, "no RDMA lanes");
}

int sl_target_accept_start(struct sl_target *target, struct sl_err *err)
{
    int rc = open_listener(target, err);
    if (!rc)
        open_rdma(target); /* without it the target serves TCP, and says why */
    return rc;
}

/* No new connections. The RDMA listener stays until its lanes are gone: it owns their rails. */
void sl_target_accept_stop(struct sl_target *target)
{
    while (target->half_open)
        half_open_free(target, target->half_open, true);
    if (target->listen_fd >= 0) {
        if (!target->listen_again)
            sl_target_control_unwatch(target, target->listen_fd);
        close(target->listen_fd);
    }
    target->listen_fd = -1;
    target->listen_again = 0;
    if (target->rdma_listener)
        sl_target_control_unwatch(target, target->rdma_listener->fd);
}
