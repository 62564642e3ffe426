/* See the header. */
#include "tests/unit/core/session/control_support.h"

void certs_for_two(struct certs *certs)
{
    certs_make(certs);
    certs_issue(certs, "backup1", "127.0.0.1");
    certs_issue(certs, "db1", NULL);
}

void *dial(void *arg)
{
    struct meeting *m = arg;
    m->client_rc = sl_control_connect(m->client_tls, "127.0.0.1", m->port, m->name,
                                      sl_deadline_in_ms(10000), &m->client, &m->client_err);
    return NULL;
}

int ignore(void *arg, struct sl_control *control, const struct sl_msg *msg, struct sl_err *err)
{
    (void)control;
    (void)msg;
    (void)err;
    if (arg)
        ++*(int *)arg;
    return 0;
}

static int run(struct sl_control *control, bool until_ready, struct sl_err *err)
{
    sl_deadline deadline = sl_deadline_in_ms(10000);
    while (!until_ready || !sl_control_ready(control)) {
        int rc = sl_control_process(control, ignore, NULL, err);
        if (rc)
            return rc;
        struct pollfd wait = {.fd = sl_control_fd(control), .events = POLLIN};
        int ms = sl_control_next_ms(control);
        if (!until_ready || !sl_control_ready(control))
            poll(&wait, 1, ms < 0 || ms > 100 ? 100 : ms);
        MUST(!sl_deadline_passed(deadline));
    }
    return 0;
}

int run_until_ready(struct sl_control *control, struct sl_err *err)
{
    return run(control, true, err);
}

int next_failure(struct sl_control *control, struct sl_err *err)
{
    return run(control, false, err);
}

void meet(struct meeting *m, const struct certs *client_certs, const char *client_name,
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

void part(struct meeting *m)
{
    sl_control_free(m->client);
    sl_control_free(m->server);
    sl_tls_free(m->client_tls);
    sl_tls_free(m->server_tls);
}
