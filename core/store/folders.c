/* Folders: made as needed, synced, and remembered once their own entries are durable. */
#include "core/store/posix_internal.h"

#include "core/base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER_MODE 0750
#define RACES       100 /* an expire that removes the empty folder we have just made */

void sl_posix_split(const char *name, char folder[SL_STORE_NAME_MAX], const char **ret_leaf)
{
    const char *slash = strrchr(name, '/');
    size_t length = slash ? (size_t)(slash - name) : 0;
    memcpy(folder, name, length);
    folder[length] = '\0';
    *ret_leaf = slash ? slash + 1 : name;
}

/* --- opening and making -------------------------------------------------------------------------
 */

/* A descriptor or -errno. */
static int open_folder(const struct sl_posix *store, const char *folder)
{
    return sl_posix_open_below("posix.open", store, folder, O_RDONLY | O_DIRECTORY, 0);
}

static int make_one(int root, const char *path)
{
    int decided;
    if (sl_posix_fault("posix.mkdir", &decided))
        return decided;
    return mkdirat(root, path, FOLDER_MODE) == 0 || errno == EEXIST ? 0 : errno;
}

/* Every folder of the path that is missing: 0 or an errno. */
static int make_all(const struct sl_posix *store, const char *folder)
{
    char path[SL_STORE_NAME_MAX];
    for (const char *end = folder; *end; end += *end == '/') {
        end = strchrnul(end, '/');
        memcpy(path, folder, (size_t)(end - folder));
        path[end - folder] = '\0';
        int sys = make_one(store->root, path);
        if (sys)
            return sys;
    }
    return 0;
}

int sl_posix_folder_open(const struct sl_posix *store, const char *folder, bool make,
                         struct sl_err *err)
{
    int fd = open_folder(store, folder);
    for (int i = 0; i < RACES && make && fd == -ENOENT; i++) {
        int sys = make_all(store, folder);
        if (sys && sys != ENOENT)
            return sl_err_sys(err, SL_ERR_WRITE, sys, "could not create folder \"%s\" in %s",
                              folder, store->base.label);
        fd = open_folder(store, folder);
    }
    if (fd >= 0)
        return fd;
    if (!make && fd == -ENOENT)
        return sl_err_set(err, SL_ERR_NOT_FOUND, "folder \"%s\" is not in %s", folder,
                          store->base.label);
    sl_err_sys(err, SL_ERR_OPEN, -fd, "could not open folder \"%s\" in %s", folder,
               store->base.label);
    sl_posix_hint(-fd, err);
    return SL_ERR_OPEN;
}

/* --- syncing ------------------------------------------------------------------------------------
 */

int sl_posix_folder_sync(struct sl_posix *store, const char *point, int fd, const char *folder,
                         struct sl_err *err)
{
    int sys = sl_posix_sync_fd(point, fd, false);
    if (!sys)
        return 0;
    sl_posix_poison(store);
    int rc = sl_err_sys(err, SL_ERR_SYNC, sys, "could not sync folder \"%s\" of %s", folder,
                        store->base.label);
    if (sys == EINVAL) /* fsync(2): not for this kind of file */
        sl_err_hint(err, "this file system cannot make names durable; use another for the "
                         "repository");
    else
        sl_err_hint(err, "check the disk and the kernel's log, then restart; writes are refused "
                         "until then");
    return rc;
}

_Static_assert(sizeof((struct sl_folder_id){0}.handle) == MAX_HANDLE_SZ, "room for a handle");

/* File systems use inode numbers again, and birth times have the grain of the kernel's tick. A file
 * handle has the inode's generation, too (open_by_handle_at(2)); not every file system has them. */
static void add_handle(const struct sl_posix *store, const char *folder, struct sl_folder_id *id)
{
    union {
        struct file_handle head;
        uint8_t room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
    } handle = {.head.handle_bytes = MAX_HANDLE_SZ};
    int mount;
    if (name_to_handle_at(store->root, folder, &handle.head, &mount, 0) != 0)
        return;
    id->handle_bytes = handle.head.handle_bytes;
    memcpy(id->handle, handle.head.f_handle, id->handle_bytes);
}

static int identify(const struct sl_posix *store, const char *folder, struct sl_folder_id *id,
                    struct sl_err *err)
{
    struct statx st;
    int decided;
    if (sl_posix_fault("posix.stat", &decided) ||
        statx(store->root, folder, AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &st) != 0)
        return sl_err_sys(err, SL_ERR_READ, decided ? decided : errno,
                          "could not examine folder \"%s\" of %s", folder, store->base.label);
    *id = (struct sl_folder_id){
        .device = (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor,
        .inode = st.stx_ino,
    };
    if (st.stx_mask & STATX_BTIME) {
        id->born_s = st.stx_btime.tv_sec;
        id->born_ns = st.stx_btime.tv_nsec;
    }
    add_handle(store, folder, id);
    return 0;
}

/* The cache: a path has one slot; a newcomer drives out who was there, whose entry is then synced
 * once more when needed. So it never grows. */
static struct sl_known_folder *slot_of(struct sl_posix *store, const char *folder)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *c = folder; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 16777619u;
    return &store->known[hash % SL_POSIX_KNOWN_SLOTS];
}

