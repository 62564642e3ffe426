/* The backup that an increment builds on, from inside: what incr_base.c and incr_load.c fill, and
 * incr_find.c asks. */
#ifndef SL_POSTGRES_INCR_INTERNAL_H
#define SL_POSTGRES_INCR_INTERNAL_H

#include "postgres/incr.h"
#include "postgres/spool.h"

#define SL_PG_GROUP_ENTRY 12 /* bytes of one group in a record */

/* --- incr_groups.c: records of groups, read ----------------------------------------------------
 */

struct sl_pg_group_record {
    char path[SL_PATH_MAX];
    uint64_t offset, length; /* of the piece */
    uint32_t count;          /* of groups: as many as the length has */
    const uint8_t *groups;   /* borrowed: SL_PG_GROUP_ENTRY each */
    size_t bytes;            /* of the whole record */
};
/* The record at the start of the bytes: 1, 0 when it goes on behind them, or SL_ERR_FORMAT. */
int sl_pg_group_record_decode(const uint8_t *bytes, size_t count,
                              struct sl_pg_group_record *ret_record, struct sl_err *err);

/* A whole object, fed in pieces of any size. visit() gets each record and its bytes; a negative
 * answer ends it. SL_ERR_FORMAT, or _VERSION for another form. */
struct sl_pg_groups_reader;
typedef int (*sl_pg_groups_visit)(void *arg, const struct sl_pg_group_record *record,
                                  const void *bytes, struct sl_err *err);
int sl_pg_groups_reader_new(sl_pg_groups_visit visit, void *arg,
                            struct sl_pg_groups_reader **ret_reader, struct sl_err *err);
int sl_pg_groups_reader_feed(struct sl_pg_groups_reader *reader, const void *bytes, size_t count,
                             struct sl_err *err);
int sl_pg_groups_reader_finish(struct sl_pg_groups_reader *reader, struct sl_err *err);
void sl_pg_groups_reader_free(struct sl_pg_groups_reader *reader); /* NULL ok */

/* --- incr_index.c: records in a temporary file -------------------------------------------------
 */

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
uint64_t sl_pg_index_key(const char *path, uint64_t offset);
int sl_pg_index_add(struct sl_pg_index *index, uint64_t key, uint32_t pack, const void *bytes,
                    size_t count, struct sl_err *err);
/* All were added: sorts. The first place with the key, or index->count. */
int sl_pg_index_end(struct sl_pg_index *index, struct sl_err *err);
size_t sl_pg_index_find(const struct sl_pg_index *index, uint64_t key);
void sl_pg_index_fini(struct sl_pg_index *index);

struct sl_pg_base {
    struct sl_pg_index entries, groups;
    bool by_piece; /* entries are those of packs, a piece each; else the manifest's, a file each */
    struct sl_manifest_pack *packs; /* ascending */
    bool *used;
    size_t pack_count, pack_room;
    uint32_t first_own; /* of a manifest: groups are taken of packs from this number on */
    uint32_t loading;   /* the pack that is being loaded, 0: the manifest */
    uint64_t content;   /* of that: bytes before its index */
    struct sl_err nested;
};

/* --- incr_load.c: one object into the base -------------------------------------------------------
 */

int sl_pg_base_add_pack(struct sl_pg_base *base, const struct sl_manifest_pack *pack);
int sl_pg_base_load_manifest(struct sl_pg_base *base, struct sl_client *client, const char *label,
                             uint64_t step_ms, struct sl_err *err);
/* The index at the end of pack `base->loading`; `ret_pack` has its name and gets its length and
 * digest. */
int sl_pg_base_load_index(struct sl_pg_base *base, struct sl_client *client,
                          struct sl_manifest_pack *ret_pack, uint64_t step_ms, struct sl_err *err);
/* Of one pack. One that is not there is no failure: that pack's files are stored anew. */
int sl_pg_base_load_groups(struct sl_pg_base *base, struct sl_client *client, const char *label,
                           uint32_t pack, uint64_t step_ms, struct sl_err *err);

#endif
