/* The folder of a restore, and what is made in it before bytes come. Nothing is followed that the
 * manifest could have made: links but those of tablespaces are made last, and files are created
 * exclusively in what was an empty folder. */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/log.h"
#include "postgres/cluster_rules.h"
#include "postgres/data_folder.h"
#include "postgres/restore_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- the folder --------------------------------------------------------------------------------
 */

/* 1 empty, 0 not, or a code. "lost+found" of a file system's root does not count. */
static int is_empty(const char *path, struct sl_err *err)
{
    DIR *dir = opendir(path);
    if (!dir)
        return sl_err_sys(err, SL_ERR_OPEN, errno, "could not open folder \"%s\"", path);
    const struct dirent *entry;
    bool empty = true;
    while (empty && (entry = readdir(dir)))
        empty = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
                !strcmp(entry->d_name, "lost+found");
    closedir(dir);
    return empty;
}

static int make_folders(const char *path, struct sl_err *err)
{
    SL_CLEANUP_FREE char *copy = sl_strdup(path);
    if (!copy)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    for (char *at = copy + 1;; at++) {
        if (*at && *at != '/')
            continue;
        char saved = *at;
        *at = '\0';
        if (mkdir(copy, 0700) && errno != EEXIST)
            return sl_err_sys(err, SL_ERR_WRITE, errno, "could not make folder \"%s\"", copy);
        *at = saved;
        if (!saved)
            return 0;
    }
}

int sl_pg_restore_is_free(const char *path, struct sl_err *err)
{
    struct stat st;
    return stat(path, &st) && errno == ENOENT ? 1 : is_empty(path, err);
}

/* Makes the folder or finds it empty. */
static int empty_folder(const char *path, const char *hint, struct sl_err *err)
{
    int rc = make_folders(path, err);
    if (!rc)
        rc = is_empty(path, err);
    if (rc < 0)
        return rc;
    if (rc == 1)
        return 0;
    sl_err_set(err, SL_ERR_NOT_EMPTY, "folder \"%s\" is not empty", path);
    sl_err_hint(err, "%s", hint);
    return SL_ERR_NOT_EMPTY;
}

static const char *folder_hint(const struct sl_pg_restore *r)
{
    SL_CLEANUP_FREE char *mark = sl_asprintf("%s/%s", r->data_folder, SL_PG_RESTORE_MARK);
    return mark && !access(mark, F_OK)
               ? "an earlier restore into it was interrupted: empty the folder (and those of its "
                 "tablespaces) and restore again"
               : "restore into an empty folder, or empty this one first";
}

static int write_mark(const struct sl_pg_restore *r, struct sl_err *err)
{
    int fd = openat(r->root_fd, SL_PG_RESTORE_MARK,
                    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return sl_err_sys(err, SL_ERR_WRITE, errno, "could not write into \"%s\"", r->data_folder);
    dprintf(fd,
            "sluice is restoring backup %s here. While this file exists the restore is not "
            "complete:\nempty the folder and restore again.\n",
            r->info.label);
    close(fd);
    return 0;
}

/* All of them, before anything is touched: a delta restore that stops at one has lost the links by
 * which it would know the others. */
static int check_tablespaces(const struct sl_pg_restore *r, struct sl_err *err)
{
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(r->info.json, "tablespaces"), i, one)
    {
        char path[64];
        const char *oid = json_string_value(json_object_get(one, "oid"));
        const char *link = json_string_value(json_object_get(one, "path"));
        snprintf(path, sizeof path, "pg_tblspc/%.40s", oid ? oid : "");
        int rc = oid && link
                     ? sl_pg_restore_may_lead(r, path, sl_pg_restore_tablespace(r, path, link), err)
                     : 0;
        if (rc)
            return rc;
    }
    return 0;
}

