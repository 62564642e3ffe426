/* Packs: the content of many files one after the other in one object, then an index. A worker fills
 * one at a time. When its session is lost the pack is done over under a new number, so it keeps
 * the items of the pack at hand; their number is bounded, so is the memory. */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/log.h"
#include "core/object/object.h"
#include "postgres/backup_internal.h"
#include "postgres/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PACK_CONTENT_BYTES (SL_PACK_BYTES - (32ull << 20)) /* the index fits behind it */
#define PACK_ITEMS_MAX     32768u

/* An item kept for doing a pack over: as sl_pg_item, strings in an arena. */
struct kept {
    uint64_t size, offset, length, mtime_ns;
    uint32_t mode, uid, gid, path_at, link_at;
    uint8_t kind;
    bool whole;
};

struct sl_pg_packer {
    struct sl_pg_backup *backup;
    struct sl_fragment *fragment;
    struct sl_upload *upload; /* NULL between packs */
    uint32_t number;
    uint64_t mark;

    struct kept *kept;
    size_t kept_count, kept_room;
    char *text;
    size_t text_used, text_room;

    struct sl_pg_item item; /* in hand: the next one to store */
    enum { EMPTY, HOLDS, ENDED } hand;
    struct sl_manifest_entry entry;
    struct sl_extent *extents;
    size_t extent_room;
    struct sl_pg_groups groups;
    struct sl_pg_based based;
    uint8_t *buffer; /* SL_PG_GROUP_BYTES, with a base */
    struct sl_pg_page_check pages;
};

static int no_memory(struct sl_err *err)
{
    return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
}

/* --- keeping items -----------------------------------------------------------------------------
 */

static bool keep_text(struct sl_pg_packer *p, const char *text, uint32_t *ret_at)
{
    size_t bytes = strlen(text) + 1;
    if (p->text_used + bytes > p->text_room) {
        size_t room = p->text_room * 2 + bytes + 4096;
        char *bigger = sl_realloc(p->text, room);
        if (!bigger)
            return false;
        p->text = bigger;
        p->text_room = room;
    }
    memcpy(p->text + p->text_used, text, bytes);
    *ret_at = (uint32_t)p->text_used;
    p->text_used += bytes;
    return true;
}

static int keep(struct sl_pg_packer *p, const struct sl_pg_item *item, struct sl_err *err)
{
    if (p->kept_count == p->kept_room) {
        size_t room = p->kept_room * 2 + 64;
        struct kept *bigger = sl_realloc(p->kept, room * sizeof *bigger);
        if (!bigger)
            return no_memory(err);
        p->kept = bigger;
        p->kept_room = room;
    }
    struct kept *k = &p->kept[p->kept_count];
    *k = (struct kept){.size = item->size,
                       .offset = item->offset,
                       .length = item->length,
                       .mtime_ns = item->mtime_ns,
                       .mode = item->mode,
                       .uid = item->uid,
                       .gid = item->gid,
                       .kind = (uint8_t)item->kind,
                       .whole = item->whole};
    if (!keep_text(p, item->path, &k->path_at) || !keep_text(p, item->link, &k->link_at))
        return no_memory(err);
    p->kept_count++;
    return 0;
}

static void recall(const struct sl_pg_packer *p, size_t index, struct sl_pg_item *item)
{
    const struct kept *k = &p->kept[index];
    item->kind = k->kind;
    item->size = k->size;
    item->offset = k->offset;
    item->length = k->length;
    item->mtime_ns = k->mtime_ns;
    item->mode = k->mode;
    item->uid = k->uid;
    item->gid = k->gid;
    item->whole = k->whole;
    snprintf(item->path, sizeof item->path, "%s", p->text + k->path_at);
    snprintf(item->link, sizeof item->link, "%s", p->text + k->link_at);
}

/* --- a pack ------------------------------------------------------------------------------------
 */

static void pack_name(const struct sl_pg_backup *b, uint32_t number, char name[SL_NAME_MAX])
{
    snprintf(name, SL_NAME_MAX, "backup/%s/pack-%04u", b->label, number);
}

