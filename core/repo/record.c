/* Records: bytes of one entry and the rules that an entry has to keep, wherever it is written
 * (manifest, pack index, fragment). Order, headers and ends belong to the files that use this. */
#include "core/repo/record.h"

#include "core/base/alloc.h"

#include <string.h>

#define ENTRY_FIXED_BYTES (1 + 1 + 4 * 3 + 8 * 2 + 4)

const char *sl_shown(const char *path, char text[SL_SHOWN_BYTES])
{
    size_t at = 0;
    for (; path[at] && at < SL_SHOWN_BYTES - 1; at++) {
        unsigned char c = (unsigned char)path[at];
        text[at] = c < 0x20 || c == 0x7f ? '?' : path[at];
    }
    text[at] = '\0';
    return text;
}

/* --- one entry ------------------------------------------------------------------------------- */

size_t sl_entry_record_bytes(const struct sl_manifest_entry *e)
{
    return SL_RECORD_HEAD_BYTES + ENTRY_FIXED_BYTES + 2 + strlen(e->path) + 2 + strlen(e->link) +
           4 + (size_t)e->extent_count * SL_EXTENT_BYTES;
}

void sl_entry_record_write(struct sl_writer *w, const struct sl_manifest_entry *e)
{
    sl_write_u8(w, SL_RECORD_ENTRY);
    sl_write_u32(w, (uint32_t)(sl_entry_record_bytes(e) - SL_RECORD_HEAD_BYTES));
    sl_write_u8(w, e->kind);
    sl_write_u8(w, e->flags);
    sl_write_u32(w, e->mode);
    sl_write_u32(w, e->uid);
    sl_write_u32(w, e->gid);
    sl_write_u64(w, e->size);
    sl_write_u64(w, e->mtime_ns);
    sl_write_u32(w, e->crc32c);
    sl_write_string(w, e->path);
    sl_write_string(w, e->link);
    sl_write_u32(w, e->extent_count);
    for (uint32_t i = 0; i < e->extent_count; i++) {
        sl_write_u64(w, e->extents[i].offset);
        sl_write_u64(w, e->extents[i].length);
        sl_write_u64(w, e->extents[i].pack_offset);
        sl_write_u32(w, e->extents[i].pack);
    }
}

int sl_entry_extents_reserve(struct sl_manifest_entry *e, uint32_t count, struct sl_err *err)
{
    if (count <= e->extent_room)
        return 0;
    if (count > SL_EXTENTS_MAX)
        return sl_err_set(err, SL_ERR_LIMIT, "a file has more than %u extents", SL_EXTENTS_MAX);
    uint32_t room = e->extent_room ? e->extent_room : 4;
    while (room < count)
        room *= 2;
    struct sl_extent *extents = sl_realloc(e->extents, room * sizeof *extents);
    if (!extents)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for %u extents", room);
    e->extents = extents;
    e->extent_room = room;
    return 0;
}

int sl_entry_body_read(const uint8_t *body, size_t bytes, struct sl_manifest_entry *e,
                       struct sl_err *err)
{
    struct sl_reader reader = sl_reader_on(body, bytes), *r = &reader;
    e->kind = sl_read_u8(r);
    e->flags = sl_read_u8(r);
    e->mode = sl_read_u32(r);
    e->uid = sl_read_u32(r);
    e->gid = sl_read_u32(r);
    e->size = sl_read_u64(r);
    e->mtime_ns = sl_read_u64(r);
    e->crc32c = sl_read_u32(r);
    sl_read_string(r, e->path, sizeof e->path);
    sl_read_string(r, e->link, sizeof e->link);
    uint32_t count = sl_read_u32(r);
    e->extent_count = 0;
    /* the bytes that are there bound what a false count can make us allocate */
    if (r->failed || sl_reader_left(r) != (uint64_t)count * SL_EXTENT_BYTES ||
        count > SL_EXTENTS_MAX)
        return sl_err_set(err, SL_ERR_FORMAT, "an entry record of %zu bytes is malformed", bytes);
    int rc = sl_entry_extents_reserve(e, count, err);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < count; i++) {
        e->extents[i].offset = sl_read_u64(r);
        e->extents[i].length = sl_read_u64(r);
        e->extents[i].pack_offset = sl_read_u64(r);
        e->extents[i].pack = sl_read_u32(r);
    }
    e->extent_count = count;
    return 0;
}

/* Relative, no empty component, no "." or "..": each file has one path, below the root. */
static bool path_is_valid(const char *path)
{
    const char *component = path;
    for (const char *at = path;; at++) {
        if (*at && *at != '/')
            continue;
        size_t length = (size_t)(at - component);
        if (!length ||
            (component[0] == '.' && (length == 1 || (length == 2 && component[1] == '.'))))
            return false;
        if (!*at)
            return true;
        component = at + 1;
    }
}

