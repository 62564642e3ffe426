/* Checksums of groups of pages, as they are written. */
#include "core/base/alloc.h"
#include "postgres/incr.h"

#include <stdio.h>
#include <string.h>

#define ENTRY_BYTES 12

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
