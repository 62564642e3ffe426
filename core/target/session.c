/* Life of a session: its messages handed out, its end. Opening is in hello.c; what the messages do
 * is in writing.c, reading.c, questions.c and lanes.c. */
#include "core/target/listing.h"
#include "core/target/target_internal.h"

#include "core/base/alloc.h"
#include "core/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void session_ready(struct sl_target *target, struct watch *watch)
{
    (void)target;
    struct session *session = CONTAINER(watch, struct session, watch);
    session->dirty = true; /* processed in this turn's sweep */
}

int sl_target_session_new(struct sl_target *target, struct sl_control *control,
                          const struct in6_addr *from, sl_deadline hello_by, struct sl_err *err)
{
    struct session *session = sl_calloc(1, sizeof *session);
    if (!session) {
        sl_control_free(control);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    }
    session->watch.ready = session_ready;
    session->target = target;
    session->control = control;
    session->state = SESSION_HANDSHAKE;
    session->deadline = hello_by;
    session->dirty = true;
    session->remote = from != NULL;
    if (from)
        session->address = *from;
    atomic_init(&session->cancelled, false);
    atomic_init(&session->seal_next, 1);
    snprintf(session->label, sizeof session->label, "connection from %s",
             sl_control_address(control));
    session->control_fd = sl_control_fd(control);
    int rc = sl_target_control_watch(target, session->control_fd, &session->watch, err);
    if (rc) {
        sl_control_free(control);
        sl_free(session);
        return rc;
    }
    session->next = target->sessions;
    target->sessions = session;
    return 0;
}

struct session *sl_target_session_find(struct sl_target *target, const struct sl_id *id)
{
    for (struct session *session = target->sessions; session; session = session->next)
        if (session->state == SESSION_LIVE && sl_id_equal(&session->id, id))
            return session;
    return NULL;
}

/* Asked anew after sl_target_reload(). */
bool sl_target_session_permitted(struct session *session)
{
    struct sl_target *target = session->target;
    if (session->permit_generation == target->permit_generation)
        return true;
    if (target->config.permit &&
        !target->config.permit(target->config.permit_arg, session->client, session->stanza)) {
        struct sl_err err;
        sl_err_set(&err, SL_ERR_DENIED, "client \"%s\" may not use stanza \"%s\" any more",
                   session->client, session->stanza);
        sl_target_session_refuse(session, &err);
        return false;
    }
    session->permit_generation = target->permit_generation;
    return true;
}

bool sl_target_session_may_remove(const struct session *session)
{
    const struct sl_target_config *config = &session->target->config;
    return config->permit_remove &&
           config->permit_remove(config->permit_arg, session->client, session->stanza);
}

/* --- the end --------------------------------------------------------------------------------- */

/* Nothing of the session goes on, but what the committer has. */
static void let_go(struct session *session)
{
    atomic_store(&session->cancelled, true);
    for (unsigned i = 0; i < OBJECT_BUCKETS; i++) {
        struct object *next;
        for (struct object *object = session->objects[i]; object; object = next) {
            next = object->next;
            if (object->state != OBJECT_PUBLISHING)
                sl_target_object_drop(object);
        }
    }
    sl_target_lane_close_all(session);
}

static void control_close(struct session *session)
{
    if (session->control_fd >= 0)
        sl_target_control_unwatch(session->target, session->control_fd);
    session->control_fd = -1;
    if (session->verifies)
        return; /* its thread may be sending */
    sl_control_free(session->control);
    session->control = NULL;
}

static void session_close(struct session *session)
{
    if (session->state == SESSION_ENDED)
        return;
    bool was_open = session->state != SESSION_LINGER;
    session->state = SESSION_ENDED;
    if (was_open)
        let_go(session);
    control_close(session);
}

/* Last words were queued: writes them, and gives the peer time to read them. */
static void session_linger(struct session *session)
{
    session->state = SESSION_LINGER;
    session->deadline = sl_deadline_in_ms(LINGER_MS);
    session->dirty = true;
    let_go(session);
}

