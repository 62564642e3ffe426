/* The store in memory. It is simple rather than fast: a list of inodes, a list of names, both with
 * a durable and a visible side. Memory comes from malloc and not from sl_alloc, so that a test
 * which fails allocations fails those of the code under test. */
#include "tests/support/memory_store.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct bytes {
    uint8_t *at;
    size_t count;
};

struct inode {
    struct bytes visible, durable;
    unsigned opens;
    struct inode *next;
};

struct name {
    char *text;
    struct inode *visible, *durable; /* NULL: not there */
    struct name *next;               /* bytewise ascending */
};

struct memory_store {
    struct sl_store base;
    struct inode *inodes;
    struct name *names;
    uint64_t steps, fail_at, cut_at;
    int fail_code;
    bool cut, no_holes;
    enum memory_store_cripple cripple;
};

struct memory_file {
    struct sl_file base;
    struct inode *inode;
    bool writable;
};

struct memory_queue {
    struct sl_store_queue base;
    struct sl_store_done *done;
    size_t count;
};

static struct memory_store *of(const struct sl_store *store)
{
    union {
        const struct sl_store *in;
        struct memory_store *out;
    } cast = {store};
    return cast.out;
}

static void *need(void *memory)
{
    if (!memory)
        abort(); /* a test's own memory */
    return memory;
}

/* --- steps ----------------------------------------------------------------------------------- */

static int step(struct memory_store *s, const char *what, struct sl_err *err)
{
    s->steps++;
    if (s->cut_at && s->steps >= s->cut_at)
        s->cut = true;
    if (s->cut)
        return sl_err_set(err, SL_ERR_WRITE, "the power is off (%s)", what);
    if (s->fail_at && s->steps == s->fail_at)
        return sl_err_set(err, s->fail_code, "injected failure (%s)", what);
    return 0;
}

void sl_memory_store_reset_steps(struct sl_store *store)
{
    struct memory_store *s = of(store);
    s->steps = s->fail_at = s->cut_at = 0;
}

uint64_t sl_memory_store_steps(const struct sl_store *store)
{
    return of(store)->steps;
}

void sl_memory_store_fail(struct sl_store *store, uint64_t nth, int code)
{
    of(store)->fail_at = nth;
    of(store)->fail_code = code;
}

void sl_memory_store_cut(struct sl_store *store, uint64_t nth)
{
    of(store)->cut_at = nth;
}

bool sl_memory_store_is_cut(const struct sl_store *store)
{
    return of(store)->cut;
}

void sl_memory_store_cripple(struct sl_store *store, enum memory_store_cripple cripple)
{
    of(store)->cripple = cripple;
}

void sl_memory_store_no_holes(struct sl_store *store, bool no_holes)
{
    of(store)->no_holes = no_holes;
}

/* --- bytes, inodes, names -------------------------------------------------------------------- */

static void set_length(struct bytes *b, size_t count)
{
    b->at = need(realloc(b->at, count ? count : 1));
    if (count > b->count)
        memset(b->at + b->count, 0, count - b->count);
    b->count = count;
}

static void copy(struct bytes *to, const struct bytes *from)
{
    set_length(to, from->count);
    if (from->count)
        memcpy(to->at, from->at, from->count);
}

static struct inode *inode_new(struct memory_store *s)
{
    struct inode *inode = need(calloc(1, sizeof *inode));
    set_length(&inode->visible, 0);
    set_length(&inode->durable, 0);
    inode->next = s->inodes;
    s->inodes = inode;
    return inode;
}

static void collect_garbage(struct memory_store *s)
{
    for (struct inode **at = &s->inodes; *at;) {
        struct inode *inode = *at;
        bool used = inode->opens > 0;
        for (struct name *n = s->names; n; n = n->next)
            used |= n->visible == inode || n->durable == inode;
        if (used) {
            at = &inode->next;
            continue;
        }
        *at = inode->next;
        free(inode->visible.at);
        free(inode->durable.at);
        free(inode);
    }
}

