/* The pusher's session: begun when a file needs one, shared by the threads, ended when it failed,
 * when the settings may have changed, or when nobody needs it. Which file goes when is pusher.c's.
 */
#include "postgres/archive_module/pusher_internal.h"

#include "core/base/alloc.h"
#include "core/base/log.h"

#include <string.h>

#define OPEN_MS 15000u

extern const struct sl_engine sluice_engine;
extern char **environ;

static void link_free(struct sl_pg_pusher *p, struct link *link)
{
    if (!link)
        return;
    pthread_mutex_lock(&p->lock);
    p->client = NULL;
    pthread_mutex_unlock(&p->lock);
    sl_connection_close(link->repository.connection);
    sl_settings_free(link->settings);
    sl_free(link);
}

/* Nothing of RDMA in a server's process: pinned memory and queue pairs cost more than segments are
 * worth, and the plugin finds core's functions in a program of ours only. */
static int read_settings(struct link *link, const char *config_path, const char *stanza,
                         struct sl_err *err)
{
    const struct sl_settings_source source = {.engine = &sluice_engine,
                                              .command = "archive-push",
                                              .environment = environ,
                                              .config_path = config_path,
                                              .stanza = stanza};
    int rc = sl_settings_read(&source, &link->settings, err);
    if (rc)
        return rc;
    rc = sl_settings_set(link->settings, "transport", "tcp", err);
    const struct sl_options *options = sl_settings_invocation(link->settings)->options;
    long jobs = sl_option_is_set(options, "jobs") ? (long)sl_option_int(options, "jobs") : 2;
    link->timeout_ms = (uint64_t)sl_option_int(options, "timeout");
    link->threads = jobs > SL_PG_PUSHER_THREADS_MAX ? SL_PG_PUSHER_THREADS_MAX : (unsigned)jobs;
    sl_log_threshold(sl_log_level_named(sl_option_string(options, "log-level")));
    return rc;
}

static int connect_to(struct sl_pg_pusher *p, struct link *link, struct sl_err *err)
{
    const struct sl_connect_options wanted = {.short_lived = true, .lazy = true};
    struct sl_pg_repository *r = &link->repository;
    sl_deadline deadline =
        sl_deadline_in_ms(link->timeout_ms < OPEN_MS ? link->timeout_ms : OPEN_MS);
    const char *stanza = sl_settings_invocation(link->settings)->stanza;
    int rc = sl_connection_open(sl_settings_invocation(link->settings), &wanted, deadline,
                                &r->connection, err);
    if (rc)
        return rc;
    r->client = sl_connection_client(r->connection);
    pthread_mutex_lock(&p->lock);
    p->client = r->client;
    if (p->stopping)
        sl_client_cancel(r->client);
    pthread_mutex_unlock(&p->lock);
    rc = sl_pg_repository_stanza(r, deadline, err);
    if (rc)
        return rc < 0 ? rc : 0;
    return sl_lives_missing(stanza, err);
}

static int link_new(struct sl_pg_pusher *p, const char *config_path, const char *stanza,
                    struct link **ret_link, struct sl_err *err)
{
    struct link *link = sl_calloc(1, sizeof *link);
    if (!link)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    int rc = read_settings(link, config_path, stanza, err);
    if (!rc)
        rc = connect_to(p, link, err);
    if (rc) {
        link_free(p, link);
        return rc;
    }
    *ret_link = link;
    return 0;
}

/* With the lock held and `opening` not set by another: the old session ends, a new one begins. */
static int renew(struct sl_pg_pusher *p, struct sl_err *err)
{
    struct link *link = NULL, *old = p->link;
    char *config_path = sl_strdup(p->config_path);
    char *stanza = p->stanza ? sl_strdup(p->stanza) : NULL;
    bool copied = config_path && (stanza || !p->stanza);
    p->link = NULL;
    p->opening = true;
    p->stale = false;
    pthread_mutex_unlock(&p->lock);
    link_free(p, old);
    int rc = copied ? link_new(p, config_path, stanza, &link, err)
                    : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    sl_free(config_path);
    sl_free(stanza);
    pthread_mutex_lock(&p->lock);
    p->opening = false;
    p->link = link;
    if (link)
        p->threads_wanted = link->threads;
    pthread_cond_broadcast(&p->changed);
    return rc;
}

int sl_pg_link_acquire(struct sl_pg_pusher *p, const struct job *job, struct link **ret_link,
                       struct sl_err *err)
{
    for (;;) {
        if (p->stopping || job->doomed)
            return sl_err_set(err, SL_ERR_CANCELLED, "cancelled");
        if (!p->opening && p->link && !p->stale) {
            p->users++;
            *ret_link = p->link;
            return 0;
        }
        if (p->opening || (p->link && p->users)) {
            sl_cond_wait(&p->changed, &p->lock, sl_deadline_in_ms(1000));
            continue;
        }
        int rc = renew(p, err);
        if (rc)
            return rc;
    }
}

void sl_pg_link_release(struct sl_pg_pusher *p)
{
    p->users--;
    pthread_cond_broadcast(&p->changed);
}

void sl_pg_link_close(struct sl_pg_pusher *p)
{
    if (p->opening || p->users || !p->link)
        return;
    struct link *old = p->link;
    p->link = NULL;
    p->opening = true;
    pthread_mutex_unlock(&p->lock);
    link_free(p, old);
    pthread_mutex_lock(&p->lock);
    p->opening = false;
    pthread_cond_broadcast(&p->changed);
}
