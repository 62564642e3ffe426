/* The checker of xbstream. The format is that of mariadb-backup 10.11 and XtraBackup 8 (chunk types
 * P and E; S, sparse, is XtraBackup's). It extracts nothing and does not know what the files are.
 */
#include "mysql/xbstream.h"

#include "core/base/alloc.h"
#include "core/wire/cursor.h"

#include <inttypes.h>
#include <isa-l.h>
#include <string.h>

#define MAGIC           "XBSTCK01"
#define MAGIC_BYTES     8u
#define HEAD_BYTES      14u /* magic, flags, type, length of the path */
#define MAP_COUNT_BYTES 4u
#define TAIL_BYTES      20u /* length and offset of the payload, CRC */
#define MAP_ENTRY_BYTES 8u
#define MAP_ENTRIES_MAX (1u << 20)
#define FLAG_IGNORABLE  0x1u
#define KEPT_MAX        8u

enum state { HEAD, PATH, MAP_COUNT, TAIL, MAP, PAYLOAD };

struct file {
    uint64_t offset; /* where its next payload begins */
    int kept;        /* index, or -1 */
    uint32_t path_bytes;
    char path[SL_MY_XB_PATH_MAX + 1];
};

struct kept {
    const char *name;
    char *content;
    size_t count;
    bool whole, too_long;
};

struct sl_my_xbstream {
    enum state state;
    uint8_t field[SL_MY_XB_PATH_MAX]; /* of the state, as far as it has come */
    size_t have, want;
    /* of the chunk */
    uint8_t flags, type;
    char path[SL_MY_XB_PATH_MAX + 1];
    uint32_t path_bytes, map_left, wanted_crc, crc;
    uint64_t left, offset, start, holes, length;
    struct file *file; /* NULL: of a chunk to be passed over */
    /* of the stream */
    struct file **open;
    size_t open_count, open_room;
    struct kept kept[KEPT_MAX];
    size_t kept_count;
    struct sl_my_xb_totals totals;
    int failed;
};

static void expect(struct sl_my_xbstream *s, enum state state, size_t want)
{
    s->state = state;
    s->want = want;
    s->have = 0;
}

int sl_my_xbstream_new(const char *const *keep, struct sl_my_xbstream **ret_stream,
                       struct sl_err *err)
{
    struct sl_my_xbstream *s = sl_calloc(1, sizeof *s);
    if (!s)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    for (; keep && *keep && s->kept_count < KEPT_MAX; keep++)
        s->kept[s->kept_count++].name = *keep;
    expect(s, HEAD, HEAD_BYTES);
    *ret_stream = s;
    return 0;
}

void sl_my_xbstream_free(struct sl_my_xbstream *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->open_count; i++)
        sl_free(s->open[i]);
    for (size_t i = 0; i < s->kept_count; i++)
        sl_free(s->kept[i].content);
    sl_free(s->open);
    sl_free(s);
}

/* --- files ------------------------------------------------------------------------------------ */

static size_t find(const struct sl_my_xbstream *s)
{
    size_t i = 0;
    while (i < s->open_count && (s->open[i]->path_bytes != s->path_bytes ||
                                 memcmp(s->open[i]->path, s->path, s->path_bytes) != 0))
        i++;
    return i;
}

static int keep_index(const struct sl_my_xbstream *s)
{
    for (size_t i = 0; i < s->kept_count; i++)
        if (strcmp(s->kept[i].name, s->path) == 0)
            return (int)i;
    return -1;
}

static int grow(struct sl_my_xbstream *s, struct sl_err *err)
{
    if (s->open_count < s->open_room)
        return 0;
    if (s->open_count == SL_MY_XB_FILES_MAX)
        return sl_err_set(err, SL_ERR_LIMIT, "xbstream has more than %d files open at once",
                          SL_MY_XB_FILES_MAX);
    size_t room = s->open_room ? s->open_room * 2 : 16;
    struct file **grown = sl_realloc(s->open, room * sizeof *grown);
    if (!grown)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    s->open = grown;
    s->open_room = room;
    return 0;
}

/* The chunk's file; begun if need be. */
static int open_file(struct sl_my_xbstream *s, struct sl_err *err)
{
    size_t at = find(s);
    if (at < s->open_count) {
        s->file = s->open[at];
        return 0;
    }
    int rc = grow(s, err);
    if (rc)
        return rc;
    struct file *file = sl_calloc(1, sizeof *file);
    if (!file)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    memcpy(file->path, s->path, s->path_bytes);
    file->path_bytes = s->path_bytes;
    file->kept = keep_index(s);
    if (file->kept >= 0) {
        struct kept *kept = &s->kept[file->kept];
        kept->count = 0;
        kept->whole = kept->too_long = false;
    }
    s->file = s->open[s->open_count++] = file;
    return 0;
}

