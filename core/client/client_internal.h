/* Inside core/client: a session and what shares it.
 *
 * Locks, none taken while holding one to its right, but client->lock → session->lock:
 *   client->lock    which session is current, who is making one
 *   session->lock   everything of a session but its lanes: slots, offers, objects, requests
 *   lanes->lock     the lanes: whoever holds it is their owning thread for that while
 *
 * Threads of a session:
 *   control   sl_control_process(), messages (dispatch.c), the session's end
 *   lanes     polls and serves the lanes (lanes.c)
 *   connect   makes lanes, the first and their replacements (lanes.c)
 * The control thread ends last: it joins the others, frees lanes, registration and rail.
 */
#ifndef SL_CLIENT_INTERNAL_H
#define SL_CLIENT_INTERNAL_H

#include "core/base/thread.h"
#include "core/client/client.h"
#include "core/object/object.h"
#include "core/object/seal.h"

#include <pthread.h>
#include <stdatomic.h>

#define WINDOW_MAX      16 /* blocks of one download asked for at once */
#define OFFERS_BATCH    8  /* blocks in one OFFER, when not sent sooner */
#define OFFERS_AT_ONCE  4  /* with fewer slots under way a block is offered without waiting */
#define LANES_MAX       16
#define TABLE_MAX       4000 /* leaf digests in one TABLE, docs/wire.md */
#define BACKOFF_MIN_MS  100
#define BACKOFF_MAX_MS  5000
#define LANE_CONNECT_MS 5000
#define LARGE_BYTES     16384 /* a block above it fills packets of any MTU */

/* --- slots ----------------------------------------------------------------------------------- */

enum slot_state {
    SLOT_FREE,    /* on the stack */
    SLOT_OURS,    /* some upload's, or a download's that copies from it */
    SLOT_OFFERED, /* the target's until TAKEN */
    SLOT_GOT,     /* the target's until it was pushed into and we know */
};

struct slot {
    enum slot_state state;
    uint32_t bytes; /* OFFERED: of the block */
    /* GOT: */
    struct sl_download *download; /* who wants it; NULL: nobody any more */
    uint32_t object, block;
    bool sent; /* SENT came; `about` is valid; its notice has not come */
    struct sl_sent about;
};

struct slot_waiter {
    struct slot_waiter *next;
    pthread_cond_t changed;
    uint32_t slot; /* handed over, or SL_SLOT_NONE */
};

/* What the target may do with a slot. A database that is backed up shows the peer memory that it
 * can only read, but for the few slots that answers come into. */
enum slot_kind { SLOT_PULLED, SLOT_PUSHED, SLOT_KINDS };

struct slot_pool {
    uint32_t first, count; /* of the slots */
    uint32_t *stack, free; /* numbers of free slots */
    struct slot_waiter *waiters, **last_waiter;
};

struct slots {
    uint8_t *memory;
    uint32_t count;
    struct slot *all;
    uint32_t *stacks; /* of both pools */
    struct slot_pool pools[SLOT_KINDS];
    /* notices that came before their SENT, oldest overwritten: a stale one does no harm */
    uint64_t *early;
    uint32_t early_room, early_next;
    /* blocks that wait to be offered together */
    struct sl_offer offers[OFFERS_BATCH];
    uint32_t offers_count;
    uint32_t offered; /* slots in state OFFERED whose OFFER was sent */
};

/* --- lanes ----------------------------------------------------------------------------------- */

struct lane_entry {
    uint16_t id;
    bool used;            /* this place of the table */
    bool down;            /* dead on our side or by the target's word */
    bool up;              /* LANE_UP came */
    struct sl_lane *lane; /* NULL while connecting, and once freed */
    uint64_t since;       /* connected */
};

struct lanes {
    pthread_mutex_t lock;
    pthread_cond_t changed;                 /* the connecting thread waits on it */
    struct lane_entry table[LANES_MAX * 2]; /* half of it for the dead that the target still has */
    unsigned wanted;
    uint32_t next_id;
    unsigned failures; /* attempts in a row */
    sl_deadline not_before;
    uint64_t none_since;   /* no lane was up from then on; 0: there is one */
    unsigned lost_unmoved; /* lanes lost before any block had moved */
    bool stop;
    int wake_fd;
    pthread_t serving, connecting;
    bool serving_runs, connecting_runs;
    struct sl_rail *rail;
    struct sl_domain *domain;
    struct sl_region *regions[SLOT_KINDS];
    uint16_t depth;
    char port[8];             /* where lanes go */
    char reason[200];         /* of the last that was lost or could not be made */
    struct sl_lane_info info; /* of the first */
};

