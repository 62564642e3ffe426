/* One file, folder or link into the pack at hand: read, compared with what an earlier backup has of
 * it, and written. What a pack is, and when one is full, is backup_pack.c's. */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/object/object.h"
#include "postgres/backup_pack_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int no_memory(struct sl_err *err)
{
    return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
}

void sl_pg_packer_describe(struct sl_pg_packer *p, const struct sl_pg_item *item)
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
int sl_pg_packer_extent_room(struct sl_pg_packer *p, struct sl_err *err)
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

void sl_pg_packer_extent(struct sl_pg_packer *p, struct sl_extent extent)
{
    if (extent.length)
        sl_pg_extent_add(p->extents, &p->entry.extent_count, extent);
}

/* As pread(2) of the file at hand; 0 bytes at its end. */
static int read_some(struct sl_pg_packer *p, int fd, uint64_t offset, void *to, size_t room,
                     size_t *ret_count, struct sl_err *err)
{
    for (;;) {
        int fault = sl_fault("pg.backup_read");
        ssize_t n = fault ? -1 : pread(fd, to, room, (off_t)offset);
        if (n < 0 && !fault && errno == EINTR)
            continue;
        if (n < 0)
            return sl_err_sys(err, SL_ERR_READ, fault ? fault : errno, "could not read \"%s\"",
                              p->entry.path);
        atomic_fetch_add(&p->backup->read, (uint64_t)n);
        *ret_count = (size_t)n;
        return 0;
    }
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
        size_t room, n = 0;
        int rc = sl_upload_space(p->upload, &at, &room, err);
        if (rc)
            return rc;
        if (room > length - done)
            room = (size_t)(length - done);
        uint64_t began = sl_now_ns();
        if ((rc = read_some(p, fd, offset + done, at, room, &n, err)) < 0)
            return rc;
        if (!n)
            break;
        uint64_t read_at = sl_now_ns();
        crc = sl_crc32c(crc, at, n);
        sl_pg_page_check_feed(&p->pages, at, n);
        sl_pg_groups_feed(&p->groups, at, n);
        sl_progress_stage(progress, SL_STAGE_SOURCE, read_at - began);
        sl_progress_stage(progress, SL_STAGE_DIGEST, sl_now_ns() - read_at);
        if ((rc = sl_upload_advance(p->upload, n, err)) < 0)
            return rc;
        done += n;
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
        size_t n = 0;
        int rc = read_some(p, fd, offset + got, p->buffer + got, count - got, &n, err);
        if (rc)
            return rc;
        if (!n)
            break;
        got += n;
    }
    *ret_count = got;
    return 0;
}

/* Refers to where `base` has these bytes; false when it has not all of them. */
static bool refer(struct sl_pg_packer *p, struct sl_pg_base *base, const struct sl_pg_based *based,
                  uint64_t offset, size_t count)
{
    uint32_t before = p->entry.extent_count;
    struct sl_extent last = before ? p->extents[before - 1] : (struct sl_extent){0};
    if (sl_pg_base_extents(base, based, offset, count, p->extents, &p->entry.extent_count))
        return true;
    p->entry.extent_count = before;
    if (before)
        p->extents[before - 1] = last;
    return false;
}

static bool refer_same(struct sl_pg_packer *p, struct sl_pg_base *base,
                       const struct sl_pg_based *based, uint64_t offset, uint32_t index,
                       const struct sl_id *digest, size_t count)
{
    return based->found && sl_pg_based_same(based, index, digest, count) &&
           refer(p, base, based, offset, count);
}

/* One group that was read: refers to where it is stored already, else stores it. */
static int store_group(struct sl_pg_packer *p, uint64_t offset, uint32_t index, size_t count,
                       struct sl_err *err)
{
    struct sl_pg_backup *b = p->backup;
    struct sl_id digest = sl_digest(b->digest_seed, p->buffer, count);
    if (refer_same(p, b->base, &p->based, offset, index, &digest, count))
        return 0;
    if (refer_same(p, b->broken, &p->resumed, offset, index, &digest, count)) {
        atomic_fetch_add(&b->resumed, count);
        return 0;
    }
    uint64_t start = sl_upload_length(p->upload);
    int rc = sl_upload_write(p->upload, p->buffer, count, err);
    sl_pg_packer_extent(
        p, (struct sl_extent){
               .offset = offset, .length = count, .pack_offset = start, .pack = p->number});
    atomic_fetch_add(&b->delta, count);
    return rc;
}

