/* The manifest's writer and reader: round trips in pieces of any size, every truncation, every
 * flipped bit, every rule broken. */
#include "tests/unit/core/repo/manifest_support.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"

#include <openssl/evp.h>

#define LABEL "20261130-162537F"

/* What a reading saw, as text. */
struct seen {
    char text[8192];
    size_t used;
    uint64_t entries, bytes;
};

static void note(struct seen *seen, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(seen->text + seen->used, sizeof seen->text - seen->used, fmt, args);
    va_end(args);
    assert_true(n >= 0 && seen->used + (size_t)n < sizeof seen->text);
    seen->used += (size_t)n;
}

static int see_header(void *arg, const char *label, const char *prior, const char *json)
{
    note(arg, "header %s [%s] %s\n", label, prior, json);
    return 0;
}

static int see_pack(void *arg, const struct sl_manifest_pack *pack)
{
    note(arg, "pack %u %s %lu %02x\n", pack->number, pack->name, (unsigned long)pack->length,
         pack->digest.bytes[15]);
    return 0;
}

static int see_entry(void *arg, const struct sl_manifest_entry *e)
{
    note(arg, "%u %s>%s %u %o %u %u %lu %lu %08x", e->kind, e->path, e->link, e->flags, e->mode,
         e->uid, e->gid, (unsigned long)e->size, (unsigned long)e->mtime_ns, e->crc32c);
    for (uint32_t i = 0; i < e->extent_count; i++)
        note(arg, " %lu+%lu@%u:%lu", (unsigned long)e->extents[i].offset,
             (unsigned long)e->extents[i].length, e->extents[i].pack,
             (unsigned long)e->extents[i].pack_offset);
    note(arg, "\n");
    return 0;
}

/* Feed in pieces of `piece` bytes, each on the heap by itself. */
static int read_all(const uint8_t *at, size_t count, size_t piece, struct seen *seen,
                    struct sl_err *err)
{
    struct sl_manifest_visitor visitor = {see_header, see_pack, see_entry, seen};
    struct sl_manifest_reader *r;
    memset(seen, 0, sizeof *seen);
    int rc = sl_manifest_reader_new(&visitor, &r, err);
    if (rc)
        return rc;
    while (rc == 0 && count) {
        size_t n = count < piece ? count : piece;
        uint8_t *copy = malloc(n);
        memcpy(copy, at, n);
        rc = sl_manifest_feed(r, copy, n, err);
        free(copy);
        at += n;
        count -= n;
    }
    if (rc == 0)
        rc = sl_manifest_finish(r, &seen->entries, &seen->bytes, err);
    else
        assert_int_equal(sl_manifest_finish(r, NULL, NULL, NULL), rc); /* it stays refused */
    sl_manifest_reader_free(r);
    return rc;
}

static int write_sample_to(struct sl_manifest_writer *w, struct sl_err *err)
{
    struct sl_manifest_pack packs[] = {
        {1, "backup/" LABEL "/pack-0001", 5000, {{[15] = 0x11}}},
        {3, "backup/20261101-000000F/pack-0007", 1000, {{[15] = 0x33}}},
    };
    struct sl_manifest_entry *folder = entry_new(SL_ENTRY_FOLDER, "base");
    struct sl_manifest_entry *file = entry_new(SL_ENTRY_FILE, "base/1");
    struct sl_manifest_entry *empty = entry_new(SL_ENTRY_FILE, "base/\xff\n\"odd name");
    struct sl_manifest_entry *link = entry_new(SL_ENTRY_LINK, "pg_tblspc/16384");
    file->size = 6000;
    file->flags = SL_ENTRY_HAS_CRC32C;
    file->crc32c = 0xdeadbeef;
    extent_add(file, 0, 4096, 1, 904);
    extent_add(file, 4096, 904, 0, 0);
    extent_add(file, 5000, 1000, 3, 0);
    snprintf(link->link, sizeof link->link, "/srv/../space");
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < 2; i++)
        rc = sl_manifest_write_pack(w, &packs[i], err);
    if (rc == 0)
        rc = sl_manifest_write_entry(w, folder, err);
    if (rc == 0)
        rc = sl_manifest_write_entry(w, file, err);
    if (rc == 0)
        rc = sl_manifest_write_entry(w, empty, err);
    if (rc == 0)
        rc = sl_manifest_write_entry(w, link, err);
    if (rc == 0)
        rc = sl_manifest_write_end(w, err);
    entry_free(folder);
    entry_free(file);
    entry_free(empty);
    entry_free(link);
    return rc;
}

