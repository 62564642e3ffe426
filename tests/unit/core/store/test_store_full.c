/* A full disk, for real: a small tmpfs in a mount namespace of our own, with every number of free
 * pages, and of free inodes, from none to enough. Skips (77), loudly, where it may not mount. */
#include "store_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE  (256u * 1024)
#define PAGE  4096u
#define PAGES 24u /* content of one object here */

static char mount_point[] = "/tmp/sluice-full-XXXXXX";
static const char *fault_rules;

static void write_proc(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
    if (fd >= 0)
        close(fd);
}

/* A mount namespace; as an ordinary user within a user namespace. */
static bool enter_namespace(void)
{
    uid_t uid = getuid();
    gid_t gid = getgid();
    if (unshare(CLONE_NEWNS) != 0) {
        char map[64];
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
            return false;
        snprintf(map, sizeof map, "%u %u 1", uid, uid);
        write_proc("/proc/self/uid_map", map);
        write_proc("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "%u %u 1", gid, gid);
        write_proc("/proc/self/gid_map", map);
    }
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static void mount_small(const char *options)
{
    char whole[128];
    snprintf(whole, sizeof whole, "size=%u%s", SIZE, options);
    assert_int_equal(mount("tmpfs", mount_point, "tmpfs", 0, whole), 0);
}

/* Take space until `pages` are left. */
static void leave_pages(unsigned pages)
{
    char path[64];
    snprintf(path, sizeof path, "%s/.ballast", mount_point);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    static const char page[PAGE] = {1};
    unsigned taken = 0;
    while (write(fd, page, PAGE) == PAGE)
        taken++;
    assert_int_equal(errno, ENOSPC);
    assert_true(taken >= pages);
    assert_int_equal(ftruncate(fd, (off_t)(taken - pages) * PAGE), 0);
    close(fd);
}

static void drop_ballast(void)
{
    char path[64];
    snprintf(path, sizeof path, "%s/.ballast", mount_point);
    assert_int_equal(unlink(path), 0);
}

/* One object of PAGES pages, written page by page, in new folders. Returns the code. */
static int store_one(struct sl_store *store, struct sl_err *err)
{
    static char page[PAGE] __attribute__((aligned(4096)));
    struct sl_publish item = {.name = "s/new/folder/x"};
    memset(page, 'p', sizeof page);
    int rc = store->ops->create(store, item.name, 0, &item.file, err);
    if (rc)
        return rc;
    for (unsigned i = 0; i < PAGES && !rc; i++)
        rc = store->ops->write(item.file, page, PAGE, (uint64_t)i * PAGE, err);
    if (!rc) {
        rc = store->ops->publish(store, &item, 1);
        *err = item.err;
    }
    store->ops->close(item.file);
    return rc;
}

/* Does it fit into `pages`? If not, the failure is clean, and with space it works. */
static bool try_with_pages(unsigned pages)
{
    struct sl_store *store;
    struct sl_err err = {0};
    mount_small("");
    sl_fault_set(fault_rules);
    assert_code(sl_store_posix_open(mount_point, false, &store, NULL), 0);
    assert_int_equal(put(store, "s/old", "old", NULL), SL_PUBLISH_CREATED);
    leave_pages(pages);
    int rc = store_one(store, &err);
    if (rc) {
        assert_code(rc, SL_ERR_FULL);
        assert_code(err.code, SL_ERR_FULL);
        assert_non_null(strstr(err.msg, "No space left"));
        assert_false(sl_store_poisoned(store));
    }
    assert_code(compare(store, "s/old", "old"), 0);
    drop_ballast();
    if (rc)
        assert_code(store_one(store, &err), 0);
    assert_code(compare(store, "s/old", "old"), 0);
    assert_string_equal(listing(store, "s/new/folder"), "x=98304");
    store->ops->free(store);
    assert_int_equal(umount(mount_point), 0);
    return rc == 0;
}

static void full__any_number_of_free_pages(void **state)
{
    (void)state;
    unsigned pages = 0;
    while (!try_with_pages(pages))
        assert_true(++pages < 2 * PAGES);
    assert_true(pages > PAGES / 2);
}

static void leave_inodes(unsigned inodes)
{
    char path[64];
    for (unsigned i = 0;; i++) {
        snprintf(path, sizeof path, "%s/.fill%u", mount_point, i);
        int fd = creat(path, 0600);
        if (fd < 0)
            break;
        close(fd);
    }
    assert_int_equal(errno, ENOSPC);
    for (unsigned i = 0; i < inodes; i++) {
        snprintf(path, sizeof path, "%s/.fill%u", mount_point, i);
        assert_int_equal(unlink(path), 0);
    }
}

static void full__any_number_of_free_inodes(void **state)
{
    (void)state;
    bool stored = false;
    /* a file (and for named ones a folder) and two folders are wanted */
    for (unsigned inodes = 0; !stored; inodes++) {
        struct sl_store *store;
        struct sl_err err = {0};
        assert_true(inodes < 20);
        mount_small(",nr_inodes=40");
        sl_fault_set(fault_rules);
        assert_code(sl_store_posix_open(mount_point, false, &store, NULL), 0);
        assert_int_equal(put(store, "s/old", "old", NULL), SL_PUBLISH_CREATED);
        leave_inodes(inodes);
        int rc = store_one(store, &err);
        stored = !rc;
        assert_true(!rc || rc == SL_ERR_FULL);
        assert_false(sl_store_poisoned(store));
        assert_code(compare(store, "s/old", "old"), 0);
        for (unsigned i = 20; i < 30; i++) {
            char path[64];
            snprintf(path, sizeof path, "%s/.fill%u", mount_point, i);
            unlink(path);
        }
        if (rc)
            assert_code(store_one(store, &err), 0);
        store->ops->free(store);
        assert_int_equal(umount(mount_point), 0);
    }
}

static int named_setup(void **state)
{
    (void)state;
    fault_rules = "posix.tmpfile:EOPNOTSUPP@1+";
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fault_rules = NULL;
    sl_fault_set(NULL);
    umount2(mount_point, MNT_DETACH);
    return 0;
}

int main(void)
{
    if (!mkdtemp(mount_point))
        return 1;
    if (!enter_namespace() || mount("tmpfs", mount_point, "tmpfs", 0, NULL) != 0) {
        fprintf(stderr, "SKIPPED: may not mount a tmpfs here, so a full disk is NOT tested\n");
        rmdir(mount_point);
        return 77;
    }
    umount(mount_point);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(full__any_number_of_free_pages, teardown),
        cmocka_unit_test_teardown(full__any_number_of_free_inodes, teardown),
        {"full__any_number_of_free_pages (named)", full__any_number_of_free_pages, named_setup,
         teardown, NULL},
        {"full__any_number_of_free_inodes (named)", full__any_number_of_free_inodes, named_setup,
         teardown, NULL},
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(mount_point);
    return failed;
}
