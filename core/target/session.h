/* A session of the target: one authenticated client, from its first byte to its end. */
#ifndef SL_TARGET_SESSION_H
#define SL_TARGET_SESSION_H

#include "core/object/seal.h"
#include "core/session/control.h"
#include "core/target/lanes.h"
#include "core/target/objects.h"

#include <netinet/in.h>
#include <stdatomic.h>

#define HANDSHAKE_MS 10000u /* docs/wire.md: first bytes, TLS and HELLO together */
#define LINGER_MS    1000u  /* after last words, for the peer to read them */
#define SLOTS_MAX    65536u
#define RAILS_MAX    16u
#define TAKEN_BATCH  256u
#define SENT_BATCH   64u
#define SINK_BLOCKS  16u /* of a session of its own on rails with own_sink */

enum session_state {
    SESSION_HANDSHAKE, /* TLS, then HELLO */
    SESSION_LIVE,
    SESSION_LINGER, /* last words were said; waits for the peer to close */
    SESSION_ENDED,  /* waits for its lanes, pieces and tasks */
};

enum slot_state { SLOT_CLIENTS, SLOT_OFFERED, SLOT_ASKED };

/* What an epoll event of the control thread belongs to. */
struct watch {
    void (*ready)(struct sl_target *target, struct watch *watch);
};

#define OBJECT_BUCKETS 64u

struct session {
    struct watch watch;
    struct sl_target *target;
    struct session *next; /* all sessions */
    enum session_state state;
    struct sl_control *control;
    int control_fd;  /* -1: not watched any more */
    char label[160]; /* 'client "db1" (10.0.0.1:4711)', for the log */
    struct in6_addr address;
    bool remote;          /* came through the listener: counts as half open at first */
    sl_deadline deadline; /* of the handshake or the lingering */
    uint64_t due_ns;      /* process() is due */
    bool dirty;           /* process() is due at once */
    bool deaf;            /* its control has failed: only last words can be written */
    unsigned permit_generation;
    bool bye; /* the peer said it, or we did */
    /* from HELLO on */
    struct sl_id id;
    char client[64], stanza[64];
    uint8_t seal_wanted;
    uint64_t features; /* of HELLO */
    uint8_t lane_key[SL_LANE_KEY_BYTES];
    uint8_t secret_in[SL_SEAL_SECRET_BYTES], secret_out[SL_SEAL_SECRET_BYTES];
    uint32_t slots, slots_pulled; /* the lowest are pulled from, the others pushed into */
    uint8_t *slot_states;
    uint8_t *lanes_used;                   /* a bit per lane number */
    struct sl_remote memory[RAILS_MAX][2]; /* of the slots to pull from, and to push into */
    uint8_t memory_set[RAILS_MAX];         /* bits of enum sl_access */
    uint8_t memory_wanted;                 /* those of the kinds of slots there are */
    bool any_memory;                       /* a rail has all that is wanted */
    enum sl_transport_kind kind;           /* of its lanes; AUTO: none yet */
    bool sealed;
    atomic_uint_fast64_t seal_next; /* numbers of what we seal */
    struct lane *lanes;
    unsigned lane_count;
    struct pool sink; /* on own_sink rails; memory NULL: none */
    /* objects */
    struct object *objects[OBJECT_BUCKETS];
    unsigned object_count, writing, reading, committed;
    uint32_t greatest; /* object number seen; valid with any_object */
    bool any_object;
    /* work */
    struct piece_list queue;
    struct session *ring_next, *ring_prev; /* sessions with a queue; NULL: not in it */
    unsigned held;                         /* buffers */
    unsigned pieces, waiting;              /* all of its pieces; those that wait for a draft */
    unsigned tasks, verifies;
    struct verification *verifications;
    struct listing *listing; /* for the next page of a LIST */
    atomic_bool cancelled;   /* for its verifications */
    /* answers not sent yet */
    uint32_t taken[TAKEN_BATCH];
    unsigned taken_count;
    uint8_t sent[SENT_BATCH * SL_SENT_BYTES];
    unsigned sent_count;
};

/* session.c: life of a session */
/* Takes control (freed on failure too). `from` is NULL for one that was attached. */
int sl_target_session_new(struct sl_target *target, struct sl_control *control,
                          const struct in6_addr *from, sl_deadline hello_by, struct sl_err *err);
void sl_target_session_run(struct session *session); /* process() */
/* Frees it and returns true when nothing is left */
bool sl_target_session_over(struct session *session);
void sl_target_session_tick(struct session *session, uint64_t now_ns);
/* Says ERROR about the session and ends it. `code` of the peer's making. */
void sl_target_session_refuse(struct session *session, const struct sl_err *err);
void sl_target_session_violation(struct session *session, const char *fmt, ...)
    __attribute__((format(printf, 2, 3))); /* the same with PROTOCOL */
void sl_target_session_end(struct session *session, const struct sl_err *why); /* NULL: orderly */
/* The target stops: only commits go on */
void sl_target_session_wind_down(struct session *session);
struct session *sl_target_session_find(struct sl_target *target, const struct sl_id *id);
bool sl_target_session_permitted(struct session *session);
/* The role "expire". Asked each time: a reload takes it away, and removals are rare. */
bool sl_target_session_may_remove(const struct session *session);

/* hello.c */
void sl_target_hello_arrived(struct session *session, const struct sl_msg_hello *hello);

/* answers.c: what goes to the client */
void sl_target_answer(struct session *session, const struct sl_msg *msg);
void sl_target_answer_error(struct session *session, enum sl_about kind, uint32_t about,
                            const struct sl_err *err);
/* And the slot is the client's */
void sl_target_answer_taken(struct session *session, uint32_t slot);
void sl_target_answer_sent(struct session *session, const struct sl_offer *block, uint64_t push,
                           int code);
void sl_target_answer_flush(struct session *session);

#endif
