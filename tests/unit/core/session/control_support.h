/* For tests of controls: two ends brought together over TLS, and their owners' loops. */
#ifndef TESTS_UNIT_SESSION_CONTROL_SUPPORT_H
#define TESTS_UNIT_SESSION_CONTROL_SUPPORT_H

#include "tests/unit/core/session/fixture.h"

/* An authority, with certificates for a target "backup1", also by 127.0.0.1, and a client "db1". */
void certs_for_two(struct certs *certs);

struct meeting {
    const char *name; /* the client asks for */
    struct sl_tls *client_tls, *server_tls;
    char port[8];
    struct sl_control *client, *server;
    int client_rc, server_rc;
    struct sl_err client_err, server_err;
};

/* The client's side of a struct meeting, in a thread of its own. */
void *dial(void *arg);
/* Both ends to the end of the handshake; the codes say how it went, an end that failed is NULL. */
void meet(struct meeting *m, const struct certs *client_certs, const char *client_name,
          const struct certs *server_certs, const char *server_name, const char *asked);
void part(struct meeting *m);

/* A handler that accepts everything; `arg` is an int that counts, or NULL. */
int ignore(void *arg, struct sl_control *control, const struct sl_msg *msg, struct sl_err *err);
/* Owner's loop until the handshake is over, process() fails or the time is up. */
int run_until_ready(struct sl_control *control, struct sl_err *err);
/* Owner's loop until process() fails. */
int next_failure(struct sl_control *control, struct sl_err *err);

#endif
