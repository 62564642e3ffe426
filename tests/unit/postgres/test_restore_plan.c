/* The plan of a restore: every extent comes back once, in its pack's order, unit by unit. */
#include "postgres/restore_plan.h"

#include "core/base/fault.h"
#include "tests/unit/postgres/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_pack(struct sl_pg_plan *plan, uint32_t number, uint64_t length)
{
    struct sl_manifest_pack pack = {.number = number, .length = length};
    snprintf(pack.name, sizeof pack.name, "pack-%u", number);
    assert_int_equal(sl_pg_plan_add_pack(plan, &pack, NULL), 0);
}

static int add_file(struct sl_pg_plan *plan, const char *path, struct sl_extent *extents,
                    uint32_t count)
{
    static struct sl_manifest_entry entry;
    entry = (struct sl_manifest_entry){
        .kind = SL_ENTRY_FILE, .extents = extents, .extent_count = count};
    snprintf(entry.path, sizeof entry.path, "%s", path);
    return sl_pg_plan_add(plan, &entry, NULL);
}

static void plan__many_files__each_byte_once_in_order(void **state)
{
    (void)state;
    enum { FILES = 100000, PACKS = 5 };
    const uint64_t pack_bytes = 300ull << 20, file_bytes = 8192;
    struct sl_pg_plan *plan = NULL;
    uint64_t at[PACKS] = {0};
    assert_int_equal(sl_pg_plan_new(&plan, NULL), 0);
    for (uint32_t i = 0; i < PACKS; i++)
        add_pack(plan, 2 * i + 1, pack_bytes); /* numbers with gaps */
    for (unsigned i = 0; i < FILES; i++) {
        char path[64];
        snprintf(path, sizeof path, "base/5/%u", i);
        struct sl_extent extent = {
            .length = file_bytes, .pack = 2 * (i % PACKS) + 1, .pack_offset = at[i % PACKS]};
        at[i % PACKS] += file_bytes;
        assert_int_equal(add_file(plan, path, &extent, 1), 0);
    }
    assert_int_equal(sl_pg_plan_end(plan, NULL), 0);

    struct sl_pg_unit unit = {0};
    struct sl_pg_planned planned;
    uint64_t next[2 * PACKS + 2] = {0};
    unsigned pieces = 0, named = 0;
    while (sl_pg_plan_next_unit(plan, &unit, NULL) == 1) {
        for (size_t i = 0; i < unit.count; i++, pieces++) {
            const struct sl_pg_piece *p = &unit.pieces[i];
            assert_int_equal(p->pack_offset, next[unit.pack->number]);
            next[unit.pack->number] += p->length;
            if (pieces % 1000)
                continue;
            assert_int_equal(sl_pg_plan_path(plan, p->path, &planned, NULL), 0);
            unsigned file = (unsigned)strtoul(planned.path + 7, NULL, 10);
            assert_int_equal(2 * (file % PACKS) + 1, unit.pack->number);
            assert_int_equal(file / PACKS * file_bytes, p->pack_offset);
            named++;
        }
    }
    assert_int_equal(pieces, FILES);
    assert_int_equal(named, FILES / 1000);
    sl_pg_unit_fini(&unit);

    unsigned paths = 0;
    while (sl_pg_plan_next_path(plan, &planned, NULL) == 1)
        paths++;
    assert_int_equal(paths, FILES);
    sl_pg_plan_rewind(plan);
    assert_int_equal(sl_pg_plan_next_path(plan, &planned, NULL), 1);
    assert_string_equal(planned.path, "base/5/0");
    sl_pg_plan_free(plan);
}

