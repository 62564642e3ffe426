/* Why a file was refused that is archived with another content: where the two differ.
 */
#ifndef SL_POSTGRES_ARCHIVE_DIFFER_H
#define SL_POSTGRES_ARCHIVE_DIFFER_H

#include "core/client/client.h"
#include "postgres/wal_name.h"

/* Reads the stored `object` again and compares it with the file `fd`; puts what it finds, and what
 * a DBA does about it, into the hint of `err`, which says already that they differ. Failures to
 * read are passed over in silence: the refusal stands anyway. */
void sl_pg_differ_explain(struct sl_client *client, const char *object,
                          const struct sl_pg_wal_name *name, int fd, uint64_t bytes,
                          sl_deadline deadline, struct sl_err *err);

#endif
