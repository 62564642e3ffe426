/* The plan of a restore. Pieces are gathered in a buffer, sorted by unit and place, written as a
 * run; each unit keeps a list of where in the spool its parts of runs lie. Because workers of the
 * backup filled their packs in the manifest's order, a run touches few units. Memory: the buffer,
 * 16 bytes a unit, 24 bytes for each part, 16 for each file that a delta restore keeps. */
#include "postgres/restore_plan.h"

#include "core/base/alloc.h"
#include "core/base/thread.h"
#include "core/wire/cursor.h"
#include "postgres/spool.h"

#include <stdlib.h>
#include <string.h>

#define RUN_PIECES       32768u
#define PATH_RECORD_HEAD 18 /* u8 kind, u8 present, u32 crc, u64 size, u16 path, u16 link */
#define NO_PART          UINT32_MAX

struct part {
    uint64_t first; /* piece number in the spool */
    uint32_t count, next;
};

struct planned_pack {
    struct sl_manifest_pack pack;
    uint32_t first_unit;
};

struct sl_pg_plan {
    struct planned_pack *packs;
    size_t pack_count, pack_room;
    uint32_t *unit_parts; /* first part of each unit, made at the first run */
    uint32_t unit_count;
    struct part *parts;
    size_t part_count, part_room;

    struct sl_pg_piece *run;
    size_t run_count;
    uint64_t spooled; /* pieces */
    struct sl_pg_spool *pieces, *paths;

    pthread_mutex_t lock; /* of what follows */
    uint32_t next_unit;
    uint64_t next_path;
    uint64_t *dropped; /* a hash table of paths + 1; 0: free */
    size_t dropped_count, dropped_room;
};

static int no_memory(struct sl_err *err)
{
    return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for the plan of a restore");
}

int sl_pg_plan_new(struct sl_pg_plan **ret_plan, struct sl_err *err)
{
    struct sl_pg_plan *plan = sl_calloc(1, sizeof *plan);
    if (!plan)
        return no_memory(err);
    pthread_mutex_init(&plan->lock, NULL);
    plan->run = sl_alloc(RUN_PIECES * sizeof *plan->run);
    int rc = plan->run ? sl_pg_spool_new(&plan->pieces, err) : no_memory(err);
    if (!rc)
        rc = sl_pg_spool_new(&plan->paths, err);
    if (rc) {
        sl_pg_plan_free(plan);
        return rc;
    }
    *ret_plan = plan;
    return 0;
}

void sl_pg_plan_free(struct sl_pg_plan *plan)
{
    if (!plan)
        return;
    sl_pg_spool_free(plan->pieces);
    sl_pg_spool_free(plan->paths);
    pthread_mutex_destroy(&plan->lock);
    sl_free(plan->packs);
    sl_free(plan->unit_parts);
    sl_free(plan->parts);
    sl_free(plan->run);
    sl_free(plan->dropped);
    sl_free(plan);
}

/* --- packs -------------------------------------------------------------------------------------
 */

int sl_pg_plan_add_pack(struct sl_pg_plan *plan, const struct sl_manifest_pack *pack,
                        struct sl_err *err)
{
    if (plan->pack_count == plan->pack_room) {
        size_t room = plan->pack_room * 2 + 16;
        void *bigger = sl_realloc(plan->packs, room * sizeof *plan->packs);
        if (!bigger)
            return no_memory(err);
        plan->packs = bigger;
        plan->pack_room = room;
    }
    uint64_t units = (pack->length + SL_PG_UNIT_BYTES - 1) / SL_PG_UNIT_BYTES;
    if (units > UINT32_MAX - 1 - plan->unit_count)
        return sl_err_set(err, SL_ERR_LIMIT, "the backup has too many packs");
    plan->packs[plan->pack_count++] =
        (struct planned_pack){.pack = *pack, .first_unit = plan->unit_count};
    plan->unit_count += (uint32_t)units;
    return 0;
}