static struct name *find(struct memory_store *s, const char *text)
{
    for (struct name *n = s->names; n; n = n->next)
        if (!strcmp(n->text, text))
            return n;
    return NULL;
}

static struct name *find_or_add(struct memory_store *s, const char *text)
{
    struct name *n = find(s, text);
    if (n)
        return n;
    struct name **at = &s->names;
    while (*at && strcmp((*at)->text, text) < 0)
        at = &(*at)->next;
    n = need(calloc(1, sizeof *n));
    n->text = need(strdup(text));
    n->next = *at;
    *at = n;
    return n;
}

void sl_memory_store_reboot(struct sl_store *store)
{
    struct memory_store *s = of(store);
    for (struct inode *i = s->inodes; i; i = i->next) {
        assert(!i->opens);
        copy(&i->visible, &i->durable);
    }
    for (struct name *n = s->names; n; n = n->next)
        n->visible = n->durable;
    collect_garbage(s);
    s->cut = false;
    s->base.poisoned = false;
    sl_memory_store_reset_steps(store);
}

/* --- files ----------------------------------------------------------------------------------- */

static struct sl_file *file_new(struct memory_store *s, struct inode *inode, bool writable)
{
    struct memory_file *f = need(calloc(1, sizeof *f));
    f->base.store = &s->base;
    f->inode = inode;
    f->writable = writable;
    inode->opens++;
    return &f->base;
}

static int memory_create(struct sl_store *store, const char *name_hint, uint64_t length_hint,
                         struct sl_file **ret_file, struct sl_err *err)
{
    (void)length_hint;
    int rc = sl_store_name_check(name_hint, false, err);
    if (rc == 0)
        rc = step(of(store), "create", err);
    if (rc)
        return rc;
    *ret_file = file_new(of(store), inode_new(of(store)), true);
    return 0;
}

static int memory_write(struct sl_file *file, const void *bytes, size_t count, uint64_t offset,
                        struct sl_err *err)
{
    struct memory_file *f = (struct memory_file *)file;
    int rc = step(of(file->store), "write", err);
    if (rc)
        return rc;
    assert(f->writable);
    if (offset + count > f->inode->visible.count)
        set_length(&f->inode->visible, offset + count);
    memcpy(f->inode->visible.at + offset, bytes, count);
    return 0;
}

static int memory_truncate(struct sl_file *file, uint64_t length, struct sl_err *err)
{
    struct memory_file *f = (struct memory_file *)file;
    int rc = step(of(file->store), "truncate", err);
    if (rc)
        return rc;
    assert(f->writable);
    set_length(&f->inode->visible, length);
    return 0;
}

static void memory_close(struct sl_file *file)
{
    if (!file)
        return;
    struct memory_file *f = (struct memory_file *)file;
    f->inode->opens--;
    collect_garbage(of(file->store));
    free(f);
}

static int memory_open(struct sl_store *store, const char *name, struct sl_file **ret_file,
                       uint64_t *ret_length, struct sl_err *err)
{
    int rc = sl_store_name_check(name, false, err);
    if (rc == 0)
        rc = step(of(store), "open", err);
    if (rc)
        return rc;
    struct name *n = find(of(store), name);
    if (!n || !n->visible)
        return sl_err_set(err, SL_ERR_NOT_FOUND, "\"%s\" is not in %s", name, store->label);
    *ret_file = file_new(of(store), n->visible, false);
    *ret_length = n->visible->visible.count;
    return 0;
}

static int memory_read(struct sl_file *file, void *bytes, size_t count, uint64_t offset,
                       struct sl_err *err)
{
    const struct bytes *b = &((struct memory_file *)file)->inode->visible;
    int rc = step(of(file->store), "read", err);
    if (rc)
        return rc;
    if (offset > b->count || count > b->count - offset)
        return sl_err_set(err, SL_ERR_FORMAT, "the file is too short");
    memcpy(bytes, b->at + offset, count);
    return 0;
}

