/* The committer: finishes and publishes objects whose blocks are all written. Everything that
 * waits when a batch ends is the next batch, so objects that arrive together share their syncs.
 * What publishing means is sl_repo_publish()'s business. */
#include "core/target/target_internal.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/thread.h"

#define BATCH_MAX 64

/* Finishes the draft; 0, or the object has its error. */
static int finish(struct object *object)
{
    int fault = sl_fault("target.finish");
    if (fault > 0)
        return object->code = sl_err_sys(&object->err, SL_ERR_WRITE, fault,
                                         "could not finish \"%s\"", object->name);
    return object->code = sl_draft_finish(object->draft, object->length, object->index_bytes,
                                          &object->digest, &object->err);
}

static void publish(struct sl_target *target, struct object **objects, size_t n,
                    struct sl_repo_publish *batch)
{
    struct object *finished[BATCH_MAX];
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (finish(objects[i]) == 0) {
            batch[count] = (struct sl_repo_publish){.draft = objects[i]->draft};
            finished[count++] = objects[i];
        }
    if (!count)
        return;
    sl_repo_publish(target->config.repo, batch, count);
    COUNT(target, batches, 1);
    COUNT(target, batch_objects, count);
    int fault = sl_fault("target.published");
    for (size_t i = 0; i < count; i++) {
        struct object *object = finished[i];
        object->code = batch[i].code;
        object->outcome = batch[i].outcome;
        object->digest = batch[i].digest;
        sl_err_copy(&object->err, &batch[i].err);
        if (!object->code && fault > 0) /* as if the answer were lost */
            object->code = sl_err_sys(&object->err, SL_ERR_SYNC, fault, "could not publish \"%s\"",
                                      object->name);
    }
}

static size_t take(struct committer *committer, struct object **objects)
{
    size_t n = 0;
    pthread_mutex_lock(&committer->lock);
    while (!committer->first && !committer->end)
        sl_cond_wait(&committer->more, &committer->lock, UINT64_MAX);
    while (committer->first && n < BATCH_MAX) {
        objects[n++] = committer->first;
        committer->first = committer->first->next_commit;
    }
    if (!committer->first)
        committer->last = &committer->first;
    pthread_mutex_unlock(&committer->lock);
    return n;
}

static void *committer_run(void *arg)
{
    struct sl_target *target = arg;
    struct object *objects[BATCH_MAX];
    static const size_t bytes = BATCH_MAX * sizeof(struct sl_repo_publish);
    struct sl_repo_publish *batch = sl_pages_alloc(bytes); /* too large for a stack */
    size_t n;
    while ((n = take(&target->committer, objects)) > 0) {
        if (!batch)
            batch = sl_pages_alloc(bytes);
        if (batch)
            publish(target, objects, n, batch);
        struct mail_chain chain;
        sl_target_mail_chain_init(&chain);
        for (size_t i = 0; i < n; i++) {
            if (!batch)
                objects[i]->code = sl_err_set(&objects[i]->err, SL_ERR_NO_MEMORY, "out of memory");
            sl_draft_free(objects[i]->draft);
            objects[i]->draft = NULL;
            sl_target_mail_chain_add(&chain, &objects[i]->published_mail);
        }
        sl_target_mailbox_post(&target->box, &chain);
    }
    sl_pages_free(batch, bytes);
    return NULL;
}

int sl_target_committer_start(struct sl_target *target, struct sl_err *err)
{
    struct committer *committer = &target->committer;
    committer->last = &committer->first;
    pthread_mutex_init(&committer->lock, NULL);
    sl_cond_init(&committer->more);
    committer->ready = true;
    int rc = sl_thread_start(&committer->thread, "sl-commit", committer_run, target, err);
    committer->started = !rc;
    return rc;
}

void sl_target_committer_queue(struct sl_target *target, struct object *object)
{
    struct committer *committer = &target->committer;
    pthread_mutex_lock(&committer->lock);
    object->next_commit = NULL;
    *committer->last = object;
    committer->last = &object->next_commit;
    pthread_cond_signal(&committer->more);
    pthread_mutex_unlock(&committer->lock);
}

void sl_target_committer_end(struct sl_target *target)
{
    struct committer *committer = &target->committer;
    if (!committer->ready)
        return;
    pthread_mutex_lock(&committer->lock);
    committer->end = true;
    pthread_cond_signal(&committer->more);
    pthread_mutex_unlock(&committer->lock);
    if (committer->started)
        pthread_join(committer->thread, NULL);
    pthread_cond_destroy(&committer->more);
    pthread_mutex_destroy(&committer->lock);
}
