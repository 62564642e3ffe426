/* What a session may not do, and what becomes of it: each violation ends that session and no
 * other; permissions; limits; the first bytes of a connection. */
#include "core/session/control_internal.h" /* a frame that is none needs the bare socket */
#include "tests/unit/core/target/scripted.h"

#include <arpa/inet.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct fixture {
    struct world world;
    struct script good; /* must be as well afterwards as before */
    struct content content;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    must(f);
    world_open(&f->world, NULL, false);
    script_open(&f->good, &f->world, NULL);
    f->content = content_new(&f->world, 7, MiB + 100, false);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    script_put(&f->good, 1, "still/here", &f->content, SL_STORED_CREATED);
    script_bye(&f->good);
    content_free(&f->content);
    world_close(&f->world);
    free(f);
    return 0;
}

/* The target has said PROTOCOL about the session. That it closes then, is seen once. */
static void expect_violation(struct script *script)
{
    script_await_error(script, SL_ABOUT_SESSION, SL_ERR_PROTOCOL);
    script_close(script);
}

static void open_with_object(struct fixture *f, struct script *script)
{
    script_open(script, &f->world, NULL);
    script_create(script, 5, "x/y");
}

/* --- messages out of place -------------------------------------------------------------------- */

static void session__message_before_hello__ends(void **state)
{
    struct fixture *f = *state;
    struct sl_control *target;
    struct script script = {.world = &f->world};
    script.letters_end = &script.letters;
    must(sl_control_pair("db1", &script.control, &target, NULL) == 0);
    must(sl_target_attach(f->world.target, target, NULL) == 0);
    struct sl_msg msg = {.type = SL_MSG_SPACE};
    script_send(&script, &msg);
    expect_violation(&script);
}

static void session__second_hello__ends(void **state)
{
    struct fixture *f = *state;
    struct script script;
    script_open(&script, &f->world, NULL);
    struct sl_msg msg = {.type = SL_MSG_HELLO};
    script_send(&script, &msg);
    script_await_error(&script, SL_ABOUT_SESSION, SL_ERR_PROTOCOL);
    script_await_close(&script); /* by itself */
    script_close(&script);
}

static void session__message_of_a_target__ends(void **state)
{
    struct fixture *f = *state;
    struct script script;
    script_open(&script, &f->world, NULL);
    struct sl_msg msg = {.type = SL_MSG_STORED};
    script_send(&script, &msg);
    expect_violation(&script);
}

static void session__hello_of_another_version__refused(void **state)
{
    struct fixture *f = *state;
    struct sl_control *target;
    struct script script = {.world = &f->world};
    script.letters_end = &script.letters;
    must(sl_control_pair("db1", &script.control, &target, NULL) == 0);
    must(sl_target_attach(f->world.target, target, NULL) == 0);
    struct sl_msg msg = {.type = SL_MSG_HELLO};
    msg.hello.version = msg.hello.version_min = SL_WIRE_VERSION + 1;
    msg.hello.slot_bytes = SL_BLOCK_BYTES;
    snprintf(msg.hello.stanza, sizeof msg.hello.stanza, "main");
    script_send(&script, &msg);
    script_await_error(&script, SL_ABOUT_SESSION, SL_ERR_VERSION);
    script_await_close(&script);
    script_close(&script);
}

/* --- objects and blocks ----------------------------------------------------------------------- */

static void offer__unknown_object__ends(void **state)
{
    struct fixture *f = *state;
    struct script script;
    open_with_object(f, &script);
    struct sl_offer offer = script_fill(&script, 6, &f->content, 0);
    script_offer(&script, &offer);
    expect_violation(&script);
}

