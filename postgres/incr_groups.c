/* Checksums of groups of pages: records as they are written, and read. docs/repository.md has the
 * bytes. What is done with them is decided elsewhere. */
#include "core/base/alloc.h"
#include "postgres/incr_internal.h"

#include <stdio.h>
#include <string.h>

#define ENTRY_BYTES SL_PG_GROUP_ENTRY
#define RECORD_MAX  (1u << 20) /* of its groups: 256 MiB have 8192 of them */
#define RECORD_HEAD (2 + SL_PATH_MAX + 8 + 8 + 4)

int sl_pg_groups_init(struct sl_pg_groups *g, uint64_t seed, struct sl_err *err)
{
    *g = (struct sl_pg_groups){0};
    return sl_digester_new(seed, &g->digester, err);
}

void sl_pg_groups_fini(struct sl_pg_groups *g)
{
    sl_digester_free(g->digester);
    sl_free(g->bytes);
    *g = (struct sl_pg_groups){0};
}

size_t sl_pg_groups_head(uint8_t bytes[16])
{
    struct sl_writer w = sl_writer_on(bytes, 16);
    sl_write_bytes(&w, "SLGROUPS", 8);
    sl_write_u32(&w, 1);
    sl_write_u32(&w, SL_PG_GROUP_BYTES);
    return sl_writer_used(&w);
}

void sl_pg_pack_name(const char *label, uint32_t number, char name[SL_NAME_MAX])
{
    snprintf(name, SL_NAME_MAX, "backup/%s/pack-%04u", label, number);
}

void sl_pg_groups_name(const char *label, uint32_t number, char name[SL_NAME_MAX])
{
    snprintf(name, SL_NAME_MAX, "backup/%s/groups-%04u", label, number);
}

static uint8_t *more(struct sl_pg_groups *g, size_t count)
{
    if (g->used + count > g->room) {
        size_t room = (g->used + count) * 2;
        uint8_t *bigger = sl_realloc(g->bytes, room);
        if (!bigger) {
            g->failed = true;
            return NULL;
        }
        g->bytes = bigger;
        g->room = room;
    }
    g->used += count;
    return g->bytes + g->used - count;
}

/* u16 length, path, u64 offset, u64 length of the piece, u32 groups */
void sl_pg_groups_begin(struct sl_pg_groups *g, const char *path, uint64_t offset)
{
    size_t length = strlen(path), bytes = 2 + length + 8 + 8 + 4;
    g->failed = false;
    g->crc = 0;
    g->filled = 0;
    g->count = 0;
    g->record = g->used;
    uint8_t *at = more(g, bytes);
    if (!at)
        return;
    struct sl_writer w = sl_writer_on(at, bytes);
    sl_write_string(&w, path);
    sl_write_u64(&w, offset);
    g->count_at = g->used - 12;
}

static void end_group(struct sl_pg_groups *g)
{
    struct sl_id id = sl_digester_take(g->digester);
    uint8_t *at = more(g, ENTRY_BYTES);
    if (at) {
        struct sl_writer w = sl_writer_on(at, ENTRY_BYTES);
        sl_write_bytes(&w, id.bytes, 8);
        sl_write_u32(&w, g->crc);
    }
    g->count++;
    g->crc = 0;
    g->filled = 0;
}

void sl_pg_groups_feed(struct sl_pg_groups *g, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    while (count && !g->failed) {
        size_t part = SL_PG_GROUP_BYTES - g->filled;
        part = part < count ? part : count;
        sl_digester_feed(g->digester, at, part);
        g->crc = sl_crc32c(g->crc, at, part);
        g->filled += part;
        if (g->filled == SL_PG_GROUP_BYTES)
            end_group(g);
        at += part;
        count -= part;
    }
}

void sl_pg_groups_repeat(struct sl_pg_groups *g, const struct sl_pg_based *based, uint32_t index)
{
    uint8_t *at = more(g, ENTRY_BYTES);
    if (at)
        memcpy(at, based->groups + (size_t)index * ENTRY_BYTES, ENTRY_BYTES);
    g->count++;
}

