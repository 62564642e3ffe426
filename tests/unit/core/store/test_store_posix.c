/* The posix store but for publication and queues: files, listings, temporaries, O_DIRECT. */
#include "store_fixture.h"

#include "core/base/alloc.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void open__not_there__fails_with_hint(void **state)
{
    struct store_fixture *f = *state;
    char path[160];
    struct sl_store *store;
    struct sl_err err;
    snprintf(path, sizeof path, "%s/no/such", f->path);
    assert_code(sl_store_posix_open(path, false, &store, &err), SL_ERR_OPEN);
    assert_non_null(strstr(err.msg, path));
    assert_string_not_equal(err.hint, "");
    snprintf(path, sizeof path, "%s/file", f->path);
    close(creat(path, 0600));
    assert_code(sl_store_posix_open(path, true, &store, &err), SL_ERR_OPEN);
    assert_code(sl_store_posix_open("", true, &store, &err), SL_ERR_OPEN);
}

static void open__create__makes_and_syncs_parents(void **state)
{
    struct store_fixture *f = *state;
    char path[160];
    struct sl_store *store;
    struct stat st;
    snprintf(path, sizeof path, "%s/a//b/c/", f->path);
    sl_fault_set("posix.syncparent:EIO@3"); /* a, b, c: one each */
    assert_code(sl_store_posix_open(path, true, &store, NULL), SL_ERR_SYNC);
    sl_fault_set("posix.syncparent:EIO@2"); /* all there now: c's entry once more */
    assert_code(sl_store_posix_open(path, true, &store, NULL), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0750);
    store->ops->free(store);
}

static void file__write_anywhere__read_back(void **state)
{
    struct store_fixture *f = *state;
    const struct sl_store_ops *ops = f->store->ops;
    struct sl_publish item = {.name = "s/x"};
    assert_code(ops->create(f->store, "x", 0, &item.file, NULL), 0);
    assert_code(ops->write(item.file, "tail", 4, 100003, NULL), 0);
    assert_code(ops->write(item.file, "head", 4, 0, NULL), 0);
    assert_code(ops->write(item.file, "", 0, 5, NULL), 0);
    assert_code(ops->truncate(item.file, 200000, NULL), 0);
    assert_code(ops->publish(f->store, &item, 1), 0);
    assert_int_equal(item.result, SL_PUBLISH_CREATED);
    /* what was published is not written again */
    assert_code(ops->write(item.file, "x", 1, 0, NULL), SL_ERR_INTERNAL);
    assert_code(ops->truncate(item.file, 1, NULL), SL_ERR_INTERNAL);
    ops->close(item.file);

    uint64_t length;
    char bytes[4];
    struct sl_err err;
    assert_code(ops->open(f->store, "s/x", &item.file, &length, NULL), 0);
    assert_int_equal(length, 200000);
    assert_code(ops->read(item.file, bytes, 4, 100003, NULL), 0);
    assert_memory_equal(bytes, "tail", 4);
    assert_code(ops->read(item.file, bytes, 4, 199998, &err), SL_ERR_FORMAT);
    assert_code(ops->read(item.file, bytes, 4, 300000, &err), SL_ERR_FORMAT);
    assert_code(ops->read(item.file, bytes, 0, 300000, &err), 0);
    assert_code(ops->write(item.file, "x", 1, 0, NULL), SL_ERR_INTERNAL);
    ops->close(item.file);
    ops->close(NULL);
}

static void create__length_hint__truncate_decides(void **state)
{
    struct store_fixture *f = *state;
    static const uint64_t hints[] = {1, 100, 1 << 20, UINT64_MAX};
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++) {
        char name[] = {'s', '/', (char)('0' + i), 0};
        struct sl_publish item = {.name = name};
        assert_code(f->store->ops->create(f->store, "x", hints[i], &item.file, NULL), 0);
        assert_code(f->store->ops->write(item.file, "0123456789", 10, 0, NULL), 0);
        assert_code(f->store->ops->truncate(item.file, 10, NULL), 0);
        assert_code(f->store->ops->publish(f->store, &item, 1), 0);
        f->store->ops->close(item.file);
        assert_code(compare(f->store, name, "0123456789"), 0);
    }
}

