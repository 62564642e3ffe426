/* The control connection over real TLS on loopback sockets, and as a pair. */
#include "core/base/fault.h"
#include "core/base/thread.h"
#include "core/session/control_internal.h"
#include "tests/unit/core/session/fixture.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>

#include <cmocka.h>

static struct certs ours, theirs;

/* --- two ends over TLS ----------------------------------------------------------------------- */

struct meeting {
    const char *name; /* the client asks for */
    struct sl_tls *client_tls, *server_tls;
    char port[8];
    struct sl_control *client, *server;
    int client_rc, server_rc;
    struct sl_err client_err, server_err;
};

static void *dial(void *arg)
{
    struct meeting *m = arg;
    m->client_rc = sl_control_connect(m->client_tls, "127.0.0.1", m->port, m->name,
                                      sl_deadline_in_ms(10000), &m->client, &m->client_err);
    return NULL;
}

static int ignore(void *arg, struct sl_control *control, const struct sl_msg *msg,
                  struct sl_err *err)
{
    (void)control;
    (void)msg;
    (void)err;
    if (arg)
        ++*(int *)arg;
    return 0;
}

/* Owner's loop until the handshake is over, process() fails or the time is up. */
static int run_until_ready(struct sl_control *control, struct sl_err *err)
{
    sl_deadline deadline = sl_deadline_in_ms(10000);
    while (!sl_control_ready(control)) {
        int rc = sl_control_process(control, ignore, NULL, err);
        if (rc)
            return rc;
        struct pollfd wait = {.fd = sl_control_fd(control), .events = POLLIN};
        int ms = sl_control_next_ms(control);
        if (!sl_control_ready(control))
            poll(&wait, 1, ms < 0 || ms > 100 ? 100 : ms);
        MUST(!sl_deadline_passed(deadline));
    }
    return 0;
}

static void meet(struct meeting *m, const struct certs *client_certs, const char *client_name,
                 const struct certs *server_certs, const char *server_name, const char *asked)
{
    *m = (struct meeting){.name = asked};
    m->client_tls = certs_tls_must(client_certs, client_name, false);
    m->server_tls = certs_tls_must(server_certs, server_name, true);
    int listener = listen_local(m->port);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, dial, m) == 0);
    MUST(sl_control_accept(m->server_tls, accept_local(listener), &m->server, NULL) == 0);
    m->server_rc = run_until_ready(m->server, &m->server_err);
    if (m->server_rc) {
        sl_control_free(m->server);
        m->server = NULL;
    }
    pthread_join(thread, NULL);
    close(listener);
}

static void part(struct meeting *m)
{
    sl_control_free(m->client);
    sl_control_free(m->server);
    sl_tls_free(m->client_tls);
    sl_tls_free(m->server_tls);
}

/* Owner's loop until process() fails. */
static int next_failure(struct sl_control *control, struct sl_err *err)
{
    sl_deadline deadline = sl_deadline_in_ms(10000);
    for (;;) {
        int rc = sl_control_process(control, ignore, NULL, err);
        if (rc)
            return rc;
        struct pollfd wait = {.fd = sl_control_fd(control), .events = POLLIN};
        int ms = sl_control_next_ms(control);
        poll(&wait, 1, ms < 0 || ms > 100 ? 100 : ms);
        MUST(!sl_deadline_passed(deadline));
    }
}

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

static int setup_certs(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_DFL); /* the tests die if one is ever raised */
    certs_make(&ours);
    certs_make(&theirs);
    certs_issue(&ours, "backup1", "127.0.0.1");
    certs_issue(&ours, "db1", NULL);
    certs_issue(&ours, "old", NULL);
    certs_set_end(&ours, "old", -60);
    certs_issue(&ours, "early", NULL);
    certs_set_end(&ours, "early", 2 * 86400);
    certs_issue(&theirs, "backup1", "127.0.0.1");
    certs_issue(&theirs, "db1", NULL);
    return 0;
}

