/* The manifest's writer: a stream of records to a sink, refused as soon as it would not be read
 * back. It keeps the last path and the packs' lengths, nothing that grows with the files. */
#include "core/base/alloc.h"
#include "core/repo/record.h"

#include <string.h>

struct sl_manifest_writer {
    struct sl_record_out out;
    struct sl_pack_set packs;
    bool ended;
    int failed; /* the first failure: the stream is worthless after it */
    char previous[SL_PATH_MAX];
};

static int write_header(struct sl_manifest_writer *w, const char *label, const char *prior,
                        const char *json, struct sl_err *err)
{
    size_t json_bytes = strlen(json);
    if (!sl_label_valid(label) || (prior[0] && !sl_label_valid(prior)))
        return sl_err_set(err, SL_ERR_USAGE, "\"%s\" after \"%s\" is no label of a backup", label,
                          prior);
    if (json_bytes > SL_HEADER_JSON_MAX)
        return sl_err_set(err, SL_ERR_LIMIT, "the manifest's header of %zu bytes is too long",
                          json_bytes);
    size_t body = 2 + 2 + strlen(label) + 2 + strlen(prior) + 4 + json_bytes;
    struct sl_writer r;
    int rc = sl_record_out_open(&w->out, SL_RECORD_HEAD_BYTES + body, &r, err);
    if (rc)
        return rc;
    sl_write_u8(&r, SL_RECORD_HEADER);
    sl_write_u32(&r, (uint32_t)body);
    sl_write_u16(&r, SL_MANIFEST_VERSION);
    sl_write_string(&r, label);
    sl_write_string(&r, prior);
    sl_write_u32(&r, (uint32_t)json_bytes);
    sl_write_bytes(&r, json, json_bytes);
    return sl_record_out_close(&w->out, &r, err);
}

int sl_manifest_writer_new(sl_manifest_sink sink, void *arg, const char *label, const char *prior,
                           const char *json, struct sl_manifest_writer **ret, struct sl_err *err)
{
    struct sl_manifest_writer *w = sl_calloc(1, sizeof *w);
    if (!w)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a manifest");
    int rc = sl_record_out_init(&w->out, sink, arg, err);
    if (rc == 0)
        rc = write_header(w, label, prior ? prior : "", json ? json : "{}", err);
    if (rc) {
        sl_manifest_writer_free(w);
        return rc;
    }
    *ret = w;
    return 0;
}

void sl_manifest_writer_free(struct sl_manifest_writer *w)
{
    if (!w)
        return;
    sl_record_out_fini(&w->out);
    sl_pack_set_fini(&w->packs);
    sl_free(w);
}

/* Begin a call: nothing follows a failure or the end. */
static int may_write(const struct sl_manifest_writer *w, struct sl_err *err)
{
    if (w->failed)
        return sl_err_set(err, w->failed, "the manifest failed before");
    if (w->ended)
        return sl_err_set(err, SL_ERR_INTERNAL, "the manifest has ended");
    return 0;
}

static int write_pack(struct sl_manifest_writer *w, const struct sl_manifest_pack *pack,
                      struct sl_err *err)
{
    if (w->out.entries)
        return sl_err_set(err, SL_ERR_INTERNAL, "pack %u comes after an entry", pack->number);
    size_t name_bytes = strnlen(pack->name, sizeof pack->name);
    if (!name_bytes || name_bytes == sizeof pack->name)
        return sl_err_set(err, SL_ERR_USAGE, "pack %u has no proper name", pack->number);
    int rc = sl_pack_set_add(&w->packs, pack->number, pack->length, err);
    if (rc)
        return rc;
    size_t body = 4 + 2 + name_bytes + 8 + sizeof pack->digest;
    struct sl_writer r;
    rc = sl_record_out_open(&w->out, SL_RECORD_HEAD_BYTES + body, &r, err);
    if (rc)
        return rc;
    sl_write_u8(&r, SL_RECORD_PACK);
    sl_write_u32(&r, (uint32_t)body);
    sl_write_u32(&r, pack->number);
    sl_write_string(&r, pack->name);
    sl_write_u64(&r, pack->length);
    sl_write_bytes(&r, pack->digest.bytes, sizeof pack->digest.bytes);
    return sl_record_out_close(&w->out, &r, err);
}

int sl_manifest_write_pack(struct sl_manifest_writer *w, const struct sl_manifest_pack *pack,
                           struct sl_err *err)
{
    int rc = may_write(w, err);
    if (rc == 0)
        rc = w->failed = write_pack(w, pack, err);
    return rc;
}

static int write_entry(struct sl_manifest_writer *w, const struct sl_manifest_entry *entry,
                       struct sl_err *err)
{
    char text[SL_SHOWN_BYTES];
    uint64_t bytes = 0;
    int rc = sl_entry_check(entry, true, &bytes, err);
    if (rc == 0)
        rc = sl_pack_set_check(&w->packs, entry, err);
    if (rc)
        return rc;
    if (w->out.entries && strcmp(w->previous, entry->path) >= 0)
        return sl_err_set(err, SL_ERR_INTERNAL, "entry \"%s\" is out of order",
                          sl_shown(entry->path, text));
    struct sl_writer r;
    rc = sl_record_out_open(&w->out, sl_entry_record_bytes(entry), &r, err);
    if (rc)
        return rc;
    sl_entry_record_write(&r, entry);
    rc = sl_record_out_close(&w->out, &r, err);
    memcpy(w->previous, entry->path, strlen(entry->path) + 1);
    w->out.entries++;
    w->out.bytes += bytes;
    return rc;
}

int sl_manifest_write_entry(struct sl_manifest_writer *w, const struct sl_manifest_entry *entry,
                            struct sl_err *err)
{
    int rc = may_write(w, err);
    if (rc == 0)
        rc = w->failed = write_entry(w, entry, err);
    return rc;
}

int sl_manifest_write_end(struct sl_manifest_writer *w, struct sl_err *err)
{
    int rc = may_write(w, err);
    if (rc == 0) {
        rc = w->failed = sl_record_out_end(&w->out, err);
        w->ended = true;
    }
    return rc;
}
