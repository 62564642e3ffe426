/* The walk over a data directory: order, pieces, rules. */
#include "postgres/cluster.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "postgres/cluster_rules.h"
#include "tests/unit/postgres/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERSION_FOLDER "PG_15_202209061"

static char root[] = "/tmp/sluice-cluster-XXXXXX";

static void run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *fmt, ...)
{
    char command[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(command, sizeof command, fmt, args);
    va_end(args);
    assert_int_equal(system(command), 0);
}

static int setup(void **state)
{
    (void)state;
    strcpy(root, "/tmp/sluice-cluster-XXXXXX");
    assert_non_null(mkdtemp(root));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    run("rm -rf %s", root);
    return 0;
}

static void make(const char *path, size_t bytes)
{
    char full[4096];
    snprintf(full, sizeof full, "%s/%s", root, path);
    run("mkdir -p $(dirname %s)", full);
    int fd = open(full, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    close(fd);
}

/* One line an item: kind, path, piece. */
static char *walk(int *ret_rc)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    struct sl_pg_cluster *cluster = NULL;
    struct sl_pg_item *item = malloc(sizeof *item);
    int fd = open(root, O_RDONLY | O_DIRECTORY), rc;
    assert_true(fd >= 0);
    rc = sl_pg_cluster_new(fd, VERSION_FOLDER, &cluster, NULL);
    if (!rc)
        while ((rc = sl_pg_cluster_next(cluster, item, NULL)) == 1)
            fprintf(out, "%c %s%s%s", "?fdl"[item->kind], item -> path,
                    item -> link[0] ? " > " : "", item->link),
                item->whole ? fprintf(out, "\n")
                            : fprintf(out, " %llu+%llu\n", (unsigned long long)item->offset,
                                      (unsigned long long)item->length);
    sl_pg_cluster_free(cluster);
    close(fd);
    free(item);
    fclose(out);
    if (ret_rc)
        *ret_rc = rc;
    else
        assert_int_equal(rc, 0);
    return text;
}

static void expect(const char *wanted)
{
    char *got = walk(NULL);
    assert_string_equal(got, wanted);
    free(got);
}

static void walk__order__is_bytewise_by_whole_path(void **state)
{
    (void)state;
    make("a/x", 1);
    make("a.b", 1);
    make("a-b", 1);
    make("a/y/z", 1);
    make("aa", 0);
    expect("d a\nf a-b\nf a.b\nf a/x\nd a/y\nf a/y/z\nf aa\n");
}

static void walk__big_file__comes_in_pieces(void **state)
{
    (void)state;
    make("base/5/1", SL_PG_PIECE_BYTES);
    make("base/5/2", 2 * SL_PG_PIECE_BYTES + 8192);
    expect("d base\nd base/5\nf base/5/1\n"
           "f base/5/2 0+268435456\nf base/5/2 268435456+268435456\nf base/5/2 536870912+8192\n");
}

static void walk__what_postgres_excludes__is_left_out(void **state)
{
    (void)state;
    static const char *const files[] = {
        "postmaster.pid",
        "postmaster.opts",
        "backup_label",
        "tablespace_map",
        "current_logfiles",
        "standby.signal",
        "pg_wal/00000001",
        "pg_wal/archive_status/x",
        "pg_replslot/slot/state",
        "pg_notify/0000",
        "pg_stat_tmp/x",
        "pg_subtrans/0000",
        "pg_snapshots/x",
        "pg_serial/x",
        "pg_dynshmem/x",
        "global/pg_control",
        "global/pg_internal.init",
        "base/5/pg_internal.init.77",
        "base/5/t3_16390",
        "base/5/t3_16390_fsm.1",
        "base/pgsql_tmp/pgsql_tmp1.0",
        "base/5/pgsql_tmp77.0",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        make(files[i], 1);
    make("PG_VERSION", 3);
    make("global/1262", 1);
    make("base/5/16384", 1);
    make("pg_stat/x", 1);
    expect("f PG_VERSION\nd base\nd base/5\nf base/5/16384\nd global\nf global/1262\n"
           "d pg_dynshmem\nd pg_notify\nd pg_replslot\nd pg_serial\nd pg_snapshots\nd pg_stat\n"
           "f pg_stat/x\nd pg_stat_tmp\nd pg_subtrans\nd pg_wal\nd pg_wal/archive_status\n");
}

static void walk__unlogged__keeps_the_init_fork_only(void **state)
{
    (void)state;
    static const char *const files[] = {"base/5/100",        "base/5/100.1",     "base/5/100_fsm",
                                        "base/5/100_init",   "base/5/100_vm.2",  "base/5/1000",
                                        "base/5/10",         "global/100_init2", "global/100",
                                        "base/5/100_init.1", "base/5/100_other"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        make(files[i], 1);
    expect("d base\nd base/5\nf base/5/10\nf base/5/1000\nf base/5/100_init\nf base/5/100_init.1\n"
           "f base/5/100_other\nd global\nf global/100\nf global/100_init2\n");
}

static void walk__links__tablespaces_are_followed_others_stored(void **state)
{
    (void)state;
    make("outside/ts/" VERSION_FOLDER "/5/16384", 1);
    make("outside/ts/PG_14_1/5/16384", 1);
    make("outside/wal/000000010000000000000001", 1);
    make("outside/log/x", 1);
    make("real/pg_tblspc/x", 1);
    run("cd %s && mv outside %s.out && cd real && rm pg_tblspc/x && ln -s %s.out/ts pg_tblspc/16385"
        " && ln -s %s.out/wal pg_wal && ln -s %s.out/log log && ln -s nowhere broken && mkfifo fifo"
        " && mv ../real/* .. && rmdir ../real",
        root, root, root, root, root);
    char wanted[1024];
    snprintf(wanted, sizeof wanted,
             "l broken > nowhere\nl log > %s.out/log\nd pg_tblspc\nl pg_tblspc/16385 > %s.out/ts\n"
             "d pg_tblspc/16385/" VERSION_FOLDER "\nd pg_tblspc/16385/" VERSION_FOLDER
             "/5\nf pg_tblspc/16385/" VERSION_FOLDER "/5/16384\nd pg_wal\n",
             root, root);
    expect(wanted);
    run("rm -rf %s.out", root);
}

static void walk__torture__fails_cleanly_at_each_call(void **state)
{
    (void)state;
#ifdef SLUICE_FAULTS
    make("base/5/16384", 1);
    make("base/6/16384", 1);
    for (int n = 1;; n++) {
        char rule[64];
        snprintf(rule, sizeof rule, "*:%s@%d", n % 2 ? "EIO" : "ENOMEM", n);
        sl_fault_set(rule);
        int rc;
        char *text = walk(&rc);
        uint64_t passed = sl_fault_passed();
        sl_fault_set(NULL);
        free(text);
        if (passed < (uint64_t)n) {
            assert_int_equal(rc, 0);
            assert_true(n > 5);
            break;
        }
        assert_true(rc < 0);
    }
#endif
}

static void rules__names_of_relations(void **state)
{
    (void)state;
    bool init;
    assert_int_equal(sl_pg_relation_digits("16384", &init), 5);
    assert_int_equal(sl_pg_relation_digits("16384_init", &init), 5);
    assert_true(init);
    assert_int_equal(sl_pg_relation_digits("16384_vm.12", &init), 5);
    assert_false(init);
    assert_int_equal(sl_pg_relation_digits("16384x", &init), 0);
    assert_int_equal(sl_pg_relation_digits("16384.", &init), 0);
    assert_int_equal(sl_pg_relation_digits("16384_foo", &init), 0);
    assert_int_equal(sl_pg_relation_digits("pg_filenode.map", &init), 0);
    assert_true(sl_pg_is_temporary_relation("t12_16384"));
    assert_false(sl_pg_is_temporary_relation("t_16384"));
    assert_false(sl_pg_is_temporary_relation("t12_"));
    assert_false(sl_pg_is_temporary_relation("table"));
    assert_true(sl_pg_is_tablespace("pg_tblspc/1"));
    assert_false(sl_pg_is_tablespace("pg_tblspc/1/x"));
    assert_false(sl_pg_is_tablespace("pg_tblspc/x"));
    assert_true(sl_pg_is_relation_folder("base/5"));
    assert_false(sl_pg_is_relation_folder("base"));
    assert_false(sl_pg_is_relation_folder("base/5/x"));
    assert_true(sl_pg_is_relation_folder("pg_tblspc/1/PG_15_2/5"));
    assert_false(sl_pg_is_relation_folder("pg_tblspc/1/PG_15_2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(walk__order__is_bytewise_by_whole_path, setup, teardown),
        cmocka_unit_test_setup_teardown(walk__big_file__comes_in_pieces, setup, teardown),
        cmocka_unit_test_setup_teardown(walk__what_postgres_excludes__is_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(walk__unlogged__keeps_the_init_fork_only, setup, teardown),
        cmocka_unit_test_setup_teardown(walk__links__tablespaces_are_followed_others_stored, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(walk__torture__fails_cleanly_at_each_call, setup, teardown),
        cmocka_unit_test(rules__names_of_relations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
