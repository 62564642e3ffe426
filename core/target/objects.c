/* Objects of a session: their numbers, states and end, the same for writing and reading. */
#include "core/target/target_internal.h"

#include "core/base/alloc.h"
#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

#define BIT(state) (1u << (state))

static const unsigned allowed[] = {
    [OBJECT_WRITING] = BIT(OBJECT_COMMITTED) | BIT(OBJECT_DROPPED),
    [OBJECT_COMMITTED] = BIT(OBJECT_PUBLISHING) | BIT(OBJECT_DROPPED),
    [OBJECT_PUBLISHING] = BIT(OBJECT_DROPPED),
    [OBJECT_OPENING] = BIT(OBJECT_READING) | BIT(OBJECT_DROPPED),
    [OBJECT_READING] = BIT(OBJECT_DROPPED),
    [OBJECT_DROPPED] = 0,
};

static bool is_writing(enum object_state state)
{
    return state <= OBJECT_PUBLISHING;
}

void sl_target_object_to(struct object *object, enum object_state state)
{
    struct session *session = object->session;
    if (!(allowed[object->state] & BIT(state)))
        abort(); /* our fault, as in piece.c */
    if (state == OBJECT_COMMITTED)
        session->committed++;
    if (state == OBJECT_DROPPED) {
        if (object->state == OBJECT_COMMITTED || object->state == OBJECT_PUBLISHING)
            session->committed--;
        (*(is_writing(object->state) ? &session->writing : &session->reading))--;
    }
    object->state = state;
}

static struct object **bucket(struct session *session, uint32_t number)
{
    return &session->objects[number % OBJECT_BUCKETS];
}

struct object *sl_target_object_find(struct session *session, uint32_t number)
{
    struct object *object = *bucket(session, number);
    while (object && object->number != number)
        object = object->next;
    return object;
}

bool sl_target_object_past(const struct session *session, uint32_t number)
{
    return session->any_object && number <= session->greatest;
}

/* Whoever can write marks could have expire remove what they lie beside. */
static bool is_forbidden_mark(const struct session *session, const char *name)
{
    const char *slash = strrchr(name, '/');
    return strcmp(slash ? slash + 1 : name, SL_TARGET_MARK) == 0 &&
           !sl_target_session_may_remove(session);
}

/* An object the client wants to begin. NULL when it cannot be: that was answered. */
struct object *sl_target_object_new(struct session *session, uint32_t number, const char *name,
                                    bool writing)
{
    struct sl_err err;
    char full[SL_FULL_NAME_MAX];
    if (sl_target_object_find(session, number)) {
        sl_target_session_violation(session, "object number %u is in use", number);
        return NULL;
    }
    if (!sl_target_session_permitted(session))
        return NULL;
    if (!session->any_object || number > session->greatest)
        session->greatest = number;
    session->any_object = true;
    struct object *object = NULL;
    if (session->target->stopping)
        sl_err_set(&err, SL_ERR_CLOSED, "the target is shutting down");
    else if (writing && is_forbidden_mark(session, name))
        sl_err_set(&err, SL_ERR_DENIED, "client \"%s\" may not mark anything as expired",
                   session->client);
    else if (writing && sl_journal_name(name))
        sl_err_set(&err, SL_ERR_USAGE, "name \"%s\" is that of a growing object's journal", name);
    else if ((writing ? session->writing : session->reading) >= OBJECTS_OPEN_MAX ||
             session->object_count >= OBJECTS_KEPT_MAX)
        sl_err_set(&err, SL_ERR_LIMIT, "too many objects are open in this session");
    else if (sl_repo_name(session->stanza, name, false, full, &err) == 0 &&
             !(object = sl_calloc(1, sizeof *object)))
        sl_err_set(&err, SL_ERR_NO_MEMORY, "out of memory");
    if (!object) {
        sl_target_answer_error(session, SL_ABOUT_OBJECT, number, &err);
        return NULL;
    }
    memcpy(object->name, full, sizeof full);
    object->number = number;
    object->session = session;
    object->state = writing ? OBJECT_WRITING : OBJECT_OPENING;
    object->published_mail.kind = MAIL_PUBLISHED;
    object->task.mail.kind = MAIL_TASK;
    object->task.session = session;
    object->next = *bucket(session, number);
    *bucket(session, number) = object;
    session->object_count++;
    (*(writing ? &session->writing : &session->reading))++;
    return object;
}

void sl_target_object_task(struct object *object, enum task_kind kind)
{
    object->disk_busy = true;
    object->task.kind = kind;
    sl_target_disk_queue(object->session->target, &object->task);
}

void sl_target_object_task_done(struct object *object)
{
    /* still busy meanwhile, so that dropping it there does not free it */
    if (object->grows)
        sl_target_growing_done(object);
    else if (object->task.kind == TASK_CREATE)
        sl_target_writing_created(object);
    else if (object->task.kind == TASK_OPEN)
        sl_target_reading_opened(object);
    object->disk_busy = false;
    if (object->grows)
        sl_target_growing_pump(object);
    sl_target_object_settle(object);
}

static void object_free(struct object *object)
{
    struct object **at = bucket(object->session, object->number);
    while (*at != object)
        at = &(*at)->next;
    *at = object->next;
    object->session->object_count--;
    sl_free(object);
}

void sl_target_object_settle(struct object *object)
{
    if (object->pieces || object->disk_busy)
        return;
    if (object->state == OBJECT_COMMITTED && object->draft) {
        sl_target_object_to(object, OBJECT_PUBLISHING);
        sl_target_committer_queue(object->session->target, object);
    } else if (object->state == OBJECT_DROPPED) {
        if (object->draft || object->opened || object->growing)
            sl_target_object_task(object, TASK_CLOSE);
        else
            object_free(object);
    }
}

/* A piece that was not begun comes to its end. */
static void piece_drop(struct piece *piece)
{
    if (piece->out)
        sl_target_answer_sent(piece->session, &piece->block, 0, SL_ERR_CANCELLED);
    else if (!piece->zero)
        sl_target_answer_taken(piece->session, piece->block.slot);
    sl_target_piece_free(piece);
}

void sl_target_object_drop(struct object *object)
{
    struct session *session = object->session;
    struct piece *piece, *next;
    if (object->state == OBJECT_DROPPED)
        return;
    sl_target_object_to(object, OBJECT_DROPPED);
    while ((piece = sl_target_piece_list_pop(&object->waiting))) {
        session->waiting--;
        piece_drop(piece);
    }
    sl_target_growing_drop(object);
    for (piece = session->queue.first; piece; piece = next) {
        next = piece->next;
        if (piece->object == object) {
            sl_target_schedule_remove(piece);
            piece_drop(piece);
        }
    }
    sl_target_object_settle(object);
}

void sl_target_object_fail(struct object *object, const struct sl_err *err)
{
    struct session *session = object->session;
    if (object->state == OBJECT_DROPPED)
        return;
    sl_log_err(SL_LOG_WARN, "target", err, "%s: object \"%s\" failed", session->label,
               object->name);
    if (err->code == SL_ERR_EXISTS)
        COUNT(session->target, objects_refused, 1);
    else
        COUNT(session->target, objects_failed, 1);
    sl_target_answer_error(session, SL_ABOUT_OBJECT, object->number, err);
    sl_target_object_drop(object);
}
