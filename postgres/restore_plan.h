/* The plan of a restore: which piece of which pack goes where. A manifest is sorted by path, packs
 * are read from front to back; the plan turns the one order into the other without holding either
 * in memory: extents go to a spool in sorted runs, and come back a unit (64 MiB of a pack) at a
 * time.
 */
#ifndef SL_POSTGRES_RESTORE_PLAN_H
#define SL_POSTGRES_RESTORE_PLAN_H

#include "core/repo/manifest.h"

#define SL_PG_UNIT_BYTES (64ull << 20)

struct sl_pg_plan;

/* A path of the plan, with what is needed when its turn comes. */
struct sl_pg_planned {
    uint8_t kind; /* enum sl_entry_kind */
    bool present; /* a file that was there already, with this size: compare it */
    uint32_t crc32c;
    uint64_t size, id; /* id: for sl_pg_plan_drop */
    char path[SL_PATH_MAX];
    char link[SL_PATH_MAX];
};

/* Bytes [pack_offset, + length) of the unit's pack are [file_offset, + length) of a file. */
struct sl_pg_piece {
    uint64_t pack_offset, file_offset, path; /* path: for sl_pg_plan_path */
    uint64_t length;
    uint32_t unit; /* the plan's own */
};

struct sl_pg_unit {
    const struct sl_manifest_pack *pack; /* borrows from the plan */
    struct sl_pg_piece *pieces;          /* sorted by pack_offset; owned by the unit */
    size_t count, room;
};

int sl_pg_plan_new(struct sl_pg_plan **ret_plan, struct sl_err *err);
void sl_pg_plan_free(struct sl_pg_plan *plan); /* NULL ok */

/* Filling: packs first, then paths with their extents. One thread. */
int sl_pg_plan_add_pack(struct sl_pg_plan *plan, const struct sl_manifest_pack *pack,
                        struct sl_err *err);
int sl_pg_plan_add(struct sl_pg_plan *plan, const struct sl_manifest_entry *entry,
                   struct sl_err *err);
/* The same for a file that is there already and may be kept. */
int sl_pg_plan_add_present(struct sl_pg_plan *plan, const struct sl_manifest_entry *entry,
                           struct sl_err *err);
int sl_pg_plan_end(struct sl_pg_plan *plan, struct sl_err *err);
const struct sl_manifest_pack *sl_pg_plan_pack(const struct sl_pg_plan *plan, uint32_t number);

/* Using, after the end; any thread. */
/* The next unit that has pieces: 1, 0 when all were handed out, or a code. `unit` is reused: zero
 * it first, free with sl_pg_unit_fini. */
int sl_pg_plan_next_unit(struct sl_pg_plan *plan, struct sl_pg_unit *unit, struct sl_err *err);
void sl_pg_unit_fini(struct sl_pg_unit *unit);
int sl_pg_plan_path(const struct sl_pg_plan *plan, uint64_t path, struct sl_pg_planned *to,
                    struct sl_err *err);
/* Leaves a path's pieces out: its file has its content. Before the first unit is taken. */
int sl_pg_plan_drop(struct sl_pg_plan *plan, uint64_t path, struct sl_err *err);
/* Every path in order, each handed out once: 1, 0 at the end, or a code. rewind begins anew. */
int sl_pg_plan_next_path(struct sl_pg_plan *plan, struct sl_pg_planned *to, struct sl_err *err);
void sl_pg_plan_rewind(struct sl_pg_plan *plan);

#endif
