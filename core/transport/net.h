/* TCP connections, as the lanes and the control connection need them: looked up, connected with a
 * deadline, named for messages.
 */
#ifndef SL_TRANSPORT_NET_H
#define SL_TRANSPORT_NET_H

#include "core/base/clock.h"
#include "core/base/err.h"

#include <stddef.h>
#include <sys/socket.h>

#define SL_NET_NAME_BYTES 64 /* "[2001:db8::1%eth0]:65535" with its NUL fits */

struct addrinfo;

struct sl_net_connect {
    const char *host, *port;
    const char *bind_address; /* numeric, or NULL */
    sl_deadline deadline;
    int traffic_class; /* 0..255, -1 leaves it alone */
    int cancel_fd;     /* readable: give up with SL_ERR_CANCELLED; 0 or less: there is none */
};

/* Addresses of to->host and to->port (a stream service, IPv4 and IPv6); returns owned, freed with
 * freeaddrinfo(). Blocks until the deadline at most: a numeric host needs no wait, a name is looked
 * up by a thread, which is left behind when the time is over (getaddrinfo(3) has no deadline).
 * SL_ERR_CONNECT, SL_ERR_TIMEOUT, SL_ERR_CANCELLED. */
int sl_net_lookup(const struct sl_net_connect *to, struct addrinfo **ret_addresses,
                  struct sl_err *err);

/* Waits for `events` on `fd`. 0, SL_ERR_TIMEOUT, SL_ERR_CANCELLED, or SL_ERR_INTERNAL. */
int sl_net_wait(int fd, short events, int cancel_fd, sl_deadline deadline);

/* Tries the addresses in their order until one answers; each gets its share of what is left of
 * the time. Blocks until the deadline at most. Returns in `*ret_fd` a connected socket:
 * non-blocking, close-on-exec, without Nagle's delay. SL_ERR_CONNECT, SL_ERR_TIMEOUT,
 * SL_ERR_CANCELLED. */
int sl_net_connect(const struct addrinfo *addresses, const struct sl_net_connect *to, int *ret_fd,
                   struct sl_err *err);

/* Send or receive exactly `bytes`, waiting until the deadline at most; `cancel_fd` as above.
 * SL_ERR_CLOSED, SL_ERR_TIMEOUT, SL_ERR_CANCELLED; `peer` is for the message. */
int sl_net_send_all(int fd, const void *data, size_t bytes, const char *peer, int cancel_fd,
                    sl_deadline deadline, struct sl_err *err);
int sl_net_receive_all(int fd, void *data, size_t bytes, const char *peer, int cancel_fd,
                       sl_deadline deadline, struct sl_err *err);

/* Sets the IP TOS and, for AF_INET6, the traffic class (0..255) of what a socket sends; accepted
 * sockets have that of their listener. SL_ERR_CONFIG. */
int sl_net_traffic_class(int fd, int family, int traffic_class, struct sl_err *err);

/* What an accepted socket needs to be like one of sl_net_connect(). */
int sl_net_prepare(int fd, struct sl_err *err);

/* "10.0.0.1:7430", "[::1]:7430"; "?" if it cannot be told. Return `name`. */
const char *sl_net_name(const struct sockaddr *address, socklen_t bytes,
                        char name[SL_NET_NAME_BYTES]);
const char *sl_net_local_name(int fd, char name[SL_NET_NAME_BYTES]);
const char *sl_net_peer_name(int fd, char name[SL_NET_NAME_BYTES]);

#endif
