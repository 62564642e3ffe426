/* The workers of a backup: each takes the next items of one walk and fills packs of its own. The
 * main thread watches them, and the connection without which the backup is void. */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "postgres/backup_internal.h"
#include "postgres/signals.h"

#define WATCH_MS   200
#define STANDBY_MS 2000 /* how often a standby is asked whether it still is one */

struct worker {
    struct sl_pg_backup *backup;
    struct sl_fragment *fragment; /* borrows */
    pthread_t thread;
};

static int take_next(void *arg, struct sl_pg_item *item, struct sl_err *err)
{
    struct sl_pg_backup *b = arg;
    pthread_mutex_lock(&b->lock);
    int rc = atomic_load(&b->stop) ? 0 : sl_pg_cluster_next(b->cluster, item, err);
    pthread_mutex_unlock(&b->lock);
    return rc;
}

/* The first failure counts; the others are mostly its consequence. */
static void fail(struct sl_pg_backup *b, const struct sl_err *err)
{
    pthread_mutex_lock(&b->lock);
    if (!b->failure.code)
        b->failure = *err;
    pthread_mutex_unlock(&b->lock);
    atomic_store(&b->stop, true);
}

static void *run_worker(void *arg)
{
    struct worker *w = arg;
    struct sl_err err = {0};
    if (sl_pg_packer_run(w->backup, w->fragment, take_next, w->backup, &err))
        fail(w->backup, &err);
    pthread_mutex_lock(&w->backup->lock);
    w->backup->running--;
    pthread_cond_signal(&w->backup->ended);
    pthread_mutex_unlock(&w->backup->lock);
    return NULL;
}

int sl_pg_backup_count(struct sl_pg_backup *b, uint64_t *ret_bytes, uint64_t *ret_files,
                       struct sl_err *err)
{
    struct sl_pg_cluster *cluster = NULL;
    struct sl_pg_item *item = sl_alloc(sizeof *item);
    uint64_t bytes = SL_PG_CONTROL_BYTES, files = 2; /* pg_control and backup_label */
    int rc = item ? sl_pg_cluster_new(b->root_fd, b->version_folder, &cluster, err)
                  : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    while (!rc && (rc = sl_pg_cluster_next(cluster, item, err)) == 1) {
        bytes += item->length;
        files += item->kind == SL_ENTRY_FILE && item->offset + item->length >= item->size;
        rc = 0;
    }
    sl_pg_cluster_free(cluster);
    sl_free(item);
    if (rc)
        return rc;
    *ret_bytes = bytes;
    *ret_files = files;
    return 0;
}

/* Until all workers have ended. */
static void watch(struct sl_pg_backup *b)
{
    sl_deadline ask = sl_deadline_in_ms(STANDBY_MS);
    pthread_mutex_lock(&b->lock);
    while (b->running) {
        if (sl_cond_wait(&b->ended, &b->lock, sl_deadline_in_ms(WATCH_MS)))
            continue;
        pthread_mutex_unlock(&b->lock);
        if (!atomic_load(&b->stop) && !sl_pg_db_alive(b->db)) {
            struct sl_err err = {0};
            sl_err_set(&err, SL_ERR_DB_CONNECT,
                       "lost the connection to the server, and with it the backup");
            fail(b, &err);
        } else if (b->from_standby && sl_deadline_passed(ask)) {
            struct sl_err err = {0};
            if (sl_pg_standby_watch(b, &err))
                fail(b, &err);
            ask = sl_deadline_in_ms(STANDBY_MS);
        }
        pthread_mutex_lock(&b->lock);
    }
    pthread_mutex_unlock(&b->lock);
}

/* One more or one less that runs; before its thread does, so that none is missed. */
static void count_running(struct sl_pg_backup *b, int step)
{
    pthread_mutex_lock(&b->lock);
    b->running = (unsigned)((int)b->running + step);
    pthread_mutex_unlock(&b->lock);
}

static int start_workers(struct sl_pg_backup *b, struct worker *workers, unsigned jobs,
                         unsigned *ret_started, struct sl_err *err)
{
    *ret_started = 0;
    for (unsigned i = 0; i < jobs; i++) {
        int rc = sl_fragment_new(NULL, &b->fragments[i], err);
        if (rc)
            return rc;
        b->fragment_count = i + 1;
        workers[i] = (struct worker){.backup = b, .fragment = b->fragments[i]};
        count_running(b, 1);
        rc = sl_thread_start(&workers[i].thread, "sl-pg-backup", run_worker, &workers[i], err);
        if (rc) {
            count_running(b, -1);
            return rc;
        }
        *ret_started = i + 1;
    }
    return 0;
}

int sl_pg_backup_files(struct sl_pg_backup *b, unsigned jobs, struct sl_err *err)
{
    struct worker workers[SL_PG_JOBS_MAX];
    unsigned started = 0;
    uint64_t bytes, files;
    int rc = sl_pg_backup_count(b, &bytes, &files, err);
    if (rc)
        return rc;
    sl_progress_total(b->invocation->progress, bytes, files);
    /* no promise: it lets the target write inside of a file's length, see core/store/temporary.c */
    b->pack_hint = bytes / jobs < SL_PACK_BYTES ? bytes / jobs : SL_PACK_BYTES;
    rc = sl_pg_cluster_new(b->root_fd, b->version_folder, &b->cluster, err);
    if (rc)
        return rc;
    rc = start_workers(b, workers, jobs, &started, err);
    if (rc) {
        struct sl_err failure = {.code = rc};
        fail(b, err ? err : &failure);
    }
    watch(b);
    for (unsigned i = 0; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    sl_pg_cluster_free(b->cluster);
    b->cluster = NULL;
    if (b->failure.code)
        return sl_err_copy(err, &b->failure), b->failure.code;
    if (sl_pg_signals_caught())
        return sl_err_set(err, SL_ERR_CANCELLED, "cancelled");
    return 0;
}
