/* The target from inside: its nouns, and the law of its threads.
 *
 * THE LAW. Every piece of state has one owning thread; others send it mail (mail.c).
 *
 *   control thread   owns sessions, objects (until they are handed on), the pool, the slots'
 * states, which lanes there are and how much each carries, and all controls. It decides everything:
 * which block goes to which lane with which buffer, and when. It touches no disk and waits for
 * nothing but its epoll. worker           owns its lanes (struct sl_lane), the pieces it was given
 * until it mails them back, and its store queue. Of a session it reads only what is fixed once a
 *                    lane exists (secrets, names) and draws from the atomic seal counter.
 *   disk threads     own a task from the moment it is queued until they mail it back; with it the
 *                    object's `draft` or `opened` while object->disk_busy.
 *   committer        owns an object in state OBJECT_PUBLISHING.
 *   verify thread    owns its verification; sends its answers itself (sl_control_send is allowed
 *                    to any thread), which is why a control outlives its session's verifications.
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

#include "core/object/seal.h"
#include "core/repo/repo.h"
#include "core/session/control.h"
#include "core/target/target.h"
#include "core/transport/lane.h"
#include "core/wire/message.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>

#define HANDSHAKE_MS          10000u /* docs/wire.md: first bytes, TLS and HELLO together */
#define HALF_OPEN_MAX         256u   /* connections that have not come to HELLO */
#define HALF_OPEN_ADDRESS_MAX 128u   /* of them, from one address */
#define LINGER_MS             1000u  /* after last words, for the peer to read them */
#define SLOTS_MAX             65536u
#define OBJECTS_OPEN_MAX      64u     /* WELCOME.objects; for writing, and for reading */
#define OBJECTS_KEPT_MAX      256u    /* with those that are being dropped */
#define WAITING_MAX           131072u /* offers of a session that wait for their object's draft */
#define TASKS_MAX             64u     /* questions of one session that wait for the disk */
#define VERIFIES_MAX          4u      /* at once, of all sessions */
#define SINK_BLOCKS           16u     /* of a session of its own on rails with own_sink */
#define RAILS_MAX             16u
#define ATTEMPTS_MAX          16u /* lanes that may die under one piece */
#define TAKEN_BATCH           256u
#define SENT_BATCH            64u

struct session;
struct object;
struct lane;
struct worker;
struct buffer;

/* --- mail ------------------------------------------------------------------------------------ */

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

int mailbox_init(struct mailbox *box, struct sl_err *err);
void mailbox_fini(struct mailbox *box);
void mail_chain_init(struct mail_chain *chain);
void mail_chain_add(struct mail_chain *chain, struct mail *mail);
/* Sends the whole chain, which is empty then. */
void mailbox_post(struct mailbox *box, struct mail_chain *chain);
void mailbox_post_one(struct mailbox *box, struct mail *mail);
struct mail *mailbox_take(struct mailbox *box); /* all, oldest first */

/* --- pool ------------------------------------------------------------------------------------ */

struct buffer {
    uint8_t *start; /* SL_BLOCK_BYTES */
    struct buffer *next;
};

/* The pool's memory as one rail knows it. */
struct pool_rail {
    struct sl_rail *rail;
    struct sl_domain *domain;
    struct sl_region *region;
    struct pool_rail *next;
};

struct pool {
    uint8_t *memory;
    unsigned count, held;
    struct buffer *buffers, *free;
    struct pool_rail *rails;
};

int pool_init(struct pool *pool, unsigned blocks, struct sl_err *err);
void pool_fini(struct pool *pool); /* all buffers are back, no lane of its domains is left */
/* Makes a domain on the rail and registers the pool there, if that was not done. */
int pool_meet(struct pool *pool, struct sl_rail *rail, struct pool_rail **ret, struct sl_err *err);
struct pool_rail *pool_rail_of(const struct pool *pool, const struct sl_rail *rail);
struct buffer *pool_take(struct pool *pool); /* NULL: none is free */
void pool_give(struct pool *pool, struct buffer *buffer);

/* --- pieces ---------------------------------------------------------------------------------- */

/* A piece is one block on its way, in or out. */
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
    bool taken; /* MAIL_TAKEN was sent */
    bool lost;  /* its lane died: do it again */
    unsigned attempts;
    struct session *session;
    struct object *object;
    struct sl_offer block;
    struct sl_file *file;
    uint64_t file_offset;
    struct sl_remote memory; /* the client's slots on the lane's rail */
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

