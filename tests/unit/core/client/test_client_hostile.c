/* The client with a target that lies, errs or dawdles. */
#include "tests/unit/core/client/fake_target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* --- scenes ---------------------------------------------------------------------------------- */

struct scene {
    struct fake fake;
    struct sl_client_config config;
    struct sl_embedded embedded;
    struct sl_client *client;
    struct sl_err err;
};

static void scene_open_io(struct scene *scene, fake_script script, size_t content_bytes,
                          unsigned io_ms)
{
    fake_open(&scene->fake, &scene->config, &scene->embedded, content_bytes);
    atomic_store(&scene->fake.script, script);
    scene->config.io_ms = io_ms;
    scene->client = open_must(&scene->config);
}

static void scene_open(struct scene *scene, fake_script script, size_t content_bytes)
{
    scene_open_io(scene, script, content_bytes, 20000);
}

static void scene_close(struct scene *scene)
{
    sl_client_close(scene->client);
    fake_close(&scene->fake);
}

/* What an upload of 3 MiB, or a fetch of the fake's object, comes to. */
static int try_upload(struct scene *scene)
{
    struct sl_stored stored;
    uint8_t *bytes = content_new(3, 3 * MiB, false);
    int rc = upload(scene->client, "x", bytes, 3 * MiB, &stored, &scene->err);
    free(bytes);
    return rc;
}

static int try_fetch(struct scene *scene)
{
    return fetch_and_compare(scene->client, "x", scene->fake.content, scene->fake.content_bytes,
                             &scene->err);
}

static int play(fake_script script, int (*act)(struct scene *scene), struct sl_err *err)
{
    struct scene scene;
    scene_open(&scene, script, 5 * MiB + 9);
    int rc = act(&scene);
    *err = scene.err;
    if (rc)
        assert_int_equal(rc, err->code);
    /* the next call has a new session, or the old one still serves */
    atomic_store(&scene.fake.script, NULL);
    int again = SL_ERR_CLOSED;
    for (int i = 0; i < 50 && again == SL_ERR_CLOSED; i++)
        again = try_upload(&scene);
    if (again)
        print_error("again: %s\n", scene.err.msg);
    assert_int_equal(again, 0);
    scene_close(&scene);
    return rc;
}

static void honest__upload_and_fetch__good(void **state)
{
    (void)state;
    struct sl_err err;
    assert_int_equal(play(NULL, try_upload, &err), 0);
    assert_int_equal(play(NULL, try_fetch, &err), 0);
}

static void slots__by_use__one_direction_each(void **state)
{
    (void)state;
    static const struct {
        enum sl_client_use use;
        unsigned slots, pulled;
    } cases[] = {{SL_CLIENT_STORES, 64, 60},
                 {SL_CLIENT_STORES, 8, 7},
                 {SL_CLIENT_READS, 64, 4},
                 {SL_CLIENT_READS, 4, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scene scene;
        fake_open(&scene.fake, &scene.config, &scene.embedded, 6 * MiB);
        scene.config.use = cases[i].use;
        scene.config.slot_bytes_total = cases[i].slots * MiB;
        scene.client = open_must(&scene.config);
        assert_int_equal(try_upload(&scene), 0); /* whatever it is mostly for */
        assert_int_equal(try_fetch(&scene), 0);
        assert_int_equal(scene.fake.slots[0].length, cases[i].pulled * MiB);
        assert_int_equal(scene.fake.slots[1].length, (cases[i].slots - cases[i].pulled) * MiB);
        assert_int_not_equal(scene.fake.slots[0].key, scene.fake.slots[1].key);
        scene_close(&scene);
    }
}

static bool takes_what_it_has_not(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_CREATE)
        return false;
    say_taken(fake, 3);
    return true;
}

static bool takes_out_of_range(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_OFFER)
        return false;
    say_taken(fake, 8);
    return true;
}

static bool takes_twice(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_OFFER)
        return false;
    struct sl_reader r = sl_reader_on(msg->offer.offers, msg->offer.offers_bytes);
    struct sl_offer offer;
    sl_offer_read(&r, &offer);
    say_taken(fake, offer.slot);
    say_taken(fake, offer.slot);
    say_taken(fake, offer.slot);
    return true;
}

