/* Listing folders: names in bytewise order, temporaries left out. */
#include "core/store/posix_internal.h"

#include "core/base/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Names one after the other, each with its NUL. */
struct arena {
    char *bytes;
    size_t used, room, count;
};

static bool arena_add(struct arena *arena, const char *name)
{
    size_t length = strlen(name) + 1;
    if (arena->room - arena->used < length) {
        size_t room = (arena->room + length) * 2 + 4096;
        char *bytes = sl_realloc(arena->bytes, room);
        if (!bytes)
            return false;
        arena->bytes = bytes;
        arena->room = room;
    }
    memcpy(arena->bytes + arena->used, name, length);
    arena->used += length;
    arena->count++;
    return true;
}

static int read_names(DIR *dir, struct arena *arena, struct sl_err *err)
{
    for (;;) {
        int decided;
        errno = 0;
        if (sl_posix_fault("posix.list", &decided) && decided)
            return sl_err_sys(err, SL_ERR_READ, decided, "could not list a folder");
        const struct dirent *entry = readdir(dir);
        if (!entry)
            return errno ? sl_err_sys(err, SL_ERR_READ, errno, "could not list a folder") : 0;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (!arena_add(arena, entry->d_name))
            return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory listing a folder");
    }
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b); /* strcmp compares unsigned bytes */
}

/* Pointers and bytes in one block, sorted. */
static char **sorted(const struct arena *arena)
{
    size_t head = arena->count * sizeof(char *);
    char **names = sl_alloc(head + arena->used);
    if (!names)
        return NULL;
    char *at = (char *)names + head;
    if (arena->used)
        memcpy(at, arena->bytes, arena->used);
    for (size_t i = 0; i < arena->count; i++) {
        names[i] = at;
        at += strlen(at) + 1;
    }
    if (arena->count)
        qsort(names, arena->count, sizeof *names, compare);
    return names;
}

int sl_posix_names(int folder, char ***ret_names, size_t *ret_count, struct sl_err *err)
{
    int fd = fcntl(folder, F_DUPFD_CLOEXEC, 0); /* closedir() will close it */
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int sys = errno;
        if (fd >= 0)
            close(fd);
        return sl_err_sys(err, SL_ERR_READ, sys, "could not list a folder");
    }
    struct arena arena = {0};
    int rc = read_names(dir, &arena, err);
    closedir(dir);
    char **names = rc ? NULL : sorted(&arena);
    sl_free(arena.bytes);
    if (rc)
        return rc;
    if (!names)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory listing a folder");
    *ret_names = names;
    *ret_count = arena.count;
    return 0;
}

/* 1: look at it, 0: gone or never there, or a code. */
static int examine(int folder, const char *name, struct stat *st, struct sl_err *err)
{
    int decided;
    if (!sl_posix_fault("posix.stat", &decided) &&
        fstatat(folder, name, st, AT_SYMLINK_NOFOLLOW) == 0)
        return 1;
    int sys = decided ? decided : errno;
    if (sys == ENOENT) /* removed since it was listed */
        return 0;
    return sl_err_sys(err, SL_ERR_READ, sys, "could not examine \"%s\"", name);
}

int sl_posix_list(struct sl_store *base, const char *folder,
                  int (*visit)(void *arg, const char *name, bool is_folder, uint64_t length),
                  void *arg, struct sl_err *err)
{
    struct sl_posix *store = sl_posix_of(base);
    int rc = sl_store_name_check(folder, true, err);
    if (rc)
        return rc;
    int fd = sl_posix_folder_open(store, folder, false, err);
    if (fd == SL_ERR_NOT_FOUND)
        return 0;
    if (fd < 0)
        return fd;
    char **names = NULL;
    size_t count = 0;
    rc = sl_posix_names(fd, &names, &count, err);
    for (size_t i = 0; i < count && !rc; i++) {
        struct stat st = {0};
        if (names[i][0] == '.')
            continue;
        rc = examine(fd, names[i], &st, err);
        if (rc != 1)
            continue;
        bool is_folder = S_ISDIR(st.st_mode);
        rc = visit(arg, names[i], is_folder, is_folder ? 0 : (uint64_t)st.st_size);
        if (rc)
            break;
    }
    sl_free(names);
    close(fd);
    return rc;
}
