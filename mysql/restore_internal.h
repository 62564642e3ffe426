/* A restore under way: shared by restore.c and restore_tools.c. */
#ifndef SL_MYSQL_RESTORE_INTERNAL_H
#define SL_MYSQL_RESTORE_INTERNAL_H

#include "mysql/catalog.h"
#include "mysql/repository.h"

#include <limits.h>

struct sl_my_restore {
    struct sl_invocation *invocation;
    struct sl_my_repository repository;
    struct sl_my_manifest manifest;
    char datadir[PATH_MAX - 32], partial[PATH_MAX];
    unsigned timeout_ms;
};

static inline sl_deadline sl_my_restore_deadline(const struct sl_my_restore *r)
{
    return sl_deadline_in_ms(r->timeout_ms);
}

/* Extracts and prepares the backup, and what it builds on before it, in r->partial, which is empty.
 */
int sl_my_restore_files(struct sl_my_restore *r, struct sl_err *err);

#endif
