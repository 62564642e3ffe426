/* restore: the stream of a backup through mbstream and the tool's --prepare into a data directory.
 * All happens in a folder beside it, DATADIR.sluice-partial, which gets the name at the end: what
 * was not finished cannot be started by mistake. The server is not asked, and not started. */
#include "core/base/alloc.h"
#include "core/base/json.h"
#include "core/base/stop.h"
#include "core/cli/stream.h"
#include "mysql/commands.h"
#include "mysql/repository.h"
#include "mysql/said.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANIFEST_MAX (32u << 20)
#define PREPARE_MS   (7ull * 86400 * 1000) /* as long as the redo log asks for */

struct restore {
    struct sl_invocation *invocation;
    struct sl_my_repository repository;
    char datadir[PATH_MAX - 32], partial[PATH_MAX], label[SL_LABEL_MAX];
    struct sl_manifest_pack pack;
    unsigned packs, timeout_ms;
};

static sl_deadline deadline_of(const struct restore *r)
{
    return sl_deadline_in_ms(r->timeout_ms);
}

/* --- which backup ------------------------------------------------------------------------------
 */

static int take_label(void *arg, const struct sl_entry *entry)
{
    json_t *labels = arg;
    if (!sl_label_valid(entry->name))
        return 0;
    return json_array_append_new(labels, json_string(entry->name)) ? SL_ERR_NO_MEMORY : 0;
}

/* The newest that is finished. */
static int choose(struct restore *r, struct sl_err *err)
{
    struct sl_object_info info;
    char name[SL_NAME_MAX];
    json_t *labels = json_array();
    int rc = labels ? sl_client_list(r->repository.client, "backup", "", take_label, labels,
                                     deadline_of(r), err)
                    : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    for (size_t i = json_array_size(labels); !rc && i-- > 0 && !r->label[0];) {
        const char *label = json_string_value(json_array_get(labels, i));
        snprintf(name, sizeof name, "backup/%s/manifest", label);
        rc = sl_client_stat(r->repository.client, name, deadline_of(r), &info, err);
        if (rc == 1)
            snprintf(r->label, sizeof r->label, "%s", label);
        rc = rc < 0 ? rc : 0;
    }
    json_decref(labels);
    if (!rc && !r->label[0])
        rc = sl_err_set(err, SL_ERR_NOT_FOUND, "the stanza has no backup");
    return rc;
}

static int take_pack(void *arg, const struct sl_manifest_pack *pack)
{
    struct restore *r = arg;
    r->pack = *pack;
    r->packs++;
    return 0;
}

