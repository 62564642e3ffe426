/* The program `sluiced`: starts, tells systemd, reloads whole files or nothing, stops. Each in a
 * child process on a port of the kernel's choice. */
#include "core/cli/connect.h"
#include "core/cli/daemon.h"
#include "core/session/cert.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    char folder[64];
    int notify; /* the socket that systemd would have */
    pid_t child;
    FILE *out, *err;
    char text[1 << 16];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    strcpy(f->folder, "/tmp/test_daemon.XXXXXX");
    if (!mkdtemp(f->folder) || chdir(f->folder) || sl_cert_init("ca", NULL) ||
        sl_cert_issue("ca", "host1", NULL, 0, NULL) || sl_cert_issue("ca", "host2", NULL, 0, NULL))
        return -1;
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "notify"};
    f->notify = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (bind(f->notify, (struct sockaddr *)&address, sizeof address))
        return -1;
    char path[128];
    snprintf(path, sizeof path, "%s/notify", f->folder);
    setenv("NOTIFY_SOCKET", path, 1);
    setenv("SLUICE_PLUGIN_PATH", TEST_ENGINES, 1);
    setenv("TEST_VERBS", "none", 1);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    if (f->child) {
        kill(f->child, SIGKILL);
        waitpid(f->child, NULL, 0);
    }
    close(f->notify);
    char line[128];
    snprintf(line, sizeof line, "rm -rf %s", f->folder);
    int rc = chdir("/") || system(line);
    free(f);
    return rc;
}

static void configure(const char *more)
{
    FILE *file = fopen("d.conf", "w");
    fprintf(file,
            "[global]\nrepo-path = repo\nport = 0\nlisten-address = 127.0.0.1\n"
            "tls-cert = ca/host1.crt\ntls-key = ca/host1.key\ntls-ca = ca/ca.crt\n%s",
            more);
    fclose(file);
}

static void start(struct fixture *f)
{
    f->out = tmpfile();
    f->err = tmpfile();
    fflush(stdout);
    f->child = fork();
    if (f->child == 0) {
        dup2(fileno(f->out), STDOUT_FILENO);
        dup2(fileno(f->err), STDERR_FILENO);
        char *argv[] = {(char[]){"sluiced"}, (char[]){"--config=d.conf"}, NULL};
        char *environment[] = {NULL};
        exit(sl_daemon_main(2, argv, environment));
    }
}

/* The next message to systemd begins so. */
static void told(struct fixture *f, const char *expect)
{
    struct pollfd readable = {.fd = f->notify, .events = POLLIN};
    char text[600] = "";
    if (poll(&readable, 1, 20000) != 1)
        fail_msg("\"%s\" did not come", expect);
    assert_true(recv(f->notify, text, sizeof text - 1, 0) > 0);
    assert_int_equal(strncmp(text, expect, strlen(expect)), 0);
}

static int ended(struct fixture *f)
{
    int status = 0;
    waitpid(f->child, &status, 0);
    f->child = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static const char *text_of(struct fixture *f, FILE *file)
{
    rewind(file);
    f->text[fread(f->text, 1, sizeof f->text - 1, file)] = '\0';
    fclose(file);
    return f->text;
}

static void contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
}

static void daemon__life__start_reload_stop(void **state)
{
    struct fixture *f = *state;
    configure("[main]\nclients = host2\n");
    start(f);
    told(f, "READY=1\nSTATUS=listening on port ");
    configure("workers = 3\n[main]\nclients = host3\n");
    kill(f->child, SIGHUP);
    told(f, "RELOADING=1\nMONOTONIC_USEC=");
    told(f, "READY=1");
    configure("wrokers = 3\n");
    kill(f->child, SIGHUP);
    told(f, "RELOADING=1");
    told(f, "READY=1");
    configure("[main]\n");
    unlink("ca/host1.key");
    kill(f->child, SIGHUP);
    told(f, "RELOADING=1");
    told(f, "READY=1");
    kill(f->child, SIGUSR1);
    kill(f->child, SIGTERM);
    told(f, "STOPPING=1");
    assert_int_equal(ended(f), 0);
    contains(text_of(f, f->out), "sluiced " SLUICE_VERSION " is listening on port ");
    contains(f->text, ", no RDMA (no RDMA device); repository repo\n");
    contains(text_of(f, f->err), "\"repo\" was empty: made a repository");
    contains(f->text, " WARN: workers changed: that takes a restart");
    contains(f->text, " INFO: reloaded \"d.conf\"");
    contains(f->text, "ERROR: nothing was reloaded: d.conf:8: unknown option \"wrokers\"");
    contains(f->text, "HINT: did you mean \"workers\"?");
    contains(f->text, "ERROR: nothing was reloaded: could not ");
    contains(f->text, " INFO: sessions 0 (0 refused)");
    struct stat info;
    assert_int_equal(stat("repo/repo.json", &info), 0);
}

