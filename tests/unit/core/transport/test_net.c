/* TCP connections: lookup, deadlines, several addresses, binding, traffic class, names. */
#include "core/transport/net.h"

#include "core/base/fault.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

static int lookup(const char *host, const char *port, struct addrinfo **ret_addresses,
                  struct sl_err *err)
{
    const struct sl_net_connect to = {
        .host = host, .port = port, .deadline = sl_deadline_in_ms(20000)};
    return sl_net_lookup(&to, ret_addresses, err);
}

static int listen_on(const char *host, int backlog, char port[8])
{
    struct addrinfo *address;
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof bound;
    assert_int_equal(lookup(host, "0", &address, NULL), 0);
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = fd < 0 || bind(fd, address->ai_addr, address->ai_addrlen) || listen(fd, backlog) ||
             getsockname(fd, (struct sockaddr *)&bound, &bytes);
    freeaddrinfo(address);
    if (rc) {
        close(fd);
        return -1;
    }
    getnameinfo((struct sockaddr *)&bound, bytes, NULL, 0, port, 8, NI_NUMERICSERV);
    return fd;
}

static int try_connect(const char *host, const char *port, const char *bind_address,
                       int traffic_class, uint64_t ms, int *ret_fd, struct sl_err *err)
{
    struct addrinfo *addresses;
    int rc = lookup(host, port, &addresses, err);
    if (rc)
        return rc;
    const struct sl_net_connect to = {.host = host,
                                      .port = port,
                                      .bind_address = bind_address,
                                      .deadline = sl_deadline_in_ms(ms),
                                      .traffic_class = traffic_class};
    rc = sl_net_connect(addresses, &to, ret_fd, err);
    freeaddrinfo(addresses);
    return rc;
}

static void net_lookup__unknown_name_or_service__fails_with_both_named(void **state)
{
    (void)state;
    struct addrinfo *addresses;
    struct sl_err err;
    assert_int_equal(lookup("127.0.0.1", "no-such-service", &addresses, &err), SL_ERR_CONNECT);
    assert_non_null(strstr(err.msg, "\"127.0.0.1\" port \"no-such-service\""));
    assert_int_equal(lookup("256.0.0.1.invalid", "1", &addresses, &err), SL_ERR_CONNECT);
    assert_non_null(strstr(err.msg, "256.0.0.1.invalid"));
}

/* By the thread: as slow as the resolver may be, the caller waits no longer than it said. */
static void net_lookup__name_server_is_slow__timeout_or_cancelled(void **state)
{
    (void)state;
#ifdef SLUICE_FAULTS
    int cancel = eventfd(1, EFD_CLOEXEC);
    for (int i = 0; i < 2; i++) {
        struct addrinfo *addresses = NULL;
        struct sl_err err = {0};
        const struct sl_net_connect to = {.host = "localhost",
                                          .port = "7430",
                                          .deadline = sl_deadline_in_ms(i ? 10000 : 50),
                                          .cancel_fd = i ? cancel : 0};
        /* the first lookup is the numeric one */
        assert_int_equal(sl_fault_set("net.lookup:sleep=500@2"), 0);
        uint64_t begin = sl_now_ns();
        int rc = sl_net_lookup(&to, &addresses, &err);
        assert_int_equal(rc, i ? SL_ERR_CANCELLED : SL_ERR_TIMEOUT);
        assert_true(sl_now_ns() - begin < 400 * SL_NS_PER_MS);
        assert_non_null(strstr(err.msg, "localhost"));
        assert_null(addresses);
        usleep(600000); /* the thread that was left behind frees what it holds */
        sl_fault_set(NULL);
    }
    close(cancel);
#else
    skip();
#endif
}

static void net_lookup__name__found(void **state)
{
    (void)state;
    struct addrinfo *addresses;
    struct sl_err err;
    assert_int_equal(lookup("localhost", "7430", &addresses, &err), 0);
    assert_true(addresses->ai_family == AF_INET || addresses->ai_family == AF_INET6);
    freeaddrinfo(addresses);
}

static void net_connect__socket_is_as_promised(void **state)
{
    (void)state;
    char port[8], name[SL_NET_NAME_BYTES], expected[32];
    struct sl_err err;
    int listener = listen_on("127.0.0.1", 4, port), fd, value = 0;
    socklen_t bytes = sizeof value;
    assert_int_equal(try_connect("127.0.0.1", port, "127.0.0.1", 0x28, 5000, &fd, &err), 0);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &bytes), 0);
    assert_true(value);
    assert_int_equal(getsockopt(fd, IPPROTO_IP, IP_TOS, &value, &bytes), 0);
    assert_int_equal(value, 0x28);
    snprintf(expected, sizeof expected, "127.0.0.1:%s", port);
    assert_string_equal(sl_net_peer_name(fd, name), expected);
    assert_memory_equal(sl_net_local_name(fd, name), "127.0.0.1:", 10);
    close(fd);
    close(listener);
}

