/* One file of pg_wal into the repository: what archive-push and the archive module have in common.
 *
 *     sl_pg_push_open();              the name, the file
 *     (open a repository)
 *     sl_pg_push_store();             checks the content, sends it, waits until it is durable
 *     sl_pg_push_close();
 *
 * One thread uses a push; several pushes may share a repository.
 */
#ifndef SL_POSTGRES_PUSH_FILE_H
#define SL_POSTGRES_PUSH_FILE_H

#include "postgres/repository.h"
#include "postgres/wal_name.h"

#include <sys/stat.h>

struct sl_pg_push {
    /* the caller's */
    const struct sl_invocation *invocation;
    const char *path;
    sl_deadline deadline;
    /* Called each time when all of the file was sent and only its publication is left to ask for;
     * may block. What it returns other than 0 ends the push. NULL: nothing. */
    int (*before_commit)(void *arg, struct sl_err *err);
    /* Called when a part was sent. NULL: nothing. */
    void (*moved)(void *arg);
    void *arg;
    /* set by sl_pg_push_open() */
    struct sl_pg_wal_name name;
    int fd;
    struct stat stat; /* of the open file */
};

/* SL_ERR_USAGE for a name or a kind of file that is none of WAL's. `push->fd` is -1 on failure. */
int sl_pg_push_open(struct sl_pg_push *push, struct sl_err *err);
void sl_pg_push_close(struct sl_pg_push *push); /* also after a failed open */

/* Refuses another cluster's file, a damaged header, a wrong size; then stores it. 0 only when it is
 * durable, or was stored with the same content before. SL_ERR_EXISTS, with where they differ in
 * the hint: there is another content under the name, and it stays. A lost session is begun anew and
 * the file sent again until the deadline. */
int sl_pg_push_store(const struct sl_pg_push *push, const struct sl_pg_repository *repository,
                     struct sl_stored *ret_stored, struct sl_err *err);

#endif
