/* The target's messages, handed to what they are about. Runs on the control thread. */
#include "core/base/log.h"
#include "core/client/client_internal.h"

#include <stdio.h>
#include <string.h>

/* Text of a peer goes to terminals and logs: nothing but printable bytes. */
static void clean(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

static void error_of(const struct sl_msg_error *error, struct sl_err *err)
{
    int code = error->code && error->code < SL_INDEX_COUNT_ ? -(int)error->code : SL_ERR_INTERNAL;
    sl_err_set(err, code, "%s", error->text);
    snprintf(err->hint, sizeof err->hint, "%s", error->hint);
    clean(err->msg);
    clean(err->hint);
}

static int object_failed(struct session *session, uint32_t number, const struct sl_err *why,
                         struct sl_err *err)
{
    struct object *object = sl_client_object_find(session, number);
    if (!object && number >= session->next_object)
        return sl_err_set(err, SL_ERR_PROTOCOL, "ERROR about object %u, which there is not",
                          number);
    if (!object)
        return 0; /* given up here meanwhile */
    object->err = *why;
    sl_client_object_answer(object);
    return 0;
}

static int error_arrived(struct session *session, const struct sl_msg_error *error,
                         struct sl_err *err)
{
    struct sl_err why;
    error_of(error, &why);
    switch (error->kind) {
    case SL_ABOUT_OBJECT:
        return object_failed(session, error->about, &why, err);
    case SL_ABOUT_REQUEST:
        sl_client_question_failed(session, error->about, &why);
        return 0;
    case SL_ABOUT_LANE:
        sl_log_err(SL_LOG_DETAIL, "client", &why, "lane %u", error->about);
        return 0;
    default:
        sl_err_copy(err, &why);
        return sl_err_prefix(err, "target %s", session->host);
    }
}

static int locked_message(struct session *session, const struct sl_msg *msg, struct sl_err *err)
{
    switch (msg->type) {
    case SL_MSG_TAKEN:
        return sl_client_slots_taken(session, &msg->taken, err);
    case SL_MSG_SENT:
        return sl_client_slots_sent(session, &msg->sent, err);
    case SL_MSG_STORED:
        return sl_client_upload_stored(session, &msg->stored, err);
    case SL_MSG_GROWN:
        return sl_client_grow_grown(session, &msg->grown, err);
    case SL_MSG_GREW:
        return sl_client_grow_grew(session, &msg->grew, err);
    case SL_MSG_OPENED:
        return sl_client_download_opened(session, &msg->opened, err);
    case SL_MSG_TABLED:
        return sl_client_download_tabled(session, &msg->tabled, err);
    case SL_MSG_STATED:
    case SL_MSG_LISTED:
    case SL_MSG_SPACED:
    case SL_MSG_REMOVED:
    case SL_MSG_SWEPT:
    case SL_MSG_VERIFIED:
    case SL_MSG_DAMAGE:
        return sl_client_question_answered(session, msg, err);
    case SL_MSG_ERROR:
        return error_arrived(session, &msg->error, err);
    default:
        return sl_err_set(err, SL_ERR_PROTOCOL, "%s is not for a client",
                          sl_msg_name((int)msg->type));
    }
}

static void lane_down(struct session *session, const struct sl_msg_lane_down *down)
{
    char reason[sizeof down->reason];
    snprintf(reason, sizeof reason, "%s", down->reason);
    clean(reason);
    /* its end is freed before anything else is looked at: no late byte of it may land in a slot
     * that is given out again */
    sl_client_lanes_down(session, down->lane, reason);
    pthread_mutex_lock(&session->lock);
    sl_client_slots_lane_lost(session, down->lane);
    pthread_mutex_unlock(&session->lock);
}

/* That the lanes' thread has read a slot before it is TAKEN is an order that runs through the peer;
 * ThreadSanitizer sees only those that run through locks. */
static void show_order(struct session *session)
{
#ifdef __SANITIZE_THREAD__
    pthread_mutex_lock(&session->lanes.lock);
    pthread_mutex_unlock(&session->lanes.lock);
#else
    (void)session;
#endif
}

int sl_client_dispatch(void *arg, struct sl_control *control, const struct sl_msg *msg,
                       struct sl_err *err)
{
    struct session *session = arg;
    (void)control;
    switch (msg->type) {
    case SL_MSG_LANE_UP:
        sl_client_lanes_up(session, msg->lane_up.lane);
        return 0;
    case SL_MSG_LANE_DOWN:
        lane_down(session, &msg->lane_down);
        return 0;
    case SL_MSG_BYE:
        return sl_err_set(err, SL_ERR_CLOSED, "target %s %s", session->host,
                          msg->bye.reason == 1 ? "is shutting down" : "ended the session");
    case SL_MSG_TAKEN:
        show_order(session);
        break;
    default:
        break;
    }
    pthread_mutex_lock(&session->lock);
    int rc = locked_message(session, msg, err);
    pthread_mutex_unlock(&session->lock);
    return rc;
}