int sl_pg_groups_end(struct sl_pg_groups *g, uint64_t length, struct sl_err *err)
{
    if (g->filled && !g->failed)
        end_group(g);
    if (g->failed) {
        sl_digester_take(g->digester);
        g->used = g->record;
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    }
    struct sl_writer w = sl_writer_on(g->bytes + g->count_at, 12);
    sl_write_u64(&w, length);
    sl_write_u32(&w, g->count);
    return 0;
}

/* --- reading -----------------------------------------------------------------------------------
 */

int sl_pg_group_record_decode(const uint8_t *bytes, size_t count,
                              struct sl_pg_group_record *ret_record, struct sl_err *err)
{
    struct sl_reader r = sl_reader_on(bytes, count);
    sl_read_string(&r, ret_record->path, sizeof ret_record->path);
    ret_record->offset = sl_read_u64(&r);
    ret_record->length = sl_read_u64(&r);
    ret_record->count = sl_read_u32(&r);
    if (r.failed && count < RECORD_HEAD)
        return 0;
    uint64_t groups = (uint64_t)ret_record->count * ENTRY_BYTES;
    uint64_t wanted =
        ret_record->length / SL_PG_GROUP_BYTES + (ret_record->length % SL_PG_GROUP_BYTES ? 1 : 0);
    if (r.failed || !ret_record->path[0] || groups > RECORD_MAX || ret_record->count != wanted)
        return sl_err_set(err, SL_ERR_FORMAT, "a record of groups makes no sense");
    if (groups > sl_reader_left(&r))
        return 0;
    ret_record->groups = sl_read_bytes(&r, (size_t)groups);
    ret_record->bytes = count - sl_reader_left(&r);
    return 1;
}

struct sl_pg_groups_reader {
    sl_pg_groups_visit visit;
    void *arg;
    bool begun; /* the head was seen */
    size_t used;
    struct sl_pg_group_record record;
    uint8_t bytes[RECORD_HEAD + RECORD_MAX + SL_BLOCK_BYTES]; /* what goes on, and one piece more */
};

int sl_pg_groups_reader_new(sl_pg_groups_visit visit, void *arg,
                            struct sl_pg_groups_reader **ret_reader, struct sl_err *err)
{
    struct sl_pg_groups_reader *reader = sl_alloc(sizeof *reader);
    if (!reader)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for groups of pages");
    reader->visit = visit;
    reader->arg = arg;
    reader->begun = false;
    reader->used = 0;
    *ret_reader = reader;
    return 0;
}

void sl_pg_groups_reader_free(struct sl_pg_groups_reader *reader)
{
    sl_free(reader);
}

/* How much of the bytes was taken, or a code. */
static long take_records(struct sl_pg_groups_reader *reader, struct sl_err *err)
{
    uint8_t head[16];
    size_t at = 0;
    if (!reader->begun) {
        if (reader->used < sl_pg_groups_head(head))
            return 0;
        if (memcmp(reader->bytes, head, sizeof head) != 0)
            return sl_err_set(err, SL_ERR_VERSION, "groups of a form not known here");
        reader->begun = true;
        at = sizeof head;
    }
    while (at < reader->used) {
        const uint8_t *bytes = reader->bytes + at;
        int rc = sl_pg_group_record_decode(bytes, reader->used - at, &reader->record, err);
        if (!rc)
            break;
        if (rc == 1)
            rc = reader->visit(reader->arg, &reader->record, bytes, err);
        if (rc < 0)
            return rc;
        at += reader->record.bytes;
    }
    return (long)at;
}

int sl_pg_groups_reader_feed(struct sl_pg_groups_reader *reader, const void *bytes, size_t count,
                             struct sl_err *err)
{
    const uint8_t *from = bytes;
    while (count) {
        size_t part = count < SL_BLOCK_BYTES ? count : SL_BLOCK_BYTES;
        memcpy(reader->bytes + reader->used, from, part);
        reader->used += part;
        from += part;
        count -= part;
        long taken = take_records(reader, err);
        if (taken < 0)
            return (int)taken;
        reader->used -= (size_t)taken;
        memmove(reader->bytes, reader->bytes + taken, reader->used);
    }
    return 0;
}

int sl_pg_groups_reader_finish(struct sl_pg_groups_reader *reader, struct sl_err *err)
{
    return reader->begun && !reader->used
               ? 0
               : sl_err_set(err, SL_ERR_FORMAT, "groups of pages are cut short");
}
