/* Reading the journals of growing objects: which of their records count. A journal ends at the
 * first record that is not whole, unless something says that this record was durable: then it is
 * damaged, and nothing is believed to end there. Also here: the content of one as an object that
 * can be read or published. Writing is in grow.c. */
#include "core/base/alloc.h"
#include "core/repo/grow_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Several records at a time, and at least one whole with its head wherever it begins in a page. */
#define WINDOW_BYTES (4u << 20)
/* A reader and the writer may meet in one record: what looks damaged is looked at again. */
#define LOOKS 3

/* --- a window on the file --------------------------------------------------------------------- */

struct window {
    struct sl_file *file;
    uint8_t *bytes;
    uint64_t start;
    size_t count;
};

/* `*ret_at` to as much as there is of [offset, offset + wanted); `*ret_got` bytes. */
static int look(struct window *w, uint64_t offset, size_t wanted, const uint8_t **ret_at,
                size_t *ret_got, struct sl_err *err)
{
    if (offset < w->start || offset + wanted > w->start + w->count) {
        w->start = offset / SL_STORE_ALIGN * SL_STORE_ALIGN;
        w->count = 0;
        int rc = w->file->store->ops->grow_read(w->file, w->bytes, WINDOW_BYTES, w->start,
                                                &w->count, err);
        if (rc)
            return rc;
    }
    size_t skipped = (size_t)(offset - w->start);
    size_t got = w->count > skipped ? w->count - skipped : 0;
    *ret_at = w->bytes + skipped;
    *ret_got = got < wanted ? got : wanted;
    return 0;
}

/* --- records ---------------------------------------------------------------------------------- */

static int read_head(struct sl_journal_scan *scan, struct window *w, struct sl_err *err)
{
    const uint8_t *at;
    size_t got;
    char name[SL_FULL_NAME_MAX + sizeof SL_JOURNAL_SUFFIX];
    int rc = look(w, 0, SL_JOURNAL_HEAD_BYTES, &at, &got, err);
    if (!rc && got < SL_JOURNAL_HEAD_BYTES)
        rc = sl_err_set(err, SL_ERR_FORMAT, "no journal: it has only %zu bytes", got);
    if (!rc)
        rc = sl_journal_head_decode(at, &scan->head, err);
    if (rc)
        return rc;
    if (!sl_id_equal(&scan->head.repository, &scan->repo->uuid))
        return sl_err_set(err, SL_ERR_REPO, "it belongs to another repository");
    snprintf(name, sizeof name, "%s%s", scan->head.name, SL_JOURNAL_SUFFIX);
    if (strcmp(name, scan->journal_name) != 0)
        return sl_err_set(err, SL_ERR_REPO, "it was made as \"%s\" and moved here", name);
    return 0;
}

/* 1: a whole record at `offset`; `*ret_content` is its content. 0: none. */
static int read_record(struct sl_journal_scan *scan, struct window *w, uint64_t offset,
                       struct sl_journal_record *record, const uint8_t **ret_content,
                       struct sl_err *err)
{
    const uint8_t *at;
    size_t got;
    int rc = look(w, offset, SL_JOURNAL_RECORD_BYTES, &at, &got, err);
    if (rc || got < SL_JOURNAL_RECORD_BYTES)
        return rc;
    if (sl_journal_record_decode(at, scan->repo->digest_seed, &scan->head.journal, record) != 0 ||
        record->offset != scan->extent.content)
        return 0;
    size_t room = (size_t)sl_journal_record_room(record);
    rc = look(w, offset, room, &at, &got, err);
    if (rc || got < room)
        return rc;
    *ret_content = at + SL_JOURNAL_RECORD_BYTES;
    if (!sl_bytes_are_zero(*ret_content + record->bytes,
                           room - SL_JOURNAL_RECORD_BYTES - record->bytes))
        return 0;
    struct sl_id digest = sl_digest(scan->repo->digest_seed, *ret_content, record->bytes);
    return sl_id_equal(&digest, &record->digest);
}

/* Does anything behind `offset` say that the record there was durable? 1, 0, or a code. */
static int find_proof(struct sl_journal_scan *scan, struct window *w, uint64_t offset,
                      struct sl_err *err)
{
    struct sl_journal_record record;
    for (;;) {
        const uint8_t *at;
        size_t got;
        offset += SL_JOURNAL_ALIGN;
        int rc = look(w, offset, SL_JOURNAL_RECORD_BYTES, &at, &got, err);
        if (rc || got < SL_JOURNAL_RECORD_BYTES)
            return rc;
        if (sl_journal_record_decode(at, scan->repo->digest_seed, &scan->head.journal, &record) ==
                0 &&
            record.durable > scan->extent.content)
            return 1;
    }
}

