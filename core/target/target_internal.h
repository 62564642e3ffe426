/* The target from inside: its nouns, and the law of its threads.
 *
 * THE LAW. Every piece of state has one owning thread; others send it mail (mail.c).
 *
 * - The control thread owns sessions, objects (until they are handed on), the pool, the slots'
 *   states, which lanes there are and how much each carries, and all controls. It decides
 *   everything: which block goes to which lane with which buffer, and when. It touches no disk and
 *   waits for nothing but its epoll.
 * - A worker owns its lanes (struct sl_lane), the pieces it was given until it mails them back, and
 *   its store queue. Of a session it reads only what is fixed once a lane exists (secrets, names)
 *   and draws from the atomic seal counter.
 * - The disk threads own a task from the moment it is queued until they mail it back; with it the
 *   object's `draft` or `opened` while object->disk_busy.
 * - The committer owns an object in state OBJECT_PUBLISHING.
 * - A verify thread reads; what is damaged it sends itself (sl_control_send is allowed to any
 *   thread), which is why a control outlives its session's verifications.
 *
 * A session outlives its lanes, pieces, objects and tasks; each of these is counted, and the
 * control thread frees the session when all counts are zero. The locks: one in each mailbox, one
 * for the disk threads' queue, one for the committer's. None is held while another is taken.
 *
 * A block on its way in:  OFFER → (control) draft place, queue → lane + buffer → (worker) pull,
 * unseal, digest → TAKEN → write → (control) buffer back; all written and COMMIT → (committer)
 * finish, publish → (control) STORED. On its way out: GET → queue → lane + buffer → (worker) read,
 * digest, seal, push, notice → pushed → (control) SENT, buffer back.
 */
#ifndef SL_TARGET_INTERNAL_H
#define SL_TARGET_INTERNAL_H

#include "core/target/mail.h"
#include "core/target/pool.h"
#include "core/target/session.h"
#include "core/target/target.h"
#include "core/target/worker.h"

#include <pthread.h>
#include <stdatomic.h>

#define HALF_OPEN_MAX         256u /* connections that have not come to HELLO */
#define HALF_OPEN_ADDRESS_MAX 128u /* of them, from one address */

/* --- the disk threads and the committer ------------------------------------------------------- */

#define DISK_THREADS 4u

struct disk {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct task *first, **last;
    bool end, ready;
    pthread_t threads[DISK_THREADS];
    unsigned started;
};

int sl_target_disk_start(struct sl_target *target, struct sl_err *err);
void sl_target_disk_end(struct sl_target *target);
void sl_target_disk_queue(struct sl_target *target, struct task *task);

struct committer {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct object *first, **last;
    bool end, ready, started;
    pthread_t thread;
};

int sl_target_committer_start(struct sl_target *target, struct sl_err *err);
void sl_target_committer_end(struct sl_target *target);
void sl_target_committer_queue(struct sl_target *target, struct object *object);

/* --- complaints about peers (complain.c); control thread ---------------------------------------
 */

enum complain_about { COMPLAIN_STRANGER, COMPLAIN_CLIENT, COMPLAIN_KINDS };

struct complaints {
    unsigned tokens;
    uint64_t since_ns, left_out;
};

/* A warning "<fmt>: <err>", unless there were too many of its kind: then it is counted. */
void sl_target_complain(struct sl_target *target, enum complain_about about,
                        const struct sl_err *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Says how many were left out, when that may be said. */
void sl_target_complain_tick(struct sl_target *target, uint64_t now_ns);

/* --- the target ------------------------------------------------------------------------------ */

struct half_open; /* accept.c: a connection whose first bytes have not come */

/* one a line, which clang-format would not leave */
/* clang-format off */
#define COUNTERS(X)                                                                                \
    X(sessions)                                                                                    \
    X(sessions_refused)                                                                            \
    X(blocks_in)                                                                                   \
    X(bytes_in)                                                                                    \
    X(blocks_out)                                                                                  \
    X(bytes_out)                                                                                   \
    X(objects_created)                                                                             \
    X(objects_identical)                                                                           \
    X(objects_refused)                                                                             \
    X(objects_failed)                                                                              \
    X(batches)                                                                                     \
    X(batch_objects)                                                                               \
    X(lanes_lost)                                                                                  \
    X(pool_waits)
/* clang-format on */

struct counters {
#define X(name) atomic_uint_fast64_t name;
    COUNTERS(X)
#undef X
};

struct sl_target {
    struct sl_target_config config; /* with the defaults filled in */
    struct counters counters;
    struct mailbox box;
    int epoll_fd;
    pthread_t thread;
    bool started;
    struct pool pool;
    struct sl_rail *tcp_rail, *local_rail;
    struct worker *workers;
    unsigned worker_count;
    struct disk disk;
    struct committer committer;
    /* control's */
    struct watch box_watch, listen_watch, rdma_watch;
    int listen_fd;
    uint16_t port;
    sl_deadline listen_again; /* accept() ran out of files: not before; 0: listening */
    struct sl_listener *rdma_listener;
    char rdma_note[160];
    struct half_open *half_open;
    unsigned half_open_count;
    struct complaints complaints[COMPLAIN_KINDS];
    struct session *sessions;
    unsigned session_count;
    struct session *ring; /* whose turn it is to get a buffer */
    unsigned permit_generation;
    unsigned verifies;
    bool stopping;
    sl_deadline stop_deadline;
};

#define COUNT(target, name, n)                                                                     \
    atomic_fetch_add_explicit(&(target)->counters.name, n, memory_order_relaxed)

/* control.c: the control thread's loop */
void *sl_target_control_run(void *target);
int sl_target_control_watch(struct sl_target *target, int fd, struct watch *watch,
                            struct sl_err *err);
void sl_target_control_unwatch(struct sl_target *target, int fd);

/* accept.c */
int sl_target_accept_start(struct sl_target *target, struct sl_err *err);
void sl_target_accept_stop(struct sl_target *target); /* listeners and half-open connections */
void sl_target_accept_tick(struct sl_target *target, uint64_t now_ns);
uint64_t sl_target_accept_due_ns(const struct sl_target *target);

#endif
