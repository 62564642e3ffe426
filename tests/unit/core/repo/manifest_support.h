/* What the tests of manifests and fragments share. */
#ifndef TESTS_UNIT_REPO_MANIFEST_SUPPORT_H
#define TESTS_UNIT_REPO_MANIFEST_SUPPORT_H

#include "core/repo/manifest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct bytes {
    uint8_t *at;
    size_t count, room;
};

static inline int to_bytes(void *arg, const void *bytes, size_t count, struct sl_err *err)
{
    struct bytes *b = arg;
    (void)err;
    if (b->count + count > b->room) {
        b->room = (b->count + count) * 2;
        b->at = realloc(b->at, b->room);
        assert_non_null(b->at);
    }
    memcpy(b->at + b->count, bytes, count);
    b->count += count;
    return 0;
}

/* An entry without extents; the test frees it. */
static inline struct sl_manifest_entry *entry_new(uint8_t kind, const char *path)
{
    struct sl_manifest_entry *e = calloc(1, sizeof *e);
    assert_non_null(e);
    e->kind = kind;
    e->mode = 0600;
    e->uid = 1;
    e->gid = 2;
    e->mtime_ns = 3;
    snprintf(e->path, sizeof e->path, "%s", path);
    e->extents = calloc(8, sizeof *e->extents);
    assert_non_null(e->extents);
    return e;
}

static inline void entry_free(struct sl_manifest_entry *e)
{
    free(e->extents);
    free(e);
}

static inline void extent_add(struct sl_manifest_entry *e, uint64_t offset, uint64_t length,
                              uint32_t pack, uint64_t pack_offset)
{
    assert_true(e->extent_count < 8);
    e->extents[e->extent_count++] = (struct sl_extent){
        .offset = offset, .length = length, .pack_offset = pack_offset, .pack = pack};
}

#endif