static int write_sample(struct bytes *to, struct sl_err *err)
{
    struct sl_manifest_writer *w;
    int rc = sl_manifest_writer_new(to_bytes, to, LABEL, "", "{\"lsn\":\"0/2000028\"}", &w, err);
    if (rc)
        return rc;
    rc = write_sample_to(w, err);
    sl_manifest_writer_free(w);
    return rc;
}

static const char sample_seen[] =
    "header " LABEL " [] {\"lsn\":\"0/2000028\"}\n"
    "pack 1 backup/" LABEL "/pack-0001 5000 11\n"
    "pack 3 backup/20261101-000000F/pack-0007 1000 33\n"
    "2 base> 0 600 1 2 0 3 00000000\n"
    "1 base/1> 1 600 1 2 6000 3 deadbeef 0+4096@1:904 4096+904@0:0 5000+1000@3:0\n"
    "1 base/\xff\n\"odd name> 0 600 1 2 0 3 00000000\n"
    "3 pg_tblspc/16384>/srv/../space 0 600 1 2 0 3 00000000\n";

static void manifest__in_pieces_of_any_size__is_what_was_written(void **state)
{
    (void)state;
    struct bytes b = {0};
    static struct seen seen;
    assert_int_equal(write_sample(&b, NULL), 0);
    for (size_t piece = 1; piece <= b.count; piece++) {
        assert_int_equal(read_all(b.at, b.count, piece, &seen, NULL), 0);
        assert_string_equal(seen.text, sample_seen);
        assert_int_equal(seen.entries, 4);
        assert_int_equal(seen.bytes, 6000);
    }
    free(b.at);
}

static void manifest__cut_anywhere__is_refused(void **state)
{
    (void)state;
    struct bytes b = {0};
    static struct seen seen;
    struct sl_err err;
    assert_int_equal(write_sample(&b, NULL), 0);
    for (size_t count = 0; count < b.count; count++)
        for (size_t piece = 7; piece < 5000; piece *= 20) {
            err.code = 0;
            assert_int_equal(read_all(b.at, count, piece, &seen, &err), SL_ERR_FORMAT);
            assert_int_equal(err.code, SL_ERR_FORMAT);
        }
    free(b.at);
}

static void manifest__trailing_bytes__are_refused(void **state)
{
    (void)state;
    struct bytes b = {0};
    static struct seen seen;
    assert_int_equal(write_sample(&b, NULL), 0);
    size_t whole = b.count;
    to_bytes(&b, "\0", 1, NULL);
    for (size_t piece = 1; piece <= b.count; piece++)
        assert_int_equal(read_all(b.at, b.count, piece, &seen, NULL), SL_ERR_FORMAT);
    b.count = whole;
    b.room = 2 * whole;
    b.at = realloc(b.at, b.room);
    to_bytes(&b, b.at, whole, NULL); /* twice the same */
    assert_int_equal(read_all(b.at, b.count, 100, &seen, NULL), SL_ERR_FORMAT);
    free(b.at);
}

