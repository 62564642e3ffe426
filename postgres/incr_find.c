/* What the backup that an increment builds on has of a file. Its records were checked for form when
 * they were loaded (incr_base.c); here they are looked up. */
#include "core/base/alloc.h"
#include "postgres/incr_internal.h"

#include <string.h>

static int no_memory(struct sl_err *err)
{
    return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for the backup to build on");
}

/* --- finding -----------------------------------------------------------------------------------
 */

void sl_pg_based_fini(struct sl_pg_based *based)
{
    sl_free(based->groups);
    sl_free(based->entry.extents);
    *based = (struct sl_pg_based){0};
}

static bool parse_groups(const uint8_t *bytes, size_t count, const char *path, uint64_t offset,
                         struct sl_pg_based *based)
{
    struct sl_pg_group_record record;
    struct sl_reader r = sl_reader_on(bytes, count);
    uint32_t pack = sl_read_u32(&r);
    if (r.failed || sl_pg_group_record_decode(r.at, sl_reader_left(&r), &record, NULL) != 1 ||
        record.offset != offset || strcmp(record.path, path) != 0)
        return false;
    size_t room = (size_t)record.count * SL_PG_GROUP_ENTRY;
    if (room > based->groups_room) {
        sl_free(based->groups);
        based->groups = sl_alloc(room);
        based->groups_room = based->groups ? room : 0;
    }
    if (!based->groups && room)
        return false;
    if (room)
        memcpy(based->groups, record.groups, room);
    based->groups_pack = pack;
    based->length = record.length;
    based->group_count = record.count;
    return true;
}

static bool parse_entry(const uint8_t *record, size_t count, const char *path,
                        struct sl_manifest_entry *entry, uint32_t *ret_pack)
{
    struct sl_reader r = sl_reader_on(record, count);
    *ret_pack = sl_read_u32(&r);
    sl_read_string(&r, entry->path, sizeof entry->path);
    entry->size = sl_read_u64(&r);
    entry->extent_count = sl_read_u32(&r);
    if (r.failed || strcmp(entry->path, path) != 0)
        return false;
    if (entry->extent_count > entry->extent_room) {
        sl_free(entry->extents);
        entry->extents = sl_calloc(entry->extent_count, sizeof *entry->extents);
        entry->extent_room = entry->extents ? entry->extent_count : 0;
    }
    if (!entry->extents && entry->extent_count)
        return false;
    for (uint32_t i = 0; i < entry->extent_count; i++) {
        struct sl_extent *x = &entry->extents[i];
        x->offset = sl_read_u64(&r);
        x->length = sl_read_u64(&r);
        x->pack_offset = sl_read_u64(&r);
        x->pack = sl_read_u32(&r);
    }
    return !r.failed;
}

/* The last record with this key for which `take` is true. */
static int find(const struct sl_pg_index *index, uint64_t key,
                bool (*take)(void *arg, const uint8_t *record, size_t count), void *arg,
                struct sl_err *err)
{
    size_t first = sl_pg_index_find(index, key), i = first;
    while (i < index->count && index->places[i].key == key)
        i++;
    while (i-- > first) {
        const struct sl_pg_place *place = &index->places[i];
        SL_CLEANUP_FREE uint8_t *record = sl_alloc(place->bytes);
        if (!record)
            return no_memory(err);
        int rc = sl_pg_spool_read(index->spool, place->at, record, place->bytes, err);
        if (rc)
            return rc;
        if (take(arg, record, place->bytes))
            return 1;
    }
    return 0;
}

struct sought {
    const char *path;
    uint64_t offset;
    struct sl_pg_based *based;
};

static bool take_groups(void *arg, const uint8_t *record, size_t count)
{
    struct sought *s = arg;
    return parse_groups(record, count, s->path, s->offset, s->based);
}

static bool take_entry(void *arg, const uint8_t *record, size_t count)
{
    struct sought *s = arg;
    return parse_entry(record, count, s->path, &s->based->entry, &s->based->entry_pack);
}