static void plan__extent_over_units__is_split(void **state)
{
    (void)state;
    struct sl_pg_plan *plan = NULL;
    assert_int_equal(sl_pg_plan_new(&plan, NULL), 0);
    add_pack(plan, 1, 0);
    add_pack(plan, 2, 1ull << 30);
    add_pack(plan, 3, 0);
    struct sl_extent extents[] = {
        {.offset = 0, .length = 100}, /* zeros: nothing to do */
        {.offset = 100, .length = 200ull << 20, .pack = 2, .pack_offset = SL_PG_UNIT_BYTES - 5},
    };
    assert_int_equal(add_file(plan, "f", extents, 2), 0);
    assert_int_equal(sl_pg_plan_end(plan, NULL), 0);
    struct sl_pg_unit unit = {0};
    static const uint64_t lengths[] = {5, SL_PG_UNIT_BYTES, SL_PG_UNIT_BYTES, SL_PG_UNIT_BYTES,
                                       (8ull << 20) - 5};
    uint64_t offset = 100;
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(sl_pg_plan_next_unit(plan, &unit, NULL), 1);
        assert_int_equal(unit.count, 1);
        assert_int_equal(unit.pack->number, 2);
        assert_int_equal(unit.pieces[0].length, lengths[i]);
        assert_int_equal(unit.pieces[0].file_offset, offset);
        offset += lengths[i];
    }
    assert_int_equal(sl_pg_plan_next_unit(plan, &unit, NULL), 0);
    sl_pg_unit_fini(&unit);
    sl_pg_plan_free(plan);
}

static void plan__hostile_extent__is_refused(void **state)
{
    (void)state;
    struct sl_pg_plan *plan = NULL;
    assert_int_equal(sl_pg_plan_new(&plan, NULL), 0);
    add_pack(plan, 1, 1000);
    struct sl_extent beyond = {.length = 2, .pack = 1, .pack_offset = 999};
    struct sl_extent wraps = {.length = UINT64_MAX - 10, .pack = 1, .pack_offset = 100};
    struct sl_extent unknown = {.length = 1, .pack = 2};
    assert_int_equal(add_file(plan, "a", &beyond, 1), SL_ERR_FORMAT);
    assert_int_equal(add_file(plan, "b", &wraps, 1), SL_ERR_FORMAT);
    assert_int_equal(add_file(plan, "c", &unknown, 1), SL_ERR_FORMAT);
    sl_pg_plan_free(plan);
}

static int scenario(void)
{
    struct sl_pg_plan *plan = NULL;
    struct sl_pg_unit unit = {0};
    struct sl_pg_planned planned;
    struct sl_manifest_pack pack = {.number = 1, .length = 1000};
    struct sl_extent extent = {.length = 1000, .pack = 1};
    int rc = sl_pg_plan_new(&plan, NULL);
    if (!rc)
        rc = sl_pg_plan_add_pack(plan, &pack, NULL);
    if (!rc)
        rc = add_file(plan, "f", &extent, 1);
    if (!rc)
        rc = sl_pg_plan_end(plan, NULL);
    while (!rc && (rc = sl_pg_plan_next_unit(plan, &unit, NULL)) == 1)
        rc = sl_pg_plan_path(plan, unit.pieces[0].path, &planned, NULL);
    sl_pg_unit_fini(&unit);
    sl_pg_plan_free(plan);
    return rc;
}

static void plan__torture__fails_cleanly_at_each_call(void **state)
{
    (void)state;
#ifdef SLUICE_FAULTS
    for (unsigned n = 1;; n++) {
        char rule[64];
        snprintf(rule, sizeof rule, "*:EIO@%u", n);
        sl_fault_set(rule);
        int rc = scenario();
        uint64_t passed = sl_fault_passed();
        sl_fault_set(NULL);
        if (passed < n) {
            assert_int_equal(rc, 0);
            assert_true(n > 8);
            break;
        }
        assert_true(rc < 0);
    }
#else
    assert_int_equal(scenario(), 0);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan__many_files__each_byte_once_in_order),
        cmocka_unit_test(plan__extent_over_units__is_split),
        cmocka_unit_test(plan__hostile_extent__is_refused),
        cmocka_unit_test(plan__torture__fails_cleanly_at_each_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
