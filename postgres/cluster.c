/* The walk over a data directory. A folder's names are sorted with each subfolder in twice, as
 * "name" (the folder itself) and as "name/" (what is in it): so "a", "a.b", "a/x" come in bytewise
 * order of whole paths. Nothing is read but folders; pg_control is left to backup_finish.c. */
#include "postgres/cluster.h"

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/fault.h"
#include "core/base/log.h"
#include "postgres/cluster_rules.h"
#include "postgres/names.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEVELS_MAX 32 /* a data directory has five or six */

struct level {
    int fd;
    size_t path_bytes; /* of the folder in cluster->path, with a '/' after it */
    bool relations;
    struct sl_pg_names names;
    size_t next;
};

struct sl_pg_cluster {
    const char *version_folder;
    size_t depth; /* levels in use */
    struct level levels[LEVELS_MAX];
    char path[SL_PATH_MAX];
    struct sl_pg_item big; /* the file whose pieces are being handed out; length 0: none */
};

static int no_memory(struct sl_err *err)
{
    return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
}

/* --- reading a folder --------------------------------------------------------------------------
 */

/* The folder of the top level as the rules know it: without the last '/'. */
static const char *folder_of(const struct sl_pg_cluster *c, char *to)
{
    size_t bytes = c->levels[c->depth - 1].path_bytes;
    memcpy(to, c->path, bytes);
    to[bytes ? bytes - 1 : 0] = '\0';
    return to;
}

/* A folder, or a link that is taken for one: a tablespace's, pg_wal's, or that of a folder whose
 * contents are not wanted (basebackup.c: convert_link_to_directory). */
static bool is_folder(const struct sl_pg_cluster *c, int fd, const char *folder,
                      const struct dirent *entry, enum sl_pg_rule rule)
{
    (void)c;
    struct stat st;
    bool link = entry->d_type == DT_LNK;
    if (entry->d_type == DT_UNKNOWN) {
        if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW))
            return false;
        link = S_ISLNK(st.st_mode);
        if (!link)
            return S_ISDIR(st.st_mode);
    }
    if (!link)
        return entry->d_type == DT_DIR;
    bool followed = rule == SL_PG_KEEP_EMPTY || !strcmp(folder, "pg_tblspc") ||
                    (!*folder && !strcmp(entry->d_name, "pg_wal"));
    return followed && !fstatat(fd, entry->d_name, &st, 0) && S_ISDIR(st.st_mode);
}

static int take_name(struct sl_pg_cluster *c, struct level *level, const char *folder,
                     const struct dirent *entry, struct sl_err *err)
{
    const char *name = entry->d_name;
    if (!strcmp(name, ".") || !strcmp(name, ".."))
        return 0;
    enum sl_pg_rule rule = sl_pg_rule_of(folder, name, c->version_folder);
    if (rule == SL_PG_SKIP)
        return 0;
    bool ok = sl_pg_names_add(&level->names, name, "");
    if (ok && rule == SL_PG_KEEP && is_folder(c, level->fd, folder, entry, rule))
        ok = sl_pg_names_add(&level->names, name, "/");
    return ok ? 0 : no_memory(err);
}

static int read_names(struct sl_pg_cluster *c, struct level *level, struct sl_err *err)
{
    char folder[SL_PATH_MAX];
    folder_of(c, folder);
    int fd = dup(level->fd);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        int saved = errno;
        if (fd >= 0)
            close(fd);
        return sl_err_sys(err, SL_ERR_READ, saved, "could not read folder \"%s\"", folder);
    }
    int rc = 0;
    const struct dirent *entry;
    while (!rc && (errno = 0, entry = readdir(dir)))
        rc = take_name(c, level, folder, entry, err);
    int fault = sl_fault("pg.readdir");
    if (!rc && (errno || fault))
        rc = sl_err_sys(err, SL_ERR_READ, fault ? fault : errno, "could not read folder \"%s\"",
                        folder);
    closedir(dir);
    sl_pg_names_sort(&level->names);
    level->relations = sl_pg_is_relation_folder(folder);
    return rc;
}

/* Enters the folder whose path (with '/') is in c->path. 0 also when it has vanished. */
static int enter(struct sl_pg_cluster *c, int parent_fd, const char *name, size_t path_bytes,
                 struct sl_err *err)
{
    if (c->depth == LEVELS_MAX)
        return sl_err_set(err, SL_ERR_LIMIT, "folders are nested too deep at \"%s\"", c->path);
    int fault = sl_fault("pg.opendir");
    int fd = fault ? -1 : openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && !fault && errno == ENOENT)
        return 0;
    if (fd < 0)
        return sl_err_sys(err, SL_ERR_OPEN, fault ? fault : errno, "could not open folder \"%s\"",
                          c->path);
    struct level *level = &c->levels[c->depth++];
    *level = (struct level){.fd = fd, .path_bytes = path_bytes};
    return read_names(c, level, err);
}

static void leave(struct sl_pg_cluster *c)
{
    struct level *level = &c->levels[--c->depth];
    close(level->fd);
    sl_pg_names_free(&level->names);
}

/* --- items -------------------------------------------------------------------------------------
 */

/* An unlogged relation is made anew from its init fork, which alone is kept. */
static bool is_unlogged(const struct level *level, const char *name)
{
    bool init;
    size_t digits = level->relations ? sl_pg_relation_digits(name, &init) : 0;
    char wanted[32];
    if (!digits || init)
        return false;
    snprintf(wanted, sizeof wanted, "%.*s_init", (int)digits, name);
    return sl_pg_names_has(&level->names, wanted);
}