static bool stores_uncommitted(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_CREATE)
        return false;
    struct sl_msg answer = {.type = SL_MSG_STORED};
    answer.stored = (struct sl_msg_stored){msg->create.object, SL_STORED_CREATED, {{0}}};
    say(fake, &answer);
    return true;
}

static bool answers_what_was_not_asked(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_CREATE)
        return false;
    struct sl_msg answer = {.type = SL_MSG_SPACED};
    answer.spaced.request = 77;
    say(fake, &answer);
    return true;
}

static bool errs_about_nothing(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_CREATE)
        return false;
    say_error(fake, SL_ABOUT_OBJECT, 99, SL_ERR_FULL);
    return true;
}

static bool talks_like_a_client(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_CREATE)
        return false;
    struct sl_msg answer = {.type = SL_MSG_COMMIT};
    say(fake, &answer);
    return true;
}

static bool sends_unasked(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_CREATE)
        return false;
    struct sl_sent sent = {.block = {.object = 1, .slot = 0}};
    say_sent(fake, &sent);
    return true;
}

static void lies_about_uploads__protocol_and_a_new_session(void **state)
{
    (void)state;
    static const fake_script scripts[] = {
        takes_what_it_has_not, takes_out_of_range,         takes_twice,         stores_uncommitted,
        errs_about_nothing,    answers_what_was_not_asked, talks_like_a_client, sends_unasked};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        struct sl_err err;
        int rc = play(scripts[i], try_upload, &err);
        /* a STORED that comes too early may be read when COMMIT is under way: then its digest is
         * what gives it away */
        if (scripts[i] == stores_uncommitted && rc == SL_ERR_CHECKSUM)
            continue;
        if (rc != SL_ERR_PROTOCOL)
            print_error("script %zu: %s\n", i, err.msg);
        assert_int_equal(rc, SL_ERR_PROTOCOL);
    }
}

static bool stores_something_else(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_COMMIT)
        return false;
    struct sl_msg answer = {.type = SL_MSG_STORED};
    answer.stored = (struct sl_msg_stored){msg->commit.object, SL_STORED_IDENTICAL, {{5}}};
    say(fake, &answer);
    return true;
}

static bool full_at_create(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_CREATE)
        return false;
    say_error(fake, SL_ABOUT_OBJECT, msg->create.object, SL_ERR_FULL);
    return true;
}

static bool unknown_code(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_COMMIT)
        return false;
    say_error(fake, SL_ABOUT_OBJECT, msg->commit.object, -60000);
    return true;
}

static bool ends_the_session(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_COMMIT)
        return false;
    say_error(fake, SL_ABOUT_SESSION, 0, SL_ERR_DENIED);
    return true;
}

static bool says_bye(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_COMMIT)
        return false;
    struct sl_msg answer = {.type = SL_MSG_BYE};
    answer.bye.reason = 1;
    say(fake, &answer);
    return true;
}

static void errors_of_a_target__reach_the_caller(void **state)
{
    (void)state;
    struct sl_err err;
    assert_int_equal(play(stores_something_else, try_upload, &err), SL_ERR_CHECKSUM);
    assert_int_equal(play(full_at_create, try_upload, &err), SL_ERR_FULL);
    assert_non_null(strstr(err.msg, "it is ?[31mso")); /* nothing for the terminal */
    assert_int_equal(play(unknown_code, try_upload, &err), SL_ERR_INTERNAL);
    assert_int_equal(play(ends_the_session, try_upload, &err), SL_ERR_DENIED);
    assert_int_equal(play(says_bye, try_upload, &err), SL_ERR_CLOSED);
    assert_non_null(strstr(err.msg, "shutting down"));
}

/* --- reading --------------------------------------------------------------------------------- */

static bool first_get(const struct sl_msg *msg, struct sl_get *get)
{
    if (msg->type != SL_MSG_GET)
        return false;
    struct sl_reader r = sl_reader_on(msg->get.gets, msg->get.gets_bytes);
    sl_get_read(&r, get);
    return true;
}

