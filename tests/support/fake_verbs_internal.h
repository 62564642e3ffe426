/* Inside of the fake device (fake_verbs.h): what its parts share. fake_verbs.c has the device and
 * what tests call, fake_queues.c memory, queue pairs and completions, fake_cm.c the connection
 * manager.
 */
#ifndef SL_TESTS_FAKE_VERBS_INTERNAL_H
#define SL_TESTS_FAKE_VERBS_INTERNAL_H

#include "core/base/fault.h"
#include "tests/support/fake_verbs.h"

#include <errno.h>
#include <pthread.h>

#define PRIVATE_BYTES 256
#define ASYNC_MAX     64

struct fake_event {
    struct rdma_cm_event event;
    uint8_t private_data[PRIVATE_BYTES];
    struct fake_event *next;
};

struct fake_channel {
    struct rdma_event_channel channel;
    struct fake_event *first, **last;
};

struct fake_id {
    struct rdma_cm_id id;
    struct fake_id *peer, *next;
    bool listening, connector, connected, told; /* told: of the disconnection */
    unsigned unacked;
};

struct fake_mr {
    struct ibv_mr mr;
    unsigned access;
    struct fake_mr *next;
};

struct fake_comp {
    struct ibv_comp_channel comp;
    unsigned events;
    struct fake_cq *cq;
};

struct fake_cq {
    struct ibv_cq cq;
    struct ibv_wc *wcs;
    struct fake_qp **owners; /* whose send slot a poll frees; NULL for receives */
    int room, first, count;
    bool armed;
    unsigned unacked;
    struct fake_cq *next;
};

struct send {
    struct ibv_send_wr wr;
    struct ibv_sge sge;
};

struct recv {
    uint64_t wr_id;
    struct ibv_sge sge;
};

struct fake_qp {
    struct ibv_qp qp;
    struct fake_id *id;
    struct send *sends; /* posted, not executed */
    struct recv *recvs;
    uint32_t send_room, send_count, sends_unpolled, recv_room, recv_count;
    bool error, heard, connected;
    struct fake_qp *peer, *next;
};

/* All of it, under one lock. */
extern struct fake_all {
    pthread_mutex_t lock;
    struct ibv_context context;
    struct fake_id *ids;
    struct fake_mr *mrs;
    struct fake_qp *qps; /* youngest first */
    struct fake_cq *cqs; /* likewise */
    struct ibv_async_event async_events[ASYNC_MAX];
    unsigned async_first, async_count, async_unacked;
    size_t live;
    uint32_t next_key, next_qp;
    uint16_t next_port;
    unsigned executed, posts;
} fake;

void fake_leave(int *unused);

#define FAKE_LOCKED                                                                                \
    __attribute__((cleanup(fake_leave), unused)) int locked_ = pthread_mutex_lock(&fake.lock)

/* Fault points: -1 with errno, NULL with errno, or the errno itself. */
#define FAKE_FAIL(point, value)                                                                    \
    do {                                                                                           \
        int fault_ = sl_fault("verbs." point);                                                     \
        if (fault_ > 0) {                                                                          \
            errno = fault_;                                                                        \
            return value;                                                                          \
        }                                                                                          \
    } while (0)

void fake_violation(const char *what);
void *fake_object(size_t bytes); /* zeroed, counted */
void fake_object_free(void *memory);
void fake_signal(int fd);
void fake_consume(int fd);
void fake_async_add(struct ibv_async_event event);

void fake_complete(struct ibv_cq *on, struct ibv_wc wc, struct fake_qp *owner);
void fake_fall(struct fake_qp *qp);
void fake_execute(struct fake_qp *qp);
enum ibv_wc_status fake_deliver(struct fake_qp *qp, const void *bytes, uint32_t count);
struct fake_event *fake_tell(struct fake_id *id, enum rdma_cm_event_type type, int status);

/* Each part puts its calls into the table. */
void fake_queues_fill(struct sl_verbs_ops *ops);
void fake_cm_fill(struct sl_verbs_ops *ops);

#endif
