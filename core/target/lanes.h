/* The lanes of a session as the target keeps them. */
#ifndef SL_TARGET_LANES_H
#define SL_TARGET_LANES_H

#include "core/object/seal.h"
#include "core/target/piece.h"

struct worker;

struct lane {
    struct mail mail, close_mail;
    /* fixed */
    struct session *session;
    struct worker *worker;
    struct sl_region *region; /* the pool's, in the lane's domain */
    struct pool *pool;
    uint16_t id, depth;
    uint8_t rail;
    bool sealed;
    /* control's */
    struct lane *next;
    unsigned in_flight; /* pieces given to it whose transfer is not answered */
    bool up;            /* may be given work */
    bool close_sent;    /* close_mail is with the worker */
    bool gone;          /* the worker has freed its sl_lane */
    /* worker's */
    struct lane *worker_next;
    struct sl_lane *lane; /* NULL: gone */
    struct sl_sealer *sealer, *unsealer;
    struct piece_list waiting, moving, lost;
    uint64_t progress_ns; /* last time a transfer ended, or the first was begun */
    uint64_t pushes;
    unsigned notices; /* posted and not over: they have a depth, too */
    bool touched;     /* work was added: it is processed at the turn's end */
    short watched;    /* epoll interest registered */
    int end_code;
    char reason[160]; /* fixed when gone */
};

/* lanes.c: the control thread's side of lanes */
/* May this lane be let in? `hello` proves it: session, MAC, a number not used before. */
int sl_target_lane_admit(struct sl_target *target, struct sl_rail *rail,
                         const struct sl_lane_hello *hello, struct sl_domain **ret_domain,
                         uint8_t reply[SL_LANE_HELLO_BYTES], struct sl_err *err);
void sl_target_lane_add(struct session *session, struct sl_lane *sl_lane); /* takes it */
void sl_target_lane_close(struct lane *lane);
void sl_target_lane_close_all(struct session *session);
void sl_target_lane_down_arrived(struct session *session, uint16_t id);
void sl_target_lane_gone(struct lane *lane);
void sl_target_lane_close_seen(struct lane *lane);
void sl_target_lane_moved(struct lane *lane); /* a piece's transfer was answered */
void sl_target_memory_arrived(struct session *session, const struct sl_msg_memory *memory);
/* Whether all kinds of slots that the session has are known on this rail. */
bool sl_target_memory_whole(const struct session *session, uint16_t rail);
/* sl_target_local(), on the control thread. */
struct local_ask {
    struct ask ask;
    struct sl_id session;
    struct sl_domain *client_domain;
    uint16_t lane_id;
    struct sl_lane *passive;
};

int sl_target_lane_local(struct sl_target *target, struct ask *ask, struct sl_err *err);

#endif