/* Serves all gets of a message but block 2, which `other` deals with. */
static bool but_block_2(struct fake *fake, const struct sl_msg *msg,
                        void (*other)(struct fake *fake, const struct sl_get *get))
{
    if (msg->type != SL_MSG_GET)
        return false;
    struct sl_reader r = sl_reader_on(msg->get.gets, msg->get.gets_bytes);
    while (sl_reader_left(&r)) {
        struct sl_get get;
        sl_get_read(&r, &get);
        if (get.block == 2)
            other(fake, &get);
        else
            serve_get(fake, &get);
    }
    return true;
}

static void push_damaged(struct fake *fake, const struct sl_get *get)
{
    struct sl_sent sent = answer_for(fake, get);
    uint8_t *bytes = malloc(MiB);
    memcpy(bytes, fake->content + 2 * MiB, MiB);
    bytes[MiB - 1] ^= 1;
    fake->counter++;
    sent.push = push(fake, 0, get->slot, bytes, MiB, true);
    say_sent(fake, &sent);
    free(bytes);
}

static bool damages_once(struct fake *fake, const struct sl_msg *msg)
{
    return but_block_2(fake, msg, fake->counter ? serve_get : push_damaged);
}

static bool damages_always(struct fake *fake, const struct sl_msg *msg)
{
    return but_block_2(fake, msg, push_damaged);
}

/* Packed bytes that are no frame, a frame of another length, and a codec nobody knows. */
static void push_bad_pack(struct fake *fake, const struct sl_get *get)
{
    static const uint8_t codecs[] = {SL_CODEC_ZSTD, SL_CODEC_LZ4, 9};
    struct sl_sent sent = answer_for(fake, get);
    sent.block.codec = codecs[fake->counter % 3];
    sent.block.stored_bytes = 5000;
    fake->counter++;
    sent.push = push(fake, 0, get->slot, fake->content + 2 * MiB, 5000, true);
    say_sent(fake, &sent);
}

static bool packs_badly(struct fake *fake, const struct sl_msg *msg)
{
    return but_block_2(fake, msg, push_bad_pack);
}

static void claim_zero(struct fake *fake, const struct sl_get *get)
{
    struct sl_sent sent = answer_for(fake, get);
    sent.block.flags = SL_BLOCK_ZERO;
    say_sent(fake, &sent);
}

static bool zero_that_is_not(struct fake *fake, const struct sl_msg *msg)
{
    return but_block_2(fake, msg, claim_zero);
}

static void claim_short(struct fake *fake, const struct sl_get *get)
{
    struct sl_sent sent = answer_for(fake, get);
    sent.block.plain_bytes = sent.block.stored_bytes = 100;
    sent.push = push(fake, 0, get->slot, fake->content + 2 * MiB, 100, true);
    say_sent(fake, &sent);
}

static bool shorter_than_it_is(struct fake *fake, const struct sl_msg *msg)
{
    return but_block_2(fake, msg, claim_short);
}

static void cannot_read(struct fake *fake, const struct sl_get *get)
{
    struct sl_sent sent = answer_for(fake, get);
    sent.code = (int16_t)SL_ERR_READ;
    say_sent(fake, &sent);
}

static bool read_fails(struct fake *fake, const struct sl_msg *msg)
{
    return but_block_2(fake, msg, cannot_read);
}

/* The notice comes long before SENT, and others that mean nothing come, too. */
static void notice_first(struct fake *fake, const struct sl_get *get)
{
    struct sl_sent sent = answer_for(fake, get);
    for (int i = 0; i < 5; i++)
        push(fake, 0, get->slot, "junk", 4, true);
    sent.push = push(fake, 0, get->slot, fake->content + 2 * MiB, MiB, true);
    usleep(30000);
    say_sent(fake, &sent);
}

static bool notices_early(struct fake *fake, const struct sl_msg *msg)
{
    return but_block_2(fake, msg, notice_first);
}

/* SENT, the push still on its way when its lane dies: the client must ask again. */
static void lose_lane(struct fake *fake, const struct sl_get *get)
{
    struct sl_sent sent = answer_for(fake, get);
    if (fake->counter++) {
        sent.push = push(fake, fake->lane_count - 1, get->slot, fake->content + 2 * MiB, MiB, true);
        say_sent(fake, &sent);
        return;
    }
    pthread_mutex_lock(&fake->lock);
    uint16_t id = fake->lanes[0]->id;
    sent.push = (uint64_t)id << 48 | 12345;
    pthread_mutex_unlock(&fake->lock);
    say_sent(fake, &sent);
    pthread_mutex_lock(&fake->lock);
    sl_lane_free(fake->lanes[0]);
    fake->lanes[0] = fake->lanes[--fake->lane_count];
    pthread_mutex_unlock(&fake->lock);
    say_lane(fake, SL_MSG_LANE_DOWN, id);
}

