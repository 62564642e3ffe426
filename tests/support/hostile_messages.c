/* hostile_peer's lies on the control connection: each in a session of its own. */
#include "tests/support/hostile_peer.h"

#include <stdio.h>
#include <string.h>

/* --- after it ----------------------------------------------------------------------------------
 */

static void frame_is_refused(const char *what, const void *bytes, size_t count)
{
    struct session *s = session_new();
    send_raw(s, bytes, count);
    verdict(what, is_refused(s));
    hang_up(s);
}

static void bad_frames(void)
{
    uint8_t head[8] = {0}, frame[2048];
    static const uint32_t lengths[] = {0, 1, SL_FRAME_MAX + 1, 0x7fffffff, 0xffffffff};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct sl_writer w = sl_writer_on(head, sizeof head);
        sl_write_u32(&w, lengths[i]);
        frame_is_refused("a frame of a wrong length", head, sizeof head);
    }
    for (uint16_t type = 0; type < 45; type++) {
        struct sl_msg msg = {.type = (enum sl_msg_type)type};
        int n = sl_msg_encode(&msg, frame, sizeof frame);
        if (n < 0) { /* no such message */
            frame_is_refused("an unknown message", (uint8_t[]){2, 0, 0, 0, (uint8_t)type, 0}, 6);
            continue;
        }
        char what[64];
        struct sl_writer w = sl_writer_on(frame, sizeof frame);
        sl_write_u32(&w, (uint32_t)n - 4 + 1);
        frame[n] = 0;
        snprintf(what, sizeof what, "%s with a byte too many", sl_msg_name(type));
        frame_is_refused(what, frame, (size_t)n + 1);
        if (n <= 6)
            continue;
        w = sl_writer_on(frame, sizeof frame);
        sl_write_u32(&w, (uint32_t)n - 4 - 1);
        snprintf(what, sizeof what, "%s with a byte too few", sl_msg_name(type));
        frame_is_refused(what, frame, (size_t)n - 1);
    }
}

static void bad_hellos(void)
{
    static const char *const names[] = {
        "version", "slots",    "slot bytes",      "seal",        "no stanza",
        "..",      "../other", "nobody's stanza", "slots of 4G", "pulled slots"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct sl_msg msg = hello();
        char *stanza = msg.hello.stanza;
        switch (i) {
        case 0:
            msg.hello.version = msg.hello.version_min = 99;
            break;
        case 1:
            msg.hello.slots = 65537;
            break;
        case 2:
            msg.hello.slot_bytes = 4096;
            break;
        case 9:
            msg.hello.slots_pulled = msg.hello.slots + 1;
            break;
        case 3:
            msg.hello.seal = 9;
            break;
        case 4:
            *stanza = '\0';
            break;
        case 8:
            msg.hello.slots = UINT32_MAX;
            break;
        default:
            snprintf(stanza, sizeof msg.hello.stanza, "%s", i == 7 ? "nobodys" : names[i]);
        }
        struct session *s = shake_hands();
        if (!s)
            broken("no TLS");
        send_msg(s, &msg);
        char what[64];
        snprintf(what, sizeof what, "HELLO: %s", names[i]);
        verdict(what, is_refused(s));
        hang_up(s);
    }
    /* out of order */
    struct session *s = shake_hands();
    if (!s)
        broken("no TLS");
    create(s, 1, "wal/x");
    verdict("CREATE before HELLO", is_refused(s));
    hang_up(s);
    s = session_new();
    struct sl_msg again = hello();
    send_msg(s, &again);
    verdict("HELLO twice", is_refused(s));
    hang_up(s);
}

static void bad_names(void)
{
    static const char *const names[] = {
        "",        "/etc/passwd", "../x",  "wal/../../x",     "wal//x", "wal/",
        ".tmp/x",  "wal/.x",      "wal/ ", "wal/\x01",        "\xff",   "wal/\xc3\xa4",
        "wal/a;b", "-/../x",      "./x",   "wal/a/./../../b", "wal/*",  "wal/x\n2026 ERROR forged"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct session *s = session_new();
        create(s, 1, names[i]);
        verdict("CREATE of a hostile name", is_object_refused(s));
        struct sl_msg msg = {.type = SL_MSG_OPEN};
        msg.open.object = 2;
        snprintf(msg.open.name, sizeof msg.open.name, "%s", names[i]);
        send_msg(s, &msg);
        verdict("OPEN of a hostile name", is_object_refused(s));
        hang_up(s);
    }
}

