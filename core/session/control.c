/* The control connection: framing, the output queue, heartbeats, and the order in which they are
 * served. What the messages mean is the business of client and target; certificates and TLS's
 * errors are tls.c's. */
#include "core/session/control.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/session/control_internal.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define IN_BYTES    (SL_FRAME_MAX + 4u)
#define READS_MAX   64   /* in one process(): a peer that sends without end is not all there is */
#define QUEUE_FIRST 4096 /* bytes of the queue at first; an idle session stays small */
#define QUEUE_KEPT  (256u * 1024) /* a queue that grew beyond is given back when empty */

/* --- making and freeing ---------------------------------------------------------------------- */

static int watch(struct sl_control *control, struct sl_err *err)
{
    int fault = sl_fault("control.epoll");
    if (fault > 0)
        return sl_err_sys(err, SL_ERR_LIMIT, fault, "could not make an epoll instance");
    control->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    control->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (control->epoll_fd < 0 || control->wake_fd < 0)
        return sl_err_sys(err, SL_ERR_LIMIT, errno, "could not make an epoll instance");
    /* the handshake begins by itself, so the first wait returns at once on the client's side */
    control->interest = EPOLLIN;
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, control->fd, &event) ||
        epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, control->wake_fd, &event))
        return sl_err_sys(err, SL_ERR_LIMIT, errno, "could not watch a connection");
    return 0;
}

static int open_up(struct sl_control *control, struct sl_err *err)
{
    control->in = sl_alloc(IN_BYTES);
    if (!control->in)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    control->state = SL_CONTROL_OPEN;
    control->received_ns = sl_now_ns();
    return 0;
}

int sl_control_new(int fd, SSL *ssl, bool server, struct sl_control **ret_control,
                   struct sl_err *err)
{
    struct sl_control *control = sl_calloc(1, sizeof *control);
    if (!control) {
        SSL_free(ssl);
        close(fd);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    }
    control->fd = fd;
    control->epoll_fd = control->wake_fd = -1;
    control->ssl = ssl;
    control->server = server;
    control->state = SL_CONTROL_SHAKING;
    control->handshake_by = sl_deadline_in_ms(SL_HANDSHAKE_MS);
    atomic_init(&control->sent_ns, sl_now_ns());
    pthread_mutex_init(&control->lock, NULL);
    snprintf(control->address, sizeof control->address, "local");
    if (ssl)
        SSL_set_app_data(ssl, control);
    int rc = watch(control, err);
    if (!rc && !ssl)
        rc = open_up(control, err);
    if (rc) {
        sl_control_free(control);
        return rc;
    }
    *ret_control = control;
    return 0;
}

int sl_control_accept(struct sl_tls *tls, int fd, struct sl_control **ret_control,
                      struct sl_err *err)
{
    SSL *ssl;
    int rc = sl_tls_engine(tls, fd, NULL, &ssl, err);
    if (rc) {
        close(fd);
        return rc;
    }
    struct sl_control *control;
    rc = sl_control_new(fd, ssl, true, &control, err);
    if (rc)
        return rc;
    sl_control_name_socket(control);
    *ret_control = control;
    return 0;
}

void sl_control_handshake_by(struct sl_control *control, sl_deadline deadline)
{
    control->handshake_by = deadline;
}

int sl_control_pair(const char *name, struct sl_control **ret_client,
                    struct sl_control **ret_target, struct sl_err *err)
{
    uint8_t secret[sizeof((struct sl_control *)0)->secret];
    struct sl_control *ends[2] = {NULL, NULL};
    int fds[2];
    if (RAND_bytes(secret, sizeof secret) != 1)
        return sl_err_set(err, SL_ERR_CRYPTO, "no random numbers: %s", sl_tls_reason());
    int fault = sl_fault("control.socket");
    if (fault > 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds))
        return sl_err_sys(err, SL_ERR_LIMIT, fault > 0 ? fault : errno,
                          "could not make a socket pair");
    int rc = sl_control_new(fds[0], NULL, false, &ends[0], err);
    if (rc) {
        close(fds[1]);
        return rc;
    }
    rc = sl_control_new(fds[1], NULL, true, &ends[1], err);
    if (rc) {
        sl_control_free(ends[0]);
        return rc;
    }
    for (int i = 0; i < 2; i++) {
        memcpy(ends[i]->secret, secret, sizeof secret);
        snprintf(ends[i]->peer, sizeof ends[i]->peer, "%s", name);
    }
    OPENSSL_cleanse(secret, sizeof secret);
    *ret_client = ends[0];
    *ret_target = ends[1];
    return 0;
}