static int check_end(struct sl_journal_scan *scan, struct window *w, struct sl_err *err)
{
    uint64_t content = scan->extent.content, end = scan->extent.end;
    int rc = scan->known > content ? 1 : find_proof(scan, w, end, err);
    if (rc <= 0)
        return rc;
    sl_err_set(err, SL_ERR_CHECKSUM,
               "the record at byte %" PRIu64 " of the journal, for byte %" PRIu64
               " of the content, is damaged or gone, though it was durable",
               end, content);
    sl_err_hint(err, "a disk has lost or changed what it had: nothing is cut off; move the journal "
                     "away by hand to begin anew");
    return SL_ERR_CHECKSUM;
}

static int walk(struct sl_journal_scan *scan, struct window *w, struct sl_err *err)
{
    struct sl_journal_extent *extent = &scan->extent;
    struct sl_journal_record record;
    const uint8_t *content = NULL;
    int rc = read_head(scan, w, err);
    if (rc)
        return rc;
    *extent =
        (struct sl_journal_extent){.end = SL_JOURNAL_HEAD_BYTES, .mark_end = SL_JOURNAL_HEAD_BYTES};
    while (extent->content < scan->limit &&
           (rc = read_record(scan, w, extent->end, &record, &content, err)) > 0) {
        uint64_t left = scan->limit - extent->content;
        if (scan->visit)
            rc = scan->visit(scan->arg, content, left < record.bytes ? (size_t)left : record.bytes,
                             err);
        if (rc < 0)
            return rc;
        extent->content += record.bytes;
        extent->end += sl_journal_record_room(&record);
        if (record.flags & SL_JOURNAL_MARK) {
            extent->mark_content = extent->content;
            extent->mark_end = extent->end;
        }
    }
    if (rc < 0)
        return rc;
    return extent->content < scan->limit ? check_end(scan, w, err) : 0;
}

int sl_journal_scan(struct sl_journal_scan *scan, struct sl_err *err)
{
    struct window w = {.file = scan->file, .bytes = sl_pages_alloc(WINDOW_BYTES)};
    if (!w.bytes)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory to read a journal");
    int rc = walk(scan, &w, err);
    sl_pages_free(w.bytes, WINDOW_BYTES);
    if (rc)
        sl_err_prefix(err, "journal \"%s\" in %s", scan->journal_name, scan->repo->store->label);
    return rc;
}

/* --- as an object ----------------------------------------------------------------------------- */

struct filling {
    struct sl_object_draft *draft;
    uint8_t *block, *packed; /* SL_BLOCK_BYTES each */
    struct sl_packer *packer;
    enum sl_codec codec;
    uint32_t filled, blocks;
};

static int end_block(struct filling *f, struct sl_err *err)
{
    struct sl_repo *repo = f->draft->repo;
    uint8_t *from = f->block;
    struct sl_offer block = {.block = f->blocks, .plain_bytes = f->filled};
    if (!f->filled)
        return 0;
    block.plain_digest = sl_digest(repo->digest_seed, f->block, f->filled);
    block.stored_digest = block.plain_digest;
    size_t packed = 0;
    if (sl_bytes_are_zero(f->block, f->filled))
        block.flags = SL_BLOCK_ZERO;
    else if (f->packer)
        packed = sl_pack(f->packer, f->block, f->filled, f->packed);
    if (packed) {
        from = f->packed;
        block.codec = (uint8_t)f->codec;
        block.stored_digest = sl_digest(repo->digest_seed, from, packed);
    }
    block.stored_bytes = block.flags ? 0 : packed ? (uint32_t)packed : f->filled;
    uint64_t offset;
    int rc = sl_draft_block(f->draft, &block, &offset, err);
    size_t room = (size_t)sl_align_up(block.stored_bytes);
    memset(from + block.stored_bytes, 0, room - block.stored_bytes);
    if (!rc && room)
        rc = repo->store->ops->write(f->draft->file, from, room, offset, err);
    f->filled = 0;
    f->blocks++;
    return rc;
}

static int fill(void *arg, const uint8_t *bytes, size_t count, struct sl_err *err)
{
    struct filling *f = arg;
    int rc = 0;
    while (count && !rc) {
        size_t part = SL_BLOCK_BYTES - f->filled < count ? SL_BLOCK_BYTES - f->filled : count;
        memcpy(f->block + f->filled, bytes, part);
        f->filled += (uint32_t)part;
        bytes += part;
        count -= part;
        if (f->filled == SL_BLOCK_BYTES)
            rc = end_block(f, err);
    }
    return rc;
}

static int finish(struct filling *f, uint64_t length, struct sl_err *err)
{
    struct sl_id digest;
    struct sl_object_draft *draft = f->draft;
    int rc = end_block(f, err);
    if (!rc)
        rc = sl_digest_table(draft->repo->digest_seed, draft->table, draft->high, &digest, err);
    return rc ? rc : sl_draft_finish(draft, length, 0, &digest, err);
}

