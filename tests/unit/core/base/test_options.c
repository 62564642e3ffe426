/* The options table: sources and their order, the file's grammar, errors that say where, help. */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/options.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct sl_option general[] = {
    {.name = "repo-path",
     .type = SL_OPTION_STRING,
     .value_name = "DIR",
     .group = "Repository",
     .help = "The folder of the repository"},
    {.name = "repo-host", .type = SL_OPTION_LIST, .value_name = "HOST", .help = "Targets"},
    {.name = "seal", .type = SL_OPTION_CHOICE, .choices = "auto|on|off", .default_text = "auto"},
    {.name = "memory",
     .type = SL_OPTION_BYTES,
     .default_text = "64MiB",
     .min = 1 << 20,
     .max = 1ll << 40},
    {.name = "timeout",
     .type = SL_OPTION_DURATION,
     .default_text = "60s",
     .min = 1,
     .max = 86400000},
    {.name = "config", .type = SL_OPTION_STRING, .flags = SL_OPTION_CLI_ONLY, .group = "General"},
    {.name = "secret", .type = SL_OPTION_INT, .flags = SL_OPTION_SECRET | SL_OPTION_HIDDEN},
    {.name = "only-file", .type = SL_OPTION_BOOL, .flags = SL_OPTION_FILE_ONLY},
    {.name = "clients", .type = SL_OPTION_LIST, .flags = SL_OPTION_SECTION},
    {NULL},
};

static const struct sl_option special[] = {
    {.name = "jobs",
     .type = SL_OPTION_INT,
     .value_name = "N",
     .default_text = "1",
     .min = 1,
     .max = 64,
     .commands = "backup restore",
     .help = "Parallel workers"},
    {.name = "dry-run", .type = SL_OPTION_BOOL, .commands = "restore", .help = "Change nothing"},
    {NULL},
};

struct fixture {
    struct sl_options *options;
    struct sl_err err;
};

static struct sl_options *make(void)
{
    const struct sl_option *const tables[] = {general, special};
    struct sl_options *options = NULL;
    assert_int_equal(sl_options_new(tables, 2, &options, NULL), 0);
    return options;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->options = make();
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    sl_options_free(f->options);
    free(f);
    return 0;
}

static int args(struct fixture *f, const char *command, const char **ret_args, int args_max, ...)
{
    char *argv[16];
    int argc = 0;
    va_list list;
    va_start(list, args_max);
    for (char *arg = va_arg(list, char *); arg; arg = va_arg(list, char *))
        argv[argc++] = arg;
    va_end(list);
    return sl_options_parse_args(f->options, command, argc, argv, ret_args, args_max, &f->err);
}
#define ARGS(f, command, ...) args(f, command, NULL, 0, __VA_ARGS__, NULL)

static int text(struct fixture *f, const char *stanza, const char *command, const char *content)
{
    return sl_options_parse_text(f->options, content, strlen(content), "f.conf", stanza, command,
                                 &f->err);
}

/* --- defaults and tables --------------------------------------------------------------------- */

static void options_new__defaults__parsed(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(sl_option_int(f->options, "memory"), 64 << 20);
    assert_int_equal(sl_option_int(f->options, "timeout"), 60000);
    assert_string_equal(sl_option_string(f->options, "seal"), "auto");
    assert_null(sl_option_string(f->options, "repo-path"));
    assert_false(sl_option_bool(f->options, "dry-run"));
    assert_false(sl_option_is_set(f->options, "memory"));
    assert_string_equal(sl_option_origin(f->options, "memory"), "default");
    const char **items;
    assert_int_equal(sl_option_list(f->options, "repo-host", &items), 0);
    assert_null(items[0]);
    assert_true(sl_option_exists(f->options, "jobs"));
    assert_false(sl_option_exists(f->options, "job"));
}

static void options_new__name_twice__fails(void **state)
{
    (void)state;
    const struct sl_option *const tables[] = {general, general};
    struct sl_options *options = NULL;
    assert_int_equal(sl_options_new(tables, 2, &options, NULL), SL_ERR_INTERNAL);
    assert_null(options);
}