static int teardown_certs(void **state)
{
    (void)state;
    certs_remove(&ours);
    certs_remove(&theirs);
    return 0;
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

/* --- traffic, over TLS and over a pair ------------------------------------------------------- */

/* An end with its owner thread: counts what comes, checks the order of each sender. */
#define SENDERS 4

struct end {
    struct sl_control *control;
    pthread_t thread;
    _Atomic uint32_t next[SENDERS]; /* expected of each sender */
    uint32_t wanted;                /* of each */
    int rc;
    struct sl_err err;
    _Atomic bool full;
    struct end *other;
};

static int count_message(void *arg, struct sl_control *control, const struct sl_msg *msg,
                         struct sl_err *err)
{
    struct end *end = arg;
    (void)control;
    if (msg->type != SL_MSG_TABLED)
        return sl_err_set(err, SL_ERR_INTERNAL, "unexpected %s", sl_msg_name((int)msg->type));
    uint32_t sender = msg->tabled.object, number = msg->tabled.first;
    if (sender >= SENDERS || number != end->next[sender])
        return sl_err_set(err, SL_ERR_INTERNAL, "out of order");
    for (size_t i = 0; i < msg->tabled.digests_bytes; i++)
        if (msg->tabled.digests[i] != (uint8_t)(number + i))
            return sl_err_set(err, SL_ERR_INTERNAL, "other bytes");
    end->next[sender]++;
    return 0;
}

static bool satisfied(const struct end *end)
{
    for (int i = 0; i < SENDERS; i++)
        if (end->next[i] < end->wanted)
            return false;
    return true;
}

static void *own(void *arg)
{
    struct end *end = arg;
    sl_deadline deadline = sl_deadline_in_ms(60000);
    /* an end that has all it wants goes on writing until the other has too */
    while (!end->rc && !(atomic_load(&end->full) && atomic_load(&end->other->full))) {
        MUST(!sl_deadline_passed(deadline));
        end->rc = sl_control_process(end->control, count_message, end, &end->err);
        struct pollfd wait = {.fd = sl_control_fd(end->control), .events = POLLIN};
        int ms = sl_control_next_ms(end->control);
        if (satisfied(end))
            atomic_store(&end->full, true);
        if (!end->rc)
            poll(&wait, 1, ms < 0 || ms > 20 ? 20 : ms);
    }
    return NULL;
}

#define SENDER_WINDOW 24u

struct sender {
    struct sl_control *control;
    struct end *reader;
    uint32_t number, count;
    size_t bytes;
    pthread_t thread;
    int rc;
};

static void *send_all(void *arg)
{
    struct sender *s = arg;
    sl_deadline deadline = sl_deadline_in_ms(60000);
    uint8_t *bytes = malloc(s->bytes + 1);
    for (uint32_t i = 0; i < s->count && !s->rc; i++) {
        size_t count = (i * 7919u) % (s->bytes + 1);
        for (size_t k = 0; k < count; k++)
            bytes[k] = (uint8_t)(i + k);
        struct sl_msg msg = {.type = SL_MSG_TABLED};
        msg.tabled = (struct sl_msg_tabled){s->number, i, bytes, count};
        s->rc = sl_control_send(s->control, &msg);
        /* stays below the queue's bound, however slow the reader is */
        while (!s->rc && atomic_load(&s->reader->next[s->number]) + SENDER_WINDOW < i &&
               !sl_deadline_passed(deadline))
            usleep(100);
    }
    free(bytes);
    return NULL;
}

static void exchange(struct sl_control *a, struct sl_control *b, uint32_t count, size_t bytes)
{
    struct end ends[2] = {{.control = a, .wanted = count}, {.control = b, .wanted = count}};
    struct sender senders[2][SENDERS] = {0};
    for (int i = 0; i < 2; i++)
        ends[i].other = &ends[1 - i];
    for (int i = 0; i < 2; i++)
        MUST(pthread_create(&ends[i].thread, NULL, own, &ends[i]) == 0);
    for (int i = 0; i < 2; i++)
        for (uint32_t k = 0; k < SENDERS; k++) {
            senders[i][k] = (struct sender){ends[i].control, &ends[1 - i], k, count, bytes, 0, 0};
            MUST(pthread_create(&senders[i][k].thread, NULL, send_all, &senders[i][k]) == 0);
        }
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < SENDERS; k++) {
            pthread_join(senders[i][k].thread, NULL);
            assert_int_equal(senders[i][k].rc, 0);
        }
    for (int i = 0; i < 2; i++)
        pthread_join(ends[i].thread, NULL);
    for (int i = 0; i < 2; i++) {
        if (ends[i].rc)
            print_error("%s\n", ends[i].err.msg);
        assert_int_equal(ends[i].rc, 0);
        assert_true(satisfied(&ends[i]));
    }
}