static void file__modes(void **state)
{
    struct store_fixture *f = *state;
    char path[160];
    struct stat st;
    mode_t mask = umask(0022);
    assert_int_equal(put(f->store, "s/x", "x", NULL), SL_PUBLISH_CREATED);
    umask(mask);
    snprintf(path, sizeof path, "%s/s/x", f->path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(st.st_nlink, 1);
    snprintf(path, sizeof path, "%s/s", f->path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0750);
}

static void open_file__what_is_no_file__refused(void **state)
{
    struct store_fixture *f = *state;
    const struct sl_store_ops *ops = f->store->ops;
    struct sl_file *file;
    uint64_t length;
    char path[160];
    put(f->store, "s/x", "x", NULL);
    assert_code(ops->open(f->store, "s/y", &file, &length, NULL), SL_ERR_NOT_FOUND);
    assert_code(ops->open(f->store, "t/y", &file, &length, NULL), SL_ERR_NOT_FOUND);
    assert_code(ops->open(f->store, "s/x/y", &file, &length, NULL), SL_ERR_OPEN);
    assert_code(ops->open(f->store, "s", &file, &length, NULL), SL_ERR_FORMAT);
    assert_code(ops->open(f->store, "../etc/passwd", &file, &length, NULL), SL_ERR_USAGE);
    assert_code(ops->open(f->store, "", &file, &length, NULL), SL_ERR_USAGE);
    snprintf(path, sizeof path, "%s/link", f->path);
    assert_int_equal(symlink("s/x", path), 0);
    assert_code(ops->open(f->store, "link", &file, &length, NULL), SL_ERR_OPEN);
    snprintf(path, sizeof path, "%s/fifo", f->path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_code(ops->open(f->store, "fifo", &file, &length, NULL), SL_ERR_FORMAT); /* no hang */
}

static int nobody(void *arg, const char *name, bool is_folder, uint64_t length)
{
    (void)arg, (void)name, (void)is_folder, (void)length;
    fail_msg("\"%s\" was listed", name);
    return 0;
}

/* What lies behind a link may be a disk that is not mounted now: it is never followed, and what
 * cannot be seen for it is never "not there". */
static void folder__behind_a_link_or_a_file__is_not_absent(void **state)
{
    struct store_fixture *f = *state;
    const struct sl_store_ops *ops = f->store->ops;
    struct sl_file *file;
    uint64_t length;
    char path[160], path2[160];
    put(f->store, "s/t/u/x", "x", NULL);
    put(f->store, "s/file", "x", NULL);
    snprintf(path, sizeof path, "%s/s/t", f->path);
    snprintf(path2, sizeof path2, "%s/moved", f->path);
    assert_int_equal(rename(path, path2), 0);
    static const char *const targets[] = {"../moved", "../nowhere"};
    for (size_t i = 0; i < 2; i++) {
        struct sl_err err = {0};
        unlink(path);
        assert_int_equal(symlink(targets[i], path), 0);
        assert_code(ops->open(f->store, "s/t/u/x", &file, &length, &err), SL_ERR_OPEN);
        assert_non_null(strstr(err.hint, "no symbolic link"));
        assert_code(ops->open(f->store, "s/t/u/y", &file, &length, NULL), SL_ERR_OPEN);
        assert_code(ops->list(f->store, "s/t", nobody, NULL, NULL), SL_ERR_OPEN);
        assert_code(ops->list(f->store, "s/t/u", nobody, NULL, NULL), SL_ERR_OPEN);
        assert_code(ops->remove(f->store, "s/t/u/x", NULL), SL_ERR_OPEN);
        assert_int_equal(put(f->store, "s/t/u/z", "z", NULL), SL_PUBLISH_FAILED);
    }
    assert_code(ops->list(f->store, "s/file", nobody, NULL, NULL), SL_ERR_OPEN);
    assert_code(ops->remove(f->store, "s/file/x", NULL), SL_ERR_OPEN);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rename(path2, path), 0);
    assert_string_equal(listing(f->store, "s/t/u"), "x=1");
    assert_code(ops->list(f->store, "s/none", nobody, NULL, NULL), 0);
    assert_code(ops->remove(f->store, "s/none/x", NULL), 0);
}

static void has_data__holes_and_data(void **state)
{
    struct store_fixture *f = *state;
    const struct sl_store_ops *ops = f->store->ops;
    struct sl_file *file = draft(f->store, "data");
    assert_code(ops->truncate(file, 8 << 20, NULL), 0);
    assert_code(ops->write(file, "more", 4, 5 << 20, NULL), 0);
    assert_code(ops->has_data(file, 0, 4096, NULL), 1);
    assert_code(ops->has_data(file, 1 << 20, 4 << 20, NULL), 0);
    assert_code(ops->has_data(file, 1 << 20, (4 << 20) + 1, NULL), 1);
    assert_code(ops->has_data(file, 6 << 20, 2 << 20, NULL), 0);
    assert_code(ops->has_data(file, 9 << 20, 1, NULL), 0);
    assert_code(ops->has_data(file, 0, 0, NULL), 0);
    assert_code(ops->has_data(file, UINT64_MAX, 2, NULL), SL_ERR_LIMIT);
    sl_fault_set("posix.seek:EINVAL");
    assert_code(ops->has_data(file, 1 << 20, 1, NULL), 1); /* cannot tell */
    sl_fault_set("posix.seek:EIO");
    assert_code(ops->has_data(file, 1 << 20, 1, NULL), SL_ERR_READ);
    ops->close(file);
}

static void list__sorted_bytewise__temporaries_left_out(void **state)
{
    struct store_fixture *f = *state;
    static const char *const names[] = {"s/b",  "s/B",  "s/a:1", "s/a",
                                        "s/a-", "s/10", "s/9",   "s/f/x"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(put(f->store, names[i], "12", NULL), SL_PUBLISH_CREATED);
    sl_fault_set("posix.tmpfile:EOPNOTSUPP@1+");
    struct sl_file *file = draft(f->store, "x");
    assert_int_equal(temporaries(f), 1);
    assert_string_equal(listing(f->store, ""), "s/");
    assert_string_equal(listing(f->store, "s"), "10=2 9=2 B=2 a=2 a-=2 a:1=2 b=2 f/");
    assert_string_equal(listing(f->store, "none"), "");
    f->store->ops->close(file);
    assert_int_equal(temporaries(f), 0);
}

static int stop_at_third(void *arg, const char *name, bool is_folder, uint64_t length)
{
    (void)name, (void)is_folder, (void)length;
    return ++*(int *)arg == 3 ? 42 : 0;
}

static void list__visitor_stops__its_value(void **state)
{
    struct store_fixture *f = *state;
    for (char name[] = "s/0"; name[2] < '5'; name[2]++)
        put(f->store, name, "", NULL);
    int seen = 0;
    assert_code(f->store->ops->list(f->store, "s", stop_at_third, &seen, NULL), 42);
    assert_int_equal(seen, 3);
    assert_code(f->store->ops->list(f->store, "../s", stop_at_third, &seen, NULL), SL_ERR_USAGE);
}

struct order {
    char last[256];
    size_t count;
};

static int check_order(void *arg, const char *name, bool is_folder, uint64_t length)
{
    struct order *order = arg;
    assert_true(!is_folder && !length);
    assert_true(strcmp(order->last, name) < 0);
    strcpy(order->last, name);
    order->count++;
    return 0;
}

static void list__large_folder(void **state)
{
    struct store_fixture *f = *state;
    enum { NAMES = 100000 };
    char path[160];
    snprintf(path, sizeof path, "%s/big", f->path);
    assert_int_equal(mkdir(path, 0700), 0);
    int folder = open(path, O_RDONLY | O_DIRECTORY);
    for (unsigned i = 0; i < NAMES; i++) {
        char name[32];
        snprintf(name, sizeof name, "%08X", i * 2654435761u);
        close(openat(folder, name, O_CREAT | O_WRONLY, 0600));
    }
    close(folder);
    struct order order = {.count = 0};
    assert_code(f->store->ops->list(f->store, "big", check_order, &order, NULL), 0);
    assert_int_equal(order.count, NAMES);
}

static void remove__files_folders_and_nothing(void **state)
{
    struct store_fixture *f = *state;
    const struct sl_store_ops *ops = f->store->ops;
    put(f->store, "s/x", "x", NULL);
    assert_code(ops->remove(f->store, "s", NULL), SL_ERR_NOT_EMPTY);
    assert_code(ops->remove(f->store, "s/x", NULL), 0);
    assert_code(ops->remove(f->store, "s/x", NULL), 0);
    assert_code(ops->remove(f->store, "s", NULL), 0);
    assert_code(ops->remove(f->store, "s", NULL), 0);
    assert_code(ops->remove(f->store, "", NULL), SL_ERR_USAGE);
    assert_code(ops->remove(f->store, ".tmp", NULL), SL_ERR_USAGE);
    assert_string_equal(listing(f->store, ""), "");
}

static void space__is_told(void **state)
{
    struct store_fixture *f = *state;
    uint64_t free_bytes = 0, total = 0;
    assert_code(f->store->ops->space(f->store, &free_bytes, &total, NULL), 0);
    assert_true(total > 0 && free_bytes <= total);
}

/* --- temporaries -------------------------------------------------------------------------------
 */

static void create__no_tmpfile__named_and_published(void **state)
{
    struct store_fixture *f = *state;
    static const char *const errnos[] = {"posix.tmpfile:EOPNOTSUPP", "posix.tmpfile:EINVAL"};
    for (size_t i = 0; i < 2; i++) {
        char name[] = {'s', '/', (char)('0' + i), 0};
        fixture_reopen(f);
        sl_fault_set(errnos[i]);
        struct sl_publish item = {.file = draft(f->store, "text"), .name = name};
        struct sl_file *second = draft(f->store, "dropped"); /* asked once only, then remembered */
        assert_int_equal(temporaries(f), 2);
        assert_code(f->store->ops->publish(f->store, &item, 1), 0);
        assert_int_equal(item.result, SL_PUBLISH_CREATED);
        assert_int_equal(temporaries(f), 1);
        f->store->ops->close(item.file);
        f->store->ops->close(second);
        assert_int_equal(temporaries(f), 0);
        assert_code(compare(f->store, name, "text"), 0);
    }
    assert_string_equal(listing(f->store, "s"), "0=4 1=4");
}

static void create__other_error__fails(void **state)
{
    struct store_fixture *f = *state;
    struct sl_file *file;
    struct sl_err err;
    sl_fault_set("posix.tmpfile:ENOSPC");
    assert_code(f->store->ops->create(f->store, "s/x", 0, &file, &err), SL_ERR_FULL);
    assert_non_null(strstr(err.msg, "\"s/x\""));
    assert_non_null(strstr(err.msg, f->path));
    assert_int_equal(temporaries(f), 0);
}

static void close__unpublished__leaves_nothing(void **state)
{
    struct store_fixture *f = *state;
    f->store->ops->close(draft(f->store, "x"));
    assert_string_equal(listing(f->store, ""), "");
    char path[160];
    snprintf(path, sizeof path, "%s/.tmp", f->path);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void sweep__old_temporaries_only(void **state)
{
    struct store_fixture *f = *state;
    uint64_t removed = 9;
    char path[256];
    assert_code(f->store->ops->sweep(f->store, 0, &removed, NULL), 0);
    assert_int_equal(removed, 0);
    snprintf(path, sizeof path, "%s/.tmp", f->path);
    assert_int_equal(mkdir(path, 0700), 0);
    static const char *const names[] = {".tmp-h-0-1-1", ".tmp-h-0-1-2", "other"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/.tmp/%s", f->path, names[i]);
        close(creat(path, 0600));
        if (i != 1) {
            struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
            assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
        }
    }
    assert_code(f->store->ops->sweep(f->store, 86400 * SL_NS_PER_S, &removed, NULL), 0);
    assert_int_equal(removed, 1);
    assert_int_equal(temporaries(f), 1);
    snprintf(path, sizeof path, "%s/.tmp/other", f->path);
    assert_int_equal(access(path, F_OK), 0);
}

/* --- O_DIRECT ----------------------------------------------------------------------------------
 */

#define PAGES_BYTES (4 * SL_STORE_ALIGN)

static void write_and_check(struct store_fixture *f, const char *name)
{
    const struct sl_store_ops *ops = f->store->ops;
    uint8_t *bytes = sl_pages_alloc(PAGES_BYTES), *back = sl_pages_alloc(PAGES_BYTES);
    for (size_t i = 0; i < PAGES_BYTES; i++)
        bytes[i] = (uint8_t)(i * 13 + (i >> 7));
    struct sl_publish item = {.name = name};
    assert_code(ops->create(f->store, name, 0, &item.file, NULL), 0);
    assert_code(ops->write(item.file, bytes, 8192, 0, NULL), 0);          /* direct */
    assert_code(ops->write(item.file, bytes + 8192, 100, 8192, NULL), 0); /* buffered */
    assert_code(ops->write(item.file, bytes + 8292, PAGES_BYTES - 8292, 8292, NULL), 0);
    assert_code(ops->publish(f->store, &item, 1), 0);
    ops->close(item.file);
    uint64_t length;
    assert_code(ops->open(f->store, name, &item.file, &length, NULL), 0);
    assert_int_equal(length, PAGES_BYTES);
    assert_code(ops->read(item.file, back, PAGES_BYTES, 0, NULL), 0);
    assert_memory_equal(bytes, back, PAGES_BYTES);
    ops->close(item.file);
    sl_pages_free(bytes, PAGES_BYTES);
    sl_pages_free(back, PAGES_BYTES);
}

static void write__direct_and_its_fallbacks(void **state)
{
    struct store_fixture *f = *state;
    write_and_check(f, "plain");
    sl_fault_set("posix.direct:EINVAL"); /* the open refuses it */
    write_and_check(f, "open");
    sl_fault_set("posix.direct:EINVAL@1+"); /* and was not asked again */
    assert_true(sl_posix_of(f->store)->no_direct);
    fixture_reopen(f);
    sl_fault_set("posix.direct:EMFILE"); /* only this once */
    write_and_check(f, "once");
    assert_false(sl_posix_of(f->store)->no_direct);
    sl_fault_set("posix.tmpfile:EINVAL"); /* a named temporary has its own way */
    write_and_check(f, "named");
    assert_false(sl_posix_of(f->store)->no_direct);
}

static void write__first_direct_write_refused__buffered(void **state)
{
    struct store_fixture *f = *state;
    struct sl_file *file;
    uint8_t *bytes = sl_pages_alloc(4096);
    assert_code(f->store->ops->create(f->store, "x", 0, &file, NULL), 0);
    bool was_direct = sl_posix_file_of(file)->direct;
    sl_fault_set("posix.pwrite:EINVAL");
    assert_code(f->store->ops->write(file, bytes, 4096, 0, NULL), was_direct ? 0 : SL_ERR_WRITE);
    assert_true(!was_direct || sl_posix_of(f->store)->no_direct);
    assert_false(sl_posix_file_of(file)->direct);
    sl_fault_set("posix.pwrite:EINVAL"); /* now it is an error as any other */
    assert_code(f->store->ops->write(file, bytes, 4096, 0, NULL), SL_ERR_WRITE);
    f->store->ops->close(file);
    sl_pages_free(bytes, 4096);
}

static void write__errors_told(void **state)
{
    struct store_fixture *f = *state;
    struct sl_err err;
    struct sl_file *file = draft(f->store, "");
    sl_fault_set("posix.pwrite:ENOSPC");
    assert_code(f->store->ops->write(file, "x", 1, 0, &err), SL_ERR_FULL);
    assert_string_not_equal(err.hint, "");
    sl_fault_set("posix.pwrite:EIO");
    assert_code(f->store->ops->write(file, "x", 1, 0, &err), SL_ERR_WRITE);
    sl_fault_set("posix.pwrite:EINTR@1,posix.pwrite:EINTR@2");
    assert_code(f->store->ops->write(file, "x", 1, 0, &err), 0);
    sl_fault_set("posix.truncate:EIO");
    assert_code(f->store->ops->truncate(file, 5, &err), SL_ERR_WRITE);
    assert_code(f->store->ops->truncate(file, UINT64_MAX, &err), SL_ERR_LIMIT);
    f->store->ops->close(file);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(open__not_there__fails_with_hint),
        TEST(open__create__makes_and_syncs_parents),
        TEST(file__write_anywhere__read_back),
        TEST(create__length_hint__truncate_decides),
        TEST(file__modes),
        TEST(open_file__what_is_no_file__refused),
        TEST(folder__behind_a_link_or_a_file__is_not_absent),
        TEST(has_data__holes_and_data),
        TEST(list__sorted_bytewise__temporaries_left_out),
        TEST(list__visitor_stops__its_value),
        TEST(list__large_folder),
        TEST(remove__files_folders_and_nothing),
        TEST(space__is_told),
        TEST(create__no_tmpfile__named_and_published),
        TEST(create__other_error__fails),
        TEST(close__unpublished__leaves_nothing),
        TEST(sweep__old_temporaries_only),
        TEST(write__direct_and_its_fallbacks),
        TEST(write__first_direct_write_refused__buffered),
        TEST(write__errors_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
