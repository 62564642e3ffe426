/* Packs: the content of many files one after the other in one object, then an index. A worker fills
 * one at a time. When its session is lost the pack is done over under a new number, so it keeps
 * the items of the pack at hand; their number is bounded, so is the memory. */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/log.h"
#include "core/object/object.h"
#include "postgres/backup_pack_internal.h"

#include <stdio.h>
#include <string.h>

#define PACK_CONTENT_BYTES (SL_PACK_BYTES - (32ull << 20)) /* the index fits behind it */
#define PACK_ITEMS_MAX     32768u

static int no_memory(struct sl_err *err)
{
    return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
}

/* --- a pack ------------------------------------------------------------------------------------
 */

static int begin_pack(struct sl_pg_packer *p, struct sl_err *err)
{
    struct sl_pg_backup *b = p->backup;
    char name[SL_NAME_MAX];
    pthread_mutex_lock(&b->lock);
    p->number = ++b->next_pack;
    pthread_mutex_unlock(&b->lock);
    sl_pg_pack_name(b->label, p->number, name);
    p->mark = sl_fragment_mark(p->fragment);
    p->groups.used = 0; /* of an attempt before */
    return sl_upload_begin(b->repository.client, name, b->base || b->broken ? 0 : b->pack_hint,
                           sl_pg_backup_deadline(b), &p->upload, err);
}

static int to_upload(void *arg, const void *bytes, size_t count, struct sl_err *err)
{
    struct sl_pg_packer *p = arg;
    return sl_upload_write(p->upload, bytes, count, err);
}

static int remember_pack(struct sl_pg_packer *p, const struct sl_stored *stored, struct sl_err *err)
{
    struct sl_pg_backup *b = p->backup;
    int rc = 0;
    pthread_mutex_lock(&b->lock);
    if (b->pack_count == b->pack_room) {
        size_t room = b->pack_room * 2 + 16;
        void *bigger = sl_realloc(b->packs, room * sizeof *b->packs);
        if (bigger) {
            b->packs = bigger;
            b->pack_room = room;
        } else {
            rc = no_memory(err);
        }
    }
    if (!rc) {
        struct sl_manifest_pack *pack = &b->packs[b->pack_count++];
        *pack = (struct sl_manifest_pack){
            .number = p->number, .length = stored->length, .digest = stored->digest};
        sl_pg_pack_name(b->label, p->number, pack->name);
    }
    pthread_mutex_unlock(&b->lock);
    return rc;
}

/* Before the pack itself: where the pack is, its groups are, too. A number whose pack never comes
 * to be has groups that nobody looks at. */
static int put_groups(struct sl_pg_packer *p, struct sl_err *err)
{
    struct sl_pg_backup *b = p->backup;
    char name[SL_NAME_MAX];
    uint8_t head[16];
    struct sl_upload *upload = NULL;
    struct sl_stored stored;
    if (!p->groups.used)
        return 0;
    sl_pg_groups_name(b->label, p->number, name);
    int rc = sl_upload_begin(b->repository.client, name, 0, sl_pg_backup_deadline(b), &upload, err);
    if (rc)
        return rc;
    rc = sl_upload_write(upload, head, sl_pg_groups_head(head), err);
    if (!rc)
        rc = sl_upload_write(upload, p->groups.bytes, p->groups.used, err);
    if (rc) {
        sl_upload_abort(upload);
        return rc;
    }
    rc = sl_upload_commit(upload, 0, sl_pg_backup_deadline(b), &stored, err);
    if (!rc)
        atomic_fetch_add(&b->stored_bytes, stored.stored_bytes);
    return rc;
}

