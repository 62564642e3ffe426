/* The backup that an increment builds on: its manifest and its groups, in temporary files with an
 * index in memory. Or the packs of one that was broken off, and their indexes. Looking up is
 * incr_find.c's. All of it comes from the repository and is checked before it is used. */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/object/object.h"
#include "postgres/incr_internal.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_MAX   (1u << 20) /* of groups: 256 MiB have 8192 of them */
#define EXTENT_BYTES 28

static int no_memory(struct sl_err *err)
{
    return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for the backup to build on");
}

/* --- index -------------------------------------------------------------------------------------
 */

uint64_t sl_pg_index_key(const char *path, uint64_t offset)
{
    struct sl_id id = sl_digest(offset, path, strlen(path));
    uint64_t key;
    memcpy(&key, id.bytes, sizeof key);
    return key;
}

static int index_add(struct sl_pg_index *index, uint64_t key, uint32_t pack, const void *bytes,
                     size_t count, struct sl_err *err)
{
    if (index->count == index->room) {
        size_t room = index->room * 2 + 1024;
        struct sl_pg_place *bigger = sl_realloc(index->places, room * sizeof *bigger);
        if (!bigger)
            return no_memory(err);
        index->places = bigger;
        index->room = room;
    }
    uint8_t head[4];
    struct sl_writer w = sl_writer_on(head, sizeof head);
    sl_write_u32(&w, pack);
    index->places[index->count++] =
        (struct sl_pg_place){key, sl_pg_spool_end(index->spool), (uint32_t)(count + sizeof head)};
    int rc = sl_pg_spool_append(index->spool, head, sizeof head, err);
    return rc ? rc : sl_pg_spool_append(index->spool, bytes, count, err);
}

static int by_key(const void *a, const void *b)
{
    const struct sl_pg_place *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? -1 : 1) : x->at < y->at ? -1 : x->at > y->at;
}

static int index_end(struct sl_pg_index *index, struct sl_err *err)
{
    if (index->count)
        qsort(index->places, index->count, sizeof *index->places, by_key);
    return sl_pg_spool_flush(index->spool, err);
}

size_t sl_pg_index_find(const struct sl_pg_index *index, uint64_t key)
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

static void index_fini(struct sl_pg_index *index)
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
    uint64_t offset = base->by_piece && entry->extent_count ? entry->extents[0].offset : 0;
    return index_add(&base->entries, sl_pg_index_key(entry->path, offset), base->loading, record,
                     bytes, &base->nested);
}

/* Groups of packs of attempts before the one that finished it may be of other content than the
 * manifest's. */
static int on_header(void *arg, const char *label, const char *prior, const char *json)
{
    struct sl_pg_base *base = arg;
    (void)label;
    (void)prior;
    json_t *object = json_loads(json, 0, NULL);
    json_int_t first =
        json_integer_value(json_object_get(json_object_get(object, "resumed"), "first_pack"));
    json_decref(object);
    base->first_own = first > 0 && first <= UINT32_MAX ? (uint32_t)first : 0;
    return 0;
}

/* All of the object from `skip` on into the reader. */
static int feed_records(struct sl_pg_base *base, struct sl_manifest_reader *reader,
                        struct sl_download *download, size_t skip, uint64_t step_ms,
                        struct sl_err *err)
{
    uint32_t block;
    const uint8_t *bytes;
    size_t count;
    int rc;
    while ((rc = sl_download_next(download, &block, &bytes, &count, sl_deadline_in_ms(step_ms),
                                  err)) == 1) {
        if (skip > count)
            return sl_err_set(err, SL_ERR_FORMAT, "an index begins behind its pack's end");
        if ((rc = sl_manifest_feed(reader, bytes + skip, count - skip, err)) < 0)
            break;
        skip = 0;
    }
    if (!rc)
        rc = sl_manifest_finish(reader, NULL, NULL, err);
    return rc && base->nested.code == rc ? sl_err_copy(err, &base->nested), rc : rc;
}