static void control__bursts_of_many_senders_over_tls__whole_and_in_order(void **state)
{
    (void)state;
    struct meeting m;
    meet(&m, &ours, "db1", &ours, "backup1", "backup1");
    assert_int_equal(m.client_rc | m.server_rc, 0);
    exchange(m.client, m.server, 600, 6000);
    exchange(m.client, m.server, 40, SL_BODY_MAX - 8);
    part(&m);
}

static void control__bursts_of_many_senders_over_a_pair__whole_and_in_order(void **state)
{
    (void)state;
    struct sl_control *a, *b;
    assert_int_equal(sl_control_pair("local:me@here", &a, &b, NULL), 0);
    assert_true(sl_control_ready(a) && sl_control_ready(b));
    assert_string_equal(sl_control_peer(b), "local:me@here");
    exchange(a, b, 2000, 3000);
    exchange(a, b, 60, SL_BODY_MAX - 8);
    uint8_t ka[48], kb[48];
    struct sl_id id = {{7}};
    assert_int_equal(sl_control_export(a, SL_EXPORT_LANE, &id, ka, sizeof ka, NULL), 0);
    assert_int_equal(sl_control_export(b, SL_EXPORT_LANE, &id, kb, sizeof kb, NULL), 0);
    assert_memory_equal(ka, kb, sizeof ka);
    assert_memory_not_equal(ka, ka + 16, 16);
    sl_control_free(a);
    sl_control_free(b);
}

static void control_send__peer_does_not_read__bounded_and_ends(void **state)
{
    (void)state;
    struct sl_control *a, *b;
    assert_int_equal(sl_control_pair("x", &a, &b, NULL), 0);
    static uint8_t bytes[60000];
    struct sl_msg msg = {.type = SL_MSG_TABLED};
    msg.tabled = (struct sl_msg_tabled){0, 0, bytes, sizeof bytes};
    int rc = 0;
    size_t sent = 0;
    struct sl_err err;
    while (!rc) {
        rc = sl_control_send(a, &msg);
        sent += sizeof bytes;
        if (!rc)
            assert_int_equal(sl_control_process(a, ignore, NULL, &err), 0);
    }
    assert_int_equal(rc, SL_ERR_LIMIT);
    assert_in_range(sent, 7 * 1024 * 1024, 10 * 1024 * 1024);
    assert_int_equal(sl_control_process(a, ignore, NULL, &err), SL_ERR_LIMIT);
    assert_int_equal(sl_control_process(a, ignore, NULL, &err), SL_ERR_LIMIT);
    assert_int_equal(sl_control_send(a, &msg), SL_ERR_CLOSED);
    sl_control_free(a);
    sl_control_free(b);
}

static void control_send__out_of_memory__ends(void **state)
{
    (void)state;
    struct sl_control *a, *b;
    assert_int_equal(sl_control_pair("x", &a, &b, NULL), 0);
    struct sl_msg bye = {.type = SL_MSG_BYE};
    struct sl_err err;
    sl_fault_set("alloc:ENOMEM@1");
    assert_int_equal(sl_control_send(a, &bye), SL_ERR_NO_MEMORY);
    sl_fault_set(NULL);
    assert_int_equal(sl_control_process(a, ignore, NULL, &err), SL_ERR_NO_MEMORY);
    sl_control_free(a);
    sl_control_free(b);
}

/* --- frames ---------------------------------------------------------------------------------- */

