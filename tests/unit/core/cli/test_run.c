/* The program `sluice`: from argv to output and exit status, each run in a child process. */
#include "core/base/fault.h"
#include "core/cli/cli.h"
#include "core/cli/connect.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    char folder[64], config[96];
    char out[1 << 16], err[1 << 16]; /* of the last run */
};

static void slurp(FILE *file, char *text, size_t room)
{
    rewind(file);
    text[fread(text, 1, room - 1, file)] = '\0';
    fclose(file);
}

static uid_t run_uid;    /* of the next runs; 0: as it is */
static bool run_by_file; /* the environment names no engine in the next runs */

/* Runs "sluice" with words separated by blanks; "@" stands for the config file. Returns the exit
 * status, or the negative number of the signal. */
static int run_with_env(struct fixture *f, const char *variable, const char *line)
{
    char copy[512], *argv[32] = {(char[]){"sluice"}}, environment_text[128] = "";
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = strcmp(word, "@") == 0 ? f->config : word;
    if (variable)
        snprintf(environment_text, sizeof environment_text, "%s", variable);
    char *environment[] = {run_by_file ? (char[]){"X=1"} : (char[]){"SLUICE_ENGINE=test"},
                           variable ? environment_text : NULL, NULL};
    FILE *out = tmpfile(), *err = tmpfile();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (run_uid && geteuid() == 0 && setuid(run_uid))
            _exit(99);
        dup2(fileno(out), STDOUT_FILENO);
        dup2(fileno(err), STDERR_FILENO);
        exit(sl_cli_main(argc, argv, environment));
    }
    int status = 0;
    waitpid(child, &status, 0);
    slurp(out, f->out, sizeof f->out);
    slurp(err, f->err, sizeof f->err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int run(struct fixture *f, const char *line)
{
    return run_with_env(f, NULL, line);
}

static void configure(struct fixture *f, const char *content)
{
    FILE *file = fopen(f->config, "w");
    for (; *content; content++) { /* '%' stands for the folder */
        if (*content == '%')
            fputs(f->folder, file);
        else
            fputc(*content, file);
    }
    fclose(file);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    strcpy(f->folder, "/tmp/test_run.XXXXXX");
    if (!mkdtemp(f->folder))
        return -1;
    snprintf(f->config, sizeof f->config, "%s/s.conf", f->folder);
    *state = f;
    return setenv("SLUICE_PLUGIN_PATH", TEST_ENGINES, 1) || chdir("/");
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char line[128];
    snprintf(line, sizeof line, "rm -rf %s", f->folder);
    int rc = system(line);
    free(f);
    return rc;
}

static void contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
}

/* --- words -------------------------------------------------------------------------------------
 */

static void run__no_command__usage(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(run(f, ""), 31);
    assert_string_equal(f->err, "ERROR: [031]: no command is named\n"
                                "HINT: \"sluice help\" lists the commands\n");
    assert_string_equal(f->out, "");
}

static void run__help_and_version__printed(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(run(f, "--version"), 0);
    assert_string_equal(f->out, "sluice " SLUICE_VERSION "\n");
    assert_int_equal(run(f, "version --output=json"), 0);
    contains(f->out, "\"sluice\": \"" SLUICE_VERSION "\"");
    assert_int_equal(run(f, "--help"), 0);
    contains(f->out, "Commands for Test:\n  show [A [B]] ");
    contains(f->out, "Commands for every engine:\n  verify");
    assert_int_equal(run(f, "help show"), 0);
    contains(f->out, "usage: sluice show [OPTION...] [A [B]]\n");
    contains(f->out, "Options of show:\n  --level=N ");
    char help[1 << 16];
    strcpy(help, f->out);
    assert_int_equal(run(f, "show --help"), 0);
    assert_string_equal(f->out, help);
    assert_int_equal(run(f, "help shew"), 31);
    contains(f->err, "HINT: did you mean \"show\"?");
    assert_int_equal(run(f, "--engine=none help"), 0); /* helps even so */
    contains(f->out, "no engine's commands: plugin \"sluice-none.so\" is not in ");
}

static void run__unknown_command__above_125(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(run(f, "shwo"), 126);
    contains(f->err, "ERROR: [031]: unknown command \"shwo\"\nHINT: did you mean \"show\"?\n");
}

static void run__archive_commands_without_engine__contracts(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(run(f, "archive-get --engine=none a b"), 126);
    contains(f->err, "sluice-none.so");
    assert_int_equal(run(f, "anything --engine=none a b"), 126);
    assert_int_equal(run(f, "archive-push --engine=none a"), 55);
    assert_int_equal(chdir(f->folder), 0);
    fclose(fopen("standby.signal", "w"));
    assert_int_equal(run(f, "archive-get --engine=none a b"), 1);
    assert_int_equal(chdir("/"), 0);
}

