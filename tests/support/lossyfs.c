/* A file system that keeps only what POSIX promises: in memory, over FUSE.
 *
 * Real file systems sync more than they are asked to (ext4 commits its whole journal with one
 * fsync), so a missing fsync of a folder can go unseen on them. Here a file's bytes survive only
 * by fsync/fdatasync of that file, and a name survives only by fsync of the folder it stands in
 * (fsync(2): "Calling fsync() does not necessarily ensure that the entry in the directory
 * containing the file has also reached disk. For that an explicit fsync() on a file descriptor for
 * the directory is also needed.").
 *
 *   lossyfs [-f] MOUNTPOINT
 *   mkdir MOUNTPOINT/.cut      the power fails: everything that was not synced is gone; from now
 *                              on every call fails with EIO
 *   mkdir MOUNTPOINT/.resume   the power is back
 *   (both answer ECANCELED, which is how one knows that they were understood)
 *
 * It has no O_TMPFILE (FUSE 3.14 has not), so it also tests the store's named temporaries.
 * One thread, no permissions, no times but what stat needs.
 */
#define FUSE_USE_VERSION 314
#include <errno.h>
#include <fuse3/fuse_lowlevel.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct bytes {
    char *data;
    size_t size;
};

struct name {
    char *text;
    fuse_ino_t ino;
};

struct names {
    struct name *list;
    size_t count;
};

struct inode {
    mode_t mode;
    struct bytes visible, durable; /* files */
    struct names seen, kept;       /* folders: names visible and durable */
    struct timespec mtime;
};

static struct inode *inodes; /* by number; 0 is unused, 1 the root */
static size_t inode_count;
static bool dark; /* between .cut and .resume */

static void *must(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

static fuse_ino_t inode_new(mode_t mode)
{
    inodes = must(realloc(inodes, (inode_count + 1) * sizeof *inodes));
    memset(&inodes[inode_count], 0, sizeof *inodes);
    inodes[inode_count].mode = mode;
    clock_gettime(CLOCK_REALTIME, &inodes[inode_count].mtime);
    return inode_count++;
}

static void bytes_copy(struct bytes *to, const struct bytes *from)
{
    free(to->data);
    *to = (struct bytes){must(malloc(from->size + 1)), from->size};
    if (from->size)
        memcpy(to->data, from->data, from->size);
}

static void bytes_resize(struct bytes *b, size_t size)
{
    b->data = must(realloc(b->data, size + 1));
    if (size > b->size)
        memset(b->data + b->size, 0, size - b->size);
    b->size = size;
}

static void names_copy(struct names *to, const struct names *from)
{
    for (size_t i = 0; i < to->count; i++)
        free(to->list[i].text);
    free(to->list);
    to->list = must(malloc((from->count + 1) * sizeof *to->list));
    to->count = from->count;
    for (size_t i = 0; i < from->count; i++)
        to->list[i] = (struct name){must(strdup(from->list[i].text)), from->list[i].ino};
}

static struct name *names_find(struct names *names, const char *text)
{
    for (size_t i = 0; i < names->count; i++)
        if (!strcmp(names->list[i].text, text))
            return &names->list[i];
    return NULL;
}

static void names_add(struct names *names, const char *text, fuse_ino_t ino)
{
    names->list = must(realloc(names->list, (names->count + 1) * sizeof *names->list));
    names->list[names->count++] = (struct name){must(strdup(text)), ino};
}

static void names_drop(struct names *names, struct name *name)
{
    free(name->text);
    *name = names->list[--names->count];
}

static void power_cut(void)
{
    for (size_t i = 1; i < inode_count; i++) {
        bytes_copy(&inodes[i].visible, &inodes[i].durable);
        names_copy(&inodes[i].seen, &inodes[i].kept);
    }
    dark = true;
}

static struct stat stat_of(fuse_ino_t ino)
{
    const struct inode *n = &inodes[ino];
    return (struct stat){.st_ino = ino,
                         .st_mode = n->mode,
                         .st_nlink = S_ISDIR(n->mode) ? 2 : 1,
                         .st_size = (off_t)n->visible.size,
                         .st_blocks = (blkcnt_t)(n->visible.size + 511) / 512,
                         .st_blksize = 4096,
                         .st_mtim = n->mtime,
                         .st_ctim = n->mtime};
}

static struct fuse_entry_param entry_of(fuse_ino_t ino)
{
    return (struct fuse_entry_param){.ino = ino, .attr = stat_of(ino)}; /* time-outs 0: no caches */
}

#define REFUSE_IN_THE_DARK(req)                                                                    \
    if (dark) {                                                                                    \
        fuse_reply_err(req, EIO);                                                                  \
        return;                                                                                    \
    }

static void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    if (parent == 1 && !strcmp(name, ".resume")) { /* mkdir(2) looks the name up first */
        fuse_reply_err(req, ENOENT);
        return;
    }
    REFUSE_IN_THE_DARK(req)
    struct name *found = names_find(&inodes[parent].seen, name);
    if (!found) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    struct fuse_entry_param entry = entry_of(found->ino);
    fuse_reply_entry(req, &entry);
}

