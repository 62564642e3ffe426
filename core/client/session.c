/* A session: its beginning (HELLO to the first lane), its control thread, its end. Which host, and
 * when to begin a new one, is client.c's. */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/client/client_internal.h"

#include <errno.h>
#include <poll.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LAST_WORDS_MS 500

/* --- life ------------------------------------------------------------------------------------ */

static void session_free(struct session *session)
{
    sl_control_free(session->control);
    sl_client_slots_fini(&session->slots);
    sl_client_lanes_fini(&session->lanes);
    close(session->kick_fd);
    pthread_cond_destroy(&session->changed);
    pthread_mutex_destroy(&session->lock);
    explicit_bzero(session, sizeof *session);
    sl_free(session);
}

static int session_new(struct sl_client *client, struct session **ret_session, struct sl_err *err)
{
    struct session *session = sl_calloc(1, sizeof *session);
    if (!session)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    session->client = client;
    session->next_object = session->next_request = 1;
    atomic_init(&session->refs, 1);
    atomic_init(&session->seal_next, 1);
    session->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (session->kick_fd < 0) {
        int sys = errno;
        sl_free(session);
        return sl_err_sys(err, SL_ERR_LIMIT, sys, "could not make an eventfd");
    }
    pthread_mutex_init(&session->lock, NULL);
    int rc = sl_client_lanes_init(&session->lanes, err);
    if (!rc && sl_cond_init(&session->changed)) {
        sl_client_lanes_fini(&session->lanes);
        rc = sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    }
    if (rc) {
        pthread_mutex_destroy(&session->lock);
        close(session->kick_fd);
        sl_free(session);
        return rc;
    }
    *ret_session = session;
    return 0;
}

void sl_client_session_ref(struct session *session)
{
    atomic_fetch_add(&session->refs, 1);
}

void sl_client_session_unref(struct session *session)
{
    if (session && atomic_fetch_sub(&session->refs, 1) == 1)
        session_free(session);
}

/* --- failing and waiting --------------------------------------------------------------------- */

void sl_client_session_fail_locked(struct session *session, const struct sl_err *why)
{
    static const uint64_t one = 1;
    if (session->failure.code)
        return;
    session->failure = *why;
    sl_client_slots_wake(session);
    sl_client_objects_wake(session);
    sl_client_questions_wake(session);
    pthread_cond_broadcast(&session->changed);
    ssize_t ignored = write(session->kick_fd, &one, sizeof one); /* full is kicked, too */
    (void)ignored;
}

