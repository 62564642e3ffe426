/* The pusher: the table of files, and the threads that push them. What a push is, is push_file.c's;
 * nothing here may call the server, exit, or print. */
#include "postgres/archive_module/pusher_internal.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define IDLE_MS 90000u /* a session outlives archive_timeout = 60s */

/* --- the table -------------------------------------------------------------------------------- */

static struct job **place_of(struct sl_pg_pusher *p, const struct sl_pg_wal_name *name)
{
    struct job **at = &p->jobs;
    while (*at && sl_pg_ready_compare(&(*at)->name, name) < 0)
        at = &(*at)->next;
    return at;
}

static struct job *find(struct sl_pg_pusher *p, const struct sl_pg_wal_name *name)
{
    struct job *job = *place_of(p, name);
    return job && !sl_pg_ready_compare(&job->name, name) ? job : NULL;
}

static struct job *insert(struct sl_pg_pusher *p, const struct sl_pg_wal_name *name)
{
    struct job *job = sl_calloc(1, sizeof *job), **at = place_of(p, name);
    if (!job)
        return NULL;
    job->name = *name;
    job->next = *at;
    *at = job;
    return job;
}

/* Never of a job that runs: its thread has it. */
static void forget(struct sl_pg_pusher *p, struct job *job)
{
    struct job **at = place_of(p, &job->name);
    *at = job->next;
    if (p->current == job)
        p->current = NULL;
    sl_free(job);
}

/* Is everything before it stored? */
static bool is_first(const struct sl_pg_pusher *p, const struct job *job)
{
    for (const struct job *other = p->jobs; other != job; other = other->next)
        if (other->state != JOB_STORED)
            return false;
    return true;
}

/* What comes after a file that could not be stored must not be, unless the server asks for it. */
static void doom_later(struct sl_pg_pusher *p, const struct job *failed)
{
    p->paused = true;
    for (struct job *job = failed->next, *next; job; job = next) {
        next = job->next;
        if (!job->asked && job->state == JOB_RUNNING)
            job->doomed = true;
        else if (!job->asked && job->state == JOB_QUEUED)
            forget(p, job);
    }
}

/* --- pushing ---------------------------------------------------------------------------------- */

struct turn {
    struct sl_pg_pusher *pusher;
    struct job *job;
    sl_deadline deadline;
};

static void count_move(void *arg)
{
    struct turn *turn = arg;
    atomic_fetch_add(&turn->pusher->moved, 1);
}

/* Published in order: see the header. */
static int await_turn(void *arg, struct sl_err *err)
{
    struct turn *turn = arg;
    struct sl_pg_pusher *p = turn->pusher;
    int rc = 0;
    pthread_mutex_lock(&p->lock);
    while (!rc && !turn->job->asked) {
        if (p->stopping || turn->job->doomed) /* that one may be gone: this is asked first */
            rc = sl_err_set(err, SL_ERR_CANCELLED, "a file before it was not stored");
        else if (is_first(p, turn->job))
            break;
        else if (sl_deadline_passed(turn->deadline))
            rc = sl_err_set(err, SL_ERR_TIMEOUT, "a file before it was not stored in time");
        else
            sl_cond_wait(&p->changed, &p->lock, sl_deadline_in_ms(1000));
    }
    pthread_mutex_unlock(&p->lock);
    return rc;
}

static int push(struct sl_pg_pusher *p, struct job *job, struct link *link, struct sl_err *err)
{
    struct turn turn = {.pusher = p, .job = job, .deadline = sl_deadline_in_ms(link->timeout_ms)};
    struct sl_pg_push file = {.invocation = sl_settings_invocation(link->settings),
                              .path = job->path,
                              .deadline = turn.deadline,
                              .before_commit = await_turn,
                              .moved = count_move,
                              .arg = &turn};
    struct sl_stored stored;
    int rc = sl_pg_push_open(&file, err);
    if (!rc)
        rc = sl_pg_push_store(&file, &link->repository, &stored, err);
    if (!rc) {
        job->stat = file.stat;
        sl_log(stored.outcome == SL_STORED_IDENTICAL ? SL_LOG_INFO : SL_LOG_DETAIL, "postgres",
               stored.outcome == SL_STORED_IDENTICAL
                   ? "\"%s\" was already archived with this content"
                   : "archived \"%s\"",
               job->name.text);
    }
    sl_pg_push_close(&file);
    return rc;
}

static void tell(struct sl_pg_pusher *p)
{
    static const uint64_t one = 1;
    ssize_t ignored = write(p->fd, &one, sizeof one);
    (void)ignored;
}

/* With the lock held. */
static void finish(struct sl_pg_pusher *p, struct job *job, int rc)
{
    atomic_fetch_add(&p->moved, 1);
    if (!rc) {
        job->state = JOB_STORED;
        job->doomed = false;
        p->paused = p->paused && !job->asked;
    } else if (job->asked && job->doomed) { /* asked for while it gave up for another's sake */
        job->state = JOB_QUEUED;
        job->doomed = false;
    } else if (job->doomed) {
        forget(p, job);
    } else {
        job->state = JOB_FAILED;
        p->stale = true; /* whatever it was: the next one finds out anew */
        doom_later(p, job);
        if (!job->asked) {
            sl_log_err(SL_LOG_DETAIL, "postgres", &job->err, "\"%s\" was not stored ahead",
                       job->name.text);
            forget(p, job);
        }
    }
    pthread_cond_broadcast(&p->changed);
    tell(p);
}