/* The port of the line "… is listening on port N, …". */
static unsigned port_of(struct fixture *f)
{
    char line[300] = "";
    rewind(f->out);
    assert_non_null(fgets(line, sizeof line, f->out));
    const char *at = strstr(line, "port ");
    assert_non_null(at);
    return (unsigned)strtoul(at + 5, NULL, 10);
}

/* Connects as host2 and stores an object; 0 or a code. */
static int store(unsigned port, const char *stanza, struct sl_err *err)
{
    const struct sl_option *const tables[] = {sl_core_options};
    struct sl_options *options = NULL;
    struct sl_connection *connection = NULL;
    struct sl_connect_options wanted = {.stanza = stanza, .short_lived = true};
    struct sl_stored stored;
    char host[40];
    snprintf(host, sizeof host, "127.0.0.1:%u", port);
    int rc = sl_options_new(tables, 1, &options, err);
    static const char *const values[][2] = {{"tls-cert", "ca/host2.crt"},
                                            {"tls-key", "ca/host2.key"},
                                            {"tls-ca", "ca/ca.crt"},
                                            {"tls-name", "host1"}};
    for (size_t i = 0; i < 4 && !rc; i++)
        rc = sl_option_set(options, values[i][0], values[i][1], "test", err);
    if (!rc)
        rc = sl_option_set(options, "repo-host", host, "test", err);
    struct sl_invocation invocation = {.options = options};
    if (!rc)
        rc = sl_connection_open(&invocation, &wanted, sl_deadline_in_ms(10000), &connection, err);
    if (!rc)
        rc = sl_client_put(sl_connection_client(connection), "object", "x", 1,
                           sl_deadline_in_ms(10000), &stored, err);
    if (!rc)
        assert_in_range(sl_connection_certificate_days(connection), 800, 825);
    sl_connection_close(connection);
    sl_options_free(options);
    return rc;
}

static void daemon__client__only_what_the_sections_grant(void **state)
{
    struct fixture *f = *state;
    struct sl_err err = {0};
    configure("transport = tcp\n[main]\nclients = host2\n[other]\nclients = host3\n");
    start(f);
    told(f, "READY=1");
    unsigned port = port_of(f);
    assert_int_equal(store(port, "main", &err), 0);
    assert_int_equal(store(port, "other", &err), SL_ERR_DENIED);
    assert_int_equal(store(port, "nowhere", &err), SL_ERR_DENIED);
    configure("transport = tcp\n[main]\n[other]\nclients = host3, host2\n");
    kill(f->child, SIGHUP);
    told(f, "RELOADING=1");
    told(f, "READY=1");
    assert_int_equal(store(port, "main", &err), SL_ERR_DENIED);
    assert_int_equal(store(port, "other", &err), 0);
    kill(f->child, SIGTERM);
    told(f, "STOPPING=1");
    assert_int_equal(ended(f), 0);
    struct stat info;
    assert_int_equal(stat("repo/main/object", &info), 0);
    assert_int_equal(stat("repo/other/object", &info), 0);
    assert_int_not_equal(stat("repo/nowhere", &info), 0);
    contains(text_of(f, f->err), "may not use stanza");
    fclose(f->out);
}