int sl_journal_draft(struct sl_repo *repo, struct sl_file *file, const char *journal_name,
                     const char *full_name, const char *creator, uint64_t length,
                     enum sl_codec codec, int level, struct sl_object_draft **ret_draft,
                     struct sl_err *err)
{
    struct filling f = {.block = sl_pages_alloc(SL_BLOCK_BYTES),
                        .packed = sl_pages_alloc(SL_BLOCK_BYTES),
                        .codec = codec};
    struct sl_journal_scan scan = {.repo = repo,
                                   .file = file,
                                   .journal_name = journal_name,
                                   .known = length,
                                   .limit = length,
                                   .visit = fill,
                                   .arg = &f};
    int rc = f.block && f.packed
                 ? 0
                 : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory to read a journal");
    if (!rc && codec != SL_CODEC_PLAIN)
        rc = sl_packer_new(codec, level, &f.packer, err);
    if (!rc)
        rc = sl_draft_new(repo, full_name, 0, creator, &f.draft, err);
    if (!rc)
        rc = sl_journal_scan(&scan, err);
    if (!rc)
        rc = finish(&f, length, err);
    sl_packer_free(f.packer);
    sl_pages_free(f.block, SL_BLOCK_BYTES);
    sl_pages_free(f.packed, SL_BLOCK_BYTES);
    if (rc) {
        sl_draft_free(f.draft);
        return rc;
    }
    *ret_draft = f.draft;
    return 0;
}

/* --- readers ---------------------------------------------------------------------------------- */

static int open_journal(struct sl_repo *repo, const char *journal_name, struct sl_file **ret_file,
                        struct sl_err *err)
{
    uint64_t bytes;
    if (!(repo->store->caps & SL_STORE_CAN_GROW))
        return sl_err_set(err, SL_ERR_UNSUPPORTED, "%s has no growing objects", repo->store->label);
    return repo->store->ops->open(repo->store, journal_name, ret_file, &bytes, err);
}

/* Looked at once, or again while it seems damaged. */
static int scan_patiently(struct sl_journal_scan *scan, struct sl_err *err)
{
    int rc = SL_ERR_CHECKSUM;
    for (int i = 0; i < LOOKS && rc == SL_ERR_CHECKSUM; i++)
        rc = sl_journal_scan(scan, err);
    return rc;
}

static void become_object(struct sl_object_draft *draft, struct sl_object *object)
{
    object->repo = draft->repo;
    object->file = draft->file;
    object->trailer = draft->trailer;
    object->table = draft->table;
    draft->file = NULL;
    draft->table = NULL;
    sl_draft_free(draft);
}

/* What a reader has been given he must find again: so it is made durable first. */
static int settle(struct sl_repo *repo, const char *journal_name, struct sl_err *err)
{
    int rc = repo->store->ops->settle(repo->store, journal_name, err);
    return rc == SL_ERR_NOT_FOUND ? 0 : rc; /* sealed meanwhile, and so durable */
}

int sl_growing_snapshot(struct sl_repo *repo, const char *journal_name,
                        struct sl_object **ret_object, struct sl_err *err)
{
    struct sl_journal_scan scan = {.repo = repo, .journal_name = journal_name, .limit = UINT64_MAX};
    struct sl_object_draft *draft = NULL;
    struct sl_object *object = sl_calloc(1, sizeof *object);
    int rc = object ? open_journal(repo, journal_name, &scan.file, err)
                    : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for an object");
    if (rc) {
        sl_free(object);
        return rc;
    }
    rc = settle(repo, journal_name, err);
    if (!rc)
        rc = scan_patiently(&scan, err);
    if (!rc)
        rc = sl_journal_draft(repo, scan.file, journal_name, scan.head.name, scan.head.creator,
                              scan.extent.mark_content, SL_CODEC_PLAIN, 0, &draft, err);
    repo->store->ops->close(scan.file);
    if (rc) {
        sl_free(object);
        return rc;
    }
    become_object(draft, object);
    object->trailer.created_ns = scan.head.created_ns;
    *ret_object = object;
    return 0;
}

static int inspect(struct sl_repo *repo, const char *journal_name, struct sl_journal_scan *scan,
                   struct sl_err *err)
{
    *scan =
        (struct sl_journal_scan){.repo = repo, .journal_name = journal_name, .limit = UINT64_MAX};
    int rc = open_journal(repo, journal_name, &scan->file, err);
    if (rc)
        return rc;
    rc = scan_patiently(scan, err);
    repo->store->ops->close(scan->file);
    return rc;
}

int sl_growing_stat(struct sl_repo *repo, const char *journal_name, struct sl_trailer *ret_trailer,
                    struct sl_err *err)
{
    struct sl_journal_scan scan;
    int rc = inspect(repo, journal_name, &scan, err);
    if (rc)
        return rc;
    *ret_trailer = (struct sl_trailer){.version = SL_OBJECT_VERSION,
                                       .repository = repo->uuid,
                                       .length = scan.extent.mark_content,
                                       .created_ns = scan.head.created_ns};
    memcpy(ret_trailer->creator, scan.head.creator, sizeof ret_trailer->creator);
    memcpy(ret_trailer->name, scan.head.name, sizeof ret_trailer->name);
    return 0;
}

int sl_growing_check(struct sl_repo *repo, const char *journal_name, struct sl_err *err)
{
    struct sl_journal_scan scan;
    return inspect(repo, journal_name, &scan, err);
}
