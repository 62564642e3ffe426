/* Increments: which parts of a file are as they were in the backup that this one builds on.
 *
 * Every backup stores, beside each pack, an object of groups: for each piece of a file a checksum
 * of each group of 32 KiB (4 pages). The next backup reads each file, compares group by group, and
 * stores those that differ; for the others its manifest refers to where the earlier one has them.
 * So an increment reads everything (but what WAL summaries rule out), and sends and stores what
 * changed. docs/repository.md has the bytes.
 */
#ifndef SL_POSTGRES_INCR_H
#define SL_POSTGRES_INCR_H

#include "core/client/client.h"
#include "core/object/stream.h"
#include "core/repo/manifest.h"

#define SL_PG_GROUP_BYTES 32768u
#define SL_PG_GROUPS_ROOM (8u << 20) /* of records that wait for their pack */

/* --- writing ------------------------------------------------------------------------------------
 */

struct sl_pg_based;
/* Records of one pack, in memory until it is stored. One thread. */
struct sl_pg_groups {
    struct sl_digester *digester;
    uint32_t crc;   /* of the group at hand */
    size_t filled;  /* bytes of it */
    uint8_t *bytes; /* records */
    size_t used, room;
    size_t record, count_at; /* where the one at hand begins; where its count stands */
    uint32_t count;
    bool failed; /* no memory */
};

int sl_pg_groups_init(struct sl_pg_groups *g, uint64_t seed, struct sl_err *err);
void sl_pg_groups_fini(struct sl_pg_groups *g);
/* A piece of a file begins; its bytes; it ends (`length` of them). */
void sl_pg_groups_begin(struct sl_pg_groups *g, const char *path, uint64_t offset);
void sl_pg_groups_feed(struct sl_pg_groups *g, const void *bytes, size_t count);
/* A whole group (the piece's last may be shorter) that was not read: as an earlier record has it.
 */
void sl_pg_groups_repeat(struct sl_pg_groups *g, const struct sl_pg_based *based, uint32_t index);
int sl_pg_groups_end(struct sl_pg_groups *g, uint64_t length, struct sl_err *err);
/* The head of the object; the names of a backup's pack and of its groups. */
size_t sl_pg_groups_head(uint8_t bytes[16]);
void sl_pg_pack_name(const char *label, uint32_t number, char name[SL_NAME_MAX]);
void sl_pg_groups_name(const char *label, uint32_t number, char name[SL_NAME_MAX]);

/* --- the backup to build on ---------------------------------------------------------------------
 */

struct sl_pg_base;

/* What it has of one piece of a file. Zero it first; free with sl_pg_based_fini. */
struct sl_pg_based {
    uint64_t length; /* of the piece */
    uint32_t group_count;
    uint8_t *groups; /* 12 bytes each: the checksum's first 8, CRC-32C */
    size_t groups_room;
    struct sl_manifest_entry entry;   /* of the whole file or of the piece: extents */
    uint32_t groups_pack, entry_pack; /* which pack's records these are, 0: the whole backup's */
    bool found;                       /* the caller's */
};

/* Fetches manifest and groups of `label` into temporary files, and keeps 32 bytes a file in
 * memory. */
int sl_pg_base_load(struct sl_client *client, const char *label, uint64_t step_ms,
                    struct sl_pg_base **ret_base, struct sl_err *err);
/* The same of a backup without manifest: what its packs' indexes say. */
int sl_pg_base_load_packs(struct sl_client *client, const char *label, uint64_t step_ms,
                          struct sl_pg_base **ret_base, struct sl_err *err);
void sl_pg_base_free(struct sl_pg_base *base); /* NULL ok */
/* The piece that begins at `offset`: 1, 0 when it has none, or a code. Any thread. */
int sl_pg_base_find(const struct sl_pg_base *base, const char *path, uint64_t offset,
                    struct sl_pg_based *based, struct sl_err *err);
/* How long group `index` is, 0 when there is none; its CRC-32C. */
size_t sl_pg_based_length(const struct sl_pg_based *based, uint32_t index);
uint32_t sl_pg_based_crc(const struct sl_pg_based *based, uint32_t index);
void sl_pg_based_fini(struct sl_pg_based *based);
/* Is group `index` the same? */
bool sl_pg_based_same(const struct sl_pg_based *based, uint32_t index, const struct sl_id *digest,
                      size_t count);
/* Appends to `extents` (room for `*count` + SL_PG_BASED_MOST) what the base has of the file's bytes
 * [offset, offset + length), joined to the last one where it goes on. Marks the packs as used.
 * false when it has not all of them. */
#define SL_PG_BASED_MOST 64
bool sl_pg_base_extents(struct sl_pg_base *base, const struct sl_pg_based *based, uint64_t offset,
                        uint64_t length, struct sl_extent *extents, uint32_t *count);
/* Its packs, ascending; `used` ones are referred to. The greatest number. */
size_t sl_pg_base_packs(const struct sl_pg_base *base, const struct sl_manifest_pack **ret_packs,
                        const bool **ret_used);
uint32_t sl_pg_base_last_pack(const struct sl_pg_base *base);
/* Adds one extent, joined to the last where it goes on. */
void sl_pg_extent_add(struct sl_extent *extents, uint32_t *count, struct sl_extent extent);

#endif
