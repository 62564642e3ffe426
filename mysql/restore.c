/* restore: which backup, and the folder. All happens in a folder beside it, DATADIR.sluice-partial,
 * which gets the name at the end: what was not finished cannot be started by mistake. What the
 * tools do is restore_tools.c's. The server is not asked, and not started. */
#include "core/base/alloc.h"
#include "core/cli/backup_folder.h"
#include "mysql/commands.h"
#include "mysql/restore_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- which backup ------------------------------------------------------------------------------
 */

/* The newest that is finished. */
static int choose(struct sl_my_restore *r, char label[SL_LABEL_MAX], struct sl_err *err)
{
    json_t *labels = NULL;
    int found = 0;
    int rc = sl_my_labels(r->repository.client, sl_my_restore_deadline(r), &labels, err);
    for (size_t i = json_array_size(labels); !rc && !found && i-- > 0;) {
        const char *one = json_string_value(json_array_get(labels, i));
        found = sl_my_is_there(r->repository.client, one, sl_my_restore_deadline(r), err);
        rc = found < 0 ? found : 0;
        snprintf(label, SL_LABEL_MAX, "%s", one);
    }
    json_decref(labels);
    return rc ? rc : found ? 0 : sl_err_set(err, SL_ERR_NOT_FOUND, "the stanza has no backup");
}

/* --- folders ------------------------------------------------------------------------------------
 */

static bool is_empty(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry = NULL;
    while (folder && (entry = readdir(folder)) &&
           (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0))
        ;
    if (folder)
        closedir(folder);
    return folder && !entry;
}

static int check_folder(struct sl_my_restore *r, struct sl_err *err)
{
    struct stat st;
    const char *datadir = sl_option_string(r->invocation->options, "datadir");
    if (!datadir)
        return sl_err_set(err, SL_ERR_USAGE, "--datadir is missing: where to restore to");
    size_t length = strlen(datadir);
    while (length > 1 && datadir[length - 1] == '/')
        length--;
    if (length >= sizeof r->datadir)
        return sl_err_set(err, SL_ERR_USAGE, "--datadir is too long");
    memcpy(r->datadir, datadir, length);
    snprintf(r->partial, sizeof r->partial, "%s.sluice-partial", r->datadir);
    if (!lstat(r->datadir, &st) && !(S_ISDIR(st.st_mode) && is_empty(r->datadir)))
        return sl_err_set(err, SL_ERR_NOT_EMPTY, "\"%s\" is not an empty folder", r->datadir);
    return 0;
}

static int make_folder(struct sl_my_restore *r, struct sl_err *err)
{
    if (!mkdir(r->partial, 0700))
        return 0;
    sl_err_sys(err, errno == EEXIST ? SL_ERR_NOT_EMPTY : SL_ERR_OPEN, errno,
               "could not make \"%s\"", r->partial);
    return sl_err_hint(err, "a restore that was broken off may have left it: remove it");
}

static struct stat owner; /* nftw has no argument */

static int give(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return lchown(path, owner.st_uid, owner.st_gid);
}

/* To the owner of the folder that was there, or of the one it is in; only root can. */
static int give_all(const struct sl_my_restore *r, struct sl_err *err)
{
    char parent[sizeof r->datadir];
    if (geteuid() != 0)
        return 0;
    if (stat(r->datadir, &owner)) {
        char *slash;
        snprintf(parent, sizeof parent, "%s", r->datadir);
        slash = strrchr(parent, '/');
        if (slash)
            slash[slash == parent] = '\0';
        if (stat(slash ? parent : ".", &owner))
            return sl_err_sys(err, SL_ERR_OPEN, errno, "could not look at \"%s\"", parent);
    }
    if (nftw(r->partial, give, 32, FTW_PHYS))
        return sl_err_sys(err, SL_ERR_WRITE, errno, "could not give \"%s\" to its owner",
                          r->partial);
    return 0;
}

