/* Manifests, indexes of packs and groups of an earlier backup, from the repository into a base.
 * Which of them is decided in incr_base.c. All of it is checked before it is used. */
#include "core/base/alloc.h"
#include "core/object/object.h"
#include "postgres/incr_internal.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define EXTENT_BYTES 28

static int no_memory(struct sl_err *err)
{
    return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for the backup to build on");
}

/* --- manifest ----------------------------------------------------------------------------------
 */

int sl_pg_base_add_pack(struct sl_pg_base *base, const struct sl_manifest_pack *pack)
{
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

static int on_pack(void *arg, const struct sl_manifest_pack *pack)
{
    return sl_pg_base_add_pack(arg, pack);
}

/* What an index says to be in its own pack must be there. What it refers to elsewhere is not used.
 */
static bool is_in_pack(const struct sl_pg_base *base, const struct sl_manifest_entry *entry)
{
    for (uint32_t i = 0; i < entry->extent_count; i++) {
        const struct sl_extent *x = &entry->extents[i];
        if (x->pack == base->loading &&
            (x->length > base->content || x->pack_offset > base->content - x->length))
            return false;
    }
    return true;
}

/* string path, u64 size, u32 extents, each as in the manifest */
static int on_entry(void *arg, const struct sl_manifest_entry *entry)
{
    struct sl_pg_base *base = arg;
    if (entry->kind != SL_ENTRY_FILE)
        return 0;
    if (base->by_piece && !is_in_pack(base, entry))
        return sl_err_set(&base->nested, SL_ERR_FORMAT, "its index tells of bytes it has not");
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
    return sl_pg_index_add(&base->entries, sl_pg_index_key(entry->path, offset), base->loading,
                           record, bytes, &base->nested);
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

int sl_pg_base_load_manifest(struct sl_pg_base *base, struct sl_client *client, const char *label,
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

int sl_pg_base_load_index(struct sl_pg_base *base, struct sl_client *client,
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
        base->content = from;
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

static int on_record(void *arg, const struct sl_pg_group_record *record, const void *bytes,
                     struct sl_err *err)
{
    struct sl_pg_base *base = arg;
    return sl_pg_index_add(&base->groups, sl_pg_index_key(record->path, record->offset),
                           base->loading, bytes, record->bytes, err);
}

static int feed_groups(struct sl_pg_groups_reader *reader, struct sl_download *download,
                       uint64_t step_ms, struct sl_err *err)
{
    uint32_t block;
    const uint8_t *bytes;
    size_t count;
    int rc;
    while ((rc = sl_download_next(download, &block, &bytes, &count, sl_deadline_in_ms(step_ms),
                                  err)) == 1)
        if ((rc = sl_pg_groups_reader_feed(reader, bytes, count, err)) < 0)
            return rc;
    return rc ? rc : sl_pg_groups_reader_finish(reader, err);
}

int sl_pg_base_load_groups(struct sl_pg_base *base, struct sl_client *client, const char *label,
                           uint32_t pack, uint64_t step_ms, struct sl_err *err)
{
    char name[SL_NAME_MAX];
    struct sl_download *download = NULL;
    struct sl_pg_groups_reader *reader = NULL;
    struct sl_object_info info;
    sl_pg_groups_name(label, pack, name);
    int rc =
        sl_download_open(client, name, NULL, sl_deadline_in_ms(step_ms), &download, &info, err);
    if (rc)
        return rc == SL_ERR_NOT_FOUND ? 0 : rc;
    rc = sl_pg_groups_reader_new(on_record, base, &reader, err);
    if (!rc)
        rc = feed_groups(reader, download, step_ms, err);
    sl_pg_groups_reader_free(reader);
    sl_download_close(download);
    return rc;
}
