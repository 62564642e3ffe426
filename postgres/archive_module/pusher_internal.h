/* What the parts of the pusher share: pusher.c (the table of files and its threads), link.c (the
 * session), look.c (what is .ready).
 */
#ifndef SL_POSTGRES_PUSHER_INTERNAL_H
#define SL_POSTGRES_PUSHER_INTERNAL_H

#include "core/base/thread.h"
#include "core/cli/settings.h"
#include "postgres/archive_module/pusher.h"
#include "postgres/push_file.h"

#include <stdatomic.h>

#define SL_PG_PUSHER_THREADS_MAX 4
#define SL_PG_AHEAD_MAX          32
#define SL_PG_WAL_PATH_MAX       1024 /* MAXPGPATH */

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_STORED, JOB_FAILED };

struct job {
    struct job *next;
    struct sl_pg_wal_name name;
    char path[SL_PG_WAL_PATH_MAX];
    enum job_state state;
    bool asked;       /* by the server: waits for no other file, and its failure is kept */
    bool doomed;      /* one before it failed */
    struct stat stat; /* JOB_STORED: of what was stored */
    struct sl_err err;
};

/* The session and what it was made from. */
struct link {
    struct sl_settings *settings;
    struct sl_pg_repository repository;
    uint64_t timeout_ms;
    unsigned threads; /* that the settings allow */
};

struct sl_pg_pusher {
    int fd;
    _Atomic uint64_t moved;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t changed;
    bool stopping;
    pthread_t threads[SL_PG_PUSHER_THREADS_MAX];
    unsigned thread_count, threads_alive, threads_wanted;
    /* the table: in the order in which the server asks (look.c) */
    struct job *jobs;
    struct job *current;        /* that was asked last, until its answer was given */
    struct sl_pg_wal_name last; /* that was asked for */
    bool want_look, looking;
    bool paused; /* nothing ahead since a failure */
    char status_folder[SL_PG_WAL_PATH_MAX + 16];
    /* the link */
    char *config_path, *stanza;
    struct link *link;
    unsigned users;
    bool opening, stale;
    struct sl_client *client; /* to be cancelled */
};

/* With the lock held, which it gives up while it waits or connects. `job` (its doom ends the wait)
 * is the caller's. Pairs with sl_pg_link_release(). */
int sl_pg_link_acquire(struct sl_pg_pusher *p, const struct job *job, struct link **ret_link,
                       struct sl_err *err);
void sl_pg_link_release(struct sl_pg_pusher *p);
/* Ends the session if nobody uses it. With the lock held, which it gives up meanwhile. */
void sl_pg_link_close(struct sl_pg_pusher *p);

/* History files first, then by name, as the server does (pgarch.c: ready_file_comparator). */
int sl_pg_ready_compare(const struct sl_pg_wal_name *a, const struct sl_pg_wal_name *b);
/* The first files that are .ready in `folder` after `last`, at most SL_PG_AHEAD_MAX, in order. None
 * when there is a history file that the server will ask for before them. */
size_t sl_pg_ready_look(const char *folder, const struct sl_pg_wal_name *last,
                        struct sl_pg_wal_name ret_names[SL_PG_AHEAD_MAX]);

#endif