static int load_manifest(struct sl_pg_base *base, struct sl_client *client, const char *label,
                         uint64_t step_ms, struct sl_err *err)
{
    char name[SL_NAME_MAX];
    struct sl_download *download = NULL;
    struct sl_manifest_reader *reader = NULL;
    struct sl_object_info info;
    const struct sl_manifest_visitor visitor = {
        .header = on_header, .pack = on_pack, .entry = on_entry, .arg = base};
    snprintf(name, sizeof name, "backup/%s/manifest", label);
    int rc =
        sl_download_open(client, name, NULL, sl_deadline_in_ms(step_ms), &download, &info, err);
    if (!rc)
        rc = sl_manifest_reader_new(&visitor, &reader, err);
    if (!rc)
        rc = feed_records(base, reader, download, 0, step_ms, err);
    sl_manifest_reader_free(reader);
    sl_download_close(download);
    return rc;
}

/* The index at the end of a pack; `ret_pack` gets its length and digest. */
static int load_index(struct sl_pg_base *base, struct sl_client *client,
                      struct sl_manifest_pack *ret_pack, uint64_t step_ms, struct sl_err *err)
{
    struct sl_download *download = NULL;
    struct sl_manifest_reader *reader = NULL;
    struct sl_object_info info;
    const struct sl_manifest_visitor visitor = {.entry = on_entry, .arg = base};
    int rc = sl_download_open(client, ret_pack->name, NULL, sl_deadline_in_ms(step_ms), &download,
                              &info, err);
    if (!rc && (!info.index_bytes || info.index_bytes > info.length))
        rc = sl_err_set(err, SL_ERR_FORMAT, "\"%s\" has no index", ret_pack->name);
    if (!rc)
        rc = sl_pack_index_reader_new(&visitor, &reader, err);
    if (!rc) {
        uint64_t from = info.length - info.index_bytes;
        uint32_t first = (uint32_t)(from / SL_BLOCK_BYTES);
        rc = sl_download_range(download, first, sl_blocks_of(info.length) - first, err);
        if (!rc)
            rc =
                feed_records(base, reader, download, (size_t)(from % SL_BLOCK_BYTES), step_ms, err);
        ret_pack->length = info.length;
        ret_pack->digest = info.digest;
    }
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
    uint64_t groups = (uint64_t)sl_read_u32(&r) * SL_PG_GROUP_ENTRY;
    if (r.failed && count < SL_PATH_MAX + 22)
        return 0;
    if (r.failed || groups > RECORD_MAX)
        return sl_err_set(err, SL_ERR_FORMAT, "a record of groups makes no sense");
    if (groups > sl_reader_left(&r))
        return 0;
    size_t whole = count - sl_reader_left(&r) + (size_t)groups;
    int rc =
        index_add(&base->groups, sl_pg_index_key(path, offset), base->loading, bytes, whole, err);
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

/* Of one pack. One that is not there is no failure: that pack's files are stored anew. */
static int load_groups(struct sl_pg_base *base, struct sl_client *client, const char *label,
                       uint32_t pack, uint64_t step_ms, struct sl_err *err)
{
    char name[SL_NAME_MAX];
    struct sl_download *download = NULL;
    struct sl_object_info info;
    sl_pg_groups_name(label, pack, name);
    int rc =
        sl_download_open(client, name, NULL, sl_deadline_in_ms(step_ms), &download, &info, err);
    if (rc)
        return rc == SL_ERR_NOT_FOUND ? 0 : rc;
    rc = feed_groups(base, download, info.length, step_ms, err);
    sl_download_close(download);
    return rc;
}

/* Of all packs that the backup itself has stored. */
static int load_own_groups(struct sl_pg_base *base, struct sl_client *client, const char *label,
                           uint64_t step_ms, struct sl_err *err)
{
    char own[SL_NAME_MAX];
    int rc = 0;
    snprintf(own, sizeof own, "backup/%s/", label);
    for (size_t i = 0; !rc && i < base->pack_count; i++)
        if (base->packs[i].number >= base->first_own &&
            !strncmp(base->packs[i].name, own, strlen(own)))
            rc = load_groups(base, client, label, base->packs[i].number, step_ms, err);
    return rc;
}

/* --- the whole ---------------------------------------------------------------------------------
 */

static int base_new(struct sl_pg_base **ret_base, struct sl_err *err)
{
    struct sl_pg_base *base = sl_calloc(1, sizeof *base);
    if (!base)
        return no_memory(err);
    int rc = sl_pg_spool_new(&base->entries.spool, err);
    if (!rc)
        rc = sl_pg_spool_new(&base->groups.spool, err);
    if (rc) {
        sl_pg_base_free(base);
        return rc;
    }
    *ret_base = base;
    return 0;
}

static int base_end(struct sl_pg_base *base, struct sl_err *err)
{
    int rc = index_end(&base->entries, err);
    if (!rc)
        rc = index_end(&base->groups, err);
    base->used = rc ? NULL : sl_calloc(base->pack_count + 1, sizeof *base->used);
    return !rc && !base->used ? no_memory(err) : rc;
}

int sl_pg_base_load(struct sl_client *client, const char *label, uint64_t step_ms,
                    struct sl_pg_base **ret_base, struct sl_err *err)
{
    struct sl_pg_base *base;
    int rc = base_new(&base, err);
    if (rc)
        return rc;
    rc = load_manifest(base, client, label, step_ms, err);
    if (!rc)
        rc = load_own_groups(base, client, label, step_ms, err);
    if (!rc)
        rc = base_end(base, err);
    if (rc) {
        sl_pg_base_free(base);
        return rc;
    }
    *ret_base = base;
    return 0;
}

/* One pack of a backup without manifest. Of one that is damaged or foreign nothing is used. */
static int load_pack(struct sl_pg_base *base, struct sl_client *client, const char *label,
                     uint32_t number, uint64_t step_ms, struct sl_err *err)
{
    size_t entries = base->entries.count, groups = base->groups.count;
    struct sl_manifest_pack pack = {.number = number};
    sl_pg_pack_name(label, number, pack.name);
    base->loading = number;
    int rc = load_index(base, client, &pack, step_ms, err);
    if (!rc)
        rc = load_groups(base, client, label, number, step_ms, err);
    if (!rc)
        return on_pack(base, &pack) ? sl_err_copy(err, &base->nested), base->nested.code : 0;
    base->entries.count = entries;
    base->groups.count = groups;
    if (sl_code_retryable(rc) || rc == SL_ERR_NO_MEMORY || rc == SL_ERR_WRITE)
        return rc;
    sl_log_err(SL_LOG_WARN, "postgres", err, "pack %u of the broken-off backup is not used",
               number);
    return 0;
}

struct numbers {
    uint32_t *list;
    size_t count, room;
};

static int list_pack(void *arg, const struct sl_entry *entry)
{
    struct numbers *n = arg;
    char *end;
    if (strncmp(entry->name, "pack-", 5) != 0)
        return 0;
    unsigned long number = strtoul(entry->name + 5, &end, 10);
    if (*end || !number || number > UINT32_MAX)
        return 0;
    if (n->count == n->room) {
        size_t room = n->room * 2 + 16;
        uint32_t *bigger = sl_realloc(n->list, room * sizeof *bigger);
        if (!bigger)
            return SL_ERR_NO_MEMORY;
        n->list = bigger;
        n->room = room;
    }
    n->list[n->count++] = (uint32_t)number;
    return 0;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

int sl_pg_base_load_packs(struct sl_client *client, const char *label, uint64_t step_ms,
                          struct sl_pg_base **ret_base, struct sl_err *err)
{
    struct sl_pg_base *base;
    struct numbers numbers = {0};
    char folder[SL_NAME_MAX];
    int rc = base_new(&base, err);
    if (rc)
        return rc;
    base->by_piece = true;
    snprintf(folder, sizeof folder, "backup/%s", label);
    rc = sl_client_list(client, folder, "", list_pack, &numbers, sl_deadline_in_ms(step_ms), err);
    if (rc == SL_ERR_NO_MEMORY)
        no_memory(err);
    if (numbers.count)
        qsort(numbers.list, numbers.count, sizeof *numbers.list, by_value);
    for (size_t i = 0; !rc && i < numbers.count; i++)
        rc = load_pack(base, client, label, numbers.list[i], step_ms, err);
    sl_free(numbers.list);
    if (!rc)
        rc = base_end(base, err);
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