static void manifest__any_bit_flipped__is_refused(void **state)
{
    (void)state;
    struct bytes b = {0};
    static struct seen seen;
    assert_int_equal(write_sample(&b, NULL), 0);
    for (size_t bit = 0; bit < b.count * 8; bit++) {
        b.at[bit / 8] ^= (uint8_t)(1 << bit % 8);
        int rc = read_all(b.at, b.count, 64, &seen, NULL);
        assert_true(rc == SL_ERR_FORMAT || rc == SL_ERR_CHECKSUM || rc == SL_ERR_VERSION ||
                    rc == SL_ERR_LIMIT);
        b.at[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_int_equal(read_all(b.at, b.count, 64, &seen, NULL), 0);
    free(b.at);
}

/* The bytes of the specification, made by hand. */
static void manifest__bytes__are_those_of_the_documentation(void **state)
{
    (void)state;
    struct bytes b = {0};
    struct sl_manifest_writer *w;
    assert_int_equal(sl_manifest_writer_new(to_bytes, &b, LABEL, NULL, NULL, &w, NULL), 0);
    struct sl_manifest_entry *e = entry_new(SL_ENTRY_FILE, "a");
    e->size = 5;
    extent_add(e, 0, 5, 0, 0);
    assert_int_equal(sl_manifest_write_entry(w, e, NULL), 0);
    assert_int_equal(sl_manifest_write_end(w, NULL), 0);
    entry_free(e);
    sl_manifest_writer_free(w);

    uint8_t expected[512];
    struct sl_writer x = sl_writer_on(expected, sizeof expected);
    sl_write_bytes(&x, "\x01\x1c\0\0\0", 5);
    sl_write_bytes(&x, "\x01\0\x10\0" LABEL "\0\0\x02\0\0\0{}", 28);
    sl_write_bytes(&x, "\x03\x47\0\0\0", 5);
    sl_write_bytes(&x, "\x01\0\x80\x01\0\0\x01\0\0\0\x02\0\0\0", 14);
    sl_write_bytes(&x, "\x05\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0", 20);
    sl_write_bytes(&x, "\x01\0a\0\0\x01\0\0\0", 9);
    sl_write_bytes(&x, "\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 28);
    uint8_t sha[32];
    assert_int_equal(EVP_Digest(expected, sl_writer_used(&x), sha, NULL, EVP_sha256(), NULL), 1);
    sl_write_bytes(&x, "\x04\x30\0\0\0\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0", 21);
    sl_write_bytes(&x, sha, 32);
    assert_int_equal(b.count, sl_writer_used(&x));
    assert_memory_equal(b.at, expected, b.count);
    free(b.at);
}

/* --- rules, broken one at a time in bytes whose sum is right
 * -------------------------------------- */

static void put_record(struct bytes *b, uint8_t kind, const void *body, size_t count)
{
    uint8_t head[5];
    struct sl_writer w = sl_writer_on(head, sizeof head);
    sl_write_u8(&w, kind);
    sl_write_u32(&w, (uint32_t)count);
    to_bytes(b, head, sizeof head, NULL);
    to_bytes(b, body, count, NULL);
}

static void put_header(struct bytes *b, uint16_t version, const char *label, const char *prior)
{
    uint8_t body[256];
    struct sl_writer w = sl_writer_on(body, sizeof body);
    sl_write_u16(&w, version);
    sl_write_string(&w, label);
    sl_write_string(&w, prior);
    sl_write_u32(&w, 2);
    sl_write_bytes(&w, "{}", 2);
    put_record(b, 1, body, sl_writer_used(&w));
}

static void put_pack(struct bytes *b, uint32_t number, const char *name, uint64_t length)
{
    uint8_t body[1024];
    struct sl_writer w = sl_writer_on(body, sizeof body);
    sl_write_u32(&w, number);
    sl_write_string(&w, name);
    sl_write_u64(&w, length);
    sl_write_bytes(&w, "0123456789abcdef", 16);
    put_record(b, 2, body, sl_writer_used(&w));
}

static void put_entry(struct bytes *b, const struct sl_manifest_entry *e)
{
    static uint8_t body[16384];
    struct sl_writer w = sl_writer_on(body, sizeof body);
    sl_write_u8(&w, e->kind);
    sl_write_u8(&w, e->flags);
    sl_write_u32(&w, e->mode);
    sl_write_u32(&w, e->uid);
    sl_write_u32(&w, e->gid);
    sl_write_u64(&w, e->size);
    sl_write_u64(&w, e->mtime_ns);
    sl_write_u32(&w, e->crc32c);
    sl_write_string(&w, e->path);
    sl_write_string(&w, e->link);
    sl_write_u32(&w, e->extent_count);
    for (uint32_t i = 0; i < e->extent_count; i++) {
        sl_write_u64(&w, e->extents[i].offset);
        sl_write_u64(&w, e->extents[i].length);
        sl_write_u64(&w, e->extents[i].pack_offset);
        sl_write_u32(&w, e->extents[i].pack);
    }
    put_record(b, 3, body, sl_writer_used(&w));
}

static void put_end(struct bytes *b, uint64_t entries, uint64_t bytes)
{
    uint8_t body[48];
    struct sl_writer w = sl_writer_on(body, sizeof body);
    sl_write_u64(&w, entries);
    sl_write_u64(&w, bytes);
    assert_int_equal(EVP_Digest(b->at, b->count, w.at, NULL, EVP_sha256(), NULL), 1);
    put_record(b, 4, body, sizeof body);
}

/* The answer to a manifest of one entry, written by hand and by the writer: both must say no. */
static int read_one(const struct sl_manifest_entry *e, uint64_t bytes)
{
    struct bytes b = {0};
    static struct seen seen;
    put_header(&b, 1, LABEL, "");
    put_pack(&b, 1, "p1", 100);
    put_pack(&b, 5, "p5", 100);
    put_entry(&b, e);
    put_end(&b, 1, bytes);
    int rc = read_all(b.at, b.count, 1000, &seen, NULL);
    free(b.at);
    return rc;
}

static int write_one(const struct sl_manifest_entry *e)
{
    struct bytes b = {0};
    struct sl_manifest_writer *w;
    struct sl_manifest_pack p1 = {.number = 1, .name = "p1", .length = 100};
    struct sl_manifest_pack p5 = {.number = 5, .name = "p5", .length = 100};
    assert_int_equal(sl_manifest_writer_new(to_bytes, &b, LABEL, "", "{}", &w, NULL), 0);
    assert_int_equal(sl_manifest_write_pack(w, &p1, NULL), 0);
    assert_int_equal(sl_manifest_write_pack(w, &p5, NULL), 0);
    int rc = sl_manifest_write_entry(w, e, NULL);
    if (rc)
        assert_int_equal(sl_manifest_write_end(w, NULL), rc); /* no end after a failure */
    sl_manifest_writer_free(w);
    free(b.at);
    return rc;
}

static void refused(struct sl_manifest_entry *e)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < e->extent_count; i++)
        bytes += e->extents[i].length;
    assert_int_equal(read_one(e, bytes), SL_ERR_FORMAT);
    assert_int_equal(write_one(e), SL_ERR_FORMAT);
    entry_free(e);
}

static void accepted(struct sl_manifest_entry *e)
{
    assert_int_equal(read_one(e, e->size), 0);
    assert_int_equal(write_one(e), 0);
    entry_free(e);
}

static void entry__bad_path__is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",     "/",    "/a",  "a/",     "a//b", "..",    ".",
                                      "../a", "a/..", "a/.", "a/../b", "./a",  "a/./b", "/.."};
    static const char *const good[] = {"a",  "...",      "a/...",    "..a", "a..",
                                       ".a", "a/.b/..c", "\x01\xff", " "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(entry_new(SL_ENTRY_FOLDER, bad[i]));
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        accepted(entry_new(SL_ENTRY_FOLDER, good[i]));
    struct sl_manifest_entry *longest = entry_new(SL_ENTRY_FOLDER, "");
    memset(longest->path, 'x', SL_PATH_MAX - 1);
    accepted(longest);
}