/* Offers with one thing wrong each. */
static void offer__anything_wrong__ends(void **state)
{
    struct fixture *f = *state;
    for (int what = 0; what < 10; what++) {
        struct script script;
        open_with_object(f, &script);
        struct sl_offer offer = script_fill(&script, 5, &f->content, 0);
        switch (what) {
        case 0:
            offer.slot = script.slots;
            break;
        case 1:
            offer.slot = SL_SLOT_NONE;
            break;
        case 2:
            offer.stored_bytes = 0;
            break;
        case 3:
            offer.stored_bytes = SL_BLOCK_BYTES + 1;
            break;
        case 4:
            offer.plain_bytes = offer.stored_bytes = SL_BLOCK_BYTES + 1;
            break;
        case 5:
            offer.plain_bytes--;
            break;
        case 6:
            offer.flags = 0x40;
            break;
        case 7:
            offer.flags = SL_BLOCK_ZERO; /* with a slot */
            break;
        case 8:
            offer.plain_digest.bytes[3] ^= 1; /* of a plain block both digests are one */
            break;
        default:
            offer.block = SL_OBJECT_BLOCKS_MAX;
        }
        script_offer(&script, &offer);
        expect_violation(&script);
    }
}

static void offer__zero_block_with_another_digest__ends(void **state)
{
    struct fixture *f = *state;
    struct script script;
    open_with_object(f, &script);
    struct sl_offer offer = script_fill(&script, 5, &f->content, 0);
    offer.slot = SL_SLOT_NONE;
    offer.stored_bytes = 0;
    offer.flags = SL_BLOCK_ZERO;
    script_offer(&script, &offer);
    expect_violation(&script);
}

static void offer__slot_twice__ends(void **state)
{
    struct fixture *f = *state;
    struct script script;
    script_open(&script, &f->world, &(struct script_options){.no_lanes = true});
    script_create(&script, 5, "x/y");
    struct sl_offer offer = script_fill(&script, 5, &f->content, 0);
    script_offer(&script, &offer);
    offer.block = 1;
    script_offer(&script, &offer);
    expect_violation(&script);
}

static void offer__block_twice__ends(void **state)
{
    struct fixture *f = *state;
    struct script script;
    open_with_object(f, &script);
    for (int i = 0; i < 2; i++) {
        struct sl_offer offer = script_fill(&script, 5, &f->content, 0);
        script_offer(&script, &offer);
    }
    expect_violation(&script);
}

static void offer__before_memory__ends(void **state)
{
    struct fixture *f = *state;
    struct script script;
    script_open(&script, &f->world, &(struct script_options){.no_memory = true});
    script_create(&script, 5, "x/y");
    struct sl_offer offer = script_fill(&script, 5, &f->content, 0);
    script_offer(&script, &offer);
    expect_violation(&script);
}

static void offer__after_commit__ends(void **state)
{
    struct fixture *f = *state;
    struct script script;
    script_open(&script, &f->world, &(struct script_options){.no_lanes = true});
    script_create(&script, 5, "x/y");
    struct sl_offer offer = script_fill(&script, 5, &f->content, 0);
    script_offer(&script, &offer); /* without a lane it stays where it is */
    script_commit(&script, 5, &f->content);
    offer = script_fill(&script, 5, &f->content, 1);
    script_offer(&script, &offer);
    expect_violation(&script);
}

static void message__wrong_for_its_object__ends(void **state)
{
    struct fixture *f = *state;
    for (int what = 0; what < 11; what++) {
        struct script script;
        struct sl_msg msg = {0};
        script_open(&script, &f->world, &(struct script_options){.no_lanes = true});
        script_create(&script, 5, "x/y");
        switch (what) {
        case 0:
            msg.type = SL_MSG_COMMIT;
            msg.commit.object = 9;
            break;
        case 1:
            msg.type = SL_MSG_ABORT;
            msg.abort.object = 9;
            break;
        case 2:
            msg.type = SL_MSG_CLOSE;
            msg.close.object = 9;
            break;
        case 3:
            msg.type = SL_MSG_CLOSE; /* is written */
            msg.close.object = 5;
            break;
        case 4:
            msg.type = SL_MSG_TABLE;
            msg.table.object = 5;
            break;
        case 5:
            msg.type = SL_MSG_CREATE; /* the number is in use */
            msg.create.object = 5;
            snprintf(msg.create.name, sizeof msg.create.name, "z");
            break;
        case 6:
            msg.type = SL_MSG_OFFER; /* no whole element */
            msg.offer.offers = (const uint8_t *)"abc";
            msg.offer.offers_bytes = 3;
            break;
        case 7:
            msg.type = SL_MSG_GET;
            msg.get.gets = (const uint8_t *)"abcd";
            msg.get.gets_bytes = 4;
            break;
        case 8:
            msg.type = SL_MSG_OFFER; /* of nothing */
            break;
        case 9:
            msg.type = SL_MSG_MEMORY; /* for both directions */
            msg.memory.access = SL_ACCESS_BOTH;
            msg.memory.length = 64 * MiB;
            break;
        default:
            msg.type = SL_MSG_MEMORY; /* another than before */
            msg.memory.access = SL_ACCESS_PUSHED;
            msg.memory.address = 1;
            msg.memory.length = 64 * MiB;
        }
        script_send(&script, &msg);
        expect_violation(&script);
    }
}

