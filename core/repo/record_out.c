/* The way out of records: buffer, SHA-256, sink. What the records mean is not known here. */
#include "core/base/alloc.h"
#include "core/repo/record.h"

#include <string.h>

#define OUT_ROOM (64u * 1024)

EVP_MD_CTX *sl_sha256_new(struct sl_err *err)
{
    EVP_MD_CTX *sha = EVP_MD_CTX_new();
    if (sha && EVP_DigestInit_ex(sha, EVP_sha256(), NULL) == 1)
        return sha;
    EVP_MD_CTX_free(sha);
    sl_err_set(err, SL_ERR_CRYPTO, "could not begin a SHA-256");
    return NULL;
}

int sl_sha256_add(EVP_MD_CTX *sha, const void *bytes, size_t count, struct sl_err *err)
{
    if (!count || EVP_DigestUpdate(sha, bytes, count) == 1)
        return 0;
    return sl_err_set(err, SL_ERR_CRYPTO, "could not compute a SHA-256");
}

int sl_sha256_end(EVP_MD_CTX *sha, uint8_t digest[SL_SHA256_BYTES], struct sl_err *err)
{
    unsigned bytes = 0;
    if (EVP_DigestFinal_ex(sha, digest, &bytes) == 1 && bytes == SL_SHA256_BYTES)
        return 0;
    return sl_err_set(err, SL_ERR_CRYPTO, "could not end a SHA-256");
}

int sl_record_out_init(struct sl_record_out *out, sl_manifest_sink sink, void *arg,
                       struct sl_err *err)
{
    *out = (struct sl_record_out){.sink = sink, .arg = arg};
    out->sha = sl_sha256_new(err);
    if (!out->sha)
        return SL_ERR_CRYPTO;
    out->buffer = sl_alloc(OUT_ROOM);
    if (!out->buffer) {
        sl_record_out_fini(out);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a buffer");
    }
    out->room = OUT_ROOM;
    return 0;
}

void sl_record_out_fini(struct sl_record_out *out)
{
    EVP_MD_CTX_free(out->sha);
    sl_free(out->buffer);
    *out = (struct sl_record_out){0};
}

static int flush(struct sl_record_out *out, struct sl_err *err)
{
    if (!out->used)
        return 0;
    int rc = sl_sha256_add(out->sha, out->buffer, out->used, err);
    if (rc == 0)
        rc = out->sink(out->arg, out->buffer, out->used, err);
    out->used = 0;
    return rc;
}

int sl_record_out_open(struct sl_record_out *out, size_t bytes, struct sl_writer *ret_writer,
                       struct sl_err *err)
{
    if (bytes > SL_RECORD_MAX + SL_RECORD_HEAD_BYTES)
        return sl_err_set(err, SL_ERR_LIMIT, "a record of %zu bytes is too long", bytes);
    if (bytes > out->room - out->used) {
        int rc = flush(out, err);
        if (rc)
            return rc;
    }
    if (bytes > out->room) {
        uint8_t *buffer = sl_realloc(out->buffer, bytes);
        if (!buffer)
            return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a record of %zu bytes",
                              bytes);
        out->buffer = buffer;
        out->room = bytes;
    }
    *ret_writer = sl_writer_on(out->buffer + out->used, bytes);
    return 0;
}

int sl_record_out_close(struct sl_record_out *out, const struct sl_writer *w, struct sl_err *err)
{
    if (w->failed || w->at != w->end)
        return sl_err_set(err, SL_ERR_INTERNAL, "a record is not as long as was computed");
    out->used += sl_writer_used(w);
    out->total += sl_writer_used(w);
    return 0;
}

int sl_record_out_raw(struct sl_record_out *out, const void *bytes, size_t count,
                      struct sl_err *err)
{
    struct sl_writer w;
    int rc = sl_record_out_open(out, count, &w, err);
    if (rc)
        return rc;
    sl_write_bytes(&w, bytes, count);
    return sl_record_out_close(out, &w, err);
}

int sl_record_out_end(struct sl_record_out *out, struct sl_err *err)
{
    /* the sum is over all before the end record, which is in the same stream after it */
    int rc = flush(out, err);
    uint8_t digest[SL_SHA256_BYTES];
    if (rc == 0)
        rc = sl_sha256_end(out->sha, digest, err);
    if (rc)
        return rc;
    uint8_t record[SL_RECORD_HEAD_BYTES + SL_END_BYTES];
    struct sl_writer w = sl_writer_on(record, sizeof record);
    sl_write_u8(&w, SL_RECORD_END);
    sl_write_u32(&w, SL_END_BYTES);
    sl_write_u64(&w, out->entries);
    sl_write_u64(&w, out->bytes);
    sl_write_bytes(&w, digest, sizeof digest);
    out->total += sizeof record;
    return out->sink(out->arg, record, sizeof record, err);
}