/* --- objects and questions ------------------------------------------------------------------- */

#define GROW_WINDOW 8u /* blocks of a growing object under way; a target allows 16 */

enum object_kind { OBJECT_UPLOAD, OBJECT_DOWNLOAD };

/* What an upload and a download have in common. */
struct object {
    struct object *next; /* of the session's list, while the target knows the number */
    enum object_kind kind;
    uint32_t number;
    bool listed;
    bool abandoned;    /* its user is gone; freed when the target has answered */
    bool answered;     /* STORED, OPENED, or ERROR */
    struct sl_err err; /* code != 0: ERROR came */
    pthread_cond_t changed;
    int wake_fd; /* written to as well when `changed` is signalled; -1: none */
    struct session *session;
    char name[SL_NAME_MAX];
};

struct sl_upload {
    struct object object;
    uint64_t length;
    struct sl_id *leaves;
    uint32_t blocks, leaves_room;
    uint8_t *at;   /* the current block's buffer, or NULL */
    uint32_t slot; /* it is this slot, or SL_SLOT_NONE: the private buffer */
    size_t filled;
    uint8_t *buffer; /* private, when sealed or packed */
    struct sl_sealer *sealer;
    struct sl_packer *packer; /* NULL: blocks go plain */
    uint8_t *packed;          /* with it: a block packed */
    uint64_t stored;          /* bytes offered so far */
    bool committed;           /* COMMIT or SEAL was sent */
    struct sl_id digest;
    enum sl_outcome outcome;
    int failed; /* a call failed: nothing but abort is left */
    /* of a growing object (grow.c): */
    bool growing, grown;        /* and GROWN has come */
    uint64_t durable, started;  /* by the target's word; the length where it was opened */
    uint64_t ends[GROW_WINDOW]; /* where each block ended that may not be durable yet: a ring */
    unsigned ends_first, ends_count;
};

enum want_state { WANT_ASKED, WANT_ARRIVED, WANT_FAILED };

struct want {
    enum want_state state;
    uint32_t block, slot;
    bool again; /* asked a second time, after a bad digest */
    int code;   /* FAILED: the target's */
    struct sl_offer about;
};

struct sl_download {
    struct object object;
    struct sl_object_info info;
    uint32_t blocks;
    struct sl_id *leaves;
    uint32_t leaves_got;
    uint32_t next, asked, end; /* to be given next; to be asked for next; end of the range */
    struct want wants[WINDOW_MAX];
    unsigned wants_first, wants_count; /* a ring, in order of blocks */
    uint8_t *buffer;
    struct sl_unpacker *unpacker; /* with `packed`, from the first packed block on */
    uint8_t *packed;
    struct sl_sealer *sealer;
};

struct damage {
    struct damage *next;
    int code;
    char name[SL_NAME_MAX], text[768];
};

struct request {
    struct request *next;
    uint32_t number;
    enum sl_msg_type expected;
    bool answered;
    struct sl_err err;
    pthread_cond_t changed;
    struct session *session;
    union {
        struct sl_msg_stated stated;
        struct sl_msg_spaced spaced;
        struct sl_msg_swept swept;
        struct {
            bool more;
            uint8_t *entries; /* owned */
            size_t bytes;
        } listed;
        struct {
            struct sl_verify_progress progress;
            bool moved, done;
            struct damage *damages, **last;
            size_t count;
        } verify;
    };
};

/* --- session and client ---------------------------------------------------------------------- */

struct session {
    struct sl_client *client;
    _Atomic int refs;
    struct sl_control *control; /* until the control thread ends */
    struct sl_msg_welcome welcome;
    uint64_t welcomed_ns; /* our clock when it came */
    char host[128], peer_ip[64];
    enum sl_transport_kind transport;
    char why[200]; /* this transport */
    bool sealed;
    uint32_t slots_wanted, slots_pulled; /* of these, to be pulled from */
    uint8_t lane_key[SL_LANE_KEY_BYTES];
    uint8_t secret_up[SL_SEAL_SECRET_BYTES], secret_down[SL_SEAL_SECRET_BYTES];
    _Atomic uint64_t seal_next;
    int kick_fd; /* readable once the session has failed: wakes its threads, stays so */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* a lane is up, an object's place is free, setup is over */
    struct sl_err failure;  /* code != 0: it is over */
    bool setup_over;
    bool closed;          /* by sl_client_close(): nothing to tell of */
    bool moved;           /* a large block went through a lane */
    uint64_t progress_ns; /* the last TAKEN or STORED */
    unsigned lanes_up;
    struct slots slots;
    struct object *objects;
    struct request *requests;
    uint32_t next_object, next_request;
    uint32_t writing, reading, downloads;
    struct lanes lanes;
};

