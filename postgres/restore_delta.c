/* --delta: a folder that has an older (or damaged) state of the cluster is brought to the backup's.
 *
 * The existing tree is walked in the order of the manifest, side by side with it: what the backup
 * does not have is removed, what is of another kind or size makes room, files of the right size
 * stay for the comparison: their CRC-32C decides whether they are kept or written anew. pg_control
 * goes first and comes last, so that no server starts on anything in between. */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/log.h"
#include "core/object/object.h"
#include "postgres/cluster_rules.h"
#include "postgres/control_file.h"
#include "postgres/names.h"
#include "postgres/restore_internal.h"
#include "postgres/signals.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEVELS_MAX 32
#define READ_BYTES (1u << 20)

struct level {
    size_t path_bytes; /* of the folder, with a '/' after it */
    struct sl_pg_names names;
    size_t next;
};

struct sl_pg_delta {
    int root_fd;
    char version_folder[64];
    size_t depth;
    struct level levels[LEVELS_MAX];
    char path[SL_PATH_MAX]; /* the entry in hand */
    bool holds;
};

/* --- may it be done? ---------------------------------------------------------------------------
 */

int sl_pg_delta_check(const struct sl_pg_restore *r, struct sl_err *err)
{
    char version[32];
    const char *wanted = r->info.pg_version;
    SL_CLEANUP_FREE char *mark = sl_asprintf("%s/%s", r->data_folder, SL_PG_RESTORE_MARK);
    if (!mark)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    bool ours = !access(mark, F_OK);
    if (!ours && sl_pg_version_read(r->data_folder, version, NULL)) {
        sl_err_set(err, SL_ERR_NOT_EMPTY, "\"%s\" is neither empty nor a data directory",
                   r->data_folder);
        sl_err_hint(err, "--delta works on a data directory of the same cluster");
        return SL_ERR_NOT_EMPTY;
    }
    if (!ours && strcmp(version, wanted) != 0)
        return sl_err_set(err, SL_ERR_MISMATCH, "\"%s\" is of PostgreSQL %s, the backup of %s",
                          r->data_folder, version, wanted);
    struct sl_pg_control control;
    /* one that cannot be read is what a restore may be there for */
    if (sl_pg_control_read(r->data_folder, sl_deadline_in_ms(500), NULL, &control, NULL))
        return 0;
    if (control.system_id == r->info.system_id)
        return 0;
    return sl_err_set(err, SL_ERR_MISMATCH,
                      "\"%s\" has system identifier %llu, the backup %llu: it is another cluster",
                      r->data_folder, (unsigned long long)control.system_id,
                      (unsigned long long)r->info.system_id);
}

/* --- removing ----------------------------------------------------------------------------------
 */

static int fail_remove(struct sl_err *err, const char *path)
{
    return sl_err_sys(err, SL_ERR_WRITE, errno, "could not remove \"%s\"", path);
}

