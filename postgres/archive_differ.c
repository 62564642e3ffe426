/* Comparing a refused file with the one that is stored. Only for the message: whether they differ
 * was decided by the target, from lengths and digests. */
#include "postgres/archive_differ.h"

#include "core/base/alloc.h"
#include "core/object/object.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PAGE 8192u /* XLOG_BLCKSZ unless the server was built otherwise */

struct difference {
    uint64_t page; /* the first one */
    bool found;
    bool stored_zero, given_zero; /* from there to the end */
};

/* One block of the stored file beside the same part of the given one. */
static int compare_block(struct difference *d, int fd, uint64_t offset, const uint8_t *stored,
                         size_t count, uint8_t *buffer)
{
    if (pread(fd, buffer, count, (off_t)offset) != (ssize_t)count)
        return SL_ERR_READ;
    size_t from = 0; /* what is judged for zeros begins with the first byte that differs */
    if (!d->found) {
        while (from < count && stored[from] == buffer[from])
            from++;
        if (from == count)
            return 0;
        *d = (struct difference){
            .page = (offset + from) / PAGE, .found = true, .stored_zero = true, .given_zero = true};
    }
    d->stored_zero = d->stored_zero && sl_bytes_are_zero(stored + from, count - from);
    d->given_zero = d->given_zero && sl_bytes_are_zero(buffer + from, count - from);
    return 0;
}

static int find(struct sl_client *client, const char *object, int fd, uint64_t bytes,
                sl_deadline deadline, struct difference *d)
{
    struct sl_download *download = NULL;
    struct sl_object_info info;
    uint8_t *buffer = sl_alloc(SL_BLOCK_BYTES);
    int rc = buffer ? sl_download_open(client, object, NULL, deadline, &download, &info, NULL)
                    : SL_ERR_NO_MEMORY;
    uint64_t offset = 0;
    while (!rc) {
        uint32_t block;
        const uint8_t *stored;
        size_t count;
        rc = sl_download_next(download, &block, &stored, &count, deadline, NULL);
        if (rc <= 0)
            break;
        if (count > bytes - offset)
            count = (size_t)(bytes - offset);
        rc = compare_block(d, fd, offset, stored, count, buffer);
        offset += count;
    }
    sl_download_close(download);
    sl_free(buffer);
    return rc;
}

void sl_pg_differ_explain(struct sl_client *client, const char *object,
                          const struct sl_pg_wal_name *name, int fd, uint64_t bytes,
                          sl_deadline deadline, struct sl_err *err)
{
    struct difference d = {0};
    char where[160] = "", lsn[SL_PG_LSN_BYTES];
    bool segment = name->kind == SL_PG_SEGMENT && sl_pg_segment_bytes_valid(bytes);
    int rc = find(client, object, fd, bytes, deadline, &d);
    if (!rc && d.found && segment)
        snprintf(where, sizeof where, "they differ from page %llu of %llu on (%s)%s; ",
                 (unsigned long long)d.page, (unsigned long long)(bytes / PAGE),
                 sl_pg_lsn_text(sl_pg_segment_number(name, (uint32_t)bytes) * bytes + d.page * PAGE,
                                lsn),
                 d.stored_zero  ? ", the stored one is zero from there"
                 : d.given_zero ? ", this one is zero from there"
                                : "");
    else if (!rc && d.found)
        snprintf(where, sizeof where, "they differ from byte %llu on or soon after; ",
                 (unsigned long long)(d.page * PAGE));
    sl_err_hint(err,
                "%snothing was overwritten. If this server is a copy: archive_mode = off, or a "
                "stanza of its own. If there are two primaries: stop the one that lost. See "
                "\"Refused: different content\" in docs/postgresql.md",
                where);
}
