/* The merge of fragments: all runs of all fragments are read at once, smallest path first, and
 * the pieces of one path are joined. Memory: a buffer a run and the extents of one file. */
#include "core/base/alloc.h"
#include "core/object/object.h"
#include "core/repo/fragment.h"

#include <string.h>

struct merge {
    struct sl_fragment_cursor *cursors;
    size_t cursor_count;
    struct sl_fragment_cursor **heap; /* the smallest piece on top */
    size_t heap_count;
    struct sl_manifest_entry joined;
    uint64_t joined_bytes; /* how far its pieces cover it */
};

static void sift_down(struct merge *m, size_t at)
{
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < m->heap_count; child++)
            if (sl_piece_compare(&m->heap[child]->piece, &m->heap[least]->piece) < 0)
                least = child;
        if (least == at)
            return;
        struct sl_fragment_cursor *swap = m->heap[at];
        m->heap[at] = m->heap[least];
        m->heap[least] = swap;
        at = least;
    }
}

/* Put the next piece of the top cursor in its place. */
static int advance_top(struct merge *m, struct sl_err *err)
{
    int rc = sl_fragment_cursor_next(m->heap[0], NULL, NULL, err);
    if (rc < 0)
        return rc;
    if (rc == 0)
        m->heap[0] = m->heap[--m->heap_count];
    if (m->heap_count)
        sift_down(m, 0);
    return 0;
}

static int open_cursors(struct merge *m, struct sl_fragment *const *fragments, size_t count,
                        struct sl_err *err)
{
    size_t runs = 0;
    for (size_t i = 0; i < count; i++)
        runs += fragments[i]->run_count;
    m->cursors = sl_calloc(runs, sizeof *m->cursors);
    m->heap = sl_calloc(runs, sizeof *m->heap);
    if (!m->cursors || !m->heap)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory to merge fragments");
    for (size_t i = 0; i < count; i++) {
        struct sl_fragment *f = fragments[i];
        for (size_t run = 0; run < f->run_count; run++) {
            uint64_t end = run + 1 < f->run_count ? f->runs[run + 1] : f->end;
            struct sl_fragment_cursor *cursor = &m->cursors[m->cursor_count++];
            int rc = sl_fragment_cursor_init(cursor, f, f->runs[run], end, err);
            if (rc == 0)
                rc = sl_fragment_cursor_next(cursor, NULL, NULL, err);
            if (rc < 0)
                return rc;
            if (rc > 0)
                m->heap[m->heap_count++] = cursor;
        }
    }
    for (size_t i = m->heap_count; i-- > 0;)
        sift_down(m, i);
    return 0;
}

static void close_cursors(struct merge *m)
{
    for (size_t i = 0; i < m->cursor_count; i++)
        sl_fragment_cursor_fini(&m->cursors[i]);
    sl_free(m->cursors);
    sl_free(m->heap);
    sl_free(m->joined.extents);
}

/* Append the piece's extents; neighbours in file and pack become one. */
static int append_extents(struct merge *m, const struct sl_manifest_entry *piece,
                          struct sl_err *err)
{
    struct sl_manifest_entry *to = &m->joined;
    int rc = sl_entry_extents_reserve(to, to->extent_count + piece->extent_count, err);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < piece->extent_count; i++) {
        const struct sl_extent *x = &piece->extents[i];
        struct sl_extent *last = to->extent_count ? &to->extents[to->extent_count - 1] : NULL;
        if (last && last->pack == x->pack &&
            (!x->pack || last->pack_offset + last->length == x->pack_offset))
            last->length += x->length;
        else
            to->extents[to->extent_count++] = *x;
        m->joined_bytes += x->length;
    }
    return 0;
}

static int begin_joined(struct merge *m, const struct sl_manifest_entry *piece, struct sl_err *err)
{
    struct sl_manifest_entry *to = &m->joined;
    to->kind = piece->kind;
    to->flags = piece->flags;
    to->mode = piece->mode;
    to->uid = piece->uid;
    to->gid = piece->gid;
    to->size = piece->size;
    to->mtime_ns = piece->mtime_ns;
    to->crc32c = piece->crc32c;
    memcpy(to->path, piece->path, strlen(piece->path) + 1);
    memcpy(to->link, piece->link, strlen(piece->link) + 1);
    to->extent_count = 0;
    m->joined_bytes = 0;
    if (piece->extent_count && piece->extents[0].offset) {
        char text[SL_SHOWN_BYTES];
        return sl_err_set(err, SL_ERR_INTERNAL, "the beginning of \"%s\" was not stored",
                          sl_shown(piece->path, text));
    }
    return append_extents(m, piece, err);
}

static int join(struct merge *m, const struct sl_manifest_entry *piece, struct sl_err *err)
{
    struct sl_manifest_entry *to = &m->joined;
    char text[SL_SHOWN_BYTES];
    uint64_t before = m->joined_bytes;
    if (piece->kind != to->kind || piece->size != to->size || strcmp(piece->link, to->link) != 0)
        return sl_err_set(err, SL_ERR_INTERNAL, "pieces of \"%s\" contradict each other",
                          sl_shown(piece->path, text));
    if (!piece->extent_count) /* a folder, a link or an empty file that was given twice */
        return 0;
    if (piece->extents[0].offset != before)
        return sl_err_set(err, SL_ERR_INTERNAL, "pieces of \"%s\" %s", sl_shown(piece->path, text),
                          piece->extents[0].offset > before ? "are missing" : "overlap");
    int rc = append_extents(m, piece, err);
    if (rc)
        return rc;
    if (to->flags & piece->flags & SL_ENTRY_HAS_CRC32C) {
        to->crc32c = sl_crc32c_combine(to->crc32c, piece->crc32c, m->joined_bytes - before);
    } else {
        to->flags &= (uint8_t)~SL_ENTRY_HAS_CRC32C;
        to->crc32c = 0;
    }
    return 0;
}

/* The entry of the smallest path, from all its pieces. */
static int next_joined(struct merge *m, struct sl_err *err)
{
    int rc = begin_joined(m, &m->heap[0]->piece, err);
    if (rc == 0)
        rc = advance_top(m, err);
    while (rc == 0 && m->heap_count && !strcmp(m->heap[0]->piece.path, m->joined.path)) {
        rc = join(m, &m->heap[0]->piece, err);
        if (rc == 0)
            rc = advance_top(m, err);
    }
    if (rc == 0 && m->joined_bytes != m->joined.size) {
        char text[SL_SHOWN_BYTES];
        rc = sl_err_set(err, SL_ERR_INTERNAL, "the end of \"%s\" was not stored",
                        sl_shown(m->joined.path, text));
    }
    return rc;
}

int sl_fragments_merge(struct sl_fragment *const *fragments, size_t count,
                       int (*visit)(void *arg, const struct sl_manifest_entry *entry,
                                    struct sl_err *err),
                       void *arg, struct sl_err *err)
{
    struct merge *m = sl_calloc(1, sizeof *m);
    if (!m)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory to merge fragments");
    int rc = open_cursors(m, fragments, count, err);
    while (rc == 0 && m->heap_count) {
        rc = next_joined(m, err);
        if (rc == 0)
            rc = visit(arg, &m->joined, err);
    }
    close_cursors(m);
    sl_free(m);
    return rc;
}