static bool loses_a_lane(struct fake *fake, const struct sl_msg *msg)
{
    return but_block_2(fake, msg, lose_lane);
}

static void reads_that_go_wrong__damage_is_named_and_never_given_out(void **state)
{
    (void)state;
    struct sl_err err;
    static const struct {
        fake_script script;
        int code;
    } cases[] = {{damages_once, 0},
                 {damages_always, SL_ERR_CHECKSUM},
                 {packs_badly, SL_ERR_CHECKSUM},
                 {zero_that_is_not, SL_ERR_CHECKSUM},
                 {shorter_than_it_is, SL_ERR_CHECKSUM},
                 {read_fails, SL_ERR_READ},
                 {notices_early, 0},
                 {loses_a_lane, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int rc = play(cases[i].script, try_fetch, &err);
        if (rc != cases[i].code)
            print_error("case %zu: %s\n", i, err.msg);
        assert_int_equal(rc, cases[i].code);
        if (rc) {
            assert_non_null(strstr(err.msg, "\"x\""));
            assert_non_null(strstr(err.msg, "block 2"));
        }
    }
}

static bool sends_to_another_slot(struct fake *fake, const struct sl_msg *msg)
{
    struct sl_get get;
    if (!first_get(msg, &get))
        return false;
    struct sl_sent sent = answer_for(fake, &get);
    sent.block.slot = 7 - get.slot % 2;
    say_sent(fake, &sent);
    return true;
}

static bool sends_twice(struct fake *fake, const struct sl_msg *msg)
{
    struct sl_get get;
    if (!first_get(msg, &get))
        return false;
    serve_get(fake, &get);
    struct sl_sent sent = answer_for(fake, &get);
    sent.push = 4;
    say_sent(fake, &sent);
    say_sent(fake, &sent);
    return true;
}

static bool too_many_leaves(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_TABLE)
        return false;
    struct sl_msg answer = {.type = SL_MSG_TABLED};
    answer.tabled = (struct sl_msg_tabled){msg->table.object, 0, fake->leaves[0].bytes,
                                           (msg->table.count + 1) * sizeof(struct sl_id)};
    say(fake, &answer);
    return true;
}

static bool endless_object(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_OPEN)
        return false;
    struct sl_msg answer = {.type = SL_MSG_OPENED};
    answer.opened = (struct sl_msg_opened){.object = msg->open.object, .length = UINT64_MAX};
    say(fake, &answer);
    return true;
}

static bool tables_before_asked(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_OPEN)
        return false;
    struct sl_msg answer = {.type = SL_MSG_TABLED};
    answer.tabled = (struct sl_msg_tabled){msg->open.object, 0, fake->leaves[0].bytes, 16};
    say(fake, &answer);
    return true;
}

static void lies_about_reads__protocol_and_a_new_session(void **state)
{
    (void)state;
    static const fake_script scripts[] = {sends_to_another_slot, sends_twice, too_many_leaves,
                                          endless_object, tables_before_asked};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        struct sl_err err;
        int rc = play(scripts[i], try_fetch, &err);
        if (rc != SL_ERR_PROTOCOL)
            print_error("script %zu: %s\n", i, err.msg);
        assert_int_equal(rc, SL_ERR_PROTOCOL);
    }
}

static bool other_leaves(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_TABLE)
        return false;
    struct sl_id leaves[FAKE_BLOCKS];
    memcpy(leaves, fake->leaves, sizeof leaves);
    leaves[4].bytes[0] ^= 1;
    struct sl_msg answer = {.type = SL_MSG_TABLED};
    answer.tabled = (struct sl_msg_tabled){msg->table.object, 0, leaves[0].bytes,
                                           msg->table.count * sizeof(struct sl_id)};
    say(fake, &answer);
    return true;
}

static void open__leaves_that_do_not_give_the_digest__checksum(void **state)
{
    (void)state;
    struct sl_err err;
    assert_int_equal(play(other_leaves, try_fetch, &err), SL_ERR_CHECKSUM);
}

