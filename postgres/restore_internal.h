/* A restore in progress: what its parts share. Inside of the restore_*.c files only.
 *
 * Order: choose the backup, claim the empty folder, read the manifest (folders, links of
 * tablespaces and empty files of the right size are made, the plan is written), fill the files by
 * workers, put down recovery's orders and other links, sync everything, and only then pg_control:
 * without it no server starts in the folder.
 */
#ifndef SL_POSTGRES_RESTORE_INTERNAL_H
#define SL_POSTGRES_RESTORE_INTERNAL_H

#include "core/base/thread.h"
#include "postgres/catalog.h"
#include "postgres/repository.h"
#include "postgres/restore_plan.h"
#include "postgres/restore_target.h"

#include <stdatomic.h>
#include <sys/types.h>

#define SL_PG_CONTROL_PATH "global/pg_control"
#define SL_PG_RESTORE_MARK "sluice.restoring" /* in the folder until the restore is complete */

struct sl_pg_manifest_out;
struct sl_pg_delta;

struct sl_pg_restore {
    const struct sl_invocation *invocation;
    struct sl_pg_repository repository;
    struct sl_pg_backup_info info;
    char lease[SL_NAME_MAX]; /* keeps expire from removing what is read; "": none */
    uint64_t renew_at_ns;    /* by sl_now_ns(); under `lock` */
    bool renewing;           /* a thread does; under `lock` */
    uint64_t step_ms;
    const char *data_folder;
    int root_fd;
    bool as_root;
    struct sl_pg_target target;
    bool archive_off;
    const char *archive_why; /* text of --archive-mode's default, "" when it was given */

    struct sl_pg_plan *plan;
    struct sl_pg_manifest_out *manifest;
    struct sl_pg_delta *delta;        /* NULL: the folder was empty */
    bool *map_used;                   /* items of --tablespace-map that met their tablespace */
    struct sl_manifest_entry control; /* of pg_control; extents owned, kind 0: not met */

    pthread_mutex_t lock;
    struct sl_err failure;
    atomic_bool stop;
    atomic_uint_least64_t files, bytes, kept;
};

/* restore_lease.c: takes the lease on r->info.label; stay() renews it when that is due, and is
 * called now and then by any thread. SL_ERR_NOT_FOUND when expire is removing the backup. */
int sl_pg_restore_lease(struct sl_pg_restore *r, struct sl_err *err);
int sl_pg_restore_stay(struct sl_pg_restore *r, struct sl_err *err);

/* restore_choose.c: sets r->info. */
int sl_pg_restore_choose(struct sl_pg_restore *r, struct sl_err *err);

/* restore_manifest.c: backup_manifest, for pg_verifybackup. Begins in the claimed folder; end syncs
 * it; free in any case. */
int sl_pg_manifest_begin(struct sl_pg_restore *r, struct sl_err *err);
int sl_pg_manifest_entry(struct sl_pg_restore *r, const struct sl_manifest_entry *entry,
                         struct sl_err *err);
int sl_pg_manifest_end(struct sl_pg_restore *r, struct sl_err *err);
void sl_pg_manifest_free(struct sl_pg_restore *r);

/* restore_wal.c: with --with-wal the backup's segments into pg_wal. */
int sl_pg_restore_wal(struct sl_pg_restore *r, struct sl_err *err);

/* restore_files.c */
/* Makes or checks the folder, opens it, puts the mark into it. */
int sl_pg_restore_claim(struct sl_pg_restore *r, struct sl_err *err);
/* Makes what one entry of the manifest asks for (a file: empty, with its size) and plans it. */
int sl_pg_restore_entry(struct sl_pg_restore *r, const struct sl_manifest_entry *entry,
                        struct sl_err *err);

/* Opens an existing file, also one whose mode forbids that to its owner; returns the descriptor. */
int sl_pg_restore_open(const struct sl_pg_restore *r, const char *path, int flags,
                       struct sl_err *err);
/* --tablespace-map: its form, before anything else; and, once the manifest was read, whether the
 * backup has every tablespace that it names. A mistyped one would leave the tablespace at its
 * original path. */
int sl_pg_restore_map_read(struct sl_pg_restore *r, struct sl_err *err);
int sl_pg_restore_map_end(const struct sl_pg_restore *r, struct sl_err *err);
/* Where a tablespace's link shall lead: --tablespace-map, else `link`. */
const char *sl_pg_restore_tablespace(const struct sl_pg_restore *r, const char *path,
                                     const char *link);
/* May it lead to the folder `target`? That must be free; a delta restore also takes over where the
 * link leads already. SL_ERR_NOT_EMPTY. */
int sl_pg_restore_may_lead(const struct sl_pg_restore *r, const char *path, const char *target,
                           struct sl_err *err);

/* restore_delta.c: an existing folder. check() refuses one of another cluster; begin() takes
 * pg_control away; entry() makes room for an entry (`tablespace`: where its link shall lead, or
 * NULL): 1 it is there and may stay, 0 there is nothing now; end() removes the rest; compare()
 * decides which files stay. */
int sl_pg_delta_check(const struct sl_pg_restore *r, struct sl_err *err);
int sl_pg_delta_begin(struct sl_pg_restore *r, struct sl_err *err);
int sl_pg_delta_entry(struct sl_pg_restore *r, const struct sl_manifest_entry *entry,
                      const char *tablespace, struct sl_err *err);
int sl_pg_delta_end(struct sl_pg_restore *r, struct sl_err *err);
int sl_pg_delta_compare(struct sl_pg_restore *r, unsigned jobs, struct sl_err *err);
void sl_pg_delta_free(struct sl_pg_restore *r);

/* restore_dry.c: --dry-run: what would be done, and what stands in its way, which is the result. */
int sl_pg_restore_dry(struct sl_pg_restore *r, struct sl_err *err);
/* Is the folder missing or empty ("lost+found" does not count)? 1, 0 or a code. */
int sl_pg_restore_is_free(const char *path, struct sl_err *err);
/* restore.c: hands each entry of the manifest to `visit` once, also when the session is lost. */
typedef int (*sl_pg_visit_entry)(void *arg, const struct sl_manifest_entry *entry,
                                 struct sl_err *err);
int sl_pg_restore_read(struct sl_pg_restore *r, sl_pg_visit_entry visit, void *arg,
                       struct sl_err *err);

/* restore_fill.c: the planned pieces, by `jobs` threads; and the small file pg_control. */
int sl_pg_restore_fill(struct sl_pg_restore *r, unsigned jobs, struct sl_err *err);
int sl_pg_restore_small(struct sl_pg_restore *r, const struct sl_manifest_entry *entry, void *to,
                        size_t room, struct sl_err *err);
/* Runs `work` on `jobs` threads until it returns; the first failure is the result. */
int sl_pg_restore_parallel(struct sl_pg_restore *r, unsigned jobs,
                           int (*work)(struct sl_pg_restore *r, struct sl_err *err),
                           struct sl_err *err);

/* restore_finish.c: recovery's files, links, syncs, pg_control. */
int sl_pg_restore_finish(struct sl_pg_restore *r, unsigned jobs, struct sl_err *err);

static inline sl_deadline sl_pg_restore_deadline(const struct sl_pg_restore *r)
{
    return sl_deadline_in_ms(r->step_ms);
}

#endif
