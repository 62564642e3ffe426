/* From options to an open client: embedded, and to hosts that are not there. */
#include "core/base/fault.h"
#include "core/base/stop.h"
#include "core/cli/cli.h"
#include "core/cli/connect.h"
#include "core/session/cert.h"

#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    char folder[64];
    struct sl_options *options;
    struct sl_invocation invocation;
    struct sl_connection *connection;
    struct sl_err err;
};

static void set(struct fixture *f, const char *name, const char *value)
{
    assert_int_equal(sl_option_set(f->options, name, value, "test", NULL), 0);
}

static int setup(void **state)
{
    const struct sl_option *const tables[] = {sl_core_options};
    struct fixture *f = calloc(1, sizeof *f);
    strcpy(f->folder, "/tmp/test_connect.XXXXXX");
    if (!mkdtemp(f->folder) || chdir(f->folder) || sl_options_new(tables, 1, &f->options, NULL))
        return -1;
    f->invocation = (struct sl_invocation){.options = f->options, .stanza = "main"};
    *state = f;
    return setenv("SLUICE_PLUGIN_PATH", "/nonexistent", 1);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char line[128];
    sl_connection_close(f->connection);
    sl_options_free(f->options);
    snprintf(line, sizeof line, "rm -rf %s", f->folder);
    int rc = chdir("/") || system(line);
    free(f);
    return rc;
}

static int connect_to(struct fixture *f, struct sl_connect_options options)
{
    return sl_connection_open(&f->invocation, &options, sl_deadline_in_ms(10000), &f->connection,
                              &f->err);
}

static void contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
}

/* Stores and reads a small object. */
static int use(struct sl_connection *connection, struct sl_err *err)
{
    struct sl_client *client = sl_connection_client(connection);
    struct sl_stored stored;
    char *bytes = NULL;
    size_t count = 0;
    int rc =
        sl_client_put(client, "test/object", "content", 7, sl_deadline_in_ms(10000), &stored, err);
    if (!rc)
        rc = sl_client_fetch(client, "test/object", 100, sl_deadline_in_ms(10000), &bytes, &count,
                             err);
    if (!rc && (count != 7 || memcmp(bytes, "content", 7) != 0))
        rc = sl_err_set(err, SL_ERR_INTERNAL, "other content");
    free(bytes);
    return rc;
}

/* --- embedded ----------------------------------------------------------------------------------
 */

static void connection__embedded__works(void **state)
{
    struct fixture *f = *state;
    set(f, "repo-path", "repo");
    assert_int_equal(connect_to(f, (struct sl_connect_options){.create_repository = true}), 0);
    assert_int_equal(use(f->connection, &f->err), 0);
    assert_int_equal(sl_connection_certificate_days(f->connection), INT_MAX);
    sl_connection_close(f->connection);
    f->connection = NULL;
    assert_int_equal(connect_to(f, (struct sl_connect_options){.short_lived = true}), 0);
    assert_int_equal(use(f->connection, &f->err), 0);
    struct sl_client_info info;
    sl_client_info(sl_connection_client(f->connection), &info);
    assert_int_equal(info.transport, SL_TRANSPORT_LOCAL);
    assert_int_equal(info.slots, 8);
    sl_connection_close(f->connection);
    f->connection = NULL;
    struct sl_connect_options other = {.stanza = "other"};
    assert_int_equal(connect_to(f, other), 0);
    struct sl_object_info object;
    assert_int_equal(sl_client_stat(sl_connection_client(f->connection), "test/object",
                                    sl_deadline_in_ms(10000), &object, NULL),
                     0); /* another stanza's objects are not there */
}

static void connection__no_repository__hint(void **state)
{
    struct fixture *f = *state;
    set(f, "repo-path", "repo");
    assert_true(connect_to(f, (struct sl_connect_options){0}) < 0);
    contains(f->err.hint, "\"sluice stanza-create\" makes the repository");
    assert_int_not_equal(access("repo", F_OK), 0); /* nothing was made */
    assert_int_equal(system("mkdir repo"), 0);
    assert_true(connect_to(f, (struct sl_connect_options){0}) < 0);
    contains(f->err.hint, "\"sluice stanza-create\" makes the repository");
    assert_int_equal(system("touch repo/something"), 0);
    assert_int_equal(connect_to(f, (struct sl_connect_options){.create_repository = true}),
                     SL_ERR_REPO);
    assert_null(f->connection);
}

static void connection__signal__cancels(void **state)
{
    struct fixture *f = *state;
    set(f, "repo-path", "repo");
    assert_int_equal(sl_stop_init(NULL), 0);
    assert_int_equal(connect_to(f, (struct sl_connect_options){.create_repository = true}), 0);
    raise(SIGTERM);
    assert_int_equal(use(f->connection, &f->err), SL_ERR_CANCELLED);
    sl_connection_close(f->connection);
    f->connection = NULL;
    /* and later ones are not even begun */
    assert_int_equal(connect_to(f, (struct sl_connect_options){0}), SL_ERR_CANCELLED);
}

