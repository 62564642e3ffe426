/* Fragments: a worker's pieces in a nameless temporary file, records as in a manifest. No more of
 * them is in memory than a buffer, so a million small files cost a worker nothing. */
#include "core/repo/fragment.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_ROOM (64u * 1024)

int sl_piece_compare(const struct sl_manifest_entry *a, const struct sl_manifest_entry *b)
{
    int order = strcmp(a->path, b->path);
    if (order)
        return order;
    uint64_t x = a->extent_count ? a->extents[0].offset : 0;
    uint64_t y = b->extent_count ? b->extents[0].offset : 0;
    return x < y ? -1 : x > y;
}

/* --- the file -------------------------------------------------------------------------------- */

static int open_nameless(const char *folder)
{
    int fault = sl_fault("fragment.open");
    if (fault)
        return errno = fault > 0 ? fault : EIO, -1;
    int fd = open(folder, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    /* not every file system has O_TMPFILE: open(2) lists EOPNOTSUPP, EISDIR and ENOENT */
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL))
        return fd;
    char *name = sl_asprintf("%s/sluice-fragment-XXXXXX", folder);
    if (!name)
        return errno = ENOMEM, -1;
    fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0)
        unlink(name);
    sl_free(name);
    return fd;
}

int sl_fragment_new(const char *folder, struct sl_fragment **ret, struct sl_err *err)
{
    if (!folder)
        folder = getenv("TMPDIR");
    if (!folder || !*folder)
        folder = "/tmp";
    struct sl_fragment *f = sl_calloc(1, sizeof *f);
    if (!f)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a fragment");
    f->fd = -1;
    f->buffer = sl_alloc(BUFFER_ROOM);
    if (!f->buffer) {
        sl_fragment_free(f);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a fragment");
    }
    f->room = BUFFER_ROOM;
    f->fd = open_nameless(folder);
    if (f->fd < 0) {
        int sys = errno;
        sl_fragment_free(f);
        return sl_err_sys(err, SL_ERR_OPEN, sys, "could not make a temporary file in \"%s\"",
                          folder);
    }
    *ret = f;
    return 0;
}

void sl_fragment_free(struct sl_fragment *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    sl_free(f->buffer);
    sl_free(f->runs);
    sl_free(f);
}

int sl_fragment_flush(struct sl_fragment *f, struct sl_err *err)
{
    for (size_t at = 0; at < f->used;) {
        int fault = sl_fault("fragment.pwrite");
        ssize_t n =
            fault ? -1 : pwrite(f->fd, f->buffer + at, f->used - at, (off_t)(f->on_disk + at));
        if (n < 0 && !fault && errno == EINTR)
            continue;
        if (n <= 0)
            return sl_err_sys(err, SL_ERR_WRITE,
                              fault > 0         ? fault
                              : n < 0 && !fault ? errno
                                                : EIO,
                              "could not write to a temporary file");
        at += (size_t)n;
    }
    f->on_disk += f->used;
    f->used = 0;
    return 0;
}

/* --- adding ---------------------------------------------------------------------------------- */

static int begin_run(struct sl_fragment *f, struct sl_err *err)
{
    if (f->run_count == SL_FRAGMENT_RUNS_MAX)
        return sl_err_set(err, SL_ERR_INTERNAL, "pieces come in no order of their paths");
    if (f->run_count == f->run_room) {
        size_t room = f->run_room ? f->run_room * 2 : 4;
        uint64_t *runs = sl_realloc(f->runs, room * sizeof *runs);
        if (!runs)
            return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a fragment");
        f->runs = runs;
        f->run_room = room;
    }
    f->runs[f->run_count++] = f->end;
    return 0;
}

/* Does the piece continue the last run? */
static bool in_order(const struct sl_fragment *f, const struct sl_manifest_entry *piece)
{
    if (!f->has_last)
        return false;
    int order = strcmp(f->last_path, piece->path);
    uint64_t offset = piece->extent_count ? piece->extents[0].offset : 0;
    return order < 0 || (order == 0 && f->last_offset <= offset);
}

static void remember(struct sl_fragment *f, const struct sl_manifest_entry *piece)
{
    memcpy(f->last_path, piece->path, strlen(piece->path) + 1);
    f->last_offset = piece->extent_count ? piece->extents[0].offset : 0;
    f->has_last = true;
}

int sl_fragment_add(struct sl_fragment *f, const struct sl_manifest_entry *piece,
                    struct sl_err *err)
{
    uint64_t covered;
    int rc = sl_entry_check(piece, false, &covered, err);
    if (rc)
        return rc;
    size_t bytes = sl_entry_record_bytes(piece);
    if (bytes > f->room - f->used && (rc = sl_fragment_flush(f, err)) < 0)
        return rc;
    if (bytes > f->room) {
        uint8_t *buffer = sl_realloc(f->buffer, bytes);
        if (!buffer)
            return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a fragment");
        f->buffer = buffer;
        f->room = bytes;
    }
    if (!in_order(f, piece) && (rc = begin_run(f, err)) < 0)
        return rc;
    struct sl_writer w = sl_writer_on(f->buffer + f->used, bytes);
    sl_entry_record_write(&w, piece);
    f->used += bytes;
    f->end += bytes;
    remember(f, piece);
    return 0;
}

uint64_t sl_fragment_mark(const struct sl_fragment *f)
{
    return f->end;
}