/* Durable before it has its name. */
static int name_it(const struct sl_my_restore *r, struct sl_err *err)
{
    int fd = open(r->partial, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return sl_err_sys(err, SL_ERR_OPEN, errno, "could not open \"%s\"", r->partial);
    int failed = syncfs(fd);
    if (!failed && rename(r->partial, r->datadir)) {
        close(fd);
        return sl_err_sys(err, SL_ERR_WRITE, errno, "could not rename \"%s\"", r->partial);
    }
    if (!failed)
        failed = syncfs(fd);
    int sys = errno;
    close(fd);
    return failed ? sl_err_sys(err, SL_ERR_SYNC, sys, "could not sync \"%s\"", r->partial) : 0;
}

/* --- the command --------------------------------------------------------------------------------
 */

static int fill(struct sl_my_restore *r, struct sl_err *err)
{
    int rc = make_folder(r, err);
    if (rc)
        return rc;
    rc = sl_my_restore_files(r, err);
    if (!rc)
        rc = give_all(r, err);
    if (!rc)
        rc = name_it(r, err);
    return rc ? sl_err_prefix(err, "not restored, \"%s.sluice-*\" is to be removed", r->datadir)
              : 0;
}

static int restore(struct sl_my_restore *r, bool dry, struct sl_err *err)
{
    char label[SL_LABEL_MAX], lease[SL_NAME_MAX] = "";
    const char *set = sl_option_string(r->invocation->options, "set");
    if (set && !sl_label_valid(set))
        return sl_err_set(err, SL_ERR_USAGE, "\"%.64s\" is not the label of a backup", set);
    snprintf(label, sizeof label, "%s", set ? set : "");
    int rc = set ? 0 : choose(r, label, err);
    if (!rc)
        rc = sl_my_manifest_read(r->repository.client, label, sl_my_restore_deadline(r),
                                 &r->manifest, err);
    if (!rc)
        rc = check_folder(r, err);
    if (rc || dry)
        return rc;
    rc = sl_lease_begin(r->repository.client, label, "restore", sl_my_restore_deadline(r), lease,
                        err);
    if (!rc) {
        rc = fill(r, err);
        sl_lease_end(r->repository.client, lease, sl_my_restore_deadline(r));
    }
    return rc;
}

static void report(const struct sl_my_restore *r, bool dry)
{
    const struct sl_my_manifest *m = &r->manifest;
    json_t *sets = json_array();
    for (size_t i = 0; i < m->count; i++)
        if (!i || strcmp(m->parts[i].label, m->parts[i - 1].label) != 0)
            json_array_append_new(sets, json_string(m->parts[i].label));
    if (!r->invocation->json) {
        printf("backup %s %s to \"%s\"", m->label, dry ? "would be restored" : "is restored",
               r->datadir);
        if (json_array_size(sets) > 1)
            printf(", from %zu backups", json_array_size(sets));
        putchar('\n');
    }
    json_object_set_new(r->invocation->result, "label", json_string(m->label));
    json_object_set_new(r->invocation->result, "references", sets);
    if (dry)
        json_object_set_new(r->invocation->result, "dry_run", json_true());
}

int sl_my_restore(struct sl_invocation *invocation, struct sl_err *err)
{
    struct sl_my_restore *r = sl_calloc(1, sizeof *r);
    if (!r)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    r->invocation = invocation;
    r->timeout_ms = (unsigned)sl_option_int(invocation->options, "timeout");
    bool dry = sl_option_bool(invocation->options, "dry-run");
    int rc =
        sl_my_repository_open(invocation, false, sl_my_restore_deadline(r), &r->repository, err);
    if (!rc) {
        rc = restore(r, dry, err);
        sl_my_repository_close(&r->repository);
    }
    if (!rc)
        report(r, dry);
    sl_my_manifest_fini(&r->manifest);
    sl_free(r);
    return rc;
}