static void get_into_pulled(struct script *script)
{
    uint8_t body[SL_GET_BYTES];
    struct sl_writer w = sl_writer_on(body, sizeof body);
    sl_get_write(&w, &(struct sl_get){.object = 5, .block = 0, .slot = script->slots - 1});
    struct sl_msg msg = {.type = SL_MSG_GET};
    msg.get.gets = body;
    msg.get.gets_bytes = sizeof body;
    script_send(script, &msg);
}

static void get__anything_wrong__ends(void **state)
{
    struct fixture *f = *state;
    script_put(&f->good, 0, "read/me", &f->content, SL_STORED_CREATED);
    for (int what = 0; what < 6; what++) {
        struct script script;
        script_open(&script, &f->world, NULL);
        struct sl_msg msg = {.type = SL_MSG_OPEN};
        msg.open.object = 5;
        snprintf(msg.open.name, sizeof msg.open.name, "read/me");
        script_send(&script, &msg);
        script_await(&script, SL_MSG_OPENED);
        struct sl_msg table = {.type = SL_MSG_TABLE};
        table.table.object = 5;
        switch (what) {
        case 0:
            script_get_block(&script, 5, 2, 0); /* it has two */
            break;
        case 1:
            script_get_block(&script, 6, 0, 0);
            break;
        case 2:
            script.use[script.slots] = SLOT_FREE;
            script_get_block(&script, 5, 0, script.slots);
            break;
        case 3:
            get_into_pulled(&script);
            break;
        case 4:
            table.table.count = 3;
            script_send(&script, &table);
            break;
        default:
            table.table.first = UINT32_MAX;
            script_send(&script, &table);
        }
        expect_violation(&script);
    }
}

static void frame__malformed__error_then_closed(void **state)
{
    static const char *const frames[] = {
        "\2\0\0\0\xff\xff",         /* no such message */
        "\3\0\0\0\x25\0\1",         /* SPACE, cut short */
        "\7\0\0\0\x25\0\1\0\0\0\0", /* SPACE with a byte after it */
        "\xff\xff\xff\x7f\x25\0",   /* longer than any */
    };
    static const size_t bytes[] = {6, 7, 11, 6};
    struct fixture *f = *state;
    for (int what = 0; what < 4; what++) {
        struct script script;
        open_with_object(f, &script);
        must(write(script.control->fd, frames[what], bytes[what]) == (ssize_t)bytes[what]);
        script_await_error(&script, SL_ABOUT_SESSION, SL_ERR_PROTOCOL);
        if (what == 0)
            script_await_close(&script);
        script_close(&script);
    }
}

/* --- names and stanzas ------------------------------------------------------------------------ */

static void create__names_outside_the_stanza__refused(void **state)
{
    static const char *const names[] = {"../other/x", "/etc/x", "a/../b", "",
                                        ".hidden",    "a//b",   "a/",     "x y"};
    struct fixture *f = *state;
    struct script script;
    script_open(&script, &f->world, NULL);
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
        script_create(&script, 10 + i, names[i]);
        assert_int_equal(script_outcome(&script, 10 + i, NULL), SL_ERR_USAGE);
    }
    script_put(&script, 40, "a/b", &f->content, SL_STORED_CREATED);
    script_bye(&script);
    /* the same name in another stanza is another object */
    script_open(&script, &f->world, &(struct script_options){.stanza = "other"});
    assert_int_equal(script_read(&script, 1, "a/b", &f->content), SL_ERR_NOT_FOUND);
    assert_int_equal(script_read(&script, 2, "../main/a/b", &f->content), SL_ERR_USAGE);
    script_bye(&script);
}

