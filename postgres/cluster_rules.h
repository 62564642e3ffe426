/* What of a data directory belongs in a backup: PostgreSQL's own rules (documentation, "Making a
 * Base Backup Using the Low Level API"; basebackup.c: excludeDirContents, excludeFiles,
 * looks_like_temp_rel_name, parse_filename_for_nontemp_relation). Pure functions of names.
 */
#ifndef SL_POSTGRES_CLUSTER_RULES_H
#define SL_POSTGRES_CLUSTER_RULES_H

#include <stdbool.h>
#include <stddef.h>

enum sl_pg_rule {
    SL_PG_KEEP,
    SL_PG_KEEP_EMPTY, /* the folder, nothing in it */
    SL_PG_SKIP
};

/* For `name` in `folder` (path below the data directory, "" is itself). `version_folder` is the
 * only one of interest in a tablespace ("PG_15_202209061"). */
enum sl_pg_rule sl_pg_rule_of(const char *folder, const char *name, const char *version_folder);

/* "base/5", "pg_tblspc/16385/PG_15_202209061/5": files of one database's relations. */
bool sl_pg_is_relation_folder(const char *folder);
/* "pg_tblspc/16385": the place of a link that is followed. */
bool sl_pg_is_tablespace(const char *path);
/* "16384", "16384.1", "16384_fsm.2": how long the number is, and whether the fork is "init"; 0 for
 * a name that is no relation's. */
size_t sl_pg_relation_digits(const char *name, bool *ret_init);
/* "t3_16384", "t3_16384_fsm.1" */
bool sl_pg_is_temporary_relation(const char *name);

#endif