static int memory_has_data(struct sl_file *file, uint64_t offset, uint64_t count,
                           struct sl_err *err)
{
    const struct bytes *b = &((struct memory_file *)file)->inode->visible;
    int rc = step(of(file->store), "has_data", err);
    if (rc || of(file->store)->no_holes)
        return rc ? rc : 1;
    for (uint64_t i = offset; i < offset + count && i < b->count; i++)
        if (b->at[i])
            return 1;
    return 0;
}

/* --- publication ----------------------------------------------------------------------------- */

static int sync_file(struct memory_store *s, struct inode *inode, struct sl_err *err)
{
    int rc = step(s, "sync of a file", err);
    if (rc == 0 && s->cripple != MEMORY_STORE_NO_FILE_SYNC)
        copy(&inode->durable, &inode->visible);
    return rc;
}

static int sync_name(struct memory_store *s, struct name *n, struct sl_err *err)
{
    int rc = step(s, "sync of a folder", err);
    if (rc == 0 && s->cripple != MEMORY_STORE_NO_FOLDER_SYNC)
        n->durable = n->visible;
    if (rc && !s->cut)
        s->base.poisoned = true;
    return rc;
}

static int refuse_poisoned(const struct sl_store *store, struct sl_err *err)
{
    return store->poisoned ? sl_err_set(err, SL_ERR_SYNC, "the store is poisoned") : 0;
}

/* The steps of one item, in the order of the contract: file, name, folder. */
static int publish_one(struct memory_store *s, struct sl_publish *item, int phase)
{
    struct memory_file *f = (struct memory_file *)item->file;
    struct name *n;
    int rc = refuse_poisoned(&s->base, &item->err);
    if (rc)
        return rc;
    switch (phase) {
    case 0:
        f->writable = false;
        rc = sl_store_name_check(item->name, false, &item->err);
        return rc ? rc : sync_file(s, f->inode, &item->err);
    case 1:
        rc = step(s, "link", &item->err);
        if (rc)
            return rc;
        n = find_or_add(s, item->name);
        item->result = n->visible ? SL_PUBLISH_TAKEN : SL_PUBLISH_CREATED;
        if (!n->visible)
            n->visible = f->inode;
        return 0;
    default:
        return item->result == SL_PUBLISH_CREATED ? sync_name(s, find(s, item->name), &item->err)
                                                  : 0;
    }
}

static int memory_publish(struct sl_store *store, struct sl_publish *batch, size_t count)
{
    int failed = 0;
    for (size_t i = 0; i < count; i++) {
        batch[i].result = SL_PUBLISH_FAILED;
        batch[i].err = (struct sl_err){0};
    }
    for (int phase = 0; phase < 3; phase++)
        for (size_t i = 0; i < count; i++) {
            if (batch[i].err.code)
                continue;
            int rc = publish_one(of(store), &batch[i], phase);
            if (rc) {
                batch[i].result = SL_PUBLISH_FAILED;
                failed = rc;
            }
        }
    return failed;
}

static int memory_settle(struct sl_store *store, const char *name, struct sl_err *err)
{
    struct memory_store *s = of(store);
    struct name *n = find(s, name);
    int rc = refuse_poisoned(store, err);
    if (rc)
        return rc;
    if (!n || !n->visible)
        return sl_err_set(err, SL_ERR_NOT_FOUND, "\"%s\" is not there", name);
    if (s->cripple == MEMORY_STORE_NO_SETTLE)
        return 0;
    rc = sync_file(s, n->visible, err);
    return rc ? rc : sync_name(s, n, err);
}

/* --- the rest -------------------------------------------------------------------------------- */

