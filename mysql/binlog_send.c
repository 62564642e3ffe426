/* The sender's thread and its queue. It knows files and blocks, not events. */
#include "mysql/binlog_send.h"

#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/base/thread.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define QUEUED_MAX 4u              /* blocks */
#define IDLE_MS    1000u           /* then it looks whether its session still lives */
#define SEAL_MS    (3600u * 1000u) /* all of the file is read and written again */

enum item_kind { ITEM_BEGIN, ITEM_DATA, ITEM_SEAL };

struct item {
    struct item *next;
    enum item_kind kind;
    /* DATA */
    uint8_t *bytes; /* SL_BLOCK_BYTES */
    size_t count;
    bool mark; /* ends with an event's end */
    /* BEGIN */
    bool live;
    char *about;
    char file[SL_MY_BINLOG_NAME_MAX];
};

struct sl_my_sender {
    struct sl_client *client;
    unsigned timeout_ms;
    char folder[SL_NAME_MAX];
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    struct item *first, **last;
    struct item *filling; /* the last one, DATA */
    unsigned queued;      /* DATA */
    bool busy, end;
    uint64_t sealed;
    struct sl_err failure; /* code 0: none */
    /* the thread's */
    struct sl_grow *grow;
    struct sl_upload *upload;
    char file[SL_MY_BINLOG_NAME_MAX];
};

static void item_free(struct item *item)
{
    if (!item)
        return;
    sl_pages_free(item->bytes, SL_BLOCK_BYTES);
    sl_free(item->about);
    sl_free(item);
}

/* --- the thread --------------------------------------------------------------------------------
 */

static sl_deadline soon(const struct sl_my_sender *s)
{
    return sl_deadline_in_ms(s->timeout_ms);
}

static int begin(struct sl_my_sender *s, const struct item *item, struct sl_err *err)
{
    char name[SL_NAME_MAX];
    uint64_t length = 0;
    snprintf(s->file, sizeof s->file, "%s", item->file);
    snprintf(name, sizeof name, "%.300s/%s.about", s->folder, s->file);
    int rc = sl_client_put(s->client, name, item->about, strlen(item->about), soon(s), NULL, err);
    if (rc)
        return rc;
    snprintf(name, sizeof name, "%.300s/%s", s->folder, s->file);
    if (!item->live)
        return sl_upload_begin(s->client, name, 0, soon(s), &s->upload, err);
    rc = sl_grow_open(s->client, name, 0, soon(s), &s->grow, &length, err);
    if (!rc && length)
        rc = sl_err_set(err, SL_ERR_BUSY, "\"%s\" was begun by another archiver", name);
    return rc;
}

