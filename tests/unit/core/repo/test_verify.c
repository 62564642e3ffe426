/* Verify: a repository with WAL-like objects and a backup, damaged in every way: the right object
 * is named, and nobody is given wrong bytes. */
#include "tests/unit/core/repo/repo_support.h"

#include "core/base/log.h"
#include "core/repo/manifest.h"

#define LABEL  "20261130-162537F"
#define BACKUP "main/backup/" LABEL
#define SMALL  "main/wal/7301/00000001/0000000100000000/00000002.history"
#define BIG    "main/wal/7301/00000001/0000000100000000/000000010000000000000001"

/* --- a backup -------------------------------------------------------------------------------- */

struct bytes {
    uint8_t at[1 << 16];
    size_t count;
};

static int to_bytes(void *arg, const void *bytes, size_t count, struct sl_err *err)
{
    struct bytes *b = arg;
    (void)err;
    assert_true(b->count + count <= sizeof b->at);
    memcpy(b->at + b->count, bytes, count);
    b->count += count;
    return 0;
}

/* sl_repo_put() knows no index, so packs are made by hand. */
static struct sl_id put_pack(struct world *w, const char *name, const uint8_t *content,
                             size_t count, size_t index_bytes)
{
    struct sl_object_draft *draft;
    uint64_t at;
    uint8_t *page = sl_pages_alloc(SL_BLOCK_BYTES);
    memcpy(page, content, count);
    struct sl_id leaf = sl_digest(w->repo->digest_seed, page, count);
    struct sl_id digest = sl_digest_content(w->repo->digest_seed, &leaf, 1);
    struct sl_offer o = {.stored_bytes = (uint32_t)count,
                         .plain_bytes = (uint32_t)count,
                         .plain_digest = leaf,
                         .stored_digest = leaf};
    assert_int_equal(sl_draft_new(w->repo, name, count, "tester", &draft, NULL), 0);
    assert_int_equal(sl_draft_block(draft, &o, &at, NULL), 0);
    assert_int_equal(w->store->ops->write(sl_draft_file(draft), page, sl_align_up(count), 0, NULL),
                     0);
    assert_int_equal(sl_draft_finish(draft, count, index_bytes, &digest, NULL), 0);
    struct sl_repo_publish item = {.draft = draft};
    sl_repo_publish(w->repo, &item, 1);
    assert_int_equal(item.code, 0);
    sl_draft_free(draft);
    sl_pages_free(page, SL_BLOCK_BYTES);
    return digest;
}

struct merging {
    struct sl_manifest_writer *writer;
};

static int write_merged(void *arg, const struct sl_manifest_entry *entry, struct sl_err *err)
{
    return sl_manifest_write_entry(((struct merging *)arg)->writer, entry, err);
}

enum flaw { SOUND, EXTENT_IN_INDEX, INDEX_BEYOND, OTHER_LABEL, OTHER_DIGEST };

/* Two packs of three files, and their manifest; `flaw` makes one that only a reader of its meaning
 * can find. */