static void entry__kinds_and_flags__are_checked(void **state)
{
    (void)state;
    refused(entry_new(0, "a"));
    refused(entry_new(4, "a"));
    struct sl_manifest_entry *e = entry_new(SL_ENTRY_LINK, "a"); /* no target */
    refused(e);
    e = entry_new(SL_ENTRY_FOLDER, "a");
    strcpy(e->link, "b");
    refused(e);
    e = entry_new(SL_ENTRY_FILE, "a");
    strcpy(e->link, "b");
    refused(e);
    e = entry_new(SL_ENTRY_FOLDER, "a");
    e->size = 1;
    refused(e);
    e = entry_new(SL_ENTRY_FILE, "a");
    e->flags = 2;
    refused(e);
    e = entry_new(SL_ENTRY_FILE, "a");
    e->crc32c = 1;
    refused(e);
    e = entry_new(SL_ENTRY_LINK, "a");
    strcpy(e->link, "b");
    e->flags = SL_ENTRY_HAS_CRC32C;
    refused(e);
}

static struct sl_manifest_entry *file_of(uint64_t size)
{
    struct sl_manifest_entry *e = entry_new(SL_ENTRY_FILE, "f");
    e->size = size;
    return e;
}

static void entry__extents__must_cover_the_file_in_known_packs(void **state)
{
    (void)state;
    struct sl_manifest_entry *e = file_of(200);
    extent_add(e, 0, 100, 1, 0);
    extent_add(e, 100, 100, 5, 0);
    accepted(e);
    refused(file_of(1)); /* not covered */
    e = file_of(200);
    extent_add(e, 0, 100, 1, 0); /* not to its end */
    refused(e);
    e = file_of(100);
    extent_add(e, 1, 99, 1, 0); /* not from its beginning */
    refused(e);
    e = file_of(100);
    extent_add(e, 0, 60, 1, 0);
    extent_add(e, 50, 50, 1, 0); /* overlap */
    refused(e);
    e = file_of(100);
    extent_add(e, 0, 40, 1, 0);
    extent_add(e, 50, 50, 1, 50); /* gap */
    refused(e);
    e = file_of(100);
    extent_add(e, 50, 50, 1, 0);
    extent_add(e, 0, 50, 1, 50); /* disorder */
    refused(e);
    e = file_of(50);
    extent_add(e, 0, 51, 1, 0); /* beyond the file */
    refused(e);
    e = file_of(0);
    extent_add(e, 0, 0, 1, 0); /* empty extent */
    refused(e);
    e = file_of(100);
    extent_add(e, 0, 100, 2, 0); /* unknown packs, before, between and after */
    refused(e);
    e = file_of(100);
    extent_add(e, 0, 100, 6, 0);
    refused(e);
    e = file_of(100);
    extent_add(e, 0, 100, 5, 1); /* beyond the pack */
    refused(e);
    e = file_of(10);
    extent_add(e, 0, 10, 1, UINT64_MAX - 3); /* overflow */
    refused(e);
    e = file_of(10);
    extent_add(e, 0, 10, 0, 1); /* zeros have no place */
    refused(e);
    e = file_of(1ull << 62);
    extent_add(e, 0, 1ull << 62, 0, 0);
    accepted(e);
    e = file_of(UINT64_MAX);
    extent_add(e, 0, UINT64_MAX, 0, 0);
    accepted(e);
}

