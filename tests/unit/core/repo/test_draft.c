/* Drafts: which blocks and which ends are taken. */
#include "core/object/codec.h"
#include "tests/unit/core/repo/repo_support.h"

#define NAME "main/wal/1/seg"

static struct sl_object_draft *draft_new(struct world *w, uint64_t hint)
{
    struct sl_object_draft *draft;
    assert_int_equal(sl_draft_new(w->repo, NAME, hint, "tester", &draft, NULL), 0);
    return draft;
}

/* An offer of block `index`, whose content is `bytes` times the byte `fill`. */
static struct sl_offer offer(struct world *w, uint32_t index, uint32_t bytes, uint8_t fill)
{
    static uint8_t content[SL_BLOCK_BYTES + 1];
    memset(content, fill, bytes);
    struct sl_id digest = sl_digest(w->repo->digest_seed, content, bytes);
    return (struct sl_offer){.block = index,
                             .stored_bytes = fill ? bytes : 0,
                             .plain_bytes = bytes,
                             .flags = (uint8_t)(fill ? 0 : SL_BLOCK_ZERO),
                             .plain_digest = digest,
                             .stored_digest = digest};
}

static int enter(struct world *w, struct sl_object_draft *draft, uint32_t index, uint32_t bytes,
                 uint8_t fill, uint64_t *ret_offset)
{
    struct sl_offer o = offer(w, index, bytes, fill);
    return sl_draft_block(draft, &o, ret_offset, NULL);
}

static struct sl_id digest_of(struct world *w, const uint8_t *fills, uint32_t blocks, uint32_t last)
{
    struct sl_id leaves[16];
    for (uint32_t i = 0; i < blocks; i++)
        leaves[i] = offer(w, i, i + 1 < blocks ? SL_BLOCK_BYTES : last, fills[i]).plain_digest;
    return sl_digest_content(w->repo->digest_seed, leaves, blocks);
}

static void write_at(struct sl_object_draft *draft, uint64_t offset, uint32_t bytes, uint8_t fill)
{
    struct sl_file *file = sl_draft_file(draft);
    uint8_t *page = sl_pages_alloc(SL_BLOCK_BYTES);
    memset(page, fill, bytes);
    assert_int_equal(file->store->ops->write(file, page, sl_align_up(bytes), offset, NULL), 0);
    sl_pages_free(page, SL_BLOCK_BYTES);
}

static void draft__blocks_in_any_order__become_the_object(void **state)
{
    struct world *w = *state;
    static const uint32_t orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}, {1, 3, 0, 2}};
    static const uint8_t fills[4] = {'a', 0, 'c', 'd'};
    for (size_t k = 0; k < 4; k++) {
        struct sl_object_draft *draft = draft_new(w, k * 1000000);
        for (int i = 0; i < 4; i++) {
            uint32_t index = orders[k][i], bytes = index == 3 ? 777 : SL_BLOCK_BYTES;
            uint64_t offset = 99;
            assert_int_equal(enter(w, draft, index, bytes, fills[index], &offset), 0);
            assert_int_equal(offset, fills[index] ? (uint64_t)index * SL_BLOCK_BYTES : 0);
            if (fills[index])
                write_at(draft, offset, bytes, fills[index]);
        }
        struct sl_id digest = digest_of(w, fills, 4, 777);
        assert_int_equal(sl_draft_finish(draft, 3 * SL_BLOCK_BYTES + 777, 7, &digest, NULL), 0);
        struct sl_repo_publish item = {.draft = draft};
        sl_repo_publish(w->repo, &item, 1);
        assert_int_equal(item.code, 0);
        assert_int_equal(item.outcome, k ? SL_STORED_IDENTICAL : SL_STORED_CREATED);
        assert_memory_equal(&item.digest, &digest, sizeof digest);
        sl_draft_free(draft);
    }
    char *bytes;
    size_t count;
    assert_int_equal(sl_repo_fetch(w->repo, NAME, 8u << 20, &bytes, &count, NULL), 0);
    assert_int_equal(count, 3 * SL_BLOCK_BYTES + 777);
    assert_true(bytes[0] == 'a' && bytes[SL_BLOCK_BYTES] == 0 && bytes[2 * SL_BLOCK_BYTES] == 'c' &&
                bytes[count - 1] == 'd' && bytes[count] == 0);
    sl_free(bytes);
    struct sl_trailer trailer;
    assert_int_equal(sl_object_stat(w->repo, NAME, &trailer, NULL), 0);
    assert_int_equal(trailer.index_bytes, 7);
    assert_string_equal(trailer.creator, "tester");
}