static void put_backup(struct world *w, enum flaw flaw)
{
    static struct bytes pack, manifest;
    struct sl_fragment *f;
    struct sl_manifest_pack packs[2] = {0};
    manifest.count = 0;
    assert_int_equal(sl_fragment_new(NULL, &f, NULL), 0);
    struct sl_manifest_entry *e = calloc(1, sizeof *e);
    struct sl_extent extent = {0};
    e->kind = SL_ENTRY_FILE;
    e->extents = &extent;
    e->extent_count = 1;
    for (uint32_t number = 1; number <= 2; number++) {
        uint64_t mark = sl_fragment_mark(f), index_bytes;
        uint8_t *content = content_new(3000, number);
        pack.count = 0;
        to_bytes(&pack, content, 3000, NULL);
        free(content);
        for (uint32_t i = 0; i < 3; i++) {
            snprintf(e->path, sizeof e->path, "base/%u/%u", number, i);
            e->size = 1000;
            extent = (struct sl_extent){0, 1000, i * 1000, number};
            if (i == 2 && number == 2 && (flaw == INDEX_BEYOND || flaw == EXTENT_IN_INDEX))
                extent.pack_offset = 2001; /* one byte in the index */
            assert_int_equal(sl_fragment_add(f, e, NULL), 0);
        }
        assert_int_equal(sl_fragment_index(f, mark, to_bytes, &pack, &index_bytes, NULL), 0);
        /* with an odd name its number is not known: then only the manifest can be wrong */
        struct sl_manifest_pack *record = &packs[number - 1];
        char full[SL_NAME_MAX + 8];
        record->number = number;
        snprintf(record->name, sizeof record->name, "backup/" LABEL "/pack-%s%u",
                 flaw == EXTENT_IN_INDEX && number == 2 ? "x" : "000", number);
        snprintf(full, sizeof full, "main/%s", record->name);
        record->length = pack.count;
        record->digest = put_pack(w, full, pack.at, pack.count, index_bytes);
    }
    if (flaw == OTHER_DIGEST)
        packs[1].digest.bytes[0] ^= 1;
    struct merging m;
    assert_int_equal(sl_manifest_writer_new(to_bytes, &manifest,
                                            flaw == OTHER_LABEL ? "20261130-162538F" : LABEL, "",
                                            "{}", &m.writer, NULL),
                     0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sl_manifest_write_pack(m.writer, &packs[i], NULL), 0);
    assert_int_equal(sl_fragments_merge(&f, 1, write_merged, &m, NULL), 0);
    assert_int_equal(sl_manifest_write_end(m.writer, NULL), 0);
    sl_manifest_writer_free(m.writer);
    sl_fragment_free(f);
    free(e);
    assert_int_equal(
        sl_repo_put(w->repo, BACKUP "/open", "{\"version\":1}\n", 14, "tester", NULL, NULL), 0);
    assert_int_equal(
        sl_repo_put(w->repo, BACKUP "/manifest", manifest.at, manifest.count, "tester", NULL, NULL),
        0);
}

static const char *const names[] = {
    "main/backup/" LABEL "/manifest",
    "main/backup/" LABEL "/open",
    "main/backup/" LABEL "/pack-0001",
    "main/backup/" LABEL "/pack-0002",
    "main/stanza.json",
    SMALL,
    BIG,
    "repo.json",
};
#define NAMES (sizeof names / sizeof *names)

/* The whole: eight objects, one of them of two blocks and a hole. */
static void fill(struct world *w)
{
    uint8_t *big = content_new(3 * SL_BLOCK_BYTES - 1000, 9);
    memset(big + SL_BLOCK_BYTES, 0, SL_BLOCK_BYTES);
    put_ok(w, SMALL, 40, 5);
    assert_int_equal(
        sl_repo_put(w->repo, BIG, big, 3 * SL_BLOCK_BYTES - 1000, "tester", NULL, NULL), 0);
    free(big);
    struct sl_stanza s = {.engine = "postgres", .life_count = 1, .lives = {{"7301", "15", 1}}};
    char *json;
    assert_int_equal(sl_stanza_encode(&s, &json, NULL), 0);
    assert_int_equal(
        sl_repo_put(w->repo, "main/stanza.json", json, strlen(json), "tester", NULL, NULL), 0);
    sl_free(json);
    put_backup(w, SOUND);
}

/* --- sound ----------------------------------------------------------------------------------- */

static void verify__sound_repository__has_no_damage(void **state)
{
    struct world *w = *state;
    struct found found;
    uint64_t objects;
    fill(w);
    verify(w, "", &found, &objects);
    assert_int_equal(found.count, 0);
    assert_int_equal(objects, NAMES);
    assert_true(found.steps >= NAMES);
    verify(w, "main", &found, &objects);
    assert_int_equal(objects, NAMES - 1);
    verify(w, BACKUP, &found, &objects);
    assert_int_equal(objects, 4);
    verify(w, BIG, &found, &objects); /* one object */
    assert_int_equal(objects, 1);
    assert_int_equal(found.count, 0);
    struct sl_repo_verify v = {0};
    assert_int_equal(sl_repo_verify(w->repo, "none", &v, NULL), SL_ERR_NOT_FOUND);
}

static void verify__bytes__are_those_of_the_files(void **state)
{
    struct world *w = *state;
    uint64_t total = 0;
    fill(w);
    for (size_t i = 0; i < NAMES; i++) {
        size_t count;
        free(file_get(w, names[i], &count));
        total += count;
    }
    struct sl_repo_verify v = {0};
    assert_int_equal(sl_repo_verify(w->repo, "", &v, NULL), 0);
    assert_true(v.bytes == total);
}