/* --- dawdling -------------------------------------------------------------------------------- */

static bool never_takes(struct fake *fake, const struct sl_msg *msg)
{
    (void)fake;
    return msg->type == SL_MSG_OFFER;
}

static int fill_all_slots(struct scene *scene)
{
    struct sl_upload *up;
    uint8_t *bytes = content_new(3, 12 * MiB, false);
    int rc = sl_upload_begin(scene->client, "x", 0, SOON, &up, &scene->err);
    MUST(rc == 0);
    uint64_t began = sl_now_ns();
    rc = sl_upload_write(up, bytes, 12 * MiB, &scene->err);
    MUST((sl_now_ns() - began) / SL_NS_PER_MS >= 900);
    MUST((sl_now_ns() - began) / SL_NS_PER_MS < 8000);
    sl_upload_abort(up);
    free(bytes);
    return rc;
}

static void slots_never_taken__times_out_after_io_ms(void **state)
{
    (void)state;
    struct scene scene;
    scene_open_io(&scene, never_takes, MiB, 1000);
    assert_int_equal(fill_all_slots(&scene), SL_ERR_TIMEOUT);
    assert_non_null(strstr(scene.err.msg, "slot"));
    scene_close(&scene);
}

static bool never_answers(struct fake *fake, const struct sl_msg *msg)
{
    (void)fake;
    return msg->type == SL_MSG_COMMIT || msg->type == SL_MSG_OPEN || msg->type == SL_MSG_STAT;
}

/* It sends heartbeats, so the session lives; but a call does not wait for ever. */
static void no_answer_and_no_deadline__times_out_after_io_ms(void **state)
{
    (void)state;
    struct scene scene;
    struct sl_stored stored;
    struct sl_download *down;
    scene_open_io(&scene, never_answers, MiB, 300);
    uint64_t began = sl_now_ns();
    assert_int_equal(sl_client_put(scene.client, "a", "1", 1, UINT64_MAX, &stored, &scene.err),
                     SL_ERR_TIMEOUT);
    assert_int_equal(sl_download_open(scene.client, "a", NULL, UINT64_MAX, &down, NULL, &scene.err),
                     SL_ERR_TIMEOUT);
    assert_int_equal(sl_client_stat(scene.client, "a", UINT64_MAX, NULL, &scene.err),
                     SL_ERR_TIMEOUT);
    assert_in_range((sl_now_ns() - began) / SL_NS_PER_MS, 850, 30000);
    scene_close(&scene);
}

static bool never_stores(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_COMMIT || fake->counter++)
        return false;
    return true;
}

static void commit__no_answer__deadline_and_the_session_lives(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, never_stores, MiB);
    struct sl_stored stored;
    assert_int_equal(
        sl_client_put(scene.client, "a", "1", 1, sl_deadline_in_ms(200), &stored, &scene.err),
        SL_ERR_TIMEOUT);
    struct fake *fake = &scene.fake;
    const struct sl_control *before = fake->control;
    /* the late answer is let go */
    struct sl_msg answer = {.type = SL_MSG_STORED};
    answer.stored = (struct sl_msg_stored){1, SL_STORED_CREATED, {{0}}};
    say(fake, &answer);
    assert_int_equal(sl_client_put(scene.client, "b", "1", 1, SOON, &stored, &scene.err), 0);
    assert_ptr_equal(fake->control, before);
    scene_close(&scene);
}

static bool never_gets(struct fake *fake, const struct sl_msg *msg)
{
    (void)fake;
    return msg->type == SL_MSG_GET;
}

static void fetch__no_block_comes__deadline(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, never_gets, 3 * MiB);
    char *bytes;
    size_t count;
    uint64_t began = sl_now_ns();
    assert_int_equal(sl_client_fetch(scene.client, "x", 8 * MiB, sl_deadline_in_ms(300), &bytes,
                                     &count, &scene.err),
                     SL_ERR_TIMEOUT);
    assert_in_range((sl_now_ns() - began) / SL_NS_PER_MS, 290, 3000);
    scene_close(&scene);
}

