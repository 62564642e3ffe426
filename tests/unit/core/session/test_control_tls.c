/* The control connection's handshake over real TLS on loopback sockets: who is let in, who is
 * refused and what is said about it, and its deadlines. What comes after is in test_control.c. */
#include "core/base/fault.h"
#include "core/session/control_internal.h"
#include "tests/unit/core/session/control_support.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct certs ours, theirs;

static int setup(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_DFL); /* the tests die if one is ever raised */
    certs_for_two(&ours);
    certs_for_two(&theirs);
    certs_issue(&ours, "old", NULL);
    certs_set_end(&ours, "old", -60);
    certs_issue(&ours, "early", NULL);
    certs_set_end(&ours, "early", 2 * 86400);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    certs_remove(&ours);
    certs_remove(&theirs);
    return 0;
}

/* --- certificates ---------------------------------------------------------------------------- */

/* In TLS 1.3 the client is ready before the server has looked at its certificate: the refusal comes
 * with the first read, which may still be in connect(), or meets our own write. */
static int client_refusal(struct meeting *m, struct sl_err *err)
{
    struct sl_msg bye = {.type = SL_MSG_BYE};
    *err = m->client_err;
    if (m->client_rc)
        return m->client_rc;
    MUST(sl_control_send(m->client, &bye) == 0);
    return next_failure(m->client, err);
}

static void control__good_certificates__names_known(void **state)
{
    (void)state;
    struct meeting m;
    meet(&m, &ours, "db1", &ours, "backup1", "backup1");
    assert_int_equal(m.client_rc, 0);
    assert_int_equal(m.server_rc, 0);
    assert_string_equal(sl_control_peer(m.server), "db1");
    assert_string_equal(sl_control_peer(m.client), "backup1");
    assert_string_equal(sl_control_peer_ip(m.client), "127.0.0.1");
    assert_string_equal(SSL_get_version(m.client->ssl), "TLSv1.3");
    assert_int_equal(SSL_session_reused(m.client->ssl), 0);
    /* the same key on both sides, another for another label or context */
    struct sl_id one = {{1}}, two = {{2}};
    uint8_t a[32], b[32], c[32], d[32];
    assert_int_equal(sl_control_export(m.client, SL_EXPORT_LANE, &one, a, 32, NULL), 0);
    assert_int_equal(sl_control_export(m.server, SL_EXPORT_LANE, &one, b, 32, NULL), 0);
    assert_int_equal(sl_control_export(m.client, SL_EXPORT_LANE, &two, c, 32, NULL), 0);
    assert_int_equal(sl_control_export(m.client, SL_EXPORT_SEAL_CLIENT, &one, d, 32, NULL), 0);
    assert_memory_equal(a, b, 32);
    assert_memory_not_equal(a, c, 32);
    assert_memory_not_equal(a, d, 32);
    part(&m);
}

static void control__asked_by_address__certificate_for_it_is_good(void **state)
{
    (void)state;
    struct meeting m;
    meet(&m, &ours, "db1", &ours, "backup1", "127.0.0.1");
    assert_int_equal(m.client_rc, 0);
    part(&m);
    meet(&m, &ours, "db1", &ours, "backup1", "127.0.0.2");
    assert_int_equal(m.client_rc, SL_ERR_CRYPTO);
    part(&m);
}

static void control__target_of_another_authority__client_refuses(void **state)
{
    (void)state;
    struct meeting m;
    meet(&m, &ours, "db1", &theirs, "backup1", "backup1");
    assert_int_equal(m.client_rc, SL_ERR_CRYPTO);
    assert_non_null(strstr(m.client_err.msg, "authority that is not ours"));
    assert_non_null(strstr(m.client_err.hint, "ca.crt"));
    assert_int_equal(m.server_rc, SL_ERR_CRYPTO);
    assert_non_null(strstr(m.server_err.msg, "refused our certificate"));
    part(&m);
}

static void control__wrong_name__names_those_it_is_for(void **state)
{
    (void)state;
    struct meeting m;
    meet(&m, &ours, "db1", &ours, "db1", "backup1");
    assert_int_equal(m.client_rc, SL_ERR_CRYPTO);
    assert_non_null(strstr(m.client_err.msg, "is for db1, not for \"backup1\""));
    part(&m);
    /* a name that only begins alike, or stands in the subject only, is another */
    meet(&m, &ours, "db1", &ours, "backup1", "backup");
    assert_int_equal(m.client_rc, SL_ERR_CRYPTO);
    part(&m);
}