static int keep(struct sl_my_xbstream *s, const uint8_t *bytes, size_t count, struct sl_err *err)
{
    if (!s->file || s->file->kept < 0)
        return 0;
    struct kept *kept = &s->kept[s->file->kept];
    kept->too_long |= count > SL_MY_XB_KEEP_MAX - kept->count;
    if (kept->too_long)
        return 0;
    char *grown = sl_realloc(kept->content, kept->count + count + 1);
    if (!grown)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    memcpy(grown + kept->count, bytes, count);
    kept->content = grown;
    kept->count += count;
    grown[kept->count] = '\0';
    return 0;
}

static int end_file(struct sl_my_xbstream *s, struct sl_err *err)
{
    int rc = open_file(s, err); /* an empty file has nothing but its end */
    if (rc)
        return rc;
    size_t at = find(s);
    if (s->file->kept >= 0)
        s->kept[s->file->kept].whole = true;
    sl_free(s->open[at]);
    s->open[at] = s->open[--s->open_count];
    s->file = NULL;
    s->totals.files++;
    return 0;
}

/* --- chunks ----------------------------------------------------------------------------------- */

static int bad(const struct sl_my_xbstream *s, struct sl_err *err, const char *what)
{
    return sl_err_set(err, SL_ERR_FORMAT, "xbstream: %s, in the chunk at byte %" PRIu64, what,
                      s->start);
}

static bool path_is_safe(const struct sl_my_xbstream *s)
{
    if (memchr(s->path, '\0', s->path_bytes) || s->path[0] == '/')
        return false;
    for (const char *at = s->path;;) {
        size_t length = strcspn(at, "/");
        if (length == 2 && at[0] == '.' && at[1] == '.')
            return false;
        at += length;
        if (!*at++)
            return true;
    }
}

static int take_head(struct sl_my_xbstream *s, struct sl_err *err)
{
    struct sl_reader r = sl_reader_on(s->field, HEAD_BYTES);
    if (memcmp(sl_read_bytes(&r, MAGIC_BYTES), MAGIC, MAGIC_BYTES) != 0)
        return bad(s, err, s->totals.chunks ? "no chunk begins where one should" : "it is none");
    s->flags = sl_read_u8(&r);
    s->type = sl_read_u8(&r);
    s->path_bytes = sl_read_u32(&r);
    if (s->type != 'P' && s->type != 'E' && s->type != 'S' && !(s->flags & FLAG_IGNORABLE))
        return bad(s, err, "a type that is not known");
    if (!s->path_bytes || s->path_bytes > SL_MY_XB_PATH_MAX)
        return bad(s, err, "an impossible length of a path");
    expect(s, PATH, s->path_bytes);
    return 0;
}

static int take_path(struct sl_my_xbstream *s, struct sl_err *err)
{
    memcpy(s->path, s->field, s->path_bytes);
    s->path[s->path_bytes] = '\0';
    s->map_left = 0;
    s->crc = 0;
    s->holes = 0;
    s->file = NULL;
    if (!path_is_safe(s))
        return bad(s, err, "a path that leads out of the folder");
    if (s->type == 'E') {
        s->totals.chunks++;
        expect(s, HEAD, HEAD_BYTES);
        return end_file(s, err);
    }
    expect(s, s->type == 'S' ? MAP_COUNT : TAIL, s->type == 'S' ? MAP_COUNT_BYTES : TAIL_BYTES);
    return s->type == 'P' || s->type == 'S' ? open_file(s, err) : 0;
}

static int take_map_count(struct sl_my_xbstream *s, struct sl_err *err)
{
    struct sl_reader r = sl_reader_on(s->field, MAP_COUNT_BYTES);
    s->map_left = sl_read_u32(&r);
    if (s->map_left > MAP_ENTRIES_MAX)
        return bad(s, err, "an impossible sparse map");
    expect(s, TAIL, TAIL_BYTES);
    return 0;
}

static int end_chunk(struct sl_my_xbstream *s, struct sl_err *err)
{
    if (s->crc != s->wanted_crc)
        return sl_err_set(err, SL_ERR_CHECKSUM,
                          "xbstream: the chunk at byte %" PRIu64
                          " (of \"%.200s\") has CRC %08" PRIx32 ", its header says %08" PRIx32,
                          s->start, s->path, s->crc, s->wanted_crc);
    s->totals.chunks++;
    s->totals.payload += s->length;
    if (s->file)
        s->file->offset += s->length + s->holes;
    expect(s, HEAD, HEAD_BYTES);
    return 0;
}

static int after_map(struct sl_my_xbstream *s, struct sl_err *err)
{
    expect(s, PAYLOAD, 0);
    return s->left ? 0 : end_chunk(s, err);
}