static void run__options_before_the_command__read(void **state)
{
    struct fixture *f = *state;
    configure(f, "[main]\n");
    assert_int_equal(run(f, "--config @ --dry-run show a -- --b"), 0);
    contains(f->out, "arg=a\narg=--b\nstanza=main\n");
    assert_int_equal(run(f, "--output=json --config @ show"), 0);
    contains(f->out, "\"level\": 1");
}

static void run__arguments__counted(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(run(f, "fail"), 31);
    contains(f->err, "HINT: usage: sluice fail WHAT\n");
    assert_int_equal(run(f, "show a b c"), 31);
    contains(f->err, "unexpected argument \"c\"");
}

/* --- configuration -----------------------------------------------------------------------------
 */

static void run__config__missing(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(run(f, "show --config=/nonexistent/s.conf"), 41);
    contains(f->err, "could not open configuration file \"/nonexistent/s.conf\"");
}

/* As another user, if this one may read everything. */
static void run__config__denied__says_who(void **state)
{
    struct fixture *f = *state;
    configure(f, "[main]\n");
    assert_int_equal(chmod(f->config, 0), 0);
    run_uid = 65534;
    int status = run(f, "show --config @");
    run_uid = 0;
    assert_int_equal(chmod(f->config, 0600), 0);
    assert_int_equal(status, 63);
    contains(f->err, "HINT: this runs as the user \"");
    contains(f->err, "namei -l");
}

static void run__stanza__unknown_to_the_file__warns(void **state)
{
    struct fixture *f = *state;
    configure(f, "[main]\n");
    assert_int_equal(run(f, "about --config @ --stanza mian"), 0);
    contains(f->err, "has no section [mian], but [main]: only [global] counts");
    assert_int_equal(run(f, "about --config @ --stanza main"), 0);
    assert_null(strstr(f->err, "has no section"));
    configure(f, "[global]\n");
    assert_int_equal(run(f, "about --config @ --stanza x"), 0);
    assert_null(strstr(f->err, "has no section"));
}

static void run__config__order(void **state)
{
    struct fixture *f = *state;
    configure(
        f, "[global]\nlevel = 2\n[global:show]\nlevel = 3\n[a]\nlevel = 4\n[b:show]\nlevel = 5\n");
    assert_int_equal(run(f, "about --config @"), 31); /* which stanza? */
    contains(f->err, "HINT: the configuration file has several: add --stanza=NAME");
    assert_int_equal(run(f, "show --config @"), 0);
    contains(f->out, "stanza=-\npath=-\nlevel=3\n");
    assert_int_equal(run(f, "show --config @ --stanza a"), 0);
    contains(f->out, "level=4\n");
    assert_int_equal(run(f, "show --config @ --stanza b"), 0);
    contains(f->out, "level=5\n");
    assert_int_equal(run(f, "about --config @ --stanza b"), 0);
    contains(f->out, "level=2\n");
    assert_int_equal(run_with_env(f, "SLUICE_LEVEL=6", "show --config @ --stanza b"), 0);
    contains(f->out, "level=6\n");
    assert_int_equal(run_with_env(f, "SLUICE_LEVEL=6", "show --config @ --level=7"), 0);
    contains(f->out, "level=7\n");
}

static void run__config__mistakes(void **state)
{
    struct fixture *f = *state;
    configure(f, "[global]\nlevl = 2\n");
    assert_int_equal(run(f, "show --config @"), 27);
    contains(f->err, "s.conf:2: unknown option \"levl\"\nHINT: did you mean \"level\"?");
    assert_int_equal(run(f, "contract x --config @"), 200); /* the engine's own status */
    configure(f, "[global:shwo]\n");
    assert_int_equal(run(f, "show --config @"), 27);
    contains(f->err, "s.conf:1: unknown command \"shwo\"");
    configure(f, "[../up]\n");
    assert_int_equal(run(f, "show --config @"), 27);
    contains(f->err, "\"../up\" is not a stanza's name");
    assert_int_equal(run_with_env(f, "SLUICE_LEVL=1", "show"), 27);
    contains(f->err, "unknown environment variable \"SLUICE_LEVL\"");
    assert_int_equal(run(f, "fail x --level=2"), 31);
    contains(f->err, "HINT: it belongs to: show about");
}

