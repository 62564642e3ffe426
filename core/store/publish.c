/* Publication: the one place where a file gets its name, and where it is said to be durable. The
 * order is that of the essay in posix.c:
 *
 *   sync every file of the batch → link each → sync each folder once, and the entries of folders
 *
 * An item is CREATED only after all of that; what fails on the way fails the items that depend on
 * it and no others. settle() does the last two thirds for a name that another writer linked.
 *
 * Folder syncs run one at a time (folder_lock): the kernel reports a failure once, to the
 * descriptors open at that time. A thread that opened the folder afterwards would be told "synced";
 * with the lock it sees the store poisoned first.
 */
#include "core/store/posix_internal.h"

#include "core/base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RACES 100 /* an expire that removes the empty folder before we link into it */

struct folder {
    char path[SL_STORE_NAME_MAX];
    int fd;
    bool has_new_names;
    struct sl_err err; /* code 0: its new names are durable */
};

struct batch {
    struct sl_posix *store;
    struct sl_publish *items;
    size_t count;
    struct folder *folders; /* room for `count` */
    size_t folder_count;
    struct folder **folder_of; /* of items that were linked, else NULL */
    int *fds, *results;        /* for the syncing of files */
    size_t *index;             /* … of these items */
};

static struct sl_posix_file *file_of(const struct sl_publish *item)
{
    return sl_posix_file_of(item->file);
}

static void check_item(struct sl_posix *store, struct sl_publish *item)
{
    item->result = SL_PUBLISH_FAILED;
    item->err = (struct sl_err){0};
    if (sl_store_name_check(item->name, false, &item->err) ||
        sl_posix_refuse_poisoned(store, &item->err))
        return;
    const struct sl_posix_file *file = file_of(item);
    if (file->base.store != &store->base || !file->temporary)
        sl_err_set(&item->err, SL_ERR_INTERNAL, "\"%s\" cannot be published from this file",
                   item->name);
}

/* --- 1. the files --------------------------------------------------------------------------------
 */

static void sync_files(struct batch *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->count; i++)
        if (!b->items[i].err.code) {
            b->index[n] = i;
            b->fds[n++] = file_of(&b->items[i])->fd;
        }
    sl_posix_sync_files(b->store, b->fds, b->results, n);
    for (size_t k = 0; k < n; k++) {
        struct sl_publish *item = &b->items[b->index[k]];
        if (!b->results[k])
            continue;
        sl_err_sys(&item->err, SL_ERR_SYNC, b->results[k], "could not sync \"%s\" of %s",
                   item->name, b->store->base.label);
        sl_err_hint(&item->err, "it has to be sent again; check the disk");
    }
}

/* --- 2. the names --------------------------------------------------------------------------------
 */

/* The batch's open folder of that path; NULL and item->err when it cannot be had. */
static struct folder *folder_of(struct batch *b, const char path[SL_STORE_NAME_MAX],
                                struct sl_err *err)
{
    for (size_t i = 0; i < b->folder_count; i++)
        if (!strcmp(b->folders[i].path, path))
            return &b->folders[i];
    int fd = sl_posix_folder_open(b->store, path, true, err);
    if (fd < 0)
        return NULL;
    struct folder *folder = &b->folders[b->folder_count++];
    memcpy(folder->path, path, sizeof folder->path);
    folder->fd = fd;
    return folder;
}