static void options_new__bad_default__fails(void **state)
{
    (void)state;
    static const struct sl_option bad[] = {
        {.name = "n", .type = SL_OPTION_INT, .default_text = "many"}, {NULL}};
    const struct sl_option *const tables[] = {bad};
    struct sl_options *options = NULL;
    struct sl_err err;
    assert_int_equal(sl_options_new(tables, 1, &options, &err), SL_ERR_INTERNAL);
    assert_non_null(strstr(err.msg, "\"n\""));
}

/* --- command line ---------------------------------------------------------------------------- */

static void parse_args__all_forms__read(void **state)
{
    struct fixture *f = *state;
    const char *got[3];
    assert_int_equal(args(f, "restore", got, 3, "--repo-path=/r", "one", "--memory", "8MiB",
                          "--dry-run", "--repo-host", "a,b", "-", "--repo-host=c", "--",
                          "--not-an-option", NULL),
                     3);
    assert_string_equal(got[0], "one");
    assert_string_equal(got[1], "-");
    assert_string_equal(got[2], "--not-an-option");
    assert_string_equal(sl_option_string(f->options, "repo-path"), "/r");
    assert_int_equal(sl_option_int(f->options, "memory"), 8 << 20);
    assert_true(sl_option_bool(f->options, "dry-run"));
    const char **items;
    assert_int_equal(sl_option_list(f->options, "repo-host", &items), 2);
    assert_string_equal(items[0], "a,b"); /* a comma on the command line belongs to the item */
    assert_string_equal(items[1], "c");
    assert_null(items[2]);
    assert_string_equal(sl_option_origin(f->options, "repo-path"), "command line");
}

static void parse_args__no_switch__off(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ARGS(f, "restore", "--dry-run", "--no-dry-run"), 0);
    assert_false(sl_option_bool(f->options, "dry-run"));
    assert_true(sl_option_is_set(f->options, "dry-run"));
    assert_int_equal(ARGS(f, "restore", "--dry-run=yes"), 0);
    assert_true(sl_option_bool(f->options, "dry-run"));
    assert_int_equal(ARGS(f, "restore", "--no-repo-path"), SL_ERR_USAGE);
    assert_int_equal(ARGS(f, "restore", "--no-dry-run=on"), SL_ERR_USAGE);
}

static void parse_args__last_one__wins(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ARGS(f, "backup", "--jobs=2", "--jobs=3"), 0);
    assert_int_equal(sl_option_int(f->options, "jobs"), 3);
}

static void parse_args__unknown__hints(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ARGS(f, "backup", "--repo-pth=/r"), SL_ERR_USAGE);
    assert_string_equal(f->err.hint, "did you mean \"repo-path\"?");
    assert_int_equal(ARGS(f, "backup", "--xyzzy"), SL_ERR_USAGE);
    assert_string_equal(f->err.hint, "");
    assert_int_equal(ARGS(f, "backup", "-j"), SL_ERR_USAGE);
    assert_int_equal(ARGS(f, "backup", "--"), 0);
    assert_int_equal(ARGS(f, "backup", "--=x"), SL_ERR_USAGE);
    assert_int_equal(ARGS(f, "backup", "--secrt=1"), SL_ERR_USAGE);
    assert_string_equal(f->err.hint, ""); /* hidden ones are not proposed */
}

static void parse_args__other_commands_option__hints(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ARGS(f, "verify", "--jobs=2"), SL_ERR_USAGE);
    assert_non_null(strstr(f->err.hint, "backup restore"));
    assert_int_equal(ARGS(f, "back", "--jobs=2"), SL_ERR_USAGE); /* no prefix matching */
}

