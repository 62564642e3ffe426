/* A piece is one block on its way, in or out: its steps, and the queues where it waits. */
#ifndef SL_TARGET_PIECE_H
#define SL_TARGET_PIECE_H

#include "core/target/mail.h"
#include "core/target/pool.h"
#include "core/transport/lane.h"
#include "core/wire/message.h"

struct sl_file;
struct sl_target;
struct session;
struct object;
struct lane;

#define ATTEMPTS_MAX 16u /* lanes that may die under one piece */

enum piece_state {
    PIECE_QUEUED,     /* control: waits for its draft, for a lane or for a buffer */
    PIECE_GIVEN,      /* in the worker's mailbox */
    PIECE_MOVE_WAIT,  /* worker: the lane is at its depth */
    PIECE_MOVING,     /* worker: pull or push posted */
    PIECE_STORE_WAIT, /* worker: the store queue is at its depth */
    PIECE_STORING,    /* worker: write or read in flight */
    PIECE_OVER,       /* done, failed or lost: on its way to control */
};

struct piece {
    struct mail mail, taken_mail;
    struct piece *next, *prev; /* in the list of whoever holds it */
    enum piece_state state;
    bool out;   /* a GET's */
    bool zero;  /* needs neither lane nor buffer */
    bool keep;  /* not written by the worker: control keeps it with its buffer */
    bool taken; /* MAIL_TAKEN was sent */
    bool lost;  /* its lane died: do it again */
    unsigned attempts;
    struct session *session;
    struct object *object;
    struct sl_offer block;
    struct sl_file *file;
    uint64_t file_offset;
    struct sl_remote memory; /* the client's slots of the right kind on the lane's rail */
    uint32_t memory_slot;    /* the first of them */
    struct lane *lane;       /* that carries it; for the worker */
    struct lane *carrier;    /* the same, for control: NULL once the transfer was answered */
    struct buffer *buffer;
    struct pool *pool; /* the buffer's */
    uint64_t push_number;
    int code, sys; /* outcome */
};

struct piece_list {
    struct piece *first, *last;
    unsigned count;
};

/* Asserts that the step is allowed */
void sl_target_piece_to(struct piece *piece, enum piece_state state);
void sl_target_piece_list_add(struct piece_list *list, struct piece *piece);
void sl_target_piece_list_add_first(struct piece_list *list, struct piece *piece);
void sl_target_piece_list_remove(struct piece_list *list, struct piece *piece);
struct piece *sl_target_piece_list_pop(struct piece_list *list); /* NULL when empty */

/* schedule.c */
struct piece *sl_target_piece_new(struct session *session, struct object *object,
                                  const struct sl_offer *block, bool out);
void sl_target_piece_free(struct piece *piece); /* counts it out of session and object */
void sl_target_schedule_add(struct piece *piece);
void sl_target_schedule_again(struct piece *piece); /* first in the queue */
void sl_target_schedule_remove(struct piece *piece);
void sl_target_schedule_run(struct sl_target *target);
void sl_target_piece_taken(struct piece *piece);
void sl_target_piece_over(struct piece *piece);
void sl_target_piece_release(struct piece *piece); /* gives its buffer back */

#endif