/* Numbers ascend (the manifest's reader checks that), with gaps. */
static const struct planned_pack *find_pack(const struct sl_pg_plan *plan, uint32_t number)
{
    size_t low = 0, high = plan->pack_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (plan->packs[middle].pack.number == number)
            return &plan->packs[middle];
        if (plan->packs[middle].pack.number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const struct sl_manifest_pack *sl_pg_plan_pack(const struct sl_pg_plan *plan, uint32_t number)
{
    const struct planned_pack *found = find_pack(plan, number);
    return found ? &found->pack : NULL;
}

/* --- runs --------------------------------------------------------------------------------------
 */

static int by_unit(const void *a, const void *b)
{
    const struct sl_pg_piece *x = a, *y = b;
    if (x->unit != y->unit)
        return x->unit < y->unit ? -1 : 1;
    return x->pack_offset < y->pack_offset ? -1 : x->pack_offset > y->pack_offset;
}

static int make_units(struct sl_pg_plan *plan, struct sl_err *err)
{
    if (plan->unit_parts)
        return 0;
    plan->unit_parts = sl_alloc(((size_t)plan->unit_count + 1) * sizeof *plan->unit_parts);
    if (!plan->unit_parts)
        return no_memory(err);
    memset(plan->unit_parts, 0xff, ((size_t)plan->unit_count + 1) * sizeof *plan->unit_parts);
    return 0;
}

static int add_part(struct sl_pg_plan *plan, uint32_t unit, uint64_t first, uint32_t count,
                    struct sl_err *err)
{
    if (plan->part_count == plan->part_room) {
        size_t room = plan->part_room * 2 + 64;
        void *bigger = room < NO_PART ? sl_realloc(plan->parts, room * sizeof *plan->parts) : NULL;
        if (!bigger)
            return no_memory(err);
        plan->parts = bigger;
        plan->part_room = room;
    }
    plan->parts[plan->part_count] =
        (struct part){.first = first, .count = count, .next = plan->unit_parts[unit]};
    plan->unit_parts[unit] = (uint32_t)plan->part_count++;
    return 0;
}

static int write_run(struct sl_pg_plan *plan, struct sl_err *err)
{
    int rc = make_units(plan, err);
    qsort(plan->run, plan->run_count, sizeof *plan->run, by_unit);
    for (size_t at = 0; !rc && at < plan->run_count;) {
        size_t end = at;
        while (end < plan->run_count && plan->run[end].unit == plan->run[at].unit)
            end++;
        rc = add_part(plan, plan->run[at].unit, plan->spooled + at, (uint32_t)(end - at), err);
        at = end;
    }
    if (!rc)
        rc = sl_pg_spool_append(plan->pieces, plan->run, plan->run_count * sizeof *plan->run, err);
    plan->spooled += plan->run_count;
    plan->run_count = 0;
    return rc;
}

static int add_piece(struct sl_pg_plan *plan, const struct sl_pg_piece *piece, struct sl_err *err)
{
    int rc = plan->run_count == RUN_PIECES ? write_run(plan, err) : 0;
    if (!rc)
        plan->run[plan->run_count++] = *piece;
    return rc;
}

/* An extent becomes a piece for each unit it touches. */
static int add_extent(struct sl_pg_plan *plan, const struct sl_extent *extent, uint64_t path,
                      struct sl_err *err)
{
    const struct planned_pack *pack = find_pack(plan, extent->pack);
    if (!pack || extent->length > pack->pack.length ||
        extent->pack_offset > pack->pack.length - extent->length)
        return sl_err_set(err, SL_ERR_FORMAT, "the manifest has an extent outside of its packs");
    for (uint64_t done = 0; done < extent->length;) {
        uint64_t at = extent->pack_offset + done, left = extent->length - done;
        uint64_t room = SL_PG_UNIT_BYTES - at % SL_PG_UNIT_BYTES;
        struct sl_pg_piece piece = {.pack_offset = at,
                                    .file_offset = extent->offset + done,
                                    .path = path,
                                    .length = left < room ? left : room,
                                    .unit = pack->first_unit + (uint32_t)(at / SL_PG_UNIT_BYTES)};
        int rc = add_piece(plan, &piece, err);
        if (rc)
            return rc;
        done += piece.length;
    }
    return 0;
}

static int add(struct sl_pg_plan *plan, const struct sl_manifest_entry *entry, bool present,
               struct sl_err *err)
{
    uint8_t head[PATH_RECORD_HEAD];
    struct sl_writer w = sl_writer_on(head, sizeof head);
    size_t path_bytes = strlen(entry->path), link_bytes = strlen(entry->link);
    uint64_t path = sl_pg_spool_end(plan->paths);
    sl_write_u8(&w, entry->kind);
    sl_write_u8(&w, present);
    sl_write_u32(&w, entry->crc32c);
    sl_write_u64(&w, entry->size);
    sl_write_u16(&w, (uint16_t)path_bytes);
    sl_write_u16(&w, (uint16_t)link_bytes);
    int rc = sl_pg_spool_append(plan->paths, head, sizeof head, err);
    if (!rc)
        rc = sl_pg_spool_append(plan->paths, entry->path, path_bytes, err);
    if (!rc)
        rc = sl_pg_spool_append(plan->paths, entry->link, link_bytes, err);
    for (uint32_t i = 0; !rc && i < entry->extent_count; i++)
        if (entry->extents[i].pack) /* 0: zeros, the file has them as it was made */
            rc = add_extent(plan, &entry->extents[i], path, err);
    return rc;
}

int sl_pg_plan_add(struct sl_pg_plan *plan, const struct sl_manifest_entry *entry,
                   struct sl_err *err)
{
    return add(plan, entry, false, err);
}

int sl_pg_plan_add_present(struct sl_pg_plan *plan, const struct sl_manifest_entry *entry,
                           struct sl_err *err)
{
    return add(plan, entry, true, err);
}

int sl_pg_plan_end(struct sl_pg_plan *plan, struct sl_err *err)
{
    int rc = write_run(plan, err);
    if (!rc)
        rc = sl_pg_spool_flush(plan->pieces, err);
    if (!rc)
        rc = sl_pg_spool_flush(plan->paths, err);
    sl_free(plan->run);
    plan->run = NULL;
    return rc;
}

/* --- units -------------------------------------------------------------------------------------
 */

static bool next_unit(struct sl_pg_plan *plan, uint32_t *ret_unit)
{
    bool found = false;
    pthread_mutex_lock(&plan->lock);
    while (!found && plan->next_unit < plan->unit_count)
        found = plan->unit_parts[ *ret_unit = plan->next_unit++] != NO_PART;
    pthread_mutex_unlock(&plan->lock);
    return found;
}

/* The last pack that begins at or before the unit; packs without bytes have none. */
static const struct sl_manifest_pack *pack_of(const struct sl_pg_plan *plan, uint32_t unit)
{
    size_t low = 0, high = plan->pack_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (plan->packs[middle].first_unit <= unit)
            low = middle;
        else
            high = middle;
    }
    return &plan->packs[low].pack;
}

/* Where a path is in the table, or would be. */
static size_t dropped_slot(const uint64_t *table, size_t room, uint64_t path)
{
    size_t at = (size_t)((path + 1) * 0x9E3779B97F4A7C15ull >> 20) & (room - 1);
    while (table[at] && table[at] != path + 1)
        at = (at + 1) & (room - 1);
    return at;
}

static void leave_out(const struct sl_pg_plan *plan, struct sl_pg_unit *unit)
{
    size_t kept = 0;
    if (!plan->dropped_count)
        return;
    for (size_t i = 0; i < unit->count; i++) {
        uint64_t path = unit->pieces[i].path;
        if (!plan->dropped[dropped_slot(plan->dropped, plan->dropped_room, path)])
            unit->pieces[kept++] = unit->pieces[i];
    }
    unit->count = kept;
}

/* At most half full. */
static bool grow_dropped(struct sl_pg_plan *plan)
{
    if ((plan->dropped_count + 1) * 2 <= plan->dropped_room)
        return true;
    size_t room = plan->dropped_room ? plan->dropped_room * 2 : 1024;
    uint64_t *table = sl_calloc(room, sizeof *table);
    if (!table)
        return false;
    for (size_t i = 0; i < plan->dropped_room; i++)
        if (plan->dropped[i])
            table[dropped_slot(table, room, plan->dropped[i] - 1)] = plan->dropped[i];
    sl_free(plan->dropped);
    plan->dropped = table;
    plan->dropped_room = room;
    return true;
}

int sl_pg_plan_drop(struct sl_pg_plan *plan, uint64_t path, struct sl_err *err)
{
    pthread_mutex_lock(&plan->lock);
    bool ok = grow_dropped(plan);
    if (ok) {
        plan->dropped[dropped_slot(plan->dropped, plan->dropped_room, path)] = path + 1;
        plan->dropped_count++;
    }
    pthread_mutex_unlock(&plan->lock);
    return ok ? 0 : no_memory(err);
}

static int load_unit(struct sl_pg_plan *plan, uint32_t number, struct sl_pg_unit *unit,
                     struct sl_err *err)
{
    size_t count = 0;
    for (uint32_t i = plan->unit_parts[number]; i != NO_PART; i = plan->parts[i].next)
        count += plan->parts[i].count;
    if (count > unit->room) {
        void *bigger = sl_realloc(unit->pieces, count * sizeof *unit->pieces);
        if (!bigger)
            return no_memory(err);
        unit->pieces = bigger;
        unit->room = count;
    }
    unit->count = 0;
    for (uint32_t i = plan->unit_parts[number]; i != NO_PART; i = plan->parts[i].next) {
        const struct part *part = &plan->parts[i];
        int rc =
            sl_pg_spool_read(plan->pieces, part->first * sizeof *unit->pieces,
                             unit->pieces + unit->count, part->count * sizeof *unit->pieces, err);
        if (rc)
            return rc;
        unit->count += part->count;
    }
    leave_out(plan, unit);
    qsort(unit->pieces, unit->count, sizeof *unit->pieces, by_unit);
    unit->pack = pack_of(plan, number);
    return 0;
}

int sl_pg_plan_next_unit(struct sl_pg_plan *plan, struct sl_pg_unit *unit, struct sl_err *err)
{
    uint32_t number = 0;
    while (next_unit(plan, &number)) {
        int rc = load_unit(plan, number, unit, err);
        if (rc || unit->count)
            return rc ? rc : 1;
    }
    return 0;
}

void sl_pg_unit_fini(struct sl_pg_unit *unit)
{
    sl_free(unit->pieces);
    *unit = (struct sl_pg_unit){0};
}

/* --- paths -------------------------------------------------------------------------------------
 */

static int read_path(const struct sl_pg_plan *plan, uint64_t path, struct sl_pg_planned *to,
                     uint64_t *ret_next, struct sl_err *err)
{
    uint8_t head[PATH_RECORD_HEAD];
    int rc = sl_pg_spool_read(plan->paths, path, head, sizeof head, err);
    if (rc)
        return rc;
    struct sl_reader r = sl_reader_on(head, sizeof head);
    to->kind = sl_read_u8(&r);
    to->present = sl_read_u8(&r) != 0;
    to->crc32c = sl_read_u32(&r);
    to->size = sl_read_u64(&r);
    to->id = path;
    size_t path_bytes = sl_read_u16(&r), link_bytes = sl_read_u16(&r);
    if (path_bytes >= sizeof to->path || link_bytes >= sizeof to->link)
        return sl_err_set(err, SL_ERR_INTERNAL, "the plan's temporary file is damaged");
    rc = sl_pg_spool_read(plan->paths, path + sizeof head, to->path, path_bytes, err);
    if (!rc)
        rc = sl_pg_spool_read(plan->paths, path + sizeof head + path_bytes, to->link, link_bytes,
                              err);
    to->path[path_bytes] = '\0';
    to->link[link_bytes] = '\0';
    *ret_next = path + sizeof head + path_bytes + link_bytes;
    return rc;
}

int sl_pg_plan_path(const struct sl_pg_plan *plan, uint64_t path, struct sl_pg_planned *to,
                    struct sl_err *err)
{
    uint64_t next;
    return read_path(plan, path, to, &next, err);
}

int sl_pg_plan_next_path(struct sl_pg_plan *plan, struct sl_pg_planned *to, struct sl_err *err)
{
    int rc = 0;
    pthread_mutex_lock(&plan->lock);
    if (plan->next_path < sl_pg_spool_end(plan->paths)) {
        rc = read_path(plan, plan->next_path, to, &plan->next_path, err);
        rc = rc ? rc : 1;
    }
    pthread_mutex_unlock(&plan->lock);
    return rc;
}

void sl_pg_plan_rewind(struct sl_pg_plan *plan)
{
    pthread_mutex_lock(&plan->lock);
    plan->next_path = 0;
    pthread_mutex_unlock(&plan->lock);
}
