/* Objects of a session, being written or read, and the tasks of the disk threads. */
#ifndef SL_TARGET_OBJECTS_H
#define SL_TARGET_OBJECTS_H

#include "core/repo/grow.h"
#include "core/target/piece.h"

#define OBJECTS_OPEN_MAX 64u     /* WELCOME.objects; for writing, and for reading */
#define OBJECTS_KEPT_MAX 256u    /* with those that are being dropped */
#define APPENDS_MAX      16u     /* blocks of a growing object that are not durable yet */
#define WAITING_MAX      131072u /* offers of a session that wait for their object's draft */
#define TASKS_MAX        64u     /* questions of one session that wait for the disk */
#define VERIFIES_MAX     4u      /* at once, of all sessions */

enum object_state {
    OBJECT_WRITING,    /* CREATE came; blocks wait while its draft is not there */
    OBJECT_COMMITTED,  /* COMMIT came; blocks are still on their way */
    OBJECT_PUBLISHING, /* with the committer */
    OBJECT_OPENING,    /* OPEN came */
    OBJECT_READING,
    OBJECT_DROPPED, /* waits for its pieces, then for its file to be closed */
};

enum task_kind {
    TASK_CREATE,
    TASK_OPEN,
    TASK_GROW,
    TASK_APPEND,
    TASK_SEAL,
    TASK_CLOSE,
    TASK_STAT,
    TASK_LIST,
    TASK_SPACE,
    TASK_REMOVE,
    TASK_SWEEP,
    TASK_VERIFY
};

struct task {
    struct mail mail;
    struct task *next;
    enum task_kind kind;
    struct session *session;
};

struct object {
    uint32_t number;
    enum object_state state;
    struct session *session;
    struct object *next;        /* in its bucket */
    struct object *next_commit; /* in the committer's queue */
    struct mail published_mail;
    struct task task; /* its create, open and close */
    bool disk_busy;   /* the task is under way */
    unsigned pieces;
    struct piece_list waiting; /* until the draft is there */
    uint64_t length_hint, length, index_bytes;
    struct sl_id digest;
    struct sl_object_draft *draft; /* the disk threads' while disk_busy */
    struct sl_object *opened;      /* likewise */
    /* a growing one: */
    bool grows, grown;           /* GROW came; GROWN was sent */
    uint8_t codec, level;        /* of SEAL */
    uint64_t known, durable;     /* the client's word; the disk threads' answer */
    uint32_t offered, appended;  /* blocks that came in OFFER; that were given to the disk */
    struct piece_list arrived;   /* checked, each with its buffer; in order of blocks */
    struct piece_list appending; /* the disk threads' while disk_busy */
    struct sl_growing *growing;  /* likewise */
    enum sl_outcome outcome;
    int code; /* of the task or the publication; then err is set */
    struct sl_err err;
    char name[SL_FULL_NAME_MAX];
};

/* objects.c, writing.c, reading.c */
struct object *sl_target_object_find(struct session *session, uint32_t number);
/* Has been, is no more */
bool sl_target_object_past(const struct session *session, uint32_t number);
struct object *sl_target_object_new(struct session *session, uint32_t number, const char *name,
                                    bool writing);
void sl_target_object_to(struct object *object, enum object_state state);
void sl_target_object_task(struct object *object, enum task_kind kind);
/* Silently; frees it if nothing of it is under way */
void sl_target_object_drop(struct object *object);
void sl_target_object_fail(struct object *object, const struct sl_err *err); /* says ERROR, drops */
/* Goes on if nothing is missing; may free it */
void sl_target_object_settle(struct object *object);
void sl_target_object_task_done(struct object *object);
void sl_target_create_arrived(struct session *session, const struct sl_msg_create *create);
void sl_target_offers_arrived(struct session *session, const struct sl_msg_offer *offers);
void sl_target_commit_arrived(struct session *session, const struct sl_msg_commit *commit);
void sl_target_abort_arrived(struct session *session, uint32_t number);
/* Its draft is there, or object->code says why not */
void sl_target_writing_created(struct object *object);
void sl_target_writing_over(struct piece *piece);
void sl_target_writing_published(struct object *object);
void sl_target_open_arrived(struct session *session, const struct sl_msg_open *open);
void sl_target_table_arrived(struct session *session, const struct sl_msg_table *table);
void sl_target_gets_arrived(struct session *session, const struct sl_msg_get *gets);
void sl_target_close_arrived(struct session *session, uint32_t number);
void sl_target_reading_opened(struct object *object);
void sl_target_reading_over(struct piece *piece);

/* growing.c */
void sl_target_grow_arrived(struct session *session, const struct sl_msg_grow *grow);
void sl_target_growing_offered(struct object *object, const struct sl_offer *offer);
void sl_target_growing_arrived(struct piece *piece); /* a block that was pulled and checked */
void sl_target_growing_run(struct sl_target *target, struct object *object); /* disk thread */
void sl_target_growing_done(struct object *object);                          /* its task */
void sl_target_growing_pump(struct object *object); /* gives the disk what may go there */
void sl_target_growing_drop(struct object *object); /* what has arrived */
void sl_target_seal_arrived(struct session *session, const struct sl_msg_seal *seal);

/* questions.c, verify.c */
void sl_target_question_arrived(struct session *session, const struct sl_msg *msg);
void sl_target_question_run(struct sl_target *target, struct task *task); /* on a disk thread */
void sl_target_question_done(struct task *task);
void sl_target_verify_arrived(struct session *session, const struct sl_msg_verify *verify);
void sl_target_verify_done(struct task *task);
void sl_target_verify_tick(struct session *session, uint64_t now_ns); /* VERIFIED, if it is due */
uint64_t sl_target_verify_due_ns(const struct session *session);

#endif