struct sl_client {
    struct sl_client_config config; /* with copies of its strings */
    char **hosts;
    struct sl_embedded embedded;
    bool has_embedded;
    _Atomic bool cancelled;
    int cancel_fd;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct session *session; /* current, or NULL */
    bool beginning;          /* some thread makes one */
    char trouble[200];       /* why its last attempt failed, "" before */
    unsigned alive;          /* sessions whose threads have not ended */
    bool have_repository;
    struct sl_id repository;
    struct sl_client_info info;
    char rdma_trouble[200]; /* why RDMA is not tried for a while */
    sl_deadline rdma_again;
};

/* client.c */
/* The current session, made if there is none; returns owned (session_unref). */
int sl_client_session(struct sl_client *client, sl_deadline deadline, struct session **ret_session,
                      struct sl_err *err);
/* Whether what failed with `rc` is to be done again, in a new session: what is small and whole in
 * the caller's hands does not fail because a target was restarted. Counts in `*tries`, from 0. */
bool sl_client_again(int rc, unsigned *tries, sl_deadline deadline);
int sl_client_cancelled(const struct sl_client *client, struct sl_err *err);
void sl_client_session_gone(struct sl_client *client);
/* Until no session is left: its registered memory must be given back before more is registered. */
int sl_client_await_gone(struct sl_client *client, sl_deadline deadline, struct sl_err *err);
/* Time measured for a stage: begin, then end. Nothing when there is no progress. */
uint64_t sl_client_stage_begin(const struct sl_client *client);
void sl_client_stage_end(const struct sl_client *client, enum sl_stage stage, uint64_t began);

/* session.c */
/* `host` is "name:port", or NULL for the embedded target. */
int sl_client_session_begin(struct sl_client *client, const char *host, sl_deadline deadline,
                            struct session **ret_session, struct sl_err *err);