int sl_pg_restore_claim(struct sl_pg_restore *r, struct sl_err *err)
{
    long pid = sl_pg_postmaster(r->data_folder);
    if (pid) {
        sl_err_set(err, SL_ERR_PG_RUNNING, "a server (process %ld) is running in \"%s\"", pid,
                   r->data_folder);
        sl_err_hint(err, "stop it, or restore into another folder");
        return SL_ERR_PG_RUNNING;
    }
    bool delta = sl_option_bool(r->invocation->options, "delta") &&
                 !sl_pg_restore_is_free(r->data_folder, NULL);
    int rc = delta ? sl_pg_delta_check(r, err) : empty_folder(r->data_folder, folder_hint(r), err);
    if (!rc)
        rc = check_tablespaces(r, err);
    if (rc)
        return rc;
    r->root_fd = open(r->data_folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    if (r->root_fd < 0 || fstat(r->root_fd, &st))
        return sl_err_sys(err, SL_ERR_OPEN, errno, "could not open \"%s\"", r->data_folder);
    /* miscinit.c: checkDataDir() wants 0700 or 0750 */
    if ((st.st_mode & 027) && fchmod(r->root_fd, 0700))
        return sl_err_sys(err, SL_ERR_WRITE, errno, "could not set the mode of \"%s\"",
                          r->data_folder);
    rc = write_mark(r, err);
    return rc || !delta ? rc : sl_pg_delta_begin(r, err);
}

/* --- entries -----------------------------------------------------------------------------------
 */

static int set_owner(const struct sl_pg_restore *r, const struct sl_manifest_entry *e, int fd,
                     struct sl_err *err)
{
    if (r->as_root && fchown(fd, e->uid, e->gid))
        return sl_err_sys(err, SL_ERR_WRITE, errno, "could not set the owner of \"%s\"", e->path);
    /* no more than permission bits: nothing in a data directory is setuid */
    if (fchmod(fd, e->mode & 0777))
        return sl_err_sys(err, SL_ERR_WRITE, errno, "could not set the mode of \"%s\"", e->path);
    return 0;
}

static int make_folder(const struct sl_pg_restore *r, const struct sl_manifest_entry *e,
                       struct sl_err *err)
{
    int fault = sl_fault("pg.restore_mkdir");
    if (fault || mkdirat(r->root_fd, e->path, 0700))
        return sl_err_sys(err, SL_ERR_WRITE, fault ? fault : errno, "could not make folder \"%s\"",
                          e->path);
    int fd = openat(r->root_fd, e->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return sl_err_sys(err, SL_ERR_OPEN, errno, "could not open folder \"%s\"", e->path);
    int rc = set_owner(r, e, fd, err);
    close(fd);
    return rc;
}

static int make_file(const struct sl_pg_restore *r, const struct sl_manifest_entry *e,
                     struct sl_err *err)
{
    int fault = sl_fault("pg.restore_create");
    int fd = fault ? -1
                   : openat(r->root_fd, e->path,
                            O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return sl_err_sys(err, SL_ERR_WRITE, fault ? fault : errno, "could not create \"%s\"",
                          e->path);
    int rc = e->size && ftruncate(fd, (off_t)e->size)
                 ? sl_err_sys(err, SL_ERR_WRITE, errno, "could not set the size of \"%s\"", e->path)
                 : set_owner(r, e, fd, err);
    close(fd);
    return rc;
}

int sl_pg_restore_map_read(struct sl_pg_restore *r, struct sl_err *err)
{
    const char **items;
    size_t count = sl_option_list(r->invocation->options, "tablespace-map", &items);
    for (size_t i = 0; i < count; i++) {
        size_t digits = strspn(items[i], "0123456789");
        if (!digits || items[i][digits] != '=' || items[i][digits + 1] != '/')
            return sl_err_set(err, SL_ERR_USAGE,
                              "--tablespace-map=%.80s: it is OID=DIR, with an absolute path",
                              items[i]);
    }
    r->map_used = sl_calloc(count + 1, sizeof *r->map_used);
    return r->map_used ? 0 : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
}

int sl_pg_restore_map_end(const struct sl_pg_restore *r, struct sl_err *err)
{
    const char **items;
    size_t count = sl_option_list(r->invocation->options, "tablespace-map", &items);
    for (size_t i = 0; i < count; i++) {
        if (r->map_used[i])
            continue;
        sl_err_set(err, SL_ERR_USAGE, "--tablespace-map=%.80s: backup %s has no such tablespace",
                   items[i], r->info.label);
        return sl_err_hint(err, "restore --dry-run lists the tablespaces and where they go");
    }
    return 0;
}

const char *sl_pg_restore_tablespace(const struct sl_pg_restore *r, const char *path,
                                     const char *link)
{
    const char *oid = sl_pg_base_name(path), **items;
    size_t count = sl_option_list(r->invocation->options, "tablespace-map", &items);
    for (size_t i = 0; i < count; i++) {
        if (strncmp(items[i], oid, strlen(oid)) != 0 || items[i][strlen(oid)] != '=')
            continue;
        r->map_used[i] = true;
        return items[i] + strlen(oid) + 1;
    }
    return link;
}

#define TABLESPACE_HINT "choose another folder with --tablespace-map=OID=DIR, or empty it"

int sl_pg_restore_may_lead(const struct sl_pg_restore *r, const char *path, const char *target,
                           struct sl_err *err)
{
    char link[SL_PATH_MAX];
    SL_CLEANUP_FREE char *whole = sl_asprintf("%s/%s", r->data_folder, path);
    if (!whole)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    bool delta = sl_option_bool(r->invocation->options, "delta");
    ssize_t n = delta ? readlink(whole, link, sizeof link - 1) : -1;
    if (n >= 0)
        link[n] = '\0';
    if (n >= 0 && !strcmp(link, target))
        return 0;
    int rc = sl_pg_restore_is_free(target, err);
    if (rc)
        return rc < 0 ? rc : 0;
    sl_err_set(err, SL_ERR_NOT_EMPTY, "folder \"%s\" is not empty", target);
    sl_err_hint(err, TABLESPACE_HINT);
    return SL_ERR_NOT_EMPTY;
}

static int make_tablespace(const struct sl_pg_restore *r, const struct sl_manifest_entry *e,
                           const char *target, struct sl_err *err)
{
    if (target[0] != '/')
        return sl_err_set(err, SL_ERR_USAGE, "tablespace folder \"%s\" is not an absolute path",
                          target);
    int rc = empty_folder(target, TABLESPACE_HINT, err);
    if (rc)
        return rc;
    if (r->as_root && chown(target, e->uid, e->gid))
        return sl_err_sys(err, SL_ERR_WRITE, errno, "could not set the owner of \"%s\"", target);
    if (symlinkat(target, r->root_fd, e->path))
        return sl_err_sys(err, SL_ERR_WRITE, errno, "could not make link \"%s\"", e->path);
    return 0;
}

static int keep_control(struct sl_pg_restore *r, const struct sl_manifest_entry *e,
                        struct sl_err *err)
{
    r->control = *e;
    r->control.extent_room = 0;
    r->control.extents = sl_alloc(e->extent_count * sizeof *e->extents + 1);
    if (!r->control.extents)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    memcpy(r->control.extents, e->extents, e->extent_count * sizeof *e->extents);
    return 0;
}

/* What a delta restore leaves where it is: it only gets owner and mode. */
static int keep_present(const struct sl_pg_restore *r, const struct sl_manifest_entry *e,
                        struct sl_err *err)
{
    if (e->kind == SL_ENTRY_LINK)
        return 0;
    bool file = e->kind == SL_ENTRY_FILE;
    int fd = sl_pg_restore_open(r, e->path, file ? O_RDONLY : O_RDONLY | O_DIRECTORY, err);
    if (fd < 0)
        return fd;
    int rc = set_owner(r, e, fd, err);
    close(fd);
    return rc;
}

int sl_pg_restore_open(const struct sl_pg_restore *r, const char *path, int flags,
                       struct sl_err *err)
{
    /* pg_wal may be a link to a folder; files are never links */
    int all = flags | O_CLOEXEC | (flags & O_DIRECTORY ? 0 : O_NOFOLLOW);
    int fault = sl_fault("pg.restore_open");
    int fd = fault ? -1 : openat(r->root_fd, path, all);
    struct stat st;
    if (fd < 0 && !fault && errno == EACCES && !fstatat(r->root_fd, path, &st, 0) &&
        !fchmodat(r->root_fd, path, 0700, 0)) {
        fd = openat(r->root_fd, path, all);
        int saved = errno;
        if (fchmodat(r->root_fd, path, st.st_mode & 0777, 0) && fd >= 0) {
            saved = errno;
            close(fd);
            fd = -1;
        }
        errno = saved;
    }
    if (fd < 0)
        return sl_err_sys(err, SL_ERR_OPEN, fault ? fault : errno, "could not open \"%s\"", path);
    return fd;
}

static int make_new(struct sl_pg_restore *r, const struct sl_manifest_entry *entry,
                    const char *tablespace, struct sl_err *err)
{
    if (entry->kind == SL_ENTRY_FOLDER)
        return make_folder(r, entry, err);
    if (entry->kind == SL_ENTRY_FILE)
        return make_file(r, entry, err);
    return tablespace ? make_tablespace(r, entry, tablespace, err) : 0;
}

int sl_pg_restore_entry(struct sl_pg_restore *r, const struct sl_manifest_entry *entry,
                        struct sl_err *err)
{
    const char *tablespace = entry->kind == SL_ENTRY_LINK && sl_pg_is_tablespace(entry->path)
                                 ? sl_pg_restore_tablespace(r, entry->path, entry->link)
                                 : NULL;
    int present = r->delta ? sl_pg_delta_entry(r, entry, tablespace, err) : 0;
    if (present < 0)
        return present;
    bool file = entry->kind == SL_ENTRY_FILE;
    if (file && !strcmp(entry->path, SL_PG_CONTROL_PATH))
        return keep_control(r, entry, err);
    int rc = present ? keep_present(r, entry, err) : make_new(r, entry, tablespace, err);
    if (file)
        atomic_fetch_add(&r->files, 1);
    if (file && !entry->size)
        sl_progress_add(r->invocation->progress, 0, 1);
    if (rc)
        return rc;
    return file && present ? sl_pg_plan_add_present(r->plan, entry, err)
                           : sl_pg_plan_add(r->plan, entry, err);
}
