/* A pack being filled, from inside: what backup_pack.c, backup_kept.c and backup_store.c share. */
#ifndef SL_POSTGRES_BACKUP_PACK_INTERNAL_H
#define SL_POSTGRES_BACKUP_PACK_INTERNAL_H

#include "postgres/backup_internal.h"

/* An item kept for doing a pack over: as sl_pg_item, strings in an arena. */
struct sl_pg_kept {
    uint64_t size, offset, length, mtime_ns;
    uint32_t mode, uid, gid, path_at, link_at;
    uint8_t kind;
    bool whole;
};

struct sl_pg_packer {
    struct sl_pg_backup *backup;
    struct sl_fragment *fragment;
    struct sl_upload *upload; /* NULL between packs */
    uint32_t number;
    uint64_t mark;

    struct sl_pg_kept *kept;
    size_t kept_count, kept_room;
    char *text;
    size_t text_used, text_room;

    struct sl_pg_item item; /* in hand: the next one to store */
    enum { EMPTY, HOLDS, ENDED } hand;
    struct sl_manifest_entry entry;
    struct sl_extent *extents;
    size_t extent_room;
    struct sl_pg_groups groups;
    struct sl_pg_based based;   /* what the backup that it builds on has of the file */
    struct sl_pg_based resumed; /* what was stored of it before this backup was broken off */
    uint8_t *buffer;            /* SL_PG_GROUP_BYTES, with a base */
    struct sl_pg_page_check pages;
};

/* backup_kept.c: items of the pack at hand, for doing it over. */
int sl_pg_packer_keep(struct sl_pg_packer *p, const struct sl_pg_item *item, struct sl_err *err);
void sl_pg_packer_recall(const struct sl_pg_packer *p, size_t index, struct sl_pg_item *item);

/* backup_store.c: one item into the pack at hand. */
int sl_pg_packer_store(struct sl_pg_packer *p, const struct sl_pg_item *item, struct sl_err *err);
/* Its parts: the entry from an item; room for what one more group may add; one extent more. */
void sl_pg_packer_describe(struct sl_pg_packer *p, const struct sl_pg_item *item);
int sl_pg_packer_extent_room(struct sl_pg_packer *p, struct sl_err *err);
void sl_pg_packer_extent(struct sl_pg_packer *p, struct sl_extent extent);

#endif
