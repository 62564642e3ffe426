/* The control connection: frames (core/wire/message.h) over TLS 1.3, or over a socket pair inside
 * one process. One end of it, either side's.
 *
 * Threads: one thread owns a control: it polls `fd` for sl_control_wanted() and calls
 * sl_control_process(). Any thread may sl_control_send(): it appends to the output queue and wakes
 * the owner. (An SSL object must not be used by two threads at once, SSL_read(3).) The owner never
 * touches a disk, so a slow disk is not a dead peer.
 *
 * Heartbeats: once sl_control_heartbeat() was called, process() sends HEARTBEAT when nothing else
 * was sent for `heartbeat_ms`, and fails with SL_ERR_TIMEOUT when nothing at all was received for
 * `dead_ms`; the owner calls process() at least every sl_control_next_ms(). Heartbeats received are
 * not handed out.
 *
 * SIGPIPE is never raised: the TLS engine's socket calls go through a BIO of our own that uses
 * send(2) with MSG_NOSIGNAL.
 */
#ifndef SL_SESSION_CONTROL_H
#define SL_SESSION_CONTROL_H

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/wire/message.h"

#include <stdbool.h>

struct sl_tls; /* certificates and trust of a program; shared by its controls */
struct sl_control;

struct sl_tls_files {
    const char *certificate, *key, *authority; /* PEM files */
};

/* TLS 1.3 only, both sides prove themselves with a certificate of `authority`. `server` chooses
 * the side. Refuses a key file that others may read (0600; root's own may be 0640). Never asks for
 * a passphrase. Returns owned. SL_ERR_OPEN, SL_ERR_CONFIG, SL_ERR_CRYPTO. */
int sl_tls_new(const struct sl_tls_files *files, bool server, struct sl_tls **ret_tls,
               struct sl_err *err);
void sl_tls_free(struct sl_tls *tls); /* controls made from it keep what they need */
/* Days until the own certificate ends (negative: it has ended). */
int sl_tls_days_left(const struct sl_tls *tls);

/* Client: connects and shakes hands, blocking until `deadline`. `name` is what the target's
 * certificate must be issued for (DNS name or address). */
int sl_control_connect(struct sl_tls *tls, const char *host, const char *port, const char *name,
                       sl_deadline deadline, struct sl_control **ret_control, struct sl_err *err);
/* The same with what few need. */
struct sl_control_route {
    const char *host, *port, *name; /* borrows */
    const char *bind_address;       /* or NULL */
    int cancel_fd;                  /* readable: give up with SL_ERR_CANCELLED; -1: none */
};
int sl_control_connect_route(struct sl_tls *tls, const struct sl_control_route *route,
                             sl_deadline deadline, struct sl_control **ret_control,
                             struct sl_err *err);
/* Target: takes an accepted non-blocking socket (closed on failure too); the handshake runs in
 * process(), and must be over SL_HANDSHAKE_MS from now, or when sl_control_handshake_by() says. */
#define SL_HANDSHAKE_MS 10000
int sl_control_accept(struct sl_tls *tls, int fd, struct sl_control **ret_control,
                      struct sl_err *err);
void sl_control_handshake_by(struct sl_control *control, sl_deadline deadline);
/* Both ends inside one process, no TLS; the peer's name is `name` for both. */
int sl_control_pair(const char *name, struct sl_control **ret_client,
                    struct sl_control **ret_target, struct sl_err *err);
void sl_control_free(struct sl_control *control); /* closes; NULL ok */

int sl_control_fd(const struct sl_control *control);      /* an epoll fd: poll for POLLIN only */
int sl_control_next_ms(const struct sl_control *control); /* process() is due then, -1: no timer */
bool sl_control_ready(const struct sl_control *control);  /* handshake is over */
/* The certificate's common name, once ready. */
const char *sl_control_peer(const struct sl_control *control);
const char *sl_control_address(const struct sl_control *control); /* "10.0.0.1:4711", "local" */
const char *sl_control_peer_ip(const struct sl_control *control); /* "10.0.0.1", "::1", "" */

/* Called by process() for each message but HEARTBEAT. `msg` and what it points to live until it
 * returns. A nonzero return ends process() with that code. It may send, and export, but not free.
 */
typedef int (*sl_control_handler)(void *arg, struct sl_control *control, const struct sl_msg *msg,
                                  struct sl_err *err);
/* Handshake, read, decode and hand out messages, write what is queued; never waits. 0, or the
 * code that ends the connection: SL_ERR_CLOSED (the peer closed), _TIMEOUT, _PROTOCOL, _CRYPTO,
 * _LIMIT, _NO_MEMORY, or the handler's; every later call gives the same. After _PROTOCOL or a
 * handler's failure last words may still be sent and flushed. */
int sl_control_process(struct sl_control *control, sl_control_handler handler, void *arg,
                       struct sl_err *err);
/* Queue a message. Any thread. SL_ERR_CLOSED when the connection is lost, SL_ERR_LIMIT when the
 * peer has let SL_CONTROL_QUEUE_MAX pile up (it does not read: the connection is as good as dead),
 * SL_ERR_NO_MEMORY. A message that could not be queued ends the connection: the next process()
 * fails, so that nobody need check each send. */
#define SL_CONTROL_QUEUE_MAX (8u * 1024 * 1024)
int sl_control_send(struct sl_control *control, const struct sl_msg *msg);
/* Blocks until all queued is written or the deadline passes (for last words); does not read.
 * Owner thread. 0, SL_ERR_TIMEOUT, SL_ERR_CLOSED. */
int sl_control_flush(struct sl_control *control, sl_deadline deadline);
void sl_control_heartbeat(struct sl_control *control, unsigned heartbeat_ms, unsigned dead_ms);

/* Key material bound to this connection: TLS exporter (RFC 8446 §7.5) with `label` and `context`;
 * for a pair, derived from a random secret both ends share. Owner thread, once ready. `bytes` of
 * 1..255. */
int sl_control_export(struct sl_control *control, const char *label, const struct sl_id *context,
                      uint8_t *out, size_t bytes, struct sl_err *err);

/* --- lanes' authentication and seals' secrets ------------------------------------------------ */

#define SL_EXPORT_LANE        "EXPORTER-sluice-lane"
#define SL_EXPORT_SEAL_CLIENT "EXPORTER-sluice-seal-c2t"
#define SL_EXPORT_SEAL_TARGET "EXPORTER-sluice-seal-t2c"
#define SL_LANE_KEY_BYTES     32

/* Sets hello->mac for a direction ('c' from the client, 't' the target's reply). */
void sl_lane_hello_sign(struct sl_lane_hello *hello, const uint8_t key[SL_LANE_KEY_BYTES],
                        char direction);
/* Constant-time check. */
bool sl_lane_hello_verify(const struct sl_lane_hello *hello, const uint8_t key[SL_LANE_KEY_BYTES],
                          char direction);

/* Whether blocks are sealed, by the rule of docs/wire.md: `client` from HELLO.seal, `target` from
 * WELCOME.seal, `transport` the kind of the lanes. */
bool sl_seal_decided(enum sl_seal_kind client, enum sl_seal_kind target,
                     enum sl_transport_kind transport);

#endif
