/* The backup that an increment builds on, from inside: what incr_base.c fills and incr_find.c asks.
 */
#ifndef SL_POSTGRES_INCR_INTERNAL_H
#define SL_POSTGRES_INCR_INTERNAL_H

#include "postgres/incr.h"
#include "postgres/spool.h"

#define SL_PG_GROUP_ENTRY 12 /* bytes of one group in a record */

/* Where one record lies: in the spool u32 number of the pack it is about (0: of the whole backup),
 * then its bytes. */
struct sl_pg_place {
    uint64_t key; /* digest of path, and offset */
    uint64_t at;
    uint32_t bytes;
};
struct sl_pg_index {
    struct sl_pg_place *places;
    size_t count, room;
    struct sl_pg_spool *spool;
};

struct sl_pg_base {
    struct sl_pg_index entries, groups;
    bool by_piece; /* entries are those of packs, a piece each; else the manifest's, a file each */
    struct sl_manifest_pack *packs; /* ascending */
    bool *used;
    size_t pack_count, pack_room;
    uint32_t first_own; /* of a manifest: groups are taken of packs from this number on */
    uint32_t loading;   /* the pack that is being loaded, 0: the manifest */
    struct sl_err nested;
};

uint64_t sl_pg_index_key(const char *path, uint64_t offset);
/* The first place with the key, or index->count. */
size_t sl_pg_index_find(const struct sl_pg_index *index, uint64_t key);

#endif