void sl_control_free(struct sl_control *control)
{
    if (!control)
        return;
    if (control->ssl) {
        ERR_clear_error();
        if (control->state == SL_CONTROL_OPEN || control->state == SL_CONTROL_ENDED)
            SSL_shutdown(control->ssl); /* a courtesy: BYE is what counts */
        SSL_free(control->ssl);
        ERR_clear_error();
    }
    if (control->fd >= 0)
        close(control->fd);
    if (control->epoll_fd >= 0)
        close(control->epoll_fd);
    if (control->wake_fd >= 0)
        close(control->wake_fd);
    pthread_mutex_destroy(&control->lock);
    OPENSSL_cleanse(control->secret, sizeof control->secret);
    sl_free(control->in);
    sl_free(control->writing.bytes);
    sl_free(control->queued.bytes);
    sl_free(control);
}

/* --- asking ---------------------------------------------------------------------------------- */

int sl_control_fd(const struct sl_control *control)
{
    return control->epoll_fd;
}

bool sl_control_ready(const struct sl_control *control)
{
    return control->state == SL_CONTROL_OPEN;
}

const char *sl_control_peer(const struct sl_control *control)
{
    return control->peer;
}

const char *sl_control_address(const struct sl_control *control)
{
    return control->address;
}

const char *sl_control_peer_ip(const struct sl_control *control)
{
    return control->peer_ip;
}

void sl_control_heartbeat(struct sl_control *control, unsigned heartbeat_ms, unsigned dead_ms)
{
    control->heartbeat_ms = heartbeat_ms;
    control->dead_ms = dead_ms;
    control->received_ns = sl_now_ns();
}

int sl_control_next_ms(const struct sl_control *control)
{
    if (control->in_more)
        return 0;
    if (control->state == SL_CONTROL_SHAKING)
        return sl_deadline_poll_ms(control->handshake_by);
    if (control->state != SL_CONTROL_OPEN || !control->dead_ms)
        return -1;
    uint64_t beat = atomic_load(&control->sent_ns) + control->heartbeat_ms * SL_NS_PER_MS;
    uint64_t death = control->received_ns + control->dead_ms * SL_NS_PER_MS;
    return sl_deadline_poll_ms(beat < death ? beat : death);
}

/* --- bytes ----------------------------------------------------------------------------------- */

/* After a TLS call that did not succeed: 0 when it only has to wait (and sets the wish), else the
 * code. */
static int tls_wait(struct sl_control *control, int result, int sys, bool *wants_other_way,
                    int other_way, struct sl_err *err)
{
    int why = SSL_get_error(control->ssl, result);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
        *wants_other_way = why == other_way;
        return 0;
    }
    return sl_tls_explain(control, result, sys, err);
}

static int closed_by_peer(const struct sl_control *control, int sys, struct sl_err *err)
{
    if (!sys)
        return sl_err_set(err, SL_ERR_CLOSED, "%s closed the connection", control->address);
    return sl_err_sys(err, SL_ERR_CLOSED, sys, "lost the connection to %s", control->address);
}

/* Reads up to `room` bytes; 0 when there are none for now. */
static ssize_t take_bytes(struct sl_control *control, uint8_t *to, size_t room, struct sl_err *err)
{
    if (control->ssl) {
        size_t count = 0;
        ERR_clear_error();
        errno = 0;
        int result = SSL_read_ex(control->ssl, to, room, &count);
        if (result == 1) {
            control->read_wants_out = false;
            return (ssize_t)count;
        }
        return tls_wait(control, result, errno, &control->read_wants_out, SSL_ERROR_WANT_WRITE,
                        err);
    }
    int fault = sl_fault("control.recv");
    ssize_t count = fault > 0 ? -1 : recv(control->fd, to, room, 0);
    if (count > 0)
        return count;
    if (count < 0 && fault > 0)
        errno = fault;
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    return closed_by_peer(control, count < 0 ? errno : 0, err);
}