static int stop_third(void *arg, uint64_t objects, uint64_t bytes, uint64_t damaged)
{
    (void)arg;
    (void)bytes;
    (void)damaged;
    return objects == 3 ? SL_ERR_CANCELLED : 0;
}

static void verify__step_that_stops__ends_the_walk(void **state)
{
    struct world *w = *state;
    struct sl_err err = {0};
    struct sl_repo_verify v = {.step = stop_third};
    fill(w);
    assert_int_equal(sl_repo_verify(w->repo, "", &v, &err), SL_ERR_CANCELLED);
    assert_int_equal(err.code, SL_ERR_CANCELLED);
    assert_int_equal(v.objects, 3);
}

/* --- flipped bits ---------------------------------------------------------------------------- */

/* Verify names exactly this object; reading gives the right bytes or none. */
static void expect_found(struct world *w, const char *scope, const char *name, const char *right,
                         size_t right_count)
{
    struct found found;
    verify(w, scope, &found, NULL);
    if (found.count != 1 || strcmp(found.names[0], name) != 0)
        for (unsigned i = 0; i < found.count && i < FOUND_MAX; i++)
            print_message("found %s: %s\n", found.names[i], found.texts[i]);
    assert_int_equal(found.count, 1);
    assert_string_equal(found.names[0], name);
    char *got;
    size_t count;
    int rc = sl_repo_fetch(w->repo, name, 64u << 20, &got, &count, NULL);
    assert_true(rc < 0); /* fetch checks the whole */
    struct sl_object *object;
    if (sl_object_open(w->repo, name, &object, NULL) < 0)
        return;
    uint8_t *block = sl_pages_alloc(SL_BLOCK_BYTES);
    for (uint32_t i = 0; i < object->trailer.blocks; i++)
        if (sl_object_block(object, i, block, &count, NULL) == 0)
            assert_memory_equal(block, right + (size_t)i * SL_BLOCK_BYTES, count);
    assert_int_equal(object->trailer.length, right_count);
    sl_pages_free(block, SL_BLOCK_BYTES);
    sl_object_close(object);
}

static void flip(struct world *w, const char *name, size_t bit)
{
    size_t count;
    uint8_t *bytes = sl_memory_store_bytes(w->store, name, &count);
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
}

/* The next bit to flip: every one of bytes that say something, one in each byte of padding, where
 * all are the same. */
static size_t next_bit(const uint8_t *bytes, size_t bit)
{
    return bytes[bit / 8] ? bit + 1 : bit + 8 + (bit / 8) % 8 - bit % 8;
}

static void verify__each_bit_of_small_objects__is_found(void **state)
{
    struct world *w = *state;
    static const char *const small[] = {SMALL, BACKUP "/manifest", "main/stanza.json"};
    fill(w);
    put_ok(w, "main/empty", 0, 0);
    for (size_t i = 0; i < 4; i++) {
        const char *name = i < 3 ? small[i] : "main/empty";
        size_t count, right_count;
        char *right;
        assert_int_equal(sl_repo_fetch(w->repo, name, 1 << 20, &right, &right_count, NULL), 0);
        const uint8_t *bytes = sl_memory_store_bytes(w->store, name, &count);
        for (size_t bit = 0; bit < count * 8; bit = next_bit(bytes, bit)) {
            flip(w, name, bit);
            expect_found(w, name, name, right, right_count);
            flip(w, name, bit);
        }
        sl_free(right);
    }
    struct found found;
    verify(w, "", &found, NULL);
    assert_int_equal(found.count, 0);
}

/* repo.json tells the seed by which it is checked itself. */
static void repo_open__each_bit_of_repo_json__is_found(void **state)
{
    struct world *w = *state;
    size_t count;
    const uint8_t *bytes = sl_memory_store_bytes(w->store, "repo.json", &count);
    for (size_t bit = 0; bit < count * 8; bit = next_bit(bytes, bit)) {
        struct sl_repo *repo;
        flip(w, "repo.json", bit);
        assert_true(sl_repo_open(w->store, true, &repo, NULL) < 0);
        flip(w, "repo.json", bit);
    }
}

