/* Which stanza: names, and the choice. */
#include "core/cli/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const struct sl_option table[] = {
    {.name = "stanza", .type = SL_OPTION_STRING},
    {.name = "my-data", .type = SL_OPTION_STRING, .flags = SL_OPTION_DATA_PATH},
    {.name = "other-path", .type = SL_OPTION_STRING},
    {NULL},
};

/* "" for none, "!" for an error. */
static const char *choose(const char *content, const char *given, const char *cwd)
{
    static char chosen[80];
    const struct sl_option *const tables[] = {table};
    struct sl_options *options = NULL;
    const char *stanza = NULL;
    assert_int_equal(sl_options_new(tables, 1, &options, NULL), 0);
    assert_int_equal(
        sl_options_parse_text(options, content, strlen(content), "f", NULL, NULL, NULL), 0);
    if (given)
        assert_int_equal(sl_option_set(options, "stanza", given, "test", NULL), 0);
    struct sl_err err = {0};
    int rc = sl_stanza_choose(options, table, cwd, &stanza, &err);
    snprintf(chosen, sizeof chosen, "%s", rc ? "!" : stanza ? stanza : "");
    sl_options_free(options);
    return chosen;
}

static void stanza_check__names(void **state)
{
    (void)state;
    static const char *const good[] = {
        "main", "a", "15-main", "A.b_c+d",
        "012345678901234567890123456789012345678901234567890123456789012"}; /* as the wire has it */
    static const char *const bad[] = {
        "",          ".hidden",
        "..",        "-x",
        "a/b",       "a b",
        "global",    "a:b",
        "\xc3\xa4",  "0123456789012345678901234567890123456789012345678901234567890123",
        "repo.json", "lost+found"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(sl_stanza_check(good[i], NULL), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sl_stanza_check(bad[i], NULL), SL_ERR_CONFIG);
}

static void stanza_choose__ways(void **state)
{
    (void)state;
    assert_string_equal(choose("", NULL, "/"), "");
    assert_string_equal(choose("[global]\n", NULL, "/"), "");
    assert_string_equal(choose("[main]\n", NULL, "/"), "main");
    assert_string_equal(choose("[main]\n", "x", "/"), "x"); /* what is given wins */
    assert_string_equal(choose("[a]\n[b]\n", NULL, "/"), "");
    assert_string_equal(choose("[a]\n[b]\n", "b", "/"), "b");
    assert_string_equal(choose("[main]\n", "a/b", "/"), "!");
    assert_string_equal(choose("[a b]\n", NULL, "/"), "!");
}

static void stanza_choose__folder(void **state)
{
    (void)state;
    char folder[] = "/tmp/test_stanza.XXXXXX", link[64], content[300], near[64];
    assert_non_null(mkdtemp(folder));
    snprintf(link, sizeof link, "%s.link", folder);
    snprintf(near, sizeof near, "%s2", folder); /* begins alike, is another */
    assert_int_equal(symlink(folder, link), 0);
    assert_int_equal(mkdir(near, 0700), 0);
    snprintf(content, sizeof content, "[a]\nmy-data=/usr\n[b]\nmy-data = %s\n[c]\nother-path=%s\n",
             link, near);
    assert_string_equal(choose(content, NULL, folder), "b");
    assert_string_equal(choose(content, NULL, link), "b");
    assert_string_equal(choose(content, NULL, near), "");
    assert_string_equal(choose(content, NULL, "/usr/bin"), "a");
    assert_string_equal(choose(content, NULL, "/"), "");
    assert_string_equal(choose(content, NULL, NULL), "");
    unlink(link);
    rmdir(near);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stanza_check__names),
        cmocka_unit_test(stanza_choose__ways),
        cmocka_unit_test(stanza_choose__folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