static int remove_tree(int parent_fd, const char *name, const char *shown, int depth,
                       struct sl_err *err)
{
    struct stat st;
    if (fstatat(parent_fd, name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? 0 : fail_remove(err, shown);
    if (!S_ISDIR(st.st_mode))
        return unlinkat(parent_fd, name, 0) && errno != ENOENT ? fail_remove(err, shown) : 0;
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 && depth < LEVELS_MAX ? fdopendir(fd) : NULL;
    if (!dir) {
        int rc = fail_remove(err, shown);
        if (fd >= 0)
            close(fd);
        return rc;
    }
    int rc = 0;
    const struct dirent *entry;
    while (!rc && (entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            rc = remove_tree(dirfd(dir), entry->d_name, shown, depth + 1, err);
    closedir(dir);
    if (!rc && unlinkat(parent_fd, name, AT_REMOVEDIR) && errno != ENOENT)
        rc = fail_remove(err, shown);
    return rc;
}

static int remove_path(const struct sl_pg_delta *d, const char *path, struct sl_err *err)
{
    int fault = sl_fault("pg.restore_remove");
    if (fault)
        return sl_err_sys(err, SL_ERR_WRITE, fault, "could not remove \"%s\"", path);
    sl_log(SL_LOG_DETAIL, "postgres", "\"%s\" is removed", path);
    return remove_tree(d->root_fd, path, path, 0, err);
}

/* --- the walk ----------------------------------------------------------------------------------
 */

static bool is_left_alone(const struct sl_pg_delta *d, const char *folder, const char *name)
{
    if (!*folder)
        return !strcmp(name, SL_PG_RESTORE_MARK) || !strcmp(name, "backup_manifest") ||
               !strcmp(name, "lost+found");
    /* a tablespace's folder may hold those of other versions */
    return sl_pg_is_tablespace(folder) && strcmp(name, d->version_folder) != 0;
}

/* What is entered: folders, and the two kinds of links that lead to parts of the cluster. */
static bool is_entered(int fd, const char *folder, const char *name)
{
    struct stat st;
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW))
        return false;
    if (S_ISLNK(st.st_mode))
        return (!strcmp(folder, "pg_tblspc") || (!*folder && !strcmp(name, "pg_wal"))) &&
               !fstatat(fd, name, &st, 0) && S_ISDIR(st.st_mode);
    return S_ISDIR(st.st_mode);
}

static int read_level(struct sl_pg_delta *d, DIR *dir, struct level *level, struct sl_err *err)
{
    char folder[SL_PATH_MAX];
    memcpy(folder, d->path, level->path_bytes);
    folder[level->path_bytes ? level->path_bytes - 1 : 0] = '\0';
    const struct dirent *entry;
    while ((errno = 0, entry = readdir(dir))) {
        const char *name = entry->d_name;
        if (!strcmp(name, ".") || !strcmp(name, "..") || is_left_alone(d, folder, name))
            continue;
        bool ok = sl_pg_names_add(&level->names, name, "");
        if (ok && is_entered(dirfd(dir), folder, name))
            ok = sl_pg_names_add(&level->names, name, "/");
        if (!ok)
            return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    }
    if (errno)
        return sl_err_sys(err, SL_ERR_READ, errno, "could not read folder \"%s\"", folder);
    sl_pg_names_sort(&level->names);
    return 0;
}

/* Enters the folder in d->path, which ends in '/'; one that is gone by now is nothing. */
static int enter(struct sl_pg_delta *d, size_t path_bytes, struct sl_err *err)
{
    if (d->depth == LEVELS_MAX)
        return sl_err_set(err, SL_ERR_LIMIT, "folders are nested too deep at \"%s\"", d->path);
    int fd = openat(d->root_fd, path_bytes ? d->path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir)
        return sl_err_sys(err, SL_ERR_OPEN, errno, "could not open folder \"%s\"", d->path);
    struct level *level = &d->levels[d->depth++];
    *level = (struct level){.path_bytes = path_bytes};
    int rc = read_level(d, dir, level, err);
    closedir(dir);
    return rc;
}

/* Has the next existing path in hand: 1, or 0 at the end, or a code. */
static int peek(struct sl_pg_delta *d, struct sl_err *err)
{
    while (!d->holds && d->depth) {
        struct level *level = &d->levels[d->depth - 1];
        if (level->next == level->names.count) {
            sl_pg_names_free(&level->names);
            d->depth--;
            continue;
        }
        const char *name = sl_pg_names_at(&level->names, level->next++);
        size_t bytes = strlen(name);
        if (level->path_bytes + bytes >= sizeof d->path - 1)
            return sl_err_set(err, SL_ERR_LIMIT, "a path below \"%s\" is too long", d->path);
        memcpy(d->path + level->path_bytes, name, bytes + 1);
        if (name[bytes - 1] != '/') {
            d->holds = true;
            break;
        }
        int rc = enter(d, level->path_bytes + bytes, err);
        if (rc)
            return rc;
    }
    return d->holds;
}

/* Removes what comes before `path` (NULL: all that is left); 1 when `path` itself is there. */
static int remove_before(struct sl_pg_delta *d, const char *path, struct sl_err *err)
{
    int rc;
    while ((rc = peek(d, err)) == 1) {
        int order = path ? strcmp(d->path, path) : -1;
        if (order > 0)
            return 0;
        d->holds = false;
        if (!order)
            return 1;
        if (sl_pg_signals_caught())
            return sl_err_set(err, SL_ERR_CANCELLED, "cancelled");
        rc = remove_path(d, d->path, err);
        if (rc)
            return rc;
    }
    return rc;
}

int sl_pg_delta_begin(struct sl_pg_restore *r, struct sl_err *err)
{
    struct sl_pg_delta *d = sl_calloc(1, sizeof *d);
    if (!d)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    r->delta = d;
    d->root_fd = r->root_fd;
    json_int_t catalog = json_integer_value(json_object_get(r->info.json, "catalog_version"));
    snprintf(d->version_folder, sizeof d->version_folder, "PG_%s_%lld", r->info.pg_version,
             (long long)catalog);
    if (unlinkat(r->root_fd, SL_PG_CONTROL_PATH, 0) && errno != ENOENT)
        return fail_remove(err, SL_PG_CONTROL_PATH);
    int fd = openat(r->root_fd, "global", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int failed = fd >= 0 && fsync(fd) ? errno : 0;
    if (fd >= 0)
        close(fd);
    if (!failed && fsync(r->root_fd))
        failed = errno;
    if (failed)
        return sl_err_sys(err, SL_ERR_SYNC, failed, "could not sync \"%s\"", r->data_folder);
    return enter(d, 0, err);
}

void sl_pg_delta_free(struct sl_pg_restore *r)
{
    if (!r->delta)
        return;
    while (r->delta->depth)
        sl_pg_names_free(&r->delta->levels[--r->delta->depth].names);
    sl_free(r->delta);
    r->delta = NULL;
}

/* --- one entry ---------------------------------------------------------------------------------
 */

static bool fits(const struct sl_pg_restore *r, const struct sl_manifest_entry *e,
                 const char *tablespace)
{
    struct stat st;
    char link[SL_PATH_MAX];
    if (fstatat(r->root_fd, e->path, &st, AT_SYMLINK_NOFOLLOW))
        return false;
    if (e->kind == SL_ENTRY_FOLDER && S_ISLNK(st.st_mode) && !strcmp(e->path, "pg_wal"))
        return !fstatat(r->root_fd, e->path, &st, 0) && S_ISDIR(st.st_mode);
    if (e->kind == SL_ENTRY_FOLDER)
        return S_ISDIR(st.st_mode);
    if (e->kind == SL_ENTRY_FILE)
        return S_ISREG(st.st_mode) && (uint64_t)st.st_size == e->size &&
               e->flags & SL_ENTRY_HAS_CRC32C;
    ssize_t n = tablespace ? readlinkat(r->root_fd, e->path, link, sizeof link - 1) : -1;
    if (n < 0)
        return false;
    link[n] = '\0';
    return !strcmp(link, tablespace);
}

int sl_pg_delta_entry(struct sl_pg_restore *r, const struct sl_manifest_entry *entry,
                      const char *tablespace, struct sl_err *err)
{
    int rc = remove_before(r->delta, entry->path, err);
    if (rc <= 0)
        return rc;
    if (fits(r, entry, tablespace))
        return 1;
    return remove_path(r->delta, entry->path, err);
}

int sl_pg_delta_end(struct sl_pg_restore *r, struct sl_err *err)
{
    return r->delta ? remove_before(r->delta, NULL, err) : 0;
}

/* --- the comparison ----------------------------------------------------------------------------
 */

/* 1 the same content, 0 not, or a code. */
static int compare_file(struct sl_pg_restore *r, const struct sl_pg_planned *planned, int fd,
                        uint8_t *buffer, struct sl_err *err)
{
    uint64_t done = 0;
    uint32_t crc = 0;
    for (;;) {
        int fault = sl_fault("pg.restore_compare");
        ssize_t n = fault ? -1 : pread(fd, buffer, READ_BYTES, (off_t)done);
        if (n < 0 && !fault && errno == EINTR)
            continue;
        if (n < 0) /* a bad block on the disk: the file is written anew */
            return sl_log(SL_LOG_WARN, "postgres", "could not read \"%s\": it is restored",
                          planned->path),
                   0;
        if (!n)
            break;
        crc = sl_crc32c(crc, buffer, (size_t)n);
        done += (uint64_t)n;
        if (sl_pg_signals_caught() || atomic_load(&r->stop))
            return sl_err_set(err, SL_ERR_CANCELLED, "cancelled");
    }
    return done == planned->size && crc == planned->crc32c;
}

static int empty_again(const struct sl_pg_planned *planned, int fd, struct sl_err *err)
{
    /* holes are not written: what was there must not shine through */
    if (ftruncate(fd, 0) || ftruncate(fd, (off_t)planned->size))
        return sl_err_sys(err, SL_ERR_WRITE, errno, "could not truncate \"%s\"", planned->path);
    return 0;
}

static int judge(struct sl_pg_restore *r, const struct sl_pg_planned *planned, uint8_t *buffer,
                 struct sl_err *err)
{
    int fd = sl_pg_restore_open(r, planned->path, O_RDWR, err);
    if (fd < 0)
        return fd;
    int rc = compare_file(r, planned, fd, buffer, err);
    if (!rc)
        rc = empty_again(planned, fd, err);
    else if (rc == 1) {
        rc = sl_pg_plan_drop(r->plan, planned->id, err);
        atomic_fetch_add(&r->kept, 1);
        if (planned->size)
            sl_progress_add(r->invocation->progress, planned->size, 1);
    }
    close(fd);
    return rc;
}

static int judge_some(struct sl_pg_restore *r, struct sl_err *err)
{
    struct sl_pg_planned *planned = sl_alloc(sizeof *planned);
    uint8_t *buffer = sl_alloc(READ_BYTES);
    int rc = planned && buffer ? 0 : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    while (!rc && (rc = sl_pg_plan_next_path(r->plan, planned, err)) == 1) {
        rc = planned->present ? judge(r, planned, buffer, err) : 0;
        if (!rc)
            rc = sl_pg_restore_stay(r, err);
        if (atomic_load(&r->stop))
            break;
    }
    sl_free(buffer);
    sl_free(planned);
    return rc;
}

int sl_pg_delta_compare(struct sl_pg_restore *r, unsigned jobs, struct sl_err *err)
{
    if (!r->delta)
        return 0;
    sl_pg_plan_rewind(r->plan);
    return sl_pg_restore_parallel(r, jobs, judge_some, err);
}
