/* The reader of manifests and pack indexes: fed in pieces of any size, it calls a visitor for each
 * record that keeps the rules. It holds one record that came in parts, the last path and the
 * packs' lengths; a length that a record claims is believed only as its bytes arrive. */
#include "core/base/alloc.h"
#include "core/repo/record.h"
#include "core/store/store.h"

#include <string.h>

enum state { WANT_HEADER, WANT_PACKS, WANT_ENTRIES, ENDED };

struct sl_manifest_reader {
    struct sl_manifest_visitor visitor;
    const char *what; /* "manifest" or "pack index" */
    bool is_index;
    enum state state;
    int failed;
    EVP_MD_CTX *sha;
    uint8_t *held; /* the beginning of a record whose rest was not fed yet */
    size_t held_used, held_room;
    struct sl_pack_set packs;
    uint64_t entries, bytes;
    char previous[SL_PATH_MAX];
    struct sl_manifest_entry entry;
};

static int reader_new(const struct sl_manifest_visitor *visitor, bool is_index,
                      struct sl_manifest_reader **ret, struct sl_err *err)
{
    struct sl_manifest_reader *r = sl_calloc(1, sizeof *r);
    if (!r)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a manifest's reader");
    r->visitor = *visitor;
    r->is_index = is_index;
    r->what = is_index ? "pack index" : "manifest";
    r->state = is_index ? WANT_ENTRIES : WANT_HEADER;
    r->sha = sl_sha256_new(err);
    if (!r->sha) {
        sl_manifest_reader_free(r);
        return SL_ERR_CRYPTO;
    }
    *ret = r;
    return 0;
}

int sl_manifest_reader_new(const struct sl_manifest_visitor *visitor,
                           struct sl_manifest_reader **ret, struct sl_err *err)
{
    return reader_new(visitor, false, ret, err);
}

int sl_pack_index_reader_new(const struct sl_manifest_visitor *visitor,
                             struct sl_manifest_reader **ret, struct sl_err *err)
{
    return reader_new(visitor, true, ret, err);
}

void sl_manifest_reader_free(struct sl_manifest_reader *r)
{
    if (!r)
        return;
    EVP_MD_CTX_free(r->sha);
    sl_free(r->held);
    sl_free(r->entry.extents);
    sl_pack_set_fini(&r->packs);
    sl_free(r);
}

/* A visitor's nonzero answer ends the reading with it. */
static int ended_by(const struct sl_manifest_reader *r, int answer, struct sl_err *err)
{
    return answer ? sl_err_set(err, answer, "reading the %s was ended by its user", r->what) : 0;
}

/* --- records --------------------------------------------------------------------------------- */

static int read_header(struct sl_manifest_reader *r, const uint8_t *body, size_t bytes,
                       struct sl_err *err)
{
    struct sl_reader in = sl_reader_on(body, bytes);
    char label[SL_LABEL_MAX], prior[SL_LABEL_MAX];
    uint16_t version = sl_read_u16(&in);
    if (!in.failed && version != SL_MANIFEST_VERSION)
        return sl_err_set(err, SL_ERR_VERSION, "a manifest of version %u, this program knows %u",
                          version, SL_MANIFEST_VERSION);
    sl_read_string(&in, label, sizeof label);
    sl_read_string(&in, prior, sizeof prior);
    uint32_t json_bytes = sl_read_u32(&in);
    const uint8_t *json = sl_read_bytes(&in, json_bytes);
    if (!json || !sl_reader_done(&in) || json_bytes > SL_HEADER_JSON_MAX ||
        memchr(json, '\0', json_bytes))
        return sl_err_set(err, SL_ERR_FORMAT, "the manifest's header is malformed");
    if (!sl_label_valid(label) || (prior[0] && !sl_label_valid(prior)))
        return sl_err_set(err, SL_ERR_FORMAT, "the manifest's labels are malformed");
    r->state = WANT_PACKS;
    if (!r->visitor.header)
        return 0;
    char *text = sl_strndup((const char *)json, json_bytes);
    if (!text)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for the manifest's header");
    int rc = r->visitor.header(r->visitor.arg, label, prior, text);
    sl_free(text);
    return ended_by(r, rc, err);
}

