/* What the files of `expire` share: the state of a stanza's backups, read twice, and what is to go.
 * Inside of expire*.c only. */
#ifndef SL_POSTGRES_EXPIRE_INTERNAL_H
#define SL_POSTGRES_EXPIRE_INTERNAL_H

#include "core/cli/backup_folder.h"
#include "postgres/commands.h"
#include "postgres/repository.h"
#include "postgres/retention.h"

/* One backup folder. */
struct sl_pg_subject {
    struct sl_folder folder;
    bool readable;  /* its manifest's header was read */
    bool running;   /* open, and something was stored lately */
    bool expire;    /* to be marked and removed */
    bool by_policy; /* the policy alone would have it removed (it may be kept all the same) */
    bool removed;
    uint64_t system_id, start_lsn, stop_lsn;
    uint32_t timeline, segment_bytes;
    double stop_epoch; /* of the manifest's publication, by the target's clock */
    const char *why;
};

struct sl_pg_expire {
    const struct sl_invocation *invocation;
    struct sl_pg_repository repository;
    struct sl_client *client;
    uint64_t step_ms, now_ns, abandoned_ns;
    unsigned fulls, days;
    bool dry;
    struct sl_pg_subject *subjects;
    size_t count, room;
    struct sl_err nested; /* a failure inside of a visit */
    uint64_t wal_removed, swept;
    json_t *removed, *deferred; /* owned: [{"label":…,"reason":…}] */
};

static inline sl_deadline sl_pg_expire_deadline(const struct sl_pg_expire *e)
{
    return sl_deadline_in_ms(e->step_ms);
}

/* expire_state.c: every backup folder, and what is known of it; sorted by time. */
int sl_pg_expire_load(struct sl_pg_expire *e, struct sl_err *err);
void sl_pg_expire_unload(struct sl_pg_expire *e);
/* expire_wal.c: removes the WAL that nothing which is left needs. */
int sl_pg_expire_wal(struct sl_pg_expire *e, struct sl_err *err);

#endif
