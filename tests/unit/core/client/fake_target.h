/* A scripted target on the other end of a control pair, with loopback lanes: honest unless a test's
 * script deals with a message otherwise. */
#ifndef SL_TEST_CLIENT_FAKE_TARGET_H
#define SL_TEST_CLIENT_FAKE_TARGET_H

#include "core/transport/loopback.h"
#include "tests/unit/core/client/world.h"

#include <stdatomic.h>

#define FAKE_BLOCKS 40

struct fake;
/* Deals with a message, or returns false to have it dealt with honestly. */
typedef bool (*fake_script)(struct fake *fake, const struct sl_msg *msg);

struct fake {
    struct sl_control *control;
    struct sl_rail *rail;
    struct sl_domain *domain;
    struct sl_region *region;
    uint8_t *memory; /* one block, the source and sink of lanes */
    pthread_t thread;
    _Atomic bool stop;
    bool runs;
    pthread_mutex_t lock; /* guards lanes */
    struct sl_lane *lanes[8];
    unsigned lane_count;
    uint64_t pushes;
    struct sl_remote slots[2]; /* those we pull from, those we push into */
    struct sl_id repository;
    /* the object it serves */
    uint8_t *content;
    size_t content_bytes;
    struct sl_id leaves[FAKE_BLOCKS], digest;
    _Atomic(fake_script) script; /* called on its thread */
    unsigned counter;            /* the script's */
};

/* A target that serves one object of so many bytes under every name, and the configuration of a
 * client of it (8 slots, io_ms 20 s). */
void fake_open(struct fake *fake, struct sl_client_config *config, struct sl_embedded *embedded,
               size_t content_bytes);
void fake_close(struct fake *fake);

/* Its side of the wire. push() returns the push's number; answer_for() is an honest SENT of the
 * block without it. */
void say(struct fake *fake, const struct sl_msg *msg);
void say_taken(struct fake *fake, uint32_t slot);
void say_sent(struct fake *fake, const struct sl_sent *sent);
void say_error(struct fake *fake, enum sl_about kind, uint32_t about, int code);
uint64_t push(struct fake *fake, unsigned lane, uint32_t slot, const void *bytes, size_t count,
              bool notice);
struct sl_sent answer_for(struct fake *fake, const struct sl_get *get);
void serve_get(struct fake *fake, const struct sl_get *get);
void say_lane(struct fake *fake, enum sl_msg_type type, uint16_t lane);

#endif