static void control__expired_target__client_says_so(void **state)
{
    (void)state;
    struct meeting m;
    meet(&m, &ours, "db1", &ours, "old", "old");
    assert_int_equal(m.client_rc, SL_ERR_CRYPTO);
    assert_non_null(strstr(m.client_err.msg, "has expired"));
    assert_non_null(strstr(m.client_err.hint, "cert issue"));
    assert_true(sl_tls_days_left(m.server_tls) < 0);
    part(&m);
}

static void control__not_yet_valid__clocks_are_hinted_at(void **state)
{
    (void)state;
    struct meeting m;
    meet(&m, &ours, "db1", &ours, "early", "early");
    assert_int_equal(m.client_rc, SL_ERR_CRYPTO);
    assert_non_null(strstr(m.client_err.hint, "clocks"));
    part(&m);
}

static void control__client_of_another_authority__both_know_why(void **state)
{
    (void)state;
    struct meeting m;
    struct certs mixed =
        theirs; /* the client trusts our authority, and has a foreign certificate */
    char from[160], to[160], command[600];
    snprintf(from, sizeof from, "%s/ca.crt", ours.dir);
    snprintf(mixed.dir, sizeof mixed.dir, "%.40s-mixed", theirs.dir);
    snprintf(to, sizeof to, "%s/ca.crt", mixed.dir);
    snprintf(command, sizeof command, "cp -a %s %s && cp %s %s", theirs.dir, mixed.dir, from, to);
    MUST(system(command) == 0);
    meet(&m, &mixed, "db1", &ours, "backup1", "backup1");
    assert_int_equal(m.server_rc, SL_ERR_CRYPTO);
    assert_non_null(strstr(m.server_err.msg, "authority that is not ours"));
    struct sl_err err;
    assert_int_equal(client_refusal(&m, &err), SL_ERR_CRYPTO);
    assert_non_null(strstr(err.msg, "issued by another authority"));
    part(&m);
    certs_remove(&mixed);
}

static void control__expired_client__both_know_why(void **state)
{
    (void)state;
    struct meeting m;
    meet(&m, &ours, "old", &ours, "backup1", "backup1");
    assert_int_equal(m.server_rc, SL_ERR_CRYPTO);
    assert_non_null(strstr(m.server_err.msg, "has expired"));
    struct sl_err err;
    assert_int_equal(client_refusal(&m, &err), SL_ERR_CRYPTO);
    assert_non_null(strstr(err.msg, "refused our certificate: it has expired"));
    part(&m);
}

/* --- strangers ------------------------------------------------------------------------------- */

/* A TLS client made by hand: no certificate, or an old version. */
struct stranger {
    char port[8];
    int version;
    bool with_certificate;
    bool succeeded;
};

static void *stranger_run(void *arg)
{
    struct stranger *s = arg;
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(context, s->version);
    SSL_CTX_set_max_proto_version(context, s->version);
    if (s->with_certificate) {
        char path[160];
        snprintf(path, sizeof path, "%s/db1.crt", ours.dir);
        MUST(SSL_CTX_use_certificate_chain_file(context, path) == 1);
        snprintf(path, sizeof path, "%s/db1.key", ours.dir);
        MUST(SSL_CTX_use_PrivateKey_file(context, path, SSL_FILETYPE_PEM) == 1);
    }
    int fd = dial_local(s->port);
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, fd);
    uint8_t byte;
    s->succeeded = SSL_connect(ssl) == 1 && SSL_read(ssl, &byte, 1) > 0;
    ERR_clear_error();
    SSL_free(ssl);
    SSL_CTX_free(context);
    close(fd);
    return NULL;
}

static int serve_stranger(struct stranger *s, struct sl_err *err)
{
    struct sl_tls *tls = certs_tls_must(&ours, "backup1", true);
    struct sl_control *control;
    int listener = listen_local(s->port);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, stranger_run, s) == 0);
    MUST(sl_control_accept(tls, accept_local(listener), &control, err) == 0);
    int rc = run_until_ready(control, err);
    sl_control_free(control);
    pthread_join(thread, NULL);
    close(listener);
    sl_tls_free(tls);
    return rc;
}

static void control__client_without_certificate__refused(void **state)
{
    (void)state;
    struct sl_err err;
    struct stranger s = {.version = TLS1_3_VERSION};
    assert_int_equal(serve_stranger(&s, &err), SL_ERR_CRYPTO);
    assert_non_null(strstr(err.msg, "no certificate"));
    assert_false(s.succeeded);
}

