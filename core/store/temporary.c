/* Files without a name yet: O_TMPFILE where the file system has it, else named temporaries that no
 * listing shows; and the sweeping up of what crashed writers left of the latter. */
#include "core/store/posix_internal.h"

#include "core/base/alloc.h"
#include "core/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MODE   0640
#define FOLDER_MODE 0750
#define LEAF_PREFIX ".tmp-"
#define HOST_MAX    64
#define TRIES       1000
#define HINT_MAX    (1ull << 40)

/* The first 8 digits of the boot's UUID: a pid means something only within one boot. */
static void boot_id(char id[9])
{
    memcpy(id, "00000000", 9);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    char text[9] = {0};
    if (read(fd, text, 8) == 8 && strspn(text, "0123456789abcdef") == 8)
        memcpy(id, text, 9);
    close(fd);
}

void sl_posix_temporary_prefix(struct sl_posix *store)
{
    char host[HOST_MAX + 1] = "", boot[9];
    if (gethostname(host, HOST_MAX) != 0 || !host[0])
        snprintf(host, sizeof host, "localhost");
    for (char *c = host; *c; c++)
        if (*c == '/' || *c < '!' || *c > '~')
            *c = '_';
    boot_id(boot);
    snprintf(store->temporary_prefix, sizeof store->temporary_prefix, "%s/%s%s-%s-%ld-",
             SL_POSIX_TEMPORARY_FOLDER, LEAF_PREFIX, host, boot, (long)getpid());
}

/* What open(2) says when the file system has no O_TMPFILE: EOPNOTSUPP; EISDIR from kernels, and
 * EINVAL from file systems, that do not know the flag. */
static bool means_no_tmpfile(int sys)
{
    return sys == EOPNOTSUPP || sys == EISDIR || sys == EINVAL;
}

/* A descriptor or -errno. */
static int open_nameless(struct sl_posix *store)
{
    return sl_posix_openat("posix.tmpfile", store->root, ".", O_TMPFILE | O_RDWR, FILE_MODE);
}

static int open_named_once(struct sl_posix *store, const char *name)
{
    int flags = O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW;
    int fd = sl_posix_openat("posix.named", store->root, name, flags, FILE_MODE);
    if (fd != -ENOENT)
        return fd;
    if (mkdirat(store->root, SL_POSIX_TEMPORARY_FOLDER, FOLDER_MODE) != 0 && errno != EEXIST)
        return -errno;
    return sl_posix_openat("posix.named", store->root, name, flags, FILE_MODE);
}

static int open_named(struct sl_posix *store, char **ret_name)
{
    for (int i = 0; i < TRIES; i++) {
        char *name = sl_asprintf("%s%lu", store->temporary_prefix,
                                 atomic_fetch_add(&store->next_temporary, 1) + 1);
        if (!name)
            return -ENOMEM;
        int fd = open_named_once(store, name);
        if (fd >= 0) {
            *ret_name = name;
            return fd;
        }
        sl_free(name);
        /* a container with our host name and pid */
        if (fd != -EEXIST)
            return fd;
    }
    return -EEXIST;
}

static int open_temporary(struct sl_posix *store, char **ret_name)
{
    if (!store->no_proc && !store->no_tmpfile) {
        int fd = open_nameless(store);
        if (fd >= 0 || !means_no_tmpfile(-fd))
            return fd;
        store->no_tmpfile = true;
    }
    return open_named(store, ret_name);
}

void sl_posix_open_direct(struct sl_posix_file *file)
{
    struct sl_posix *store = sl_posix_of(file->base.store);
    char proc[64];
    file->direct_fd = -1;
    if (store->no_direct)
        return;
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", file->fd);
    int direct = sl_posix_openat("posix.direct", store->root,
                                 file->temporary_name ? file->temporary_name : proc,
                                 (file->direct_reads ? O_RDONLY : O_WRONLY) | O_DIRECT, 0);
    if (direct == -EINVAL) /* open(2): not supported by the file system */
        store->no_direct = true;
    file->direct_fd = direct < 0 ? -1 : direct;
    file->direct = direct >= 0;
}

/* O_DIRECT writes that extend a file take its lock one after the other and journal each new length;
 * inside of the length they need not (ext4, six pairs: 1.2 to 2.9 times faster, 16 MiB in 1 MiB
 * pieces). Set, not allocated: holes stay holes, and a client's hint costs no space. */
static void expect_length(const struct sl_posix_file *file, uint64_t length_hint)
{
    if (!length_hint || length_hint > HINT_MAX)
        return;
    if (ftruncate(file->fd, (off_t)length_hint) != 0)
        return; /* only a hint; writes will tell */
}

