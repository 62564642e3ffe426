/* The transports of core/transport as the lane tests and benches see them. */
#include "tests/support/lane_fixtures.h"

#include "core/transport/loopback.h"
#include "core/transport/net.h"
#include "core/transport/tcp.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

const struct lane_fixture lane_loopback_fixture = {
    .name = "loopback",
    .rail_new = sl_loopback_rail_new,
    .pair = sl_loopback_pair,
};

/* --- tcp: the target's side ------------------------------------------------------------------ */

struct tcp_target {
    struct lane_target target;
    struct sl_rail *rail;
    int fd;
    uint16_t depth;
};

int lane_tcp_listen(const char *host, char port[8])
{
    struct addrinfo *address;
    struct sl_err err;
    const struct sl_net_connect to = {.host = host, .port = "0"};
    if (sl_net_lookup(&to, &address, &err))
        return -1;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof bound;
    if (fd >= 0 && (bind(fd, address->ai_addr, address->ai_addrlen) || listen(fd, 16) ||
                    getsockname(fd, (struct sockaddr *)&bound, &bytes))) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(address);
    if (fd >= 0)
        getnameinfo((struct sockaddr *)&bound, bytes, NULL, 0, port, 8, NI_NUMERICSERV);
    return fd;
}

static void target_close(struct lane_target *base)
{
    struct tcp_target *target = (struct tcp_target *)base;
    if (!target)
        return;
    if (target->target.domain)
        target->rail->ops->domain_free(target->target.domain);
    if (target->rail)
        target->rail->ops->rail_free(target->rail);
    if (target->fd >= 0)
        close(target->fd);
    free(target);
}

static int target_open(const struct lane_fixture *fixture, uint16_t depth,
                       struct lane_target **ret_target, struct sl_err *err)
{
    struct tcp_target *target = calloc(1, sizeof *target);
    if (!target)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    target->depth = depth;
    target->fd = lane_tcp_listen(fixture->host, target->target.port);
    int rc = target->fd < 0 ? sl_err_sys(err, SL_ERR_CONNECT, errno, "could not listen") : 0;
    if (!rc)
        rc = sl_tcp_rail_new(&target->rail, err);
    if (!rc)
        rc = target->rail->ops->domain_new(target->rail, &target->target.domain, err);
    if (rc) {
        target_close(&target->target);
        return rc;
    }
    *ret_target = &target->target;
    return 0;
}

static int target_accept(struct lane_target *base, sl_deadline deadline, struct sl_lane **ret_lane,
                         struct sl_err *err)
{
    struct tcp_target *target = (struct tcp_target *)base;
    struct pollfd poller = {.fd = target->fd, .events = POLLIN};
    if (poll(&poller, 1, sl_deadline_poll_ms(deadline)) <= 0)
        return sl_err_set(err, SL_ERR_TIMEOUT, "no lane came");
    int fd = accept4(target->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    uint8_t bytes[SL_LANE_HELLO_BYTES];
    struct sl_lane_hello hello;
    int rc = sl_net_receive_all(fd, bytes, sizeof bytes, "peer", 0, sl_deadline_in_ms(LANE_WAIT_MS),
                                err);
    if (!rc)
        rc = sl_lane_hello_decode(bytes, sizeof bytes, &hello);
    if (!rc && hello.lane == LANE_ID_REFUSED)
        rc = sl_err_set(err, SL_ERR_DENIED, "refused, as the test wants");
    if (rc) {
        close(fd);
        return rc;
    }
    return sl_tcp_lane_accept(fd, target->target.domain, &hello, bytes, target->depth, ret_lane,
                              err);
}

const struct lane_fixture lane_tcp_fixture = {
    .name = "tcp",
    .rail = &sl_tcp_rail_ops,
    .host = "127.0.0.1",
    .target_open = target_open,
    .target_accept = target_accept,
    .target_close = target_close,
};
