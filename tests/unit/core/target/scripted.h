/* A scripted client: the other end of the wire for the tests of the target. It does what a test
 * says, right or wrong, one step at a time; it is not the client of core/client. A step that fails
 * without the test having asked for it aborts the test (also in a thread of a test's own).
 */
#ifndef TESTS_TARGET_SCRIPTED_H
#define TESTS_TARGET_SCRIPTED_H

#include "core/object/seal.h"
#include "core/repo/repo.h"
#include "core/session/control.h"
#include "core/target/target.h"
#include "core/transport/lane.h"

#include <stdio.h>
#include <stdlib.h>

#define must(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);              \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#define WAIT_MS        60000
#define SLOTS          16
#define SCRIPT_REFUSED 3
#define LANES_MAX      8
#define KiB            1024u
#define MiB            (1024u * 1024u)

/* A repository in a folder of its own, and a target on it. */
struct world {
    char dir[64];
    struct sl_store *store;
    struct sl_repo *repo;
    struct sl_target *target;
    struct sl_tls *server, *client; /* listening only */
    char port[8];
};

/* `config` may be NULL; repo and tls are set here. */
void world_open(struct world *world, const struct sl_target_config *config, bool listening);
/* Without a target, which is started by world_start(). */
void world_make(struct world *world, bool listening);
void world_start(struct world *world, const struct sl_target_config *config, bool listening);
void world_stop(struct world *world, unsigned grace_ms);
/* The repository closed and opened again, as after a failed sync. */
void world_reopen(struct world *world);
void world_close(struct world *world);

struct letter {
    struct sl_msg msg; /* `rest` is a copy */
    uint8_t *rest;
    struct letter *next;
};

enum slot_use { SLOT_FREE, SLOT_OFFERED, SLOT_ASKED };

struct script {
    struct world *world;
    struct sl_control *control;
    struct letter *letters, **letters_end; /* came, and not looked at */
    struct letter *last;                   /* looked at: its rest lives until the next is */
    int closed;                            /* what ended the control, or 0 */
    bool tolerant; /* in a process of its own: a refusal ends it with SCRIPT_REFUSED */
    struct sl_msg_welcome welcome;
    bool sealed, listening;
    uint8_t lane_key[SL_LANE_KEY_BYTES];
    struct sl_sealer *sealer, *unsealer;
    uint64_t seals;
    struct sl_rail *rail;
    struct sl_domain *domain;
    struct sl_region *regions[2]; /* slots to be pulled from, and to be pushed into */
    uint8_t *memory;
    uint32_t slots; /* of each kind; those to be pushed into come last */
    enum slot_use use[256];
    struct sl_lane *lanes[LANES_MAX]; /* index is not the number */
    uint16_t next_lane;
    bool any_lane;
    bool lanes_asleep; /* a reader that does not serve its lanes */
    uint64_t notices[1024];
    size_t notice_count;
    unsigned kill_lane_at; /* after so many blocks of a download, one of its lanes is ended */
};

struct script_options {
    const char *client, *stanza;
    bool listening; /* over TLS and TCP; else attached and loopback */
    enum sl_seal_kind seal;
    unsigned lanes; /* 0: two; see script_lane for more */
    bool no_lanes, no_memory, tolerant;
    uint32_t slots; /* 0: SLOTS */
};

/* Connects, says HELLO; true when WELCOME came, else the ERROR is the first letter. */
bool script_hello(struct script *script, struct world *world, const struct script_options *options);
/* … and makes lanes, sends MEMORY. */
void script_open(struct script *script, struct world *world, const struct script_options *options);
void script_close(struct script *script); /* without BYE: the connection just ends */
void script_bye(struct script *script);   /* BYE, and waits for the target to close */

void script_send(struct script *script, const struct sl_msg *msg);
/* A turn of control and lanes, waiting up to `ms`. */
void script_turn(struct script *script, int ms);
/* Waits for a message of this type; earlier letters of other types stay. */
struct sl_msg script_await(struct script *script, enum sl_msg_type type);
/* The same for an ERROR, whose kind and code must be these. */
struct sl_msg script_await_error(struct script *script, enum sl_about about, int code);
bool script_has(const struct script *script, enum sl_msg_type type);
/* The target ends the connection; what it said before stays. */
void script_await_close(struct script *script);
void script_memory(struct script *script);
/* Opens one more; returns its index, or a code. */
int script_lane(struct script *script);
void script_lane_end(struct script *script, int index);

/* Content of an object: a pattern that depends on `seed`; every third block is zeros with `holes`.
 */
struct content {
    uint8_t *bytes;
    uint64_t length;
    struct sl_id digest;
};
struct content content_new(const struct world *world, unsigned seed, uint64_t length, bool holes);
void content_free(struct content *content);

/* --- steps of writing ------------------------------------------------------------------------- */

void script_create(struct script *script, uint32_t object, const char *name);
/* A free slot; waits for TAKEN. */
uint32_t script_slot(struct script *script);
/* Fills the slot with block `block` of the content and describes it; does not send. */
struct sl_offer script_fill(struct script *script, uint32_t object, const struct content *content,
                            uint32_t block);
void script_offer(struct script *script, const struct sl_offer *offer);
void script_commit(struct script *script, uint32_t object, const struct content *content);
/* All of it but waiting for the answer. */
void script_write(struct script *script, uint32_t object, const char *name,
                  const struct content *content);
/* STORED or ERROR of this object: 0 and the outcome, or the code. */
int script_outcome(struct script *script, uint32_t object, enum sl_outcome *ret_outcome);
/* All of it: must be stored with this outcome. */
void script_put(struct script *script, uint32_t object, const char *name,
                const struct content *content, enum sl_outcome outcome);
void script_all_slots_free(struct script *script); /* waits for it */

/* --- steps of reading ------------------------------------------------------------------------- */

void script_get_block(struct script *script, uint32_t object, uint32_t block, uint32_t slot);
/* Opens, reads and compares, closes. Returns 0, or the code of OPEN or of the first bad block. */
int script_read(struct script *script, uint32_t object, const char *name,
                const struct content *content);

#endif