static void manifest__sizes_that_overflow__are_refused(void **state)
{
    (void)state;
    struct bytes b = {0};
    static struct seen seen;
    struct sl_manifest_entry *e = file_of(UINT64_MAX);
    extent_add(e, 0, UINT64_MAX, 0, 0);
    put_header(&b, 1, LABEL, "");
    put_entry(&b, e);
    strcpy(e->path, "g");
    put_entry(&b, e);
    put_end(&b, 2, UINT64_MAX - 1);
    assert_int_equal(read_all(b.at, b.count, 1000, &seen, NULL), SL_ERR_FORMAT);
    entry_free(e);
    free(b.at);
}

static void manifest__disorder__is_refused(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"b", "a"}, {"a", "a"}, {"a/b", "a"}, {"\xff", "\x01"}};
    static struct seen seen;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct bytes b = {0}, written = {0};
        struct sl_manifest_entry *first = entry_new(SL_ENTRY_FOLDER, pairs[i][0]);
        struct sl_manifest_entry *second = entry_new(SL_ENTRY_FOLDER, pairs[i][1]);
        put_header(&b, 1, LABEL, "");
        put_entry(&b, first);
        put_entry(&b, second);
        put_end(&b, 2, 0);
        assert_int_equal(read_all(b.at, b.count, 1000, &seen, NULL), SL_ERR_FORMAT);
        struct sl_manifest_writer *w;
        assert_int_equal(sl_manifest_writer_new(to_bytes, &written, LABEL, "", "{}", &w, NULL), 0);
        assert_int_equal(sl_manifest_write_entry(w, first, NULL), 0);
        assert_int_equal(sl_manifest_write_entry(w, second, NULL), SL_ERR_INTERNAL);
        sl_manifest_writer_free(w);
        entry_free(first);
        entry_free(second);
        free(b.at);
        free(written.at);
    }
}

