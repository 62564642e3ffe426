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
    int fd = openat(r->root_fd, SL_PG_RESTORE_MARK, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return sl_err_sys(err, SL_ERR_WRITE, errno, "could not write into \"%s\"", r->data_folder);
    dprintf(fd,
            "sluice is restoring backup %s here. While this file exists the restore is not "
            "complete:\nempty the folder and restore again.\n",
            r->info.label);
    close(fd);
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
    int rc = empty_folder(r->data_folder, folder_hint(r), err);
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
    return write_mark(r, err);
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

/* --tablespace-map OID=DIR, else where it was. */
static const char *tablespace_target(const struct sl_pg_restore *r,
                                     const struct sl_manifest_entry *e)
{
    const char *oid = sl_pg_base_name(e->path), **items;
    size_t count = sl_option_list(r->invocation->options, "tablespace-map", &items);
    for (size_t i = 0; i < count; i++)
        if (!strncmp(items[i], oid, strlen(oid)) && items[i][strlen(oid)] == '=')
            return items[i] + strlen(oid) + 1;
    return e->link;
}

static int make_tablespace(const struct sl_pg_restore *r, const struct sl_manifest_entry *e,
                           struct sl_err *err)
{
    const char *target = tablespace_target(r, e);
    if (target[0] != '/')
        return sl_err_set(err, SL_ERR_USAGE, "tablespace folder \"%s\" is not an absolute path",
                          target);
    int rc = empty_folder(target,
                          "choose another folder with --tablespace-map=OID=DIR, or empty it", err);
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

int sl_pg_restore_entry(struct sl_pg_restore *r, const struct sl_manifest_entry *entry,
                        struct sl_err *err)
{
    int rc = 0;
    switch (entry->kind) {
    case SL_ENTRY_FOLDER:
        rc = make_folder(r, entry, err);
        break;
    case SL_ENTRY_LINK:
        if (sl_pg_is_tablespace(entry->path))
            rc = make_tablespace(r, entry, err);
        break;
    default:
        if (!strcmp(entry->path, SL_PG_CONTROL_PATH))
            return keep_control(r, entry, err);
        rc = make_file(r, entry, err);
        atomic_fetch_add(&r->files, 1);
        if (!entry->size)
            sl_progress_add(r->invocation->progress, 0, 1);
    }
    return rc ? rc : sl_pg_plan_add(r->plan, entry, err);
}