static void do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)fi;
    if (dark && ino != 1) { /* the root must stay reachable for .resume */
        fuse_reply_err(req, EIO);
        return;
    }
    struct stat st = stat_of(ino);
    fuse_reply_attr(req, &st, 0);
}

static void do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                       struct fuse_file_info *fi)
{
    (void)fi;
    REFUSE_IN_THE_DARK(req)
    if (to_set & FUSE_SET_ATTR_SIZE)
        bytes_resize(&inodes[ino].visible, (size_t)attr->st_size);
    if (to_set & FUSE_SET_ATTR_MODE)
        inodes[ino].mode = (inodes[ino].mode & S_IFMT) | (attr->st_mode & 07777);
    struct stat st = stat_of(ino);
    fuse_reply_attr(req, &st, 0);
}

static void do_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    if (parent == 1 && !strcmp(name, ".resume")) {
        dark = false;
        fuse_reply_err(req, ECANCELED);
        return;
    }
    REFUSE_IN_THE_DARK(req)
    if (parent == 1 && !strcmp(name, ".cut")) {
        power_cut();
        fuse_reply_err(req, ECANCELED);
        return;
    }
    if (names_find(&inodes[parent].seen, name)) {
        fuse_reply_err(req, EEXIST);
        return;
    }
    fuse_ino_t ino = inode_new(S_IFDIR | (mode & 07777));
    names_add(&inodes[parent].seen, name, ino);
    struct fuse_entry_param entry = entry_of(ino);
    fuse_reply_entry(req, &entry);
}

static void do_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                      struct fuse_file_info *fi)
{
    REFUSE_IN_THE_DARK(req)
    struct name *found = names_find(&inodes[parent].seen, name);
    if (found && fi->flags & O_EXCL) {
        fuse_reply_err(req, EEXIST);
        return;
    }
    fuse_ino_t ino = found ? found->ino : inode_new(S_IFREG | (mode & 07777));
    if (!found)
        names_add(&inodes[parent].seen, name, ino);
    else if (fi->flags & O_TRUNC)
        bytes_resize(&inodes[ino].visible, 0);
    fi->direct_io = 1;
    struct fuse_entry_param entry = entry_of(ino);
    fuse_reply_create(req, &entry, fi);
}

static void do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    REFUSE_IN_THE_DARK(req)
    if (fi->flags & O_TRUNC)
        bytes_resize(&inodes[ino].visible, 0);
    fi->direct_io = 1;
    fuse_reply_open(req, fi);
}

static void do_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
    (void)fi;
    REFUSE_IN_THE_DARK(req)
    const struct bytes *b = &inodes[ino].visible;
    size_t at = (size_t)off < b->size ? (size_t)off : b->size;
    size_t count = b->size - at < size ? b->size - at : size;
    fuse_reply_buf(req, b->data + at, count);
}