static void run__engine__from_file(void **state)
{
    struct fixture *f = *state;
    configure(f, "[global]\nengine = none\n[main]\nengine = test\n");
    /* the environment says test and wins over the file */
    assert_int_equal(run(f, "show --config @"), 0);
    unsetenv("SLUICE_ENGINE");
    char *argv[] = {(char[]){"sluice"}, (char[]){"show"}, (char[]){"--config"}, f->config,
                    (char[]){"--stanza=main"}};
    char *environment[] = {NULL};
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stdout))
            exit(99);
        exit(sl_cli_main(5, argv, environment));
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void run__engine__of_the_only_stanza(void **state)
{
    struct fixture *f = *state;
    run_by_file = true;
    configure(f, "[main]\nlevel = 3\nengine = test\n[main:show]\nlevel = 4\n");
    assert_int_equal(run(f, "show --config @"), 0);
    contains(f->out, "stanza=main\n");
    contains(f->out, "level=4\n");
    run_by_file = false;
}

/* What only another engine knows is no mistake in its sections, and nowhere else. */
static void run__stanzas_of_two_engines__one_file(void **state)
{
    struct fixture *f = *state;
    run_by_file = true;
    configure(f, "[a]\nengine = test\nlevel = 4\n[b]\nother-key = x\nengine = other\n"
                 "[b:other-command]\nother-key = y\n[c]\ndefaults-engine-key = z\n");
    assert_int_equal(run(f, "show --config @ --stanza=a"), 0);
    contains(f->out, "level=4\n");
    assert_int_equal(run(f, "show --config @ --stanza=b --engine=test"), 27);
    contains(f->err, "s.conf:5: unknown option \"other-key\"");
    configure(f, "[a]\nlevl = 4\nengine = test\n");
    assert_int_equal(run(f, "show --config @ --stanza=a"), 27);
    contains(f->err, "s.conf:2: unknown option \"levl\"\nHINT: did you mean \"level\"?");
    configure(f, "[global]\nengine = test\n[a]\nlevel = 4\n[b]\nlevl = 4\n");
    assert_int_equal(run(f, "show --config @ --stanza=a"), 27);
    contains(f->err, "s.conf:6: unknown option \"levl\"");
    configure(f, "[global]\nengine = test\n[a]\n[a:shwo]\n");
    assert_int_equal(run(f, "show --config @ --stanza=a"), 27);
    contains(f->err, "s.conf:4: unknown command \"shwo\"");
    run_by_file = false;
}

static void run__stanza__by_folder(void **state)
{
    struct fixture *f = *state;
    char inside[96];
    snprintf(inside, sizeof inside, "%s/data/base", f->folder);
    configure(f, "[a]\npg-path = /usr\n[b]\npg-path = %/data\n");
    *strrchr(inside, '/') = '\0';
    assert_int_equal(mkdir(inside, 0700), 0);
    strcat(inside, "/base");
    assert_int_equal(mkdir(inside, 0700), 0);
    assert_int_equal(chdir(inside), 0);
    assert_int_equal(run(f, "about --config @"), 0);
    contains(f->out, "stanza=b\n");
    assert_int_equal(chdir("/"), 0);
}

/* --- results -----------------------------------------------------------------------------------
 */

static void run__error__text_and_status(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(run(f, "fail it"), 55);
    assert_string_equal(f->err, "ERROR: [055]: \"it\" is not there\nHINT: look elsewhere\n");
    assert_int_equal(run(f, "fail silently"), 66);
    contains(f->err, "ERROR: [066]: deadline passed\n");
    assert_int_equal(run(f, "contract it"), 200);
}

static void run__error__json(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(run(f, "fail it --output=json"), 55);
    assert_string_equal(f->err, "");
    json_t *whole = json_loads(f->out, 0, NULL), *error = json_object_get(whole, "error");
    assert_int_equal(json_integer_value(json_object_get(whole, "version")), 1);
    assert_true(json_is_true(json_object_get(whole, "partial")));
    assert_int_equal(json_integer_value(json_object_get(error, "code")), 55);
    assert_string_equal(json_string_value(json_object_get(error, "name")), "NOT_FOUND");
    assert_string_equal(json_string_value(json_object_get(error, "hint")), "look elsewhere");
    json_decref(whole);
    /* also before the command runs */
    assert_int_equal(run(f, "show --level=x --output=json"), 31);
    contains(f->out, "\"name\": \"USAGE\"");
    assert_int_equal(run(f, "nothing --output json"), 126);
    contains(f->out, "\"name\": \"USAGE\"");
}

static void run__full_output__error(void **state)
{
    struct fixture *f = *state;
    (void)f;
    char *argv[] = {(char[]){"sluice"}, (char[]){"version"}};
    char *environment[] = {NULL};
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/full", "w", stdout) || !freopen("/dev/null", "w", stderr))
            exit(99);
        exit(sl_cli_main(2, argv, environment));
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_int_equal(WEXITSTATUS(status), 64); /* not FULL: that is the target's */
}