int sl_posix_create(struct sl_store *base, const char *name_hint, uint64_t length_hint,
                    struct sl_file **ret_file, struct sl_err *err)
{
    struct sl_posix *store = sl_posix_of(base);
    int rc = sl_posix_refuse_poisoned(store, err);
    if (rc)
        return rc;
    struct sl_posix_file *file = sl_calloc(1, sizeof *file);
    char *name = sl_strdup(name_hint ? name_hint : "temporary file");
    if (!file || !name) {
        sl_free(file);
        sl_free(name);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a new file");
    }
    file->base.store = base;
    file->name = name;
    file->temporary = true;
    file->fd = open_temporary(store, &file->temporary_name);
    if (file->fd < 0) {
        int sys = -file->fd;
        sl_free(file);
        rc = sl_err_sys(err, SL_ERR_WRITE, sys,
                        "could not create a temporary file for \"%s\" in %s", name, base->label);
        sl_free(name);
        return rc;
    }
    sl_posix_open_direct(file);
    expect_length(file, length_hint);
    *ret_file = &file->base;
    return 0;
}

int sl_posix_link(const struct sl_posix_file *file, int folder, const char *leaf)
{
    struct sl_posix *store = sl_posix_of(file->base.store);
    int sys;
    char proc[64];
    /* open(2), O_TMPFILE: the way for a process without CAP_DAC_READ_SEARCH */
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", file->fd);
    const char *from = file->temporary_name ? file->temporary_name : proc;
    int flags = file->temporary_name ? 0 : AT_SYMLINK_FOLLOW;
    do { /* repeated, it may find its own name: publish.c knows it */
        if (!sl_posix_fault("posix.link", &sys))
            sys = linkat(store->root, from, folder, leaf, flags) == 0 ? 0 : errno;
    } while (sys == EINTR);
    return sys;
}

void sl_posix_drop_temporary_name(struct sl_posix_file *file)
{
    if (!file->temporary_name)
        return;
    struct sl_posix *store = sl_posix_of(file->base.store);
    int decided = 0;
    if (sl_posix_fault("posix.unlink", &decided) ||
        unlinkat(store->root, file->temporary_name, 0) != 0)
        sl_log(SL_LOG_WARN, "store", "could not remove temporary \"%s\" of %s (expire will): %s",
               file->temporary_name, store->base.label, strerror(decided ? decided : errno));
    sl_free(file->temporary_name);
    file->temporary_name = NULL;
}

void sl_posix_close(struct sl_file *base)
{
    if (!base)
        return;
    struct sl_posix_file *file = sl_posix_file_of(base);
    sl_posix_drop_temporary_name(file);
    if (file->direct_fd >= 0)
        close(file->direct_fd);
    /* Close may tell of a write that failed late (NFS, close(2)). Published files were synced
     * before, so this is news about the disk only; temporaries are dropped anyway. */
    if (close(file->fd) != 0 && !file->temporary)
        sl_log(SL_LOG_WARN, "store", "closing \"%s\" failed: %s", file->name, strerror(errno));
    sl_free(file->name);
    sl_free(file);
}

/* --- sweeping ----------------------------------------------------------------------------------
 */

static bool is_old(int folder, const char *name, uint64_t age_ns)
{
    struct stat st;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return false;
    uint64_t written = (uint64_t)st.st_mtim.tv_sec * SL_NS_PER_S + (uint64_t)st.st_mtim.tv_nsec;
    uint64_t now = sl_wall_ns();
    return now > written && now - written > age_ns;
}

static int sweep_folder(struct sl_posix *store, int folder, char **names, size_t count,
                        uint64_t age_ns, uint64_t *removed, struct sl_err *err)
{
    for (size_t i = 0; i < count; i++) {
        int decided;
        if (strncmp(names[i], LEAF_PREFIX, strlen(LEAF_PREFIX)) != 0 ||
            !is_old(folder, names[i], age_ns))
            continue;
        if (!sl_posix_fault("posix.unlink", &decided) && unlinkat(folder, names[i], 0) == 0)
            ++*removed;
        else if (decided || errno != ENOENT) /* another sweeper was faster */
            return sl_err_sys(err, SL_ERR_WRITE, decided ? decided : errno,
                              "could not remove temporary \"%s\" of %s", names[i],
                              store->base.label);
    }
    return 0;
}

int sl_posix_sweep(struct sl_store *base, uint64_t age_ns, uint64_t *ret_removed,
                   struct sl_err *err)
{
    struct sl_posix *store = sl_posix_of(base);
    int rc = sl_posix_refuse_poisoned(store, err);
    if (rc)
        return rc;
    int folder = openat(store->root, SL_POSIX_TEMPORARY_FOLDER,
                        O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    uint64_t removed = 0;
    if (folder < 0 && errno == ENOENT)
        return *ret_removed = 0, 0;
    if (folder < 0)
        return sl_err_sys(err, SL_ERR_OPEN, errno, "could not open \"%s\" of %s",
                          SL_POSIX_TEMPORARY_FOLDER, base->label);
    char **names;
    size_t count;
    rc = sl_posix_names(folder, &names, &count, err);
    if (!rc) {
        rc = sweep_folder(store, folder, names, count, age_ns, &removed, err);
        sl_free(names);
    }
    close(folder);
    if (!rc)
        *ret_removed = removed;
    return rc;
}
