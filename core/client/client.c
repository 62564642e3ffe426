/* The client: its configuration, which session is current, and when a new one is made. */
#include "core/client/client.h"

#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/client/client_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define CONNECT_MS 10000
#define IO_MS      60000
#define AGAIN_MAX  5 /* sessions that one question or small object may use up */

/* --- stages ---------------------------------------------------------------------------------- */

uint64_t sl_client_stage_begin(const struct sl_client *client)
{
    return client->config.progress ? sl_now_ns() : 0;
}

void sl_client_stage_end(const struct sl_client *client, enum sl_stage stage, uint64_t began)
{
    if (client->config.progress)
        sl_progress_stage(client->config.progress, stage, sl_now_ns() - began);
}

/* --- configuration --------------------------------------------------------------------------- */

static void config_free(struct sl_client *client)
{
    const struct sl_client_config *c = &client->config;
    const char *strings[] = {c->stanza, c->tls_name, c->rdma_note, c->bind_address};
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++)
        sl_free((char *)(uintptr_t)strings[i]);
    for (char **host = client->hosts; host && *host; host++)
        sl_free(*host);
    sl_free(client->hosts);
}

static bool copy_string(const char **string)
{
    if (!*string)
        return true;
    *string = sl_strdup(*string);
    return *string != NULL;
}

static bool copy_hosts(struct sl_client *client, const char *const *hosts)
{
    size_t count = 0;
    while (hosts && hosts[count])
        count++;
    client->hosts = sl_calloc(count + 1, sizeof *client->hosts);
    if (!client->hosts)
        return false;
    for (size_t i = 0; i < count; i++) {
        client->hosts[i] = sl_strdup(hosts[i]);
        if (!client->hosts[i])
            return false;
    }
    client->config.hosts = (const char *const *)client->hosts;
    return true;
}

static int config_copy(struct sl_client *client, const struct sl_client_config *config,
                       struct sl_err *err)
{
    struct sl_client_config *c = &client->config;
    *c = *config;
    c->stanza = config->stanza;
    bool ok = true;
    const char **strings[] = {&c->stanza, &c->tls_name, &c->rdma_note, &c->bind_address};
    /* each is copied or set to NULL, so that config_free() never sees the caller's */
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++)
        ok &= copy_string(strings[i]);
    ok &= copy_hosts(client, config->hosts);
    if (!ok)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    if (config->embedded) {
        client->embedded = *config->embedded;
        client->has_embedded = true;
    }
    c->connect_ms = config->connect_ms ? config->connect_ms : CONNECT_MS;
    c->io_ms = config->io_ms ? config->io_ms : IO_MS;
    return 0;
}

static int config_check(const struct sl_client_config *config, struct sl_err *err)
{
    bool hosts = config->hosts && config->hosts[0];
    if (!config->stanza || !config->stanza[0] || strlen(config->stanza) >= SL_STANZA_MAX)
        return sl_err_set(err, SL_ERR_CONFIG, "a stanza's name has 1 to %d bytes",
                          SL_STANZA_MAX - 1);
    if (hosts == (config->embedded != NULL))
        return sl_err_set(err, SL_ERR_CONFIG, "either hosts or an embedded target");
    if (hosts && !config->tls)
        return sl_err_set(err, SL_ERR_CONFIG, "no certificates for the connection to a target");
    return 0;
}

/* --- making sessions ------------------------------------------------------------------------- */

int sl_client_cancelled(const struct sl_client *client, struct sl_err *err)
{
    return atomic_load(&client->cancelled) ? sl_err_set(err, SL_ERR_CANCELLED, "cancelled") : 0;
}

void sl_client_session_gone(struct sl_client *client)
{
    pthread_mutex_lock(&client->lock);
    client->alive--;
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->lock);
}

int sl_client_await_gone(struct sl_client *client, sl_deadline deadline, struct sl_err *err)
{
    int rc = 0;
    pthread_mutex_lock(&client->lock);
    while (!rc && client->alive) {
        rc = sl_client_cancelled(client, err);
        if (!rc && sl_deadline_passed(deadline))
            rc = sl_err_set(err, SL_ERR_TIMEOUT, "the last session did not end in time");
        if (!rc)
            sl_cond_wait(&client->changed, &client->lock, deadline);
    }
    pthread_mutex_unlock(&client->lock);
    return rc;
}

