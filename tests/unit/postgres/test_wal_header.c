/* WAL page headers: decoding, and whether one fits name, size and system. */
#include "postgres/wal_header.h"

#include "core/wire/cursor.h"
#include "tests/unit/postgres/cmocka_all.h"

#define SYSTEM 7311111111111111111ull

struct page {
    uint16_t magic, info;
    uint32_t timeline;
    uint64_t address, system;
    uint32_t segment, page;
};

static const struct page good = {0xD110, 2, 3, 0x5000000, SYSTEM, 16 << 20, 8192};

static int decode(const struct page *p, size_t count, struct sl_pg_wal_header *ret)
{
    uint8_t bytes[SL_PG_WAL_HEADER_BYTES];
    struct sl_writer w = sl_writer_on(bytes, sizeof bytes);
    sl_write_u16(&w, p->magic);
    sl_write_u16(&w, p->info);
    sl_write_u32(&w, p->timeline);
    sl_write_u64(&w, p->address);
    sl_write_u64(&w, 0);
    sl_write_u64(&w, p->system);
    sl_write_u32(&w, p->segment);
    sl_write_u32(&w, p->page);
    assert_false(w.failed);
    return sl_pg_wal_header_decode(bytes, count, ret, NULL);
}

static int check(const char *text, const struct page *p, uint64_t file_bytes)
{
    struct sl_pg_wal_header header;
    struct sl_pg_wal_name name;
    assert_int_equal(decode(p, SL_PG_WAL_HEADER_BYTES, &header), 0);
    assert_int_equal(sl_pg_wal_name_parse(text, &name, NULL), 0);
    return sl_pg_wal_header_check(&header, &name, file_bytes, SYSTEM, NULL);
}

static void header_decode__good__gives_fields(void **state)
{
    (void)state;
    struct sl_pg_wal_header h;
    assert_int_equal(decode(&good, SL_PG_WAL_HEADER_BYTES, &h), 0);
    assert_int_equal(h.system_id, SYSTEM);
    assert_int_equal(h.segment_bytes, 16 << 20);
    assert_int_equal(h.timeline, 3);
    assert_int_equal(h.page_address, 0x5000000);
}

static void header_decode__each_field_wrong__fails(void **state)
{
    (void)state;
    struct sl_pg_wal_header h;
    struct page p;
    for (size_t count = 0; count < SL_PG_WAL_HEADER_BYTES; count++)
        assert_int_equal(decode(&good, count, &h), SL_ERR_FORMAT);
#define WRONG(field, value, code)                                                                  \
    p = good, p.field = value, assert_int_equal(decode(&p, SL_PG_WAL_HEADER_BYTES, &h), code)
    WRONG(magic, 0, SL_ERR_FORMAT);
    WRONG(magic, 0xD010, SL_ERR_FORMAT);
    WRONG(magic, 0x10D1, SL_ERR_UNSUPPORTED);
    WRONG(info, 0, SL_ERR_FORMAT);
    WRONG(info, 0x12, SL_ERR_FORMAT);
    WRONG(timeline, 0, SL_ERR_FORMAT);
    WRONG(address, 0x5000001, SL_ERR_FORMAT);
    WRONG(segment, (16 << 20) + 8192, SL_ERR_FORMAT);
    WRONG(segment, 1 << 19, SL_ERR_FORMAT);
    WRONG(page, 0, SL_ERR_FORMAT);
    WRONG(page, 8193, SL_ERR_FORMAT);
}

static void header_check__fits_or_not(void **state)
{
    (void)state;
    assert_int_equal(check("000000030000000000000005", &good, 16 << 20), 0);
    assert_int_equal(check("000000030000000000000005.partial", &good, 16 << 20), 0);
    /* copied at the switch to timeline 4: the first page is still of 3 */
    assert_int_equal(check("000000040000000000000005", &good, 16 << 20), 0);
    assert_int_equal(check("000000020000000000000005", &good, 16 << 20), SL_ERR_FORMAT);
    assert_int_equal(check("000000030000000000000006", &good, 16 << 20), SL_ERR_FORMAT);
    assert_int_equal(check("000000030000000100000005", &good, 16 << 20), SL_ERR_FORMAT);
    assert_int_equal(check("000000030000000000000105", &good, 16 << 20), SL_ERR_FORMAT);
    assert_int_equal(check("000000030000000000000005", &good, (16 << 20) - 1), SL_ERR_FORMAT);
    assert_int_equal(check("000000030000000000000005", &good, 0), SL_ERR_FORMAT);
    struct page p = good;
    p.system++;
    assert_int_equal(check("000000030000000000000005", &p, 16 << 20), SL_ERR_MISMATCH);
}

static void header_check__other_sizes(void **state)
{
    (void)state;
    struct page p = good;
    p.segment = 1 << 20;
    assert_int_equal(check("000000030000000000000050", &p, 1 << 20), 0);
    p.segment = 64 << 20;
    p.address = 0x504000000;
    assert_int_equal(check("000000030000000500000001", &p, 64 << 20), 0);
    p.segment = 1 << 30;
    p.address = 0x5C0000000;
    assert_int_equal(check("000000030000000500000003", &p, 1 << 30), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_decode__good__gives_fields),
        cmocka_unit_test(header_decode__each_field_wrong__fails),
        cmocka_unit_test(header_check__fits_or_not),
        cmocka_unit_test(header_check__other_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
