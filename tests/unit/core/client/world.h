/* For tests of the client with the real target: a repository in a temporary folder, a target on
 * it, a client's configuration, and a proxy between client and target that cuts and holds
 * connections. A test opens a world, changes what it wants in world.config, and connects. */
#ifndef SL_TEST_CLIENT_WORLD_H
#define SL_TEST_CLIENT_WORLD_H

#include "core/client/client.h"
#include "core/repo/repo.h"
#include "core/target/target.h"
#include "tests/unit/core/client/proxy.h"
#include "tests/unit/core/session/fixture.h"

#define MiB  (1024u * 1024u)
#define SOON sl_deadline_in_ms(20000)

struct world {
    struct certs certs;
    struct sl_store *store;
    struct sl_repo *repo;
    struct sl_target *target;
    struct sl_tls *server, *client_tls;
    struct sl_embedded embedded;
    char host[32];       /* of the target */
    struct proxy *proxy; /* in front of it, or NULL */
    const char *hosts[2];
    struct sl_client_config config; /* stanza "main"; the target as the options say */
    struct sl_client *client;       /* world_connect()'s */
};

struct world_options {
    bool listening;  /* the client uses TCP; otherwise it embeds the target */
    bool proxied;    /* listening, and the client goes through a proxy */
    bool may_remove; /* clients have the role "expire" */
    enum sl_seal_kind seal;
    unsigned heartbeat_ms, dead_ms, lanes;
};

void world_open(struct world *world, const struct world_options *options);
void world_start(struct world *world, const struct world_options *options, uint16_t port);
/* A client by world.config, closed with the world. */
struct sl_client *world_connect(struct world *world);
void world_close(struct world *world);
/* The path of an object's file. */
void world_path(const struct world *world, const char *name, char *path, size_t room);

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

/* What was listed and found damaged; their functions for sl_client_list() and _verify(). */
struct listing {
    unsigned count, stop_at;
    char last[256];
    bool ordered;
};

int note_entry(void *listing, const struct sl_entry *entry);

struct damages {
    unsigned count;
    char name[512], text[512];
    int code;
    unsigned steps;
};

void note_damage(void *damages, const char *name, int code, const char *text);
void note_step(void *damages, const struct sl_verify_progress *progress);

int no_sigpipe(void **state); /* cmocka's group set-up: the library must not need it ignored */

/* Bytes of an object by a seed; every third block is zero when `holes`. */
uint8_t *content_new(unsigned seed, size_t count, bool holes);

#endif