static void note_info(struct sl_client *client, const struct session *session)
{
    const struct sl_msg_welcome *welcome = &session->welcome;
    struct sl_client_info *info = &client->info;
    *info = (struct sl_client_info){
        .transport = session->transport,
        .sealed = session->sealed,
        .repository = welcome->repository,
        .digest_seed = welcome->digest_seed,
        .clock_skew_ms =
            ((int64_t)welcome->wall_ns - (int64_t)session->welcomed_ns) / (int64_t)SL_NS_PER_MS,
        .lanes = session->lanes.wanted,
        .slots = session->slots.count};
    snprintf(info->transport_why, sizeof info->transport_why, "%s", session->why);
    snprintf(info->host, sizeof info->host, "%s", session->host);
    snprintf(info->software, sizeof info->software, "%s", welcome->software);
    snprintf(info->store, sizeof info->store, "%s", welcome->store);
    snprintf(info->rdma_note, sizeof info->rdma_note, "%s", welcome->rdma_note);
    info->lane = session->lanes.info;
}

static const char *transport_name(enum sl_transport_kind kind)
{
    return kind == SL_TRANSPORT_RDMA ? "rdma" : kind == SL_TRANSPORT_TCP ? "tcp" : "local";
}

/* One attempt with each host, in order. Returns the first host's error that a retry may mend, or
 * else the first one's. */
static int try_hosts(struct sl_client *client, sl_deadline deadline, struct session **ret_session,
                     struct sl_err *err)
{
    static const char *embedded[] = {NULL};
    const char *const *hosts = client->has_embedded ? embedded : client->config.hosts;
    struct sl_err first = {0};
    do {
        struct sl_err why = {0};
        sl_deadline by = sl_deadline_in_ms(client->config.connect_ms);
        int rc = sl_client_session_begin(client, *hosts, by < deadline ? by : deadline, ret_session,
                                         &why);
        if (!rc)
            return 0;
        if (*hosts && client->config.hosts[1])
            sl_log_err(SL_LOG_DETAIL, "client", &why, "target %s cannot be used", *hosts);
        if (!first.code || rc == SL_ERR_CANCELLED ||
            (!sl_code_retryable(first.code) && sl_code_retryable(rc)))
            first = why;
        if (rc == SL_ERR_CANCELLED)
            break;
    } while (*hosts && *++hosts && !sl_deadline_passed(deadline));
    return sl_err_copy(err, &first);
}

/* Until the deadline, with back-off, unless an error is one that time does not mend. */
static int make_session(struct sl_client *client, bool once, sl_deadline deadline,
                        struct session **ret_session, struct sl_err *err)
{
    struct sl_err why;
    for (uint64_t ms = BACKOFF_MIN_MS;; ms = ms * 2 < BACKOFF_MAX_MS ? ms * 2 : BACKOFF_MAX_MS) {
        int rc = try_hosts(client, deadline, ret_session, &why);
        if (!rc)
            return 0;
        sl_deadline pause = sl_deadline_in_ms(ms);
        if (once || !sl_code_retryable(rc) || pause >= deadline)
            return sl_err_copy(err, &why);
        sl_log_err(SL_LOG_DETAIL, "client", &why, "no session, trying again");
        pthread_mutex_lock(&client->lock);
        snprintf(client->trouble, sizeof client->trouble, "%.199s", why.msg);
        pthread_mutex_unlock(&client->lock);
        struct pollfd cancel = {.fd = client->cancel_fd, .events = POLLIN};
        poll(&cancel, 1, sl_deadline_poll_ms(pause));
        rc = sl_client_cancelled(client, err);
        if (rc)
            return rc;
    }
}

/* With the lock held: while another thread makes a session. */
static int await_turn(struct sl_client *client, sl_deadline deadline, struct sl_err *err)
{
    while (client->beginning) {
        int rc = sl_client_cancelled(client, err);
        if (rc)
            return rc;
        if (sl_deadline_passed(deadline))
            return sl_err_set(err, SL_ERR_TIMEOUT, "no session with the target in time%s%s",
                              client->trouble[0] ? ": " : "", client->trouble);
        sl_cond_wait(&client->changed, &client->lock, deadline);
    }
    return sl_client_cancelled(client, err);
}

static bool is_over(struct session *session)
{
    pthread_mutex_lock(&session->lock);
    bool over = session->failure.code != 0;
    pthread_mutex_unlock(&session->lock);
    return over;
}

static int renew(struct sl_client *client, bool once, sl_deadline deadline, struct sl_err *err)
{
    struct session *session;
    client->beginning = true;
    client->trouble[0] = '\0';
    pthread_mutex_unlock(&client->lock);
    int rc = make_session(client, once, deadline, &session, err);
    pthread_mutex_lock(&client->lock);
    client->beginning = false;
    if (!rc) {
        client->session = session;
        client->have_repository = true;
        client->repository = session->welcome.repository;
        note_info(client, session);
        sl_log(SL_LOG_INFO, "client", "target %s (%s): transport %s (%s), blocks are %ssealed",
               session->host, client->info.software, transport_name(session->transport),
               session->why, session->sealed ? "" : "not ");
    }
    pthread_cond_broadcast(&client->changed);
    return rc;
}

