/* Questions: STAT, LIST, SPACE, REMOVE, SWEEP, VERIFY. The asking thread waits; answers are copied
 * to it by the control thread, callbacks are called by the asking thread. */
#include "core/base/alloc.h"
#include "core/client/client_internal.h"

#include <stdio.h>
#include <string.h>

#define DAMAGES_MAX 16384u /* told by the target and not yet taken by the caller */
#define LIST_LIMIT  1000u

/* --- asking ---------------------------------------------------------------------------------- */

static int request_begin(struct request *request, struct sl_client *client,
                         enum sl_msg_type expected, sl_deadline deadline, struct sl_err *err)
{
    *request = (struct request){.expected = expected};
    int rc = sl_client_session(client, deadline, &request->session, err);
    if (rc)
        return rc;
    if (sl_cond_init(&request->changed)) {
        sl_client_session_unref(request->session);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    }
    if (expected == SL_MSG_VERIFIED)
        request->verify.last = &request->verify.damages;
    pthread_mutex_lock(&request->session->lock);
    request->number = request->session->next_request++;
    request->next = request->session->requests;
    request->session->requests = request;
    pthread_mutex_unlock(&request->session->lock);
    return 0;
}

static void request_end(struct request *request)
{
    struct session *session = request->session;
    pthread_mutex_lock(&session->lock);
    for (struct request **at = &session->requests; *at; at = &(*at)->next)
        if (*at == request) {
            *at = request->next;
            break;
        }
    pthread_mutex_unlock(&session->lock);
    pthread_cond_destroy(&request->changed);
    sl_client_session_unref(session);
}

/* With the lock held. */
static int request_send(struct request *request, const struct sl_msg *msg, struct sl_err *err)
{
    int rc = sl_client_session_check(request->session, err);
    if (!rc)
        sl_client_session_send(request->session, msg);
    return rc;
}

/* With the lock held: until the answer is whole. */
static int request_await(struct request *request, sl_deadline deadline, struct sl_err *err)
{
    int rc = 0;
    while (!rc && !request->answered)
        rc = sl_client_session_wait(request->session, &request->changed, deadline, err);
    if (!rc && request->err.code)
        rc = sl_err_copy(err, &request->err);
    return rc;
}

static int copy_name(char *to, const char *name, struct sl_err *err)
{
    if (strlen(name) >= SL_NAME_MAX)
        return sl_err_set(err, SL_ERR_USAGE, "name is longer than %d bytes", SL_NAME_MAX - 1);
    strcpy(to, name);
    return 0;
}

/* Asks once. `number` is where the message has the request's number. */
static int ask_once(struct request *request, struct sl_msg *msg, uint32_t *number,
                    sl_deadline deadline, struct sl_err *err)
{
    *number = request->number;
    pthread_mutex_lock(&request->session->lock);
    int rc = request_send(request, msg, err);
    if (!rc)
        rc = request_await(request, sl_client_session_io_deadline(request->session, deadline), err);
    pthread_mutex_unlock(&request->session->lock);
    return rc;
}

/* Asks, in the session there is, and again in a new one when that was lost: all of these questions
 * may be asked twice. The answer is in `*request`, which nothing else holds any more. */
static int ask(struct sl_client *client, struct request *request, enum sl_msg_type expected,
               struct sl_msg *msg, uint32_t *number, sl_deadline deadline, struct sl_err *err)
{
    unsigned tries = 0;
    int rc;
    do {
        rc = request_begin(request, client, expected, deadline, err);
        if (rc)
            return rc;
        rc = ask_once(request, msg, number, deadline, err);
        request_end(request);
    } while (sl_client_again(rc, &tries, deadline));
    return rc;
}

/* --- the questions --------------------------------------------------------------------------- */

int sl_client_stat(struct sl_client *client, const char *name, sl_deadline deadline,
                   struct sl_object_info *ret_info, struct sl_err *err)
{
    struct sl_msg msg = {.type = SL_MSG_STAT};
    struct request request;
    int rc = copy_name(msg.stat.name, name, err);
    if (!rc)
        rc = ask(client, &request, SL_MSG_STATED, &msg, &msg.stat.request, deadline, err);
    if (rc)
        return rc;
    const struct sl_msg_stated *stated = &request.stated;
    if (!stated->exists)
        return 0;
    if (ret_info) {
        *ret_info = (struct sl_object_info){
            .length = stated->length, .created_ns = stated->created_ns, .digest = stated->digest};
        snprintf(ret_info->creator, sizeof ret_info->creator, "%s", stated->creator);
    }
    return 1;
}

int sl_client_space(struct sl_client *client, sl_deadline deadline, uint64_t *ret_free,
                    uint64_t *ret_total, struct sl_err *err)
{
    struct sl_msg msg = {.type = SL_MSG_SPACE};
    struct request request;
    int rc = ask(client, &request, SL_MSG_SPACED, &msg, &msg.space.request, deadline, err);
    if (rc)
        return rc;
    *ret_free = request.spaced.free_bytes;
    *ret_total = request.spaced.total_bytes;
    return 0;
}

