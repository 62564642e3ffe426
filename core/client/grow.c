/* Growing objects, the client's side: blocks are offered as those of an upload are, and the target
 * says how much is durable. To the session a growing object is an upload that is answered in
 * between. */
#include "core/base/alloc.h"
#include "core/client/client_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define BUSY_MS 200 /* the target's last session with it may not be over yet */

struct sl_grow {
    struct sl_upload upload; /* first: the session frees it as one */
};

/* --- opening ---------------------------------------------------------------------------------- */

static int prepare(struct sl_upload *upload, struct sl_err *err)
{
    struct session *session = upload->object.session;
    upload->slot = SL_SLOT_NONE;
    upload->growing = true;
    upload->object.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (upload->object.wake_fd < 0)
        return sl_err_sys(err, SL_ERR_LIMIT, errno, "could not make an eventfd");
    if (!(session->welcome.features & SL_FEATURE_GROW))
        return sl_err_set(err, SL_ERR_UNSUPPORTED, "target %s has no growing objects",
                          session->host);
    return session->sealed ? sl_sealer_new(session->secret_up, &upload->sealer, err) : 0;
}

static int ask(struct sl_upload *upload, uint64_t known, sl_deadline deadline, struct sl_err *err)
{
    struct session *session = upload->object.session;
    struct sl_msg msg = {.type = SL_MSG_GROW};
    pthread_mutex_lock(&session->lock);
    int rc = sl_client_upload_place(session, deadline, err);
    if (!rc) {
        sl_client_object_list(session, &upload->object);
        msg.grow.object = upload->object.number;
        msg.grow.known = known;
        strcpy(msg.grow.name, upload->object.name); /* both of SL_NAME_MAX */
        sl_client_session_send(session, &msg);
    }
    while (!rc && !upload->grown && !(rc = sl_client_object_error(&upload->object, err)))
        rc = sl_client_session_wait(session, &upload->object.changed, deadline, err);
    pthread_mutex_unlock(&session->lock);
    return rc;
}

static int open_once(struct sl_client *client, const char *name, uint64_t known,
                     sl_deadline deadline, struct sl_grow **ret_grow, struct sl_err *err)
{
    struct session *session;
    int rc = sl_client_session(client, deadline, &session, err);
    if (rc)
        return rc;
    struct sl_grow *grow = sl_calloc(1, sizeof *grow);
    rc = grow ? sl_client_object_init(&grow->upload.object, OBJECT_UPLOAD, session, name, err)
              : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    if (rc) {
        sl_free(grow);
        sl_client_session_unref(session);
        return rc;
    }
    rc = prepare(&grow->upload, err);
    if (!rc)
        rc = ask(&grow->upload, known, deadline, err);
    if (rc) {
        sl_client_upload_drop(&grow->upload);
        return rc;
    }
    *ret_grow = grow;
    return 0;
}

int sl_grow_open(struct sl_client *client, const char *name, uint64_t known, sl_deadline deadline,
                 struct sl_grow **ret_grow, uint64_t *ret_length, struct sl_err *err)
{
    int rc;
    while ((rc = open_once(client, name, known, deadline, ret_grow, err)) == SL_ERR_BUSY) {
        struct timespec pause = {.tv_nsec = BUSY_MS * 1000000L};
        if (deadline < sl_deadline_in_ms(BUSY_MS))
            return rc;
        nanosleep(&pause, NULL);
        int cancelled = sl_client_cancelled(client, err);
        if (cancelled)
            return cancelled;
    }
    if (!rc)
        *ret_length = (*ret_grow)->upload.started;
    return rc;
}

/* --- appending -------------------------------------------------------------------------------- */

/* With the lock held. */
static void forget_durable(struct sl_upload *upload)
{
    while (upload->ends_count && upload->ends[upload->ends_first] <= upload->durable) {
        upload->ends_first = (upload->ends_first + 1) % GROW_WINDOW;
        upload->ends_count--;
    }
}