static int feed(const void *bytes, size_t count, int *seen, struct sl_err *err)
{
    struct sl_control *a, *b;
    MUST(sl_control_pair("x", &a, &b, NULL) == 0);
    MUST(send(a->fd, bytes, count, MSG_NOSIGNAL) == (ssize_t)count);
    shutdown(a->fd, SHUT_WR);
    int rc = sl_control_process(b, ignore, seen, err);
    /* after bytes were refused, last words still reach the peer */
    if (rc == SL_ERR_PROTOCOL) {
        struct sl_msg words = {.type = SL_MSG_ERROR};
        int heard = 0;
        words.error.code = (uint16_t)-rc;
        MUST(sl_control_send(b, &words) == 0);
        MUST(sl_control_flush(b, sl_deadline_in_ms(1000)) == 0);
        MUST(sl_control_process(a, ignore, &heard, NULL) == 0);
        MUST(heard == 1);
    }
    sl_control_free(a);
    sl_control_free(b);
    return rc;
}

static void control__frame_lengths_out_of_bounds__protocol(void **state)
{
    (void)state;
    struct sl_err err;
    int seen = 0;
    assert_int_equal(feed("\0\0\0\0", 4, &seen, &err), SL_ERR_PROTOCOL);
    assert_int_equal(feed("\1\0\0\0x", 5, &seen, &err), SL_ERR_PROTOCOL);
    assert_int_equal(feed("\1\0\1\0", 4, &seen, &err), SL_ERR_PROTOCOL); /* 64 KiB + 1 */
    assert_int_equal(feed("\377\377\377\377", 4, &seen, &err), SL_ERR_PROTOCOL);
    assert_int_equal(feed("\2\0\0\0\143\0", 6, &seen, &err), SL_ERR_PROTOCOL);   /* unknown type */
    assert_int_equal(feed("\4\0\0\0\5\0\0\0", 8, &seen, &err), SL_ERR_PROTOCOL); /* trailing byte */
    assert_non_null(strstr(err.msg, "BYE"));
    assert_int_equal(seen, 0);
}

static void control__cut_off_in_a_frame__closed_after_the_whole_ones(void **state)
{
    (void)state;
    struct sl_err err;
    int seen = 0;
    assert_int_equal(feed("\3\0\0\0\5\0\0\3\0\0\0\5\0", 13, &seen, &err), SL_ERR_CLOSED);
    assert_int_equal(seen, 1);
}

static void control__greatest_frame__accepted(void **state)
{
    (void)state;
    struct sl_control *a, *b;
    MUST(sl_control_pair("x", &a, &b, NULL) == 0);
    static uint8_t bytes[SL_FRAME_MAX + 4];
    struct sl_writer w = sl_writer_on(bytes, sizeof bytes);
    sl_write_u32(&w, SL_FRAME_MAX);
    sl_write_u16(&w, SL_MSG_TAKEN);
    int seen = 0;
    for (size_t at = 0; at < sizeof bytes;) { /* in pieces, as a network would */
        size_t part = sizeof bytes - at < 1000 ? sizeof bytes - at : 1000;
        MUST(send(a->fd, bytes + at, part, MSG_NOSIGNAL) == (ssize_t)part);
        at += part;
        assert_int_equal(sl_control_process(b, ignore, &seen, NULL), 0);
    }
    assert_int_equal(seen, 1);
    sl_control_free(a);
    sl_control_free(b);
}

static int refuse(void *arg, struct sl_control *control, const struct sl_msg *msg,
                  struct sl_err *err)
{
    (void)control;
    (void)msg;
    (void)err; /* fills nothing in */
    return *(int *)arg;
}

static void control__handler_refuses__that_code_and_last_words(void **state)
{
    (void)state;
    struct sl_control *a, *b;
    struct sl_err err = {0};
    int code = SL_ERR_CLOSED, heard = 0; /* even a code that a lost connection has, too */
    MUST(sl_control_pair("x", &a, &b, NULL) == 0);
    struct sl_msg bye = {.type = SL_MSG_BYE};
    sl_control_send(a, &bye);
    MUST(sl_control_process(a, ignore, NULL, NULL) == 0);
    assert_int_equal(sl_control_process(b, refuse, &code, &err), SL_ERR_CLOSED);
    assert_int_equal(err.code, SL_ERR_CLOSED);
    assert_true(err.msg[0]);
    assert_int_equal(sl_control_send(b, &bye), 0);
    assert_int_equal(sl_control_flush(b, sl_deadline_in_ms(1000)), 0);
    assert_int_equal(sl_control_process(a, ignore, &heard, NULL), 0);
    assert_int_equal(heard, 1);
    sl_control_free(a);
    sl_control_free(b);
}

