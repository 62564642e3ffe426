/* global/pg_control and PG_VERSION. Reading only. */
#include "postgres/control_file.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/object/object.h"
#include "core/wire/cursor.h"
#include "postgres/wal_name.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define AT_CHECKPOINT     32
#define AT_TIMELINE       48
#define AT_FLOAT          208
#define AT_DATA_CHECKSUMS 252
#define CRC_FIRST         256 /* after the last field used here */
#define CRC_LAST          508 /* PG_CONTROL_MAX_SAFE_SIZE is 512 */

static bool crc_fits(const uint8_t *bytes, size_t count)
{
    uint32_t crc = sl_crc32c(0, bytes, CRC_FIRST);
    for (size_t at = CRC_FIRST; at <= CRC_LAST && at + 4 <= count; at += 4) {
        struct sl_reader r = sl_reader_on(bytes + at, 4);
        if (sl_read_u32(&r) == crc)
            return true;
        crc = sl_crc32c(crc, bytes + at, 4);
    }
    return false;
}

static bool layout_known(const uint8_t *bytes)
{
    double value;
    struct sl_reader r = sl_reader_on(bytes + AT_FLOAT, 8);
    uint64_t bits = sl_read_u64(&r);
    memcpy(&value, &bits, sizeof value);
    return value == 1234567.0; /* FLOATFORMAT_VALUE */
}

int sl_pg_control_decode(const void *bytes, size_t count, struct sl_pg_control *ret_control,
                         struct sl_err *err)
{
    const uint8_t *start = bytes;
    struct sl_pg_control c = {0};
    if (count < CRC_LAST + 4 || !crc_fits(start, count))
        return sl_err_set(err, SL_ERR_CHECKSUM, "pg_control has no valid checksum");
    struct sl_reader r = sl_reader_on(start, count);
    c.system_id = sl_read_u64(&r);
    c.control_version = sl_read_u32(&r);
    c.catalog_version = sl_read_u32(&r);
    c.state = sl_read_u32(&r);
    r = sl_reader_on(start + AT_CHECKPOINT, 16);
    c.checkpoint_lsn = sl_read_u64(&r);
    c.redo_lsn = sl_read_u64(&r);
    r = sl_reader_on(start + AT_TIMELINE, 4);
    c.timeline = sl_read_u32(&r);
    r = sl_reader_on(start + AT_FLOAT + 8, 16);
    c.block_bytes = sl_read_u32(&r);
    c.relation_segment_blocks = sl_read_u32(&r);
    c.wal_page_bytes = sl_read_u32(&r);
    c.wal_segment_bytes = sl_read_u32(&r);
    r = sl_reader_on(start + AT_DATA_CHECKSUMS, 4);
    c.data_checksum_version = sl_read_u32(&r);
    if (!layout_known(start) || !sl_pg_segment_bytes_valid(c.wal_segment_bytes) || !c.timeline ||
        !c.system_id)
        return sl_err_set(err, SL_ERR_UNSUPPORTED,
                          "pg_control of version %u has a layout that is not known here",
                          c.control_version);
    *ret_control = c;
    return 0;
}

static int read_once(const char *path, uint8_t bytes[SL_PG_CONTROL_BYTES], struct sl_err *err)
{
    int fault = sl_fault("pg.control_open");
    int fd = fault ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return sl_err_sys(err, SL_ERR_OPEN, fault ? fault : errno, "could not open \"%s\"", path);
    memset(bytes, 0, SL_PG_CONTROL_BYTES);
    fault = sl_fault("pg.control_read");
    ssize_t n = fault ? -1 : pread(fd, bytes, SL_PG_CONTROL_BYTES, 0);
    int saved = fault ? fault : errno;
    close(fd);
    if (n < 0)
        return sl_err_sys(err, SL_ERR_READ, saved, "could not read \"%s\"", path);
    return 0;
}

int sl_pg_control_read(const char *data_folder, sl_deadline deadline,
                       uint8_t bytes[SL_PG_CONTROL_BYTES], struct sl_pg_control *ret_control,
                       struct sl_err *err)
{
    uint8_t own[SL_PG_CONTROL_BYTES];
    uint8_t *to = bytes ? bytes : own;
    SL_CLEANUP_FREE char *path = sl_asprintf("%s/global/pg_control", data_folder);
    if (!path)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    for (;;) {
        int rc = read_once(path, to, err);
        if (!rc)
            rc = sl_pg_control_decode(to, SL_PG_CONTROL_BYTES, ret_control, err);
        if (rc != SL_ERR_CHECKSUM || sl_deadline_passed(deadline)) {
            if (rc)
                sl_err_prefix(err, "\"%s\"", data_folder);
            return rc;
        }
        nanosleep(&(struct timespec){.tv_nsec = 5 * (long)SL_NS_PER_MS}, NULL);
    }
}

int sl_pg_version_read(const char *data_folder, char version[32], struct sl_err *err)
{
    SL_CLEANUP_FREE char *path = sl_asprintf("%s/PG_VERSION", data_folder);
    if (!path)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    FILE *file = fopen(path, "re");
    if (!file)
        return sl_err_sys(err, SL_ERR_OPEN, errno, "could not open \"%s\"", path);
    char line[32];
    const char *got = fgets(line, sizeof line, file);
    fclose(file);
    size_t length = got ? strspn(line, "0123456789.") : 0;
    if (!length)
        return sl_err_set(err, SL_ERR_FORMAT, "\"%s\" does not begin with a version", path);
    line[length] = '\0';
    memcpy(version, line, length + 1);
    return 0;
}