/* Writes some bytes; 0 when there is no room for now. */
static ssize_t give_bytes(struct sl_control *control, const uint8_t *from, size_t count,
                          struct sl_err *err)
{
    if (control->ssl) {
        size_t done = 0;
        ERR_clear_error();
        errno = 0;
        int result = SSL_write_ex(control->ssl, from, count, &done);
        if (result == 1) {
            control->write_wants_in = false;
            return (ssize_t)done;
        }
        return tls_wait(control, result, errno, &control->write_wants_in, SSL_ERROR_WANT_READ, err);
    }
    int fault = sl_fault("control.send");
    ssize_t done = fault > 0 ? -1 : send(control->fd, from, count, MSG_NOSIGNAL);
    if (done >= 0)
        return done;
    if (fault > 0)
        errno = fault;
    if (errno == EAGAIN || errno == EINTR)
        return 0;
    return closed_by_peer(control, errno, err);
}

static int shake(struct sl_control *control, struct sl_err *err)
{
    ERR_clear_error();
    errno = 0;
    int result = SSL_do_handshake(control->ssl);
    if (result == 1) {
        int rc = sl_tls_peer_name(control->ssl, control->peer, sizeof control->peer, err);
        return rc ? rc : open_up(control, err);
    }
    int rc = tls_wait(control, result, errno, &control->read_wants_out, SSL_ERROR_WANT_WRITE, err);
    if (rc)
        return rc;
    if (sl_deadline_passed(control->handshake_by))
        return sl_err_set(err, SL_ERR_TIMEOUT, "the TLS handshake with %s was not over in time",
                          control->address);
    return 0;
}

/* --- reading --------------------------------------------------------------------------------- */

static int hand_out(struct sl_control *control, const uint8_t *body, size_t bytes,
                    sl_control_handler handler, void *arg, struct sl_err *err)
{
    struct sl_msg msg;
    if (sl_msg_decode(body, bytes, &msg)) {
        struct sl_reader r = sl_reader_on(body, bytes);
        uint16_t type = sl_read_u16(&r);
        return sl_err_set(err, SL_ERR_PROTOCOL,
                          "%s sent a message of type %u (%s) that is malformed", control->address,
                          type, sl_msg_name(type));
    }
    if (msg.type == SL_MSG_HEARTBEAT)
        return 0;
    return handler(arg, control, &msg, err);
}

/* Every complete frame of the input; what is left moves to its start. */
static int take_frames(struct sl_control *control, sl_control_handler handler, void *arg,
                       struct sl_err *err)
{
    struct sl_reader r = sl_reader_on(control->in, control->in_used);
    size_t done = 0;
    int rc = 0;
    while (!rc && sl_reader_left(&r) >= 4) {
        uint32_t length = sl_read_u32(&r);
        if (length < 2 || length > SL_FRAME_MAX) {
            rc = sl_err_set(err, SL_ERR_PROTOCOL, "%s sent a frame of %u bytes", control->address,
                            length);
            break;
        }
        if (sl_reader_left(&r) < length)
            break;
        rc = hand_out(control, sl_read_bytes(&r, length), length, handler, arg, err);
        done += 4 + length;
    }
    control->in_used -= done;
    if (done && control->in_used)
        memmove(control->in, control->in + done, control->in_used);
    return rc;
}

/* `*refused` tells that it failed for what was received, not for the connection. */
static int receive(struct sl_control *control, sl_control_handler handler, void *arg, bool *refused,
                   struct sl_err *err)
{
    control->in_more = false;
    for (unsigned i = 0; i < READS_MAX; i++) {
        /* never full here: a frame that fills the input was handed out */
        ssize_t count =
            take_bytes(control, control->in + control->in_used, IN_BYTES - control->in_used, err);
        if (count <= 0)
            return (int)count;
        control->received_ns = sl_now_ns();
        control->in_used += (size_t)count;
        int rc = take_frames(control, handler, arg, err);
        if (rc) {
            *refused = true;
            return rc;
        }
    }
    control->in_more = true;
    return 0;
}

/* --- writing --------------------------------------------------------------------------------- */

/* Makes what is queued the thing being written; false when there is nothing. */
static bool next_batch(struct sl_control *control)
{
    pthread_mutex_lock(&control->lock);
    struct sl_heap empty = control->writing;
    if (empty.room > QUEUE_KEPT) {
        sl_free(empty.bytes);
        empty = (struct sl_heap){0};
    }
    empty.used = 0;
    control->writing = control->queued;
    control->queued = empty;
    control->written = 0;
    control->unwritten = control->writing.used;
    control->awake = control->unwritten > 0;
    bool any = control->unwritten > 0;
    pthread_mutex_unlock(&control->lock);
    return any;
}