static int seal(struct sl_my_sender *s, struct sl_err *err)
{
    struct sl_stored stored;
    int rc;
    if (s->grow)
        rc = sl_grow_seal(s->grow, sl_deadline_in_ms(SEAL_MS), &stored, err);
    else if (s->upload)
        rc = sl_upload_commit(s->upload, 0, soon(s), &stored, err);
    else
        return 0; /* of an earlier run, and sealed by it */
    s->grow = NULL;
    s->upload = NULL;
    if (rc)
        return rc;
    sl_log(SL_LOG_INFO, "binlog", "archived %s: %" PRIu64 " bytes", s->file, stored.length);
    pthread_mutex_lock(&s->lock);
    s->sealed++;
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static int carry(struct sl_my_sender *s, const struct item *item, struct sl_err *err)
{
    switch (item->kind) {
    case ITEM_BEGIN:
        return begin(s, item, err);
    case ITEM_SEAL:
        return seal(s, err);
    default:
        break;
    }
    if (s->grow)
        return sl_grow_append(s->grow, item->bytes, item->count, item->mark, err);
    if (s->upload)
        return sl_upload_write(s->upload, item->bytes, item->count, err);
    return sl_err_set(err, SL_ERR_INTERNAL, "events without a file");
}

/* Idle: does what is under way still live? */
static int look(struct sl_my_sender *s, struct sl_err *err)
{
    uint64_t durable;
    if (s->grow)
        return sl_grow_durable(s->grow, &durable, err);
    return s->upload ? sl_upload_check(s->upload, err) : 0;
}

/* With the lock held. */
static struct item *take(struct sl_my_sender *s)
{
    struct item *item = s->first;
    if (!item)
        return NULL;
    s->first = item->next;
    if (!s->first)
        s->last = &s->first;
    if (item == s->filling)
        s->filling = NULL;
    s->queued -= item->kind == ITEM_DATA;
    return item;
}

static void *run(void *arg)
{
    struct sl_my_sender *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->end && !s->failure.code) {
        struct sl_err err = {0};
        struct item *item = take(s);
        if (!item) {
            sl_cond_wait(&s->changed, &s->lock, sl_deadline_in_ms(IDLE_MS));
            if (s->first || s->end)
                continue;
        }
        s->busy = true;
        pthread_mutex_unlock(&s->lock);
        int rc = item ? carry(s, item, &err) : look(s, &err);
        item_free(item);
        pthread_mutex_lock(&s->lock);
        s->busy = false;
        if (rc) {
            s->failure = err;
            s->failure.code = rc;
        }
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- its user ----------------------------------------------------------------------------------
 */

int sl_my_sender_new(const struct sl_my_sender_config *config, struct sl_my_sender **ret_sender,
                     struct sl_err *err)
{
    struct sl_my_sender *s = sl_calloc(1, sizeof *s);
    if (!s || sl_cond_init(&s->changed)) {
        sl_free(s);
        sl_grow_close(config->grow);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    }
    pthread_mutex_init(&s->lock, NULL);
    s->last = &s->first;
    s->client = config->client;
    s->timeout_ms = config->timeout_ms;
    s->grow = config->grow;
    snprintf(s->folder, sizeof s->folder, "%s", config->folder);
    snprintf(s->file, sizeof s->file, "%s", config->file ? config->file : "");
    int rc = sl_thread_start(&s->thread, "sl-my-binlog", run, s, err);
    if (rc) {
        sl_my_sender_free(s);
        return rc;
    }
    s->started = true;
    *ret_sender = s;
    return 0;
}

void sl_my_sender_free(struct sl_my_sender *s)
{
    struct item *item;
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->end = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->started)
        pthread_join(s->thread, NULL); /* every call of it has a deadline */
    while ((item = take(s)))
        item_free(item);
    sl_grow_close(s->grow);
    sl_upload_abort(s->upload);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    sl_free(s);
}

/* With the lock held. */
static int failed(struct sl_my_sender *s, struct sl_err *err)
{
    return s->failure.code ? sl_err_copy(err, &s->failure) : 0;
}

/* With the lock held. */
static void queue(struct sl_my_sender *s, struct item *item)
{
    *s->last = item;
    s->last = &item->next;
    s->filling = item->kind == ITEM_DATA ? item : NULL;
    s->queued += item->kind == ITEM_DATA;
    pthread_cond_broadcast(&s->changed);
}

static int queue_command(struct sl_my_sender *s, struct item *item, struct sl_err *err)
{
    pthread_mutex_lock(&s->lock);
    int rc = failed(s, err);
    if (!rc)
        queue(s, item);
    pthread_mutex_unlock(&s->lock);
    if (rc)
        item_free(item);
    return rc;
}

int sl_my_sender_begin(struct sl_my_sender *s, const char *file, bool live, const char *about,
                       struct sl_err *err)
{
    struct item *item = sl_calloc(1, sizeof *item);
    if (item)
        item->about = sl_strdup(about);
    if (!item || !item->about) {
        item_free(item);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    }
    item->kind = ITEM_BEGIN;
    item->live = live;
    snprintf(item->file, sizeof item->file, "%s", file);
    return queue_command(s, item, err);
}

int sl_my_sender_seal(struct sl_my_sender *s, struct sl_err *err)
{
    struct item *item = sl_calloc(1, sizeof *item);
    if (!item)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    item->kind = ITEM_SEAL;
    return queue_command(s, item, err);
}

/* With the lock held: a block with room for `wanted` bytes, or a new one. */
static int block_for(struct sl_my_sender *s, size_t wanted, struct item **ret_item,
                     struct sl_err *err)
{
    int rc = failed(s, err);
    if (!rc && s->filling && SL_BLOCK_BYTES - s->filling->count >= wanted) {
        *ret_item = s->filling;
        return 0;
    }
    while (!rc && s->queued >= QUEUED_MAX) { /* the thread's calls have deadlines */
        sl_cond_wait(&s->changed, &s->lock, sl_deadline_in_ms(IDLE_MS));
        rc = failed(s, err);
    }
    if (rc)
        return rc;
    struct item *item = sl_calloc(1, sizeof *item);
    if (item)
        item->bytes = sl_pages_alloc(SL_BLOCK_BYTES);
    if (!item || !item->bytes) {
        item_free(item);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    }
    item->kind = ITEM_DATA;
    queue(s, item);
    *ret_item = item;
    return 0;
}

int sl_my_sender_put(struct sl_my_sender *s, const void *bytes, size_t count, struct sl_err *err)
{
    const uint8_t *from = bytes;
    int rc = 0;
    pthread_mutex_lock(&s->lock);
    while (count && !rc) {
        /* an event that fits into a block is not cut, so that blocks end where it can go on */
        size_t part = count < SL_BLOCK_BYTES ? count : SL_BLOCK_BYTES;
        struct item *item = NULL;
        rc = block_for(s, part, &item, err);
        if (rc)
            break;
        memcpy(item->bytes + item->count, from, part);
        item->count += part;
        from += part;
        count -= part;
        item->mark = !count;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int sl_my_sender_wait(struct sl_my_sender *s, sl_deadline deadline, struct sl_err *err)
{
    pthread_mutex_lock(&s->lock);
    int rc = failed(s, err);
    while (!rc && (s->first || s->busy)) {
        if (sl_deadline_passed(deadline))
            rc = sl_err_set(err, SL_ERR_TIMEOUT, "events were not taken in time");
        else
            sl_cond_wait(&s->changed, &s->lock, deadline);
        if (!rc)
            rc = failed(s, err);
    }
    /* the thread is idle: it touches `grow` no more than this does */
    struct sl_grow *grow = rc ? NULL : s->grow;
    pthread_mutex_unlock(&s->lock);
    return grow ? sl_grow_wait(grow, deadline, err) : rc;
}

int sl_my_sender_check(struct sl_my_sender *s, struct sl_err *err)
{
    pthread_mutex_lock(&s->lock);
    int rc = failed(s, err);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

uint64_t sl_my_sender_sealed(struct sl_my_sender *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t sealed = s->sealed;
    pthread_mutex_unlock(&s->lock);
    return sealed;
}
