/* A backup in progress: what its parts share. Inside of the backup_*.c files only.
 *
 * Order: open the server and the repository, check, choose a label and publish "open", start the
 * backup on the server, store all files by workers, read pg_control, stop the backup on the server,
 * store backup_label and pg_control, wait for the WAL, publish the manifest. Nothing of it is
 * a backup before the last step; whatever fails or kills it before leaves objects that no manifest
 * names, for the next backup to go on with, or for `expire` to remove.
 */
#ifndef SL_POSTGRES_BACKUP_INTERNAL_H
#define SL_POSTGRES_BACKUP_INTERNAL_H

#include "core/base/thread.h"
#include "postgres/cluster.h"
#include "postgres/commands.h"
#include "postgres/control_file.h"
#include "postgres/db.h"
#include "postgres/history.h"
#include "postgres/incr.h"
#include "postgres/page_check.h"
#include "postgres/repository.h"
#include "postgres/wal_summary.h"

#include <stdatomic.h>

/* A config file that lives outside of the data directory. */
#define SL_PG_CONFIG_FOLDER "sluice.config"
#define SL_PG_CONFIG_MAX    64
struct sl_pg_config_file {
    char *name;   /* "config_file", "hba_file", "ident_file", "included" */
    char *path;   /* where it is */
    char *stored; /* "sluice.config/postgresql.conf" */
    char *bytes;
    size_t count;
};

struct sl_pg_backup {
    const struct sl_invocation *invocation;
    struct sl_pg_repository repository;
    struct sl_pg_db *db;
    struct sl_pg_server server;
    bool from_standby; /* `server` is one */
    uint64_t digest_seed;
    uint64_t step_ms; /* longest time for one step without progress */

    char *data_folder; /* owned */
    int root_fd;
    char version_folder[64]; /* "PG_15_202209061" */
    struct sl_pg_control control;
    char label[SL_LABEL_MAX];
    char kind;                /* 'F', 'D' or 'I': what it came to */
    char prior[SL_LABEL_MAX]; /* the backup it builds on, or "" */
    struct sl_pg_base *base;  /* that; NULL: none */
    struct sl_pg_base
        *broken; /* what was stored of this backup before it was broken off, or NULL */
    struct sl_pg_summary *summary; /* what changed since, by WAL; NULL: found by comparison */
    unsigned attempt;              /* 1; of a resumed backup 2, 3, … */
    uint32_t first_pack;           /* the first number of this attempt's packs */

    /* from the server */
    json_t *tablespaces; /* [{"oid":…,"name":…,"path":…}] */
    uint64_t start_lsn, stop_lsn;
    struct sl_pg_backup_label start;     /* parsed from backup_label */
    double start_time, stop_time;        /* the server's clock, seconds since 1970 */
    char *backup_label, *tablespace_map; /* owned; the map may be NULL */
    struct sl_pg_config_file config[SL_PG_CONFIG_MAX];
    size_t config_count;

    /* shared by the workers, under `lock` */
    pthread_mutex_t lock;
    pthread_cond_t ended; /* a worker has */
    unsigned running;
    struct sl_pg_cluster *cluster;
    struct sl_manifest_pack *packs; /* stored ones, owned */
    size_t pack_count, pack_room;
    uint32_t next_pack;
    uint64_t pack_hint;    /* bytes a pack may come to */
    struct sl_err failure; /* of the first worker that failed; code 0: none */
    json_t *bad_pages;     /* [{"file":…,"block":…}], owned; NULL: pages are not judged */
    uint64_t bad_page_count;

    atomic_bool stop; /* workers give up */
    struct sl_fragment *fragments[SL_PG_JOBS_MAX + 1];
    size_t fragment_count;
    atomic_uint_least64_t files, bytes, stored_bytes, vanished, pages;
    atomic_uint_least64_t delta;   /* bytes of files that were stored, before compression */
    atomic_uint_least64_t read;    /* bytes of files that were read */
    atomic_uint_least64_t resumed; /* the same, by attempts before this one */
};

/* backup_server.c */
int sl_pg_backup_check(struct sl_pg_backup *b, struct sl_err *err);
int sl_pg_backup_start(struct sl_pg_backup *b, struct sl_err *err);
int sl_pg_backup_stop(struct sl_pg_backup *b, struct sl_err *err);
/* backup_standby.c: a backup that reads from a standby. check() asks the primary, whose archive
 * settings count; watch() fails when the standby was promoted; switch() makes the primary finish
 * the last segment. */
