/* The posix store: a folder on a local or network file system. This file opens and frees it and
 * holds its table; the work is in temporary.c, transfer.c, publish.c, folders.c, sync.c, walk.c,
 * grow.c and the queues.
 *
 * Durability, and why each sync is there
 * --------------------------------------
 * A client deletes its WAL segment once it was told STORED. From then on the only copy is here, and
 * power may fail in the next instant. What must have reached the disk by then, and what brings it
 * there (fsync(2), open(2) "O_TMPFILE"):
 *
 *   1. The bytes, and what the file system needs to find them (length, extents): fdatasync of the
 *      file, before it gets a name. Else a crash between the two would leave a name over bytes
 *      that are not there, and whoever reads it would see zeros. O_DIRECT does not replace it: the
 *      disk's own cache and the extents still need it.
 *   2. The name: fsync of the folder, after link(2). A file's own fsync need not write the
 *      folder's entry.
 *   3. The folder's own name in its parent, and so on up to the root's own, if any is new. Not
 *      only when we made it: another process may have made it a moment ago and not synced it yet;
 *      we would then rely on a sync that may never happen. So every folder above a name counts as
 *      not durable until this process has synced its parent, having seen it there before. A small
 *      cache remembers which ones were (folders.c).
 *   4. Another writer's name: when ours is taken, the other may have linked without having synced
 *      yet, and may die before it does. Saying "it is there" makes us answerable for it, so the
 *      one who found it syncs file, folder and parents itself: settle().
 *
 * link(2) and not rename(2), because link never replaces: the file system decides between two
 * writers, on any number of hosts. RENAME_NOREPLACE would too, but NFS refuses it. NFS may carry a
 * request out and lose the answer; the repeated request then finds the name "taken" by our own
 * inode: that is ours (open(2), on O_EXCL, has the same advice).
 *
 * When a sync fails, the kernel has reported the error and forgotten it: the pages are marked clean
 * though they never reached the disk, and the next fsync succeeds (the finding of PostgreSQL's
 * "fsyncgate", 2018). So a failed sync is never repeated. A file is then worthless and is written
 * again from its source. A folder cannot be written again, and what else was lost in it nobody
 * knows: the store is poisoned and refuses every further write until it is opened anew, after an
 * operator looked at the disk. A failed settle() poisons likewise: asked again, it would lie.
 *
 * Files that were not published vanish with the process (O_TMPFILE), or are temporaries below .tmp
 * that sweep() removes. Nothing else is ever visible: no half file, under any name.
 */
#include "core/store/posix_internal.h"

#include "core/base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

int sl_posix_refuse_poisoned(const struct sl_posix *store, struct sl_err *err)
{
    if (!sl_store_poisoned(&store->base))
        return 0;
    sl_err_set(err, SL_ERR_SYNC, "%s refuses writes, because a sync of it failed earlier",
               store->base.label);
    sl_err_hint(err, "check the disk and the kernel's log, then restart");
    return SL_ERR_SYNC;
}

void sl_posix_poison(struct sl_posix *store)
{
    __atomic_store_n(&store->base.poisoned, true, __ATOMIC_RELEASE);
}

int sl_posix_openat(const char *point, int at, const char *path, int flags, mode_t mode)
{
    for (;;) {
        int decided, fd = -1;
        if (!sl_posix_fault(point, &decided))
            fd = openat(at, path, flags | O_CLOEXEC, mode);
        else
            errno = decided ? decided : EIO;
        if (fd >= 0 || errno != EINTR)
            return fd < 0 ? -errno : fd;
    }
}