static void run(struct sl_pg_pusher *p, struct job *job)
{
    struct link *link;
    job->state = JOB_RUNNING;
    int rc = sl_pg_link_acquire(p, job, &link, &job->err);
    if (!rc) {
        pthread_mutex_unlock(&p->lock);
        rc = push(p, job, link, &job->err);
        pthread_mutex_lock(&p->lock);
        sl_pg_link_release(p);
    }
    finish(p, job, rc);
}

/* --- threads ---------------------------------------------------------------------------------- */

static struct job *next_job(struct sl_pg_pusher *p)
{
    struct job *first = NULL;
    for (struct job *job = p->jobs; job; job = job->next) {
        if (job->state != JOB_QUEUED)
            continue;
        if (job->asked)
            return job;
        first = first ? first : job;
    }
    return first;
}

/* With the lock held, which it gives up while it reads the folder. */
static void look_ahead(struct sl_pg_pusher *p)
{
    struct sl_pg_wal_name names[SL_PG_AHEAD_MAX], last = p->last;
    char folder[sizeof p->status_folder];
    memcpy(folder, p->status_folder, sizeof folder);
    p->want_look = false;
    p->looking = true;
    pthread_mutex_unlock(&p->lock);
    size_t count = sl_pg_ready_look(folder, &last, names);
    pthread_mutex_lock(&p->lock);
    p->looking = false;
    for (size_t i = 0; i < count && !p->paused && !p->stopping; i++) {
        /* the server may have gone on meanwhile */
        if (sl_pg_ready_compare(&names[i], &p->last) <= 0 || find(p, &names[i]))
            continue;
        struct job *job = insert(p, &names[i]);
        if (!job)
            return;
        snprintf(job->path, sizeof job->path, "%.*s%s",
                 (int)(strlen(folder) - strlen("archive_status")), folder, names[i].text);
    }
    pthread_cond_broadcast(&p->changed);
}