static int read_link(const struct level *level, const char *name, struct sl_pg_item *item,
                     struct sl_err *err)
{
    ssize_t n = readlinkat(level->fd, name, item->link, sizeof item->link);
    if (n < 0 && (errno == ENOENT || errno == EINVAL))
        return 0;
    if (n < 0)
        return sl_err_sys(err, SL_ERR_READ, errno, "could not read link \"%s\"", item->path);
    if (!n || (size_t)n >= sizeof item->link)
        return sl_err_set(err, SL_ERR_LIMIT, "the target of link \"%s\" is too long", item->path);
    item->link[n] = '\0';
    item->kind = SL_ENTRY_LINK;
    if (!sl_pg_is_tablespace(item->path))
        sl_log(SL_LOG_WARN, "postgres",
               "\"%s\" is a link: it is stored as one, what it points to is not", item->path);
    return 1;
}

static void fill(struct sl_pg_item *item, const struct stat *st, enum sl_entry_kind kind)
{
    item->kind = kind;
    item->mode = st->st_mode & 07777;
    item->uid = st->st_uid;
    item->gid = st->st_gid;
    item->mtime_ns = (uint64_t)st->st_mtim.tv_sec * SL_NS_PER_S + (uint64_t)st->st_mtim.tv_nsec;
    item->size = kind == SL_ENTRY_FILE ? (uint64_t)st->st_size : 0;
    item->offset = 0;
    item->length = item->size;
    item->whole = true;
    item->link[0] = '\0';
}

/* 1: item is set, 0: nothing to store, or a code. */
static int describe(struct sl_pg_cluster *c, const struct level *level, const char *name,
                    struct sl_pg_item *item, struct sl_err *err)
{
    char folder[SL_PATH_MAX];
    struct stat st;
    if (fstatat(level->fd, name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT
                   ? 0
                   : sl_err_sys(err, SL_ERR_READ, errno, "could not stat \"%s\"", c->path);
    memcpy(item->path, c->path, strlen(c->path) + 1);
    bool as_folder =
        sl_pg_rule_of(folder_of(c, folder), name, c->version_folder) == SL_PG_KEEP_EMPTY ||
        !strcmp(c->path, "pg_wal");
    if (S_ISLNK(st.st_mode) && as_folder && fstatat(level->fd, name, &st, 0))
        return 0;
    if (S_ISDIR(st.st_mode))
        return fill(item, &st, SL_ENTRY_FOLDER), 1;
    if (S_ISREG(st.st_mode))
        return as_folder ? 0 : (fill(item, &st, SL_ENTRY_FILE), 1);
    if (S_ISLNK(st.st_mode))
        return fill(item, &st, SL_ENTRY_LINK), read_link(level, name, item, err);
    sl_log(SL_LOG_DETAIL, "postgres", "\"%s\" is neither file, folder nor link: left out", c->path);
    return 0;
}

/* The next piece of the file in c->big. */
static void next_piece(struct sl_pg_cluster *c, struct sl_pg_item *item)
{
    uint64_t left = c->big.size - c->big.offset;
    c->big.length = left < SL_PG_PIECE_BYTES ? left : SL_PG_PIECE_BYTES;
    *item = c->big;
    c->big.offset += c->big.length;
    if (c->big.offset == c->big.size)
        c->big.length = 0;
}

/* Takes the next name of the top level. 1: an item, 0: none this time, or a code. */
static int step(struct sl_pg_cluster *c, struct sl_pg_item *item, struct sl_err *err)
{
    struct level *level = &c->levels[c->depth - 1];
    if (level->next == level->names.count)
        return leave(c), 0;
    const char *name = sl_pg_names_at(&level->names, level->next++);
    size_t bytes = strlen(name), path_bytes = level->path_bytes + bytes;
    c->path[level->path_bytes] = '\0';
    if (path_bytes >= sizeof c->path - 1)
        return sl_err_set(err, SL_ERR_LIMIT, "a path below \"%s\" is too long", c->path);
    memcpy(c->path + level->path_bytes, name, bytes + 1);
    if (name[bytes - 1] == '/')
        return enter(c, level->fd, name, path_bytes, err);
    if (is_unlogged(level, name))
        return 0;
    int rc = describe(c, level, name, item, err);
    if (rc == 1 && item->size > SL_PG_PIECE_BYTES) {
        item->whole = false;
        c->big = *item;
        next_piece(c, item);
    }
    return rc;
}

int sl_pg_cluster_next(struct sl_pg_cluster *cluster, struct sl_pg_item *item, struct sl_err *err)
{
    int rc = 0;
    if (cluster->big.length) {
        next_piece(cluster, item);
        return 1;
    }
    while (!rc && cluster->depth)
        rc = step(cluster, item, err);
    return rc;
}

int sl_pg_cluster_new(int root_fd, const char *version_folder, struct sl_pg_cluster **ret_cluster,
                      struct sl_err *err)
{
    struct sl_pg_cluster *c = sl_calloc(1, sizeof *c);
    if (!c)
        return no_memory(err);
    c->version_folder = version_folder;
    int rc = enter(c, root_fd, ".", 0, err);
    if (rc) {
        sl_pg_cluster_free(c);
        return rc;
    }
    *ret_cluster = c;
    return 0;
}

void sl_pg_cluster_free(struct sl_pg_cluster *cluster)
{
    if (!cluster)
        return;
    while (cluster->depth)
        leave(cluster);
    sl_free(cluster);
}