static void draft_block__what_cannot_be__is_refused(void **state)
{
    struct world *w = *state;
    struct sl_object_draft *draft = draft_new(w, 0);
    uint64_t at;
    struct sl_offer good = offer(w, 0, SL_BLOCK_BYTES, 'a'), o;
#define REFUSED(want)                                                                              \
    do {                                                                                           \
        struct sl_err err = {0};                                                                   \
        assert_int_equal(sl_draft_block(draft, &o, &at, &err), want);                              \
        assert_int_equal(err.code, want);                                                          \
        assert_non_null(strstr(err.msg, NAME));                                                    \
    } while (0)
    o = good, o.plain_bytes = o.stored_bytes = 0;
    REFUSED(SL_ERR_PROTOCOL);
    o = good, o.plain_bytes = o.stored_bytes = SL_BLOCK_BYTES + 1;
    REFUSED(SL_ERR_PROTOCOL);
    o = good, o.stored_bytes--;
    REFUSED(SL_ERR_PROTOCOL);
    o = good, o.stored_digest.bytes[0] ^= 1;
    REFUSED(SL_ERR_PROTOCOL);
    o = good, o.flags = 2;
    REFUSED(SL_ERR_PROTOCOL);
    o = good, o.codec = 3;
    REFUSED(SL_ERR_PROTOCOL);
    o = good, o.codec = SL_CODEC_ZSTD;
    REFUSED(SL_ERR_PROTOCOL);
    o = good, o.codec = SL_CODEC_LZ4, o.stored_bytes = 0;
    REFUSED(SL_ERR_PROTOCOL);
    o = good, o.codec = SL_CODEC_LZ4, o.stored_bytes = 100, o.block = 1;
    REFUSED(SL_ERR_PROTOCOL); /* not the next */
    o = good, o.block = SL_OBJECT_BLOCKS_MAX;
    REFUSED(SL_ERR_PROTOCOL);
    o = good, o.block = UINT32_MAX;
    REFUSED(SL_ERR_PROTOCOL);
    o = good, o.block = 4096; /* too far ahead */
    REFUSED(SL_ERR_PROTOCOL);
    o = offer(w, 0, SL_BLOCK_BYTES, 0), o.stored_bytes = 1;
    REFUSED(SL_ERR_PROTOCOL);
    o = offer(w, 0, SL_BLOCK_BYTES, 0), o.codec = SL_CODEC_ZSTD;
    REFUSED(SL_ERR_PROTOCOL);
    o = offer(w, 0, SL_BLOCK_BYTES, 0), o.plain_digest.bytes[3] ^= 1; /* a lie about zeros */
    REFUSED(SL_ERR_PROTOCOL);
    o = good;
    assert_int_equal(sl_draft_block(draft, &o, &at, NULL), 0); /* none of them left a trace */
    REFUSED(SL_ERR_PROTOCOL);                                  /* twice */
    o = offer(w, 4096, SL_BLOCK_BYTES, 'b');
    assert_int_equal(sl_draft_block(draft, &o, &at, NULL), 0); /* just near enough */
    o = offer(w, 7, 100, 'b');
    REFUSED(SL_ERR_PROTOCOL); /* short before a block that is there */
    o = offer(w, 4097, 100, 'b');
    assert_int_equal(sl_draft_block(draft, &o, &at, NULL), 0);
    o = offer(w, 4098, 100, 'b');
    REFUSED(SL_ERR_PROTOCOL); /* after the short one */
    o = offer(w, 4096, 100, 'b');
    REFUSED(SL_ERR_PROTOCOL);
    sl_draft_free(draft);
}

/* A packed block, written; its plain bytes are `bytes` times `fill`, packed with `as` instead. */
static int enter_packed(struct world *w, struct sl_object_draft *draft, uint32_t index,
                        uint32_t bytes, uint8_t fill, uint8_t as, uint64_t *ret_offset)
{
    static uint8_t plain[SL_BLOCK_BYTES], packed[SL_BLOCK_BYTES];
    struct sl_packer *packer;
    struct sl_offer o = offer(w, index, bytes, fill);
    memset(plain, as, bytes);
    assert_int_equal(sl_packer_new(SL_CODEC_LZ4, 1, &packer, NULL), 0);
    o.codec = SL_CODEC_LZ4;
    o.stored_bytes = (uint32_t)sl_pack(packer, plain, bytes, packed);
    o.stored_digest = sl_digest(w->repo->digest_seed, packed, o.stored_bytes);
    sl_packer_free(packer);
    int rc = sl_draft_block(draft, &o, ret_offset, NULL);
    if (rc == 0) {
        struct sl_file *file = sl_draft_file(draft);
        uint8_t *page = sl_pages_alloc(SL_BLOCK_BYTES);
        memcpy(page, packed, o.stored_bytes);
        assert_int_equal(
            file->store->ops->write(file, page, sl_align_up(o.stored_bytes), *ret_offset, NULL), 0);
        sl_pages_free(page, SL_BLOCK_BYTES);
    }
    return rc;
}