static void verify__200_random_bits__are_found_in_the_whole(void **state)
{
    struct world *w = *state;
    uint64_t x = 88172645463325252ull; /* xorshift64, fixed: a failure can be repeated */
    char *right[NAMES];
    size_t right_count[NAMES], count;
    fill(w);
    for (size_t i = 0; i < NAMES; i++)
        assert_int_equal(
            sl_repo_fetch(w->repo, names[i], 64u << 20, &right[i], &right_count[i], NULL), 0);
    for (int round = 0; round < 200; round++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        size_t i = (size_t)(x >> 20) % NAMES;
        uint8_t *file = file_get(w, names[i], &count);
        size_t bit = (size_t)(x >> 3) % (count * 8);
        file[bit / 8] ^= (uint8_t)(1 << bit % 8);
        file_put(w, names[i], file, count);
        expect_found(w, "", names[i], right[i], right_count[i]);
        file[bit / 8] ^= (uint8_t)(1 << bit % 8);
        file_put(w, names[i], file, count);
        free(file);
    }
    for (size_t i = 0; i < NAMES; i++)
        sl_free(right[i]);
}

/* --- what digests do not find ---------------------------------------------------------------- */

static void verify__hole_padding_and_gaps__must_be_zero(void **state)
{
    struct world *w = *state;
    /* in the hole: first, middle, last byte; in the padding behind the last block */
    static const size_t places[] = {SL_BLOCK_BYTES, SL_BLOCK_BYTES + 12345, 2 * SL_BLOCK_BYTES - 1,
                                    3 * SL_BLOCK_BYTES - 1000, 3 * SL_BLOCK_BYTES - 1};
    struct found found;
    size_t count;
    fill(w);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        uint8_t *file = file_get(w, BIG, &count);
        assert_int_equal(file[places[i]], 0);
        file[places[i]] = 0x10;
        file_put(w, BIG, file, count);
        verify(w, "", &found, NULL);
        assert_int_equal(found.count, 1);
        assert_string_equal(found.names[0], BIG);
        file[places[i]] = 0;
        file_put(w, BIG, file, count);
        free(file);
    }
}

static void verify__files_that_are_none_of_ours__are_damage(void **state)
{
    struct world *w = *state;
    struct found found;
    uint64_t objects;
    size_t count;
    fill(w);
    uint8_t *file = file_get(w, SMALL, &count);
    file_put(w, "main/wal/README", "hello", 5);
    file_put(w, "main/wal/empty", "", 0);
    file_put(w, "main/wal/zeros", "", 1);
    file_put(w, "main/wal/copy", file, count);
    verify(w, "", &found, &objects);
    assert_int_equal(found.count, 4);
    assert_int_equal(objects, NAMES + 4);
    static const char *const expected[] = {"main/wal/README", "main/wal/copy", "main/wal/empty",
                                           "main/wal/zeros"};
    for (int i = 0; i < 4; i++) {
        assert_string_equal(found.names[i], expected[i]); /* bytewise order */
        assert_int_equal(found.codes[i], i == 1 ? SL_ERR_REPO : SL_ERR_FORMAT);
        assert_null(strstr(found.texts[i], expected[i])); /* named once */
    }
    free(file);
}

static void verify__missing_pack__is_named(void **state)
{
    struct world *w = *state;
    struct found found;
    fill(w);
    file_remove(w, BACKUP "/pack-0002");
    for (int i = 0; i < 3; i++) {
        static const char *const scopes[] = {"", BACKUP, BACKUP "/manifest"};
        verify(w, scopes[i], &found, NULL);
        assert_int_equal(found.count, 1);
        assert_string_equal(found.names[0], BACKUP "/pack-0002");
        assert_int_equal(found.codes[0], SL_ERR_NOT_FOUND);
        assert_non_null(strstr(found.texts[0], BACKUP "/manifest"));
    }
}

/* The verifier had read the manifest when expire began to remove. */
static void verify__missing_pack_of_a_marked_backup__is_no_damage(void **state)
{
    struct world *w = *state;
    struct found found;
    fill(w);
    file_remove(w, BACKUP "/pack-0002");
    assert_int_equal(sl_repo_put(w->repo, BACKUP "/expired", "x", 1, NULL, NULL, NULL), 0);
    verify(w, "", &found, NULL);
    assert_int_equal(found.count, 0);
}

