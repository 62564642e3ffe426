/* A repository for tests, in memory or in a folder: the same tests run on both. */
#ifndef TESTS_UNIT_REPO_REPO_SUPPORT_H
#define TESTS_UNIT_REPO_REPO_SUPPORT_H

#include "core/base/alloc.h"
#include "core/repo/repo.h"
#include "tests/support/memory_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
    struct sl_store *store;
    struct sl_repo *repo;
    char folder[128]; /* "": in memory */
};

static inline int setup_memory(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    w->store = sl_memory_store_new();
    assert_int_equal(sl_repo_open(w->store, true, &w->repo, NULL), 0);
    *state = w;
    return 0;
}

static inline int setup_posix_in(void **state, const char *base)
{
    struct world *w = calloc(1, sizeof *w);
    snprintf(w->folder, sizeof w->folder, "%s/sluice-test-repo-XXXXXX", base);
    assert_non_null(mkdtemp(w->folder));
    assert_int_equal(sl_store_posix_open(w->folder, true, &w->store, NULL), 0);
    assert_int_equal(sl_repo_open(w->store, true, &w->repo, NULL), 0);
    *state = w;
    return 0;
}

static inline int setup_posix(void **state)
{
    const char *base = getenv("TMPDIR");
    return setup_posix_in(state, base ? base : "/tmp");
}

/* Where syncs cost nothing, for very many of them. */
static inline int setup_posix_tmpfs(void **state)
{
    return access("/dev/shm", W_OK) == 0 ? setup_posix_in(state, "/dev/shm") : setup_posix(state);
}

static inline int teardown(void **state)
{
    struct world *w = *state;
    sl_repo_close(w->repo);
    w->store->ops->free(w->store);
    if (w->folder[0]) {
        char command[200];
        snprintf(command, sizeof command, "rm -rf '%s'", w->folder);
        assert_int_equal(system(command), 0);
    }
    free(w);
    return 0;
}

/* --- tampering ---------------------------------------------------------------------------------
 */

static inline void path_of(struct world *w, const char *name, char path[1024])
{
    snprintf(path, 1024, "%s/%s", w->folder, name);
}

/* The file as it lies there; the test frees it. */
static inline uint8_t *file_get(struct world *w, const char *name, size_t *ret_count)
{
    uint8_t *bytes;
    if (!w->folder[0]) {
        const uint8_t *there = sl_memory_store_bytes(w->store, name, ret_count);
        assert_non_null(there);
        bytes = malloc(*ret_count + 1);
        memcpy(bytes, there, *ret_count);
        return bytes;
    }
    char path[1024];
    path_of(w, name, path);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    struct stat st;
    assert_int_equal(fstat(fileno(file), &st), 0);
    *ret_count = (size_t)st.st_size;
    bytes = malloc(*ret_count + 1);
    assert_int_equal(fread(bytes, 1, *ret_count, file), *ret_count);
    fclose(file);
    return bytes;
}

static inline void file_put(struct world *w, const char *name, const void *bytes, size_t count)
{
    if (!w->folder[0]) {
        sl_memory_store_put(w->store, name, bytes, count);
        return;
    }
    char path[1024];
    path_of(w, name, path);
    for (char *at = strchr(path + strlen(w->folder) + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(path, 0700);
        *at = '/';
    }
    unlink(path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static inline void file_remove(struct world *w, const char *name)
{
    assert_int_equal(w->store->ops->remove(w->store, name, NULL), 0);
}

/* --- content -------------------------------------------------------------------------------------
 */

/* Bytes without a zero, another pattern for another `which`. */
static inline uint8_t *content_new(size_t count, uint32_t which)
{
    uint8_t *bytes = malloc(count ? count : 1);
    uint32_t x = which * 2654435761u + 12345;
    for (size_t i = 0; i < count; i++) {
        x = x * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(1 + (x >> 24) % 255);
    }
    return bytes;
}

static inline int put(struct world *w, const char *name, size_t count, uint32_t which,
                      enum sl_outcome *ret_outcome, struct sl_err *err)
{
    uint8_t *bytes = content_new(count, which);
    int rc = sl_repo_put(w->repo, name, bytes, count, "tester", ret_outcome, err);
    free(bytes);
    return rc;
}

static inline void put_ok(struct world *w, const char *name, size_t count, uint32_t which)
{
    enum sl_outcome outcome = 0;
    struct sl_err err = {0};
    int rc = put(w, name, count, which, &outcome, &err);
    if (rc)
        print_message("%s\n", err.msg);
    assert_int_equal(rc, 0);
    assert_int_equal(outcome, SL_STORED_CREATED);
}

/* The object is there and holds that content. */
static inline void expect_content(struct world *w, const char *name, size_t count, uint32_t which)
{
    uint8_t *bytes = content_new(count, which);
    char *got;
    size_t got_count;
    struct sl_err err = {0};
    int rc = sl_repo_fetch(w->repo, name, 64u << 20, &got, &got_count, &err);
    if (rc)
        print_message("%s\n", err.msg);
    assert_int_equal(rc, 0);
    assert_int_equal(got_count, count);
    assert_memory_equal(got, bytes, count);
    sl_free(got);
    free(bytes);
}

/* --- verify --------------------------------------------------------------------------------------
 */

#define FOUND_MAX 16
struct found {
    unsigned count;
    char names[FOUND_MAX][SL_FULL_NAME_MAX];
    char texts[FOUND_MAX][SL_ERR_MSG_BYTES];
    int codes[FOUND_MAX];
    unsigned steps;
};

static inline void on_damage(void *arg, const char *name, int code, const char *text)
{
    struct found *found = arg;
    if (found->count < FOUND_MAX) {
        snprintf(found->names[found->count], SL_FULL_NAME_MAX, "%s", name);
        snprintf(found->texts[found->count], SL_ERR_MSG_BYTES, "%s", text);
        found->codes[found->count] = code;
    }
    found->count++;
}

static inline int on_step(void *arg, uint64_t objects, uint64_t bytes, uint64_t damaged)
{
    (void)objects;
    (void)bytes;
    (void)damaged;
    ((struct found *)arg)->steps++;
    return 0;
}

static inline void verify(struct world *w, const char *folder, struct found *found,
                          uint64_t *ret_objects)
{
    struct sl_repo_verify v = {.damage = on_damage, .step = on_step, .arg = found};
    struct sl_err err = {0};
    memset(found, 0, sizeof *found);
    int rc = sl_repo_verify(w->repo, folder, &v, &err);
    if (rc)
        print_message("%s\n", err.msg);
    assert_int_equal(rc, 0);
    assert_int_equal(v.damaged, found->count);
    if (ret_objects)
        *ret_objects = v.objects;
}

#define BOTH(test)                                                                                 \
    {#test " (memory)", test, setup_memory, teardown, NULL},                                       \
    {                                                                                              \
#test " (posix)", test, setup_posix, teardown, NULL                                        \
    }

#endif
