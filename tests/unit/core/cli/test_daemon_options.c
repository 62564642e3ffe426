/* sluiced's configuration, and who may use which stanza. */
#include "core/base/fault.h"
#include "core/cli/daemon.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/test_daemon.XXXXXX";

static int setup(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    close(fd);
    return fd < 0;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

static int configure(const char *content, const char *variable, struct sl_options **ret_options,
                     struct sl_err *err)
{
    FILE *file = fopen(path, "w");
    fputs(content, file);
    fclose(file);
    char copy[64] = "A=b";
    if (variable)
        strcpy(copy, variable);
    char *argv[] = {(char[]){"--config"}, path};
    char *environment[] = {copy, NULL};
    return sl_daemon_configure(2, argv, environment, ret_options, err);
}

static void daemon_configure__file__read(void **state)
{
    (void)state;
    struct sl_options *options = NULL;
    assert_int_equal(
        configure("[global]\nrepo-path=/r\nport=0\npool-size=1GiB\n[main]\nclients=a\n",
                  "SLUICE_PORT=7", &options, NULL),
        0);
    assert_int_equal(sl_option_int(options, "port"), 7);
    assert_int_equal(sl_option_int(options, "pool-size"), 1 << 30);
    sl_options_free(options);
    options = NULL;
    /* a variable of `sluice` is not the daemon's business */
    assert_int_equal(configure("[global]\nrepo-path=/r\n", "SLUICE_PG_PATH=/x", &options, NULL), 0);
    sl_options_free(options);
}

static void daemon_configure__mistakes__refused(void **state)
{
    (void)state;
    struct sl_options *options = NULL;
    struct sl_err err;
    static const char *const cases[] = {
        "[global]\n",                           /* no repo-path */
        "[global]\nrepo-path=/r\nstanza=x\n",   /* unknown */
        "[global]\nrepo-path=/r\nclients=x\n",  /* belongs in a section */
        "[global]\nrepo-path=/r\nport=65536\n", /* out of range */
        "[global]\nrepo-path=/r\n[main]\nclient=a\n",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(configure(cases[i], NULL, &options, &err), SL_ERR_CONFIG);
    assert_null(options);
    assert_string_equal(err.hint, "did you mean \"clients\"?");
}

static void permissions__grants(void **state)
{
    (void)state;
    struct sl_options *options = NULL;
    struct sl_permissions *permissions = NULL;
    assert_int_equal(configure("[global]\nrepo-path=/r\n[main]\nclients = db1, db2\nclients=db3\n"
                               "expire-clients = backup1\n[open]\nclients = *\n[closed]\n",
                               NULL, &options, NULL),
                     0);
    assert_int_equal(sl_permissions_new(options, &permissions, NULL), 0);
    sl_options_free(options); /* they keep nothing of it */
    assert_true(sl_permissions_allow(permissions, "db1", "main"));
    assert_true(sl_permissions_allow(permissions, "db2", "main"));
    assert_true(sl_permissions_allow(permissions, "db3", "main"));
    assert_false(sl_permissions_allow(permissions, "db4", "main"));
    assert_false(sl_permissions_allow(permissions, "db", "main"));
    assert_false(sl_permissions_allow(permissions, "", "main"));
    assert_false(sl_permissions_allow(permissions, "*", "main"));
    assert_true(sl_permissions_allow(permissions, "anyone", "open"));
    assert_false(sl_permissions_allow(permissions, "db1", "closed"));
    assert_false(sl_permissions_allow(permissions, "db1", "nowhere"));
    assert_false(sl_permissions_allow(permissions, "db1", "global"));
    assert_true(sl_permissions_allow(permissions, "backup1", "main")); /* to see what there is */
    assert_true(sl_permissions_allow_remove(permissions, "backup1", "main"));
    assert_false(sl_permissions_allow_remove(permissions, "db1", "main"));
    assert_false(sl_permissions_allow_remove(permissions, "backup1", "open"));
    assert_false(sl_permissions_allow_remove(permissions, "anyone", "open"));
    sl_permissions_free(permissions);
    permissions = NULL;
    assert_int_equal(
        configure("[global]\nrepo-path=/r\n[main]\nexpire-clients = *\n", NULL, &options, NULL), 0);
    assert_int_equal(sl_permissions_new(options, &permissions, NULL), SL_ERR_CONFIG);
    sl_options_free(options);
}

static void permissions__bad_stanza__refused(void **state)
{
    (void)state;
    struct sl_options *options = NULL;
    struct sl_permissions *permissions = NULL;
    assert_int_equal(
        configure("[global]\nrepo-path=/r\n[../x]\nclients = a\n", NULL, &options, NULL), 0);
    assert_int_equal(sl_permissions_new(options, &permissions, NULL), SL_ERR_CONFIG);
    assert_null(permissions);
    sl_options_free(options);
}

static void permissions__torture(void **state)
{
    (void)state;
    struct sl_options *options = NULL;
    assert_int_equal(configure("[global]\nrepo-path=/r\n[a]\nclients=b,c\n[d]\nclients=e\n", NULL,
                               &options, NULL),
                     0);
    int rc = -1;
    for (int n = 1; rc; n++) {
        char rule[40];
        struct sl_permissions *permissions = NULL;
        snprintf(rule, sizeof rule, "alloc:ENOMEM@%d", n);
        sl_fault_set(rule);
        rc = sl_permissions_new(options, &permissions, NULL);
        assert_true(rc == 0 || rc == SL_ERR_NO_MEMORY);
        assert_true((rc == 0) == (permissions != NULL));
        if (permissions)
            assert_true(sl_permissions_allow(permissions, "e", "d"));
        sl_permissions_free(permissions);
    }
    sl_fault_set(NULL);
    sl_options_free(options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(daemon_configure__file__read),
        cmocka_unit_test(daemon_configure__mistakes__refused),
        cmocka_unit_test(permissions__grants),
        cmocka_unit_test(permissions__bad_stanza__refused),
        cmocka_unit_test(permissions__torture),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