static int wait_window(struct sl_upload *upload, struct sl_err *err)
{
    struct session *session = upload->object.session;
    uint64_t began = sl_client_stage_begin(session->client), now = sl_now_ns();
    pthread_mutex_lock(&session->lock);
    int rc = sl_client_upload_check(upload, err);
    while (!rc && (forget_durable(upload), upload->ends_count == GROW_WINDOW)) {
        rc =
            sl_client_session_wait(session, &upload->object.changed,
                                   sl_client_session_quiet_deadline(session, now, UINT64_MAX), err);
        if (!rc)
            rc = sl_client_upload_check(upload, err);
    }
    pthread_mutex_unlock(&session->lock);
    sl_client_stage_end(session->client, SL_STAGE_COMMIT, began);
    return rc;
}

static int fill_slot(struct sl_upload *upload, struct sl_offer *offer, const void *bytes,
                     struct sl_err *err)
{
    struct session *session = upload->object.session;
    int rc = sl_client_upload_slot(upload, err);
    if (rc)
        return rc;
    uint8_t *to = sl_client_slot_memory(&session->slots, upload->slot);
    offer->slot = upload->slot;
    if (!upload->sealer) {
        memcpy(to, bytes, offer->stored_bytes);
        return 0;
    }
    offer->seal_number = atomic_fetch_add(&session->seal_next, 1);
    return sl_seal(upload->sealer, offer, bytes, to, err);
}

static int append(struct sl_upload *upload, const void *bytes, size_t count, bool mark,
                  struct sl_err *err)
{
    struct session *session = upload->object.session;
    int rc = wait_window(upload, err);
    if (rc)
        return rc;
    struct sl_offer offer = {.object = upload->object.number,
                             .block = upload->blocks,
                             .stored_bytes = (uint32_t)count,
                             .plain_bytes = (uint32_t)count,
                             .codec = SL_CODEC_PLAIN,
                             .flags = mark ? SL_BLOCK_MARK : 0};
    offer.plain_digest = sl_digest(session->welcome.digest_seed, bytes, count);
    offer.stored_digest = offer.plain_digest;
    rc = fill_slot(upload, &offer, bytes, err);
    if (rc)
        return rc;
    pthread_mutex_lock(&session->lock);
    rc = sl_client_upload_check(upload, err);
    if (!rc) {
        upload->blocks++;
        upload->length += count;
        upload->ends[(upload->ends_first + upload->ends_count++) % GROW_WINDOW] = upload->length;
        upload->slot = SL_SLOT_NONE; /* the target's now */
        sl_client_offers_add(session, &offer);
        sl_client_offers_flush(session);
    }
    pthread_mutex_unlock(&session->lock);
    return rc;
}

int sl_grow_append(struct sl_grow *grow, const void *bytes, size_t count, bool mark,
                   struct sl_err *err)
{
    struct sl_upload *upload = &grow->upload;
    if (!count || count > SL_BLOCK_BYTES)
        return sl_err_set(err, SL_ERR_INTERNAL, "a block of %zu bytes", count);
    if (upload->failed)
        return sl_err_set(err, upload->failed, "\"%s\" has failed before", upload->object.name);
    upload->failed = append(upload, bytes, count, mark, err);
    return upload->failed;
}

/* --- what is durable -------------------------------------------------------------------------- */

int sl_grow_fd(const struct sl_grow *grow)
{
    return grow->upload.object.wake_fd;
}

int sl_grow_durable(struct sl_grow *grow, uint64_t *ret_durable, struct sl_err *err)
{
    struct session *session = grow->upload.object.session;
    uint64_t count;
    ssize_t ignored = read(grow->upload.object.wake_fd, &count, sizeof count);
    (void)ignored;
    pthread_mutex_lock(&session->lock);
    int rc = sl_client_upload_check(&grow->upload, err);
    *ret_durable = grow->upload.durable;
    pthread_mutex_unlock(&session->lock);
    return rc;
}