static void parse_args__bad_values__named(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[] = {
        "--jobs=0",
        "--jobs=65",
        "--jobs=2x",
        "--jobs=",
        "--jobs=-1",
        "--jobs= 3",
        "--jobs=99999999999999999999",
        "--memory=1KiB",
        "--memory=2TiB",
        "--timeout=2d",
        "--timeout=0",
        "--seal=maybe",
        "--seal=o",
        "--seal=auto|on",
        "--dry-run=oui",
        "--repo-path=",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arg[64];
        strcpy(arg, cases[i]);
        assert_int_equal(ARGS(f, "restore", arg), SL_ERR_USAGE);
        *strchr(arg, '=') = '\0';
        assert_non_null(strstr(f->err.msg, arg));
    }
    assert_int_equal(sl_option_int(f->options, "jobs"), 1);
    assert_int_equal(ARGS(f, "restore", "--jobs"), SL_ERR_USAGE); /* nothing follows */
    assert_int_equal(ARGS(f, "restore", "--only-file"), SL_ERR_USAGE);
    assert_int_equal(ARGS(f, "restore", "extra"), SL_ERR_USAGE);
}

static void parse_args__bad_secret__not_shown(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ARGS(f, "restore", "--secret=hunter2"), SL_ERR_USAGE);
    assert_null(strstr(f->err.msg, "hunter2"));
}

static void parse_args__lenient__skips(void **state)
{
    struct fixture *f = *state;
    sl_options_lenient(f->options, true);
    assert_int_equal(ARGS(f, NULL, "--pg-path", "/x", "-j", "--memory=x", "--jobs=3", "word"), 0);
    assert_int_equal(sl_option_int(f->options, "jobs"), 3);
    assert_int_equal(text(f, NULL, NULL, "[global]\npg-path=/x\njobs=2\n[main]\nwhat=ever\n"), 0);
    char *environment[] = {(char[]){"SLUICE_PG_PATH=/x"}, NULL};
    assert_int_equal(sl_options_parse_env(f->options, environment, NULL), 0);
}

/* --- environment ----------------------------------------------------------------------------- */

static int env(struct fixture *f, const char *variable)
{
    char copy[128];
    strcpy(copy, variable);
    char *environment[] = {(char[]){"PATH=/bin"}, copy, NULL};
    return sl_options_parse_env(f->options, environment, &f->err);
}

static void parse_env__variables__read(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(env(f, "SLUICE_REPO_HOST= a , b:7430"), 0);
    const char **items;
    assert_int_equal(sl_option_list(f->options, "repo-host", &items), 2);
    assert_string_equal(items[0], "a");
    assert_string_equal(items[1], "b:7430");
    assert_string_equal(sl_option_origin(f->options, "repo-host"), "environment");
    assert_int_equal(env(f, "SLUICE_REPO_PATH="), 0);
    assert_null(sl_option_string(f->options, "repo-path"));
}

static void parse_env__not_options__ignored(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(env(f, "SLUICE_FAULT=x:EIO"), 0);
    assert_int_equal(env(f, "SLUICE_LAB_KERNEL=/k"), 0);
    assert_int_equal(env(f, "SLUICE_PLUGIN_PATH=/p"), 0);
    assert_int_equal(env(f, "SLUICE_SERVICE_HOST=10.0.0.1"), 0);
    assert_int_equal(
        env(f, "SLUICE_7430_TCP_ADDRESS_THAT_IS_LONGER_THAN_ANY_OPTION_WOULD_EVER_BE=1"), 0);
    assert_int_equal(env(f, "SLUICE_=1"), 0);
    assert_int_equal(env(f, "SLUICEBOX=1"), 0);
}

static void parse_env__bad__fails(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(env(f, "SLUICE_REPO_PTH=/r"), SL_ERR_CONFIG);
    assert_string_equal(f->err.msg, "unknown environment variable \"SLUICE_REPO_PTH\"");
    assert_string_equal(f->err.hint, "did you mean the option \"repo-path\"?");
    assert_int_equal(env(f, "SLUICE_JOBS=many"), SL_ERR_CONFIG);
    assert_non_null(strstr(f->err.msg, "SLUICE_JOBS"));
    assert_int_equal(env(f, "SLUICE_REPO_HOST=a,,b"), SL_ERR_CONFIG);
    assert_int_equal(env(f, "SLUICE_ONLY_FILE=1"), SL_ERR_CONFIG);
    assert_int_equal(env(f, "SLUICE_CLIENTS=1"), SL_ERR_CONFIG);
}

/* --- file ------------------------------------------------------------------------------------ */