static bool permit(void *arg, const char *client, const char *stanza)
{
    const bool *closed = arg;
    return !*closed && !strcmp(client, "db1") && !strcmp(stanza, "main");
}

static void hello__stanza_not_permitted__denied(void **state)
{
    (void)state;
    struct world world;
    struct script script;
    bool closed = false;
    world_open(&world, &(struct sl_target_config){.permit = permit, .permit_arg = &closed}, false);
    struct script_options options[] = {
        {.client = "db1", .stanza = "other"}, {.client = "db2"}, {.stanza = ".."}, {.stanza = ""}};
    for (size_t i = 0; i < 4; i++) {
        assert_false(script_hello(&script, &world, &options[i]));
        script_await_error(&script, SL_ABOUT_SESSION, i < 2 ? SL_ERR_DENIED : SL_ERR_USAGE);
        script_close(&script);
    }
    struct sl_target_stats stats;
    sl_target_stats(world.target, &stats);
    assert_int_equal(stats.sessions_refused, 4);
    assert_int_equal(stats.sessions, 0);

    struct content content = content_new(&world, 1, 10, false);
    script_open(&script, &world, NULL);
    script_put(&script, 1, "a", &content, SL_STORED_CREATED);
    closed = true;
    script_put(&script, 2, "b", &content, SL_STORED_CREATED); /* not asked yet */
    must(sl_target_reload(world.target, NULL, NULL) == 0);
    script_create(&script, 3, "c");
    script_await_error(&script, SL_ABOUT_SESSION, SL_ERR_DENIED);
    script_await_close(&script);
    script_close(&script);
    content_free(&content);
    world_close(&world);
}

static void hello__too_many_sessions__limit(void **state)
{
    (void)state;
    struct world world;
    struct script scripts[3];
    world_open(&world, &(struct sl_target_config){.sessions_max = 2}, false);
    script_open(&scripts[0], &world, NULL);
    script_open(&scripts[1], &world, NULL);
    assert_false(script_hello(&scripts[2], &world, &(struct script_options){0}));
    script_await_error(&scripts[2], SL_ABOUT_SESSION, SL_ERR_LIMIT);
    script_close(&scripts[2]);
    script_bye(&scripts[0]);
    for (int i = 0; i < 100 && !script_hello(&scripts[2], &world, &(struct script_options){0});
         i++) { /* until the first is gone */
        script_close(&scripts[2]);
        poll(NULL, 0, 20);
    }
    assert_int_equal(scripts[2].welcome.version, SL_WIRE_VERSION);
    script_close(&scripts[2]);
    script_close(&scripts[1]);
    world_close(&world);
}

static void create__sixty_fifth_object__limit(void **state)
{
    struct fixture *f = *state;
    struct script script;
    script_open(&script, &f->world, NULL);
    for (uint32_t i = 0; i < script.welcome.objects; i++) {
        char name[32];
        snprintf(name, sizeof name, "o%u", i);
        script_create(&script, i, name);
    }
    script_create(&script, 1000, "one-too-many");
    assert_int_equal(script_outcome(&script, 1000, NULL), SL_ERR_LIMIT);
    struct sl_msg msg = {.type = SL_MSG_ABORT};
    script_send(&script, &msg);
    script_put(&script, 1001, "now", &f->content, SL_STORED_CREATED);
    script_bye(&script);
}

/* --- lanes ------------------------------------------------------------------------------------ */

