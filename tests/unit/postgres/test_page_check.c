/* Page checksums: what is judged, what is read again, pieces that cut pages. That the sum is
 * PostgreSQL's own is shown by tests/integration, on pages that a server wrote. */
#include "postgres/page_check.h"

#include "tests/unit/postgres/cmocka_all.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE  8192u
#define PAGES 6u

static uint8_t pages[PAGES * PAGE];
static uint32_t bad[64];
static size_t bad_count;

static void on_bad(void *arg, const char *path, uint32_t block)
{
    (void)arg;
    assert_string_equal(path, "base/5/16384");
    bad[bad_count++] = block;
}

static void make_page(uint8_t *page, uint32_t block, uint32_t lsn)
{
    for (uint32_t i = 0; i < PAGE; i++)
        page[i] = (uint8_t)(i * 7 + block * 13 + 1);
    memset(page, 0, 4);
    memcpy(page + 4, &lsn, 4);
    uint16_t upper = 4096, sum;
    memcpy(page + 14, &upper, 2);
    sum = sl_pg_page_checksum(page, PAGE, block);
    memcpy(page + 8, &sum, 2);
}

static int setup(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PAGES; i++)
        make_page(pages + i * PAGE, 100 + i, 1000);
    memset(pages + 4 * PAGE, 0, PAGE); /* a new page */
    bad_count = 0;
    return 0;
}

static struct sl_pg_page_check check;

/* Feeds the pages in pieces of `step`; on disk there is `disk`. */
static void pass(const uint8_t *disk, size_t step)
{
    char path[] = "/tmp/sluice-pages-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(write(fd, disk, sizeof pages), sizeof pages);
    bad_count = 0;
    check.bad = on_bad;
    check.path = "base/5/16384";
    sl_pg_page_check_begin(&check, PAGE, 100, 5000, fd, 0);
    for (size_t at = 0; at < sizeof pages; at += step)
        sl_pg_page_check_feed(&check, pages + at,
                              sizeof pages - at < step ? sizeof pages - at : step);
    assert_int_equal(check.judged, PAGES);
    close(fd);
}

static void test_good(void **state)
{
    (void)state;
    const size_t steps[] = {1, 100, 4096, 8192, 8193, 12288, 1 << 20};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        pass(pages, steps[i]);
        assert_int_equal(bad_count, 0);
    }
}

static void test_each_bit_counts(void **state)
{
    (void)state;
    for (uint32_t bit = 64; bit < PAGE * 8; bit += 37) {
        pages[PAGE + bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(sl_pg_page_good(pages + PAGE, PAGE, 101, 5000));
        pages[PAGE + bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_true(sl_pg_page_good(pages + PAGE, PAGE, 101, 5000));
    assert_false(sl_pg_page_good(pages + PAGE, PAGE, 102, 5000)); /* of another place */
}

static void test_bad_is_named(void **state)
{
    (void)state;
    pages[2 * PAGE + 5000] ^= 1;
    pages[4 * PAGE + 100] = 1; /* neither new nor a page */
    const size_t steps[] = {1000, 8192, 1 << 20};
    for (size_t i = 0; i < 3; i++) {
        pass(pages, steps[i]);
        assert_int_equal(bad_count, 2);
        assert_int_equal(bad[0], 102);
        assert_int_equal(bad[1], 104);
    }
}

static void test_written_meanwhile(void **state)
{
    (void)state;
    static uint8_t disk[sizeof pages];
    memcpy(disk, pages, sizeof pages);
    pages[2 * PAGE + 5000] ^= 1; /* torn when it was read, whole now */
    pass(disk, 8192);
    assert_int_equal(bad_count, 0);
    make_page(pages + 3 * PAGE, 103, 5000); /* changed after the start: WAL has it */
    pages[3 * PAGE + 5000] ^= 1;
    memcpy(disk, pages, sizeof pages);
    pass(disk, 8192);
    assert_int_equal(bad_count, 1);
    assert_int_equal(bad[0], 102);
}

static void test_files(void **state)
{
    (void)state;
    uint32_t first = 7;
    assert_true(sl_pg_page_file("base/5/16384", 131072, &first));
    assert_int_equal(first, 0);
    assert_true(sl_pg_page_file("base/5/16384_fsm.2", 131072, &first));
    assert_int_equal(first, 262144);
    assert_true(sl_pg_page_file("global/1262", 131072, &first));
    assert_true(sl_pg_page_file("pg_tblspc/16400/PG_15_202209061/5/16384.1", 131072, &first));
    assert_int_equal(first, 131072);
    const char *const none[] = {"global/pg_control", "base/5/pg_filenode.map", "PG_VERSION",
                                "base/5/PG_VERSION", "pg_xact/0000",           "16384",
                                "log/16384",         "base/5/16384.99999999"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_false(sl_pg_page_file(none[i], 131072, &first));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_good, setup),
        cmocka_unit_test_setup(test_each_bit_counts, setup),
        cmocka_unit_test_setup(test_bad_is_named, setup),
        cmocka_unit_test_setup(test_written_meanwhile, setup),
        cmocka_unit_test_setup(test_files, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