static int publish(struct world *w, struct sl_object_draft *draft)
{
    struct sl_repo_publish item = {.draft = draft};
    sl_repo_publish(w->repo, &item, 1);
    return item.code;
}

static void draft__packed_blocks__lie_behind_one_another(void **state)
{
    struct world *w = *state;
    static const uint8_t fills[4] = {'a', 0, 'c', 'd'};
    struct sl_object_draft *draft = draft_new(w, 0);
    uint64_t at = 99, behind;
    assert_int_equal(enter_packed(w, draft, 0, SL_BLOCK_BYTES, 'a', 'a', &at), 0);
    assert_int_equal(at, 0);
    assert_int_equal(enter(w, draft, 2, SL_BLOCK_BYTES, 'c', &at), SL_ERR_PROTOCOL); /* a gap */
    assert_int_equal(enter(w, draft, 1, SL_BLOCK_BYTES, 0, &at), 0);
    assert_int_equal(enter(w, draft, 2, SL_BLOCK_BYTES, 'c', &behind), 0);
    assert_int_equal(behind % 4096, 0);
    assert_in_range(behind, SL_BLOCK_BYTES + 4096, SL_BLOCK_BYTES + 3 * 4096);
    write_at(draft, behind, SL_BLOCK_BYTES, 'c');
    assert_int_equal(enter_packed(w, draft, 3, 77777, 'd', 'd', &at), 0);
    assert_int_equal(at, behind + SL_BLOCK_BYTES);
    struct sl_id digest = digest_of(w, fills, 4, 77777);
    uint64_t length = 3 * SL_BLOCK_BYTES + 77777;
    assert_int_equal(sl_draft_finish(draft, length, 0, &digest, NULL), 0);
    assert_int_equal(publish(w, draft), 0);
    sl_draft_free(draft);

    char *bytes;
    size_t count;
    assert_int_equal(sl_repo_fetch(w->repo, NAME, 8u << 20, &bytes, &count, NULL), 0);
    assert_int_equal(count, length);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(bytes[(size_t)i * SL_BLOCK_BYTES + 77776], fills[i]);
    sl_free(bytes);

    draft = draft_new(w, 0); /* the same content stored plain is the same */
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t some = i == 3 ? 77777 : SL_BLOCK_BYTES;
        assert_int_equal(enter(w, draft, i, some, fills[i], &at), 0);
        if (fills[i])
            write_at(draft, at, some, fills[i]);
    }
    assert_int_equal(sl_draft_finish(draft, length, 0, &digest, NULL), 0);
    struct sl_repo_publish item = {.draft = draft};
    sl_repo_publish(w->repo, &item, 1);
    assert_int_equal(item.code, 0);
    assert_int_equal(item.outcome, SL_STORED_IDENTICAL);
    sl_draft_free(draft);
}

/* A client packed something else than what it took the digest of: stored as it came, found by
 * whoever unpacks it. */
static void draft__packed_block_of_other_content__found_when_read(void **state)
{
    struct world *w = *state;
    static const uint8_t fills[1] = {'a'};
    struct sl_object_draft *draft = draft_new(w, 0);
    uint64_t at;
    assert_int_equal(enter_packed(w, draft, 0, SL_BLOCK_BYTES, 'a', 'b', &at), 0);
    struct sl_id digest = digest_of(w, fills, 1, SL_BLOCK_BYTES);
    assert_int_equal(sl_draft_finish(draft, SL_BLOCK_BYTES, 0, &digest, NULL), 0);
    assert_int_equal(publish(w, draft), 0);
    sl_draft_free(draft);
    char *bytes;
    size_t count;
    struct sl_err err;
    assert_int_equal(sl_repo_fetch(w->repo, NAME, 8u << 20, &bytes, &count, &err), SL_ERR_CHECKSUM);
    assert_non_null(strstr(err.msg, "does not unpack to what it was"));
    struct sl_repo_verify verify = {0};
    assert_int_equal(sl_repo_verify(w->repo, "main", &verify, NULL), 0);
    assert_int_equal(verify.damaged, 1);
}