void sl_client_session_ref(struct session *session);
void sl_client_session_unref(struct session *session); /* NULL ok */
/* Ends the session: the first reason stays. Any thread; session->lock not held / held. */
void sl_client_session_fail(struct session *session, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void sl_client_session_fail_locked(struct session *session, const struct sl_err *why);
/* With the lock held: waits on `changed`. 0: look again; else why not to wait any longer. */
int sl_client_session_wait(struct session *session, pthread_cond_t *changed, sl_deadline deadline,
                           struct sl_err *err);
/* With the lock held: 0, or why the session is of no use. */
int sl_client_session_check(const struct session *session, struct sl_err *err);
/* Lock not held: why the session is over, though a cancelled wait was the first to notice. */
int sl_client_session_over(struct session *session, struct sl_err *err);
/* With the lock held. */
void sl_client_session_send(struct session *session, const struct sl_msg *msg);
sl_deadline sl_client_session_io_deadline(const struct session *session, sl_deadline deadline);
/* The same for waits that others' work may lengthen (a commit): io_ms from when the target
 * last took a block or stored an object, but not before `began_ns`. With the lock held. */
sl_deadline sl_client_session_quiet_deadline(const struct session *session, uint64_t began_ns,
                                             sl_deadline deadline);

/* transport.c */
/* Before HELLO: may this session use RDMA, and with how many slots? `session->why` says why not.
 * An error when RDMA is demanded and cannot be. */
int sl_client_transport_intend(struct session *session, struct sl_err *err);
/* When WELCOME has come. */
int sl_client_transport_decide(struct session *session, struct sl_err *err);
/* RDMA failed: not tried again for a while. */
void sl_client_transport_avoid_rdma(struct sl_client *client, const char *why);
/* Rail, domain, memory, the first lane, MEMORY, the lanes' threads; waits for LANE_UP. */
int sl_client_transport_setup(struct session *session, sl_deadline deadline, struct sl_err *err);
void sl_client_transport_teardown(struct session *session);

/* lanes.c */
int sl_client_lanes_init(struct lanes *lanes, struct sl_err *err);
void sl_client_lanes_fini(struct lanes *lanes);
/* Makes one lane, blocking until the deadline. */
int sl_client_lanes_add(struct session *session, sl_deadline deadline, struct sl_err *err);
int sl_client_lanes_start(struct session *session, struct sl_err *err);
void sl_client_lanes_stop(struct session *session); /* joins the threads, frees the lanes */
void sl_client_lanes_up(struct session *session, uint16_t id);
void sl_client_lanes_down(struct session *session, uint16_t id, const char *reason);
/* How long the session has been without a lane, ns. */
uint64_t sl_client_lanes_none_ns(struct session *session);

/* dispatch.c: messages of the target, on the control thread. */
int sl_client_dispatch(void *arg, struct sl_control *control, const struct sl_msg *msg,
                       struct sl_err *err);

/* slots.c */
/* The lowest `pulled` of them are of the one kind, the others of the other. */
int sl_client_slots_init(struct slots *slots, uint32_t count, uint32_t pulled, struct sl_err *err);
void sl_client_slots_fini(struct slots *slots);
uint8_t *sl_client_slot_memory(const struct slots *slots, uint32_t slot);
/* With session->lock held: */
int sl_client_slot_take(struct session *session, enum slot_kind kind, sl_deadline deadline,
                        uint32_t *ret_slot, struct sl_err *err); /* waits for its turn */
bool sl_client_slot_try(struct session *session, enum slot_kind kind,
                        uint32_t *ret_slot); /* for read-ahead: leaves some */
void sl_client_slot_release(struct session *session, uint32_t slot);
void sl_client_slots_wake(struct session *session); /* the session failed */
void sl_client_offers_add(struct session *session, const struct sl_offer *offer);
void sl_client_offers_flush(struct session *session);
int sl_client_slots_taken(struct session *session, const struct sl_msg_taken *taken,
                          struct sl_err *err);
int sl_client_slots_sent(struct session *session, const struct sl_msg_sent *sent,
                         struct sl_err *err);
void sl_client_slots_noticed(struct session *session, uint64_t push);
void sl_client_slots_lane_lost(struct session *session, uint16_t lane);

/* objects.c */
/* Makes it known: number, list, session. With the lock held. */
void sl_client_object_list(struct session *session, struct object *object);
void sl_client_object_unlist(struct object *object);
struct object *sl_client_object_find(struct session *session, uint32_t number);
int sl_client_object_init(struct object *object, enum object_kind kind, struct session *session,
                          const char *name, struct sl_err *err);
void sl_client_object_free(struct object *object); /* the whole upload or download */
void sl_client_objects_wake(struct session *session);
void sl_client_object_wake(struct object *object);
void sl_client_objects_free_abandoned(struct session *session);
/* The target's last word about it (STORED, ERROR) has come; frees it if nobody waits. */
void sl_client_object_answer(struct object *object);
int sl_client_object_error(const struct object *object, struct sl_err *err);

/* upload.c, download.c: messages about them; with the lock held. */
int sl_client_upload_stored(struct session *session, const struct sl_msg_stored *stored,
                            struct sl_err *err);
int sl_client_download_opened(struct session *session, const struct sl_msg_opened *opened,
                              struct sl_err *err);
int sl_client_download_tabled(struct session *session, const struct sl_msg_tabled *tabled,
                              struct sl_err *err);
void sl_client_download_arrived(struct sl_download *download, uint32_t slot,
                                const struct sl_sent *about);
void sl_client_upload_fini(struct sl_upload *upload);
/* With the lock held: waits until the target will have one more object; may it still become
 * something. Without: ends what caller and target have of it. */
int sl_client_upload_place(struct session *session, sl_deadline deadline, struct sl_err *err);
int sl_client_upload_check(struct sl_upload *upload, struct sl_err *err);
int sl_client_upload_slot(struct sl_upload *upload, struct sl_err *err);
void sl_client_upload_drop(struct sl_upload *upload);

/* grow.c; with the lock held. */
int sl_client_grow_grown(struct session *session, const struct sl_msg_grown *grown,
                         struct sl_err *err);
int sl_client_grow_grew(struct session *session, const struct sl_msg_grew *grew,
                        struct sl_err *err);
void sl_client_download_fini(struct sl_download *download);

/* question.c */
int sl_client_question_answered(struct session *session, const struct sl_msg *msg,
                                struct sl_err *err);
void sl_client_question_failed(struct session *session, uint32_t number, const struct sl_err *why);
void sl_client_questions_wake(struct session *session);

#endif
