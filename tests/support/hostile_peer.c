/* A peer that means ill, for tests/fault/test_hostile_peers.sh: bytes before TLS, bytes after a
 * true authentication, lanes that are none. It knows no more than the wire (core/wire) and speaks
 * it through OpenSSL directly, because the project's own client cannot be made to lie.
 *
 *   hostile_peer HOST PORT PKI CLIENT STANZA MODE [COUNT [SEED]]
 *
 *   garbage    COUNT connections that send bytes that are neither TLS nor a lane's hello, or broken
 *              ones of either
 *   flood      COUNT connections that say nothing, held for five seconds; prints how many the
 * target kept slow       a byte now and then: in a TLS handshake, in a lane's hello, in the middle
 * of a message messages   one session for each thing a client may not send mutate     COUNT
 * conversations with random changes lanes      lanes with lies in the hello, and with lies after it
 *   deaf       a session that asks and never reads the answers
 *
 * Connects from 127.0.0.9, so that limits for one address hit nobody else. Ends 0 when the target
 * has refused everything that must be refused, 1 with the names of what it let pass.
 */
#include "tests/support/hostile_peer.h"

#include <errno.h>
#include <openssl/err.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- before authentication ---------------------------------------------------------------------
 */

static void mode_garbage(void)
{
    for (unsigned long i = 0; i < opt.count; i++) {
        uint8_t bytes[600];
        size_t count = 1 + any() % sizeof bytes;
        fill(bytes, sizeof bytes);
        struct sl_lane_hello lie = {.version = 1, .lane = 1, .depth = 4, .nonce = any()};
        switch (i % 4) {
        case 0: /* looks like TLS */
            bytes[0] = 0x16;
            bytes[1] = 3;
            bytes[2] = 1;
            bytes[3] = bytes[3] & 1;
            break;
        case 1: /* looks like a lane of a session that is not there */
            fill(lie.session.bytes, sizeof lie.session.bytes);
            sl_lane_hello_encode(&lie, bytes);
            count = SL_LANE_HELLO_BYTES;
            break;
        case 2: /* begins like a lane */
            bytes[0] = SL_LANE_MAGIC & 0xff;
            count = SL_LANE_HELLO_BYTES;
            break;
        default:
            break;
        }
        int fd = dial();
        if (fd < 0)
            continue; /* refused already */
        if (send(fd, bytes, count, MSG_NOSIGNAL) > 0)
            shutdown(fd, SHUT_WR);
        verdict("garbage", is_ended(fd, ANSWER_MS));
        close(fd);
    }
}

static void mode_flood(void)
{
    int *fds = calloc(opt.count, sizeof *fds);
    unsigned long open = 0;
    if (!fds)
        abort();
    for (unsigned long i = 0; i < opt.count; i++)
        fds[i] = dial();
    usleep(5000000);
    for (unsigned long i = 0; i < opt.count; i++) {
        char byte;
        if (fds[i] < 0)
            continue;
        ssize_t n = recv(fds[i], &byte, 1, MSG_DONTWAIT);
        open += n < 0 && errno == EAGAIN;
        close(fds[i]);
    }
    free(fds);
    printf("of %lu silent connections the target kept %lu\n", opt.count, open);
    verdict("more than 200 half-open connections", open <= 200);
}

/* Sends `bytes` one at a time; true when the target ends it before all were sent, or after. */
static bool is_slow_ended(int fd, const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (send(fd, bytes + i, 1, MSG_NOSIGNAL) != 1 || is_ended(fd, 400))
            return true;
    }
    return is_ended(fd, ANSWER_MS);
}

static void mode_slow(void)
{
    uint8_t client_hello[80] = {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3};
    struct sl_lane_hello lane = {.version = 1};
    uint8_t lane_bytes[SL_LANE_HELLO_BYTES];
    sl_lane_hello_encode(&lane, lane_bytes);
    int fd = dial();
    verdict("a slow TLS handshake", fd < 0 || is_slow_ended(fd, client_hello, sizeof client_hello));
    close(fd);
    fd = dial();
    verdict("a slow lane's hello", fd < 0 || is_slow_ended(fd, lane_bytes, sizeof lane_bytes));
    close(fd);
    struct session *s = shake_hands();
    verdict("no HELLO", !s || is_ended(s->fd, ANSWER_MS));
    hang_up(s);
    s = session_new();
    send_raw(s, (uint8_t[]){200, 0, 0, 0, SL_MSG_CREATE, 0, 1}, 7);
    verdict("half a message, then silence", is_refused(s));
    hang_up(s);
    s = session_new();
    verdict("silence", is_refused(s));
    hang_up(s);
}