static void lane__number_used_before__refused(void **state)
{
    struct fixture *f = *state;
    struct script script;
    struct sl_lane *lane;
    script_open(&script, &f->world, NULL);
    struct sl_err err = {0};
    assert_int_equal(sl_target_local_lane(f->world.target, &script.welcome.session, script.domain,
                                          0, &lane, &err),
                     SL_ERR_PROTOCOL);
    struct sl_id stranger = {{1, 2, 3}};
    assert_int_equal(
        sl_target_local_lane(f->world.target, &stranger, script.domain, 9, &lane, &err),
        SL_ERR_CLOSED);
    script_bye(&script);
}

static int tcp_connection(const struct world *world)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(world->port))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    must(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    return fd;
}

static bool is_closed(int fd)
{
    char byte;
    struct pollfd poll_fd = {fd, POLLIN, 0};
    return poll(&poll_fd, 1, WAIT_MS) == 1 && recv(fd, &byte, 1, 0) <= 0;
}

static void connection__neither_tls_nor_lane__closed(void **state)
{
    (void)state;
    struct world world;
    struct script script;
    world_open(&world, NULL, true);
    script_open(&script, &world, &(struct script_options){.listening = true});
    /* no such protocol */
    int fd = tcp_connection(&world);
    must(write(fd, "GET / HTTP/1.0\r\n\r\n", 18) == 18);
    assert_true(is_closed(fd));
    close(fd);
    /* hellos: of no session; with a wrong MAC; of a number used before; of another magic */
    for (int what = 0; what < 4; what++) {
        struct sl_lane_hello hello = {.version = SL_WIRE_VERSION,
                                      .session = script.welcome.session,
                                      .lane = (uint16_t)(what == 2 ? 0 : 77),
                                      .depth = 8};
        uint8_t bytes[SL_LANE_HELLO_BYTES];
        hello.session.bytes[0] ^= what == 0;
        sl_lane_hello_sign(&hello, script.lane_key, 'c');
        hello.mac.bytes[15] ^= what == 1;
        sl_lane_hello_encode(&hello, bytes);
        bytes[3] ^= what == 3;
        fd = tcp_connection(&world);
        must(write(fd, bytes, 20) == 20);
        must(write(fd, bytes + 20, sizeof bytes - 20) == (ssize_t)sizeof bytes - 20);
        assert_true(is_closed(fd));
        close(fd);
    }
    /* a good one after them */
    assert_true(script_lane(&script) >= 0);
    script_bye(&script);
    world_close(&world);
}

static void connection__hundreds_that_say_nothing__bounded(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    struct world world;
    struct script script;
    int fds[COUNT], closed = 0;
    world_open(&world, NULL, true);
    for (int i = 0; i < COUNT; i++)
        fds[i] = tcp_connection(&world);
    for (int i = 0; i < COUNT; i++) {
        struct pollfd poll_fd = {fds[i], POLLIN, 0};
        closed += poll(&poll_fd, 1, i == 0 ? 500 : 0) == 1;
    }
    assert_int_equal(closed, COUNT - 128);
    for (int i = 0; i < COUNT; i++)
        close(fds[i]);
    poll(NULL, 0, 50);
    script_open(&script, &world, &(struct script_options){.listening = true});
    script_bye(&script);
    world_close(&world);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(session__message_before_hello__ends),
        TEST(session__second_hello__ends),
        TEST(session__message_of_a_target__ends),
        TEST(session__hello_of_another_version__refused),
        TEST(offer__unknown_object__ends),
        TEST(offer__anything_wrong__ends),
        TEST(offer__zero_block_with_another_digest__ends),
        TEST(offer__slot_twice__ends),
        TEST(offer__block_twice__ends),
        TEST(offer__before_memory__ends),
        TEST(offer__after_commit__ends),
        TEST(message__wrong_for_its_object__ends),
        TEST(get__anything_wrong__ends),
        TEST(frame__malformed__error_then_closed),
        TEST(create__names_outside_the_stanza__refused),
        cmocka_unit_test(hello__stanza_not_permitted__denied),
        cmocka_unit_test(hello__too_many_sessions__limit),
        TEST(create__sixty_fifth_object__limit),
        TEST(lane__number_used_before__refused),
        cmocka_unit_test(connection__neither_tls_nor_lane__closed),
        cmocka_unit_test(connection__hundreds_that_say_nothing__bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