static int read_pack(struct sl_manifest_reader *r, const uint8_t *body, size_t bytes,
                     struct sl_err *err)
{
    struct sl_reader in = sl_reader_on(body, bytes);
    struct sl_manifest_pack pack = {.number = sl_read_u32(&in)};
    sl_read_string(&in, pack.name, sizeof pack.name);
    pack.length = sl_read_u64(&in);
    sl_read_into(&in, pack.digest.bytes, sizeof pack.digest.bytes);
    if (!sl_reader_done(&in))
        return sl_err_set(err, SL_ERR_FORMAT, "a pack record of %zu bytes is malformed", bytes);
    int rc = sl_store_name_check(pack.name, false, NULL);
    if (rc)
        return sl_err_set(err, SL_ERR_FORMAT, "pack %u has an impossible name", pack.number);
    rc = sl_pack_set_add(&r->packs, pack.number, pack.length, err);
    if (rc == 0 && r->visitor.pack)
        rc = ended_by(r, r->visitor.pack(r->visitor.arg, &pack), err);
    return rc;
}

static int read_entry(struct sl_manifest_reader *r, const uint8_t *body, size_t bytes,
                      struct sl_err *err)
{
    struct sl_manifest_entry *entry = &r->entry;
    uint64_t covered = 0;
    int rc = sl_entry_body_read(body, bytes, entry, err);
    if (rc == 0)
        rc = sl_entry_check(entry, !r->is_index, &covered, err);
    if (rc == 0 && !r->is_index)
        rc = sl_pack_set_check(&r->packs, entry, err);
    if (rc)
        return rc;
    if (!r->is_index) {
        char text[SL_SHOWN_BYTES];
        if (r->entries && strcmp(r->previous, entry->path) >= 0)
            return sl_err_set(err, SL_ERR_FORMAT, "entry \"%s\" is out of order",
                              sl_shown(entry->path, text));
        memcpy(r->previous, entry->path, strlen(entry->path) + 1);
    }
    if (covered > UINT64_MAX - r->bytes)
        return sl_err_set(err, SL_ERR_FORMAT, "the %s's sizes overflow", r->what);
    r->state = WANT_ENTRIES;
    r->entries++;
    r->bytes += covered;
    return r->visitor.entry ? ended_by(r, r->visitor.entry(r->visitor.arg, entry), err) : 0;
}

static int read_end(struct sl_manifest_reader *r, const uint8_t *body, size_t bytes,
                    struct sl_err *err)
{
    struct sl_reader in = sl_reader_on(body, bytes);
    uint8_t expected[SL_SHA256_BYTES], found[SL_SHA256_BYTES];
    uint64_t entries = sl_read_u64(&in), covered = sl_read_u64(&in);
    sl_read_into(&in, expected, sizeof expected);
    int rc = sl_sha256_end(r->sha, found, err);
    if (rc)
        return rc;
    if (memcmp(expected, found, sizeof found) != 0)
        return sl_err_set(err, SL_ERR_CHECKSUM, "the %s's SHA-256 does not fit", r->what);
    if (!sl_reader_done(&in) || entries != r->entries || covered != r->bytes)
        return sl_err_set(err, SL_ERR_FORMAT, "the %s's counts do not fit", r->what);
    r->state = ENDED;
    return 0;
}

/* --- framing --------------------------------------------------------------------------------- */

struct head {
    uint8_t kind;
    uint32_t bytes; /* of the body */
};

/* May a record with this head come now? */
static int check_head(const struct sl_manifest_reader *r, const struct head *head,
                      struct sl_err *err)
{
    static const uint32_t most[] = {
        [SL_RECORD_HEADER] = SL_HEADER_JSON_MAX + 4096,
        [SL_RECORD_PACK] = 4096,
        [SL_RECORD_ENTRY] = SL_RECORD_MAX,
        [SL_RECORD_END] = SL_END_BYTES,
    };
    bool in_turn = false;
    switch (head->kind) {
    case SL_RECORD_HEADER:
        in_turn = r->state == WANT_HEADER;
        break;
    case SL_RECORD_PACK:
        in_turn = r->state == WANT_PACKS;
        break;
    case SL_RECORD_ENTRY:
    case SL_RECORD_END:
        in_turn = r->state == WANT_PACKS || r->state == WANT_ENTRIES;
        break;
    }
    if (!in_turn)
        return sl_err_set(err, SL_ERR_FORMAT, "the %s has a record of kind %u out of turn", r->what,
                          head->kind);
    if (head->bytes > most[head->kind])
        return sl_err_set(err, SL_ERR_FORMAT, "the %s has a record of %u bytes, which is too long",
                          r->what, head->bytes);
    return 0;
}

static struct head head_at(const uint8_t *bytes)
{
    struct sl_reader in = sl_reader_on(bytes, SL_RECORD_HEAD_BYTES);
    struct head head = {.kind = sl_read_u8(&in)};
    head.bytes = sl_read_u32(&in);
    return head;
}