enum break_it {
    NO_HEADER,
    TWO_HEADERS,
    LATE_PACK,
    PACK_ZERO,
    PACK_TWICE,
    PACK_NAME,
    KIND,
    LABELS,
    PRIOR,
    VERSION,
    COUNT,
    BYTES,
    LONG_END,
    LONG_PACK,
    HUGE_ENTRY,
    MANY_EXTENTS,
    INTACT
};

static int read_broken(enum break_it how)
{
    struct bytes b = {0};
    static struct seen seen;
    static const uint8_t zeros[8192];
    struct sl_manifest_entry *e = entry_new(SL_ENTRY_FOLDER, "a");
    if (how != NO_HEADER)
        put_header(&b, how == VERSION ? 2 : 1, how == LABELS ? "yesterday" : LABEL,
                   how == PRIOR ? "../x" : "");
    if (how == TWO_HEADERS)
        put_header(&b, 1, LABEL, "");
    put_pack(&b, how == PACK_ZERO ? 0 : 1, how == PACK_NAME ? "../p" : "p", 10);
    if (how == PACK_TWICE)
        put_pack(&b, 1, "p", 10);
    if (how == LONG_PACK)
        put_record(&b, 2, zeros, 5000);
    put_entry(&b, e);
    if (how == LATE_PACK)
        put_pack(&b, 2, "q", 10);
    if (how == KIND)
        put_record(&b, 9, zeros, 10);
    if (how == HUGE_ENTRY)
        to_bytes(&b, "\x03\xff\xff\xff\xff", 5, NULL);
    if (how == MANY_EXTENTS) {
        uint8_t body[64] = {1};
        body[38] = 1; /* path "b", no link, 2^32-1 extents */
        body[40] = 'b';
        memset(body + 43, 0xff, 4);
        put_record(&b, 3, body, 64);
    }
    if (how == LONG_END)
        put_record(&b, 4, zeros, 49);
    put_end(&b, how == COUNT ? 2 : 1, how == BYTES ? 1 : 0);
    int rc = read_all(b.at, b.count, 37, &seen, NULL);
    entry_free(e);
    free(b.at);
    return rc;
}

static void manifest__each_rule_broken__is_refused(void **state)
{
    (void)state;
    for (enum break_it how = NO_HEADER; how < INTACT; how++)
        assert_int_equal(read_broken(how), how == VERSION ? SL_ERR_VERSION : SL_ERR_FORMAT);
    assert_int_equal(read_broken(INTACT), 0);
}