static bool is_known(struct sl_posix *store, const char *folder, const struct sl_folder_id *id)
{
    pthread_mutex_lock(&store->known_lock);
    const struct sl_known_folder *slot = slot_of(store, folder);
    bool known = slot->path && !strcmp(slot->path, folder) && !memcmp(&slot->id, id, sizeof *id);
    pthread_mutex_unlock(&store->known_lock);
    return known;
}

static void remember(struct sl_posix *store, const char *folder, const struct sl_folder_id *id)
{
    char *path = sl_strdup(folder);
    if (!path) /* then it is synced once more */
        return;
    pthread_mutex_lock(&store->known_lock);
    struct sl_known_folder *slot = slot_of(store, folder);
    sl_free(slot->path);
    *slot = (struct sl_known_folder){.path = path, .id = *id};
    pthread_mutex_unlock(&store->known_lock);
}

/* Make the entry of one folder durable. It is looked at first and synced afterwards: an entry that
 * was there before the sync began is covered by it. */
static int sync_entry(struct sl_posix *store, const char *folder, struct sl_err *err)
{
    struct sl_folder_id id = {0};
    char parent[SL_STORE_NAME_MAX];
    const char *leaf;
    int rc = identify(store, folder, &id, err);
    if (rc || is_known(store, folder, &id))
        return rc;
    sl_posix_split(folder, parent, &leaf);
    int fd = sl_posix_folder_open(store, parent, false, err);
    if (fd < 0)
        return fd;
    rc = sl_posix_folder_sync(store, "posix.syncparent", fd, parent, err);
    close(fd);
    if (!rc)
        remember(store, folder, &id);
    return rc;
}

/* The root's own entry, once: an operator may have made the folder a moment ago. Nothing to do for
 * a mount point, and nothing that can be done where the folder above may not be opened. */
static int sync_root_entry(struct sl_posix *store, struct sl_err *err)
{
    struct stat root, above;
    if (store->root_known)
        return 0;
    int fd = sl_posix_openat("posix.open", store->root, "..", O_RDONLY | O_DIRECTORY, 0), rc = 0;
    if (fd < 0 && fd != -EACCES && fd != -EPERM)
        return sl_err_sys(err, SL_ERR_OPEN, -fd, "could not open the folder that holds %s",
                          store->base.label);
    if (fd >= 0 && fstat(store->root, &root) == 0 && fstat(fd, &above) == 0 &&
        root.st_dev == above.st_dev)
        rc = sl_posix_folder_sync(store, "posix.syncparent", fd, "..", err);
    if (fd >= 0)
        close(fd);
    store->root_known = !rc;
    return rc;
}

int sl_posix_folder_entries_sync(struct sl_posix *store, const char *folder, struct sl_err *err)
{
    char path[SL_STORE_NAME_MAX];
    int rc = sync_root_entry(store, err);
    if (rc)
        return rc;
    for (const char *end = folder; *end; end += *end == '/') {
        end = strchrnul(end, '/');
        memcpy(path, folder, (size_t)(end - folder));
        path[end - folder] = '\0';
        rc = sync_entry(store, path, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* --- the repository's root ----------------------------------------------------------------------
 */

/* Sync the folder that holds the entry of `path`. One that we may not open was not made by us. */
static int sync_holder(const char *path, bool made, struct sl_err *err)
{
    char holder[PATH_MAX];
    size_t length = strlen(path);
    memcpy(holder, path, length + 1);
    char *slash = strrchr(holder, '/');
    if (!slash)
        memcpy(holder, ".", 2);
    else
        slash[slash == holder] = '\0';
    int fd = open(holder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && !made)
        return 0;
    int sys = fd < 0 ? errno : sl_posix_sync_fd("posix.syncparent", fd, false);
    if (fd >= 0)
        close(fd);
    return sys ? sl_err_sys(err, SL_ERR_SYNC, sys, "could not sync folder \"%s\"", holder) : 0;
}

int sl_posix_root_make(const char *path, struct sl_err *err)
{
    char part[PATH_MAX];
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (!length || length >= sizeof part)
        return sl_err_set(err, SL_ERR_OPEN, "path of the repository is %s",
                          length ? "too long" : "empty");
    for (size_t end = 1; end <= length; end++) {
        if ((end < length && path[end] != '/') || path[end - 1] == '/')
            continue;
        memcpy(part, path, end);
        part[end] = '\0';
        int decided, rc;
        struct stat st;
        bool there = stat(part, &st) == 0, made = false;
        if (!there) {
            if (!sl_posix_fault("posix.mkdir", &decided))
                decided = mkdir(part, FOLDER_MODE) == 0 || errno == EEXIST ? 0 : errno;
            if (decided)
                return sl_err_sys(err, SL_ERR_OPEN, decided, "could not create folder \"%s\"",
                                  part);
            made = true;
        }
        /* The last may have been made by another a moment ago. */
        if ((made || end == length) && (rc = sync_holder(part, made, err)) != 0)
            return rc;
    }
    return 0;
}