static int read_record(struct sl_manifest_reader *r, const struct head *head, const uint8_t *body,
                       struct sl_err *err)
{
    switch (head->kind) {
    case SL_RECORD_HEADER:
        return read_header(r, body, head->bytes, err);
    case SL_RECORD_PACK:
        return read_pack(r, body, head->bytes, err);
    case SL_RECORD_ENTRY:
        return read_entry(r, body, head->bytes, err);
    default:
        return read_end(r, body, head->bytes, err);
    }
}

/* Read the whole records at `bytes` in place; `*ret_used` of them were whole. */
static int read_in_place(struct sl_manifest_reader *r, const uint8_t *bytes, size_t count,
                         size_t *ret_used, struct sl_err *err)
{
    size_t at = 0, summed = 0; /* the sum is taken over runs of records: one call, not many */
    int rc = 0;
    while (rc == 0 && count - at >= SL_RECORD_HEAD_BYTES) {
        struct head head = head_at(bytes + at);
        rc = check_head(r, &head, err);
        if (rc || count - at - SL_RECORD_HEAD_BYTES < head.bytes)
            break;
        if (head.kind == SL_RECORD_END) {
            rc = sl_sha256_add(r->sha, bytes + summed, at - summed, err);
            summed = at + SL_RECORD_HEAD_BYTES + head.bytes;
        }
        if (rc == 0)
            rc = read_record(r, &head, bytes + at + SL_RECORD_HEAD_BYTES, err);
        at += SL_RECORD_HEAD_BYTES + head.bytes;
        if (r->state == ENDED && at < count && rc == 0)
            rc = sl_err_set(err, SL_ERR_FORMAT, "the %s goes on after its end", r->what);
    }
    *ret_used = at;
    if (rc == 0 && r->state != ENDED)
        rc = sl_sha256_add(r->sha, bytes + summed, at - summed, err);
    return rc;
}

/* Take bytes from the feed until `held` has `want` of them, or the feed is empty. */
static int hold(struct sl_manifest_reader *r, size_t want, const uint8_t **at, size_t *left,
                struct sl_err *err)
{
    if (r->held_used >= want)
        return 0;
    size_t take = want - r->held_used < *left ? want - r->held_used : *left;
    size_t need = r->held_used + take;
    if (need > r->held_room) {
        size_t room = r->held_room ? r->held_room : 512;
        while (room < need)
            room *= 2;
        uint8_t *held = sl_realloc(r->held, room);
        if (!held)
            return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a record of the %s",
                              r->what);
        r->held = held;
        r->held_room = room;
    }
    memcpy(r->held + r->held_used, *at, take);
    r->held_used += take;
    *at += take;
    *left -= take;
    return 0;
}

static int feed(struct sl_manifest_reader *r, const uint8_t *at, size_t left, struct sl_err *err)
{
    size_t used;
    int rc = 0;
    if (left && r->state == ENDED)
        return sl_err_set(err, SL_ERR_FORMAT, "the %s goes on after its end", r->what);
    while (rc == 0 && left) {
        if (!r->held_used) {
            rc = read_in_place(r, at, left, &used, err);
            at += used;
            left -= used;
            if (rc || !left)
                return rc;
        }
        /* a record that is not whole: put its parts together, then read it as if in place */
        rc = hold(r, SL_RECORD_HEAD_BYTES, &at, &left, err);
        if (rc || r->held_used < SL_RECORD_HEAD_BYTES)
            return rc;
        struct head head = head_at(r->held);
        rc = check_head(r, &head, err);
        if (rc == 0)
            rc = hold(r, SL_RECORD_HEAD_BYTES + head.bytes, &at, &left, err);
        if (rc || r->held_used < SL_RECORD_HEAD_BYTES + head.bytes)
            return rc;
        rc = read_in_place(r, r->held, r->held_used, &used, err);
        r->held_used = 0;
        if (rc == 0 && r->state == ENDED && left)
            rc = sl_err_set(err, SL_ERR_FORMAT, "the %s goes on after its end", r->what);
    }
    return rc;
}

int sl_manifest_feed(struct sl_manifest_reader *r, const void *bytes, size_t count,
                     struct sl_err *err)
{
    if (r->failed)
        return sl_err_set(err, r->failed, "the %s was refused before", r->what);
    return r->failed = feed(r, bytes, count, err);
}

int sl_manifest_finish(struct sl_manifest_reader *r, uint64_t *ret_entries, uint64_t *ret_bytes,
                       struct sl_err *err)
{
    if (r->failed)
        return sl_err_set(err, r->failed, "the %s was refused before", r->what);
    if (r->state != ENDED)
        return sl_err_set(err, SL_ERR_FORMAT, "the %s has no end", r->what);
    if (ret_entries)
        *ret_entries = r->entries;
    if (ret_bytes)
        *ret_bytes = r->bytes;
    return 0;
}
