/* Objects that the target knows by number: what uploads and downloads have in common. */
#include "core/base/alloc.h"
#include "core/client/client_internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int sl_client_object_init(struct object *object, enum object_kind kind, struct session *session,
                          const char *name, struct sl_err *err)
{
    if (strlen(name) >= sizeof object->name)
        return sl_err_set(err, SL_ERR_USAGE, "name is longer than %zu bytes",
                          sizeof object->name - 1);
    if (sl_cond_init(&object->changed))
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    object->wake_fd = -1;
    object->kind = kind;
    object->session = session;
    snprintf(object->name, sizeof object->name, "%s", name);
    return 0;
}

void sl_client_object_free(struct object *object)
{
    struct session *session = object->session;
    if (object->kind == OBJECT_UPLOAD)
        sl_client_upload_fini((struct sl_upload *)object);
    else
        sl_client_download_fini((struct sl_download *)object);
    pthread_cond_destroy(&object->changed);
    if (object->wake_fd >= 0)
        close(object->wake_fd);
    sl_free(object);
    sl_client_session_unref(session);
}

static uint32_t *open_count(struct object *object)
{
    return object->kind == OBJECT_UPLOAD ? &object->session->writing : &object->session->reading;
}

void sl_client_object_list(struct session *session, struct object *object)
{
    object->number = session->next_object++;
    object->next = session->objects;
    object->listed = true;
    session->objects = object;
    ++*open_count(object);
}

void sl_client_object_unlist(struct object *object)
{
    struct session *session = object->session;
    if (!object->listed)
        return;
    for (struct object **at = &session->objects; *at; at = &(*at)->next)
        if (*at == object) {
            *at = object->next;
            break;
        }
    object->listed = false;
    --*open_count(object);
    pthread_cond_broadcast(&session->changed); /* somebody may wait for a place */
}

struct object *sl_client_object_find(struct session *session, uint32_t number)
{
    struct object *object = session->objects;
    while (object && object->number != number)
        object = object->next;
    return object;
}

void sl_client_object_wake(struct object *object)
{
    static const uint64_t one = 1;
    pthread_cond_broadcast(&object->changed);
    if (object->wake_fd >= 0) {
        ssize_t ignored = write(object->wake_fd, &one, sizeof one); /* full: it is readable */
        (void)ignored;
    }
}

void sl_client_objects_wake(struct session *session)
{
    for (struct object *object = session->objects; object; object = object->next)
        sl_client_object_wake(object);
}

/* At the session's end: those whose answer will not come any more. */
void sl_client_objects_free_abandoned(struct session *session)
{
    pthread_mutex_lock(&session->lock);
    struct object *gone = NULL, *next;
    for (struct object *object = session->objects; object; object = next) {
        next = object->next;
        if (!object->abandoned)
            continue;
        sl_client_object_unlist(object);
        object->next = gone;
        gone = object;
    }
    pthread_mutex_unlock(&session->lock);
    for (; gone; gone = next) {
        next = gone->next;
        sl_client_object_free(gone);
    }
}

void sl_client_object_answer(struct object *object)
{
    object->answered = true;
    sl_client_object_unlist(object);
    sl_client_object_wake(object);
    if (object->abandoned)
        sl_client_object_free(object);
}

int sl_client_object_error(const struct object *object, struct sl_err *err)
{
    if (!object->err.code)
        return 0;
    return sl_err_copy(err, &object->err);
}
