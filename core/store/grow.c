/* Growing files: published ones that one writer goes on writing. Which bytes of one are whole is
 * its reader's business (core/repo/grow_read.c); here is how it comes that there is one writer, and
 * that who asks what the disk has is not told what a cache has.
 *
 * After a failed sync the kernel keeps the pages, marked clean (the essay in posix.c): a reader
 * that goes through the cache would find bytes that are not on the disk, and a second sync would
 * say that they are. So what is to be relied on is read past the cache, and what is not whole there
 * is cut off, which drops its pages; what is written after that is dirty again and a sync means
 * something.
 */
#include "core/store/posix_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* One writer: a lock of the open file description, so that it ends with the process, and so that
 * two of one process exclude each other too. */
static int lock(int fd, const char *name, struct sl_err *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int sys;
    if (!sl_posix_fault("posix.grow_lock", &sys))
        sys = fcntl(fd, F_OFD_SETLK, &whole) == 0 ? 0 : errno;
    if (!sys)
        return 0;
    if (sys != EAGAIN && sys != EACCES)
        return sl_err_sys(err, SL_ERR_OPEN, sys, "could not lock \"%s\"", name);
    sl_err_set(err, SL_ERR_BUSY, "\"%s\" is being written by somebody else", name);
    sl_err_hint(err, "one writer at a time; that of a lost session is gone after a while");
    return SL_ERR_BUSY;
}

/* Locked and still there: its last writer may have removed it meanwhile. */
static int examine(int fd, const char *name, uint64_t *ret_length, struct sl_err *err)
{
    struct stat st;
    int decided;
    if (sl_posix_fault("posix.stat", &decided) || fstat(fd, &st) != 0)
        return sl_err_sys(err, SL_ERR_OPEN, decided ? decided : errno, "could not examine \"%s\"",
                          name);
    if (!S_ISREG(st.st_mode))
        return sl_err_set(err, SL_ERR_FORMAT, "\"%s\" is not a regular file", name);
    if (!st.st_nlink)
        return sl_err_set(err, SL_ERR_NOT_FOUND, "\"%s\" was removed", name);
    *ret_length = (uint64_t)st.st_size;
    return 0;
}

int sl_posix_grow(struct sl_store *base, const char *name, struct sl_file **ret_file,
                  uint64_t *ret_length, struct sl_err *err)
{
    struct sl_posix *store = sl_posix_of(base);
    struct sl_posix_file *file;
    uint64_t length = 0;
    int rc = sl_store_name_check(name, false, err);
    if (!rc)
        rc = sl_posix_refuse_poisoned(store, err);
    if (rc)
        return rc;
    int fd = sl_posix_open_below("posix.grow", store, name, O_RDWR | O_NONBLOCK | O_NOCTTY, 0);
    if (fd == -ENOENT)
        return sl_err_set(err, SL_ERR_NOT_FOUND, "\"%s\" is not in %s", name, base->label);
    if (fd < 0) {
        rc = sl_err_sys(err, SL_ERR_OPEN, -fd, "could not open \"%s\" for writing", name);
        sl_posix_hint(-fd, err);
        return rc;
    }
    rc = lock(fd, name, err);
    if (!rc)
        rc = examine(fd, name, &length, err);
    if (rc) {
        close(fd);
        return rc;
    }
    rc = sl_posix_file_new(store, fd, name, &file, err);
    if (rc)
        return rc;
    file->temporary = true; /* writable */
    file->direct_reads = true;
    sl_posix_open_direct(file);
    *ret_file = &file->base;
    *ret_length = length;
    return 0;
}

/* One call: a count or -errno. */
static ssize_t read_once(struct sl_posix_file *file, uint8_t *bytes, size_t count, uint64_t offset)
{
    int fault = sl_fault("posix.pread");
    if (fault > 0)
        return -fault;
    bool direct = file->direct && file->direct_reads && offset % SL_STORE_ALIGN == 0;
    ssize_t got = pread(direct ? file->direct_fd : file->fd, bytes, count, (off_t)offset);
    if (got < 0 && errno == EINVAL && direct) { /* opened with O_DIRECT, and then refused */
        file->direct = false;
        got = pread(file->fd, bytes, count, (off_t)offset);
    }
    return got < 0 ? -errno : got;
}

int sl_posix_grow_read(struct sl_file *base, void *bytes, size_t count, uint64_t offset,
                       size_t *ret_got, struct sl_err *err)
{
    struct sl_posix_file *file = sl_posix_file_of(base);
    size_t done = 0;
    if (file->direct_fd < 0 && file->direct_reads)
        sl_posix_open_direct(file); /* of a file that was small when it was opened */
    while (done < count) {
        ssize_t got = read_once(file, (uint8_t *)bytes + done, count - done, offset + done);
        if (got == -EINTR)
            continue;
        if (got < 0)
            return sl_err_sys(err, SL_ERR_READ, (int)-got, "could not read at %llu of \"%s\"",
                              (unsigned long long)(offset + done), file->name);
        done += (size_t)got;
        /* a direct read that ends inside of a page has met the end of the file */
        if (!got || (size_t)got % SL_STORE_ALIGN)
            break;
    }
    *ret_got = done;
    return 0;
}

int sl_posix_grow_sync(struct sl_file *base, struct sl_err *err)
{
    struct sl_posix_file *file = sl_posix_file_of(base);
    int sys = sl_posix_sync_fd("posix.grow_sync", file->fd, true);
    if (!sys)
        return 0;
    int rc = sl_err_sys(err, SL_ERR_SYNC, sys, "could not sync \"%s\" of %s", file->name,
                        base->store->label);
    sl_err_hint(err, "what was not durable has to be sent again; check the disk");
    return rc;
}
