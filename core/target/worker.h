/* The lane workers: threads that carry pieces between lanes and the store. */
#ifndef SL_TARGET_WORKER_H
#define SL_TARGET_WORKER_H

#include "core/target/lanes.h"
#include "core/target/mail.h"
#include "core/target/piece.h"

#include <pthread.h>

struct worker {
    struct sl_target *target;
    pthread_t thread;
    bool started;
    int epoll_fd;
    struct mailbox box;
    struct sl_store_queue *queue;
    struct piece_list store_waiting;
    struct lane *lanes;
    struct mail_chain out; /* to control, posted once a turn */
    bool submitted;        /* the queue wants a flush */
    bool end;
    unsigned lane_count; /* control's */
    struct mail end_mail;
    struct mail_chain given; /* control's: pieces to post at the end of its turn */
};

int sl_target_worker_start(struct worker *worker, struct sl_target *target, unsigned number,
                           struct sl_err *err);
void sl_target_worker_end(struct worker *worker); /* joins; no lane of its is left */
/* Steps of a piece, on its worker. */
void sl_target_pull_begin(struct worker *worker, struct piece *piece);
void sl_target_pull_arrived(struct worker *worker, struct piece *piece);
void sl_target_pull_written(struct worker *worker, struct piece *piece, int code, int sys);
void sl_target_push_begin(struct worker *worker, struct piece *piece);
void sl_target_push_read(struct worker *worker, struct piece *piece, int code, int sys);
/* Of pull.c and push.c back to the loop. */
/* Posts it, or lets it wait */
void sl_target_worker_move(struct worker *worker, struct piece *piece);
/* Likewise, to the store queue */
void sl_target_worker_store(struct worker *worker, struct piece *piece);
void sl_target_worker_over(struct worker *worker, struct piece *piece, int code, int sys);
void sl_target_worker_lost(struct worker *worker, struct piece *piece);
/* sl_lane_pull or _push, _notice */
int sl_target_lane_post(struct lane *lane, struct piece *piece);
int sl_target_store_post(struct worker *worker, struct piece *piece);

#endif
