/* A nameless temporary file that is appended to and read back: what would not fit in memory.
 */
#ifndef SL_POSTGRES_SPOOL_H
#define SL_POSTGRES_SPOOL_H

#include "core/base/err.h"

#include <stddef.h>
#include <stdint.h>

struct sl_pg_spool;

/* In $TMPDIR, else /tmp. Returns owned. Appending is one thread's; once flushed, reading is any's.
 */
int sl_pg_spool_new(struct sl_pg_spool **ret_spool, struct sl_err *err);
void sl_pg_spool_free(struct sl_pg_spool *spool); /* NULL ok */
uint64_t sl_pg_spool_end(const struct sl_pg_spool *spool);
int sl_pg_spool_append(struct sl_pg_spool *spool, const void *bytes, size_t count,
                       struct sl_err *err);
int sl_pg_spool_flush(struct sl_pg_spool *spool, struct sl_err *err);
/* Exactly `count` bytes at `offset`. */
int sl_pg_spool_read(const struct sl_pg_spool *spool, uint64_t offset, void *to, size_t count,
                     struct sl_err *err);

#endif