static int read_manifest(struct restore *r, struct sl_err *err)
{
    SL_CLEANUP_FREE char *bytes = NULL;
    size_t count;
    uint64_t entries, total;
    char name[SL_NAME_MAX];
    struct sl_manifest_visitor visitor = {.pack = take_pack, .arg = r};
    struct sl_manifest_reader *reader;
    snprintf(name, sizeof name, "backup/%s/manifest", r->label);
    int rc = sl_client_fetch(r->repository.client, name, MANIFEST_MAX, deadline_of(r), &bytes,
                             &count, err);
    if (!rc)
        rc = sl_manifest_reader_new(&visitor, &reader, err);
    if (rc)
        return rc;
    rc = sl_manifest_feed(reader, bytes, count, err);
    if (!rc)
        rc = sl_manifest_finish(reader, &entries, &total, err);
    sl_manifest_reader_free(reader);
    if (!rc && (r->packs != 1 || entries != 1 || total != r->pack.length))
        rc = sl_err_set(err, SL_ERR_UNSUPPORTED, "backup %s has more than one stream", r->label);
    return rc;
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

static int make_folder(struct restore *r, struct sl_err *err)
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
static int give_all(const struct restore *r, struct sl_err *err)
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
static int name_it(const struct restore *r, struct sl_err *err)
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

/* --- programs -----------------------------------------------------------------------------------
 */

/* Reads what a child says until it closes its standard error. */
static int listen_to(const struct sl_child *child, struct sl_my_said *said, struct sl_err *err)
{
    char text[4096];
    sl_deadline deadline = sl_deadline_in_ms(PREPARE_MS);
    struct pollfd fds[2] = {{.fd = child->err_fd, .events = POLLIN},
                            {.fd = sl_stop_fd(), .events = POLLIN}};
    for (;;) {
        int n = poll(fds, 2, sl_deadline_poll_ms(deadline));
        if (n < 0 && errno != EINTR)
            return sl_err_sys(err, SL_ERR_INTERNAL, errno, "poll failed");
        int rc = sl_stop_check(err);
        if (rc)
            return rc;
        if (sl_deadline_passed(deadline))
            return sl_err_set(err, SL_ERR_TIMEOUT, "\"%s\" does not end", child->name);
        ssize_t count = n > 0 ? read(child->err_fd, text, sizeof text) : -1;
        if (count > 0)
            sl_my_said_take(said, text, (size_t)count);
        if (!count)
            break;
    }
    sl_my_said_end(said);
    return 0;
}

static int extract(struct restore *r, struct sl_err *err)
{
    const char *const words[] = {sl_option_string(r->invocation->options, "my-extract-command"),
                                 "-x", "-C", r->partial, NULL};
    struct sl_child child = {.in_fd = -1, .out_fd = -1, .err_fd = -1};
    int rc = sl_child_start(words, SL_CHILD_IN, &child, err);
    if (rc)
        return rc;
    struct sl_stream_sink sink = {.fd = child.in_fd,
                                  .what = child.name,
                                  .timeout_ms = r->timeout_ms,
                                  .progress = r->invocation->progress};
    rc = sl_stream_write(&sink, r->repository.client, r->pack.name, &r->pack.digest, err);
    close(child.in_fd);
    child.in_fd = -1;
    if (!rc)
        rc = sl_child_wait(&child, sl_deadline_in_ms(PREPARE_MS), err);
    sl_child_kill(&child);
    return rc;
}

static int prepare(struct restore *r, struct sl_err *err)
{
    const char *command = sl_option_string(r->invocation->options, "my-backup-command");
    command += strspn(command, " ");
    SL_CLEANUP_FREE char *tool = sl_strndup(command, strcspn(command, " "));
    SL_CLEANUP_FREE char *target = sl_asprintf("--target-dir=%s", r->partial);
    SL_CLEANUP_FREE struct sl_my_said *said = sl_calloc(1, sizeof *said);
    if (!tool || !target || !said)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    const char *const words[] = {tool, "--prepare", target, NULL};
    struct sl_child child = {.in_fd = -1, .out_fd = -1, .err_fd = -1};
    int rc = sl_child_start(words, SL_CHILD_ERR, &child, err);
    if (rc)
        return rc;
    rc = listen_to(&child, said, err);
    if (!rc)
        rc = sl_child_wait(&child, deadline_of(r), err);
    sl_child_kill(&child);
    return sl_my_said_blame(said, rc ? rc : sl_my_said_done(said, err), err);
}

/* --- the command --------------------------------------------------------------------------------
 */

static int restore(struct restore *r, struct sl_err *err)
{
    const char *set = sl_option_string(r->invocation->options, "set");
    if (set && !sl_label_valid(set))
        return sl_err_set(err, SL_ERR_USAGE, "\"%.64s\" is not the label of a backup", set);
    if (set)
        snprintf(r->label, sizeof r->label, "%s", set);
    int rc = set ? 0 : choose(r, err);
    if (!rc)
        rc = read_manifest(r, err);
    if (!rc)
        rc = make_folder(r, err);
    if (rc)
        return rc;
    rc = extract(r, err);
    if (!rc)
        rc = prepare(r, err);
    if (!rc)
        rc = give_all(r, err);
    if (!rc)
        rc = name_it(r, err);
    return rc ? sl_err_prefix(err, "not restored, \"%s\" is to be removed", r->partial) : 0;
}

int sl_my_restore(struct sl_invocation *invocation, struct sl_err *err)
{
    struct restore *r = sl_calloc(1, sizeof *r);
    if (!r)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    r->invocation = invocation;
    r->timeout_ms = (unsigned)sl_option_int(invocation->options, "timeout");
    int rc = sl_option_bool(invocation->options, "dry-run")
                 ? sl_err_set(err, SL_ERR_USAGE, "restore has no --dry-run yet")
                 : sl_my_repository_open(invocation, false, deadline_of(r), &r->repository, err);
    if (!rc) {
        rc = restore(r, err);
        sl_my_repository_close(&r->repository);
    }
    if (!rc && !invocation->json)
        printf("backup %s is restored to \"%s\"\n", r->label, r->datadir);
    if (!rc)
        json_object_set_new(invocation->result, "label", json_string(r->label));
    sl_free(r);
    return rc;
}
