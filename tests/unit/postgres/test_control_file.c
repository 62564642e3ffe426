/* pg_control: both places of the CRC, torn files, foreign layouts. */
#include "postgres/control_file.h"

#include "core/base/fault.h"
#include "core/object/object.h"
#include "core/wire/cursor.h"
#include "tests/unit/postgres/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void put32(uint8_t *at, uint32_t value)
{
    struct sl_writer w = sl_writer_on(at, 4);
    sl_write_u32(&w, value);
}

static void put64(uint8_t *at, uint64_t value)
{
    struct sl_writer w = sl_writer_on(at, 8);
    sl_write_u64(&w, value);
}

static void make(uint8_t bytes[SL_PG_CONTROL_BYTES], uint32_t version, size_t crc_at)
{
    double one = 1234567.0;
    uint64_t bits;
    memcpy(&bits, &one, sizeof bits);
    memset(bytes, 0, SL_PG_CONTROL_BYTES);
    put64(bytes, 7311111111111111111ull);
    put32(bytes + 8, version);
    put32(bytes + 12, 202209061);
    put32(bytes + 16, SL_PG_IN_PRODUCTION);
    put64(bytes + 32, 0x2000060);
    put64(bytes + 40, 0x2000028);
    put32(bytes + 48, 7);
    put64(bytes + 208, bits);
    put32(bytes + 216, 8192);
    put32(bytes + 220, 131072);
    put32(bytes + 224, 8192);
    put32(bytes + 228, 64 << 20);
    put32(bytes + 252, 1);
    for (size_t i = 256; i < crc_at; i++)
        bytes[i] = (uint8_t)(i * 37);
    put32(bytes + crc_at, sl_crc32c(0, bytes, crc_at));
}

static void control_decode__both_layouts__are_read(void **state)
{
    (void)state;
    static const struct {
        uint32_t version;
        size_t crc_at;
    } layouts[] = {{1300, 288}, {1800, 292}};
    for (size_t i = 0; i < 2; i++) {
        uint8_t bytes[SL_PG_CONTROL_BYTES];
        struct sl_pg_control c;
        make(bytes, layouts[i].version, layouts[i].crc_at);
        assert_int_equal(sl_pg_control_decode(bytes, sizeof bytes, &c, NULL), 0);
        assert_int_equal(c.system_id, 7311111111111111111ull);
        assert_int_equal(c.control_version, layouts[i].version);
        assert_int_equal(c.catalog_version, 202209061);
        assert_int_equal(c.state, SL_PG_IN_PRODUCTION);
        assert_int_equal(c.timeline, 7);
        assert_int_equal(c.redo_lsn, 0x2000028);
        assert_int_equal(c.wal_segment_bytes, 64 << 20);
        assert_int_equal(c.data_checksum_version, 1);
    }
}

static void control_decode__any_flipped_bit__fails(void **state)
{
    (void)state;
    uint8_t bytes[SL_PG_CONTROL_BYTES];
    struct sl_pg_control c;
    make(bytes, 1300, 288);
    for (size_t bit = 0; bit < 292 * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(sl_pg_control_decode(bytes, sizeof bytes, &c, NULL), SL_ERR_CHECKSUM);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t count = 0; count < 512; count++)
        assert_int_equal(sl_pg_control_decode(bytes, count, &c, NULL), SL_ERR_CHECKSUM);
}

static void control_decode__unknown_layout__is_unsupported(void **state)
{
    (void)state;
    uint8_t bytes[SL_PG_CONTROL_BYTES];
    struct sl_pg_control c;
    make(bytes, 2100, 288);
    memset(bytes + 208, 0, 8);
    put32(bytes + 288, sl_crc32c(0, bytes, 288));
    assert_int_equal(sl_pg_control_decode(bytes, sizeof bytes, &c, NULL), SL_ERR_UNSUPPORTED);
}

static void write_file(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void control_read__from_a_folder(void **state)
{
    (void)state;
    char folder[] = "/tmp/sluice-test-XXXXXX", path[64];
    uint8_t bytes[SL_PG_CONTROL_BYTES], got[SL_PG_CONTROL_BYTES];
    struct sl_pg_control c;
    struct sl_err err = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/global", folder);
    assert_int_equal(sl_pg_control_read(folder, 0, got, &c, &err), SL_ERR_OPEN);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/global/pg_control", folder);
    make(bytes, 1300, 288);
    write_file(path, bytes, sizeof bytes);
    assert_int_equal(sl_pg_control_read(folder, 0, got, &c, &err), 0);
    assert_memory_equal(got, bytes, sizeof bytes);
#ifdef SLUICE_FAULTS
    sl_fault_set("pg.control_read:EIO");
    assert_int_equal(sl_pg_control_read(folder, 0, got, &c, &err), SL_ERR_READ);
    assert_int_equal(err.sys, EIO);
    sl_fault_set(NULL);
#endif
    bytes[40] ^= 1;
    write_file(path, bytes, sizeof bytes);
    uint64_t before = sl_now_ns();
    assert_int_equal(sl_pg_control_read(folder, sl_deadline_in_ms(30), got, &c, &err),
                     SL_ERR_CHECKSUM);
    assert_true(sl_now_ns() - before >= 25 * SL_NS_PER_MS); /* it tried again until then */
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/PG_VERSION", folder);
    write_file(path, "15\n", 3);
    char version[32];
    assert_int_equal(sl_pg_version_read(folder, version, &err), 0);
    assert_string_equal(version, "15");
    write_file(path, "x", 1);
    assert_int_equal(sl_pg_version_read(folder, version, &err), SL_ERR_FORMAT);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(sl_pg_version_read(folder, version, &err), SL_ERR_OPEN);
    snprintf(path, sizeof path, "%s/global", folder);
    rmdir(path);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_decode__both_layouts__are_read),
        cmocka_unit_test(control_decode__any_flipped_bit__fails),
        cmocka_unit_test(control_decode__unknown_layout__is_unsupported),
        cmocka_unit_test(control_read__from_a_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
