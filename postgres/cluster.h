/* A walk over a data directory: its files, folders and links in bytewise order of their paths, and
 * of big files piece after piece. That is the order of a manifest, so that workers who take what
 * comes next have sorted fragments.
 */
#ifndef SL_POSTGRES_CLUSTER_H
#define SL_POSTGRES_CLUSTER_H

#include "core/base/err.h"
#include "core/repo/manifest.h"

#include <stdbool.h>
#include <stdint.h>

#define SL_PG_PIECE_BYTES (256ull << 20)

struct sl_pg_item {
    enum sl_entry_kind kind;
    uint32_t mode, uid, gid;
    uint64_t mtime_ns;
    uint64_t size;           /* of the file when it was met */
    uint64_t offset, length; /* the piece; a file of at most SL_PG_PIECE_BYTES is one piece */
    bool whole;              /* the piece is the file */
    char path[SL_PATH_MAX];  /* below the data directory */
    char link[SL_PATH_MAX];
};

/* Uses a descriptor and the names of one folder for each level. One thread at a time. */
struct sl_pg_cluster;

/* `root_fd` (borrowed) is the data directory; `version_folder` as in sl_pg_rule_of(), borrowed. */
int sl_pg_cluster_new(int root_fd, const char *version_folder, struct sl_pg_cluster **ret_cluster,
                      struct sl_err *err);
void sl_pg_cluster_free(struct sl_pg_cluster *cluster); /* NULL ok */
/* 1 and the next item, 0 at the end, or a code. What vanishes on the way is left out. */
int sl_pg_cluster_next(struct sl_pg_cluster *cluster, struct sl_pg_item *item, struct sl_err *err);

#endif