/* "sluice help | head": the reader went away because it had enough. That is no news to anybody, but
 * the status says that not all was written. */
static void run__reader_gone__silent(void **state)
{
    (void)state;
    char *argv[] = {(char[]){"sluice"}, (char[]){"help"}};
    char *environment[] = {NULL};
    FILE *said = tmpfile();
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(fileno(said), STDERR_FILENO);
        exit(sl_cli_main(2, argv, environment));
    }
    close(ends[1]);
    int status = 0;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 64);
    char text[256];
    slurp(said, text, sizeof text);
    assert_string_equal(text, "");
}

static void run__progress__modes(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(run(f, "show --progress=text"), 0);
    contains(f->err, "kB (100%)");
    assert_int_equal(run(f, "show --progress=json"), 0);
    contains(f->err, "{\"progress\":{\"command\":\"show\"");
    assert_int_equal(run(f, "show"), 0); /* no terminal */
    assert_string_equal(f->err, "");
}

static void run__signals__cancel_then_exit(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(run(f, "wait 1"), 201);
    contains(f->err, "ERROR: [070]: cancelled by SIGTERM");
    assert_int_equal(run(f, "wait 2"), 201); /* at once */
    assert_string_equal(f->err, "");
}

/* An archive_command that dies of a signal takes PostgreSQL's archiver with it. */
static void run__signal_before_the_command_runs__cancelled(void **state)
{
    struct fixture *f = *state;
    setenv("TEST_SIGNAL_EARLY", "1", 1);
    int status = run(f, "contract x");
    unsetenv("TEST_SIGNAL_EARLY");
    assert_int_equal(status, 201);
    contains(f->err, "ERROR: [070]: cancelled by SIGTERM");
}

/* Whatever fails, the program ends by itself, with a status that says so. */
static void run__torture__ends(void **state)
{
    struct fixture *f = *state;
    configure(f, "[global]\nlevel = 2\n[a]\nlevel = 4\n");
    int good = 0;
    for (int n = 1; n <= 200; n++) {
        char rule[40];
        snprintf(rule, sizeof rule, "*:ENOMEM@%d", n);
        sl_fault_set(rule);
        int status = run(f, "about --config @ --output=json");
        assert_in_range(status, 0, 126);
        if (status && !strstr(f->out, "\"error\"") && !strstr(f->err, "ERROR: "))
            fail_msg("failing call %d: status %d and no error", n, status);
        if (!status && !strstr(f->out, "\"level\": 4"))
            fail_msg("failing call %d: success, but %s", n, f->out);
        good += !status;
    }
    sl_fault_set(NULL);
    assert_in_range(good, 1, 160); /* some fail where it does not matter, many do not */
}

static void run__hostile_text__plain(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(run(f, "fail \x1b[31mX"), 55);
    contains(f->err, "\"?[31mX\" is not there");
}

/* --- core's own --------------------------------------------------------------------------------
 */

static void run__cert__made(void **state)
{
    struct fixture *f = *state;
    char line[200], path[128];
    snprintf(line, sizeof line, "cert init %s/ca --engine=none", f->folder);
    assert_int_equal(run_with_env(f, "SLUICE_UNKNOWN=1", line), 0);
    assert_int_equal(run(f, line), 45);
    snprintf(line, sizeof line, "cert issue db1 --dir=%s/ca --alt-name=127.0.0.1 --days=3",
             f->folder);
    assert_int_equal(run(f, line), 0);
    contains(f->out, "next: copy both and ca.crt to the host");
    snprintf(path, sizeof path, "%s/ca/db1.key", f->folder);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(run(f, "cert destroy x"), 31);
    assert_int_equal(run(f, "cert init"), 31);
}

static void run__verify__needs_a_repository(void **state)
{
    struct fixture *f = *state;
    char line[200];
    assert_int_equal(run(f, "verify"), 31);
    contains(f->err, "no stanza is named");
    if (access(SL_CLI_CONFIG, F_OK))
        contains(f->err, "HINT: there is no " SL_CLI_CONFIG ": make it, with a section [NAME]");
    assert_int_equal(run(f, "verify --stanza=../x"), 27);
    assert_int_equal(run(f, "verify --stanza=x"), 27);
    contains(f->err, "no repository is named");
    assert_int_equal(run(f, "verify --stanza=x --repo-path=/x --repo-host=h"), 27);
    contains(f->err, "are both set");
    assert_int_equal(run(f, "verify --stanza=x --repo-host=h"), 27);
    contains(f->err, "repo-host needs tls-cert");
    snprintf(line, sizeof line, "verify --stanza=x --repo-path=%s/none", f->folder);
    assert_true(run(f, line) > 0);
    contains(f->err, "\"sluice stanza-create\" makes the repository");
}