static const char sample[] = "\xef\xbb\xbf# comment\n"
                             "[global]\r\n"
                             "repo-path = /global # comment\n"
                             "  jobs=2\n"
                             "memory = 2MiB\n"
                             "repo-host = a, b\n"
                             "repo-host = c\n"
                             "\n"
                             "[global:backup]\n"
                             "jobs = 3\n"
                             "[main] ; the database\n"
                             "repo-path = \"/main # ; \"  # comment\n"
                             "timeout = 1h\n"
                             "clients = db1, db2\n"
                             "clients = db3\n"
                             "[main:restore]\n"
                             "jobs = 4\n"
                             "[empty]\n"
                             "[other]\n"
                             "jobs = 5"; /* no newline at the end */

static void parse_text__no_stanza__global_only(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(text(f, NULL, "backup", sample), 0);
    assert_string_equal(sl_option_string(f->options, "repo-path"), "/global");
    assert_int_equal(sl_option_int(f->options, "jobs"), 3);
    assert_int_equal(sl_option_int(f->options, "timeout"), 60000);
    assert_string_equal(sl_option_origin(f->options, "jobs"), "f.conf:10");
    const char **names;
    assert_int_equal(sl_options_sections(f->options, &names), 3);
    assert_string_equal(names[0], "main");
    assert_string_equal(names[1], "empty");
    assert_string_equal(names[2], "other");
    const char **items;
    assert_int_equal(sl_option_list(f->options, "repo-host", &items), 3);
    assert_string_equal(items[2], "c");
    assert_string_equal(sl_options_in_section(f->options, "main", "clients"), "db1, db2,db3");
    assert_null(sl_options_in_section(f->options, "main", "jobs"));
    assert_null(sl_options_in_section(f->options, "nowhere", "jobs"));
}

static void parse_text__stanza__wins_over_global(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(text(f, NULL, "backup", sample), 0);
    assert_int_equal(text(f, "main", "restore", sample), 0);
    assert_string_equal(sl_option_string(f->options, "repo-path"), "/main # ; ");
    assert_int_equal(sl_option_int(f->options, "jobs"), 4);
    assert_int_equal(sl_option_int(f->options, "timeout"), 3600000);
    /* and what it said for another stanza before is forgotten */
    assert_int_equal(text(f, "other", "restore", sample), 0);
    assert_string_equal(sl_option_string(f->options, "repo-path"), "/global");
    assert_int_equal(sl_option_int(f->options, "jobs"), 5);
    assert_int_equal(sl_option_int(f->options, "timeout"), 60000);
}

static void parse_text__order__command_line_env_file(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ARGS(f, "backup", "--repo-host=cli"), 0);
    assert_int_equal(env(f, "SLUICE_REPO_HOST=env"), 0);
    assert_int_equal(env(f, "SLUICE_REPO_PATH=/env"), 0);
    assert_int_equal(text(f, "main", "backup", sample), 0);
    const char **items;
    assert_int_equal(sl_option_list(f->options, "repo-host", &items), 1);
    assert_string_equal(items[0], "cli");
    assert_string_equal(sl_option_string(f->options, "repo-path"), "/env");
    assert_int_equal(sl_option_set(f->options, "repo-path", "/code", "derived", NULL), 0);
    assert_string_equal(sl_option_string(f->options, "repo-path"), "/code");
    assert_string_equal(sl_option_origin(f->options, "repo-path"), "derived");
    assert_int_equal(sl_option_set(f->options, "jobs", "0", "derived", NULL), SL_ERR_USAGE);
}