static void verify__damaged_pack_outside_the_walk__is_named(void **state)
{
    struct world *w = *state;
    struct found found;
    size_t count;
    fill(w);
    uint8_t *file = file_get(w, BACKUP "/pack-0001", &count);
    file[count - 4000] ^= 1;
    file_put(w, BACKUP "/pack-0001", file, count);
    free(file);
    verify(w, BACKUP "/manifest", &found, NULL);
    assert_int_equal(found.count, 1);
    assert_string_equal(found.names[0], BACKUP "/pack-0001");
    verify(w, "", &found, NULL); /* once, not twice */
    assert_int_equal(found.count, 1);
}

static void verify__backup_that_makes_no_sense__is_damage(void **state)
{
    struct world *w = *state;
    static const struct {
        enum flaw flaw;
        const char *name;
    } cases[] = {
        {EXTENT_IN_INDEX, BACKUP "/manifest"},
        {INDEX_BEYOND, BACKUP "/pack-0002"},
        {OTHER_LABEL, BACKUP "/manifest"},
        {OTHER_DIGEST, BACKUP "/pack-0002"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct found found;
        put_backup(w, cases[i].flaw);
        verify(w, "", &found, NULL);
        bool named = false;
        for (unsigned k = 0; k < found.count; k++)
            named |= !strcmp(found.names[k], cases[i].name);
        assert_true(named);
        assert_true(found.count == (cases[i].flaw == INDEX_BEYOND ? 2 : 1));
        static const char *const parts[] = {"manifest", "open", "pack-0001", "pack-0002",
                                            "pack-x2"};
        for (size_t k = 0; k < 5; k++) {
            char name[SL_FULL_NAME_MAX];
            snprintf(name, sizeof name, BACKUP "/%s", parts[k]);
            file_remove(w, name);
        }
    }
}

static void verify__manifest_that_is_none__is_damage(void **state)
{
    struct world *w = *state;
    struct found found;
    put_ok(w, BACKUP "/manifest", 3 * SL_BLOCK_BYTES, 4);
    put_ok(w, "main/backup/" LABEL "_20270101-000000D/manifest", 0, 4);
    verify(w, "", &found, NULL);
    assert_int_equal(found.count, 2);
    assert_string_equal(found.names[0], BACKUP "/manifest");
    assert_int_equal(found.codes[0], SL_ERR_FORMAT);
}

static char logged[512];

static void log_sink(void *arg, enum sl_log_level level, const char *component, const char *text,
                     const char *hint)
{
    (void)arg;
    (void)component;
    (void)hint;
    if (level == SL_LOG_DETAIL)
        snprintf(logged, sizeof logged, "%s", text);
}

static void verify__packs_without_manifest__are_no_damage_but_logged(void **state)
{
    struct world *w = *state;
    struct found found;
    fill(w);
    file_remove(w, BACKUP "/manifest");
    logged[0] = '\0';
    sl_log_set(log_sink, NULL, SL_LOG_DETAIL);
    verify(w, "", &found, NULL);
    sl_log_set(NULL, NULL, SL_LOG_INFO);
    assert_int_equal(found.count, 0);
    assert_non_null(strstr(logged, "2 packs"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(verify__sound_repository__has_no_damage),
        BOTH(verify__bytes__are_those_of_the_files),
        BOTH(verify__step_that_stops__ends_the_walk),
        cmocka_unit_test_setup_teardown(verify__each_bit_of_small_objects__is_found, setup_memory,
                                        teardown),
        cmocka_unit_test_setup_teardown(repo_open__each_bit_of_repo_json__is_found, setup_memory,
                                        teardown),
        BOTH(verify__200_random_bits__are_found_in_the_whole),
        BOTH(verify__hole_padding_and_gaps__must_be_zero),
        BOTH(verify__files_that_are_none_of_ours__are_damage),
        BOTH(verify__missing_pack__is_named),
        BOTH(verify__missing_pack_of_a_marked_backup__is_no_damage),
        BOTH(verify__damaged_pack_outside_the_walk__is_named),
        BOTH(verify__backup_that_makes_no_sense__is_damage),
        BOTH(verify__manifest_that_is_none__is_damage),
        BOTH(verify__packs_without_manifest__are_no_damage_but_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
