/* The rules for names. */
#include "core/store/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void name__good__accepted(void **state)
{
    (void)state;
    static const char *const good[] = {"a",
                                       "main/wal/7123456789012345678/00000001/0000000100000000/"
                                       "000000010000000000000001",
                                       "A-Z.a_z+0=9@b:c",
                                       "-",
                                       "a..b/c.",
                                       "repo.json"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(sl_store_name_check(good[i], false, NULL), 0);
    assert_int_equal(sl_store_name_check("", true, NULL), 0);
}

static void name__bad__refused_with_reason(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"", "is empty"},          {"/", "empty component"},    {"/a", "empty component"},
        {"a/", "empty component"}, {"a//b", "empty component"}, {".", "begins with a dot"},
        {"..", "begins with"},     {"a/../b", "begins with"},   {".tmp/x", "begins with"},
        {"a/.b", "begins with"},   {"a b", "a character"},      {"a\nb", "a character"},
        {"a\\b", "a character"},   {"a\x80", "a character"},    {"caf\xc3\xa9", "a character"},
        {"a*", "a character"},     {"~", "a character"},        {"a/b;c/d", "a character"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sl_err err = {0};
        assert_int_equal(sl_store_name_check(bad[i][0], false, &err), SL_ERR_USAGE);
        if (!strstr(err.msg, bad[i][1]))
            fail_msg("\"%s\": %s", bad[i][0], err.msg);
    }
    assert_int_equal(sl_store_name_check("/", true, NULL), SL_ERR_USAGE);
}

static void name__lengths(void **state)
{
    (void)state;
    char name[SL_STORE_NAME_MAX + 2];
    memset(name, 'n', sizeof name);
    name[255] = '\0';
    assert_int_equal(sl_store_name_check(name, false, NULL), 0);
    name[255] = 'n';
    name[256] = '\0';
    assert_int_equal(sl_store_name_check(name, false, NULL), SL_ERR_USAGE);
    memset(name, 'n', sizeof name);
    for (size_t i = 100; i < sizeof name; i += 100)
        name[i] = '/';
    name[SL_STORE_NAME_MAX - 1] = '\0';
    assert_int_equal(sl_store_name_check(name, false, NULL), 0);
    name[SL_STORE_NAME_MAX - 1] = 'n';
    name[SL_STORE_NAME_MAX] = '\0';
    assert_int_equal(sl_store_name_check(name, false, NULL), SL_ERR_USAGE);
}

/* Every byte but NUL, against the list in store.h. */
static void name__every_byte(void **state)
{
    (void)state;
    for (int c = 1; c < 256; c++) {
        char name[] = {'a', (char)c, 'b', 0};
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        bool good = letter || strchr("._+=@:-/", c);
        assert_int_equal(sl_store_name_check(name, false, NULL), good ? 0 : SL_ERR_USAGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(name__good__accepted),
        cmocka_unit_test(name__bad__refused_with_reason),
        cmocka_unit_test(name__lengths),
        cmocka_unit_test(name__every_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
