/* The backup that an increment builds on: its manifest and its groups, in temporary files with an
 * index in memory. All of it comes from the repository and is checked before it is used. */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "postgres/incr.h"
#include "postgres/spool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY_BYTES  12
#define RECORD_MAX   (1u << 20) /* of groups: 256 MiB have 8192 of them */
#define EXTENT_BYTES 28

struct place {
    uint64_t key; /* digest of path, and offset */
    uint64_t at;  /* in the spool */
    uint32_t bytes;
};

struct index {
    struct place *places;
    size_t count, room;
    struct sl_pg_spool *spool;
};

struct sl_pg_base {
    struct index entries, groups;
    struct sl_manifest_pack *packs;
    bool *used;
    size_t pack_count, pack_room;
    struct sl_err nested;
};

static int no_memory(struct sl_err *err)
{
    return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for the backup to build on");
}

/* --- index -------------------------------------------------------------------------------------
 */

static uint64_t key_of(const char *path, uint64_t offset)
{
    struct sl_id id = sl_digest(offset, path, strlen(path));
    uint64_t key;
    memcpy(&key, id.bytes, sizeof key);
    return key;
}

static int index_add(struct index *index, uint64_t key, const void *bytes, size_t count,
                     struct sl_err *err)
{
    if (index->count == index->room) {
        size_t room = index->room * 2 + 1024;
        struct place *bigger = sl_realloc(index->places, room * sizeof *bigger);
        if (!bigger)
            return no_memory(err);
        index->places = bigger;
        index->room = room;
    }
    index->places[index->count++] =
        (struct place){key, sl_pg_spool_end(index->spool), (uint32_t)count};
    return sl_pg_spool_append(index->spool, bytes, count, err);
}

static int by_key(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? -1 : 1) : x->at < y->at ? -1 : x->at > y->at;
}

static int index_end(struct index *index, struct sl_err *err)
{
    if (index->count)
        qsort(index->places, index->count, sizeof *index->places, by_key);
    return sl_pg_spool_flush(index->spool, err);
}