int sl_client_remove(struct sl_client *client, const char *name, sl_deadline deadline,
                     struct sl_err *err)
{
    struct sl_msg msg = {.type = SL_MSG_REMOVE};
    struct request request;
    int rc = copy_name(msg.remove.name, name, err);
    if (!rc)
        rc = ask(client, &request, SL_MSG_REMOVED, &msg, &msg.remove.request, deadline, err);
    return rc;
}

int sl_client_sweep(struct sl_client *client, uint64_t age_ns, sl_deadline deadline,
                    uint64_t *ret_removed, struct sl_err *err)
{
    struct sl_msg msg = {.type = SL_MSG_SWEEP};
    struct request request;
    msg.sweep.age_ns = age_ns;
    int rc = ask(client, &request, SL_MSG_SWEPT, &msg, &msg.sweep.request, deadline, err);
    if (!rc)
        *ret_removed = request.swept.removed;
    return rc;
}

/* Hands a page's entries out; `after` becomes the last name. They must rise, or the listing would
 * never end. */
static int visit_page(const struct request *request, char *after,
                      int (*visit)(void *arg, const struct sl_entry *entry), void *arg,
                      struct sl_err *err)
{
    struct sl_reader r = sl_reader_on(request->listed.entries, request->listed.bytes);
    while (sl_reader_left(&r)) {
        struct sl_entry entry;
        sl_entry_read(&r, &entry);
        if (r.failed || !entry.name[0] || strcmp(entry.name, after) <= 0)
            return sl_err_set(err, SL_ERR_PROTOCOL, "the target's list is malformed");
        snprintf(after, SL_NAME_MAX, "%s", entry.name);
        int rc = visit(arg, &entry);
        if (rc)
            return rc; /* with the visitor's own err */
    }
    if (request->listed.more && !request->listed.bytes)
        return sl_err_set(err, SL_ERR_PROTOCOL, "the target's list is malformed");
    return 0;
}

int sl_client_list(struct sl_client *client, const char *folder, const char *after,
                   int (*visit)(void *arg, const struct sl_entry *entry), void *arg,
                   sl_deadline deadline, struct sl_err *err)
{
    struct sl_msg msg = {.type = SL_MSG_LIST};
    int rc = copy_name(msg.list.name, folder, err);
    if (!rc)
        rc = copy_name(msg.list.after, after ? after : "", err);
    msg.list.limit = LIST_LIMIT;
    bool more = true;
    while (!rc && more) {
        struct request request = {0};
        rc = ask(client, &request, SL_MSG_LISTED, &msg, &msg.list.request, deadline, err);
        if (!rc)
            rc = visit_page(&request, msg.list.after, visit, arg, err);
        more = request.listed.more;
        sl_free(request.listed.entries);
    }
    return rc;
}

/* --- verify ---------------------------------------------------------------------------------- */

static void tell_damages(struct damage *damages,
                         void (*damage)(void *arg, const char *name, int code, const char *text),
                         void *arg)
{
    for (struct damage *next; damages; damages = next) {
        next = damages->next;
        if (damage)
            damage(arg, damages->name, damages->code, damages->text);
        sl_free(damages);
    }
}

/* With the lock held: until something came; takes what did. */
static int await_step(struct request *request, struct damage **ret_damages, bool *ret_moved,
                      struct sl_err *err)
{
    struct session *session = request->session;
    sl_deadline deadline = sl_client_session_io_deadline(session, UINT64_MAX);
    int rc = 0;
    while (!rc && !request->answered && !request->verify.moved && !request->verify.damages)
        rc = sl_client_session_wait(session, &request->changed, deadline, err);
    if (!rc && request->err.code)
        rc = sl_err_copy(err, &request->err);
    *ret_damages = request->verify.damages;
    *ret_moved = request->verify.moved;
    request->verify.damages = NULL;
    request->verify.last = &request->verify.damages;
    request->verify.count = 0;
    request->verify.moved = false;
    return rc;
}

int sl_client_verify(struct sl_client *client, const char *folder,
                     void (*damage)(void *arg, const char *name, int code, const char *text),
                     void (*step)(void *arg, const struct sl_verify_progress *progress), void *arg,
                     struct sl_verify_progress *ret_total, struct sl_err *err)
{
    struct sl_msg msg = {.type = SL_MSG_VERIFY};
    struct request request;
    int rc = copy_name(msg.verify.name, folder, err);
    if (!rc)
        rc = request_begin(&request, client, SL_MSG_VERIFIED,
                           sl_deadline_in_ms(client->config.io_ms), err);
    if (rc)
        return rc;
    struct session *session = request.session;
    msg.verify.request = request.number;
    struct sl_verify_progress progress = {0};
    bool done = false;
    pthread_mutex_lock(&session->lock);
    rc = request_send(&request, &msg, err);
    while (!rc && !done) {
        struct damage *damages;
        bool moved;
        rc = await_step(&request, &damages, &moved, err);
        progress = request.verify.progress;
        done = request.answered;
        pthread_mutex_unlock(&session->lock);
        tell_damages(damages, damage, arg);
        if (!rc && moved && step)
            step(arg, &progress);
        pthread_mutex_lock(&session->lock);
        done = done && !request.verify.damages;
    }
    pthread_mutex_unlock(&session->lock);
    request_end(&request);
    tell_damages(request.verify.damages, NULL, NULL);
    if (!rc && ret_total)
        *ret_total = progress;
    return rc;
}