static int begin_pack(struct sl_pg_packer *p, struct sl_err *err)
{
    struct sl_pg_backup *b = p->backup;
    char name[SL_NAME_MAX];
    pthread_mutex_lock(&b->lock);
    p->number = ++b->next_pack;
    pthread_mutex_unlock(&b->lock);
    pack_name(b, p->number, name);
    p->mark = sl_fragment_mark(p->fragment);
    p->groups.used = 0; /* of an attempt before */
    return sl_upload_begin(b->repository.client, name, b->base ? 0 : b->pack_hint,
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
        pack_name(b, p->number, pack->name);
    }
    pthread_mutex_unlock(&b->lock);
    return rc;
}

static int end_pack(struct sl_pg_packer *p, struct sl_err *err)
{
    uint64_t index_bytes;
    struct sl_stored stored;
    int rc = sl_fragment_index(p->fragment, p->mark, to_upload, p, &index_bytes, err);
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
    rc = remember_pack(p, &stored, err);
    if (rc || !p->groups.used)
        return rc;
    pthread_mutex_lock(&p->backup->lock);
    rc = sl_pg_spool_append(p->backup->groups, p->groups.bytes, p->groups.used, err);
    pthread_mutex_unlock(&p->backup->lock);
    return rc;
}

static void drop_pack(struct sl_pg_packer *p)
{
    sl_upload_abort(p->upload);
    p->upload = NULL;
}

/* --- a file ------------------------------------------------------------------------------------
 */

static void describe(struct sl_pg_packer *p, const struct sl_pg_item *item)
{
    struct sl_manifest_entry *e = &p->entry;
    e->kind = (uint8_t)item->kind;
    e->flags = item->kind == SL_ENTRY_FILE ? SL_ENTRY_HAS_CRC32C : 0;
    e->mode = item->mode;
    e->uid = item->uid;
    e->gid = item->gid;
    e->mtime_ns = item->mtime_ns;
    e->size = 0;
    e->crc32c = 0;
    e->extent_count = 0;
    e->extents = p->extents;
    memcpy(e->path, item->path, strlen(item->path) + 1);
    memcpy(e->link, item->link, strlen(item->link) + 1);
}

/* Room for what one more group may add. */
static int extent_room(struct sl_pg_packer *p, struct sl_err *err)
{
    size_t needed = p->entry.extent_count + SL_PG_BASED_MOST + 2;
    if (needed > p->extent_room) {
        struct sl_extent *bigger = sl_realloc(p->extents, 2 * needed * sizeof *bigger);
        if (!bigger)
            return no_memory(err);
        p->extents = p->entry.extents = bigger;
        p->extent_room = 2 * needed;
    }
    return 0;
}

static void add_extent(struct sl_pg_packer *p, struct sl_extent extent)
{
    if (extent.length)
        sl_pg_extent_add(p->extents, &p->entry.extent_count, extent);
}

/* Reads [offset, offset + length) of the file into the upload; less when the file has become
 * shorter. */
static int copy_range(struct sl_pg_packer *p, int fd, uint64_t offset, uint64_t length,
                      uint64_t *ret_done, struct sl_err *err)
{
    struct sl_progress *progress = p->backup->invocation->progress;
    uint64_t done = 0;
    uint32_t crc = 0;
    while (done < length) {
        uint8_t *at;
        size_t room;
        int rc = sl_upload_space(p->upload, &at, &room, err);
        if (rc)
            return rc;
        if (room > length - done)
            room = (size_t)(length - done);
        uint64_t began = sl_now_ns();
        int fault = sl_fault("pg.backup_read");
        ssize_t n = fault ? -1 : pread(fd, at, room, (off_t)(offset + done));
        if (n < 0 && !fault && errno == EINTR)
            continue;
        if (n < 0)
            return sl_err_sys(err, SL_ERR_READ, fault ? fault : errno, "could not read \"%s\"",
                              p->entry.path);
        if (!n)
            break;
        uint64_t read_at = sl_now_ns();
        crc = sl_crc32c(crc, at, (size_t)n);
        sl_pg_page_check_feed(&p->pages, at, (size_t)n);
        sl_pg_groups_feed(&p->groups, at, (size_t)n);
        sl_progress_stage(progress, SL_STAGE_SOURCE, read_at - began);
        sl_progress_stage(progress, SL_STAGE_DIGEST, sl_now_ns() - read_at);
        if ((rc = sl_upload_advance(p->upload, (size_t)n, err)) < 0)
            return rc;
        done += (uint64_t)n;
    }
    p->entry.crc32c = crc;
    *ret_done = done;
    return 0;
}