/* A lawful conversation as bytes. */
static size_t conversation(uint8_t *bytes, size_t room)
{
    struct sl_msg msgs[10] = {hello()};
    size_t n = 1, used = 0;
    struct sl_offer zero = {
        .object = 1, .slot = SL_SLOT_NONE, .plain_bytes = 4000, .flags = SL_BLOCK_ZERO};
    uint8_t offers[SL_OFFER_BYTES];
    struct sl_writer w = sl_writer_on(offers, sizeof offers);
    sl_offer_write(&w, &zero);
    msgs[n].type = SL_MSG_MEMORY;
    msgs[n].memory.access = 1;
    msgs[n++].memory.length = (uint64_t)SLOTS * SL_BLOCK_BYTES;
    msgs[n].type = SL_MSG_CREATE;
    msgs[n].create.object = 1;
    snprintf(msgs[n++].create.name, 64, "wal/hostile/mutated");
    msgs[n].type = SL_MSG_OFFER;
    msgs[n].offer.offers = offers;
    msgs[n++].offer.offers_bytes = sizeof offers;
    msgs[n].type = SL_MSG_COMMIT;
    msgs[n++].commit = (struct sl_msg_commit){.object = 1, .length = 4000};
    msgs[n].type = SL_MSG_STAT;
    snprintf(msgs[n++].stat.name, 64, "wal/hostile/mutated");
    msgs[n].type = SL_MSG_LIST;
    msgs[n].list.request = 2;
    msgs[n++].list.limit = 100;
    msgs[n].type = SL_MSG_OPEN;
    msgs[n].open.object = 2;
    snprintf(msgs[n++].open.name, 64, "wal/hostile/none");
    msgs[n].type = SL_MSG_SPACE;
    msgs[n++].space.request = 3;
    msgs[n++].type = SL_MSG_BYE;
    for (size_t i = 0; i < n; i++)
        used += (size_t)sl_msg_encode(&msgs[i], bytes + used, room - used);
    return used;
}

/* Many at once: a refused session is kept for a second, so that its peer can read why. */
#define AT_ONCE 48

static void replace(struct session **held, struct session *by)
{
    if (*held)
        verdict("a mutated conversation", is_ended((*held)->fd, ANSWER_MS));
    hang_up(*held);
    *held = by;
}

static void mode_mutate(void)
{
    uint8_t bytes[8192];
    struct session *held[AT_ONCE] = {NULL};
    for (unsigned long i = 0; i < opt.count; i++) {
        size_t count = conversation(bytes, sizeof bytes);
        for (uint64_t n = 1 + any() % 8; n; n--)
            bytes[any() % count] ^= (uint8_t)(1u << any() % 8);
        if (any() % 4 == 0)
            count = 1 + any() % count;
        if (any() % 8 == 0) { /* a piece of it twice */
            size_t at = any() % count, more = 1 + any() % (count - at);
            memmove(bytes + at + more, bytes + at, count - at);
            count += more;
        }
        struct session *s = shake_hands();
        if (!s)
            continue;
        send_raw(s, bytes, count);
        shutdown(s->fd, SHUT_WR);
        replace(&held[i % AT_ONCE], s);
    }
    for (size_t i = 0; i < AT_ONCE; i++)
        replace(&held[i], NULL);
}

/* Asks for listings for ever and reads none of them. */
static void mode_deaf(void)
{
    struct session *s = session_new();
    struct timeval wait = {1, 0};
    setsockopt(s->fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    struct sl_msg msg = {.type = SL_MSG_STAT};
    sl_deadline until = sl_deadline_in_ms(ANSWER_MS);
    bool ended = false;
    for (uint32_t i = 0; !ended && !sl_deadline_passed(until); i++) {
        msg.stat.request = i;
        snprintf(msg.stat.name, sizeof msg.stat.name, "wal/%0400u", i);
        ERR_clear_error();
        errno = 0;
        if (send_msg(s, &msg))
            continue;
        struct pollfd p = {.fd = s->fd, .events = 0};
        ended = (errno != EAGAIN && errno != 0) || (poll(&p, 1, 0) > 0 && p.revents & POLLHUP);
        if (!ended)
            usleep(100000);
    }
    verdict("a session that never reads", ended);
    hang_up(s);
}

static void set_up_tls(void)
{
    char path[3][512];
    snprintf(path[0], sizeof path[0], "%s/%s.crt", opt.pki, opt.client);
    snprintf(path[1], sizeof path[1], "%s/%s.key", opt.pki, opt.client);
    snprintf(path[2], sizeof path[2], "%s/ca.crt", opt.pki);
    context = SSL_CTX_new(TLS_client_method());
    if (!context || SSL_CTX_use_certificate_chain_file(context, path[0]) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, path[1], SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_load_verify_file(context, path[2]) != 1)
        broken("certificates");
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } modes[] = {{"garbage", mode_garbage},   {"flood", mode_flood},   {"slow", mode_slow},
                 {"messages", mode_messages}, {"mutate", mode_mutate}, {"lanes", mode_lanes},
                 {"deaf", mode_deaf}};
    if (argc < 7)
        return 2;
    opt.host = argv[1];
    opt.port = (uint16_t)strtoul(argv[2], NULL, 10);
    opt.pki = argv[3];
    opt.client = argv[4];
    opt.stanza = argv[5];
    opt.count = argc > 7 ? strtoul(argv[7], NULL, 10) : 100;
    opt.seed = argc > 8 ? strtoull(argv[8], NULL, 10) : 1;
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    set_up_tls();
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(modes[i].name, argv[6]) != 0)
            continue;
        modes[i].run();
        printf("%s: %u lies, %u not refused\n", argv[6], cases, passed_by);
        return passed_by ? 1 : 0;
    }
    return 2;
}