/* Every call fails in turn: an error, nothing left over, and it works afterwards. */
static void connection__torture__clean(void **state)
{
    struct fixture *f = *state;
    set(f, "repo-path", "repo");
    static const char *const actions[] = {"ENOMEM", "EIO"};
    for (size_t action = 0; action < 2; action++) {
        int rc = -1, n = 1;
        for (; rc; n++) {
            char rule[40];
            struct sl_connect_options options = {.create_repository = true, .short_lived = true};
            snprintf(rule, sizeof rule, "*:%s@%d", actions[action], n);
            sl_fault_set(rule);
            rc = connect_to(f, options);
            sl_fault_set(NULL);
            assert_true((rc == 0) == (f->connection != NULL));
            if (rc)
                assert_int_equal(f->err.code, rc);
        }
        assert_true(n > 10);
        assert_int_equal(use(f->connection, &f->err), 0);
        sl_connection_close(f->connection);
        f->connection = NULL;
        assert_int_equal(system("rm -rf repo"), 0);
    }
}

/* --- hosts -------------------------------------------------------------------------------------
 */

static void set_tls(struct fixture *f)
{
    assert_int_equal(sl_cert_init("ca", NULL), 0);
    assert_int_equal(sl_cert_issue("ca", "db1", NULL, 0, NULL), 0);
    set(f, "tls-cert", "ca/db1.crt");
    set(f, "tls-key", "ca/db1.key");
    set(f, "tls-ca", "ca/ca.crt");
}

static void connection__host__needs_certificates(void **state)
{
    struct fixture *f = *state;
    set(f, "repo-host", "127.0.0.1:1");
    assert_int_equal(connect_to(f, (struct sl_connect_options){0}), SL_ERR_CONFIG);
    contains(f->err.hint, "sluice cert init");
    set(f, "tls-cert", "nowhere.crt");
    set(f, "tls-key", "nowhere.key");
    set(f, "tls-ca", "nowhere.ca");
    assert_true(connect_to(f, (struct sl_connect_options){0}) < 0);
    contains(f->err.msg, "nowhere.");
}

static void connection__nobody_listens__connect(void **state)
{
    struct fixture *f = *state;
    set_tls(f);
    set(f, "repo-host", "127.0.0.1:1");
    assert_int_equal(connect_to(f, (struct sl_connect_options){0}), SL_ERR_CONNECT);
    contains(f->err.msg, "127.0.0.1:1");
    assert_null(f->connection);
}

/* With options of its own, which set_tls(f) has made certificates for. */
static int connect_to_host(struct fixture *f, const char *host)
{
    const struct sl_option *const tables[] = {sl_core_options};
    struct sl_options *mine = f->options;
    assert_int_equal(sl_options_new(tables, 1, &f->options, NULL), 0);
    f->invocation.options = f->options;
    set(f, "tls-cert", "ca/db1.crt");
    set(f, "tls-key", "ca/db1.key");
    set(f, "tls-ca", "ca/ca.crt");
    set(f, "repo-host", host);
    int rc = connect_to(f, (struct sl_connect_options){0});
    sl_options_free(f->options);
    f->options = mine;
    f->invocation.options = mine;
    return rc;
}

static void connection__host_without_port__7430(void **state)
{
    struct fixture *f = *state;
    set_tls(f);
    static const char *const cases[][2] = {{"127.255.255.254", "127.255.255.254:7430"},
                                           {"::1", "[::1]:7430"},
                                           {"[::1]", "[::1]:7430"},
                                           {"[::1]:1", "[::1]:1"},
                                           {"localhost:1", ":1: "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(connect_to_host(f, cases[i][0]) < 0);
        contains(f->err.msg, cases[i][1]);
    }
}

static void connection__no_port__refused(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[] = {"127.0.0.1:65536", "127.0.0.1:99999", "127.0.0.1:0",
                                        "127.0.0.1:https", "[::1]:-1"};
    set_tls(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(connect_to_host(f, cases[i]), SL_ERR_CONFIG);
        contains(f->err.msg, "is no port (1 to 65535)");
    }
}

static void connection__rdma_demanded__says_why_not(void **state)
{
    struct fixture *f = *state;
    set_tls(f);
    set(f, "repo-host", "127.0.0.1:1");
    set(f, "transport", "rdma");
    assert_int_equal(connect_to(f, (struct sl_connect_options){0}), SL_ERR_NOT_FOUND);
    contains(f->err.msg, "sluice-verbs.so");
}

static void connection__no_stanza__usage(void **state)
{
    struct fixture *f = *state;
    set(f, "repo-path", "repo");
    f->invocation.stanza = NULL;
    assert_int_equal(connect_to(f, (struct sl_connect_options){0}), SL_ERR_USAGE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(connection__embedded__works),
        TEST(connection__no_repository__hint),
        TEST(connection__torture__clean),
        TEST(connection__host__needs_certificates),
        TEST(connection__nobody_listens__connect),
        TEST(connection__host_without_port__7430),
        TEST(connection__no_port__refused),
        TEST(connection__rdma_demanded__says_why_not),
        TEST(connection__no_stanza__usage),
        TEST(connection__signal__cancels), /* the last: a process is stopped once */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
