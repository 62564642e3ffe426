/* TCP rails: where the client's lanes come from, and the target's accepted ones. */
#include "core/transport/memory.h"
#include "core/transport/tcp_internal.h"

#include "core/base/alloc.h"

#include <netdb.h>
#include <unistd.h>

struct tcp_rail {
    struct sl_rail rail;
    struct addrinfo *addresses; /* NULL: the target's */
};

static int rail_new(struct addrinfo *addresses, struct sl_rail **ret_rail, struct sl_err *err)
{
    struct tcp_rail *rail = sl_calloc(1, sizeof *rail);
    if (!rail)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    rail->rail =
        (struct sl_rail){.ops = &sl_tcp_rail_ops, .max_depth = TCP_DEPTH_MAX, .label = "tcp"};
    rail->addresses = addresses;
    *ret_rail = &rail->rail;
    return 0;
}

int sl_tcp_rail_new(struct sl_rail **ret_rail, struct sl_err *err)
{
    return rail_new(NULL, ret_rail, err);
}

static int tcp_resolve(const struct sl_connect *to, struct sl_rail **ret_rail, struct sl_err *err)
{
    const struct sl_net_connect net = {
        .host = to->host, .port = to->port, .deadline = to->deadline, .cancel_fd = to->cancel_fd};
    struct addrinfo *addresses;
    int rc = sl_net_lookup(&net, &addresses, err);
    if (rc)
        return rc;
    rc = rail_new(addresses, ret_rail, err);
    if (rc)
        freeaddrinfo(addresses);
    return rc;
}

static uint16_t clamp_depth(uint16_t depth)
{
    return depth < 1 ? 1 : depth > TCP_DEPTH_MAX ? TCP_DEPTH_MAX : depth;
}

/* The hellos, both ways. */
static int shake_hands(int fd, const struct sl_connect *to, uint8_t reply[SL_LANE_HELLO_BYTES],
                       struct sl_err *err)
{
    char peer[SL_NET_NAME_BYTES];
    struct sl_lane_hello hello;
    sl_net_peer_name(fd, peer);
    int rc =
        sl_net_send_all(fd, to->hello, SL_LANE_HELLO_BYTES, peer, to->cancel_fd, to->deadline, err);
    if (!rc)
        rc = sl_net_receive_all(fd, reply, SL_LANE_HELLO_BYTES, peer, to->cancel_fd, to->deadline,
                                err);
    if (rc)
        return sl_err_prefix(err, "lane refused");
    if (sl_lane_hello_decode(reply, SL_LANE_HELLO_BYTES, &hello))
        return sl_err_set(err, SL_ERR_PROTOCOL, "%s does not answer as a Sluice target", peer);
    return 0;
}

static int tcp_connect(struct sl_rail *base, struct sl_domain *domain, const struct sl_connect *to,
                       uint8_t reply[SL_LANE_HELLO_BYTES], struct sl_lane **ret_lane,
                       struct sl_err *err)
{
    struct tcp_rail *rail = (struct tcp_rail *)base;
    struct sl_lane_hello hello;
    uint8_t bytes[SL_LANE_HELLO_BYTES];
    struct tcp_lane *tcp;
    int fd;
    if (!rail->addresses)
        return sl_err_set(err, SL_ERR_UNSUPPORTED, "the target's rail does not connect");
    int rc = sl_lane_hello_decode(to->hello, SL_LANE_HELLO_BYTES, &hello);
    if (rc)
        return sl_err_set(err, rc, "own hello is not valid");
    const struct sl_net_connect net = {.host = to->host,
                                       .port = to->port,
                                       .bind_address = to->bind_address,
                                       .deadline = to->deadline,
                                       .traffic_class = to->traffic_class,
                                       .cancel_fd = to->cancel_fd};
    rc = sl_net_connect(rail->addresses, &net, &fd, err);
    if (rc)
        return rc;
    rc = shake_hands(fd, to, bytes, err);
    if (!rc) {
        /* the peer counts on being served what the hello promised */
        uint16_t depth = to->depth > hello.depth ? to->depth : hello.depth;
        rc = tcp_lane_new(fd, domain, &hello, clamp_depth(depth), false, &tcp, err);
    }
    if (rc) {
        close(fd);
        return rc;
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        reply[i] = bytes[i];
    *ret_lane = &tcp->lane;
    return 0;
}

static void tcp_rail_free(struct sl_rail *base)
{
    struct tcp_rail *rail = (struct tcp_rail *)base;
    if (!rail)
        return;
    if (rail->addresses)
        freeaddrinfo(rail->addresses);
    sl_free(rail);
}

const struct sl_rail_ops sl_tcp_rail_ops = {
    .name = "tcp",
    .resolve = tcp_resolve,
    .connect = tcp_connect,
    .domain_new = sl_memory_domain_new,
    .domain_free = sl_memory_domain_free,
    .region_new = sl_memory_region_new,
    .region_free = sl_memory_region_free,
    .rail_free = tcp_rail_free,
};

static int accept_into(int fd, struct sl_domain *domain, const struct sl_lane_hello *hello,
                       const uint8_t reply[SL_LANE_HELLO_BYTES], uint16_t depth,
                       struct tcp_lane **ret_lane, struct sl_err *err)
{
    int rc = sl_net_prepare(fd, err);
    if (rc)
        return rc;
    if (!hello->depth)
        return sl_err_set(err, SL_ERR_PROTOCOL, "the peer can serve no pull (depth 0)");
    depth = clamp_depth(depth < hello->depth ? depth : hello->depth);
    rc = tcp_lane_new(fd, domain, hello, depth, true, ret_lane, err);
    if (rc)
        return rc;
    struct tcp_out *out = tcp_out_new(*ret_lane); /* the first of an empty ring */
    out->head_bytes = SL_LANE_HELLO_BYTES;
    for (size_t i = 0; i < SL_LANE_HELLO_BYTES; i++)
        out->head[i] = reply[i];
    tcp_want(*ret_lane);
    return 0;
}

int sl_tcp_lane_accept(int fd, struct sl_domain *domain, const struct sl_lane_hello *hello,
                       const uint8_t reply[SL_LANE_HELLO_BYTES], uint16_t depth,
                       struct sl_lane **ret_lane, struct sl_err *err)
{
    struct tcp_lane *tcp;
    int rc = accept_into(fd, domain, hello, reply, depth, &tcp, err);
    if (rc) {
        close(fd);
        return rc;
    }
    *ret_lane = &tcp->lane;
    return 0;
}
