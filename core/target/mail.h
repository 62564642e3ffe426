/* Mail between the threads of the target: how state goes from one owner to the next. */
#ifndef SL_TARGET_MAIL_H
#define SL_TARGET_MAIL_H

#include "core/base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct sl_target;

enum mail_kind {
    MAIL_PIECE,      /* control → worker: carry it; back: it is over */
    MAIL_TAKEN,      /* worker → control: pulled and checked, the slot is free */
    MAIL_LANE,       /* control → worker: serve it; back: it is gone */
    MAIL_LANE_CLOSE, /* control → worker: close it; back: seen */
    MAIL_END,        /* control → worker: end the thread */
    MAIL_TASK,       /* disk or verify thread → control: done */
    MAIL_PUBLISHED,  /* committer → control */
    MAIL_ASK,        /* a caller of sl_target_… → control */
};

struct mail {
    struct mail *next;
    enum mail_kind kind;
};

struct mail_chain {
    struct mail *first, **end;
};

struct mailbox {
    pthread_mutex_t lock;
    struct mail_chain chain;
    int fd; /* eventfd, readable when there is mail */
};

#define CONTAINER(pointer, type, member)                                                           \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

int sl_target_mailbox_init(struct mailbox *box, struct sl_err *err);
void sl_target_mailbox_fini(struct mailbox *box);
void sl_target_mail_chain_init(struct mail_chain *chain);
void sl_target_mail_chain_add(struct mail_chain *chain, struct mail *mail);
/* Sends the whole chain, which is empty then. */
void sl_target_mailbox_post(struct mailbox *box, struct mail_chain *chain);
void sl_target_mailbox_post_one(struct mailbox *box, struct mail *mail);
struct mail *sl_target_mailbox_take(struct mailbox *box); /* all, oldest first */

/* A call from outside, carried out on the control thread. The caller waits for it as for a lock:
 * the control thread never blocks. */
struct ask {
    struct mail mail;
    int (*run)(struct sl_target *target, struct ask *ask, struct sl_err *err);
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    bool done;
    int code;
    struct sl_err err;
};

int sl_target_ask(struct sl_target *target, struct ask *ask, struct sl_err *err);

#endif
