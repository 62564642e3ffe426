/* The disk threads: everything that may wait for a disk and is neither a block nor a publication.
 * They make drafts and open and close objects (the task inside struct object), and answer STAT,
 * LIST (with listing.c), SPACE, REMOVE and SWEEP (struct question). VERIFY has threads of its own,
 * verify.c. */
#include "core/target/listing.h"
#include "core/target/target_internal.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/log.h"
#include "core/base/thread.h"

#include <stdio.h>
#include <string.h>

#define SWEEP_AGE_MIN_NS (3600 * SL_NS_PER_S) /* a writer that lives writes more often */

struct question {
    struct task task;
    uint32_t request, limit;
    bool own_only; /* REMOVE by one who may not but of its own leases */
    uint64_t age_ns, removed;
    int code;
    struct sl_err err;
    struct sl_trailer trailer;
    uint64_t free_bytes, total_bytes;
    struct listing *listing; /* of the page before, then for the next */
    struct page page;
    char name[SL_FULL_NAME_MAX];
    char after[SL_NAME_MAX];
};

/* --- asked (control thread) ------------------------------------------------------------------- */

static void refuse(struct session *session, uint32_t request, int code, const char *text)
{
    struct sl_err err;
    sl_err_set(&err, code, "%s", text);
    sl_target_answer_error(session, SL_ABOUT_REQUEST, request, &err);
}

static struct question *question_new(struct session *session, enum task_kind kind, uint32_t request)
{
    struct question *question = NULL;
    if (!sl_target_session_permitted(session))
        return NULL;
    if (session->tasks >= TASKS_MAX)
        refuse(session, request, SL_ERR_BUSY, "too many questions at once");
    else if (!(question = sl_calloc(1, sizeof *question)))
        refuse(session, request, SL_ERR_NO_MEMORY, "out of memory");
    if (!question)
        return NULL;
    question->task.mail.kind = MAIL_TASK;
    question->task.kind = kind;
    question->task.session = session;
    question->request = request;
    return question;
}

static void question_ask(struct question *question, const char *name, bool allow_empty)
{
    struct session *session = question->task.session;
    struct sl_err err;
    if (sl_repo_name(session->stanza, name, allow_empty, question->name, &err) != 0) {
        sl_target_answer_error(session, SL_ABOUT_REQUEST, question->request, &err);
        sl_target_listing_free(question->listing);
        sl_free(question);
        return;
    }
    session->tasks++;
    sl_target_disk_queue(session->target, &question->task);
}

static const char *leaf_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

static void refuse_removal(struct session *session, uint32_t request)
{
    struct sl_err err;
    sl_err_set(&err, SL_ERR_DENIED, "client \"%s\" may not remove anything from stanza \"%s\"",
               session->client, session->stanza);
    sl_err_hint(&err, "expire runs on a host that sluiced's configuration names in this stanza's "
                      "expire-clients, best not on a database host");
    sl_log_err(SL_LOG_WARN, "target", &err, "%s", session->label);
    sl_target_answer_error(session, SL_ABOUT_REQUEST, request, &err);
}

static void remove_arrived(struct session *session, const struct sl_msg_remove *msg)
{
    bool may = sl_target_session_may_remove(session);
    if (!may && strncmp(leaf_of(msg->name), SL_LEASE_PREFIX, strlen(SL_LEASE_PREFIX)) != 0) {
        refuse_removal(session, msg->request);
        return;
    }
    if (!strchr(msg->name, '/')) { /* stanza.json and its like */
        refuse(session, msg->request, SL_ERR_DENIED, "what describes a stanza is never removed");
        return;
    }
    struct question *question = question_new(session, TASK_REMOVE, msg->request);
    if (question) {
        question->own_only = !may;
        question_ask(question, msg->name, false);
    }
}

static void sweep_arrived(struct session *session, const struct sl_msg_sweep *msg)
{
    if (!sl_target_session_may_remove(session)) {
        refuse_removal(session, msg->request);
        return;
    }
    struct question *question = question_new(session, TASK_SWEEP, msg->request);
    if (question) {
        question->age_ns = msg->age_ns < SWEEP_AGE_MIN_NS ? SWEEP_AGE_MIN_NS : msg->age_ns;
        question_ask(question, "", true);
    }
}