static void control__endless_sender__does_not_hold_the_owner(void **state)
{
    (void)state;
    struct sl_control *a, *b;
    MUST(sl_control_pair("x", &a, &b, NULL) == 0);
    b->in_more = false;
    int seen = 0;
    /* more reads than one turn takes: the fd must stay ready */
    for (int i = 0; i < 100; i++) {
        struct sl_msg bye = {.type = SL_MSG_BYE};
        sl_control_send(a, &bye);
    }
    MUST(sl_control_process(a, ignore, NULL, NULL) == 0);
    int turns = 0;
    while (seen < 100) {
        struct pollfd wait = {.fd = sl_control_fd(b), .events = POLLIN};
        MUST(poll(&wait, 1, 1000) == 1);
        assert_int_equal(sl_control_process(b, ignore, &seen, NULL), 0);
        MUST(++turns < 100);
    }
    sl_control_free(a);
    sl_control_free(b);
}

/* --- time ------------------------------------------------------------------------------------ */

static void control__heartbeats__keep_an_idle_connection(void **state)
{
    (void)state;
    struct sl_control *a, *b;
    MUST(sl_control_pair("x", &a, &b, NULL) == 0);
    sl_control_heartbeat(a, 30, 200);
    sl_control_heartbeat(b, 30, 200);
    int seen = 0;
    sl_deadline deadline = sl_deadline_in_ms(700);
    while (!sl_deadline_passed(deadline)) {
        assert_int_equal(sl_control_process(a, ignore, &seen, NULL), 0);
        assert_int_equal(sl_control_process(b, ignore, &seen, NULL), 0);
        int ms = sl_control_next_ms(a);
        assert_in_range(ms, 0, 30);
        usleep((useconds_t)(ms > 10 ? 10 : ms) * 1000);
    }
    assert_int_equal(seen, 0); /* they are not handed out */
    sl_control_free(a);
    sl_control_free(b);
}

static void control__silent_peer__dead_in_time(void **state)
{
    (void)state;
    struct sl_control *a, *b;
    struct sl_err err;
    MUST(sl_control_pair("x", &a, &b, NULL) == 0);
    sl_control_heartbeat(a, 50, 300);
    uint64_t began = sl_now_ns();
    assert_int_equal(next_failure(a, &err), SL_ERR_TIMEOUT);
    assert_in_range((sl_now_ns() - began) / SL_NS_PER_MS, 295, 2000);
    assert_non_null(strstr(err.msg, "0.3 s"));
    struct sl_msg bye = {.type = SL_MSG_BYE};
    assert_int_equal(sl_control_send(a, &bye), SL_ERR_CLOSED);
    sl_control_free(a);
    sl_control_free(b);
}

static void control__owner_slept_too_long__peers_bytes_count_first(void **state)
{
    (void)state;
    struct sl_control *a, *b;
    MUST(sl_control_pair("x", &a, &b, NULL) == 0);
    sl_control_heartbeat(a, 20, 60);
    struct sl_msg bye = {.type = SL_MSG_BYE};
    sl_control_send(b, &bye);
    MUST(sl_control_process(b, ignore, NULL, NULL) == 0);
    usleep(120000); /* as after SIGSTOP and SIGCONT */
    assert_int_equal(sl_control_process(a, ignore, NULL, NULL), 0);
    sl_control_free(a);
    sl_control_free(b);
}

/* --- every call failing ---------------------------------------------------------------------- */