static void parse_text__mistakes__named_with_line(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *content, *expect;
    } cases[] = {
        {"[global]\nrepo-pth = /r\n", "f.conf:2: unknown option \"repo-pth\""},
        {"[global]\n\n[x]\nrepo-pth = /r\n", "f.conf:4: unknown option"},
        {"repo-path = /r\n", "f.conf:1: option \"repo-path\" stands before"},
        {"[global\n", "f.conf:1: a section is written"},
        {"[global] x\n", "f.conf:1: a section is written"},
        {"[]\n", "f.conf:1: a section needs a name"},
        {"[x:]\n", "f.conf:1: no command after"},
        {"[global]\nrepo-path\n", "f.conf:2: neither"},
        {"[global]\n= x\n", "f.conf:2: unknown option \"\""},
        {"[global]\nrepo-path =\n", "f.conf:2: option \"repo-path\" has no value"},
        {"[global]\nrepo-path = # none\n", "f.conf:2: option \"repo-path\" has no value"},
        {"[global]\nrepo-path = \"\"\n", "f.conf:2: option \"repo-path\" has no value"},
        {"[global]\nrepo-path = \"/r\n", "f.conf:2: a double quote"},
        {"[global]\nrepo-path = \"/r\" s\n", "f.conf:2: a double quote"},
        {"[global]\nrepo-path = /r\n\nrepo-path = /s\n",
         "f.conf:4: option \"repo-path\" is set on line 2 already"},
        {"[global]\nrepo-path = a\x01z\n", "f.conf:2: a control character (0x01)"},
        {"[global]\nconfig = /x\n", "f.conf:2: option \"config\" belongs on the command line"},
        {"[global]\nclients = a\n", "f.conf:2: option \"clients\" belongs in a stanza's section"},
        {"[global]\njobs = many\n", "f.conf:2: option \"jobs\": \"many\" is not a whole number"},
        {"[global]\nrepo-host = a,,b\n", "f.conf:2: option \"repo-host\": an item"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(text(f, NULL, "backup", cases[i].content), SL_ERR_CONFIG);
        assert_int_equal(f->err.code, SL_ERR_CONFIG);
        if (strncmp(f->err.msg, cases[i].expect, strlen(cases[i].expect)) != 0)
            fail_msg("\"%s\" gave \"%s\"", cases[i].content, f->err.msg);
    }
    /* a NUL ends no line */
    assert_int_equal(
        sl_options_parse_text(f->options, "[global]\nx\0y\n", 13, "f.conf", NULL, NULL, &f->err),
        SL_ERR_CONFIG);
    assert_non_null(strstr(f->err.msg, "0x00"));
}

static void parse_text__unknown_command__fails(void **state)
{
    struct fixture *f = *state;
    static const char *const commands[] = {"backup", "restore", NULL};
    assert_int_equal(text(f, NULL, NULL, "[x:bakup]\n"), 0);
    sl_options_commands(f->options, commands);
    assert_int_equal(text(f, NULL, NULL, "[x:bakup]\n"), SL_ERR_CONFIG);
    assert_string_equal(f->err.hint, "did you mean \"backup\"?");
    assert_int_equal(text(f, NULL, NULL, "[x:backup]\n"), 0);
}

static void parse_text__long_line__whole(void **state)
{
    struct fixture *f = *state;
    char content[6000] = "[global]\nrepo-path = /";
    memset(content + strlen(content), 'x', 5000);
    assert_int_equal(text(f, NULL, NULL, content), 0);
    assert_int_equal(strlen(sl_option_string(f->options, "repo-path")), 5001);
}

static void parse_file__missing__open(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(sl_options_parse_file(f->options, "/nonexistent/f.conf", NULL, NULL, &f->err),
                     SL_ERR_OPEN);
    assert_int_equal(f->err.sys, ENOENT);
    assert_int_equal(sl_options_parse_file(f->options, "/", NULL, NULL, &f->err), SL_ERR_READ);
    assert_int_equal(sl_options_parse_file(f->options, "/dev/zero", NULL, NULL, &f->err),
                     SL_ERR_CONFIG);
    assert_non_null(strstr(f->err.msg, "larger than 1 MiB"));
}