void sl_target_session_refuse(struct session *session, const struct sl_err *err)
{
    if (session->state > SESSION_LIVE)
        return;
    sl_target_complain(session->target, COMPLAIN_CLIENT, err, "%s: session refused",
                       session->label);
    COUNT(session->target, sessions_refused, 1);
    sl_target_answer_error(session, SL_ABOUT_SESSION, 0, err);
    session_linger(session);
}

void sl_target_session_violation(struct session *session, const char *fmt, ...)
{
    char text[256];
    struct sl_err err;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    sl_err_set(&err, SL_ERR_PROTOCOL, "%s", text);
    sl_target_session_refuse(session, &err);
}

void sl_target_session_end(struct session *session, const struct sl_err *why)
{
    if (session->state > SESSION_LIVE) {
        session_close(session);
        return;
    }
    if (why)
        sl_target_complain(session->target,
                           session->state == SESSION_LIVE ? COMPLAIN_CLIENT : COMPLAIN_STRANGER,
                           why, "%s: session lost", session->label);
    else
        sl_log(SL_LOG_DETAIL, "target", "%s: session ended", session->label);
    session_close(session);
}

static void say_bye(struct session *session)
{
    struct sl_msg msg = {.type = SL_MSG_BYE};
    msg.bye.reason = 1;
    sl_target_answer_flush(session);
    sl_target_answer(session, &msg);
    session_linger(session);
}

void sl_target_session_wind_down(struct session *session)
{
    if (session->state != SESSION_LIVE) {
        if (session->state == SESSION_HANDSHAKE)
            session_close(session);
        return;
    }
    for (unsigned i = 0; i < OBJECT_BUCKETS; i++) {
        struct object *next;
        for (struct object *object = session->objects[i]; object; object = next) {
            next = object->next;
            if (object->state != OBJECT_PUBLISHING && object->state != OBJECT_COMMITTED)
                sl_target_object_drop(object);
        }
    }
    if (!session->committed || sl_deadline_passed(session->target->stop_deadline))
        say_bye(session);
}

bool sl_target_session_over(struct session *session)
{
    if (session->state != SESSION_ENDED || session->lanes || session->pieces ||
        session->object_count || session->tasks || session->verifies)
        return false;
    struct sl_target *target = session->target;
    if (session->control)
        sl_control_free(session->control);
    for (struct session **at = &target->sessions; *at; at = &(*at)->next)
        if (*at == session) {
            *at = session->next;
            break;
        }
    if (session->slot_states)
        target->session_count--; /* it came to WELCOME */
    if (session->sink.memory)
        sl_target_pool_fini(&session->sink);
    sl_target_listing_free(session->listing);
    sl_free(session->slot_states);
    sl_free(session->lanes_used);
    explicit_bzero(session, sizeof *session);
    sl_free(session);
    return true;
}

/* --- messages -------------------------------------------------------------------------------- */

static void live_message(struct session *session, const struct sl_msg *msg)
{
    switch (msg->type) {
    case SL_MSG_OFFER:
        sl_target_offers_arrived(session, &msg->offer);
        break;
    case SL_MSG_GET:
        sl_target_gets_arrived(session, &msg->get);
        break;
    case SL_MSG_CREATE:
        sl_target_create_arrived(session, &msg->create);
        break;
    case SL_MSG_COMMIT:
        sl_target_commit_arrived(session, &msg->commit);
        break;
    case SL_MSG_GROW:
        sl_target_grow_arrived(session, &msg->grow);
        break;
    case SL_MSG_SEAL:
        sl_target_seal_arrived(session, &msg->seal);
        break;
    case SL_MSG_ABORT:
        sl_target_abort_arrived(session, msg->abort.object);
        break;
    case SL_MSG_OPEN:
        sl_target_open_arrived(session, &msg->open);
        break;
    case SL_MSG_TABLE:
        sl_target_table_arrived(session, &msg->table);
        break;
    case SL_MSG_CLOSE:
        sl_target_close_arrived(session, msg->close.object);
        break;
    case SL_MSG_STAT:
    case SL_MSG_LIST:
    case SL_MSG_SPACE:
    case SL_MSG_REMOVE:
    case SL_MSG_SWEEP:
        sl_target_question_arrived(session, msg);
        break;
    case SL_MSG_VERIFY:
        sl_target_verify_arrived(session, &msg->verify);
        break;
    case SL_MSG_MEMORY:
        sl_target_memory_arrived(session, &msg->memory);
        break;
    case SL_MSG_LANE_DOWN:
        sl_target_lane_down_arrived(session, msg->lane_down.lane);
        break;
    default:
        sl_target_session_violation(session, "message %s is not for a target",
                                    sl_msg_name((int)msg->type));
    }
}