int sl_posix_open_below(const char *point, const struct sl_posix *store, const char *path,
                        int flags, mode_t mode)
{
    char part[SL_STORE_NAME_MAX];
    int at = store->root;
    for (const char *slash; (slash = strchr(path, '/')) != NULL; path = slash + 1) {
        size_t length = (size_t)(slash - path);
        memcpy(part, path, length);
        part[length] = '\0';
        int fd = openat(at, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int sys = errno;
        if (at != store->root)
            close(at);
        if (fd < 0)
            return -sys;
        at = fd;
    }
    int fd = sl_posix_openat(point, at, *path ? path : ".", flags | O_NOFOLLOW, mode);
    if (at != store->root)
        close(at);
    return fd;
}

void sl_posix_hint(int sys, struct sl_err *err)
{
    if (sys == ENOTDIR || sys == ELOOP)
        sl_err_hint(err,
                    "a repository is made of folders and files only: let no symbolic link and no "
                    "other file stand in it (mount another disk there, or move all of it)");
}

int sl_posix_sync_fd(const char *point, int fd, bool data_only)
{
    int sys;
    do {
        if (!sl_posix_fault(point, &sys))
            sys = (data_only ? fdatasync(fd) : fsync(fd)) == 0 ? 0 : errno;
    } while (sys == EINTR);
    return sys;
}

int sl_posix_open_name(const struct sl_posix *store, const char *name, struct sl_err *err)
{
    int fd = sl_posix_open_below("posix.open", store, name, SL_POSIX_READ, 0);
    if (fd == -ENOENT)
        return sl_err_set(err, SL_ERR_NOT_FOUND, "\"%s\" is not in %s", name, store->base.label);
    if (fd < 0) {
        sl_err_sys(err, SL_ERR_OPEN, -fd, "could not open \"%s\"", name);
        sl_posix_hint(-fd, err);
        return SL_ERR_OPEN;
    }
    return fd;
}

/* A descriptor or a code. */
static int open_regular(const struct sl_posix *store, const char *name, uint64_t *ret_length,
                        struct sl_err *err)
{
    int decided;
    struct stat st;
    int fd = sl_posix_open_name(store, name, err);
    if (fd < 0)
        return fd;
    if (sl_posix_fault("posix.stat", &decided) || fstat(fd, &st) != 0) {
        int sys = decided ? decided : errno;
        close(fd);
        return sl_err_sys(err, SL_ERR_OPEN, sys, "could not examine \"%s\"", name);
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return sl_err_set(err, SL_ERR_FORMAT, "\"%s\" is not a regular file", name);
    }
    *ret_length = (uint64_t)st.st_size;
    return fd;
}

int sl_posix_file_new(struct sl_posix *store, int fd, const char *name,
                      struct sl_posix_file **ret_file, struct sl_err *err)
{
    struct sl_posix_file *file = sl_calloc(1, sizeof *file);
    char *copy = sl_strdup(name);
    if (!file || !copy) {
        sl_free(file);
        sl_free(copy);
        close(fd);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory opening \"%s\"", name);
    }
    file->base.store = &store->base;
    file->fd = fd;
    file->direct_fd = -1;
    file->name = copy;
    *ret_file = file;
    return 0;
}

static int posix_open(struct sl_store *base, const char *name, struct sl_file **ret_file,
                      uint64_t *ret_length, struct sl_err *err)
{
    struct sl_posix *store = sl_posix_of(base);
    int rc = sl_store_name_check(name, false, err);
    if (rc)
        return rc;
    uint64_t length = 0;
    int fd = open_regular(store, name, &length, err);
    if (fd < 0)
        return fd;
    struct sl_posix_file *file;
    rc = sl_posix_file_new(store, fd, name, &file, err);
    if (rc)
        return rc;
    file->direct_reads = true;
    if (length >= SL_POSIX_DIRECT_READ_MIN)
        sl_posix_open_direct(file);
    *ret_file = &file->base;
    *ret_length = length;
    return 0;
}

static int posix_space(struct sl_store *base, uint64_t *ret_free, uint64_t *ret_total,
                       struct sl_err *err)
{
    struct statvfs fs;
    int decided;
    if (sl_posix_fault("posix.space", &decided) || fstatvfs(sl_posix_of(base)->root, &fs) != 0)
        return sl_err_sys(err, SL_ERR_READ, decided ? decided : errno,
                          "could not ask for the space of %s", base->label);
    *ret_free = (uint64_t)fs.f_bavail * fs.f_frsize;
    *ret_total = (uint64_t)fs.f_blocks * fs.f_frsize;
    return 0;
}