static void control__tls_1_2__refused(void **state)
{
    (void)state;
    struct sl_err err;
    struct stranger s = {.version = TLS1_2_VERSION, .with_certificate = true};
    assert_int_equal(serve_stranger(&s, &err), SL_ERR_CRYPTO);
    assert_non_null(strstr(err.msg, "TLS 1.3"));
    assert_false(s.succeeded);
}

/* A server that sends what it is told to, then closes. */
struct babbler {
    int listener;
    const char *text;
};

static void *babble(void *arg)
{
    struct babbler *b = arg;
    int fd = accept_local(b->listener);
    char scrap[2048];
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    poll(&wait, 1, 5000);
    MUST(recv(fd, scrap, sizeof scrap, 0) > 0);
    MUST(write(fd, b->text, strlen(b->text)) == (ssize_t)strlen(b->text));
    poll(&wait, 1, 5000);
    close(fd);
    return NULL;
}

static void control__server_is_no_tls__said(void **state)
{
    (void)state;
    char port[8];
    struct babbler b = {listen_local(port), "220 mail.example.org ESMTP ready\r\n"};
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, babble, &b) == 0);
    struct sl_tls *tls = certs_tls_must(&ours, "db1", false);
    struct sl_control *control = NULL;
    struct sl_err err;
    assert_int_equal(sl_control_connect(tls, "127.0.0.1", port, "backup1", sl_deadline_in_ms(5000),
                                        &control, &err),
                     SL_ERR_CRYPTO);
    assert_non_null(strstr(err.msg, "does not speak TLS"));
    assert_null(control);
    pthread_join(thread, NULL);
    close(b.listener);
    sl_tls_free(tls);
}

static void control__garbage_from_client__refused(void **state)
{
    (void)state;
    struct sl_tls *tls = certs_tls_must(&ours, "backup1", true);
    char port[8];
    int listener = listen_local(port);
    uint32_t seed = 1;
    for (int round = 0; round < 50; round++) {
        uint8_t bytes[600];
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)((seed = seed * 1664525 + 1013904223) >> 24);
        if (round % 2) { /* looks like a record of TLS at first */
            bytes[0] = 0x16;
            bytes[1] = 3;
            bytes[2] = 1;
            bytes[3] = (uint8_t)(round % 5);
        }
        int fd = dial_local(port);
        struct sl_control *control;
        struct sl_err err;
        MUST(sl_control_accept(tls, accept_local(listener), &control, &err) == 0);
        MUST(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0);
        shutdown(fd, SHUT_WR);
        int rc = run_until_ready(control, &err);
        assert_true(rc == SL_ERR_CRYPTO || rc == SL_ERR_CLOSED);
        assert_int_equal(ERR_peek_error(), 0);
        struct sl_msg bye = {.type = SL_MSG_BYE};
        assert_int_equal(sl_control_send(control, &bye), SL_ERR_CLOSED);
        sl_control_free(control);
        close(fd);
    }
    close(listener);
    sl_tls_free(tls);
}

static void control__half_a_handshake_dripping__ends_at_the_deadline(void **state)
{
    (void)state;
    static const uint8_t begin[] = {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3};
    struct sl_tls *tls = certs_tls_must(&ours, "backup1", true);
    char port[8];
    int listener = listen_local(port), fd = dial_local(port), rc = 0;
    struct sl_control *control;
    struct sl_err err;
    MUST(sl_control_accept(tls, accept_local(listener), &control, &err) == 0);
    assert_in_range(sl_control_next_ms(control), 9000, 10000);
    sl_control_handshake_by(control, sl_deadline_in_ms(400));
    uint64_t began = sl_now_ns();
    for (size_t i = 0; !rc; i++) {
        MUST(send(fd, i < sizeof begin ? begin + i : begin + sizeof begin - 1, 1, MSG_NOSIGNAL) ==
             1);
        rc = sl_control_process(control, ignore, NULL, &err);
        struct pollfd wait = {.fd = sl_control_fd(control), .events = POLLIN};
        int ms = sl_control_next_ms(control);
        if (!rc)
            poll(&wait, 1, ms > 20 ? 20 : ms);
    }
    assert_int_equal(rc, SL_ERR_TIMEOUT);
    assert_in_range((sl_now_ns() - began) / SL_NS_PER_MS, 390, 3000);
    sl_control_free(control);
    close(fd);
    close(listener);
    sl_tls_free(tls);
}