static int on_message(void *arg, struct sl_control *control, const struct sl_msg *msg,
                      struct sl_err *err)
{
    struct session *session = arg;
    (void)control;
    if (session->state > SESSION_LIVE)
        return 0; /* last words were said */
    switch (msg->type) {
    case SL_MSG_HEARTBEAT:
        return 0;
    case SL_MSG_BYE:
        session->bye = true;
        return sl_err_set(err, SL_ERR_CLOSED, "the client said bye");
    case SL_MSG_ERROR:
        if (msg->error.kind == SL_ABOUT_SESSION)
            return sl_err_set(err, SL_ERR_CLOSED, "the client gave up: %s", msg->error.text);
        sl_log(SL_LOG_DETAIL, "target", "%s: %s", session->label, msg->error.text);
        return 0;
    default:
        break;
    }
    if (session->state == SESSION_LIVE)
        live_message(session, msg);
    else if (msg->type == SL_MSG_HELLO)
        sl_target_hello_arrived(session, &msg->hello);
    else
        sl_target_session_violation(session, "message %s before WELCOME",
                                    sl_msg_name((int)msg->type));
    return 0;
}

void sl_target_session_run(struct session *session)
{
    struct sl_err err = {0};
    session->dirty = false;
    int rc = sl_control_process(session->control, on_message, session, &err);
    if (rc == SL_ERR_PROTOCOL && session->state <= SESSION_LIVE) { /* a frame that is none */
        sl_target_session_refuse(session, &err);
        sl_control_flush(session->control, 0); /* what can be written without waiting */
        session->deaf = true;
        session->due_ns = UINT64_MAX;
        sl_target_control_unwatch(session->target, session->control_fd);
        session->control_fd = -1;
    } else if (rc) {
        sl_target_session_end(session, session->bye ? NULL : &err);
    } else {
        int ms = sl_control_next_ms(session->control);
        session->due_ns = ms < 0 ? UINT64_MAX : sl_now_ns() + (unsigned)ms * SL_NS_PER_MS;
    }
}

void sl_target_session_tick(struct session *session, uint64_t now_ns)
{
    struct sl_target *target = session->target;
    if (session->state == SESSION_ENDED)
        return;
    if (session->state == SESSION_LIVE)
        sl_target_answer_flush(session);
    if (!session->deaf && (session->dirty || now_ns >= session->due_ns))
        sl_target_session_run(session);
    if (session->state == SESSION_LIVE) {
        sl_target_verify_tick(session, now_ns);
        sl_target_answer_flush(session);
        if (target->stopping)
            sl_target_session_wind_down(session);
    } else if (session->state == SESSION_HANDSHAKE && now_ns >= session->deadline) {
        struct sl_err err;
        sl_err_set(&err, SL_ERR_TIMEOUT, "no HELLO within %u s", HANDSHAKE_MS / 1000);
        sl_target_session_end(session, &err);
    } else if (session->state == SESSION_LINGER && now_ns >= session->deadline) {
        session_close(session);
    }
}