/* Every allocation and call fails once: an error each time, no leak (under ASan), no crash. */
static void options__torture__clean(void **state)
{
    (void)state;
    char path[] = "/tmp/test_options.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, sample, sizeof sample - 1), sizeof sample - 1);
    close(fd);
    bool passed = false;
    int n = 1;
    for (; !passed; n++) {
        char rule[40];
        snprintf(rule, sizeof rule, "*:ENOMEM@%d", n);
        sl_fault_set(rule);
        const struct sl_option *const tables[] = {general, special};
        struct sl_options *options = NULL;
        struct sl_err err = {0};
        char *environment[] = {(char[]){"SLUICE_SEAL=on"}, NULL};
        char *argv[] = {(char[]){"--jobs=7"}, (char[]){"--repo-host=x"}};
        int rc = sl_options_new(tables, 2, &options, &err);
        if (!rc)
            rc = sl_options_parse_args(options, "backup", 2, argv, NULL, 0, &err);
        if (!rc)
            rc = sl_options_parse_env(options, environment, &err);
        if (!rc)
            rc = sl_options_parse_file(options, path, NULL, "backup", &err);
        if (!rc)
            rc = sl_options_parse_file(options, path, "main", "backup", &err);
        passed = rc == 0;
        if (rc) {
            assert_int_equal(rc, SL_ERR_NO_MEMORY);
            assert_int_equal(err.code, rc);
        } else {
            assert_int_equal(sl_option_int(options, "jobs"), 7);
        }
        sl_options_free(options);
    }
    sl_fault_set(NULL);
    assert_true(n > 50);
    unlink(path);
}

/* --- help ------------------------------------------------------------------------------------ */

static char *capture(void (*print)(const struct sl_options *, const char *, FILE *),
                     struct fixture *f, const char *command)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    print(f->options, command, out);
    fclose(out);
    return text;
}

static void options_help__command__own_options_first(void **state)
{
    struct fixture *f = *state;
    char *help = capture(sl_options_help, f, "backup");
    const char *own = strstr(help, "Options of backup:\n  --jobs=N ");
    const char *group = strstr(help, "Repository:\n  --repo-path=DIR ");
    assert_non_null(own);
    assert_non_null(group);
    assert_true(own < group);
    assert_non_null(strstr(help, "Parallel workers (default 1)"));
    assert_non_null(strstr(help, "--seal=auto|on|off"));
    assert_null(strstr(help, "dry-run"));
    assert_null(strstr(help, "secret"));
    for (char *line = strtok(help, "\n"); line; line = strtok(NULL, "\n"))
        assert_true(strlen(line) <= 100);
    free(help);
}

static void options_man__all__scdoc(void **state)
{
    struct fixture *f = *state;
    char *man = capture(sl_options_man, f, NULL);
    assert_non_null(strstr(man, "# OPTIONS\n\n## REPOSITORY\n\n*--repo-path*=_DIR_\n\t"));
    assert_non_null(strstr(man, "auto\\|on\\|off"));
    assert_null(strstr(man, "secret"));
    free(man);
}

static void nearest__words(void **state)
{
    (void)state;
    static const char *const words[] = {"backup", "restore", "archive-push", "archive-get"};
    assert_string_equal(sl_nearest("bakcup", words, 4), "backup");
    assert_string_equal(sl_nearest("archive-pus", words, 4), "archive-push");
    assert_null(sl_nearest("x", words, 4));
    assert_null(sl_nearest("frobnicate", words, 4));
    char big[200];
    memset(big, 'a', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    sl_nearest(big, words, 4);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(options_new__defaults__parsed),
        TEST(options_new__name_twice__fails),
        TEST(options_new__bad_default__fails),
        TEST(parse_args__all_forms__read),
        TEST(parse_args__no_switch__off),
        TEST(parse_args__last_one__wins),
        TEST(parse_args__unknown__hints),
        TEST(parse_args__other_commands_option__hints),
        TEST(parse_args__bad_values__named),
        TEST(parse_args__bad_secret__not_shown),
        TEST(parse_args__lenient__skips),
        TEST(parse_env__variables__read),
        TEST(parse_env__not_options__ignored),
        TEST(parse_env__bad__fails),
        TEST(parse_text__no_stanza__global_only),
        TEST(parse_text__stanza__wins_over_global),
        TEST(parse_text__order__command_line_env_file),
        TEST(parse_text__mistakes__named_with_line),
        TEST(parse_text__unknown_command__fails),
        TEST(parse_text__long_line__whole),
        TEST(parse_file__missing__open),
        TEST(options__torture__clean),
        TEST(options_help__command__own_options_first),
        TEST(options_man__all__scdoc),
        TEST(nearest__words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