static int end_pack(struct sl_pg_packer *p, struct sl_err *err)
{
    uint64_t index_bytes;
    struct sl_stored stored;
    int rc = put_groups(p, err);
    if (!rc)
        rc = sl_fragment_index(p->fragment, p->mark, to_upload, p, &index_bytes, err);
    if (rc)
        return rc;
    struct sl_upload *upload = p->upload;
    p->upload = NULL; /* commit frees it in any case */
    uint64_t length = sl_upload_length(upload);
    int fault = sl_fault("pg.pack_commit");
    if (fault) {
        sl_upload_abort(upload);
        return sl_err_sys(err, SL_ERR_CLOSED, fault, "could not commit a pack");
    }
    rc = sl_upload_commit(upload, index_bytes, sl_pg_backup_deadline(p->backup), &stored, err);
    if (rc)
        return rc;
    stored.length = length;
    atomic_fetch_add(&p->backup->stored_bytes, stored.stored_bytes);
    return remember_pack(p, &stored, err);
}

static void drop_pack(struct sl_pg_packer *p)
{
    sl_upload_abort(p->upload);
    p->upload = NULL;
}

/* --- filling packs -----------------------------------------------------------------------------
 */

static bool pack_is_full(const struct sl_pg_packer *p)
{
    return p->kept_count == PACK_ITEMS_MAX || p->groups.used > SL_PG_GROUPS_ROOM ||
           (p->kept_count && sl_upload_length(p->upload) + p->item.length > PACK_CONTENT_BYTES);
}

static void count_item(struct sl_pg_packer *p, const struct sl_pg_item *item)
{
    bool last = item->kind == SL_ENTRY_FILE && item->offset + item->length >= item->size;
    atomic_fetch_add(&p->backup->files, last ? 1 : 0);
    atomic_fetch_add(&p->backup->bytes, item->length);
    sl_progress_add(p->backup->invocation->progress, item->length, last ? 1 : 0);
}

/* Have the next item in hand, if there is one. */
static int ready(struct sl_pg_packer *p, sl_pg_take take, void *arg, struct sl_err *err)
{
    if (p->hand != EMPTY)
        return 0;
    int rc = take(arg, &p->item, err);
    if (rc < 0)
        return rc;
    p->hand = rc ? HOLDS : ENDED;
    return 0;
}

static int redo_kept(struct sl_pg_packer *p, struct sl_err *err)
{
    if (!p->kept_count)
        return 0;
    struct sl_pg_item *again = sl_alloc(sizeof *again);
    int rc = again ? 0 : no_memory(err);
    for (size_t i = 0; !rc && i < p->kept_count; i++) {
        sl_pg_packer_recall(p, i, again);
        rc = sl_pg_packer_store(p, again, err);
    }
    sl_free(again);
    return rc;
}

/* What was kept of an attempt before this one, then new items until the pack is full. */
static int fill_pack(struct sl_pg_packer *p, sl_pg_take take, void *arg, struct sl_err *err)
{
    int rc = begin_pack(p, err);
    if (!rc)
        rc = redo_kept(p, err);
    while (!rc && !(rc = ready(p, take, arg, err)) && p->hand == HOLDS && !pack_is_full(p)) {
        if (atomic_load(&p->backup->stop))
            return sl_err_set(err, SL_ERR_CANCELLED, "another worker failed");
        if ((rc = sl_pg_packer_keep(p, &p->item, err)) < 0)
            break;
        p->hand = EMPTY;
        count_item(p, &p->item);
        rc = sl_pg_packer_store(p, &p->item, err);
    }
    return rc ? rc : end_pack(p, err);
}

static bool try_again(const struct sl_pg_packer *p, struct sl_pg_retry *retry, int code)
{
    return !atomic_load(&p->backup->stop) && sl_pg_try_again(retry, code, p->backup->step_ms);
}

/* Before doing a pack over. */
static int drop_and_rewind(struct sl_pg_packer *p, struct sl_err *err)
{
    sl_log_err(SL_LOG_WARN, "postgres", err, "pack %u is done over", p->number);
    return sl_fragment_rewind(p->fragment, p->mark, err);
}

static int fill_pack_surely(struct sl_pg_packer *p, sl_pg_take take, void *arg, struct sl_err *err)
{
    struct sl_pg_retry retry = {0};
    for (;;) {
        int rc = fill_pack(p, take, arg, err);
        if (!rc)
            return 0;
        drop_pack(p);
        if (!try_again(p, &retry, rc) || (rc = drop_and_rewind(p, err)) < 0)
            return rc;
    }
}