static int stop_at_pack(void *arg, const struct sl_manifest_pack *pack)
{
    (void)arg;
    (void)pack;
    return 42;
}

static void manifest__visitor_that_stops__ends_the_reading(void **state)
{
    (void)state;
    struct bytes b = {0};
    struct sl_manifest_reader *r;
    struct sl_manifest_visitor visitor = {.pack = stop_at_pack};
    assert_int_equal(write_sample(&b, NULL), 0);
    assert_int_equal(sl_manifest_reader_new(&visitor, &r, NULL), 0);
    assert_int_equal(sl_manifest_feed(r, b.at, b.count, NULL), 42);
    assert_int_equal(sl_manifest_feed(r, b.at, b.count, NULL), 42);
    sl_manifest_reader_free(r);
    free(b.at);
}

static void manifest_writer__wrong_use__is_refused(void **state)
{
    (void)state;
    struct bytes b = {0};
    struct sl_manifest_writer *w;
    struct sl_manifest_pack pack = {.number = 1, .name = "p"};
    assert_int_equal(sl_manifest_writer_new(to_bytes, &b, "label", "", "{}", &w, NULL),
                     SL_ERR_USAGE);
    assert_int_equal(sl_manifest_writer_new(to_bytes, &b, LABEL, "", "{}", &w, NULL), 0);
    struct sl_manifest_entry *e = entry_new(SL_ENTRY_FOLDER, "a");
    assert_int_equal(sl_manifest_write_entry(w, e, NULL), 0);
    assert_int_equal(sl_manifest_write_pack(w, &pack, NULL), SL_ERR_INTERNAL);
    sl_manifest_writer_free(w);
    assert_int_equal(sl_manifest_writer_new(to_bytes, &b, LABEL, "", "{}", &w, NULL), 0);
    assert_int_equal(sl_manifest_write_end(w, NULL), 0);
    assert_int_equal(sl_manifest_write_end(w, NULL), SL_ERR_INTERNAL);
    assert_int_equal(sl_manifest_write_entry(w, e, NULL), SL_ERR_INTERNAL);
    sl_manifest_writer_free(w);
    entry_free(e);
    free(b.at);
}

static int failing_sink(void *arg, const void *bytes, size_t count, struct sl_err *err)
{
    (void)bytes;
    (void)count;
    int *left = arg;
    return (*left)-- > 0 ? 0 : sl_err_set(err, SL_ERR_FULL, "the sink is full");
}

static void manifest_writer__sink_that_fails__is_heard(void **state)
{
    (void)state;
    for (int good = 0; good < 2; good++) {
        int left = good;
        struct sl_err err;
        struct sl_manifest_writer *w;
        assert_int_equal(sl_manifest_writer_new(failing_sink, &left, LABEL, "", "{}", &w, &err), 0);
        assert_int_equal(write_sample_to(w, &err), SL_ERR_FULL);
        assert_string_equal(err.msg, "the sink is full");
        sl_manifest_writer_free(w);
    }
}

/* Every allocation fails in turn: no leak, no wrong answer. */
static void manifest__no_memory__is_said(void **state)
{
    (void)state;
    static struct seen seen;
    for (unsigned n = 1;; n++) {
        char rule[32];
        struct sl_err err = {0};
        struct bytes b = {0};
        snprintf(rule, sizeof rule, "alloc:ENOMEM@%u", n);
        assert_int_equal(sl_fault_set(rule), 0);
        int rc = write_sample(&b, &err);
        if (rc == 0)
            rc = read_all(b.at, b.count, 50, &seen, &err);
        bool untouched = n > sl_fault_passed();
        sl_fault_set(NULL);
        free(b.at);
        assert_int_equal(rc, untouched ? 0 : SL_ERR_NO_MEMORY);
        if (untouched) {
            assert_true(n > 5);
            return;
        }
        assert_int_equal(err.code, SL_ERR_NO_MEMORY);
    }
}

