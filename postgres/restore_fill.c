/* Filling files: each worker takes a unit of the plan (up to 64 MiB of a pack), asks for the blocks
 * that hold its pieces and writes them where they belong. The client checks every block against
 * the pack's digests, and the pack's digest is the one that the manifest names. */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/log.h"
#include "core/object/object.h"
#include "postgres/commands.h"
#include "postgres/restore_internal.h"
#include "postgres/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct filler {
    struct sl_pg_restore *restore;
    struct sl_pg_unit unit;
    struct sl_download *download;
    uint32_t open_pack; /* number of download's; 0: none */
    int fd;             /* the file written last */
    uint64_t fd_path;
    struct sl_pg_planned planned;
};

/* --- writing -----------------------------------------------------------------------------------
 */

static void close_file(struct filler *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

static int open_file(struct filler *f, uint64_t path, struct sl_err *err)
{
    if (f->fd >= 0 && f->fd_path == path)
        return 0;
    close_file(f);
    int rc = sl_pg_plan_path(f->restore->plan, path, &f->planned, err);
    if (rc)
        return rc;
    f->fd = sl_pg_restore_open(f->restore, f->planned.path, O_WRONLY, err);
    if (f->fd < 0)
        return f->fd;
    f->fd_path = path;
    return 0;
}

static int write_at(const struct filler *f, const uint8_t *bytes, size_t count, uint64_t offset,
                    struct sl_err *err)
{
    while (count) {
        int fault = sl_fault("pg.restore_write");
        ssize_t n = fault ? -1 : pwrite(f->fd, bytes, count, (off_t)offset);
        if (n < 0 && !fault && errno == EINTR)
            continue;
        if (n < 0)
            return sl_err_sys(err, SL_ERR_WRITE, fault ? fault : errno, "could not write \"%s\"",
                              f->planned.path);
        bytes += n;
        count -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* The part of a piece that lies in this block. Zeros are left as the hole that is there. */
static int write_part(struct filler *f, const struct sl_pg_piece *piece, uint64_t block_start,
                      const uint8_t *bytes, size_t count, struct sl_err *err)
{
    uint64_t from = piece->pack_offset > block_start ? piece->pack_offset : block_start;
    uint64_t piece_end = piece->pack_offset + piece->length, block_end = block_start + count;
    uint64_t to = piece_end < block_end ? piece_end : block_end;
    if (to <= from)
        return 0;
    int rc = open_file(f, piece->path, err);
    if (rc)
        return rc;
    const uint8_t *start = bytes + (from - block_start);
    uint64_t offset = piece->file_offset + (from - piece->pack_offset);
    if (!sl_bytes_are_zero(start, (size_t)(to - from))) {
        rc = write_at(f, start, (size_t)(to - from), offset, err);
        /* begin to write it back now: the syncs at the end find less to do. A hint, so its result
         * does not matter. */
        if (!rc)
            (void)sync_file_range(f->fd, (off_t)offset, (off_t)(to - from), SYNC_FILE_RANGE_WRITE);
    }
    atomic_fetch_add(&f->restore->bytes, to - from);
    sl_progress_add(f->restore->invocation->progress, to - from,
                    !piece->file_offset && from == piece->pack_offset ? 1 : 0);
    return rc;
}

/* --- a unit ------------------------------------------------------------------------------------
 */

static uint32_t first_block(const struct sl_pg_piece *piece)
{
    return (uint32_t)(piece->pack_offset / SL_BLOCK_BYTES);
}

static uint32_t last_block(const struct sl_pg_piece *piece)
{
    return (uint32_t)((piece->pack_offset + piece->length - 1) / SL_BLOCK_BYTES);
}

/* How many pieces from `at` on lie in blocks without a gap between them, and up to which block. */
static size_t run_of(const struct sl_pg_unit *unit, size_t at, uint32_t *ret_last)
{
    size_t end = at + 1;
    *ret_last = last_block(&unit->pieces[at]);
    for (; end < unit->count && first_block(&unit->pieces[end]) <= *ret_last + 1; end++)
        if (last_block(&unit->pieces[end]) > *ret_last)
            *ret_last = last_block(&unit->pieces[end]);
    return end - at;
}

static int fill_block(struct filler *f, const struct sl_pg_piece *pieces, size_t count,
                      size_t *first, uint32_t block, const uint8_t *bytes, size_t bytes_count,
                      struct sl_err *err)
{
    uint64_t start = (uint64_t)block * SL_BLOCK_BYTES, end = start + bytes_count;
    while (*first < count && pieces[*first].pack_offset + pieces[*first].length <= start)
        (*first)++;
    uint64_t began = sl_now_ns();
    for (size_t i = *first; i < count && pieces[i].pack_offset < end; i++) {
        int rc = write_part(f, &pieces[i], start, bytes, bytes_count, err);
        if (rc)
            return rc;
    }
    sl_progress_stage(f->restore->invocation->progress, SL_STAGE_SOURCE, sl_now_ns() - began);
    return 0;
}

static int fill_run(struct filler *f, const struct sl_pg_piece *pieces, size_t count, uint32_t last,
                    struct sl_err *err)
{
    uint32_t block = first_block(&pieces[0]), expected = block;
    size_t first = 0;
    int rc = sl_download_range(f->download, block, last - block + 1, err);
    while (!rc) {
        const uint8_t *bytes;
        size_t bytes_count;
        if (atomic_load(&f->restore->stop))
            return sl_err_set(err, SL_ERR_CANCELLED, "another worker failed");
        rc = sl_download_next(f->download, &block, &bytes, &bytes_count,
                              sl_pg_restore_deadline(f->restore), err);
        if (rc <= 0)
            break;
        if (block != expected++)
            return sl_err_set(err, SL_ERR_INTERNAL, "block %u came instead of %u", block,
                              expected - 1);
        rc = fill_block(f, pieces, count, &first, block, bytes, bytes_count, err);
    }
    if (!rc && expected != last + 1)
        rc = sl_err_set(err, SL_ERR_READ, "pack \"%s\" ended early", f->unit.pack->name);
    return rc;
}

static int open_pack(struct filler *f, const struct sl_manifest_pack *pack, struct sl_err *err)
{
    struct sl_object_info info;
    if (f->download && f->open_pack == pack->number)
        return 0;
    sl_download_close(f->download);
    f->download = NULL;
    int rc = sl_download_open(f->restore->repository.client, pack->name, &pack->digest,
                              sl_pg_restore_deadline(f->restore), &f->download, &info, err);
    if (!rc && info.length != pack->length)
        rc = sl_err_set(err, SL_ERR_REPO, "pack \"%s\" has %llu bytes, its backup says %llu",
                        pack->name, (unsigned long long)info.length,
                        (unsigned long long)pack->length);
    f->open_pack = rc ? 0 : pack->number;
    return rc;
}

static int fill_unit(struct filler *f, struct sl_err *err)
{
    int rc = open_pack(f, f->unit.pack, err);
    for (size_t at = 0; !rc && at < f->unit.count;) {
        uint32_t last;
        size_t count = run_of(&f->unit, at, &last);
        rc = fill_run(f, f->unit.pieces + at, count, last, err);
        at += count;
    }
    close_file(f);
    if (rc) {
        sl_download_close(f->download);
        f->download = NULL;
        f->open_pack = 0;
    }
    return rc;
}

/* A lost session: the unit is done over, which writes the same bytes to the same places. */
static int fill_unit_surely(struct filler *f, struct sl_err *err)
{
    struct sl_pg_retry retry = {0};
    int rc;
    while ((rc = fill_unit(f, err)) && !atomic_load(&f->restore->stop) &&
           sl_pg_try_again(&retry, rc, f->restore->step_ms))
        sl_log_err(SL_LOG_WARN, "postgres", err, "a part of \"%s\" is read again",
                   f->unit.pack->name);
    return rc;
}

static int fill(struct sl_pg_restore *r, struct sl_err *err)
{
    struct filler *f = sl_calloc(1, sizeof *f);
    if (!f)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    f->restore = r;
    f->fd = -1;
    int rc;
    while ((rc = sl_pg_plan_next_unit(r->plan, &f->unit, err)) == 1 &&
           !(rc = sl_pg_restore_stay(r, err)) && !(rc = fill_unit_surely(f, err)))
        ;
    close_file(f);
    sl_download_close(f->download);
    sl_pg_unit_fini(&f->unit);
    sl_free(f);
    return rc;
}

int sl_pg_restore_fill(struct sl_pg_restore *r, unsigned jobs, struct sl_err *err)
{
    return sl_pg_restore_parallel(r, jobs, fill, err);
}

/* --- a small file, into memory -----------------------------------------------------------------
 */

static int read_extent(struct sl_pg_restore *r, const struct sl_extent *extent, uint8_t *to,
                       struct sl_err *err)
{
    const struct sl_manifest_pack *pack = sl_pg_plan_pack(r->plan, extent->pack);
    if (!pack)
        return sl_err_set(err, SL_ERR_FORMAT, "the manifest has an extent outside of its packs");
    struct filler f = {.restore = r, .fd = -1};
    int rc = open_pack(&f, pack, err);
    uint32_t block = (uint32_t)(extent->pack_offset / SL_BLOCK_BYTES);
    uint64_t end = extent->pack_offset + extent->length;
    uint32_t last = (uint32_t)((end - 1) / SL_BLOCK_BYTES);
    if (!rc)
        rc = sl_download_range(f.download, block, last - block + 1, err);
    uint64_t done = 0;
    while (!rc) {
        const uint8_t *bytes;
        size_t count;
        rc = sl_download_next(f.download, &block, &bytes, &count, sl_pg_restore_deadline(r), err);
        if (rc <= 0)
            break;
        uint64_t start = (uint64_t)block * SL_BLOCK_BYTES, at = extent->pack_offset + done;
        uint64_t stop = start + count < end ? start + count : end;
        if (at < start || at >= stop) {
            rc = sl_err_set(err, SL_ERR_INTERNAL, "block %u came out of order", block);
            break;
        }
        memcpy(to + done, bytes + (at - start), (size_t)(stop - at));
        done += stop - at;
        rc = 0;
    }
    sl_download_close(f.download);
    if (!rc && done != extent->length)
        rc = sl_err_set(err, SL_ERR_READ, "pack \"%s\" ended early", pack->name);
    return rc;
}

int sl_pg_restore_small(struct sl_pg_restore *r, const struct sl_manifest_entry *entry, void *to,
                        size_t room, struct sl_err *err)
{
    if (entry->size > room)
        return sl_err_set(err, SL_ERR_FORMAT, "\"%s\" is too big", entry->path);
    memset(to, 0, room);
    for (uint32_t i = 0; i < entry->extent_count; i++) {
        const struct sl_extent *extent = &entry->extents[i];
        struct sl_pg_retry retry = {0};
        int rc = 0;
        while (extent->pack && (rc = read_extent(r, extent, (uint8_t *)to + extent->offset, err)) &&
               sl_pg_try_again(&retry, rc, r->step_ms))
            ;
        if (rc)
            return rc;
    }
    if (entry->flags & SL_ENTRY_HAS_CRC32C &&
        sl_crc32c(0, to, (size_t)entry->size) != entry->crc32c)
        return sl_err_set(err, SL_ERR_CHECKSUM,
                          "\"%s\" does not have the checksum it was stored "
                          "with",
                          entry->path);
    return 0;
}

/* --- threads -----------------------------------------------------------------------------------
 */

struct hand {
    struct sl_pg_restore *restore;
    int (*work)(struct sl_pg_restore *r, struct sl_err *err);
    pthread_t thread;
};

static void fail(struct sl_pg_restore *r, const struct sl_err *err, int code)
{
    pthread_mutex_lock(&r->lock);
    if (!r->failure.code) {
        r->failure = *err;
        r->failure.code = code;
    }
    pthread_mutex_unlock(&r->lock);
    atomic_store(&r->stop, true);
}

static void *run_hand(void *arg)
{
    struct hand *hand = arg;
    struct sl_err err = {0};
    int rc = hand->work(hand->restore, &err);
    if (rc)
        fail(hand->restore, &err, rc);
    return NULL;
}

int sl_pg_restore_parallel(struct sl_pg_restore *r, unsigned jobs,
                           int (*work)(struct sl_pg_restore *r, struct sl_err *err),
                           struct sl_err *err)
{
    struct hand hands[SL_PG_JOBS_MAX];
    unsigned started = 0;
    struct sl_err own = {0};
    for (; started < jobs && started < SL_PG_JOBS_MAX; started++) {
        hands[started] = (struct hand){.restore = r, .work = work};
        int rc = sl_thread_start(&hands[started].thread, "sl-pg-restore", run_hand, &hands[started],
                                 &own);
        if (rc) {
            fail(r, &own, rc);
            break;
        }
    }
    for (unsigned i = 0; i < started; i++)
        pthread_join(hands[i].thread, NULL);
    if (!r->failure.code && sl_pg_signals_caught())
        return sl_err_set(err, SL_ERR_CANCELLED, "cancelled");
    if (r->failure.code)
        sl_err_copy(err, &r->failure);
    return r->failure.code;
}