void sl_target_question_arrived(struct session *session, const struct sl_msg *msg)
{
    struct question *question = NULL;
    if (msg->type == SL_MSG_STAT) {
        question = question_new(session, TASK_STAT, msg->stat.request);
        if (question)
            question_ask(question, msg->stat.name, false);
    } else if (msg->type == SL_MSG_SPACE) {
        question = question_new(session, TASK_SPACE, msg->space.request);
        if (question)
            question_ask(question, "", true);
    } else if (msg->type == SL_MSG_REMOVE) {
        remove_arrived(session, &msg->remove);
    } else if (msg->type == SL_MSG_SWEEP) {
        sweep_arrived(session, &msg->sweep);
    } else if ((question = question_new(session, TASK_LIST, msg->list.request))) {
        snprintf(question->after, sizeof question->after, "%s", msg->list.after);
        question->limit = msg->list.limit ? msg->list.limit : UINT32_MAX;
        question->listing = session->listing;
        session->listing = NULL;
        question_ask(question, msg->list.name, true);
    }
}

/* --- answered (a disk thread) ------------------------------------------------------------------
 */

/* A lease is its maker's to take back. */
static int check_owner(struct sl_repo *repo, struct question *question)
{
    struct sl_trailer trailer;
    const char *client = question->task.session->client;
    int rc = sl_object_stat(repo, question->name, &trailer, &question->err);
    if (rc || strcmp(trailer.creator, client) == 0)
        return rc;
    return sl_err_set(&question->err, SL_ERR_DENIED, "\"%s\" is a lease of \"%s\"", question->name,
                      trailer.creator);
}

/* Then the folders that are empty now, but those that every stanza has. */
static void remove_empty_folders(struct sl_store *store, char *name)
{
    for (char *slash; (slash = strrchr(name, '/'));) {
        *slash = '\0';
        const char *first = strchr(name, '/');
        if (!first || !strchr(first + 1, '/') || store->ops->remove(store, name, NULL) != 0)
            return;
    }
}

static int remove_object(struct sl_repo *repo, struct question *question)
{
    int sys = sl_fault("target.remove"); /* also a place to die at */
    if (sys > 0)
        return sl_err_sys(&question->err, SL_ERR_WRITE, sys, "could not remove \"%s\"",
                          question->name);
    int rc = question->own_only ? check_owner(repo, question) : 0;
    if (rc)
        return rc == SL_ERR_NOT_FOUND ? 0 : rc;
    rc = repo->store->ops->remove(repo->store, question->name, &question->err);
    if (rc)
        return rc;
    sl_log(SL_LOG_INFO, "target", "%s: removed \"%s\"", question->task.session->label,
           question->name);
    remove_empty_folders(repo->store, question->name);
    return 0;
}

void sl_target_question_run(struct sl_target *target, struct task *task)
{
    struct question *question = CONTAINER(task, struct question, task);
    struct sl_repo *repo = target->config.repo;
    if (task->kind == TASK_STAT && sl_journal_name(question->name))
        question->code = sl_growing_stat(repo, question->name, &question->trailer, &question->err);
    else if (task->kind == TASK_STAT)
        question->code = sl_object_stat(repo, question->name, &question->trailer, &question->err);
    else if (task->kind == TASK_REMOVE)
        question->code = remove_object(repo, question);
    else if (task->kind == TASK_SWEEP)
        question->code = repo->store->ops->sweep(repo->store, question->age_ns, &question->removed,
                                                 &question->err);
    else if (task->kind == TASK_SPACE)
        question->code = repo->store->ops->space(repo->store, &question->free_bytes,
                                                 &question->total_bytes, &question->err);
    else
        question->code =
            sl_target_listing_page(&question->listing, repo->store, question->name, question->after,
                                   question->limit, &question->page, &question->err);
}

static void object_run(struct sl_target *target, struct object *object)
{
    struct sl_repo *repo = target->config.repo;
    object->code = 0;
    switch (object->task.kind) {
    case TASK_CREATE:
        object->code = sl_draft_new(repo, object->name, object->length_hint,
                                    object->session->client, &object->draft, &object->err);
        break;
    case TASK_OPEN:
        object->code = (sl_journal_name(object->name) ? sl_growing_snapshot : sl_object_open)(
            repo, object->name, &object->opened, &object->err);
        break;
    case TASK_GROW:
    case TASK_APPEND:
    case TASK_SEAL:
        sl_target_growing_run(target, object);
        break;
    default:
        sl_growing_close(object->growing);
        object->growing = NULL;
        sl_draft_free(object->draft);
        sl_object_close(object->opened);
        object->draft = NULL;
        object->opened = NULL;
    }
}

/* --- told (control thread) ---------------------------------------------------------------------
 */

