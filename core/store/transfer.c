/* One write or read of a file, in as many system calls as it takes: short counts are continued,
 * EINTR repeated, O_DIRECT used where it fits and given up where the file system refuses it. The
 * blocking functions and both queues run the same steps; they differ only in who makes the call. */
#include "core/store/posix_internal.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

/* read(2): at most 0x7ffff000 bytes a call on Linux. */
#define CALL_MAX ((size_t)0x7ffff000)

static bool fits_direct(const struct sl_transfer *t)
{
    return ((uintptr_t)t->bytes.out | t->left | t->offset) % SL_STORE_ALIGN == 0;
}

int sl_transfer_fd(struct sl_transfer *t)
{
    const struct sl_posix_file *file = t->file;
    bool big = t->writing || t->left >= SL_POSIX_DIRECT_READ_MIN;
    t->was_direct = file->direct && file->direct_reads == !t->writing && big && fits_direct(t);
    return t->was_direct ? t->file->direct_fd : t->file->fd;
}

bool sl_transfer_fault(const struct sl_transfer *t, ssize_t *ret)
{
    int fault = sl_fault(t->writing ? "posix.pwrite" : "posix.pread");
    if (fault)
        *ret = fault == SL_FAULT_SKIP ? (ssize_t)t->left : -fault;
    return fault != 0;
}

ssize_t sl_transfer_call(struct sl_transfer *t)
{
    ssize_t result;
    int fd = sl_transfer_fd(t);
    if (sl_transfer_fault(t, &result))
        return result;
    size_t count = t->left < CALL_MAX ? t->left : CALL_MAX;
    result = t->writing ? pwrite(fd, t->bytes.out, count, (off_t)t->offset)
                        : pread(fd, t->bytes.in, count, (off_t)t->offset);
    return result < 0 ? -errno : result;
}

static bool end(struct sl_transfer *t, int code, int sys)
{
    t->code = sys ? sl_err_sys(NULL, code, sys, "transfer") : code;
    t->sys = sys;
    return true;
}

bool sl_transfer_step(struct sl_transfer *t, ssize_t result)
{
    if (result == -EINTR || result == -EAGAIN)
        return false;
    if (result == -EINVAL && t->was_direct) {
        /* The file system opened it with O_DIRECT and refuses our alignment: never again. */
        t->file->direct = false;
        sl_posix_of(t->file->base.store)->no_direct = true;
        return false;
    }
    if (result < 0)
        return end(t, t->writing ? SL_ERR_WRITE : SL_ERR_READ, (int)-result);
    if (!result && t->left) /* nothing written without an error; the end of the file */
        return t->writing ? end(t, SL_ERR_WRITE, EIO) : end(t, SL_ERR_FORMAT, 0);
    size_t done = (size_t)result < t->left ? (size_t)result : t->left;
    t->bytes.out = (const uint8_t *)t->bytes.out + done;
    t->left -= done;
    t->offset += done;
    return t->left ? false : end(t, 0, 0);
}

static void run(struct sl_transfer *t)
{
    while (!sl_transfer_step(t, sl_transfer_call(t))) {
    }
}

static int refuse_published(const struct sl_posix_file *file, struct sl_err *err)
{
    if (file->temporary)
        return sl_posix_refuse_poisoned(sl_posix_of(file->base.store), err);
    return sl_err_set(err, SL_ERR_INTERNAL, "\"%s\" is not open for writing", file->name);
}

int sl_posix_write(struct sl_file *base, const void *bytes, size_t count, uint64_t offset,
                   struct sl_err *err)
{
    struct sl_posix_file *file = sl_posix_file_of(base);
    int rc = refuse_published(file, err);
    if (rc || !count)
        return rc;
    struct sl_transfer t = {
        .file = file, .bytes.out = bytes, .left = count, .offset = offset, .writing = true};
    run(&t);
    if (!t.code)
        return 0;
    rc = sl_err_sys(err, t.code, t.sys, "could not write %zu bytes at %llu of \"%s\"", count,
                    (unsigned long long)offset, file->name);
    if (rc == SL_ERR_FULL)
        sl_err_hint(err, "free space in %s", base->store->label);
    return rc;
}

int sl_posix_read(struct sl_file *base, void *bytes, size_t count, uint64_t offset,
                  struct sl_err *err)
{
    struct sl_posix_file *file = sl_posix_file_of(base);
    if (!count)
        return 0;
    struct sl_transfer t = {.file = file, .bytes.in = bytes, .left = count, .offset = offset};
    run(&t);
    if (t.code == SL_ERR_FORMAT)
        return sl_err_set(err, SL_ERR_FORMAT, "\"%s\" ends at %llu, inside of what is to be read",
                          file->name, (unsigned long long)t.offset);
    if (t.code)
        return sl_err_sys(err, t.code, t.sys, "could not read %zu bytes at %llu of \"%s\"", count,
                          (unsigned long long)offset, file->name);
    return 0;
}

int sl_posix_truncate(struct sl_file *base, uint64_t length, struct sl_err *err)
{
    struct sl_posix_file *file = sl_posix_file_of(base);
    int rc = refuse_published(file, err), sys;
    if (rc)
        return rc;
    if (length > INT64_MAX)
        return sl_err_set(err, SL_ERR_LIMIT, "\"%s\" would be too long", file->name);
    do {
        if (!sl_posix_fault("posix.truncate", &sys))
            sys = ftruncate(file->fd, (off_t)length) == 0 ? 0 : errno;
    } while (sys == EINTR);
    if (!sys)
        return 0;
    return sl_err_sys(err, SL_ERR_WRITE, sys, "could not set the length of \"%s\"", file->name);
}

int sl_posix_has_data(struct sl_file *base, uint64_t offset, uint64_t count, struct sl_err *err)
{
    struct sl_posix_file *file = sl_posix_file_of(base);
    if (!count)
        return 0;
    if (offset > INT64_MAX || count > INT64_MAX - offset)
        return sl_err_set(err, SL_ERR_LIMIT, "range behind the end of every file");
    int decided;
    off_t data = -1;
    if (sl_posix_fault("posix.seek", &decided))
        errno = decided;
    else
        data = lseek(file->fd, (off_t)offset, SEEK_DATA);
    if (data >= 0)
        return (uint64_t)data < offset + count;
    if (errno == ENXIO) /* lseek(2): no data from here to the end */
        return 0;
    if (errno == EINVAL || errno == EOPNOTSUPP || !errno)
        return 1;
    return sl_err_sys(err, SL_ERR_READ, errno, "could not look for holes in \"%s\"", file->name);
}
