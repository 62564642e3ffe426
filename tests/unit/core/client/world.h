/* For tests of the client with the real target: a repository in a temporary folder, a target on
 * it, and a proxy between client and target that cuts and holds connections. */
#ifndef SL_TEST_CLIENT_WORLD_H
#define SL_TEST_CLIENT_WORLD_H

#include "core/client/client.h"
#include "core/repo/repo.h"
#include "core/target/target.h"
#include "tests/unit/core/session/fixture.h"

#define MiB  (1024u * 1024u)
#define SOON sl_deadline_in_ms(20000)

struct world {
    struct certs certs;
    struct sl_store *store;
    struct sl_repo *repo;
    struct sl_target *target;
    struct sl_tls *server, *client;
    struct sl_embedded embedded;
    char host[32]; /* of the target */
};

struct world_options {
    bool listening;
    enum sl_seal_kind seal;
    unsigned heartbeat_ms, dead_ms, lanes;
};

void world_open(struct world *world, const struct world_options *options);
void world_start(struct world *world, const struct world_options *options, uint16_t port);
void world_close(struct world *world);
/* The path of an object's file. */
void world_path(const struct world *world, const char *name, char *path, size_t room);

/* A proxy in front of a target. Connections are told apart by their first byte. */
struct proxy;
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

/* Plain configuration: stanza "main", `hosts` or (NULL) the embedded target. */
struct sl_client_config config_for(const struct world *world, const char *const *hosts);
struct sl_client *open_must(const struct sl_client_config *config);
/* Uploads `bytes`, in pieces of awkward sizes; fetches an object and compares it. */
int upload(struct sl_client *client, const char *name, const uint8_t *bytes, size_t count,
           struct sl_stored *stored, struct sl_err *err);
int fetch_and_compare(struct sl_client *client, const char *name, const uint8_t *bytes,
                      size_t count, struct sl_err *err);
/* Threads that each upload and fetch so many objects of about `bytes`, and do over what a lost
 * session cost; all must succeed. Returns how often something was done over. */
unsigned run_jobs(struct sl_client *client, unsigned threads, unsigned objects, size_t bytes,
                  void (*meanwhile)(void *arg), void *arg);

/* Bytes of an object by a seed; every third block is zero when `holes`. */
uint8_t *content_new(unsigned seed, size_t count, bool holes);

#endif