/* The first place with the key, or index->count. */
static size_t index_find(const struct index *index, uint64_t key)
{
    size_t low = 0, high = index->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (index->places[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void index_fini(struct index *index)
{
    sl_pg_spool_free(index->spool);
    sl_free(index->places);
}

/* --- manifest ----------------------------------------------------------------------------------
 */

static int on_pack(void *arg, const struct sl_manifest_pack *pack)
{
    struct sl_pg_base *base = arg;
    if (base->pack_count == base->pack_room) {
        size_t room = base->pack_room * 2 + 16;
        void *bigger = sl_realloc(base->packs, room * sizeof *base->packs);
        if (!bigger)
            return no_memory(&base->nested);
        base->packs = bigger;
        base->pack_room = room;
    }
    base->packs[base->pack_count++] = *pack;
    return 0;
}

/* string path, u64 size, u32 extents, each as in the manifest */
static int on_entry(void *arg, const struct sl_manifest_entry *entry)
{
    struct sl_pg_base *base = arg;
    if (entry->kind != SL_ENTRY_FILE)
        return 0;
    size_t bytes = 2 + strlen(entry->path) + 12 + (size_t)entry->extent_count * EXTENT_BYTES;
    SL_CLEANUP_FREE uint8_t *record = sl_alloc(bytes);
    if (!record)
        return no_memory(&base->nested);
    struct sl_writer w = sl_writer_on(record, bytes);
    sl_write_string(&w, entry->path);
    sl_write_u64(&w, entry->size);
    sl_write_u32(&w, entry->extent_count);
    for (uint32_t i = 0; i < entry->extent_count; i++) {
        sl_write_u64(&w, entry->extents[i].offset);
        sl_write_u64(&w, entry->extents[i].length);
        sl_write_u64(&w, entry->extents[i].pack_offset);
        sl_write_u32(&w, entry->extents[i].pack);
    }
    return index_add(&base->entries, key_of(entry->path, 0), record, bytes, &base->nested);
}

static int load_manifest(struct sl_pg_base *base, struct sl_client *client, const char *label,
                         uint64_t step_ms, struct sl_err *err)
{
    char name[SL_NAME_MAX];
    struct sl_download *download = NULL;
    struct sl_manifest_reader *reader = NULL;
    struct sl_object_info info;
    const struct sl_manifest_visitor visitor = {.pack = on_pack, .entry = on_entry, .arg = base};
    snprintf(name, sizeof name, "backup/%s/manifest", label);
    int rc =
        sl_download_open(client, name, NULL, sl_deadline_in_ms(step_ms), &download, &info, err);
    if (!rc)
        rc = sl_manifest_reader_new(&visitor, &reader, err);
    while (!rc) {
        uint32_t block;
        const uint8_t *bytes;
        size_t count;
        rc = sl_download_next(download, &block, &bytes, &count, sl_deadline_in_ms(step_ms), err);
        if (rc == 0) {
            rc = sl_manifest_finish(reader, NULL, NULL, err);
            break;
        }
        if (rc > 0)
            rc = sl_manifest_feed(reader, bytes, count, err);
    }
    if (rc && base->nested.code == rc)
        sl_err_copy(err, &base->nested);
    sl_manifest_reader_free(reader);
    sl_download_close(download);
    return rc;
}

/* --- groups ------------------------------------------------------------------------------------
 */

/* One record at the start of the bytes: how long it is, 0 when it goes on behind them, or a code.
 */
static long take_record(struct sl_pg_base *base, const uint8_t *bytes, size_t count,
                        struct sl_err *err)
{
    char path[SL_PATH_MAX];
    struct sl_reader r = sl_reader_on(bytes, count);
    sl_read_string(&r, path, sizeof path);
    uint64_t offset = sl_read_u64(&r);
    sl_read_u64(&r);
    uint64_t groups = (uint64_t)sl_read_u32(&r) * ENTRY_BYTES;
    if (r.failed && count < SL_PATH_MAX + 22)
        return 0;
    if (r.failed || groups > RECORD_MAX)
        return sl_err_set(err, SL_ERR_FORMAT, "a record of groups makes no sense");
    if (groups > sl_reader_left(&r))
        return 0;
    size_t whole = count - sl_reader_left(&r) + (size_t)groups;
    int rc = index_add(&base->groups, key_of(path, offset), bytes, whole, err);
    return rc ? rc : (long)whole;
}

static int feed_groups(struct sl_pg_base *base, struct sl_download *download, uint64_t length,
                       uint64_t step_ms, struct sl_err *err)
{
    size_t room = RECORD_MAX + SL_PATH_MAX + 64 + SL_BLOCK_BYTES, used = 0;
    SL_CLEANUP_FREE uint8_t *buffer = sl_alloc(room);
    uint8_t head[16];
    bool begun = false;
    uint64_t left = length;
    if (!buffer)
        return no_memory(err);
    sl_pg_groups_head(head);
    while (left) {
        uint32_t block;
        const uint8_t *bytes;
        size_t count, at = 0;
        int rc =
            sl_download_next(download, &block, &bytes, &count, sl_deadline_in_ms(step_ms), err);
        if (rc < 0)
            return rc;
        if (rc == 0)
            break;
        memcpy(buffer + used, bytes, count);
        used += count;
        left -= count;
        if (!begun && (used < sizeof head || memcmp(buffer, head, sizeof head) != 0))
            return sl_err_set(err, SL_ERR_NOT_FOUND, "its groups are of a form not known here");
        at = begun ? 0 : sizeof head;
        begun = true;
        for (long taken = 1; taken > 0 && at < used;) {
            taken = take_record(base, buffer + at, used - at, err);
            if (taken < 0)
                return (int)taken;
            at += (size_t)taken;
        }
        memmove(buffer, buffer + at, used - at);
        used -= at;
        if (used > room - SL_BLOCK_BYTES)
            return sl_err_set(err, SL_ERR_FORMAT, "a record of groups is too long");
    }
    return used || left ? sl_err_set(err, SL_ERR_FORMAT, "its groups are cut short") : 0;
}

static int load_groups(struct sl_pg_base *base, struct sl_client *client, const char *label,
                       uint64_t step_ms, struct sl_err *err)
{
    char name[SL_NAME_MAX];
    struct sl_download *download = NULL;
    struct sl_object_info info;
    snprintf(name, sizeof name, "backup/%s/groups", label);
    int rc =
        sl_download_open(client, name, NULL, sl_deadline_in_ms(step_ms), &download, &info, err);
    if (rc)
        return rc;
    rc = feed_groups(base, download, info.length, step_ms, err);
    sl_download_close(download);
    return rc;
}

/* --- the whole ---------------------------------------------------------------------------------
 */

int sl_pg_base_load(struct sl_client *client, const char *label, uint64_t step_ms,
                    struct sl_pg_base **ret_base, struct sl_err *err)
{
    struct sl_pg_base *base = sl_calloc(1, sizeof *base);
    if (!base)
        return no_memory(err);
    int rc = sl_pg_spool_new(&base->entries.spool, err);
    if (!rc)
        rc = sl_pg_spool_new(&base->groups.spool, err);
    if (!rc)
        rc = load_groups(base, client, label, step_ms, err);
    if (!rc)
        rc = load_manifest(base, client, label, step_ms, err);
    if (!rc)
        rc = index_end(&base->entries, err);
    if (!rc)
        rc = index_end(&base->groups, err);
    base->used = rc ? NULL : sl_calloc(base->pack_count + 1, sizeof *base->used);
    if (!rc && !base->used)
        rc = no_memory(err);
    if (rc) {
        sl_pg_base_free(base);
        return rc;
    }
    *ret_base = base;
    return 0;
}

void sl_pg_base_free(struct sl_pg_base *base)
{
    if (!base)
        return;
    index_fini(&base->entries);
    index_fini(&base->groups);
    sl_free(base->packs);
    sl_free(base->used);
    sl_free(base);
}

size_t sl_pg_base_packs(const struct sl_pg_base *base, const struct sl_manifest_pack **ret_packs,
                        const bool **ret_used)
{
    *ret_packs = base->packs;
    *ret_used = base->used;
    return base->pack_count;
}

uint32_t sl_pg_base_last_pack(const struct sl_pg_base *base)
{
    return base->pack_count ? base->packs[base->pack_count - 1].number : 0;
}

/* --- finding -----------------------------------------------------------------------------------
 */

void sl_pg_based_fini(struct sl_pg_based *based)
{
    sl_free(based->groups);
    sl_free(based->entry.extents);
    *based = (struct sl_pg_based){0};
}

static bool parse_groups(const uint8_t *record, size_t count, const char *path, uint64_t offset,
                         struct sl_pg_based *based)
{
    char text[SL_PATH_MAX];
    struct sl_reader r = sl_reader_on(record, count);
    sl_read_string(&r, text, sizeof text);
    if (sl_read_u64(&r) != offset || strcmp(text, path) != 0)
        return false;
    based->length = sl_read_u64(&r);
    based->group_count = sl_read_u32(&r);
    size_t bytes = (size_t)based->group_count * ENTRY_BYTES;
    if (bytes > based->groups_room) {
        sl_free(based->groups);
        based->groups = sl_alloc(bytes);
        based->groups_room = based->groups ? bytes : 0;
    }
    if (!based->groups && bytes)
        return false;
    sl_read_into(&r, based->groups, bytes);
    return !r.failed && !sl_reader_left(&r) &&
           based->group_count == (based->length + SL_PG_GROUP_BYTES - 1) / SL_PG_GROUP_BYTES;
}

static bool parse_entry(const uint8_t *record, size_t count, const char *path,
                        struct sl_manifest_entry *entry)
{
    struct sl_reader r = sl_reader_on(record, count);
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

/* The record with this key for which `take` is true. */
static int find(const struct index *index, uint64_t key,
                bool (*take)(void *arg, const uint8_t *record, size_t count), void *arg,
                struct sl_err *err)
{
    for (size_t i = index_find(index, key); i < index->count && index->places[i].key == key; i++) {
        const struct place *place = &index->places[i];
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
    return parse_entry(record, count, s->path, &s->based->entry);
}

int sl_pg_base_find(const struct sl_pg_base *base, const char *path, uint64_t offset,
                    struct sl_pg_based *based, struct sl_err *err)
{
    struct sought sought = {path, offset, based};
    int rc = find(&base->groups, key_of(path, offset), take_groups, &sought, err);
    return rc == 1 ? find(&base->entries, key_of(path, 0), take_entry, &sought, err) : rc;
}

bool sl_pg_based_same(const struct sl_pg_based *based, uint32_t index, const struct sl_id *digest,
                      size_t count)
{
    uint64_t start = (uint64_t)index * SL_PG_GROUP_BYTES;
    if (index >= based->group_count || start >= based->length)
        return false;
    uint64_t length = based->length - start;
    return (length < SL_PG_GROUP_BYTES ? length : SL_PG_GROUP_BYTES) == count &&
           !memcmp(based->groups + (size_t)index * ENTRY_BYTES, digest->bytes, 8);
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

static bool use_pack(struct sl_pg_base *base, uint32_t number)
{
    size_t low = 0, high = base->pack_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (base->packs[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == base->pack_count || base->packs[low].number != number)
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
        if (x->pack && !use_pack(base, x->pack))
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