/* The component of `text` below `folder`, or NULL; its length. */
static const char *component_below(const char *text, const char *folder, size_t *ret_length)
{
    size_t length = strlen(folder);
    if (length && (strncmp(text, folder, length) != 0 || text[length] != '/'))
        return NULL;
    const char *component = length ? text + length + 1 : text;
    *ret_length = strcspn(component, "/");
    return component;
}

struct listed {
    char name[256];
    bool is_folder;
    uint64_t length;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct listed *)a)->name, ((const struct listed *)b)->name);
}

static size_t collect(struct memory_store *s, const char *folder, struct listed **ret_entries)
{
    struct listed *entries = NULL;
    size_t count = 0, length;
    for (struct name *n = s->names; n; n = n->next) {
        const char *component = component_below(n->text, folder, &length);
        if (!n->visible || !component)
            continue;
        bool is_folder = component[length] == '/', known = false;
        for (size_t i = 0; i < count; i++)
            known |=
                strlen(entries[i].name) == length && !memcmp(entries[i].name, component, length);
        if (known)
            continue;
        entries = need(realloc(entries, (count + 1) * sizeof *entries));
        snprintf(entries[count].name, sizeof entries[count].name, "%.*s", (int)length, component);
        entries[count].is_folder = is_folder;
        entries[count++].length = is_folder ? 0 : n->visible->visible.count;
    }
    if (count)
        qsort(entries, count, sizeof *entries, by_name);
    *ret_entries = entries;
    return count;
}

static int memory_list(struct sl_store *store, const char *folder,
                       int (*visit)(void *arg, const char *name, bool is_folder, uint64_t length),
                       void *arg, struct sl_err *err)
{
    int rc = sl_store_name_check(folder, true, err);
    if (rc == 0)
        rc = step(of(store), "list", err);
    if (rc)
        return rc;
    struct listed *entries;
    size_t count = collect(of(store), folder, &entries);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = visit(arg, entries[i].name, entries[i].is_folder, entries[i].length);
    free(entries);
    return rc;
}

static int memory_space(struct sl_store *store, uint64_t *ret_free, uint64_t *ret_total,
                        struct sl_err *err)
{
    int rc = step(of(store), "space", err);
    if (rc == 0)
        *ret_free = *ret_total = 1ull << 40;
    return rc;
}

static int memory_remove(struct sl_store *store, const char *name, struct sl_err *err)
{
    int rc = step(of(store), "remove", err);
    struct name *n = find(of(store), name);
    if (rc == 0 && n)
        n->visible = n->durable = NULL;
    collect_garbage(of(store));
    return rc;
}

static int memory_sweep(struct sl_store *store, uint64_t age_ns, uint64_t *ret_removed,
                        struct sl_err *err)
{
    (void)age_ns;
    int rc = step(of(store), "sweep", err);
    if (rc == 0)
        *ret_removed = 0;
    return rc;
}

static void memory_free(struct sl_store *store)
{
    if (!store)
        return;
    struct memory_store *s = of(store);
    while (s->names) {
        struct name *n = s->names;
        s->names = n->next;
        free(n->text);
        free(n);
    }
    collect_garbage(s);
    assert(!s->inodes); /* a file was left open */
    free(s);
}

/* --- queues: done at once, reaped later ------------------------------------------------------ */

static int queue_new(struct sl_store *store, unsigned depth, struct sl_store_queue **ret_queue,
                     struct sl_err *err)
{
    int rc = step(of(store), "queue_new", err);
    if (rc)
        return rc;
    struct memory_queue *q = need(calloc(1, sizeof *q));
    q->done = need(calloc(depth, sizeof *q->done));
    q->base = (struct sl_store_queue){
        .store = store, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .depth = depth};
    *ret_queue = &q->base;
    return 0;
}

static void queue_free(struct sl_store_queue *queue)
{
    if (!queue)
        return;
    close(queue->fd);
    free(((struct memory_queue *)queue)->done);
    free(queue);
}