int sl_pg_base_find(const struct sl_pg_base *base, const char *path, uint64_t offset,
                    struct sl_pg_based *based, struct sl_err *err)
{
    struct sought sought = {path, offset, based};
    based->group_count = 0;
    int rc = find(&base->groups, sl_pg_index_key(path, offset), take_groups, &sought, err);
    if (rc == 1)
        rc = find(&base->entries, sl_pg_index_key(path, base->by_piece ? offset : 0), take_entry,
                  &sought, err);
    /* what is known of a pack's content says nothing of what another pack has of the same file */
    return rc == 1 && base->by_piece && based->groups_pack != based->entry_pack ? 0 : rc;
}

size_t sl_pg_based_length(const struct sl_pg_based *based, uint32_t index)
{
    uint64_t start = (uint64_t)index * SL_PG_GROUP_BYTES;
    if (index >= based->group_count || start >= based->length)
        return 0;
    uint64_t length = based->length - start;
    return length < SL_PG_GROUP_BYTES ? (size_t)length : SL_PG_GROUP_BYTES;
}

uint32_t sl_pg_based_crc(const struct sl_pg_based *based, uint32_t index)
{
    struct sl_reader r =
        sl_reader_on(based->groups + (size_t)index * SL_PG_GROUP_ENTRY + 8, sizeof(uint32_t));
    return sl_read_u32(&r);
}

bool sl_pg_based_same(const struct sl_pg_based *based, uint32_t index, const struct sl_id *digest,
                      size_t count)
{
    return count && sl_pg_based_length(based, index) == count &&
           !memcmp(based->groups + (size_t)index * SL_PG_GROUP_ENTRY, digest->bytes, 8);
}

/* --- extents -----------------------------------------------------------------------------------
 */

void sl_pg_extent_add(struct sl_extent *extents, uint32_t *count, struct sl_extent extent)
{
    struct sl_extent *last = *count ? &extents[*count - 1] : NULL;
    if (last && last->offset + last->length == extent.offset && last->pack == extent.pack &&
        (!extent.pack || last->pack_offset + last->length == extent.pack_offset))
        last->length += extent.length;
    else if (extent.length)
        extents[(*count)++] = extent;
}

/* What a pack's index refers to in other packs was not checked when it was loaded. */
static bool use_pack(struct sl_pg_base *base, const struct sl_extent *x)
{
    size_t low = 0, high = base->pack_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (base->packs[middle].number < x->pack)
            low = middle + 1;
        else
            high = middle;
    }
    const struct sl_manifest_pack *pack = &base->packs[low];
    if (low == base->pack_count || pack->number != x->pack || x->length > pack->length ||
        x->pack_offset > pack->length - x->length)
        return false;
    __atomic_store_n(&base->used[low], true, __ATOMIC_RELAXED);
    return true;
}

bool sl_pg_base_extents(struct sl_pg_base *base, const struct sl_pg_based *based, uint64_t offset,
                        uint64_t length, struct sl_extent *extents, uint32_t *count)
{
    const struct sl_manifest_entry *e = &based->entry;
    uint32_t low = 0, high = e->extent_count, most = *count + SL_PG_BASED_MOST;
    while (low < high) { /* the first that ends behind the offset */
        uint32_t middle = low + (high - low) / 2;
        if (e->extents[middle].offset + e->extents[middle].length <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    for (; length && low < e->extent_count && *count < most; low++) {
        const struct sl_extent *x = &e->extents[low];
        if (x->offset > offset)
            return false;
        uint64_t skip = offset - x->offset, part = x->length - skip;
        part = part < length ? part : length;
        if (x->pack && !use_pack(base, x))
            return false;
        sl_pg_extent_add(extents, count,
                         (struct sl_extent){.offset = offset,
                                            .length = part,
                                            .pack_offset = x->pack ? x->pack_offset + skip : 0,
                                            .pack = x->pack});
        offset += part;
        length -= part;
    }
    return !length;
}