void piece_to(struct piece *piece, enum piece_state state); /* asserts that the step is allowed */
void piece_list_add(struct piece_list *list, struct piece *piece);
void piece_list_add_first(struct piece_list *list, struct piece *piece);
void piece_list_remove(struct piece_list *list, struct piece *piece);
struct piece *piece_list_pop(struct piece_list *list); /* NULL when empty */

/* --- lanes ----------------------------------------------------------------------------------- */

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

/* --- objects --------------------------------------------------------------------------------- */

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
    TASK_CLOSE,
    TASK_STAT,
    TASK_LIST,
    TASK_SPACE,
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
    enum sl_outcome outcome;
    int code; /* of the task or the publication; then err is set */
    struct sl_err err;
    char name[SL_FULL_NAME_MAX];
};

/* --- sessions -------------------------------------------------------------------------------- */

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
    uint8_t lane_key[SL_LANE_KEY_BYTES];
    uint8_t secret_in[SL_SEAL_SECRET_BYTES], secret_out[SL_SEAL_SECRET_BYTES];
    uint32_t slots;
    uint8_t *slot_states;
    uint8_t *lanes_used; /* a bit per lane number */
    struct sl_remote memory[RAILS_MAX];
    bool memory_set[RAILS_MAX], any_memory;
    enum sl_transport_kind kind; /* of its lanes; AUTO: none yet */
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
    atomic_bool cancelled; /* for its verifications */
    /* answers not sent yet */
    uint32_t taken[TAKEN_BATCH];
    unsigned taken_count;
    uint8_t sent[SENT_BATCH * SL_SENT_BYTES];
    unsigned sent_count;
};

/* --- workers --------------------------------------------------------------------------------- */

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

int worker_start(struct worker *worker, struct sl_target *target, unsigned number,
                 struct sl_err *err);
void worker_end(struct worker *worker); /* joins; no lane of its is left */
/* Steps of a piece, on its worker. */
void pull_begin(struct worker *worker, struct piece *piece);
void pull_arrived(struct worker *worker, struct piece *piece);
void pull_written(struct worker *worker, struct piece *piece, int code, int sys);
void push_begin(struct worker *worker, struct piece *piece);
void push_read(struct worker *worker, struct piece *piece, int code, int sys);
/* Of pull.c and push.c back to the loop. */
void worker_move(struct worker *worker, struct piece *piece);  /* posts it, or lets it wait */
void worker_store(struct worker *worker, struct piece *piece); /* likewise, to the store queue */
void worker_over(struct worker *worker, struct piece *piece, int code, int sys);
void worker_lost(struct worker *worker, struct piece *piece);
int lane_post(struct lane *lane, struct piece *piece); /* sl_lane_pull or _push, _notice */
int store_post(struct worker *worker, struct piece *piece);

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

int disk_start(struct sl_target *target, struct sl_err *err);
void disk_end(struct sl_target *target);
void disk_queue(struct sl_target *target, struct task *task);

struct committer {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct object *first, **last;
    bool end, ready, started;
    pthread_t thread;
};

int committer_start(struct sl_target *target, struct sl_err *err);
void committer_end(struct sl_target *target);
void committer_queue(struct sl_target *target, struct object *object);

/* --- the target ------------------------------------------------------------------------------ */

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

int target_ask(struct sl_target *target, struct ask *ask, struct sl_err *err);

struct local_ask {
    struct ask ask;
    struct sl_id session;
    struct sl_domain *client_domain;
    uint16_t lane_id;
    struct sl_lane *passive;
};

int lane_local(struct sl_target *target, struct ask *ask, struct sl_err *err);

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
void *control_run(void *target);
int control_watch(struct sl_target *target, int fd, struct watch *watch, struct sl_err *err);
void control_unwatch(struct sl_target *target, int fd);

/* accept.c */
int accept_start(struct sl_target *target, struct sl_err *err);
void accept_stop(struct sl_target *target); /* listeners and half-open connections */
void accept_tick(struct sl_target *target, uint64_t now_ns);
uint64_t accept_due_ns(const struct sl_target *target);