static void do_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
                     struct fuse_file_info *fi)
{
    (void)fi;
    REFUSE_IN_THE_DARK(req)
    struct bytes *b = &inodes[ino].visible;
    if ((size_t)off + size > b->size)
        bytes_resize(b, (size_t)off + size);
    memcpy(b->data + off, data, size);
    fuse_reply_write(req, size);
}

static void do_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    (void)fi, (void)datasync;
    REFUSE_IN_THE_DARK(req)
    bytes_copy(&inodes[ino].durable, &inodes[ino].visible);
    fuse_reply_err(req, 0);
}

static void do_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    (void)fi, (void)datasync;
    REFUSE_IN_THE_DARK(req)
    names_copy(&inodes[ino].kept, &inodes[ino].seen);
    fuse_reply_err(req, 0);
}

static void do_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    REFUSE_IN_THE_DARK(req)
    if (names_find(&inodes[parent].seen, name)) {
        fuse_reply_err(req, EEXIST);
        return;
    }
    names_add(&inodes[parent].seen, name, ino);
    struct fuse_entry_param entry = entry_of(ino);
    fuse_reply_entry(req, &entry);
}

static void do_remove(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    REFUSE_IN_THE_DARK(req)
    struct name *found = names_find(&inodes[parent].seen, name);
    if (!found) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    if (S_ISDIR(inodes[found->ino].mode) && inodes[found->ino].seen.count) {
        fuse_reply_err(req, ENOTEMPTY);
        return;
    }
    names_drop(&inodes[parent].seen, found); /* inodes stay: this lives for one test */
    fuse_reply_err(req, 0);
}

static void do_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                       struct fuse_file_info *fi)
{
    (void)fi;
    REFUSE_IN_THE_DARK(req)
    const struct names *names = &inodes[ino].seen;
    char *page = must(malloc(size));
    size_t used = 0;
    for (size_t i = (size_t)off; i < names->count; i++) {
        struct stat st = stat_of(names->list[i].ino);
        size_t need = fuse_add_direntry(req, page + used, size - used, names->list[i].text, &st,
                                        (off_t)i + 1);
        if (need > size - used)
            break;
        used += need;
    }
    fuse_reply_buf(req, page, used);
    free(page);
}

static void do_statfs(fuse_req_t req, fuse_ino_t ino)
{
    (void)ino;
    struct statvfs st = {.f_bsize = 4096,
                         .f_frsize = 4096,
                         .f_blocks = 1u << 20,
                         .f_bfree = 1u << 19,
                         .f_bavail = 1u << 19,
                         .f_files = 1u << 20,
                         .f_ffree = 1u << 19,
                         .f_namemax = 255};
    fuse_reply_statfs(req, &st);
}

static const struct fuse_lowlevel_ops ops = {
    .lookup = do_lookup,
    .getattr = do_getattr,
    .setattr = do_setattr,
    .mkdir = do_mkdir,
    .create = do_create,
    .open = do_open,
    .read = do_read,
    .write = do_write,
    .fsync = do_fsync,
    .fsyncdir = do_fsyncdir,
    .link = do_link,
    .unlink = do_remove,
    .rmdir = do_remove,
    .readdir = do_readdir,
    .statfs = do_statfs,
};

int main(int argc, char **argv)
{
    struct fuse_args args = FUSE_ARGS_INIT(argc, argv);
    struct fuse_cmdline_opts opts;
    inode_new(0);              /* no inode 0 */
    inode_new(S_IFDIR | 0755); /* FUSE_ROOT_ID */
    if (fuse_parse_cmdline(&args, &opts) || !opts.mountpoint) {
        fprintf(stderr, "usage: lossyfs [-f] MOUNTPOINT\n");
        return 2;
    }
    struct fuse_session *session = fuse_session_new(&args, &ops, sizeof ops, NULL);
    if (!session || fuse_set_signal_handlers(session) ||
        fuse_session_mount(session, opts.mountpoint))
        return 1;
    fuse_daemonize(opts.foreground);
    int status = fuse_session_loop(session);
    fuse_session_unmount(session);
    fuse_session_destroy(session);
    return status ? 1 : 0;
}