void sl_client_session_fail(struct session *session, int code, const char *fmt, ...)
{
    struct sl_err why;
    char text[SL_ERR_MSG_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    sl_err_set(&why, code, "%s", text);
    pthread_mutex_lock(&session->lock);
    sl_client_session_fail_locked(session, &why);
    pthread_mutex_unlock(&session->lock);
}

int sl_client_session_check(const struct session *session, struct sl_err *err)
{
    int rc = sl_client_cancelled(session->client, err);
    if (rc || !session->failure.code)
        return rc;
    sl_err_copy(err, &session->failure);
    return session->failure.code;
}

int sl_client_session_over(struct session *session, struct sl_err *err)
{
    pthread_mutex_lock(&session->lock);
    int rc = sl_client_session_check(session, err);
    pthread_mutex_unlock(&session->lock);
    return rc ? rc : sl_err_set(err, SL_ERR_CANCELLED, "cancelled");
}

int sl_client_session_wait(struct session *session, pthread_cond_t *changed, sl_deadline deadline,
                           struct sl_err *err)
{
    int rc = sl_client_session_check(session, err);
    if (rc)
        return rc;
    if (sl_deadline_passed(deadline))
        return sl_err_set(err, SL_ERR_TIMEOUT, "no answer from target %s in time", session->host);
    sl_cond_wait(changed, &session->lock, deadline);
    return 0;
}

void sl_client_session_send(struct session *session, const struct sl_msg *msg)
{
    /* a message that cannot be queued ends the control, which its thread sees (control.h) */
    if (!session->failure.code)
        sl_control_send(session->control, msg);
}

sl_deadline sl_client_session_io_deadline(const struct session *session, sl_deadline deadline)
{
    sl_deadline io = sl_deadline_in_ms(session->client->config.io_ms);
    return deadline < io ? deadline : io;
}

sl_deadline sl_client_session_quiet_deadline(const struct session *session, uint64_t began_ns,
                                             sl_deadline deadline)
{
    uint64_t from = session->progress_ns > began_ns ? session->progress_ns : began_ns;
    sl_deadline quiet = from + session->client->config.io_ms * SL_NS_PER_MS;
    return deadline < quiet ? deadline : quiet;
}

/* --- control thread -------------------------------------------------------------------------- */

static bool failed(struct session *session)
{
    pthread_mutex_lock(&session->lock);
    bool over = session->failure.code != 0;
    pthread_mutex_unlock(&session->lock);
    return over;
}

static void check_lanes(struct session *session)
{
    uint64_t limit_ns = session->welcome.dead_ms * 4 * SL_NS_PER_MS;
    if (sl_client_lanes_none_ns(session) < limit_ns)
        return;
    char reason[200];
    pthread_mutex_lock(&session->lanes.lock);
    snprintf(reason, sizeof reason, "%s", session->lanes.reason);
    pthread_mutex_unlock(&session->lanes.lock);
    sl_client_session_fail(session, SL_ERR_TIMEOUT, "no lane to target %s for %llu s: %s",
                           session->host, (unsigned long long)(limit_ns / SL_NS_PER_S), reason);
}

static void wait_for_work(struct session *session)
{
    struct pollfd fds[3] = {{.fd = sl_control_fd(session->control), .events = POLLIN},
                            {.fd = session->kick_fd, .events = POLLIN},
                            {.fd = session->client->cancel_fd, .events = POLLIN}};
    int ms = sl_control_next_ms(session->control);
    poll(fds, 3, ms < 0 || ms > 1000 ? 1000 : ms);
    if (fds[2].revents)
        sl_client_session_fail(session, SL_ERR_CANCELLED, "cancelled");
}

/* What the target should know before the connection closes: why, if it was its fault. */
static void say_last_words(struct session *session)
{
    struct sl_msg msg = {.type = SL_MSG_BYE};
    if (session->failure.code == SL_ERR_PROTOCOL) {
        msg.type = SL_MSG_ERROR;
        msg.error =
            (struct sl_msg_error){.code = (uint16_t)-SL_ERR_PROTOCOL, .kind = SL_ABOUT_SESSION};
        snprintf(msg.error.text, sizeof msg.error.text, "%.760s", session->failure.msg);
    }
    if (sl_control_send(session->control, &msg) == 0)
        sl_control_flush(session->control, sl_deadline_in_ms(LAST_WORDS_MS));
}

static void end(struct session *session, int rc, struct sl_err *err)
{
    pthread_mutex_lock(&session->lock);
    if (rc) {
        if (rc != SL_ERR_PROTOCOL)
            sl_err_prefix(err, "session with %s was lost", session->host);
        sl_client_session_fail_locked(session, err);
    }
    if (session->failure.code != SL_ERR_CANCELLED && !session->closed) {
        sl_log_err(SL_LOG_WARN, "client", &session->failure, "session is over");
    }
    while (!session->setup_over) /* bounded: the setup has deadlines */
        sl_cond_wait(&session->changed, &session->lock, sl_deadline_in_ms(1000));
    pthread_mutex_unlock(&session->lock);
    say_last_words(session);
    sl_client_transport_teardown(session);
    sl_client_objects_free_abandoned(session);
    struct sl_control *control = session->control;
    session->control = NULL; /* nobody sends once the session has failed */
    sl_control_free(control);
}

static void *control_run(void *arg)
{
    struct session *session = arg;
    struct sl_client *client = session->client;
    struct sl_err err;
    int rc = 0;
    while (!rc && !failed(session)) {
        rc = sl_control_process(session->control, sl_client_dispatch, session, &err);
        if (rc || failed(session))
            break;
        check_lanes(session);
        wait_for_work(session);
    }
    end(session, rc, &err);
    sl_client_session_unref(session);
    sl_client_session_gone(client);
    return NULL;
}

/* --- beginning ------------------------------------------------------------------------------- */

static void local_name(char name[64])
{
    char host[32] = "localhost", room[1024];
    struct passwd entry, *found = NULL;
    gethostname(host, sizeof host - 1);
    getpwuid_r(geteuid(), &entry, room, sizeof room, &found);
    if (found)
        snprintf(name, 64, "local:%.24s@%s", entry.pw_name, host);
    else
        snprintf(name, 64, "local:%u@%s", (unsigned)geteuid(), host);
}

static int connect_embedded(struct session *session, struct sl_err *err)
{
    const struct sl_embedded *embedded = &session->client->embedded;
    struct sl_control *target;
    char name[64];
    local_name(name);
    snprintf(session->host, sizeof session->host, "embedded");
    int rc = sl_control_pair(name, &session->control, &target, err);
    return rc ? rc : embedded->attach(embedded->target, target, err);
}

/* "name:port", "[v6]:port", "name", "v6". */
static int split_host(const char *text, char *host, size_t room, char *port, size_t port_room,
                      struct sl_err *err)
{
    const char *colon = strrchr(text, ':'), *end = text + strlen(text), *start = text;
    const char *number = "7430";
    if (*text == '[') {
        start = text + 1;
        end = strchr(text, ']');
        if (end && end[1] == ':')
            number = end + 2;
        else if (end && end[1])
            end = NULL;
    } else if (colon && strchr(text, ':') == colon) {
        end = colon;
        number = colon + 1;
    }
    size_t length = end ? (size_t)(end - start) : 0;
    if (!length || length >= room || !*number || strlen(number) >= port_room)
        return sl_err_set(err, SL_ERR_CONFIG, "\"%s\" is not HOST:PORT", text);
    /* getaddrinfo(3) takes the lower 16 bits of what is larger */
    unsigned long value = strtoul(number, NULL, 10);
    if (strspn(number, "0123456789") != strlen(number) || value < 1 || value > 65535)
        return sl_err_set(err, SL_ERR_CONFIG, "\"%s\": \"%s\" is no port (1 to 65535)", text,
                          number);
    memcpy(host, start, length);
    host[length] = '\0';
    snprintf(port, port_room, "%s", number);
    return 0;
}

static int connect_host(struct session *session, const char *text, sl_deadline deadline,
                        struct sl_err *err)
{
    const struct sl_client_config *config = &session->client->config;
    char host[256];
    snprintf(session->host, sizeof session->host, "%s", text);
    int rc =
        split_host(text, host, sizeof host, session->lanes.port, sizeof session->lanes.port, err);
    if (rc)
        return rc;
    struct sl_control_route route = {.host = host,
                                     .port = session->lanes.port,
                                     .name = config->tls_name ? config->tls_name : host,
                                     .bind_address = config->bind_address,
                                     .cancel_fd = session->client->cancel_fd};
    rc = sl_control_connect_route(config->tls, &route, deadline, &session->control, err);
    if (!rc)
        snprintf(session->peer_ip, sizeof session->peer_ip, "%s",
                 sl_control_peer_ip(session->control));
    return rc;
}

static void say_hello(struct session *session)
{
    const struct sl_client_config *config = &session->client->config;
    struct sl_msg msg = {.type = SL_MSG_HELLO};
    struct sl_msg_hello *hello = &msg.hello;
    hello->features = SL_FEATURE_GROW;
    hello->version = SL_WIRE_VERSION;
    hello->version_min = SL_WIRE_VERSION_MIN;
    snprintf(hello->software, sizeof hello->software, "sluice %s", SLUICE_VERSION);
    gethostname(hello->host, sizeof hello->host - 1);
    snprintf(hello->stanza, sizeof hello->stanza, "%s", config->stanza);
    hello->transport = (uint8_t)config->transport;
    hello->seal = (uint8_t)config->seal;
    hello->lanes = (uint16_t)config->lanes;
    hello->slots = session->slots_wanted;
    hello->slots_pulled = session->slots_pulled;
    hello->slot_bytes = SL_BLOCK_BYTES;
    sl_control_send(session->control, &msg);
}

static int welcome_arrived(void *arg, struct sl_control *control, const struct sl_msg *msg,
                           struct sl_err *err)
{
    struct session *session = arg;
    (void)control;
    if (msg->type != SL_MSG_WELCOME || session->welcome.version) {
        /* errors and BYE are as in any other phase; nothing else may come now */
        if (msg->type == SL_MSG_ERROR || msg->type == SL_MSG_BYE)
            return sl_client_dispatch(session, control, msg, err);
        return sl_err_set(err, SL_ERR_PROTOCOL, "%s came in place of WELCOME",
                          sl_msg_name((int)msg->type));
    }
    session->welcome = msg->welcome;
    session->welcomed_ns = sl_wall_ns();
    if (!msg->welcome.version)
        return sl_err_set(err, SL_ERR_VERSION, "the target chose version 0 of the wire");
    return 0;
}

static int await_welcome(struct session *session, sl_deadline deadline, struct sl_err *err)
{
    struct pollfd fds[2] = {{.fd = sl_control_fd(session->control), .events = POLLIN},
                            {.fd = session->client->cancel_fd, .events = POLLIN}};
    for (;;) {
        int rc = sl_control_process(session->control, welcome_arrived, session, err);
        if (rc || session->welcome.version)
            return rc;
        rc = sl_client_cancelled(session->client, err);
        if (rc)
            return rc;
        if (sl_deadline_passed(deadline))
            return sl_err_set(err, SL_ERR_TIMEOUT, "target %s did not answer in time",
                              session->host);
        poll(fds, 2, sl_deadline_poll_ms(deadline));
    }
}

static int check_welcome(struct session *session, struct sl_err *err)
{
    struct sl_client *client = session->client;
    struct sl_msg_welcome *welcome = &session->welcome;
    if (welcome->version > SL_WIRE_VERSION || welcome->version < SL_WIRE_VERSION_MIN)
        return sl_err_set(err, SL_ERR_VERSION, "the target chose version %u of the wire",
                          welcome->version);
    if (welcome->seal > SL_SEAL_ON || !welcome->lanes || !welcome->depth || !welcome->objects ||
        welcome->heartbeat_ms < 10 || welcome->dead_ms < welcome->heartbeat_ms ||
        welcome->dead_ms > 600000)
        return sl_err_set(err, SL_ERR_PROTOCOL, "the target's WELCOME makes no sense");
    if (client->have_repository && !sl_id_equal(&client->repository, &welcome->repository)) {
        sl_err_set(err, SL_ERR_REPO, "target %s serves another repository than the one before",
                   session->host);
        return sl_err_hint(err, "all of repo-host must serve one repository");
    }
    return 0;
}

static int take_secrets(struct session *session, struct sl_err *err)
{
    const struct sl_id *id = &session->welcome.session;
    int rc = sl_control_export(session->control, SL_EXPORT_LANE, id, session->lane_key,
                               sizeof session->lane_key, err);
    if (!rc)
        rc = sl_control_export(session->control, SL_EXPORT_SEAL_CLIENT, id, session->secret_up,
                               sizeof session->secret_up, err);
    if (!rc)
        rc = sl_control_export(session->control, SL_EXPORT_SEAL_TARGET, id, session->secret_down,
                               sizeof session->secret_down, err);
    return rc;
}

static int greet(struct session *session, sl_deadline deadline, struct sl_err *err)
{
    say_hello(session);
    int rc = await_welcome(session, deadline, err);
    if (!rc)
        rc = check_welcome(session, err);
    if (!rc)
        rc = take_secrets(session, err);
    if (!rc)
        rc = sl_client_transport_decide(session, err);
    if (!rc)
        sl_control_heartbeat(session->control, session->welcome.heartbeat_ms,
                             session->welcome.dead_ms);
    return rc;
}

static void setup_is_over(struct session *session, int rc, const struct sl_err *err)
{
    pthread_mutex_lock(&session->lock);
    if (rc)
        sl_client_session_fail_locked(session, err);
    session->setup_over = true;
    pthread_cond_broadcast(&session->changed);
    pthread_mutex_unlock(&session->lock);
}

/* From here on the control thread owns the control, and the end of the session. */
static int run(struct session *session, struct sl_err *err)
{
    pthread_t thread;
    sl_client_session_ref(session);
    pthread_mutex_lock(&session->client->lock);
    session->client->alive++;
    pthread_mutex_unlock(&session->client->lock);
    int rc = sl_thread_start(&thread, "sl-control", control_run, session, err);
    if (rc) {
        sl_client_session_unref(session);
        sl_client_session_gone(session->client);
        return rc;
    }
    pthread_detach(thread);
    return 0;
}

static int begin(struct session *session, const char *host, sl_deadline deadline,
                 struct sl_err *err)
{
    int rc = sl_client_transport_intend(session, err);
    if (!rc)
        rc = host ? connect_host(session, host, deadline, err) : connect_embedded(session, err);
    if (!rc)
        rc = greet(session, deadline, err);
    if (!rc)
        rc = run(session, err);
    if (rc)
        return rc;
    rc = sl_client_transport_setup(session, deadline, err);
    setup_is_over(session, rc, err);
    if (rc && session->transport == SL_TRANSPORT_RDMA && rc != SL_ERR_CANCELLED)
        sl_client_transport_avoid_rdma(session->client, err->msg);
    return rc;
}

int sl_client_session_begin(struct sl_client *client, const char *host, sl_deadline deadline,
                            struct session **ret_session, struct sl_err *err)
{
    /* a second time when RDMA was tried and could not be had: then over TCP */
    for (int attempt = 0;; attempt++) {
        struct session *session = NULL;
        int rc = sl_client_await_gone(client, deadline, err);
        if (!rc)
            rc = session_new(client, &session, err);
        if (rc)
            return rc;
        rc = begin(session, host, deadline, err);
        if (!rc) {
            *ret_session = session;
            return 0;
        }
        bool again = attempt == 0 && session->transport == SL_TRANSPORT_RDMA &&
                     session->setup_over && client->config.transport == SL_TRANSPORT_AUTO &&
                     rc != SL_ERR_CANCELLED && !sl_deadline_passed(deadline);
        sl_client_session_unref(session);
        if (!again)
            return rc;
        sl_log_err(SL_LOG_WARN, "client", err, "RDMA to %s cannot be had", host);
    }
}