static void stated(const struct question *question)
{
    const struct sl_trailer *trailer = &question->trailer;
    struct sl_msg msg = {.type = SL_MSG_STATED};
    msg.stated.request = question->request;
    if (question->code == 0) {
        msg.stated.exists = 1;
        msg.stated.length = trailer->length;
        msg.stated.digest = trailer->content_digest;
        msg.stated.created_ns = trailer->created_ns;
        snprintf(msg.stated.creator, sizeof msg.stated.creator, "%s", trailer->creator);
    }
    sl_target_answer(question->task.session, &msg);
}

void sl_target_question_done(struct task *task)
{
    struct question *question = CONTAINER(task, struct question, task);
    struct session *session = task->session;
    struct sl_msg msg = {0};
    if (task->kind == TASK_STAT && (!question->code || question->code == SL_ERR_NOT_FOUND)) {
        stated(question);
    } else if (question->code) {
        sl_target_answer_error(session, SL_ABOUT_REQUEST, question->request, &question->err);
    } else if (task->kind == TASK_REMOVE) {
        msg.type = SL_MSG_REMOVED;
        msg.removed.request = question->request;
        sl_target_answer(session, &msg);
    } else if (task->kind == TASK_SWEEP) {
        msg.type = SL_MSG_SWEPT;
        msg.swept.request = question->request;
        msg.swept.removed = question->removed;
        sl_target_answer(session, &msg);
    } else if (task->kind == TASK_SPACE) {
        msg.type = SL_MSG_SPACED;
        msg.spaced.request = question->request;
        msg.spaced.free_bytes = question->free_bytes;
        msg.spaced.total_bytes = question->total_bytes;
        sl_target_answer(session, &msg);
    } else {
        msg.type = SL_MSG_LISTED;
        msg.listed.request = question->request;
        msg.listed.more = question->page.more;
        msg.listed.entries = question->page.entries;
        msg.listed.entries_bytes = question->page.bytes;
        sl_target_answer(session, &msg);
    }
    session->tasks--;
    if (question->listing) {
        sl_target_listing_free(session->listing); /* of another LIST meanwhile */
        session->listing = question->listing;
    }
    sl_free(question);
}

/* --- the threads -------------------------------------------------------------------------------
 */

static struct task *take(struct disk *disk)
{
    pthread_mutex_lock(&disk->lock);
    while (!disk->first && !disk->end)
        sl_cond_wait(&disk->more, &disk->lock, UINT64_MAX);
    struct task *task = disk->first;
    if (task) {
        disk->first = task->next;
        if (!disk->first)
            disk->last = &disk->first;
    }
    pthread_mutex_unlock(&disk->lock);
    return task;
}

static void *disk_run(void *arg)
{
    struct sl_target *target = arg;
    struct task *task;
    while ((task = take(&target->disk))) {
        if (task->kind <= TASK_CLOSE)
            object_run(target, CONTAINER(task, struct object, task));
        else
            sl_target_question_run(target, task);
        sl_target_mailbox_post_one(&target->box, &task->mail);
    }
    return NULL;
}

void sl_target_disk_queue(struct sl_target *target, struct task *task)
{
    struct disk *disk = &target->disk;
    pthread_mutex_lock(&disk->lock);
    task->next = NULL;
    *disk->last = task;
    disk->last = &task->next;
    pthread_cond_signal(&disk->more);
    pthread_mutex_unlock(&disk->lock);
}

int sl_target_disk_start(struct sl_target *target, struct sl_err *err)
{
    struct disk *disk = &target->disk;
    int rc = 0;
    disk->last = &disk->first;
    pthread_mutex_init(&disk->lock, NULL);
    sl_cond_init(&disk->more);
    disk->ready = true;
    while (!rc && disk->started < DISK_THREADS) {
        rc = sl_thread_start(&disk->threads[disk->started], "sl-disk", disk_run, target, err);
        disk->started += !rc;
    }
    return rc;
}

void sl_target_disk_end(struct sl_target *target)
{
    struct disk *disk = &target->disk;
    if (!disk->ready)
        return;
    pthread_mutex_lock(&disk->lock);
    disk->end = true;
    pthread_cond_broadcast(&disk->more);
    pthread_mutex_unlock(&disk->lock);
    for (unsigned i = 0; i < disk->started; i++)
        pthread_join(disk->threads[i], NULL);
    pthread_cond_destroy(&disk->more);
    pthread_mutex_destroy(&disk->lock);
}