static void bad_offers(void)
{
    static const char *const names[] = {
        "slot that is not there", "slot 4G",         "length 0",
        "length above a block",   "length 4G",       "unknown flags",
        "zero block with a slot", "two lengths",     "two digests",
        "unknown object",         "a slot twice",    "before MEMORY",
        "a block twice",          "stored length 4G"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct session *s = session_new();
        struct sl_offer o = right_offer();
        if (i != 11)
            memory(s);
        create(s, 1, "wal/hostile/offer");
        switch (i) {
        case 0:
            o.slot = SLOTS;
            break;
        case 1:
            o.slot = UINT32_MAX;
            break;
        case 2:
            o.plain_bytes = o.stored_bytes = 0;
            break;
        case 3:
            o.plain_bytes = o.stored_bytes = SL_BLOCK_BYTES + 1;
            break;
        case 4:
            o.plain_bytes = o.stored_bytes = UINT32_MAX;
            break;
        case 5:
            o.flags = 0x80;
            break;
        case 6:
            o.flags = SL_BLOCK_ZERO;
            break;
        case 7:
            o.stored_bytes = 999;
            break;
        case 8:
            o.plain_digest.bytes[0] = 1;
            break;
        case 9:
            o.object = 77;
            break;
        case 10:
            offer(s, &o);
            o.block = 1;
            break;
        case 12:
            o.flags = SL_BLOCK_ZERO;
            o.slot = SL_SLOT_NONE;
            o.stored_bytes = 0;
            offer(s, &o);
            break;
        case 13:
            o.codec = 1;
            o.stored_bytes = UINT32_MAX;
            break;
        default:
            break;
        }
        offer(s, &o);
        char what[64];
        snprintf(what, sizeof what, "OFFER: %s", names[i]);
        verdict(what, i == 12 ? is_object_refused(s) : is_refused(s));
        hang_up(s);
    }
}

static void numbers_of_nothing(void)
{
    static const struct {
        enum sl_msg_type type;
        const char *what;
    } of[] = {{SL_MSG_COMMIT, "COMMIT of nothing"},
              {SL_MSG_ABORT, "ABORT of nothing"},
              {SL_MSG_CLOSE, "CLOSE of nothing"},
              {SL_MSG_TABLE, "TABLE of nothing"}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct session *s = session_new();
        struct sl_msg msg = {.type = of[i].type};
        msg.commit.object = 4711; /* the first field of each of them */
        send_msg(s, &msg);
        verdict(of[i].what, is_refused(s));
        hang_up(s);
    }
}

static void bad_objects(void)
{
    numbers_of_nothing();
    struct session *s = session_new(); /* more of it than there is */
    create(s, 1, "wal/hostile/commit");
    struct sl_msg commit = {.type = SL_MSG_COMMIT};
    commit.commit = (struct sl_msg_commit){.object = 1, .length = UINT64_MAX};
    send_msg(s, &commit);
    verdict("COMMIT of 2^64 bytes", is_object_refused(s));
    commit.commit =
        (struct sl_msg_commit){.object = 2, .length = 1u << 20, .index_bytes = 1u << 21};
    create(s, 2, "wal/hostile/commit2");
    send_msg(s, &commit);
    verdict("COMMIT without blocks", is_object_refused(s));
    create(s, 3, "wal/hostile/twice");
    create(s, 3, "wal/hostile/twice");
    verdict("an object's number twice", is_refused(s));
    hang_up(s);
    s = session_new();
    bool limited = false;
    for (uint32_t i = 1; i <= 400; i++) {
        char name[64];
        snprintf(name, sizeof name, "wal/hostile/many-%u", i);
        create(s, i, name);
    }
    while (!limited && next_msg(s, ANSWER_MS) == 1)
        limited = s->msg.type == SL_MSG_ERROR;
    verdict("400 objects at once", limited);
    hang_up(s);
    s = session_new();
    uint8_t get[SL_GET_BYTES];
    struct sl_writer w = sl_writer_on(get, sizeof get);
    sl_get_write(&w, &(struct sl_get){.object = 1, .block = UINT32_MAX, .slot = UINT32_MAX});
    struct sl_msg msg = {.type = SL_MSG_GET};
    msg.get.gets = get;
    msg.get.gets_bytes = sizeof get;
    memory(s);
    send_msg(s, &msg);
    verdict("GET into a slot that is not there", is_refused(s));
    hang_up(s);
}

void mode_messages(void)
{
    bad_hellos();
    bad_frames();
    bad_names();
    bad_offers();
    bad_objects();
}