static int transmit(struct sl_control *control, struct sl_err *err)
{
    control->stuck = false;
    while (control->written < control->writing.used || next_batch(control)) {
        ssize_t count = give_bytes(control, control->writing.bytes + control->written,
                                   control->writing.used - control->written, err);
        if (count < 0)
            return (int)count;
        if (count == 0) {
            control->stuck = true;
            return 0;
        }
        control->written += (size_t)count;
        pthread_mutex_lock(&control->lock);
        control->unwritten = control->writing.used - control->written;
        pthread_mutex_unlock(&control->lock);
    }
    return 0;
}

static void lose(struct sl_control *control, int code)
{
    if (!control->lost)
        control->lost = code;
}

/* With the lock held: room for one more frame of any size at the queue's end. */
static bool reserve(struct sl_heap *queued, size_t bytes)
{
    if (queued->room - queued->used >= bytes)
        return true;
    size_t room = queued->room ? queued->room : QUEUE_FIRST;
    while (room - queued->used < bytes)
        room *= 2;
    uint8_t *grown = sl_realloc(queued->bytes, room);
    if (!grown)
        return false;
    queued->bytes = grown;
    queued->room = room;
    return true;
}

static int enqueue(struct sl_control *control, const struct sl_msg *msg)
{
    struct sl_heap *queued = &control->queued;
    if (control->lost)
        return SL_ERR_CLOSED;
    int bytes = SL_ERR_LIMIT;
    /* most messages are small; only one that did not fit makes room for the largest */
    if (queued->room > queued->used)
        bytes = sl_msg_encode(msg, queued->bytes + queued->used, queued->room - queued->used);
    if (bytes == SL_ERR_LIMIT) {
        if (!reserve(queued, sizeof *msg))
            return SL_ERR_NO_MEMORY;
        bytes = sl_msg_encode(msg, queued->bytes + queued->used, queued->room - queued->used);
    }
    if (bytes == SL_ERR_LIMIT) {
        if (!reserve(queued, IN_BYTES))
            return SL_ERR_NO_MEMORY;
        bytes = sl_msg_encode(msg, queued->bytes + queued->used, queued->room - queued->used);
    }
    if (bytes < 0)
        return bytes;
    if (queued->used + control->unwritten + (size_t)bytes > SL_CONTROL_QUEUE_MAX)
        return SL_ERR_LIMIT;
    queued->used += (size_t)bytes;
    return 0;
}

static void kick(struct sl_control *control)
{
    static const uint64_t one = 1;
    /* cannot fail: the counter is far from its limit (eventfd(2)) */
    if (!control->kicked && write(control->wake_fd, &one, sizeof one) == (ssize_t)sizeof one)
        control->kicked = true;
}

int sl_control_send(struct sl_control *control, const struct sl_msg *msg)
{
    pthread_mutex_lock(&control->lock);
    int rc = enqueue(control, msg);
    if (rc)
        lose(control, rc);
    else
        atomic_store(&control->sent_ns, sl_now_ns());
    if (!control->awake)
        kick(control);
    pthread_mutex_unlock(&control->lock);
    return rc;
}

/* --- the owner's turn ------------------------------------------------------------------------ */

static int check_times(struct sl_control *control, struct sl_err *err)
{
    if (!control->dead_ms)
        return 0;
    uint64_t now = sl_now_ns();
    if (now - control->received_ns >= control->dead_ms * SL_NS_PER_MS && !control->in_more)
        return sl_err_set(err, SL_ERR_TIMEOUT, "nothing was heard of %s for %.1f s",
                          control->address, control->dead_ms / 1000.0);
    if (now - atomic_load(&control->sent_ns) < control->heartbeat_ms * SL_NS_PER_MS)
        return 0;
    struct sl_msg beat = {.type = SL_MSG_HEARTBEAT};
    beat.heartbeat.wall_ns = sl_wall_ns();
    int rc = sl_control_send(control, &beat);
    /* a loss by another thread's send is told by check_lost() */
    return rc == SL_ERR_CLOSED ? 0 : rc ? sl_err_set(err, rc, "%s", sl_code_text(rc)) : 0;
}

static int check_lost(struct sl_control *control, struct sl_err *err)
{
    pthread_mutex_lock(&control->lock);
    int lost = control->lost;
    pthread_mutex_unlock(&control->lock);
    if (lost == SL_ERR_LIMIT)
        return sl_err_set(err, lost, "%s does not read: more than %u MiB wait for it",
                          control->address, SL_CONTROL_QUEUE_MAX >> 20);
    return lost ? sl_err_set(err, lost, "a message to %s could not be queued: %s", control->address,
                             sl_code_text(lost))
                : 0;
}

