/* The loader: folders, and plugins that are bad in one way each. */
#include "core/base/fault.h"
#include "core/plugin/loader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int setup(void **state)
{
    (void)state;
    return setenv("SLUICE_PLUGIN_PATH", TEST_PLUGINS, 1);
}

static int fails(const char *name, const char *expect)
{
    const struct sl_engine *engine = NULL;
    struct sl_err err = {0};
    int rc = sl_plugin_engine(name, &engine, &err);
    assert_null(engine);
    if (!strstr(err.msg, expect))
        fail_msg("\"%s\" does not contain \"%s\"", err.msg, expect);
    assert_int_equal(rc, err.code);
    return rc;
}

static void plugin_engine__good__loaded(void **state)
{
    (void)state;
    const struct sl_engine *engine = NULL;
    assert_int_equal(sl_plugin_engine("good", &engine, NULL), 0);
    assert_string_equal(engine->name, "good");
    assert_string_equal(engine->commands[0].name, "hello");
}

static void plugin_engine__bad__says_why(void **state)
{
    (void)state;
    assert_int_equal(fails("abi", "was built for interface"), SL_ERR_VERSION);
    assert_int_equal(fails("nothing", "lacks symbol sluice_engine"), SL_ERR_UNSUPPORTED);
    assert_int_equal(fails("incomplete", "is incomplete"), SL_ERR_UNSUPPORTED);
    assert_int_equal(fails("missing", "a_function_nobody_has"), SL_ERR_UNSUPPORTED);
    assert_int_equal(fails("absent", "is not in \"" TEST_PLUGINS "\""), SL_ERR_NOT_FOUND);
}

static void plugin_engine__names__checked(void **state)
{
    (void)state;
    assert_int_equal(fails("../good", "not the name"), SL_ERR_USAGE);
    assert_int_equal(fails("", "not the name"), SL_ERR_USAGE);
    assert_int_equal(fails("Good", "not the name"), SL_ERR_USAGE);
    assert_int_equal(fails("an-engine-name-of-more-than-31-bytes", "not the name"), SL_ERR_USAGE);
}

static void plugin_engine__no_variable__looks_beside_the_program(void **state)
{
    (void)state;
    unsetenv("SLUICE_PLUGIN_PATH");
    assert_int_equal(fails("good", "/../lib/sluice\", \""), SL_ERR_NOT_FOUND);
    setenv("SLUICE_PLUGIN_PATH", "", 1);
    assert_int_equal(fails("good", "/../lib/sluice\", \""), SL_ERR_NOT_FOUND);
}

static void plugin_engine__dlopen_fails__reported(void **state)
{
    (void)state;
    sl_fault_set("plugin.dlopen:ENOMEM");
    assert_int_equal(fails("good", "Cannot allocate memory"), SL_ERR_UNSUPPORTED);
    sl_fault_set(NULL);
}

static void plugin_transport__absent__not_found(void **state)
{
    (void)state;
    const struct sl_transport_plugin *plugin = NULL;
    struct sl_err err;
    assert_int_equal(sl_plugin_transport(&plugin, &err), SL_ERR_NOT_FOUND);
    assert_null(plugin);
    assert_non_null(strstr(err.msg, "sluice-verbs.so"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(plugin_engine__good__loaded, setup),
        cmocka_unit_test_setup(plugin_engine__bad__says_why, setup),
        cmocka_unit_test_setup(plugin_engine__names__checked, setup),
        cmocka_unit_test_setup(plugin_engine__no_variable__looks_beside_the_program, setup),
        cmocka_unit_test_setup(plugin_engine__dlopen_fails__reported, setup),
        cmocka_unit_test_setup(plugin_transport__absent__not_found, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