static void control_connect__server_says_nothing__ends_at_the_deadline(void **state)
{
    (void)state;
    char port[8];
    int listener = listen_local(port); /* the kernel accepts, nobody answers */
    struct sl_tls *tls = certs_tls_must(&ours, "db1", false);
    struct sl_control *control = NULL;
    struct sl_err err;
    uint64_t began = sl_now_ns();
    assert_int_equal(sl_control_connect(tls, "127.0.0.1", port, "backup1", sl_deadline_in_ms(300),
                                        &control, &err),
                     SL_ERR_TIMEOUT);
    assert_in_range((sl_now_ns() - began) / SL_NS_PER_MS, 290, 3000);
    /* nobody listens any more */
    close(listener);
    assert_int_equal(sl_control_connect(tls, "127.0.0.1", port, "backup1", sl_deadline_in_ms(3000),
                                        &control, &err),
                     SL_ERR_CONNECT);
    assert_non_null(strstr(err.hint, "sluiced"));
    assert_int_equal(sl_control_connect(tls, "no.such.host.invalid", port, "backup1",
                                        sl_deadline_in_ms(20000), &control, &err),
                     SL_ERR_CONNECT);
    assert_null(control);
    sl_tls_free(tls);
}

static void control_connect__cancelled__returns_at_once(void **state)
{
    (void)state;
    char port[8];
    int listener = listen_local(port), cancel[2];
    MUST(pipe(cancel) == 0 && write(cancel[1], "x", 1) == 1);
    struct sl_tls *tls = certs_tls_must(&ours, "db1", false);
    struct sl_control *control = NULL;
    struct sl_err err;
    struct sl_control_route route = {
        .host = "127.0.0.1", .port = port, .name = "backup1", .cancel_fd = cancel[0]};
    assert_int_equal(
        sl_control_connect_route(tls, &route, sl_deadline_in_ms(20000), &control, &err),
        SL_ERR_CANCELLED);
    close(cancel[0]);
    close(cancel[1]);
    close(listener);
    sl_tls_free(tls);
}

/* --- every call failing ---------------------------------------------------------------------- */

/* Handshake and a message each way, with call N failing on whichever side meets it. */
static void control_tls__each_call_failing__both_ends_end(void **state)
{
    (void)state;
    unsigned failures = 0;
    for (unsigned n = 1; n < 60; n++) {
        struct meeting m = {.name = "backup1"};
        char rule[48];
        struct sl_err err;
        m.client_tls = certs_tls_must(&ours, "db1", false);
        m.server_tls = certs_tls_must(&ours, "backup1", true);
        int listener = listen_local(m.port);
        pthread_t thread;
        snprintf(rule, sizeof rule, "*:ECONNRESET@%u", n);
        sl_fault_set(rule);
        MUST(pthread_create(&thread, NULL, dial, &m) == 0);
        struct pollfd wait = {.fd = listener, .events = POLLIN};
        int rc = 0, fd = -1;
        if (poll(&wait, 1, 300) == 1)
            fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            rc = sl_control_accept(m.server_tls, fd, &m.server, &err);
            if (!rc)
                rc = run_until_ready(m.server, &err);
            if (rc) {
                assert_int_equal(err.code, rc);
                sl_control_free(m.server);
                m.server = NULL;
            }
        }
        pthread_join(thread, NULL);
        bool untouched = sl_fault_passed() < n;
        sl_fault_set(NULL);
        if (m.client_rc)
            assert_int_equal(m.client_err.code, m.client_rc);
        failures += m.client_rc || rc || fd < 0;
        if (untouched)
            assert_int_equal(m.client_rc | rc, 0);
        part(&m);
        close(listener);
        if (untouched)
            break;
    }
    assert_in_range(failures, 5, 58);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control__good_certificates__names_known),
        cmocka_unit_test(control__asked_by_address__certificate_for_it_is_good),
        cmocka_unit_test(control__target_of_another_authority__client_refuses),
        cmocka_unit_test(control__wrong_name__names_those_it_is_for),
        cmocka_unit_test(control__expired_target__client_says_so),
        cmocka_unit_test(control__not_yet_valid__clocks_are_hinted_at),
        cmocka_unit_test(control__client_of_another_authority__both_know_why),
        cmocka_unit_test(control__expired_client__both_know_why),
        cmocka_unit_test(control__client_without_certificate__refused),
        cmocka_unit_test(control__tls_1_2__refused),
        cmocka_unit_test(control__server_is_no_tls__said),
        cmocka_unit_test(control__garbage_from_client__refused),
        cmocka_unit_test(control__half_a_handshake_dripping__ends_at_the_deadline),
        cmocka_unit_test(control_connect__server_says_nothing__ends_at_the_deadline),
        cmocka_unit_test(control_connect__cancelled__returns_at_once),
        cmocka_unit_test(control_tls__each_call_failing__both_ends_end),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