static const char *extents_fault(const struct sl_manifest_entry *e, bool whole, uint64_t *ret_bytes)
{
    uint64_t first = whole || !e->extent_count ? 0 : e->extents[0].offset, at = first;
    for (uint32_t i = 0; i < e->extent_count; i++) {
        const struct sl_extent *x = &e->extents[i];
        if (!x->length)
            return "has an empty extent";
        if (x->offset != at)
            return x->offset > at ? "has a gap between extents" : "has overlapping extents";
        if (x->length > e->size || at > e->size - x->length)
            return "has an extent beyond its size";
        if (x->pack_offset > UINT64_MAX - x->length || (!x->pack && x->pack_offset))
            return "has an extent at an impossible place";
        at += x->length;
    }
    if (whole ? at != e->size : e->size && !e->extent_count)
        return "is not covered by its extents";
    *ret_bytes = at - first;
    return NULL;
}

static const char *entry_fault(const struct sl_manifest_entry *e, bool whole, uint64_t *ret_bytes)
{
    *ret_bytes = 0;
    if (!path_is_valid(e->path))
        return "is not a path below the root";
    if (e->flags & ~SL_ENTRY_HAS_CRC32C)
        return "has unknown flags";
    if (!(e->flags & SL_ENTRY_HAS_CRC32C) && e->crc32c)
        return "has a CRC but no flag for it";
    if (e->extent_count > SL_EXTENTS_MAX)
        return "has too many extents";
    switch (e->kind) {
    case SL_ENTRY_FILE:
        return e->link[0] ? "is a file with a link target" : extents_fault(e, whole, ret_bytes);
    case SL_ENTRY_FOLDER:
    case SL_ENTRY_LINK:
        if ((e->kind == SL_ENTRY_LINK) != (e->link[0] != '\0'))
            return "is a link without a target, or a folder with one";
        return e->size || e->extent_count || e->flags ? "has content, but is no file" : NULL;
    default:
        return "is of an unknown kind";
    }
}

int sl_entry_check(const struct sl_manifest_entry *e, bool whole, uint64_t *ret_bytes,
                   struct sl_err *err)
{
    const char *fault = entry_fault(e, whole, ret_bytes);
    if (!fault)
        return 0;
    char text[SL_SHOWN_BYTES];
    return sl_err_set(err, SL_ERR_FORMAT, "entry \"%s\" %s", sl_shown(e->path, text), fault);
}

/* --- packs ----------------------------------------------------------------------------------- */

int sl_pack_set_add(struct sl_pack_set *set, uint32_t number, uint64_t length, struct sl_err *err)
{
    if (!number || (set->count && set->items[set->count - 1].number >= number))
        return sl_err_set(err, SL_ERR_FORMAT, "pack %u is out of order", number);
    if (set->count == SL_PACKS_MAX)
        return sl_err_set(err, SL_ERR_LIMIT, "more than %u packs", SL_PACKS_MAX);
    if (set->count == set->room) {
        size_t room = set->room ? set->room * 2 : 16;
        void *items = sl_realloc(set->items, room * sizeof *set->items);
        if (!items)
            return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for %zu packs", room);
        set->items = items;
        set->room = room;
    }
    set->items[set->count++] = (struct sl_pack_known){.number = number, .length = length};
    return 0;
}

const struct sl_pack_known *sl_pack_set_find(const struct sl_pack_set *set, uint32_t number)
{
    /* numbers mostly have no gaps: then pack n is the n-th */
    if (number && number <= set->count && set->items[number - 1].number == number)
        return &set->items[number - 1];
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (set->items[middle].number == number)
            return &set->items[middle];
        if (set->items[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

int sl_pack_set_check(const struct sl_pack_set *set, const struct sl_manifest_entry *e,
                      struct sl_err *err)
{
    char text[SL_SHOWN_BYTES];
    for (uint32_t i = 0; i < e->extent_count; i++) {
        const struct sl_extent *x = &e->extents[i];
        if (!x->pack)
            continue;
        const struct sl_pack_known *pack = sl_pack_set_find(set, x->pack);
        if (!pack)
            return sl_err_set(err, SL_ERR_FORMAT, "entry \"%s\" refers to the unknown pack %u",
                              sl_shown(e->path, text), x->pack);
        if (x->length > pack->length || x->pack_offset > pack->length - x->length)
            return sl_err_set(err, SL_ERR_FORMAT, "entry \"%s\" refers beyond the end of pack %u",
                              sl_shown(e->path, text), x->pack);
    }
    return 0;
}

void sl_pack_set_fini(struct sl_pack_set *set)
{
    sl_free(set->items);
    *set = (struct sl_pack_set){0};
}
