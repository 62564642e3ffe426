/* A proxy between client and target, on 127.0.0.1, that cuts, holds and refuses connections. */
#ifndef SL_TEST_CLIENT_PROXY_H
#define SL_TEST_CLIENT_PROXY_H

#include <stdbool.h>
#include <stdint.h>

struct proxy;

/* Connections are told apart by their first byte. */
struct proxy *proxy_new(const char *target_host);
void proxy_free(struct proxy *proxy);
const char *proxy_host(const struct proxy *proxy);
void proxy_target(struct proxy *proxy, const char *target_host); /* for new connections */
void proxy_cut_lanes(struct proxy *proxy);                       /* resets those there are */
void proxy_cut_all(struct proxy *proxy);
void proxy_hold(struct proxy *proxy, bool hold);                      /* nothing is passed on */
void proxy_refuse(struct proxy *proxy, bool lanes_only, bool refuse); /* new ones are closed */
unsigned proxy_lanes(struct proxy *proxy);                            /* seen so far */
uint64_t proxy_carried(struct proxy *proxy);                          /* bytes, by all lanes */
/* Each lane is cut after it has carried that many bytes; 0: no more. */
void proxy_cut_after(struct proxy *proxy, uint64_t bytes);

#endif