/* session.c: life of a session */
/* Takes control (freed on failure too). `from` is NULL for one that was attached. */
int session_new(struct sl_target *target, struct sl_control *control, const struct in6_addr *from,
                sl_deadline hello_by, struct sl_err *err);
void session_run(struct session *session);  /* process() */
bool session_over(struct session *session); /* frees it and returns true when nothing is left */
void session_tick(struct session *session, uint64_t now_ns);
/* Says ERROR about the session and ends it. `code` of the peer's making. */
void session_refuse(struct session *session, const struct sl_err *err);
void session_violation(struct session *session, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));                           /* the same with PROTOCOL */
void session_end(struct session *session, const struct sl_err *why); /* NULL: orderly */
void session_wind_down(struct session *session); /* the target stops: only commits go on */
struct session *session_find(struct sl_target *target, const struct sl_id *id);
bool session_permitted(struct session *session);

/* hello.c */
void hello_arrived(struct session *session, const struct sl_msg_hello *hello);

/* answers.c: what goes to the client */
void answer(struct session *session, const struct sl_msg *msg);
void answer_error(struct session *session, enum sl_about kind, uint32_t about,
                  const struct sl_err *err);
void answer_taken(struct session *session, uint32_t slot); /* and the slot is the client's */
void answer_sent(struct session *session, const struct sl_offer *block, uint64_t push, int code);
void answer_flush(struct session *session);

/* lanes.c: the control thread's side of lanes */
/* May this lane be let in? `hello` proves it: session, MAC, a number not used before. */
int lane_admit(struct sl_target *target, struct sl_rail *rail, const struct sl_lane_hello *hello,
               struct sl_domain **ret_domain, uint8_t reply[SL_LANE_HELLO_BYTES],
               struct sl_err *err);
void lane_add(struct session *session, struct sl_lane *sl_lane); /* takes it */
void lane_close(struct lane *lane);
void lane_close_all(struct session *session);
void lane_down_arrived(struct session *session, uint16_t id);
void lane_gone(struct lane *lane);
void lane_close_seen(struct lane *lane);
void lane_moved(struct lane *lane); /* a piece's transfer was answered */
void memory_arrived(struct session *session, const struct sl_msg_memory *memory);

/* objects.c, writing.c, reading.c */
struct object *object_find(struct session *session, uint32_t number);
bool object_past(const struct session *session, uint32_t number); /* has been, is no more */
struct object *object_new(struct session *session, uint32_t number, const char *name, bool writing);
void object_to(struct object *object, enum object_state state);
void object_task(struct object *object, enum task_kind kind);
void object_drop(struct object *object); /* silently; frees it if nothing of it is under way */
void object_fail(struct object *object, const struct sl_err *err); /* says ERROR, drops */
void object_settle(struct object *object); /* goes on if nothing is missing; may free it */
void object_task_done(struct object *object);
void create_arrived(struct session *session, const struct sl_msg_create *create);
void offers_arrived(struct session *session, const struct sl_msg_offer *offers);
void commit_arrived(struct session *session, const struct sl_msg_commit *commit);
void abort_arrived(struct session *session, uint32_t number);
void writing_created(struct object *object); /* its draft is there, or object->code says why not */
void writing_over(struct piece *piece);
void writing_published(struct object *object);
void open_arrived(struct session *session, const struct sl_msg_open *open);
void table_arrived(struct session *session, const struct sl_msg_table *table);
void gets_arrived(struct session *session, const struct sl_msg_get *gets);
void close_arrived(struct session *session, uint32_t number);
void reading_opened(struct object *object);
void reading_over(struct piece *piece);

/* schedule.c */
struct piece *piece_new(struct session *session, struct object *object,
                        const struct sl_offer *block, bool out);
void piece_free(struct piece *piece); /* counts it out of session and object */
void schedule_add(struct piece *piece);
void schedule_again(struct piece *piece); /* first in the queue */
void schedule_remove(struct piece *piece);
void schedule_run(struct sl_target *target);
void piece_taken(struct piece *piece);
void piece_over(struct piece *piece);

/* questions.c, verify.c */
void question_arrived(struct session *session, const struct sl_msg *msg);
void question_run(struct sl_target *target, struct task *task); /* on a disk thread */
void question_done(struct task *task);
void verify_arrived(struct session *session, const struct sl_msg_verify *verify);
void verify_done(struct task *task);

#endif