int sl_grow_wait(struct sl_grow *grow, sl_deadline deadline, struct sl_err *err)
{
    struct sl_upload *upload = &grow->upload;
    struct session *session = upload->object.session;
    pthread_mutex_lock(&session->lock);
    int rc = sl_client_upload_check(upload, err);
    while (!rc && upload->durable < upload->length) {
        rc = sl_client_session_wait(session, &upload->object.changed, deadline, err);
        if (!rc)
            rc = sl_client_upload_check(upload, err);
    }
    pthread_mutex_unlock(&session->lock);
    return rc;
}

/* --- the end ---------------------------------------------------------------------------------- */

static int seal(struct sl_upload *upload, sl_deadline deadline, struct sl_err *err)
{
    struct session *session = upload->object.session;
    struct sl_msg msg = {.type = SL_MSG_SEAL};
    msg.seal = (struct sl_msg_seal){.object = upload->object.number,
                                    .length = upload->length,
                                    .codec = (uint8_t)session->client->config.codec,
                                    .level = (uint8_t)session->client->config.codec_level};
    pthread_mutex_lock(&session->lock);
    int rc = sl_client_upload_check(upload, err);
    if (!rc) {
        upload->committed = true;
        sl_client_session_send(session, &msg);
    }
    /* all of it is read, packed and written again: the caller's deadline only */
    while (!rc && !upload->object.answered)
        rc = sl_client_session_wait(session, &upload->object.changed, deadline, err);
    if (upload->object.answered)
        rc = sl_client_object_error(&upload->object, err);
    pthread_mutex_unlock(&session->lock);
    return rc;
}

int sl_grow_seal(struct sl_grow *grow, sl_deadline deadline, struct sl_stored *ret_stored,
                 struct sl_err *err)
{
    struct sl_upload *upload = &grow->upload;
    int rc = upload->failed ? sl_err_set(err, upload->failed, "it has failed before")
                            : sl_grow_wait(grow, deadline, err);
    if (!rc)
        rc = seal(upload, deadline, err);
    if (rc)
        sl_err_prefix(err, "\"%s\"", upload->object.name);
    else if (ret_stored)
        *ret_stored =
            (struct sl_stored){upload->outcome, upload->digest, upload->length, upload->length};
    sl_client_upload_drop(upload);
    return rc;
}

void sl_grow_close(struct sl_grow *grow)
{
    if (grow)
        sl_client_upload_drop(&grow->upload);
}

/* --- messages (control thread, lock held) ------------------------------------------------------
 */

static struct sl_upload *find(struct session *session, uint32_t number, const char *what,
                              struct sl_err *err)
{
    struct object *object = sl_client_object_find(session, number);
    struct sl_upload *upload = (struct sl_upload *)object;
    err->code = 0;
    if (object && object->kind == OBJECT_UPLOAD && upload->growing)
        return upload;
    if (object || number >= session->next_object)
        sl_err_set(err, SL_ERR_PROTOCOL, "%s of object %u, which does not grow", what, number);
    return NULL;
}

int sl_client_grow_grown(struct session *session, const struct sl_msg_grown *grown,
                         struct sl_err *err)
{
    struct sl_upload *upload = find(session, grown->object, "GROWN", err);
    if (!upload)
        return err->code;
    if (upload->grown)
        return sl_err_set(err, SL_ERR_PROTOCOL, "GROWN a second time");
    upload->grown = true;
    upload->started = upload->length = upload->durable = grown->length;
    sl_client_object_wake(&upload->object);
    return 0;
}

int sl_client_grow_grew(struct session *session, const struct sl_msg_grew *grew, struct sl_err *err)
{
    struct sl_upload *upload = find(session, grew->object, "GREW", err);
    if (!upload)
        return err->code;
    if (!upload->grown || grew->length < upload->durable || grew->length > upload->length)
        return sl_err_set(err, SL_ERR_PROTOCOL, "GREW to an impossible length");
    session->progress_ns = sl_now_ns();
    upload->durable = grew->length;
    sl_client_object_wake(&upload->object);
    return 0;
}