/* A group of the file, or less at its end; fewer bytes than asked for mean that it ends here. */
static int read_group(struct sl_pg_packer *p, int fd, uint64_t offset, size_t count,
                      size_t *ret_count, struct sl_err *err)
{
    size_t got = 0;
    while (got < count) {
        int fault = sl_fault("pg.backup_read");
        ssize_t n = fault ? -1 : pread(fd, p->buffer + got, count - got, (off_t)(offset + got));
        if (n < 0 && !fault && errno == EINTR)
            continue;
        if (n < 0)
            return sl_err_sys(err, SL_ERR_READ, fault ? fault : errno, "could not read \"%s\"",
                              p->entry.path);
        if (!n)
            break;
        got += (size_t)n;
    }
    *ret_count = got;
    return 0;
}

/* One group that was read: refers to the base where it is the same, else stores it. */
static int store_group(struct sl_pg_packer *p, uint64_t offset, uint32_t index, size_t count,
                       struct sl_err *err)
{
    struct sl_pg_backup *b = p->backup;
    uint64_t seed = b->digest_seed;
    struct sl_id digest = sl_digest(seed, p->buffer, count);
    uint32_t before = p->entry.extent_count;
    struct sl_extent last = before ? p->extents[before - 1] : (struct sl_extent){0};
    if (sl_pg_based_same(&p->based, index, &digest, count)) {
        if (sl_pg_base_extents(b->base, &p->based, offset, count, p->extents,
                               &p->entry.extent_count))
            return 0;
        p->entry.extent_count = before; /* not to be had whole: stored again */
        if (before)
            p->extents[before - 1] = last;
    }
    uint64_t start = sl_upload_length(p->upload);
    int rc = sl_upload_write(p->upload, p->buffer, count, err);
    add_extent(p, (struct sl_extent){
                      .offset = offset, .length = count, .pack_offset = start, .pack = p->number});
    atomic_fetch_add(&b->delta, count);
    return rc;
}

/* As copy_range(), of a file that the base has: adds the extents, too. */
static int copy_changed(struct sl_pg_packer *p, int fd, uint64_t offset, uint64_t length,
                        uint64_t *ret_done, struct sl_err *err)
{
    uint64_t done = 0;
    uint32_t crc = 0;
    for (uint32_t index = 0; done < length; index++) {
        size_t want =
            length - done < SL_PG_GROUP_BYTES ? (size_t)(length - done) : SL_PG_GROUP_BYTES;
        size_t count = 0;
        uint64_t began = sl_now_ns();
        int rc = read_group(p, fd, offset + done, want, &count, err);
        if (!rc)
            rc = extent_room(p, err);
        if (rc)
            return rc;
        if (!count)
            break;
        uint64_t read_at = sl_now_ns();
        crc = sl_crc32c(crc, p->buffer, count);
        sl_pg_page_check_feed(&p->pages, p->buffer, count);
        sl_pg_groups_feed(&p->groups, p->buffer, count);
        sl_progress_stage(p->backup->invocation->progress, SL_STAGE_SOURCE, read_at - began);
        sl_progress_stage(p->backup->invocation->progress, SL_STAGE_DIGEST, sl_now_ns() - read_at);
        if ((rc = store_group(p, offset + done, index, count, err)) < 0)
            return rc;
        done += count;
        if (count < want)
            break;
    }
    p->entry.crc32c = crc;
    *ret_done = done;
    return 0;
}