static int queue_finish(struct sl_store_queue *queue, uint64_t context, int code)
{
    struct memory_queue *q = (struct memory_queue *)queue;
    q->done[q->count++] = (struct sl_store_done){context, code, code ? EIO : 0};
    queue->in_flight++;
    return 0;
}

static int queue_write(struct sl_store_queue *queue, struct sl_file *file, const void *bytes,
                       size_t count, uint64_t offset, uint64_t context)
{
    if (queue->in_flight == queue->depth)
        return SL_ERR_BUSY;
    return queue_finish(queue, context, memory_write(file, bytes, count, offset, NULL));
}

static int queue_read(struct sl_store_queue *queue, struct sl_file *file, void *bytes, size_t count,
                      uint64_t offset, uint64_t context)
{
    if (queue->in_flight == queue->depth)
        return SL_ERR_BUSY;
    return queue_finish(queue, context, memory_read(file, bytes, count, offset, NULL));
}

static int queue_flush(struct sl_store_queue *queue)
{
    return queue->in_flight ? eventfd_write(queue->fd, 1) : 0;
}

static size_t queue_reap(struct sl_store_queue *queue, struct sl_store_done *done, size_t max)
{
    struct memory_queue *q = (struct memory_queue *)queue;
    size_t count = q->count < max ? q->count : max;
    eventfd_t ignored;
    memcpy(done, q->done, count * sizeof *done);
    memmove(q->done, q->done + count, (q->count - count) * sizeof *done);
    q->count -= count;
    queue->in_flight -= (unsigned)count;
    if (!q->count && eventfd_read(queue->fd, &ignored) != 0)
        return count; /* nothing was signalled yet */
    return count;
}

static const struct sl_store_ops memory_ops = {
    .name = "memory",
    .free = memory_free,
    .create = memory_create,
    .write = memory_write,
    .truncate = memory_truncate,
    .publish = memory_publish,
    .settle = memory_settle,
    .open = memory_open,
    .read = memory_read,
    .has_data = memory_has_data,
    .close = memory_close,
    .list = memory_list,
    .space = memory_space,
    .remove = memory_remove,
    .sweep = memory_sweep,
    .queue_new = queue_new,
    .queue_free = queue_free,
    .queue_write = queue_write,
    .queue_read = queue_read,
    .queue_flush = queue_flush,
    .queue_reap = queue_reap,
};

struct sl_store *sl_memory_store_new(void)
{
    struct memory_store *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->base.ops = &memory_ops;
    snprintf(s->base.label, sizeof s->base.label, "memory");
    return &s->base;
}

/* --- tampering ------------------------------------------------------------------------------- */

uint8_t *sl_memory_store_bytes(struct sl_store *store, const char *name, size_t *ret_count)
{
    struct name *n = find(of(store), name);
    if (!n || !n->visible)
        return NULL;
    *ret_count = n->visible->visible.count;
    return n->visible->visible.at;
}

void sl_memory_store_put_unsynced(struct sl_store *store, const char *name, const void *bytes,
                                  size_t count)
{
    struct inode *inode = inode_new(of(store));
    set_length(&inode->visible, count);
    if (count)
        memcpy(inode->visible.at, bytes, count);
    find_or_add(of(store), name)->visible = inode;
}

void sl_memory_store_put(struct sl_store *store, const char *name, const void *bytes, size_t count)
{
    sl_memory_store_put_unsynced(store, name, bytes, count);
    struct name *n = find(of(store), name);
    copy(&n->visible->durable, &n->visible->visible);
    n->durable = n->visible;
    collect_garbage(of(store));
}

void sl_memory_store_rename(struct sl_store *store, const char *from, const char *to)
{
    struct name *source = find(of(store), from), *target = find_or_add(of(store), to);
    target->visible = source->visible;
    target->durable = source->durable;
    source->visible = source->durable = NULL;
    collect_garbage(of(store));
}