static void net_connect__ipv6_with_traffic_class(void **state)
{
    (void)state;
    char port[8], name[SL_NET_NAME_BYTES];
    struct sl_err err;
    int listener = listen_on("::1", 4, port), fd, value = 0;
    socklen_t bytes = sizeof value;
    if (listener < 0)
        skip();
    assert_int_equal(try_connect("::1", port, "::1", 0x28, 5000, &fd, &err), 0);
    assert_int_equal(getsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &value, &bytes), 0);
    assert_int_equal(value, 0x28);
    assert_memory_equal(sl_net_peer_name(fd, name), "[::1]:", 6);
    close(fd);
    close(listener);
}

/* What a target listens on: IPv6 that takes IPv4, too. */
static void net_traffic_class__of_a_listener__its_connections_have_it(void **state)
{
    (void)state;
    static const char *const hosts[] = {"::1", "127.0.0.1"};
    char port[8];
    struct sl_err err;
    int listener = listen_on("::", 4, port), fd;
    if (listener < 0)
        skip();
    assert_int_equal(sl_net_traffic_class(listener, AF_INET6, 0x28, &err), 0);
    for (int i = 0; i < 2; i++) {
        int value = 0;
        socklen_t bytes = sizeof value;
        if (try_connect(hosts[i], port, NULL, -1, 5000, &fd, &err) != 0)
            continue; /* no IPv6 here, or none that takes IPv4 */
        int accepted = accept(listener, NULL, NULL);
        assert_int_equal(i == 0 ? getsockopt(accepted, IPPROTO_IPV6, IPV6_TCLASS, &value, &bytes)
                                : getsockopt(accepted, IPPROTO_IP, IP_TOS, &value, &bytes),
                         0);
        assert_int_equal(value, 0x28);
        close(accepted);
        close(fd);
    }
    close(listener);
}

static void net_connect__bind_address__used_or_named_in_the_error(void **state)
{
    (void)state;
    char port[8], name[SL_NET_NAME_BYTES];
    struct sl_err err;
    int listener = listen_on("127.0.0.1", 4, port), fd = -7;
    assert_int_equal(try_connect("127.0.0.1", port, "127.0.0.2", -1, 5000, &fd, &err), 0);
    assert_memory_equal(sl_net_local_name(fd, name), "127.0.0.2:", 10);
    close(fd);
    fd = -7;
    assert_true(try_connect("127.0.0.1", port, "192.0.2.1", -1, 5000, &fd, &err) < 0);
    assert_non_null(strstr(err.msg, "\"192.0.2.1\""));
    assert_int_equal(try_connect("127.0.0.1", port, "eth0", -1, 5000, &fd, &err), SL_ERR_CONFIG);
    assert_int_equal(try_connect("127.0.0.1", port, "::1", -1, 5000, &fd, &err), SL_ERR_CONFIG);
    assert_int_equal(fd, -7);
    close(listener);
}

static void net_connect__refused__error_names_address(void **state)
{
    (void)state;
    char port[8], expected[32];
    struct sl_err err;
    int fd;
    close(listen_on("127.0.0.1", 4, port)); /* nobody listens there now */
    assert_int_equal(try_connect("127.0.0.1", port, NULL, -1, 5000, &fd, &err), SL_ERR_CONNECT);
    snprintf(expected, sizeof expected, "127.0.0.1:%s", port);
    assert_non_null(strstr(err.msg, expected));
}

/* The first address refuses, the second answers. */
static void net_connect__several_addresses__all_tried(void **state)
{
    (void)state;
    char port[8];
    struct sl_err err;
    struct addrinfo *bad, *good;
    int listener = listen_on("127.0.0.2", 4, port), fd = -1;
    assert_int_equal(lookup("127.0.0.1", port, &bad, &err), 0);
    assert_int_equal(lookup("127.0.0.2", port, &good, &err), 0);
    struct addrinfo first = *bad;
    first.ai_next = good;
    const struct sl_net_connect to = {
        .host = "db1", .port = port, .deadline = sl_deadline_in_ms(5000), .traffic_class = -1};
    assert_int_equal(sl_net_connect(&first, &to, &fd, &err), 0);
    char name[SL_NET_NAME_BYTES];
    assert_memory_equal(sl_net_peer_name(fd, name), "127.0.0.2:", 10);
    close(fd);
    freeaddrinfo(bad);
    freeaddrinfo(good);
    close(listener);
}

