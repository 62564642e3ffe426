/* See store_fixture.h. */
#include "store_fixture.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

struct store_fixture *fixture_open(const char *base)
{
    struct store_fixture *f = calloc(1, sizeof *f);
    struct sl_err err;
    snprintf(f->path, sizeof f->path, "%s/sluice-store-XXXXXX", base);
    assert_non_null(mkdtemp(f->path));
    if (sl_store_posix_open(f->path, false, &f->store, &err) != 0)
        fail_msg("%s", err.msg);
    return f;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st, (void)type, (void)walk;
    return remove(path);
}

void fixture_close(struct store_fixture *f)
{
    f->store->ops->free(f->store);
    nftw(f->path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    free(f);
}

void fixture_reopen(struct store_fixture *f)
{
    f->store->ops->free(f->store);
    assert_code(sl_store_posix_open(f->path, false, &f->store, NULL), 0);
}

int fixture_setup(void **state)
{
    sl_fault_set(NULL);
    *state = fixture_open("/tmp");
    return 0;
}

int fixture_setup_in_memory(void **state)
{
    sl_fault_set(NULL);
    *state = fixture_open(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    return 0;
}

int fixture_teardown(void **state)
{
    sl_fault_set(NULL);
    sl_store_posix_force_threads(false);
    fixture_close(*state);
    return 0;
}

struct sl_file *draft(struct sl_store *store, const char *text)
{
    struct sl_file *file;
    struct sl_err err;
    if (store->ops->create(store, "draft", 0, &file, &err) != 0 ||
        store->ops->write(file, text, strlen(text), 0, &err) != 0)
        fail_msg("%s", err.msg);
    return file;
}

enum sl_publish_result put(struct sl_store *store, const char *name, const char *text,
                           struct sl_err *err)
{
    struct sl_publish item = {.name = name};
    struct sl_err own;
    int rc = store->ops->create(store, name, strlen(text), &item.file, &own);
    if (rc) {
        if (err)
            *err = own;
        return SL_PUBLISH_FAILED;
    }
    rc = store->ops->write(item.file, text, strlen(text), 0, &own);
    if (!rc) {
        rc = store->ops->publish(store, &item, 1);
        own = item.err;
        assert_true(!rc == (item.result != SL_PUBLISH_FAILED));
    }
    store->ops->close(item.file);
    if (rc && err)
        *err = own;
    return rc ? SL_PUBLISH_FAILED : item.result;
}

int compare(struct sl_store *store, const char *name, const char *text)
{
    struct sl_file *file;
    uint64_t length;
    int rc = store->ops->open(store, name, &file, &length, NULL);
    if (rc)
        return rc;
    char *bytes = malloc((size_t)length + 1);
    rc = store->ops->read(file, bytes, (size_t)length, 0, NULL);
    if (!rc && (length != strlen(text) || memcmp(bytes, text, (size_t)length) != 0))
        rc = SL_ERR_CHECKSUM;
    free(bytes);
    store->ops->close(file);
    return rc;
}

static int list_one(void *arg, const char *name, bool is_folder, uint64_t length)
{
    char *text = arg;
    size_t used = strlen(text);
    if (is_folder)
        snprintf(text + used, 4096 - used, "%s%s/", used ? " " : "", name);
    else
        snprintf(text + used, 4096 - used, "%s%s=%llu", used ? " " : "", name,
                 (unsigned long long)length);
    return 0;
}

const char *listing(struct sl_store *store, const char *folder)
{
    static char text[4096];
    struct sl_err err;
    text[0] = '\0';
    if (store->ops->list(store, folder, list_one, text, &err) != 0)
        fail_msg("%s", err.msg);
    return text;
}

size_t temporaries(const struct store_fixture *f)
{
    char path[160];
    snprintf(path, sizeof path, "%s/.tmp", f->path);
    DIR *dir = opendir(path);
    size_t count = 0;
    for (const struct dirent *e; dir && (e = readdir(dir));)
        count += strncmp(e->d_name, ".tmp-", 5) == 0;
    if (dir)
        closedir(dir);
    return count;
}
