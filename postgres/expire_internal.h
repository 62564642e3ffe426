/* What the files of PostgreSQL's part of `expire` share: what a backup needs of the WAL. Inside of
 * expire*.c only. */
#ifndef SL_POSTGRES_EXPIRE_INTERNAL_H
#define SL_POSTGRES_EXPIRE_INTERNAL_H

#include "core/cli/expire.h"
#include "postgres/commands.h"
#include "postgres/repository.h"
#include "postgres/retention.h"

/* sl_subject.facts; NULL when they could not be read. */
struct sl_pg_facts {
    uint64_t system_id, start_lsn, stop_lsn;
    uint32_t timeline, segment_bytes;
};

/* expire_wal.c: removes the WAL that nothing which is left needs. engine->arg is the repository. */
int sl_pg_expire_wal(struct sl_expire *e, struct sl_err *err);

#endif
