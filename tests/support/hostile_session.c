/* hostile_peer's connections and sessions: as far as they are lawful. */
#include "core/transport/lane.h"
#include "tests/support/hostile_peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct hostile_options opt;

SSL_CTX *context;
unsigned cases, passed_by;

void broken(const char *what)
{
    fprintf(stderr, "hostile_peer: %s: %s\n", what, strerror(errno));
    exit(2);
}

uint64_t any(void) /* splitmix64 */
{
    uint64_t z = (opt.seed += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

void fill(uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)any();
}

void verdict(const char *what, bool refused)
{
    cases++;
    if (refused)
        return;
    passed_by++;
    printf("NOT REFUSED: %s\n", what);
}

/* --- connections --------------------------------------------------------------------------------
 */

/* -1 when the target does not let us. */
int dial(void)
{
    struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
    inet_pton(AF_INET, "127.0.0.9", &from.sin_addr);
    inet_pton(AF_INET, opt.host, &to.sin_addr);
    to.sin_port = htons(opt.port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    struct timeval wait = {ANSWER_MS / 1000, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    if (bind(fd, (struct sockaddr *)&from, sizeof from) ||
        connect(fd, (struct sockaddr *)&to, sizeof to)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Does the target end this connection within the time? What it says before is read away. */
bool is_ended(int fd, int ms)
{
    char bytes[4096];
    for (sl_deadline until = sl_deadline_in_ms((uint64_t)ms);;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int left = sl_deadline_poll_ms(until);
        if (poll(&p, 1, left) <= 0)
            return false;
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0)
            return true;
    }
}

/* --- sessions ----------------------------------------------------------------------------------
 */

bool send_raw(struct session *s, const void *bytes, size_t count)
{
    return !count || SSL_write(s->ssl, bytes, (int)count) == (int)count;
}

bool send_msg(struct session *s, const struct sl_msg *msg)
{
    uint8_t frame[SL_FRAME_MAX + 8];
    int n = sl_msg_encode(msg, frame, sizeof frame);
    if (n < 0)
        broken("a message of the test does not fit");
    return send_raw(s, frame, (size_t)n);
}

/* Reads what is there into the buffer. False: the connection has ended, or the time is over
 * (*late). */
static bool read_more(struct session *s, sl_deadline until, bool *late)
{
    while (!SSL_pending(s->ssl)) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        if (poll(&p, 1, sl_deadline_poll_ms(until)) > 0)
            break;
        if (sl_deadline_passed(until)) {
            *late = true;
            return false;
        }
    }
    int n = SSL_read(s->ssl, s->frame + s->have, (int)(sizeof s->frame - s->have));
    if (n <= 0)
        return false;
    s->have += (size_t)n;
    return true;
}

/* The next message but heartbeats: 1; 0: the connection has ended; -1: nothing came in time. */
int next_msg(struct session *s, int ms)
{
    sl_deadline until = sl_deadline_in_ms((uint64_t)ms);
    for (;;) {
        if (s->used) {
            memmove(s->frame, s->frame + s->used, s->have - s->used);
            s->have -= s->used;
            s->used = 0;
        }
        struct sl_reader r = sl_reader_on(s->frame, s->have);
        uint32_t length = sl_read_u32(&r);
        if (s->have >= 4 && s->have >= 4 + (size_t)length) {
            s->used = 4 + length;
            if (sl_msg_decode(s->frame + 4, length, &s->msg))
                broken("the target's message cannot be read");
            if (s->msg.type != SL_MSG_HEARTBEAT)
                return 1;
            continue;
        }
        bool late = false;
        if (!read_more(s, until, &late))
            return late ? -1 : 0;
    }
}

void hang_up(struct session *s)
{
    if (!s)
        return;
    if (s->ssl)
        SSL_free(s->ssl);
    close(s->fd);
    free(s);
}

struct session *shake_hands(void)
{
    struct session *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    s->fd = dial();
    s->ssl = s->fd < 0 ? NULL : SSL_new(context);
    if (!s->ssl || SSL_set_fd(s->ssl, s->fd) != 1 || SSL_connect(s->ssl) != 1) {
        hang_up(s);
        return NULL;
    }
    return s;
}

struct sl_msg hello(void)
{
    struct sl_msg msg = {.type = SL_MSG_HELLO};
    msg.hello = (struct sl_msg_hello){.version = SL_WIRE_VERSION,
                                      .version_min = SL_WIRE_VERSION_MIN,
                                      .software = "hostile",
                                      .host = "nowhere",
                                      .transport = SL_TRANSPORT_TCP,
                                      .seal = SL_SEAL_OFF,
                                      .lanes = 2,
                                      .slots = 2 * SLOTS,
                                      .slots_pulled = SLOTS,
                                      .slot_bytes = SL_BLOCK_BYTES};
    snprintf(msg.hello.stanza, sizeof msg.hello.stanza, "%s", opt.stanza);
    return msg;
}

struct session *session_new(void)
{
    for (int i = 0; i < 50; i++) {
        struct session *s = shake_hands();
        struct sl_msg msg = hello();
        if (s && send_msg(s, &msg) && next_msg(s, ANSWER_MS) == 1 &&
            s->msg.type == SL_MSG_WELCOME) {
            s->welcome = s->msg.welcome;
            return s;
        }
        hang_up(s);
        usleep(100000); /* it is busy with our other connections, perhaps */
    }
    broken("no session, though everything was right");
    return NULL;
}

void memory(struct session *s)
{
    for (uint8_t access = SL_ACCESS_PULLED; access <= SL_ACCESS_PUSHED; access++) {
        struct sl_msg msg = {.type = SL_MSG_MEMORY};
        msg.memory.access = access;
        msg.memory.length = (uint64_t)SLOTS * SL_BLOCK_BYTES;
        send_msg(s, &msg);
    }
}

void create(struct session *s, uint32_t object, const char *name)
{
    struct sl_msg msg = {.type = SL_MSG_CREATE};
    msg.create.object = object;
    snprintf(msg.create.name, sizeof msg.create.name, "%s", name);
    send_msg(s, &msg);
}

struct sl_offer right_offer(void)
{
    return (struct sl_offer){.object = 1, .slot = 0, .stored_bytes = 1000, .plain_bytes = 1000};
}

void offer(struct session *s, const struct sl_offer *o)
{
    uint8_t bytes[SL_OFFER_BYTES];
    struct sl_writer w = sl_writer_on(bytes, sizeof bytes);
    sl_offer_write(&w, o);
    struct sl_msg msg = {.type = SL_MSG_OFFER};
    msg.offer.offers = bytes;
    msg.offer.offers_bytes = sizeof bytes;
    send_msg(s, &msg);
}

/* Does the target refuse the session (an ERROR about it, or the end)? That it gives the connection
 * up after some time for us to read the ERROR, the script sees from its open files. */
bool is_refused(struct session *s)
{
    int got;
    while ((got = next_msg(s, ANSWER_MS)) == 1)
        if (s->msg.type == SL_MSG_ERROR && s->msg.error.kind == SL_ABOUT_SESSION)
            return true;
    return got == 0;
}

/* … or what it is about only? */
bool is_object_refused(struct session *s)
{
    while (next_msg(s, ANSWER_MS) == 1) {
        if (s->msg.type == SL_MSG_STORED || s->msg.type == SL_MSG_OPENED)
            return false;
        if (s->msg.type == SL_MSG_ERROR)
            return true;
    }
    return true;
}