/* Is what lies under the name the very file? So it is when NFS repeated our request. */
static bool is_ours(const struct sl_posix_file *file, int folder, const char *leaf)
{
    struct stat own, there;
    return fstat(file->fd, &own) == 0 && fstatat(folder, leaf, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

/* 0, EEXIST (another's) or why not. */
static int link_into(struct batch *b, struct folder *folder, const struct sl_posix_file *file,
                     const char *leaf)
{
    int sys = sl_posix_link(file, folder->fd, leaf);
    for (int i = 0; sys == ENOENT && i < RACES; i++) {
        /* The folder is gone: it was empty, so nothing of this batch was in it. */
        int fd = sl_posix_folder_open(b->store, folder->path, true, NULL);
        if (fd < 0)
            return sys;
        close(folder->fd);
        folder->fd = fd;
        sys = sl_posix_link(file, folder->fd, leaf);
    }
    return sys == EEXIST && is_ours(file, folder->fd, leaf) ? 0 : sys;
}

static void link_item(struct batch *b, size_t i)
{
    struct sl_publish *item = &b->items[i];
    struct sl_posix_file *file = file_of(item);
    char path[SL_STORE_NAME_MAX] = "";
    const char *leaf;
    sl_posix_split(item->name, path, &leaf);
    struct folder *folder = folder_of(b, path, &item->err);
    if (!folder)
        return;
    int sys = link_into(b, folder, file, leaf);
    if (sys == EEXIST) {
        item->result = SL_PUBLISH_TAKEN;
    } else if (sys) {
        sl_err_sys(&item->err, SL_ERR_WRITE, sys, "could not give a file the name \"%s\" in %s",
                   item->name, b->store->base.label);
        if (sys == EXDEV)
            sl_err_hint(&item->err, "a repository must lie on one file system");
    } else {
        b->folder_of[i] = folder;
        folder->has_new_names = true;
    }
}

/* --- 3. the folders ------------------------------------------------------------------------------
 */

static void sync_folders(struct batch *b)
{
    pthread_mutex_lock(&b->store->folder_lock);
    for (size_t i = 0; i < b->folder_count; i++) {
        struct folder *folder = &b->folders[i];
        if (!folder->has_new_names || sl_posix_refuse_poisoned(b->store, &folder->err) ||
            sl_posix_folder_sync(b->store, "posix.syncdir", folder->fd, folder->path, &folder->err))
            continue;
        sl_posix_folder_entries_sync(b->store, folder->path, &folder->err);
    }
    pthread_mutex_unlock(&b->store->folder_lock);
}

static int conclude(struct batch *b)
{
    int rc = 0;
    for (size_t i = 0; i < b->count; i++) {
        struct sl_publish *item = &b->items[i];
        const struct folder *folder = b->folder_of[i];
        /* Neither written nor published again, also if its sync failed: a second would lie. */
        file_of(item)->temporary = false;
        if (folder && folder->err.code)
            item->err = folder->err;
        else if (folder)
            item->result = SL_PUBLISH_CREATED;
        if (item->result == SL_PUBLISH_FAILED && !rc)
            rc = item->err.code;
    }
    return rc;
}

static int run(struct batch *b)
{
    sync_files(b);
    for (size_t i = 0; i < b->count; i++)
        if (!b->items[i].err.code)
            link_item(b, i);
    sync_folders(b);
    int rc = conclude(b);
    for (size_t i = 0; i < b->folder_count; i++)
        close(b->folders[i].fd);
    /* Only now: until the folder was synced, the temporary's name is the way back to the bytes. */
    for (size_t i = 0; i < b->count; i++)
        if (b->folder_of[i])
            sl_posix_drop_temporary_name(file_of(&b->items[i]));
    return rc;
}

int sl_posix_publish(struct sl_store *base, struct sl_publish *items, size_t count)
{
    struct batch b = {.store = sl_posix_of(base), .items = items, .count = count};
    for (size_t i = 0; i < count; i++)
        check_item(b.store, &items[i]);
    b.folders = sl_calloc(count, sizeof *b.folders);
    b.folder_of = sl_calloc(count, sizeof(struct folder *));
    b.index = sl_calloc(count, sizeof *b.index);
    b.fds = sl_calloc(count * 2, sizeof *b.fds);
    b.results = b.fds ? b.fds + count : NULL;
    int rc = 0;
    if (b.folders && b.folder_of && b.index && b.fds)
        rc = run(&b);
    else
        for (size_t i = 0; i < count; i++)
            rc = sl_err_set(&items[i].err, SL_ERR_NO_MEMORY, "out of memory publishing \"%s\"",
                            items[i].name);
    sl_free(b.folders);
    sl_free(b.folder_of);
    sl_free(b.index);
    sl_free(b.fds);
    return rc;
}

/* --- another writer's name -----------------------------------------------------------------------
 */

static int settle_file(struct sl_posix *store, const char *name, struct sl_err *err)
{
    int fd = sl_posix_open_name(store, name, err);
    if (fd < 0)
        return fd;
    int sys = sl_posix_sync_fd("posix.settle_file", fd, false);
    close(fd);
    if (!sys)
        return 0;
    sl_posix_poison(store); /* asked again, the kernel would say "synced" */
    int rc =
        sl_err_sys(err, SL_ERR_SYNC, sys, "could not sync \"%s\" of %s", name, store->base.label);
    sl_err_hint(err, "check the disk and the kernel's log, then restart");
    return rc;
}

int sl_posix_settle(struct sl_store *base, const char *name, struct sl_err *err)
{
    struct sl_posix *store = sl_posix_of(base);
    char path[SL_STORE_NAME_MAX];
    const char *leaf;
    int rc = sl_store_name_check(name, false, err);
    if (!rc)
        rc = sl_posix_refuse_poisoned(store, err);
    if (!rc)
        rc = settle_file(store, name, err);
    if (rc)
        return rc;
    sl_posix_split(name, path, &leaf);
    int fd = sl_posix_folder_open(store, path, false, err);
    if (fd < 0)
        return fd;
    pthread_mutex_lock(&store->folder_lock);
    rc = sl_posix_refuse_poisoned(store, err);
    if (!rc)
        rc = sl_posix_folder_sync(store, "posix.settle_dir", fd, path, err);
    if (!rc)
        rc = sl_posix_folder_entries_sync(store, path, err);
    pthread_mutex_unlock(&store->folder_lock);
    close(fd);
    return rc;
}
