/* Inside core/session: what control.c (frames, queue), tls.c (certificates, handshake, the words
 * for what went wrong) and connect.c share. */
#ifndef SL_SESSION_CONTROL_INTERNAL_H
#define SL_SESSION_CONTROL_INTERNAL_H

#include "core/session/control.h"
#include "core/transport/net.h"

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>

struct sl_tls {
    SSL_CTX *context;
    bool server;
    time_t ends; /* of the own certificate */
};

/* Bytes in a row that grow at the end. */
struct sl_heap {
    uint8_t *bytes;
    size_t used, room;
};

enum sl_control_state {
    SL_CONTROL_SHAKING, /* → OPEN, BROKEN */
    SL_CONTROL_OPEN,    /* → ENDED, BROKEN */
    SL_CONTROL_ENDED,   /* no more is read; last words may be written → BROKEN */
    SL_CONTROL_BROKEN,  /* nothing can be read or written */
};

struct sl_control {
    int fd, epoll_fd, wake_fd;
    SSL *ssl; /* NULL in a pair */
    bool server;
    enum sl_control_state state; /* owner's; senders look at `lost` */
    struct sl_err failure;       /* once ENDED or BROKEN */
    sl_deadline handshake_by;
    char expected[256];      /* client: the name asked for */
    char refused_names[256]; /* and those of a certificate that does not have it */
    char peer[64], address[SL_NET_NAME_BYTES], peer_ip[64];
    uint8_t secret[32]; /* of a pair */

    uint8_t *in; /* SL_FRAME_MAX + 4 bytes, once OPEN */
    size_t in_used;
    bool in_more; /* stopped before the input was empty */

    struct sl_heap writing; /* owner's; what is left of it begins at written */
    size_t written;
    bool stuck;          /* the socket takes no more for now */
    bool read_wants_out; /* TLS must write before it can read, and the reverse */
    bool write_wants_in;
    uint32_t interest; /* EPOLL… bits in effect */

    pthread_mutex_t lock; /* guards the five below */
    struct sl_heap queued;
    size_t unwritten; /* of `writing`, for the bound */
    bool awake;       /* the owner will look at the queue without being told */
    bool kicked;      /* wake_fd is readable */
    int lost;         /* why nothing can be queued any more, or 0 */

    unsigned heartbeat_ms, dead_ms;
    _Atomic uint64_t sent_ns; /* last message queued */
    uint64_t received_ns;     /* last bytes read */
};

/* A TLS engine on `fd` for one side; `name` is checked against the peer's certificate (NULL: none,
 * any name of the authority). Returns owned (SSL_free). */
int sl_tls_engine(const struct sl_tls *tls, int fd, const char *name, SSL **ret_ssl,
                  struct sl_err *err);
/* What a failed TLS call meant: fills `err` and returns the code. `result` is what the call
 * returned, `sys` errno right after it. Empties OpenSSL's error queue. */
int sl_tls_explain(const struct sl_control *control, int result, int sys, struct sl_err *err);
/* After the handshake: the certificate's one common name. */
int sl_tls_peer_name(SSL *ssl, char *name, size_t room, struct sl_err *err);
/* The reason of OpenSSL's oldest error, for messages; empties the queue. Static text. */
const char *sl_tls_reason(void);

/* connect.c: fills in the peer's address. */
void sl_control_name_socket(struct sl_control *control);

/* A control in state SHAKING (with TLS) or OPEN (`ssl` NULL). Takes fd and ssl in any case. */
int sl_control_new(int fd, SSL *ssl, bool server, struct sl_control **ret_control,
                   struct sl_err *err);

#endif