/* --- answers (control thread, lock held) -------------------------------------------------------
 */

static struct request *find(struct session *session, uint32_t number)
{
    struct request *request = session->requests;
    while (request && request->number != number)
        request = request->next;
    return request;
}

static void answer(struct request *request)
{
    request->answered = true;
    pthread_cond_signal(&request->changed);
}

static void fail(struct request *request, int code, const char *text)
{
    sl_err_set(&request->err, code, "%s", text);
    answer(request);
}

static void take_list(struct request *request, const struct sl_msg_listed *listed)
{
    request->listed.entries = sl_alloc(listed->entries_bytes);
    if (!request->listed.entries) {
        fail(request, SL_ERR_NO_MEMORY, "out of memory");
        return;
    }
    memcpy(request->listed.entries, listed->entries, listed->entries_bytes);
    request->listed.bytes = listed->entries_bytes;
    request->listed.more = listed->more;
    answer(request);
}

static void take_progress(struct request *request, const struct sl_msg_verified *verified)
{
    request->verify.progress = (struct sl_verify_progress){
        verified->objects, verified->bytes, verified->damaged, verified->total_bytes};
    request->verify.moved = true;
    if (verified->done)
        answer(request);
    else
        pthread_cond_signal(&request->changed);
}

static void take_damage(struct request *request, const struct sl_msg_damage *told)
{
    struct damage *damage = NULL;
    if (request->verify.count < DAMAGES_MAX)
        damage = sl_alloc(sizeof *damage);
    if (!damage) {
        fail(request, SL_ERR_NO_MEMORY, "more damaged objects than could be remembered");
        return;
    }
    damage->next = NULL;
    damage->code = told->code && told->code < SL_INDEX_COUNT_ ? -(int)told->code : SL_ERR_INTERNAL;
    strcpy(damage->name, told->name); /* rooms are those of the message */
    strcpy(damage->text, told->text);
    *request->verify.last = damage;
    request->verify.last = &damage->next;
    request->verify.count++;
    pthread_cond_signal(&request->changed);
}

static uint32_t number_of(const struct sl_msg *msg, enum sl_msg_type *expected)
{
    *expected = msg->type;
    switch (msg->type) {
    case SL_MSG_STATED:
        return msg->stated.request;
    case SL_MSG_LISTED:
        return msg->listed.request;
    case SL_MSG_SPACED:
        return msg->spaced.request;
    case SL_MSG_REMOVED:
        return msg->removed.request;
    case SL_MSG_SWEPT:
        return msg->swept.request;
    case SL_MSG_VERIFIED:
        return msg->verified.request;
    default:
        *expected = SL_MSG_VERIFIED;
        return msg->damage.request;
    }
}

int sl_client_question_answered(struct session *session, const struct sl_msg *msg,
                                struct sl_err *err)
{
    enum sl_msg_type expected;
    uint32_t number = number_of(msg, &expected);
    struct request *request = find(session, number);
    if (!request && number < session->next_request)
        return 0; /* nobody waits for it any more */
    if (!request || request->expected != expected)
        return sl_err_set(err, SL_ERR_PROTOCOL, "%s answers no question",
                          sl_msg_name((int)msg->type));
    if (request->answered)
        return 0;
    if (msg->type == SL_MSG_STATED) {
        request->stated = msg->stated;
        answer(request);
    } else if (msg->type == SL_MSG_SPACED) {
        request->spaced = msg->spaced;
        answer(request);
    } else if (msg->type == SL_MSG_REMOVED) {
        answer(request);
    } else if (msg->type == SL_MSG_SWEPT) {
        request->swept = msg->swept;
        answer(request);
    } else if (msg->type == SL_MSG_LISTED) {
        take_list(request, &msg->listed);
    } else if (msg->type == SL_MSG_VERIFIED) {
        take_progress(request, &msg->verified);
    } else {
        take_damage(request, &msg->damage);
    }
    return 0;
}

void sl_client_question_failed(struct session *session, uint32_t number, const struct sl_err *why)
{
    struct request *request = find(session, number);
    if (!request || request->answered)
        return;
    request->err = *why;
    answer(request);
}

void sl_client_questions_wake(struct session *session)
{
    for (struct request *request = session->requests; request; request = request->next)
        pthread_cond_signal(&request->changed);
}