#define PAGE_BYTES (1 << 16)

static void read_page(const struct fixture *f, const char *name, char page[PAGE_BYTES])
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s.scd", f->folder, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t count = fread(page, 1, PAGE_BYTES - 1, file);
    fclose(file);
    page[count] = '\0';
    assert_true(count > 200);
}

static void run__man_and_completion__written(void **state)
{
    struct fixture *f = *state;
    char line[200], path[128], page[PAGE_BYTES];
    snprintf(line, sizeof line, "help --man-dir=%s", f->folder);
    assert_int_equal(run(f, line), 0);
    /* an engine that has to be asked for leaves the plain names to core and the default one */
    snprintf(path, sizeof path, "%s/sluice.1.scd", f->folder);
    assert_int_equal(access(path, F_OK), -1);
    read_page(f, "sluice-test-show.1", page);
    contains(page, "*sluice-test*(1)");
    read_page(f, "sluice-test.1", page);
    contains(page, "*engine* = *test*");
    /* every key that a file may have, with bounds and default; no other */
    contains(page, "*level* = _N_\n\tlevel. From 1 to 9. Default: *1*. Of: show about.\n");
    assert_null(strstr(page, "*repo-path* = "));
    snprintf(line, sizeof line, "help --engine=none --man-dir=%s", f->folder);
    assert_int_equal(run(f, line), 0);
    static const char *const pages[] = {"sluice.1", "sluice-verify.1", "sluiced.8",
                                        "sluiced.conf.5"};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        read_page(f, pages[i], page);
    read_page(f, "sluice.conf.5", page);
    contains(page, "From 4MiB to 16GiB.");
    contains(page, "From 100ms to 7d.");
    for (const struct sl_option *option = sl_core_options; option->name; option++) {
        char key[64];
        snprintf(key, sizeof key, "\n*%s* = ", option->name);
        assert_int_equal(strstr(page, key) != NULL, !(option->flags & SL_OPTION_CLI_ONLY));
    }
    assert_int_equal(run(f, "help --man-dir=/nonexistent"), 64);
    assert_int_equal(run(f, "help --completion=bash"), 0);
    contains(f->out, "complete -o default -F _sluice sluice");
    contains(f->out, "    show) words='");
    snprintf(path, sizeof path, "%s/c", f->folder);
    FILE *file = fopen(path, "w");
    fputs(f->out, file);
    fputs("COMP_WORDS=(sluice sh); COMP_CWORD=1; _sluice 2>/dev/null; echo \"${COMPREPLY[*]}\"\n"
          "COMP_WORDS=(sluice show --le); COMP_CWORD=2; _sluice 2>/dev/null; echo "
          "\"${COMPREPLY[*]}\"\n"
          "COMP_WORDS=(sluice show --transport = r); COMP_CWORD=4; _sluice 2>/dev/null\n"
          "echo \"${COMPREPLY[*]}\"\n",
          file);
    fclose(file);
    snprintf(line, sizeof line, "bash %s", path);
    FILE *shell = popen(line, "r");
    char text[200];
    text[fread(text, 1, sizeof text - 1, shell)] = '\0';
    pclose(shell);
    assert_string_equal(text, "show\n--level=\nrdma\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run__no_command__usage),
        TEST(run__help_and_version__printed),
        TEST(run__unknown_command__above_125),
        TEST(run__archive_commands_without_engine__contracts),
        TEST(run__options_before_the_command__read),
        TEST(run__arguments__counted),
        TEST(run__config__missing),
        TEST(run__config__denied__says_who),
        TEST(run__stanza__unknown_to_the_file__warns),
        TEST(run__config__order),
        TEST(run__config__mistakes),
        TEST(run__engine__from_file),
        TEST(run__engine__of_the_only_stanza),
        TEST(run__stanzas_of_two_engines__one_file),
        TEST(run__stanza__by_folder),
        TEST(run__error__text_and_status),
        TEST(run__error__json),
        TEST(run__full_output__error),
        TEST(run__reader_gone__silent),
        TEST(run__progress__modes),
        TEST(run__signals__cancel_then_exit),
        TEST(run__signal_before_the_command_runs__cancelled),
        TEST(run__torture__ends),
        TEST(run__hostile_text__plain),
        TEST(run__cert__made),
        TEST(run__verify__needs_a_repository),
        TEST(run__man_and_completion__written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
