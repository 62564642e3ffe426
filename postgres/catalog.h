/* Backups in the repository: their labels, and what a manifest's header says of one.
 */
#ifndef SL_POSTGRES_CATALOG_H
#define SL_POSTGRES_CATALOG_H

#include "core/client/client.h"
#include "core/repo/manifest.h"
#include "postgres/wal_name.h"

#include <jansson.h>

/* From the header's JSON; texts are "" and numbers 0 where it does not say. */
struct sl_pg_backup_info {
    char label[SL_LABEL_MAX], type[8];
    uint64_t system_id;
    uint32_t timeline, wal_segment_bytes;
    uint64_t start_lsn, stop_lsn;
    double start_epoch, stop_epoch;
    char start_time[40], stop_time[40];
    char start_wal[SL_PG_WAL_NAME_BYTES], stop_wal[SL_PG_WAL_NAME_BYTES];
    char pg_version[32];
    uint64_t files, bytes, stored_bytes;
    json_t *json; /* the header; owned, freed by sl_pg_backup_info_fini */
};
void sl_pg_backup_info_fini(struct sl_pg_backup_info *info);

/* Fills `info` from a header's JSON; SL_ERR_FORMAT when it is none of this engine. */
int sl_pg_backup_info_parse(const char *label, const char *json, struct sl_pg_backup_info *info,
                            struct sl_err *err);

/* Reads the header of one backup's manifest (not the rest). SL_ERR_NOT_FOUND when there is no such
 * backup. */
int sl_pg_catalog_read(struct sl_client *client, const char *label, sl_deadline deadline,
                       struct sl_pg_backup_info *ret_info, struct sl_err *err);
/* The newest label in use, "" when there is none; of the set of one full backup only, unless `full`
 * is "" (an increment's label is compared with those of its set). */
int sl_pg_catalog_newest_label(struct sl_client *client, const char *full, sl_deadline deadline,
                               char ret_label[SL_LABEL_MAX], struct sl_err *err);
/* Every backup (finished ones) in order; `info` lives until visit returns. Those whose manifest
 * cannot be read are handed to `broken` (may be NULL: then the first one ends it). */
struct sl_pg_catalog_visitor {
    int (*backup)(void *arg, const struct sl_pg_backup_info *info);
    void (*broken)(void *arg, const char *label, const struct sl_err *err);
    void *arg;
};
int sl_pg_catalog_visit(struct sl_client *client, const struct sl_pg_catalog_visitor *visitor,
                        sl_deadline deadline, struct sl_err *err);

#endif