static void draft_finish__what_does_not_fit__is_refused(void **state)
{
    struct world *w = *state;
    static const uint8_t fills[3] = {'a', 'b', 'c'};
    struct sl_id digest = digest_of(w, fills, 3, 50), other = digest;
    other.bytes[15] ^= 1;
    struct sl_object_draft *draft = draft_new(w, 0);
    uint64_t at, length = 2 * SL_BLOCK_BYTES + 50;
    assert_int_equal(enter(w, draft, 0, SL_BLOCK_BYTES, 'a', &at), 0);
    assert_int_equal(enter(w, draft, 2, 50, 'c', &at), 0);
    assert_int_equal(sl_draft_finish(draft, length, 0, &digest, NULL), SL_ERR_PROTOCOL); /* a gap */
    assert_int_equal(enter(w, draft, 1, SL_BLOCK_BYTES, 'b', &at), 0);
    assert_int_equal(sl_draft_finish(draft, length - 1, 0, &digest, NULL), SL_ERR_PROTOCOL);
    assert_int_equal(sl_draft_finish(draft, length + 1, 0, &digest, NULL), SL_ERR_PROTOCOL);
    assert_int_equal(sl_draft_finish(draft, SL_BLOCK_BYTES, 0, &digest, NULL), SL_ERR_PROTOCOL);
    assert_int_equal(sl_draft_finish(draft, length + SL_BLOCK_BYTES, 0, &digest, NULL),
                     SL_ERR_PROTOCOL);
    assert_int_equal(sl_draft_finish(draft, 0, 0, &digest, NULL), SL_ERR_PROTOCOL);
    assert_int_equal(sl_draft_finish(draft, UINT64_MAX, 0, &digest, NULL), SL_ERR_LIMIT);
    assert_int_equal(sl_draft_finish(draft, length, length + 1, &digest, NULL), SL_ERR_PROTOCOL);
    struct sl_err err;
    assert_int_equal(sl_draft_finish(draft, length, 0, &other, &err), SL_ERR_CHECKSUM);
    char text[SL_ID_TEXT];
    assert_non_null(strstr(err.msg, sl_id_text(&other, text)));
    assert_non_null(strstr(err.msg, sl_id_text(&digest, text)));
    struct sl_repo_publish item = {.draft = draft};
    sl_repo_publish(w->repo, &item, 1); /* not finished */
    assert_int_equal(item.code, SL_ERR_INTERNAL);
    assert_int_equal(sl_draft_finish(draft, length, 0, &digest, NULL), 0);
    assert_int_equal(sl_draft_finish(draft, length, 0, &digest, NULL), SL_ERR_PROTOCOL);
    assert_int_equal(enter(w, draft, 3, SL_BLOCK_BYTES, 'b', &at), SL_ERR_PROTOCOL);
    sl_draft_free(draft);
    struct sl_trailer trailer; /* nothing is visible of it */
    assert_int_equal(sl_object_stat(w->repo, NAME, &trailer, NULL), SL_ERR_NOT_FOUND);
}

static void draft_new__bad_names__are_refused(void **state)
{
    struct world *w = *state;
    char name[SL_FULL_NAME_MAX + 8];
    memset(name, 'x', sizeof name);
    name[SL_FULL_NAME_MAX] = '\0';
    struct sl_object_draft *draft;
    assert_int_equal(sl_draft_new(w->repo, name, 0, NULL, &draft, NULL), SL_ERR_USAGE);
    assert_int_equal(sl_draft_new(w->repo, "", 0, NULL, &draft, NULL), SL_ERR_USAGE);
    assert_int_equal(sl_draft_new(w->repo, "../x", 0, NULL, &draft, NULL), SL_ERR_USAGE);
    sl_draft_free(NULL);
}

/* A stream whose length nobody knew: the table grows with it, in and out of order. */
static void draft__three_thousand_blocks__are_kept(void **state)
{
    struct world *w = *state;
    struct sl_object_draft *draft = draft_new(w, 0);
    struct sl_offer zero = offer(w, 0, SL_BLOCK_BYTES, 0);
    const uint32_t blocks = 3000;
    struct sl_id *leaves = calloc(blocks, sizeof *leaves);
    for (uint32_t i = 0; i < blocks; i++) {
        uint64_t at;
        zero.block = i ^ 1;
        leaves[i] = zero.plain_digest;
        assert_int_equal(sl_draft_block(draft, &zero, &at, NULL), 0);
    }
    struct sl_id digest = sl_digest_content(w->repo->digest_seed, leaves, blocks);
    assert_int_equal(sl_draft_finish(draft, (uint64_t)blocks * SL_BLOCK_BYTES, 0, &digest, NULL),
                     0);
    if (w->folder[0]) { /* 3 GB of hole; in memory they would be memory */
        struct sl_repo_publish item = {.draft = draft};
        sl_repo_publish(w->repo, &item, 1);
        assert_int_equal(item.code, 0);
        struct sl_object *object;
        assert_int_equal(sl_object_open(w->repo, NAME, &object, NULL), 0);
        assert_int_equal(object->trailer.blocks, blocks);
        sl_object_close(object);
    }
    sl_draft_free(draft);
    free(leaves);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(draft__blocks_in_any_order__become_the_object),
        BOTH(draft_block__what_cannot_be__is_refused),
        BOTH(draft__packed_blocks__lie_behind_one_another),
        BOTH(draft__packed_block_of_other_content__found_when_read),
        BOTH(draft_finish__what_does_not_fit__is_refused),
        BOTH(draft_new__bad_names__are_refused),
        BOTH(draft__three_thousand_blocks__are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