static uint32_t crc_with_zeros(uint32_t crc, uint64_t count)
{
    static const uint8_t zeros[65536];
    while (count) {
        size_t step = count < sizeof zeros ? (size_t)count : sizeof zeros;
        crc = sl_crc32c(crc, zeros, step);
        count -= step;
    }
    return crc;
}

/* A whole file is stored as long as it was found; a config file may have been replaced since the
 * walk. Of a file in pieces every piece must be there: what was cut off meanwhile is filled with
 * zeros, as basebackup.c does, and WAL cuts it again. */
static int store_open_file(struct sl_pg_packer *p, const struct sl_pg_item *item, int fd,
                           struct sl_err *err)
{
    struct stat st;
    uint64_t length = item->length, done = 0, start = sl_upload_length(p->upload);
    if (fd >= 0 && fstat(fd, &st))
        return sl_err_sys(err, SL_ERR_READ, errno, "could not stat \"%s\"", item->path);
    if (fd >= 0 && item->whole) {
        length =
            (uint64_t)st.st_size < SL_PG_PIECE_BYTES ? (uint64_t)st.st_size : SL_PG_PIECE_BYTES;
        if (length > SL_BLOCK_BYTES)
            posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    int rc = extent_room(p, err);
    int based = rc || fd < 0 || !p->backup->base
                    ? rc
                    : sl_pg_base_find(p->backup->base, item->path, item->offset, &p->based, err);
    if (based < 0)
        return based;
    sl_pg_backup_pages_begin(p->backup, &p->pages, item, fd);
    sl_pg_groups_begin(&p->groups, item->path, item->offset);
    if (fd >= 0)
        rc = based ? copy_changed(p, fd, item->offset, length, &done, err)
                   : copy_range(p, fd, item->offset, length, &done, err);
    sl_pg_backup_pages_end(p->backup, &p->pages);
    if (!rc)
        rc = sl_pg_groups_end(&p->groups, done, err);
    if (rc)
        return rc;
    struct sl_manifest_entry *e = &p->entry;
    if (!based) {
        add_extent(p, (struct sl_extent){.offset = item->offset,
                                         .length = done,
                                         .pack_offset = start,
                                         .pack = p->number});
        atomic_fetch_add(&p->backup->delta, done);
    }
    e->size = item->whole ? done : item->size;
    if (!item->whole && done < length) {
        add_extent(p, (struct sl_extent){.offset = item->offset + done, .length = length - done});
        e->crc32c = crc_with_zeros(e->crc32c, length - done);
    }
    return sl_fragment_add(p->fragment, e, err);
}

static int store_file(struct sl_pg_packer *p, const struct sl_pg_item *item, struct sl_err *err)
{
    int fault = sl_fault("pg.backup_open");
    int fd = fault ? -1
                   : openat(p->backup->root_fd, item->path,
                            O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && (fault || errno != ENOENT))
        return sl_err_sys(err, SL_ERR_OPEN, fault ? fault : errno, "could not open \"%s\"",
                          item->path);
    if (fd < 0 && item->whole) {
        atomic_fetch_add(&p->backup->vanished, 1);
        return 0;
    }
    int rc = store_open_file(p, item, fd, err);
    if (fd >= 0)
        close(fd);
    return rc;
}

static int store_item(struct sl_pg_packer *p, const struct sl_pg_item *item, struct sl_err *err)
{
    describe(p, item);
    if (item->kind != SL_ENTRY_FILE)
        return sl_fragment_add(p->fragment, &p->entry, err);
    return store_file(p, item, err);
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
        recall(p, i, again);
        rc = store_item(p, again, err);
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
        if ((rc = keep(p, &p->item, err)) < 0)
            break;
        p->hand = EMPTY;
        count_item(p, &p->item);
        rc = store_item(p, &p->item, err);
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
    if (!p->buffer || sl_pg_groups_init(&p->groups, b->digest_seed, NULL) || extent_room(p, NULL)) {
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
        describe(p, like);
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
        add_extent(p, (struct sl_extent){
                          .length = files[i].count, .pack_offset = start, .pack = p->number});
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