static int posix_remove(struct sl_store *base, const char *name, struct sl_err *err)
{
    struct sl_posix *store = sl_posix_of(base);
    int rc = sl_store_name_check(name, false, err), decided;
    if (!rc)
        rc = sl_posix_refuse_poisoned(store, err);
    if (rc)
        return rc;
    char folder[SL_STORE_NAME_MAX];
    const char *leaf;
    sl_posix_split(name, folder, &leaf);
    int fd = sl_posix_folder_open(store, folder, false, err);
    if (fd < 0)
        return fd == SL_ERR_NOT_FOUND ? 0 : fd;
    int sys = 0;
    if (sl_posix_fault("posix.unlink", &decided))
        sys = decided;
    else if (unlinkat(fd, leaf, 0) != 0 &&
             /* a folder: EISDIR (unlink(2), Linux), EPERM (POSIX) */
             ((errno != EISDIR && errno != EPERM) || unlinkat(fd, leaf, AT_REMOVEDIR) != 0))
        sys = errno;
    close(fd);
    if (!sys || sys == ENOENT)
        return 0;
    if (sys == ENOTEMPTY || sys == EEXIST)
        return sl_err_set(err, SL_ERR_NOT_EMPTY, "folder \"%s\" is not empty", name);
    return sl_err_sys(err, SL_ERR_WRITE, sys, "could not remove \"%s\"", name);
}

static void posix_free(struct sl_store *base)
{
    if (!base)
        return;
    struct sl_posix *store = sl_posix_of(base);
    sl_posix_sync_ring_free(store->ring);
    for (size_t i = 0; i < SL_POSIX_KNOWN_SLOTS; i++)
        sl_free(store->known[i].path);
    if (store->root >= 0)
        close(store->root);
    pthread_mutex_destroy(&store->folder_lock);
    pthread_mutex_destroy(&store->known_lock);
    pthread_mutex_destroy(&store->ring_lock);
    sl_free(store);
}

static const struct sl_store_ops posix_ops = {
    .name = "posix",
    .free = posix_free,
    .create = sl_posix_create,
    .write = sl_posix_write,
    .truncate = sl_posix_truncate,
    .publish = sl_posix_publish,
    .settle = sl_posix_settle,
    .open = posix_open,
    .read = sl_posix_read,
    .has_data = sl_posix_has_data,
    .close = sl_posix_close,
    .list = sl_posix_list,
    .space = posix_space,
    .remove = posix_remove,
    .sweep = sl_posix_sweep,
    .grow = sl_posix_grow,
    .grow_read = sl_posix_grow_read,
    .grow_sync = sl_posix_grow_sync,
    .queue_new = sl_posix_queue_new,
    .queue_free = sl_posix_queue_free,
    .queue_write = sl_posix_queue_write,
    .queue_read = sl_posix_queue_read,
    .queue_flush = sl_posix_queue_flush,
    .queue_reap = sl_posix_queue_reap,
};

static int open_root(struct sl_posix *store, const char *path, struct sl_err *err)
{
    store->root = sl_posix_openat("posix.open", AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
    if (store->root >= 0)
        return 0;
    int sys = -store->root;
    int rc = sl_err_sys(err, SL_ERR_OPEN, sys, "could not open repository folder \"%s\"", path);
    if (sys == ENOENT)
        sl_err_hint(err, "create the folder, or correct the path");
    return rc;
}

int sl_store_posix_open(const char *path, bool create, struct sl_store **ret_store,
                        struct sl_err *err)
{
    struct sl_posix *store = sl_calloc(1, sizeof *store);
    if (!store)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory opening \"%s\"", path);
    store->base.ops = &posix_ops;
    store->base.caps = SL_STORE_CAN_GROW;
    store->root = -1;
    pthread_mutex_init(&store->folder_lock, NULL);
    pthread_mutex_init(&store->known_lock, NULL);
    pthread_mutex_init(&store->ring_lock, NULL);
    snprintf(store->base.label, sizeof store->base.label, "posix %s", path);
    int rc = create ? sl_posix_root_make(path, err) : 0;
    if (!rc)
        rc = open_root(store, path, err);
    if (rc) {
        posix_free(&store->base);
        return rc;
    }
    store->no_proc = access("/proc/self/fd", X_OK) != 0;
    sl_posix_temporary_prefix(store);
    *ret_store = &store->base;
    return 0;
}
