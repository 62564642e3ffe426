/* hostile_peer's lies on lanes. */
#include "tests/support/hostile_peer.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- lanes -------------------------------------------------------------------------------------
 */

static void lane_hello(struct session *s, uint16_t number, struct sl_lane_hello *h)
{
    uint8_t key[SL_LANE_KEY_BYTES];
    if (SSL_export_keying_material(s->ssl, key, sizeof key, SL_EXPORT_LANE, strlen(SL_EXPORT_LANE),
                                   s->welcome.session.bytes, sizeof s->welcome.session.bytes,
                                   1) != 1)
        broken("no key for a lane");
    *h = (struct sl_lane_hello){
        .version = 1, .session = s->welcome.session, .lane = number, .depth = 4, .nonce = any()};
    sl_lane_hello_sign(h, key, 'c');
}

/* Sends a hello; the lane's socket when the target has answered with its own, else -1. */
static int lane_open(const struct sl_lane_hello *h)
{
    uint8_t bytes[SL_LANE_HELLO_BYTES];
    int fd = dial();
    if (fd < 0)
        return -1;
    sl_lane_hello_encode(h, bytes);
    if (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) == (ssize_t)sizeof bytes &&
        recv(fd, bytes, sizeof bytes, MSG_WAITALL) == (ssize_t)sizeof bytes)
        return fd;
    close(fd);
    return -1;
}

static void lying_hellos(void)
{
    static const char *const names[] = {"MAC", "session", "rail", "nonce", "version", "replayed"};
    struct session *s = session_new(), *other = session_new();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct sl_lane_hello h;
        char what[64];
        lane_hello(s, (uint16_t)(1 + i), &h);
        int before = -1;
        switch (i) {
        case 0:
            h.mac.bytes[3] ^= 4;
            break;
        case 1:
            h.session = other->welcome.session;
            break;
        case 2:
            h.rail ^= 7;
            break;
        case 3:
            h.nonce++;
            break;
        case 4:
            h.version = 77;
            break;
        default:
            before = lane_open(&h);
            if (before < 0)
                broken("no lane, though its hello is right");
        }
        int fd = lane_open(&h);
        snprintf(what, sizeof what, "a lane's hello: %s", names[i]);
        verdict(what, fd < 0);
        close(fd);
        close(before);
    }
    hang_up(s);
    hang_up(other);
}

static void frame_on_lane(uint8_t *head, uint8_t op, uint32_t bytes, uint64_t offset, uint64_t tag)
{
    struct sl_writer w = sl_writer_on(head, 24);
    sl_write_u32(&w, op);
    sl_write_u32(&w, bytes);
    sl_write_u64(&w, offset);
    sl_write_u64(&w, tag);
}

/* Frames that nobody asked for (core/transport/tcp.h: 1 PULL, 2 PULLED, 3 PUSH, 4 NOTICE). */
static void lying_frames(void)
{
    for (unsigned i = 0; i < 9; i++) {
        struct session *s = session_new();
        struct sl_lane_hello h;
        uint8_t head[4096];
        size_t count = 24;
        char what[64];
        fill(head, sizeof head);
        lane_hello(s, 1, &h);
        int fd = lane_open(&h);
        if (fd < 0)
            broken("no lane, though its hello is right");
        if (i < 6)
            frame_on_lane(head, (uint8_t[]){1, 2, 3, 5, 0, 77}[i], 1000, 0, 1);
        else if (i == 6)
            frame_on_lane(head, 2, UINT32_MAX, UINT64_MAX, UINT64_MAX);
        else
            count = i == 7 ? sizeof head : 24;
        if (i == 8) {
            frame_on_lane(head, 4, 16, 0, 0);
            head[1] = 1; /* reserved */
        }
        send(fd, head, count, MSG_NOSIGNAL);
        snprintf(what, sizeof what, "lane frame %u", i);
        verdict(what, is_ended(fd, ANSWER_MS));
        close(fd);
        hang_up(s);
    }
}

static bool read_pull(int fd, uint8_t head[24])
{
    return recv(fd, head, 24, MSG_WAITALL) == 24 && head[0] == 1;
}

/* The target pulls a block; the answer is a lie, and the object must not be stored. */
static void lying_answers(void)
{
    static uint8_t answer[24 + SL_BLOCK_BYTES];
    static const char *const names[] = {"other bytes",    "too few bytes", "too many bytes",
                                        "another offset", "another tag",   "refused",
                                        "nothing"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct session *s = session_new();
        struct sl_lane_hello h;
        struct sl_offer o = right_offer();
        uint8_t pull[24];
        char what[64], name[64];
        lane_hello(s, 1, &h);
        int fd = lane_open(&h);
        if (fd < 0)
            broken("no lane, though its hello is right");
        memory(s);
        snprintf(name, sizeof name, "wal/hostile/answer-%zu", i);
        create(s, 1, name);
        offer(s, &o);
        struct sl_msg commit = {.type = SL_MSG_COMMIT};
        commit.commit = (struct sl_msg_commit){.object = 1, .length = 1000};
        send_msg(s, &commit);
        if (!read_pull(fd, pull))
            broken("the target does not pull");
        struct sl_reader r = sl_reader_on(pull + 8, 16);
        uint64_t offset = sl_read_u64(&r), tag = sl_read_u64(&r);
        uint32_t bytes = i == 1 ? 10 : i == 2 ? 2000 : i == 5 ? 0 : 1000;
        frame_on_lane(answer, i == 5 ? 5 : 2, bytes, offset + (i == 3), tag + (i == 4));
        if (i != 6)
            send(fd, answer, 24 + bytes, MSG_NOSIGNAL);
        else
            shutdown(fd, SHUT_WR);
        snprintf(what, sizeof what, "answer to a pull: %s", names[i]);
        verdict(what, is_object_refused(s));
        close(fd);
        hang_up(s);
    }
}

void mode_lanes(void)
{
    lying_hellos();
    lying_frames();
    lying_answers();
}