static int take_tail(struct sl_my_xbstream *s, struct sl_err *err)
{
    struct sl_reader r = sl_reader_on(s->field, TAIL_BYTES);
    s->left = s->length = sl_read_u64(&r);
    s->offset = sl_read_u64(&r);
    s->wanted_crc = sl_read_u32(&r);
    if (s->length > INT64_MAX || s->offset > INT64_MAX - s->length)
        return bad(s, err, "an impossible length or offset");
    if (s->file && s->offset != s->file->offset)
        return bad(s, err, "a piece of a file is missing or comes twice");
    if (s->map_left) {
        expect(s, MAP, MAP_ENTRY_BYTES);
        return 0;
    }
    return after_map(s, err);
}

/* skip, length: a hole, then as many bytes of the payload */
static int take_map_entry(struct sl_my_xbstream *s, struct sl_err *err)
{
    struct sl_reader r = sl_reader_on(s->field, MAP_ENTRY_BYTES);
    s->holes += sl_read_u32(&r);
    s->crc = crc32_gzip_refl(s->crc, s->field, MAP_ENTRY_BYTES);
    if (--s->map_left) {
        expect(s, MAP, MAP_ENTRY_BYTES);
        return 0;
    }
    return after_map(s, err);
}

static int take_payload(struct sl_my_xbstream *s, const uint8_t *bytes, size_t count,
                        struct sl_err *err)
{
    s->crc = crc32_gzip_refl(s->crc, bytes, count);
    s->left -= count;
    int rc = keep(s, bytes, count, err);
    return rc || s->left ? rc : end_chunk(s, err);
}

static int take_field(struct sl_my_xbstream *s, struct sl_err *err)
{
    switch (s->state) {
    case HEAD:
        return take_head(s, err);
    case PATH:
        return take_path(s, err);
    case MAP_COUNT:
        return take_map_count(s, err);
    case TAIL:
        return take_tail(s, err);
    case MAP:
        return take_map_entry(s, err);
    default:
        return sl_err_set(err, SL_ERR_INTERNAL, "xbstream: a state that cannot be");
    }
}

/* As much of `bytes` as the state wants; how much it was. */
static int take_some(struct sl_my_xbstream *s, const uint8_t *bytes, size_t count,
                     size_t *ret_taken, struct sl_err *err)
{
    if (s->state == PAYLOAD) {
        size_t part = count < s->left ? count : (size_t)s->left;
        *ret_taken = part;
        return take_payload(s, bytes, part, err);
    }
    if (s->state == HEAD && !s->have)
        s->start = s->totals.bytes;
    size_t part = count < s->want - s->have ? count : s->want - s->have;
    memcpy(s->field + s->have, bytes, part);
    s->have += part;
    *ret_taken = part;
    return s->have == s->want ? take_field(s, err) : 0;
}

int sl_my_xbstream_take(struct sl_my_xbstream *s, const void *bytes, size_t count,
                        struct sl_err *err)
{
    const uint8_t *at = bytes;
    if (s->failed)
        return sl_err_set(err, s->failed, "the xbstream was bad before");
    while (count && !s->failed) {
        size_t taken;
        s->failed = take_some(s, at, count, &taken, err);
        at += taken;
        count -= taken;
        s->totals.bytes += taken;
    }
    return s->failed;
}

int sl_my_xbstream_end(struct sl_my_xbstream *s, struct sl_err *err)
{
    if (s->failed)
        return sl_err_set(err, s->failed, "the xbstream was bad before");
    if (s->state != HEAD || s->have)
        return sl_err_set(err, SL_ERR_FORMAT,
                          "xbstream: it ends in the middle of a chunk, at byte %" PRIu64,
                          s->totals.bytes);
    if (s->open_count)
        return sl_err_set(
            err, SL_ERR_FORMAT,
            "xbstream: it ends after %" PRIu64 " bytes without the end of \"%.200s\"%s",
            s->totals.bytes, s->open[0]->path, s->open_count > 1 ? " and other files" : "");
    if (!s->totals.files)
        return sl_err_set(err, SL_ERR_FORMAT, "xbstream: it holds no file");
    return 0;
}

void sl_my_xbstream_totals(const struct sl_my_xbstream *s, struct sl_my_xb_totals *ret_totals)
{
    *ret_totals = s->totals;
}

const char *sl_my_xbstream_kept(const struct sl_my_xbstream *s, const char *name)
{
    for (size_t i = 0; i < s->kept_count; i++) {
        const struct kept *kept = &s->kept[i];
        if (strcmp(kept->name, name) == 0 && kept->whole && !kept->too_long)
            return kept->content ? kept->content : "";
    }
    return NULL;
}