/* Of a group that WAL says has not changed since the base: refers to it without reading. */
static bool pass_group(struct sl_pg_packer *p, const struct sl_pg_summary_file *file,
                       uint64_t first, uint64_t offset, uint32_t index, size_t count, uint32_t *crc)
{
    struct sl_pg_backup *b = p->backup;
    uint64_t group = first + offset / SL_PG_GROUP_BYTES;
    if (group >= UINT32_MAX || sl_pg_based_length(&p->based, index) != count ||
        sl_pg_summary_changed(b->summary, file, (uint32_t)group) ||
        !refer(p, b->base, &p->based, offset, count))
        return false;
    *crc = sl_crc32c_combine(*crc, sl_pg_based_crc(&p->based, index), count);
    sl_pg_page_check_skip(&p->pages, count);
    sl_pg_groups_repeat(&p->groups, &p->based, index);
    return true;
}

/* Do WAL summaries tell of this file? Then the number of its first group in the relation. */
static bool is_summarised(const struct sl_pg_packer *p, struct sl_pg_summary_file *file,
                          uint64_t *ret_first)
{
    const struct sl_pg_backup *b = p->backup;
    uint32_t block;
    if (!b->summary || !p->based.found || !sl_pg_summary_find(b->summary, p->entry.path, file) ||
        !sl_pg_page_file(p->entry.path, b->control.relation_segment_blocks, &block))
        return false;
    *ret_first = block / (SL_PG_GROUP_BYTES / b->control.block_bytes);
    return true;
}

/* As copy_range(), of a file that the base has: adds the extents, too. */
static int copy_changed(struct sl_pg_packer *p, int fd, uint64_t offset, uint64_t length,
                        uint64_t *ret_done, struct sl_err *err)
{
    struct sl_pg_summary_file file;
    uint64_t done = 0, first = 0;
    uint32_t crc = 0;
    bool summarised = is_summarised(p, &file, &first);
    for (uint32_t index = 0; done < length; index++) {
        size_t want =
            length - done < SL_PG_GROUP_BYTES ? (size_t)(length - done) : SL_PG_GROUP_BYTES;
        size_t count = 0;
        uint64_t began = sl_now_ns();
        int rc = sl_pg_packer_extent_room(p, err);
        if (!rc && summarised && pass_group(p, &file, first, offset + done, index, want, &crc)) {
            done += want;
            continue;
        }
        if (!rc)
            rc = read_group(p, fd, offset + done, want, &count, err);
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

static int look_up(const struct sl_pg_base *base, const struct sl_pg_item *item, int fd,
                   struct sl_pg_based *based, struct sl_err *err)
{
    int rc = base && fd >= 0 ? sl_pg_base_find(base, item->path, item->offset, based, err) : 0;
    based->found = rc == 1;
    return rc < 0 ? rc : 0;
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
    int rc = sl_pg_packer_extent_room(p, err);
    if (!rc)
        rc = look_up(p->backup->base, item, fd, &p->based, err);
    if (!rc)
        rc = look_up(p->backup->broken, item, fd, &p->resumed, err);
    if (rc)
        return rc;
    bool based = p->based.found || p->resumed.found;
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
        sl_pg_packer_extent(p, (struct sl_extent){.offset = item->offset,
                                                  .length = done,
                                                  .pack_offset = start,
                                                  .pack = p->number});
        atomic_fetch_add(&p->backup->delta, done);
    }
    e->size = item->whole ? done : item->size;
    if (!item->whole && done < length) {
        sl_pg_packer_extent(
            p, (struct sl_extent){.offset = item->offset + done, .length = length - done});
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

int sl_pg_packer_store(struct sl_pg_packer *p, const struct sl_pg_item *item, struct sl_err *err)
{
    sl_pg_packer_describe(p, item);
    if (item->kind != SL_ENTRY_FILE)
        return sl_fragment_add(p->fragment, &p->entry, err);
    return store_file(p, item, err);
}