static void packer_free(struct sl_pg_packer *p)
{
    drop_pack(p);
    sl_pg_groups_fini(&p->groups);
    sl_pg_based_fini(&p->based);
    sl_pg_based_fini(&p->resumed);
    sl_pages_free(p->buffer, SL_PG_GROUP_BYTES);
    sl_free(p->extents);
    sl_free(p->kept);
    sl_free(p->text);
    sl_free(p);
}

static struct sl_pg_packer *packer_new(struct sl_pg_backup *b, struct sl_fragment *fragment)
{
    struct sl_pg_packer *p = sl_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->backup = b;
    p->fragment = fragment;
    p->buffer = sl_pages_alloc(SL_PG_GROUP_BYTES);
    if (!p->buffer || sl_pg_groups_init(&p->groups, b->digest_seed, NULL) ||
        sl_pg_packer_extent_room(p, NULL)) {
        packer_free(p);
        return NULL;
    }
    return p;
}

int sl_pg_packer_run(struct sl_pg_backup *b, struct sl_fragment *fragment, sl_pg_take take,
                     void *arg, struct sl_err *err)
{
    struct sl_pg_packer *p = packer_new(b, fragment);
    if (!p)
        return no_memory(err);
    int rc = 0;
    while (!rc && !(rc = ready(p, take, arg, err)) && p->hand == HOLDS) {
        rc = fill_pack_surely(p, take, arg, err);
        p->kept_count = 0;
        p->text_used = 0;
    }
    packer_free(p);
    return rc;
}

/* --- files from memory -------------------------------------------------------------------------
 */

static int memory_pack(struct sl_pg_packer *p, const struct sl_pg_memory_file *files, size_t count,
                       const struct sl_pg_item *like, struct sl_err *err)
{
    int rc = begin_pack(p, err);
    for (size_t i = 0; !rc && i < count; i++) {
        uint64_t start = sl_upload_length(p->upload);
        sl_pg_packer_describe(p, like);
        snprintf(p->entry.path, sizeof p->entry.path, "%s", files[i].path);
        if (!files[i].bytes) {
            p->entry.kind = SL_ENTRY_FOLDER;
            p->entry.flags = 0;
            p->entry.mode |= 0700;
            rc = sl_fragment_add(p->fragment, &p->entry, err);
            continue;
        }
        p->entry.size = files[i].count;
        p->entry.crc32c = sl_crc32c(0, files[i].bytes, files[i].count);
        sl_pg_packer_extent(
            p,
            (struct sl_extent){.length = files[i].count, .pack_offset = start, .pack = p->number});
        rc = sl_upload_write(p->upload, files[i].bytes, files[i].count, err);
        if (!rc)
            rc = sl_fragment_add(p->fragment, &p->entry, err);
    }
    return rc ? rc : end_pack(p, err);
}

int sl_pg_packer_memory(struct sl_pg_backup *b, struct sl_fragment *fragment,
                        const struct sl_pg_memory_file *files, size_t count,
                        const struct sl_pg_item *like, struct sl_err *err)
{
    struct sl_pg_packer *p = packer_new(b, fragment);
    if (!p)
        return no_memory(err);
    struct sl_pg_retry retry = {0};
    int rc;
    while ((rc = memory_pack(p, files, count, like, err)) < 0) {
        drop_pack(p);
        if (!try_again(p, &retry, rc) || (rc = drop_and_rewind(p, err)) < 0)
            break;
    }
    for (size_t i = 0; !rc && i < count; i++) {
        unsigned file = files[i].bytes ? 1 : 0;
        atomic_fetch_add(&b->files, file);
        atomic_fetch_add(&b->bytes, files[i].count);
        sl_progress_add(b->invocation->progress, files[i].count, file);
    }
    packer_free(p);
    return rc;
}