int sl_pg_standby_check(struct sl_pg_backup *b, struct sl_err *err);
int sl_pg_standby_watch(struct sl_pg_backup *b, struct sl_err *err);
int sl_pg_standby_switch(struct sl_pg_backup *b, struct sl_err *err);

/* incr.c: which backup to build on, by --type; a full one where there is none, with a message why.
 * After "open" was published: the backup builds on one that is not gone. */
int sl_pg_incr_choose(struct sl_pg_backup *b, struct sl_err *err);
int sl_pg_incr_load(struct sl_pg_backup *b, struct sl_err *err);
/* After the start: what WAL summaries say, if they say all; else why not, in the log. */
int sl_pg_incr_summary(struct sl_pg_backup *b, struct sl_err *err);
const char *sl_pg_backup_type(const struct sl_pg_backup *b); /* "full", "diff", "incr" */

/* backup_files.c: how much there is to do: the same walk, without reading; and */
int sl_pg_backup_count(struct sl_pg_backup *b, uint64_t *ret_bytes, uint64_t *ret_files,
                       struct sl_err *err);
/* everything but pg_control and backup_label, by `jobs` workers. */
int sl_pg_backup_files(struct sl_pg_backup *b, unsigned jobs, struct sl_err *err);

/* backup_resume.c: the newest backup, if it was broken off and is of the same kind: claims it (1:
 * its label is this one's, its next "open-N" is published, it is not gone), or 0, or a code. The
 * last gives "broken" its packs. */
int sl_pg_resume_claim(struct sl_pg_backup *b, const char *label, struct sl_err *err);
int sl_pg_resume_load(struct sl_pg_backup *b, struct sl_err *err);

/* backup_pack.c: one pack being filled by one thread, done over when a session is lost. */
struct sl_pg_packer;
/* Items come from `take` (1, 0 at the end, or a code). Packs are filled and published until it
 * ends. */
typedef int (*sl_pg_take)(void *arg, struct sl_pg_item *item, struct sl_err *err);
int sl_pg_packer_run(struct sl_pg_backup *b, struct sl_fragment *fragment, sl_pg_take take,
                     void *arg, struct sl_err *err);
/* A file from memory, with the attributes of `like`; a folder without bytes. */
struct sl_pg_memory_file {
    const char *path;
    const void *bytes;
    size_t count;
};
/* One pack with just these, in bytewise order of their paths. */
int sl_pg_packer_memory(struct sl_pg_backup *b, struct sl_fragment *fragment,
                        const struct sl_pg_memory_file *files, size_t count,
                        const struct sl_pg_item *like, struct sl_err *err);

/* backup_pages.c: page checksums of what is stored. begin() prepares `check` for a passage over
 * [offset, …) of a file, end() counts it. Any thread. */
void sl_pg_backup_pages_begin(struct sl_pg_backup *b, struct sl_pg_page_check *check,
                              const struct sl_pg_item *item, int fd);
void sl_pg_backup_pages_end(struct sl_pg_backup *b, struct sl_pg_page_check *check);
int sl_pg_backup_pages_init(struct sl_pg_backup *b, struct sl_err *err); /* after the check */
/* What to end with: 0, or SL_ERR_CHECKSUM when pages are bad and --page-check=error. */
int sl_pg_backup_pages_verdict(const struct sl_pg_backup *b, struct sl_err *err);

/* backup_config.c: config files that live outside of the data directory. find() asks the server
 * and reads them; they go into a pack with the other files from memory. */
int sl_pg_backup_config_find(struct sl_pg_backup *b, struct sl_err *err);
/* [{"name":…,"path":…,"stored":…}], owned */
json_t *sl_pg_backup_config_json(const struct sl_pg_backup *b);
void sl_pg_backup_config_free(struct sl_pg_backup *b);

/* backup_wal.c: until every segment from start to stop is stored, or archive-timeout passes without
 * a new one. */
int sl_pg_backup_wal(struct sl_pg_backup *b, struct sl_err *err);

/* backup_manifest.c */
int sl_pg_backup_open(struct sl_pg_backup *b, struct sl_err *err); /* label and "open" */
int sl_pg_backup_put_open(struct sl_pg_backup *b, const char *object, struct sl_err *err);
int sl_pg_backup_publish(struct sl_pg_backup *b, struct sl_err *err); /* the manifest */

static inline sl_deadline sl_pg_backup_deadline(const struct sl_pg_backup *b)
{
    return sl_deadline_in_ms(b->step_ms);
}

#endif
