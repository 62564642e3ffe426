/* global/pg_control: what a data directory is, also while the server runs.
 *
 * Layout (catalog/pg_control.h: ControlFileData), the same in versions 13 to 18 up to
 * data_checksum_version; the CRC-32C is over all bytes before it and lies at 288 (13 to 17) or 292
 * (18). It is looked for, not assumed: a later version may move it again, and the float 1234567.0
 * at its place says that the fields before it are where they were.
 */
#ifndef SL_POSTGRES_CONTROL_FILE_H
#define SL_POSTGRES_CONTROL_FILE_H

#include "core/base/clock.h"
#include "core/base/err.h"

#include <stddef.h>
#include <stdint.h>

#define SL_PG_CONTROL_BYTES 8192 /* PG_CONTROL_FILE_SIZE */

/* DBState */
enum sl_pg_state {
    SL_PG_STARTUP,
    SL_PG_SHUTDOWNED,
    SL_PG_SHUTDOWNED_IN_RECOVERY,
    SL_PG_SHUTDOWNING,
    SL_PG_IN_CRASH_RECOVERY,
    SL_PG_IN_ARCHIVE_RECOVERY,
    SL_PG_IN_PRODUCTION
};

struct sl_pg_control {
    uint64_t system_id;
    uint32_t control_version, catalog_version;
    uint32_t state; /* enum sl_pg_state */
    uint64_t checkpoint_lsn, redo_lsn;
    uint32_t timeline; /* of the last checkpoint */
    uint32_t block_bytes, relation_segment_blocks, wal_page_bytes, wal_segment_bytes;
    uint32_t data_checksum_version; /* 0: pages have no checksums */
};

/* From the file's bytes. SL_ERR_CHECKSUM: no CRC fits (torn, or damaged); SL_ERR_UNSUPPORTED:
 * sound, but of a version whose layout is not known here. */
int sl_pg_control_decode(const void *bytes, size_t count, struct sl_pg_control *ret_control,
                         struct sl_err *err);

/* Reads <data folder>/global/pg_control until its CRC fits (the server rewrites it in place, and
 * a reader may see half of that) or the deadline passes. `bytes` (may be NULL) receives the
 * file's SL_PG_CONTROL_BYTES, zeros after its end. SL_ERR_OPEN when there is none. */
int sl_pg_control_read(const char *data_folder, sl_deadline deadline,
                       uint8_t bytes[SL_PG_CONTROL_BYTES], struct sl_pg_control *ret_control,
                       struct sl_err *err);

/* The first line of <data folder>/PG_VERSION: "15". */
int sl_pg_version_read(const char *data_folder, char version[32], struct sl_err *err);

#endif
