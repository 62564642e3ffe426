/* What fuzz_manifest and fuzz_pack_index share: the end record's SHA-256 is put right before the
 * reading, or nothing behind it would ever be reached; and the bytes are fed whole and in pieces,
 * with the same result. */
#ifndef TESTS_FUZZ_FUZZ_RECORDS_H
#define TESTS_FUZZ_FUZZ_RECORDS_H

#include "core/repo/manifest.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#define FUZZ_END_BYTES (5 + 8 + 8 + 32)

typedef int (*fuzz_reader_new)(const struct sl_manifest_visitor *visitor,
                               struct sl_manifest_reader **ret, struct sl_err *err);

struct fuzz_seen {
    uint64_t entries, bytes;
};

/* What the reader lets through must keep the promises of manifest.h. */
static int fuzz_entry(void *arg, const struct sl_manifest_entry *e)
{
    struct fuzz_seen *seen = arg;
    if (!e->path[0] || e->path[0] == '/' || strstr(e->path, "//") || !strcmp(e->path, "..") ||
        !strncmp(e->path, "../", 3) || strstr(e->path, "/../"))
        abort();
    for (uint32_t i = 0; i < e->extent_count; i++) {
        const struct sl_extent *x = &e->extents[i];
        if (!x->length || x->offset > e->size || x->length > e->size - x->offset ||
            (i && x->offset != e->extents[i - 1].offset + e->extents[i - 1].length))
            abort();
        seen->bytes += x->length;
    }
    seen->entries++;
    return 0;
}

static int fuzz_read(fuzz_reader_new reader_new, const uint8_t *data, size_t size, size_t piece)
{
    struct fuzz_seen seen = {0};
    struct sl_manifest_visitor visitor = {.entry = fuzz_entry, .arg = &seen};
    struct sl_manifest_reader *r;
    struct sl_err err;
    uint64_t entries, bytes;
    if (reader_new(&visitor, &r, &err) != 0)
        return 0;
    int rc = 0;
    while (rc == 0 && size) {
        size_t n = size < piece ? size : piece;
        rc = sl_manifest_feed(r, data, n, &err);
        data += n;
        size -= n;
    }
    if (rc == 0)
        rc = sl_manifest_finish(r, &entries, &bytes, &err);
    if (rc == 0 && (entries != seen.entries || bytes != seen.bytes))
        abort();
    sl_manifest_reader_free(r);
    return rc;
}

static void fuzz_records(fuzz_reader_new reader_new, const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    if (size >= FUZZ_END_BYTES)
        EVP_Digest(copy, size - FUZZ_END_BYTES, copy + size - 32, NULL, EVP_sha256(), NULL);
    int whole = fuzz_read(reader_new, copy, size, size ? size : 1);
    int parts = fuzz_read(reader_new, copy, size, 1 + size % 61);
    if (whole != parts)
        abort();
    free(copy);
}

#endif