/* --- pack indexes
 * ------------------------------------------------------------------------------------ */

static int read_index(const uint8_t *at, size_t count, size_t piece, struct seen *seen)
{
    struct sl_manifest_visitor visitor = {.entry = see_entry, .arg = seen};
    struct sl_manifest_reader *r;
    memset(seen, 0, sizeof *seen);
    assert_int_equal(sl_pack_index_reader_new(&visitor, &r, NULL), 0);
    int rc = 0;
    for (size_t n; rc == 0 && count; at += n, count -= n) {
        n = count < piece ? count : piece;
        rc = sl_manifest_feed(r, at, n, NULL);
    }
    if (rc == 0)
        rc = sl_manifest_finish(r, &seen->entries, &seen->bytes, NULL);
    sl_manifest_reader_free(r);
    return rc;
}

static void pack_index__pieces_in_any_order__are_read(void **state)
{
    (void)state;
    struct bytes b = {0};
    static struct seen seen;
    struct sl_manifest_entry *z = entry_new(SL_ENTRY_FILE, "z"), *a = entry_new(SL_ENTRY_FILE, "a");
    z->size = 1000;
    extent_add(z, 300, 100, 4, 77); /* a piece in the middle */
    extent_add(z, 400, 100, 0, 0);
    put_entry(&b, z);
    put_entry(&b, a);
    put_end(&b, 2, 200);
    for (size_t piece = 1; piece <= b.count; piece++)
        assert_int_equal(read_index(b.at, b.count, piece, &seen), 0);
    assert_int_equal(seen.entries, 2);
    assert_int_equal(seen.bytes, 200);
    for (size_t count = 0; count < b.count; count++)
        assert_int_equal(read_index(b.at, count, 1000, &seen), SL_ERR_FORMAT);
    for (size_t bit = 0; bit < b.count * 8; bit++) {
        b.at[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_true(read_index(b.at, b.count, 1000, &seen) < 0);
        b.at[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    b.count = 0; /* a piece without content of a file that has some */
    z->extent_count = 0;
    put_entry(&b, z);
    put_end(&b, 1, 0);
    assert_int_equal(read_index(b.at, b.count, 1000, &seen), SL_ERR_FORMAT);
    b.count = 0; /* no header in an index */
    put_header(&b, 1, LABEL, "");
    put_end(&b, 0, 0);
    assert_int_equal(read_index(b.at, b.count, 1000, &seen), SL_ERR_FORMAT);
    entry_free(z);
    entry_free(a);
    free(b.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manifest__in_pieces_of_any_size__is_what_was_written),
        cmocka_unit_test(manifest__cut_anywhere__is_refused),
        cmocka_unit_test(manifest__trailing_bytes__are_refused),
        cmocka_unit_test(manifest__any_bit_flipped__is_refused),
        cmocka_unit_test(manifest__bytes__are_those_of_the_documentation),
        cmocka_unit_test(entry__bad_path__is_refused),
        cmocka_unit_test(entry__kinds_and_flags__are_checked),
        cmocka_unit_test(entry__extents__must_cover_the_file_in_known_packs),
        cmocka_unit_test(manifest__sizes_that_overflow__are_refused),
        cmocka_unit_test(manifest__disorder__is_refused),
        cmocka_unit_test(manifest__each_rule_broken__is_refused),
        cmocka_unit_test(manifest__visitor_that_stops__ends_the_reading),
        cmocka_unit_test(manifest_writer__wrong_use__is_refused),
        cmocka_unit_test(manifest_writer__sink_that_fails__is_heard),
        cmocka_unit_test(manifest__no_memory__is_said),
        cmocka_unit_test(pack_index__pieces_in_any_order__are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