/* What is the last piece of the last run? The file knows. */
static int recall_last(struct sl_fragment *f, struct sl_err *err)
{
    f->has_last = false;
    if (!f->run_count)
        return 0;
    struct sl_fragment_cursor cursor;
    int rc = sl_fragment_cursor_init(&cursor, f, f->runs[f->run_count - 1], f->end, err);
    while (rc >= 0 && (rc = sl_fragment_cursor_next(&cursor, NULL, NULL, err)) > 0)
        remember(f, &cursor.piece);
    sl_fragment_cursor_fini(&cursor);
    if (rc < 0)
        f->has_last = false; /* then the next piece begins a run, which is right too */
    return rc;
}

int sl_fragment_rewind(struct sl_fragment *f, uint64_t mark, struct sl_err *err)
{
    if (mark > f->end)
        return sl_err_set(err, SL_ERR_INTERNAL, "a fragment is rewound to where it never was");
    if (mark == f->end)
        return 0;
    if (mark >= f->on_disk) {
        f->used = (size_t)(mark - f->on_disk);
    } else {
        f->on_disk = mark;
        f->used = 0;
    }
    f->end = mark;
    while (f->run_count && f->runs[f->run_count - 1] >= mark)
        f->run_count--;
    return recall_last(f, err);
}

/* --- reading --------------------------------------------------------------------------------- */

int sl_fragment_cursor_init(struct sl_fragment_cursor *c, struct sl_fragment *f, uint64_t start,
                            uint64_t end, struct sl_err *err)
{
    *c = (struct sl_fragment_cursor){.fragment = f, .at = start, .end = end};
    int rc = sl_fragment_flush(f, err);
    if (rc)
        return rc;
    c->buffer = sl_alloc(BUFFER_ROOM);
    if (!c->buffer)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory to read a fragment");
    c->room = BUFFER_ROOM;
    return 0;
}

void sl_fragment_cursor_fini(struct sl_fragment_cursor *c)
{
    sl_free(c->buffer);
    sl_free(c->piece.extents);
    c->buffer = NULL;
    c->piece.extents = NULL;
}

/* Have `need` bytes in the buffer at `start`. */
static int fill(struct sl_fragment_cursor *c, size_t need, struct sl_err *err)
{
    if (c->filled - c->start >= need)
        return 0;
    memmove(c->buffer, c->buffer + c->start, c->filled - c->start);
    c->filled -= c->start;
    c->start = 0;
    if (need > c->room) {
        uint8_t *buffer = sl_realloc(c->buffer, need);
        if (!buffer)
            return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory to read a fragment");
        c->buffer = buffer;
        c->room = need;
    }
    while (c->filled < need) {
        size_t want = c->room - c->filled;
        if (want > c->end - c->at)
            want = (size_t)(c->end - c->at);
        int fault = sl_fault("fragment.pread");
        ssize_t n = fault ? -1 : pread(c->fragment->fd, c->buffer + c->filled, want, (off_t)c->at);
        if (n < 0 && !fault && errno == EINTR)
            continue;
        if (n <= 0)
            return sl_err_sys(err, SL_ERR_READ,
                              fault > 0         ? fault
                              : n < 0 && !fault ? errno
                                                : EIO,
                              "could not read a temporary file");
        c->filled += (size_t)n;
        c->at += (uint64_t)n;
    }
    return 0;
}

int sl_fragment_cursor_next(struct sl_fragment_cursor *c, const uint8_t **ret_record,
                            size_t *ret_bytes, struct sl_err *err)
{
    if (c->start == c->filled && c->at == c->end)
        return 0;
    int rc = fill(c, SL_RECORD_HEAD_BYTES, err);
    if (rc)
        return rc;
    struct sl_reader head = sl_reader_on(c->buffer + c->start, SL_RECORD_HEAD_BYTES);
    uint8_t kind = sl_read_u8(&head);
    uint32_t body = sl_read_u32(&head);
    if (kind != SL_RECORD_ENTRY || body > SL_RECORD_MAX)
        return sl_err_set(err, SL_ERR_INTERNAL, "a temporary file does not hold what was written");
    size_t bytes = SL_RECORD_HEAD_BYTES + body;
    rc = fill(c, bytes, err);
    if (rc == 0)
        rc = sl_entry_body_read(c->buffer + c->start + SL_RECORD_HEAD_BYTES, body, &c->piece, err);
    if (rc)
        return rc;
    if (ret_record) {
        *ret_record = c->buffer + c->start;
        *ret_bytes = bytes;
    }
    c->start += bytes;
    return 1;
}

int sl_fragment_index(struct sl_fragment *f, uint64_t mark, sl_manifest_sink sink, void *arg,
                      uint64_t *ret_bytes, struct sl_err *err)
{
    if (mark > f->end)
        return sl_err_set(err, SL_ERR_INTERNAL, "an index begins where the fragment never was");
    struct sl_record_out out;
    int rc = sl_record_out_init(&out, sink, arg, err);
    if (rc)
        return rc;
    struct sl_fragment_cursor cursor;
    const uint8_t *record = NULL;
    size_t bytes = 0;
    rc = sl_fragment_cursor_init(&cursor, f, mark, f->end, err);
    while (rc >= 0 && (rc = sl_fragment_cursor_next(&cursor, &record, &bytes, err)) > 0) {
        out.entries++;
        for (uint32_t i = 0; i < cursor.piece.extent_count; i++)
            out.bytes += cursor.piece.extents[i].length;
        rc = sl_record_out_raw(&out, record, bytes, err);
    }
    if (rc == 0)
        rc = sl_record_out_end(&out, err);
    if (rc == 0)
        *ret_bytes = out.total;
    sl_fragment_cursor_fini(&cursor);
    sl_record_out_fini(&out);
    return rc;
}