static int obtain(struct sl_client *client, bool once, sl_deadline deadline,
                  struct session **ret_session, struct sl_err *err)
{
    pthread_mutex_lock(&client->lock);
    int rc = sl_client_cancelled(client, err);
    while (!rc) {
        if (client->session && is_over(client->session)) {
            sl_client_session_unref(client->session);
            client->session = NULL;
        }
        if (client->session) {
            sl_client_session_ref(client->session);
            *ret_session = client->session;
            break;
        }
        rc = await_turn(client, deadline, err);
        if (!rc && !client->session)
            rc = renew(client, once, deadline, err);
    }
    pthread_mutex_unlock(&client->lock);
    return rc;
}

int sl_client_session(struct sl_client *client, sl_deadline deadline, struct session **ret_session,
                      struct sl_err *err)
{
    pthread_mutex_lock(&client->lock);
    bool first = !client->have_repository; /* of a lazy client */
    pthread_mutex_unlock(&client->lock);
    return obtain(client, first, deadline, ret_session, err);
}

bool sl_client_again(int rc, unsigned *tries, sl_deadline deadline)
{
    return rc == SL_ERR_CLOSED && ++*tries < AGAIN_MAX && !sl_deadline_passed(deadline);
}

/* --- opening and closing --------------------------------------------------------------------- */

static int client_new(const struct sl_client_config *config, struct sl_client **ret_client,
                      struct sl_err *err)
{
    struct sl_client *client = sl_calloc(1, sizeof *client);
    if (!client)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    atomic_init(&client->cancelled, false);
    client->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (client->cancel_fd < 0 || sl_cond_init(&client->changed)) {
        int sys = errno;
        if (client->cancel_fd >= 0)
            close(client->cancel_fd);
        sl_free(client);
        return sl_err_sys(err, SL_ERR_LIMIT, sys, "could not make an eventfd");
    }
    pthread_mutex_init(&client->lock, NULL);
    int rc = config_copy(client, config, err);
    if (rc) {
        sl_client_close(client);
        return rc;
    }
    *ret_client = client;
    return 0;
}

int sl_client_open(const struct sl_client_config *config, sl_deadline deadline,
                   struct sl_client **ret_client, struct sl_err *caller_err)
{
    struct sl_err scrap, *err = caller_err ? caller_err : &scrap;
    struct sl_client *client = NULL;
    struct session *session;
    int rc = config_check(config, err);
    if (rc)
        return rc;
    rc = client_new(config, &client, err);
    if (rc)
        return rc;
    if (!config->lazy) {
        rc = obtain(client, true, deadline, &session, err);
        if (rc) {
            sl_client_close(client);
            return rc;
        }
        sl_client_session_unref(session);
    }
    *ret_client = client;
    return 0;
}

void sl_client_close(struct sl_client *client)
{
    if (!client)
        return;
    pthread_mutex_lock(&client->lock);
    struct session *session = client->session;
    client->session = NULL;
    pthread_mutex_unlock(&client->lock);
    if (session) {
        pthread_mutex_lock(&session->lock);
        session->closed = true;
        pthread_mutex_unlock(&session->lock);
        sl_client_session_fail(session, SL_ERR_CLOSED, "the client was closed");
    }
    sl_client_session_unref(session);
    pthread_mutex_lock(&client->lock);
    while (client->alive) /* bounded: its threads wait for nothing without a deadline */
        sl_cond_wait(&client->changed, &client->lock, sl_deadline_in_ms(1000));
    pthread_mutex_unlock(&client->lock);
    pthread_cond_destroy(&client->changed);
    pthread_mutex_destroy(&client->lock);
    close(client->cancel_fd);
    config_free(client);
    sl_free(client);
}

void sl_client_info(struct sl_client *client, struct sl_client_info *info)
{
    pthread_mutex_lock(&client->lock);
    *info = client->info;
    pthread_mutex_unlock(&client->lock);
}

void sl_client_cancel(struct sl_client *client)
{
    static const uint64_t one = 1;
    int saved = errno;
    atomic_store(&client->cancelled, true);
    ssize_t ignored = write(client->cancel_fd, &one, sizeof one);
    (void)ignored;
    errno = saved;
}