/* A listener whose queue is full answers no SYN. */
static void net_connect__no_answer__timeout_at_the_deadline(void **state)
{
    (void)state;
    char port[8];
    struct sl_err err = {0};
    int listener = listen_on("127.0.0.1", 0, port), fds[8], rc = 0;
    size_t count = 0;
    uint64_t begin = 0;
    while (!rc && count < 8) {
        begin = sl_now_ns();
        rc = try_connect("127.0.0.1", port, NULL, -1, 200, &fds[count], &err);
        count += rc == 0;
    }
    uint64_t took = sl_now_ns() - begin;
    assert_int_equal(rc, SL_ERR_TIMEOUT);
    assert_true(took >= 190 * SL_NS_PER_MS && took < 3 * SL_NS_PER_S);
    assert_non_null(strstr(err.msg, "127.0.0.1"));
    assert_int_equal(try_connect("127.0.0.1", port, NULL, -1, 0, &fds[0], &err), SL_ERR_TIMEOUT);
    while (count)
        close(fds[--count]);
    close(listener);
}

static void net_transfer__peer_silent_or_gone__told_in_time(void **state)
{
    (void)state;
    int fds[2];
    uint8_t data[64] = {0};
    struct sl_err err;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(sl_net_prepare(fds[0], &err), 0);
    assert_int_equal(write(fds[1], data, 10), 10);
    assert_int_equal(sl_net_receive_all(fds[0], data, 11, "db1", 0, sl_deadline_in_ms(50), &err),
                     SL_ERR_TIMEOUT);
    assert_non_null(strstr(err.msg, "db1"));
    int cancel = eventfd(1, EFD_CLOEXEC);
    uint64_t began = sl_now_ns();
    assert_int_equal(
        sl_net_receive_all(fds[0], data, 1, "db1", cancel, sl_deadline_in_ms(60000), &err),
        SL_ERR_CANCELLED);
    assert_in_range((sl_now_ns() - began) / SL_NS_PER_MS, 0, 30000);
    close(cancel);
    close(fds[1]);
    assert_int_equal(sl_net_receive_all(fds[0], data, 1, "db1", 0, sl_deadline_in_ms(5000), &err),
                     SL_ERR_CLOSED);
    assert_int_equal(sl_net_send_all(fds[0], data, 1, "db1", 0, sl_deadline_in_ms(5000), &err),
                     SL_ERR_CLOSED);
    close(fds[0]);
}

static void net_connect__each_call_fails__error_and_no_descriptor(void **state)
{
    (void)state;
#ifdef SLUICE_FAULTS
    char port[8];
    struct sl_err err;
    int listener = listen_on("127.0.0.1", 4, port), fd = -7;
    const char *const rules[] = {"net.lookup:EIO", "net.socket:EMFILE", "net.connect:EIO"};
    for (size_t i = 0; i < 3; i++) {
        int before = dup(0);
        close(before);
        sl_fault_set(rules[i]);
        int rc = try_connect("127.0.0.1", port, NULL, -1, 5000, &fd, &err);
        sl_fault_set(NULL);
        assert_int_equal(rc, SL_ERR_CONNECT);
        assert_int_equal(fd, -7);
        int after = dup(0); /* the lowest free number is the same */
        close(after);
        assert_int_equal(after, before);
    }
    close(listener);
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(net_lookup__unknown_name_or_service__fails_with_both_named),
        cmocka_unit_test(net_lookup__name__found),
        cmocka_unit_test(net_lookup__name_server_is_slow__timeout_or_cancelled),
        cmocka_unit_test(net_connect__socket_is_as_promised),
        cmocka_unit_test(net_connect__ipv6_with_traffic_class),
        cmocka_unit_test(net_traffic_class__of_a_listener__its_connections_have_it),
        cmocka_unit_test(net_connect__bind_address__used_or_named_in_the_error),
        cmocka_unit_test(net_connect__refused__error_names_address),
        cmocka_unit_test(net_connect__several_addresses__all_tried),
        cmocka_unit_test(net_connect__no_answer__timeout_at_the_deadline),
        cmocka_unit_test(net_transfer__peer_silent_or_gone__told_in_time),
        cmocka_unit_test(net_connect__each_call_fails__error_and_no_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