static void daemon__second_start__same_repository(void **state)
{
    struct fixture *f = *state;
    configure("output = json\n");
    for (int i = 0; i < 2; i++) {
        start(f);
        told(f, "READY=1");
        kill(f->child, SIGINT);
        told(f, "STOPPING=1");
        assert_int_equal(ended(f), 0);
        contains(text_of(f, f->out), "{\"listening\":\"" SLUICE_VERSION "\",\"port\":");
        assert_int_equal(strstr(text_of(f, f->err), "made a repository") != NULL, i == 0);
        contains(f->text, "\"level\":\"info\"");
    }
}

static void daemon__memlock_too_low__tcp_and_says_so(void **state)
{
    struct fixture *f = *state;
    setenv("TEST_VERBS", "memlock", 1);
    configure("");
    start(f);
    told(f, "READY=1");
    kill(f->child, SIGTERM);
    told(f, "STOPPING=1");
    assert_int_equal(ended(f), 0);
    contains(text_of(f, f->out), "no RDMA (RLIMIT_MEMLOCK is 8 MiB, 67108864 bytes are needed)");
    contains(text_of(f, f->err), " WARN: no RDMA, TCP only (transport = auto): RLIMIT_MEMLOCK is");
    contains(f->text, "HINT: ulimit -l");
}

static void fails(struct fixture *f, const char *more, int status, const char *expect)
{
    configure(more);
    start(f);
    assert_int_equal(ended(f), status);
    fclose(f->out);
    contains(text_of(f, f->err), expect);
}

static void daemon__rdma_listener_fails__tcp_and_says_so(void **state)
{
    struct fixture *f = *state;
    setenv("TEST_VERBS", "listen", 1);
    configure("output = json\n");
    start(f);
    told(f, "READY=1");
    kill(f->child, SIGTERM);
    told(f, "STOPPING=1");
    assert_int_equal(ended(f), 0);
    contains(text_of(f, f->out), "\"rdma_port\":0,\"rdma\":\"could not listen for RDMA\"");
    contains(text_of(f, f->err), "no RDMA lanes");
    fails(f, "transport = rdma\n", 49, "transport = rdma: could not listen for RDMA");
}

static void daemon__cannot_start__says_why(void **state)
{
    struct fixture *f = *state;
    fails(f, "transport = rdma\n", 68, "ERROR: [068]: no RDMA device");
    setenv("TEST_VERBS", "memlock", 1);
    fails(f, "transport = rdma\n", 62, "ERROR: [062]: RLIMIT_MEMLOCK is");
    setenv("TEST_VERBS", "none", 1);
    fails(f, "[../x]\nclients = a\n", 27, "is not a stanza's name");
    fails(f, "pool-size = 1\n", 27, "d.conf:8: option \"pool-size\": 1 is outside ");
    fails(f, "listen-address = 127.0.0.1\n", 27, "is set on line 4 already");
    assert_int_equal(mkdir("repo", 0700), 0);
    fclose(fopen("repo/something", "w"));
    fails(f, "", 103, "ERROR: [103]");
    unlink("repo/something");
    assert_int_equal(chmod("ca/host1.key", 0644), 0);
    fails(f, "", 27, "ca/host1.key");
}

static void daemon__help_and_version(void **state)
{
    (void)state;
    char *help[] = {(char[]){"sluiced"}, (char[]){"--help"}};
    char *version[] = {(char[]){"sluiced"}, (char[]){"-V"}};
    char *environment[] = {NULL};
    int saved = dup(STDOUT_FILENO);
    assert_non_null(freopen("/dev/null", "w", stdout));
    int rc = sl_daemon_main(2, help, environment) || sl_daemon_main(2, version, environment);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    assert_int_equal(rc, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(daemon__life__start_reload_stop),
        TEST(daemon__client__only_what_the_sections_grant),
        TEST(daemon__second_start__same_repository),
        TEST(daemon__memlock_too_low__tcp_and_says_so),
        TEST(daemon__rdma_listener_fails__tcp_and_says_so),
        TEST(daemon__cannot_start__says_why),
        cmocka_unit_test(daemon__help_and_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