static void begin__more_objects_than_the_target_will__waits_its_turn(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, NULL, MiB);
    struct sl_upload *up[8], *more;
    struct sl_stored stored;
    for (int i = 0; i < 8; i++) /* WELCOME.objects */
        assert_int_equal(sl_upload_begin(scene.client, "x", 0, SOON, &up[i], &scene.err), 0);
    assert_int_equal(
        sl_upload_begin(scene.client, "x", 0, sl_deadline_in_ms(200), &more, &scene.err),
        SL_ERR_TIMEOUT);
    assert_int_equal(sl_upload_commit(up[0], 0, SOON, &stored, &scene.err), 0);
    assert_int_equal(sl_upload_begin(scene.client, "x", 0, SOON, &up[0], &scene.err), 0);
    for (int i = 0; i < 8; i++)
        sl_upload_abort(up[i]);
    scene_close(&scene);
}

/* Read-ahead of downloads that nobody reads leaves slots for others. */
static void downloads__many_idle__uploads_and_reads_go_on(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, NULL, 30 * MiB);
    struct sl_download *idle[6];
    for (int i = 0; i < 6; i++) {
        assert_int_equal(
            sl_download_open(scene.client, "x", NULL, SOON, &idle[i], NULL, &scene.err), 0);
        assert_int_equal(sl_download_range(idle[i], 0, 30, &scene.err), 0);
    }
    assert_int_equal(try_upload(&scene), 0);
    assert_int_equal(try_fetch(&scene), 0);
    for (int i = 0; i < 6; i++)
        sl_download_close(idle[i]);
    scene_close(&scene);
}

/* --- welcome --------------------------------------------------------------------------------- */

static bool nonsense_welcome(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_HELLO)
        return false;
    struct sl_msg answer = {.type = SL_MSG_WELCOME};
    answer.welcome = (struct sl_msg_welcome){.version = 1};
    say(fake, &answer);
    return true;
}

static bool newer_welcome(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type != SL_MSG_HELLO)
        return false;
    struct sl_msg answer = {.type = SL_MSG_WELCOME};
    answer.welcome = (struct sl_msg_welcome){.version = 2};
    say(fake, &answer);
    return true;
}

static bool no_welcome(struct fake *fake, const struct sl_msg *msg)
{
    (void)fake;
    return msg->type == SL_MSG_HELLO;
}

static bool something_else(struct fake *fake, const struct sl_msg *msg)
{
    if (msg->type == SL_MSG_HELLO)
        say_taken(fake, 0);
    return msg->type == SL_MSG_HELLO;
}

static void welcome__wrong__refused(void **state)
{
    (void)state;
    static const struct {
        fake_script script;
        int code;
    } cases[] = {{nonsense_welcome, SL_ERR_PROTOCOL},
                 {newer_welcome, SL_ERR_VERSION},
                 {no_welcome, SL_ERR_TIMEOUT},
                 {something_else, SL_ERR_PROTOCOL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scene scene;
        fake_open(&scene.fake, &scene.config, &scene.embedded, 0);
        atomic_store(&scene.fake.script, cases[i].script);
        scene.config.connect_ms = 300;
        int rc = sl_client_open(&scene.config, SOON, &scene.client, &scene.err);
        assert_int_equal(rc, cases[i].code);
        fake_close(&scene.fake);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest__upload_and_fetch__good),
        cmocka_unit_test(slots__by_use__one_direction_each),
        cmocka_unit_test(lies_about_uploads__protocol_and_a_new_session),
        cmocka_unit_test(errors_of_a_target__reach_the_caller),
        cmocka_unit_test(reads_that_go_wrong__damage_is_named_and_never_given_out),
        cmocka_unit_test(lies_about_reads__protocol_and_a_new_session),
        cmocka_unit_test(open__leaves_that_do_not_give_the_digest__checksum),
        cmocka_unit_test(slots_never_taken__times_out_after_io_ms),
        cmocka_unit_test(no_answer_and_no_deadline__times_out_after_io_ms),
        cmocka_unit_test(commit__no_answer__deadline_and_the_session_lives),
        cmocka_unit_test(fetch__no_block_comes__deadline),
        cmocka_unit_test(begin__more_objects_than_the_target_will__waits_its_turn),
        cmocka_unit_test(downloads__many_idle__uploads_and_reads_go_on),
        cmocka_unit_test(welcome__wrong__refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