static void *work(void *arg)
{
    struct sl_pg_pusher *p = arg;
    pthread_mutex_lock(&p->lock);
    while (!p->stopping) {
        struct job *job = next_job(p);
        if (job)
            run(p, job);
        else if (p->want_look && !p->looking && !p->paused)
            look_ahead(p);
        else if (!sl_cond_wait(&p->changed, &p->lock, sl_deadline_in_ms(IDLE_MS)))
            sl_pg_link_close(p); /* none did anything for so long */
    }
    if (p->threads_alive == 1)
        sl_pg_link_close(p);
    p->threads_alive--;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* With the lock held. */
static int start_threads(struct sl_pg_pusher *p, struct sl_err *err)
{
    while (p->thread_count < p->threads_wanted) {
        int rc = sl_thread_start(&p->threads[p->thread_count], "sl-pg-push", work, p, err);
        if (rc)
            return p->thread_count ? 0 : rc;
        p->thread_count++;
        p->threads_alive++;
    }
    return 0;
}

/* --- asking ----------------------------------------------------------------------------------- */

static bool is_same(const struct job *job, const char *path)
{
    struct stat now;
    const struct stat *then = &job->stat;
    return !stat(path, &now) && now.st_dev == then->st_dev && now.st_ino == then->st_ino &&
           now.st_size == then->st_size && now.st_mtim.tv_sec == then->st_mtim.tv_sec &&
           now.st_mtim.tv_nsec == then->st_mtim.tv_nsec;
}

/* What the server has passed by it will not ask for. */
static void forget_passed(struct sl_pg_pusher *p, const struct job *current)
{
    for (struct job *job = p->jobs, *next; job; job = next) {
        next = job->next;
        bool over = job->state == JOB_STORED || job->state == JOB_FAILED;
        if (job != current && over &&
            (job->state == JOB_FAILED || sl_pg_ready_compare(&job->name, &current->name) < 0))
            forget(p, job);
    }
}

static unsigned waiting(const struct sl_pg_pusher *p)
{
    unsigned count = 0;
    for (const struct job *job = p->jobs; job; job = job->next)
        count += job->state == JOB_QUEUED || job->state == JOB_RUNNING;
    return count;
}

/* With the lock held: 1, 0 or a code. */
static int answer(struct sl_pg_pusher *p, struct sl_err *err)
{
    struct job *job = p->current;
    if (!job)
        return sl_err_set(err, SL_ERR_INTERNAL, "nothing was asked for");
    if (job->state == JOB_QUEUED || job->state == JOB_RUNNING)
        return 0;
    int rc = job->state == JOB_STORED ? 1 : sl_err_copy(err, &job->err);
    forget(p, job);
    return rc;
}

static int ask(struct sl_pg_pusher *p, const struct sl_pg_wal_name *name, const char *path,
               struct sl_err *err)
{
    struct job *job = find(p, name);
    if (!job && !(job = insert(p, name)))
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    if (job->state != JOB_RUNNING) {
        if (job->state == JOB_FAILED || (job->state == JOB_STORED && !is_same(job, path)))
            job->state = JOB_QUEUED;
        snprintf(job->path, sizeof job->path, "%s", path);
    }
    job->asked = true;
    p->current = job;
    p->last = *name;
    forget_passed(p, job);
    snprintf(p->status_folder, sizeof p->status_folder, "%.*sarchive_status",
             (int)(sl_pg_base_name(path) - path), path);
    p->want_look = !p->paused && waiting(p) <= p->threads_wanted;
    pthread_cond_broadcast(&p->changed);
    int rc = start_threads(p, err);
    return rc ? rc : answer(p, err);
}

int sl_pg_pusher_ask(struct sl_pg_pusher *pusher, const char *name, const char *path,
                     struct sl_err *err)
{
    struct sl_pg_wal_name parsed;
    int rc = sl_pg_wal_name_parse(name, &parsed, err);
    if (rc)
        return rc;
    if (strlen(path) >= SL_PG_WAL_PATH_MAX || strcmp(sl_pg_base_name(path), name) != 0)
        return sl_err_set(err, SL_ERR_USAGE, "\"%s\" is not at \"%.200s\"", name, path);
    pthread_mutex_lock(&pusher->lock);
    rc = ask(pusher, &parsed, path, err);
    pthread_mutex_unlock(&pusher->lock);
    return rc;
}

int sl_pg_pusher_answer(struct sl_pg_pusher *pusher, struct sl_err *err)
{
    uint64_t count;
    ssize_t ignored = read(pusher->fd, &count, sizeof count);
    (void)ignored;
    pthread_mutex_lock(&pusher->lock);
    int rc = answer(pusher, err);
    pthread_mutex_unlock(&pusher->lock);
    return rc;
}

int sl_pg_pusher_fd(const struct sl_pg_pusher *pusher)
{
    return pusher->fd;
}

uint64_t sl_pg_pusher_moved(const struct sl_pg_pusher *pusher)
{
    return atomic_load(&pusher->moved);
}

/* --- life ------------------------------------------------------------------------------------- */

int sl_pg_pusher_reload(struct sl_pg_pusher *pusher, const char *config_path, const char *stanza,
                        struct sl_err *err)
{
    char *path = sl_strdup(config_path), *name = stanza ? sl_strdup(stanza) : NULL;
    if (!path || (stanza && !name)) {
        sl_free(path);
        sl_free(name);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    }
    pthread_mutex_lock(&pusher->lock);
    sl_free(pusher->config_path);
    sl_free(pusher->stanza);
    pusher->config_path = path;
    pusher->stanza = name;
    pusher->stale = pusher->link != NULL || pusher->opening;
    pthread_mutex_unlock(&pusher->lock);
    return 0;
}

static void destroy(struct sl_pg_pusher *p)
{
    for (struct job *job = p->jobs, *next; job; job = next) {
        next = job->next;
        sl_free(job);
    }
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    close(p->fd);
    sl_free(p->config_path);
    sl_free(p->stanza);
    sl_free(p);
}

int sl_pg_pusher_new(const char *config_path, const char *stanza, struct sl_pg_pusher **ret_pusher,
                     struct sl_err *err)
{
    struct sl_pg_pusher *p = sl_calloc(1, sizeof *p);
    if (!p)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    int fault = sl_fault("pg.pusher_eventfd");
    p->fd = fault ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->fd < 0 || sl_cond_init(&p->changed)) {
        int sys = fault ? fault : errno;
        if (p->fd >= 0)
            close(p->fd);
        sl_free(p);
        return sl_err_sys(err, SL_ERR_LIMIT, sys, "could not make an eventfd");
    }
    pthread_mutex_init(&p->lock, NULL);
    atomic_init(&p->moved, 0);
    p->threads_wanted = 1; /* until the settings are known */
    int rc = sl_pg_pusher_reload(p, config_path, stanza, err);
    if (rc) {
        destroy(p);
        return rc;
    }
    *ret_pusher = p;
    return 0;
}

bool sl_pg_pusher_free(struct sl_pg_pusher *pusher, unsigned limit_ms)
{
    struct sl_pg_pusher *p = pusher;
    if (!p)
        return true;
    sl_deadline deadline = sl_deadline_in_ms(limit_ms);
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    if (p->client)
        sl_client_cancel(p->client);
    pthread_cond_broadcast(&p->changed);
    while (p->threads_alive && !sl_deadline_passed(deadline))
        sl_cond_wait(&p->changed, &p->lock, deadline);
    bool ended = !p->threads_alive;
    pthread_mutex_unlock(&p->lock);
    if (!ended)
        return false;
    for (unsigned i = 0; i < p->thread_count; i++)
        pthread_join(p->threads[i], NULL);
    destroy(p);
    return true;
}