static int update_interest(struct sl_control *control, struct sl_err *err)
{
    uint32_t wanted = EPOLLIN;
    if (control->state == SL_CONTROL_SHAKING)
        wanted = control->read_wants_out ? EPOLLOUT : EPOLLIN;
    else if ((control->stuck && !control->write_wants_in) || control->read_wants_out)
        wanted = EPOLLIN | EPOLLOUT;
    if (wanted != control->interest) {
        struct epoll_event event = {.events = wanted};
        if (epoll_ctl(control->epoll_fd, EPOLL_CTL_MOD, control->fd, &event))
            return sl_err_sys(err, SL_ERR_INTERNAL, errno, "could not watch a connection");
        control->interest = wanted;
    }
    if (control->in_more) {
        pthread_mutex_lock(&control->lock);
        kick(control);
        pthread_mutex_unlock(&control->lock);
    }
    return 0;
}

static void wake_up(struct sl_control *control)
{
    uint64_t count;
    pthread_mutex_lock(&control->lock);
    control->awake = true;
    if (control->kicked && read(control->wake_fd, &count, sizeof count) == (ssize_t)sizeof count)
        control->kicked = false;
    pthread_mutex_unlock(&control->lock);
}

/* After bytes that came whole and were refused (by the framing or the handler) the connection can
 * still carry last words; after the peer's close, its silence or a failure of TLS it cannot. */
static int end(struct sl_control *control, int rc, bool can_speak, const struct sl_err *err)
{
    control->failure = *err;
    control->failure.code = rc;
    control->in_more = false;
    control->state = can_speak ? SL_CONTROL_ENDED : SL_CONTROL_BROKEN;
    pthread_mutex_lock(&control->lock);
    if (!can_speak)
        lose(control, rc);
    control->awake = false;
    pthread_mutex_unlock(&control->lock);
    return rc;
}

/* A peer that refuses us says why (an ERROR, an alert of TLS) and closes; our own write may meet
 * the closed socket first. What the peer said is the better message. */
static int hear_last_words(struct sl_control *control, sl_control_handler handler, void *arg,
                           bool *refused, int rc, struct sl_err *err)
{
    struct sl_err said = {0};
    int last = receive(control, handler, arg, refused, &said);
    return last && last != SL_ERR_CLOSED ? sl_err_copy(err, &said) : rc;
}

static int take_turn(struct sl_control *control, sl_control_handler handler, void *arg,
                     bool *refused, struct sl_err *err)
{
    int rc = control->state == SL_CONTROL_SHAKING ? shake(control, err) : 0;
    if (!rc && control->state == SL_CONTROL_OPEN) {
        rc = receive(control, handler, arg, refused, err);
        if (!rc)
            rc = check_times(control, err);
        if (!rc) {
            rc = transmit(control, err);
            if (rc)
                rc = hear_last_words(control, handler, arg, refused, rc, err);
        }
        if (!rc)
            rc = check_lost(control, err);
    }
    return rc ? rc : update_interest(control, err);
}

int sl_control_process(struct sl_control *control, sl_control_handler handler, void *arg,
                       struct sl_err *err)
{
    if (control->state == SL_CONTROL_ENDED || control->state == SL_CONTROL_BROKEN)
        return sl_err_copy(err, &control->failure);
    struct sl_err why = {0};
    bool refused = false;
    wake_up(control);
    int rc = take_turn(control, handler, arg, &refused, &why);
    if (!rc)
        return 0;
    if (why.code != rc) /* a handler that filled nothing in */
        sl_err_set(&why, rc, "%s", sl_code_text(rc));
    sl_err_copy(err, &why);
    return end(control, rc, refused, &why);
}

int sl_control_flush(struct sl_control *control, sl_deadline deadline)
{
    if (control->state != SL_CONTROL_OPEN && control->state != SL_CONTROL_ENDED)
        return SL_ERR_CLOSED;
    for (;;) {
        if (transmit(control, NULL))
            return SL_ERR_CLOSED;
        if (!control->stuck)
            return 0;
        int rc = sl_net_wait(control->fd, control->write_wants_in ? POLLIN : POLLOUT, -1, deadline);
        if (rc)
            return rc;
    }
}
