/* Spools: temporary files of restore. */
#include "postgres/spool.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES (64u * 1024)

struct sl_pg_spool {
    int fd;
    uint64_t on_disk;
    size_t used;
    uint8_t buffer[BUFFER_BYTES];
};

int sl_pg_spool_new(struct sl_pg_spool **ret_spool, struct sl_err *err)
{
    const char *folder = getenv("TMPDIR");
    SL_CLEANUP_FREE char *name =
        sl_asprintf("%s/sluice-XXXXXX", folder && *folder ? folder : "/tmp");
    struct sl_pg_spool *spool = sl_calloc(1, sizeof *spool);
    if (!name || !spool) {
        sl_free(spool);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    }
    int fault = sl_fault("pg.spool_open");
    spool->fd = fault ? -1 : mkostemp(name, O_CLOEXEC);
    if (spool->fd < 0) {
        int saved = fault ? fault : errno;
        sl_free(spool);
        return sl_err_sys(err, SL_ERR_OPEN, saved, "could not make a temporary file \"%s\"", name);
    }
    unlink(name);
    *ret_spool = spool;
    return 0;
}

void sl_pg_spool_free(struct sl_pg_spool *spool)
{
    if (!spool)
        return;
    close(spool->fd);
    sl_free(spool);
}

uint64_t sl_pg_spool_end(const struct sl_pg_spool *spool)
{
    return spool->on_disk + spool->used;
}

int sl_pg_spool_flush(struct sl_pg_spool *spool, struct sl_err *err)
{
    for (size_t done = 0; done < spool->used;) {
        int fault = sl_fault("pg.spool_write");
        ssize_t n = fault ? -1
                          : pwrite(spool->fd, spool->buffer + done, spool->used - done,
                                   (off_t)(spool->on_disk + done));
        if (n < 0 && !fault && errno == EINTR)
            continue;
        if (n < 0)
            return sl_err_sys(err, SL_ERR_WRITE, fault ? fault : errno,
                              "could not write to a temporary file");
        done += (size_t)n;
    }
    spool->on_disk += spool->used;
    spool->used = 0;
    return 0;
}

int sl_pg_spool_append(struct sl_pg_spool *spool, const void *bytes, size_t count,
                       struct sl_err *err)
{
    const uint8_t *from = bytes;
    while (count) {
        size_t step = BUFFER_BYTES - spool->used;
        if (step > count)
            step = count;
        memcpy(spool->buffer + spool->used, from, step);
        spool->used += step;
        from += step;
        count -= step;
        int rc = spool->used == BUFFER_BYTES ? sl_pg_spool_flush(spool, err) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

int sl_pg_spool_read(const struct sl_pg_spool *spool, uint64_t offset, void *to, size_t count,
                     struct sl_err *err)
{
    for (size_t done = 0; done < count;) {
        int fault = sl_fault("pg.spool_read");
        ssize_t n =
            fault ? -1
                  : pread(spool->fd, (uint8_t *)to + done, count - done, (off_t)(offset + done));
        if (n < 0 && !fault && errno == EINTR)
            continue;
        if (n <= 0)
            return sl_err_sys(err, SL_ERR_READ,
                              fault   ? fault
                              : n < 0 ? errno
                                      : EIO,
                              "could not read a temporary file");
        done += (size_t)n;
    }
    return 0;
}