static void control_pair__each_call_failing__no_leak(void **state)
{
    (void)state;
    bool untouched = false;
    for (unsigned n = 1; !untouched && n < 50; n++) {
        struct sl_control *a = NULL, *b = NULL;
        struct sl_err err;
        char rule[32];
        snprintf(rule, sizeof rule, "*:EIO@%u", n);
        sl_fault_set(rule);
        int rc = sl_control_pair("x", &a, &b, &err);
        untouched = sl_fault_passed() < n;
        sl_fault_set(NULL);
        if (rc) {
            assert_int_equal(err.code, rc);
            assert_null(a);
            assert_null(b);
        }
        assert_int_equal(rc == 0, untouched);
        sl_control_free(a);
        sl_control_free(b);
    }
    assert_true(untouched);
}

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

/* --- lanes' proofs --------------------------------------------------------------------------- */

static void lane_hello__signed__any_changed_bit_is_found(void **state)
{
    (void)state;
    uint8_t key[SL_LANE_KEY_BYTES] = {3}, bytes[SL_LANE_HELLO_BYTES];
    struct sl_lane_hello hello = {.version = SL_WIRE_VERSION,
                                  .session = {{9}},
                                  .lane = 4,
                                  .rail = 1,
                                  .depth = 16,
                                  .nonce = 77};
    sl_lane_hello_sign(&hello, key, 'c');
    assert_true(sl_lane_hello_verify(&hello, key, 'c'));
    assert_false(sl_lane_hello_verify(&hello, key, 't'));
    sl_lane_hello_encode(&hello, bytes);
    for (unsigned bit = 0; bit < SL_LANE_HELLO_BYTES * 8; bit++) {
        struct sl_lane_hello changed;
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (sl_lane_hello_decode(bytes, sizeof bytes, &changed) == 0)
            assert_false(sl_lane_hello_verify(&changed, key, 'c'));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    key[31] ^= 1;
    assert_false(sl_lane_hello_verify(&hello, key, 'c'));
}

static void seal_decided__every_case__as_the_wire_page_says(void **state)
{
    (void)state;
    const enum sl_seal_kind A = SL_SEAL_AUTO, F = SL_SEAL_OFF, N = SL_SEAL_ON;
    assert_true(sl_seal_decided(A, A, SL_TRANSPORT_TCP));
    assert_false(sl_seal_decided(A, A, SL_TRANSPORT_RDMA));
    assert_false(sl_seal_decided(A, A, SL_TRANSPORT_LOCAL));
    assert_false(sl_seal_decided(F, A, SL_TRANSPORT_TCP));
    assert_false(sl_seal_decided(A, F, SL_TRANSPORT_TCP));
    assert_true(sl_seal_decided(N, F, SL_TRANSPORT_RDMA));
    assert_true(sl_seal_decided(F, N, SL_TRANSPORT_RDMA));
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
        cmocka_unit_test(control__bursts_of_many_senders_over_tls__whole_and_in_order),
        cmocka_unit_test(control__bursts_of_many_senders_over_a_pair__whole_and_in_order),
        cmocka_unit_test(control_send__peer_does_not_read__bounded_and_ends),
        cmocka_unit_test(control_send__out_of_memory__ends),
        cmocka_unit_test(control__frame_lengths_out_of_bounds__protocol),
        cmocka_unit_test(control__cut_off_in_a_frame__closed_after_the_whole_ones),
        cmocka_unit_test(control__greatest_frame__accepted),
        cmocka_unit_test(control__handler_refuses__that_code_and_last_words),
        cmocka_unit_test(control__endless_sender__does_not_hold_the_owner),
        cmocka_unit_test(control__heartbeats__keep_an_idle_connection),
        cmocka_unit_test(control__silent_peer__dead_in_time),
        cmocka_unit_test(control__owner_slept_too_long__peers_bytes_count_first),
        cmocka_unit_test(control_pair__each_call_failing__no_leak),
        cmocka_unit_test(control_tls__each_call_failing__both_ends_end),
        cmocka_unit_test(lane_hello__signed__any_changed_bit_is_found),
        cmocka_unit_test(seal_decided__every_case__as_the_wire_page_says),
    };
    return cmocka_run_group_tests(tests, setup_certs, teardown_certs);
}
