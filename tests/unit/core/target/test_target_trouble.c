/* What goes wrong while objects are written: lanes and sessions that die at any step, blocks that
 * lie, disks that fail, a target that stops or is killed. */
#include "core/base/fault.h"
#include "tests/unit/core/target/scripted.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* --- lanes ------------------------------------------------------------------------------------ */

static void write__lane_dies_in_mid_pull__others_take_over(void **state)
{
    (void)state;
    struct world world;
    struct script script;
    world_open(&world, NULL, true);
    struct content content = content_new(&world, 1, 14 * MiB + 3, false);
    for (uint32_t round = 0; round < 6; round++) {
        char name[16];
        snprintf(name, sizeof name, "r%u", round);
        script_open(&script, &world, &(struct script_options){.listening = true, .lanes = 2});
        script_create(&script, 1, name);
        script.lanes_asleep = round % 2; /* nothing of it is pulled, or a part */
        for (uint32_t i = 0; i < sl_blocks_of(content.length); i++) {
            struct sl_offer offer = script_fill(&script, 1, &content, i);
            script_offer(&script, &offer);
        }
        for (uint32_t i = 0; i < round; i++)
            script_turn(&script, 2);
        script_lane_end(&script, (int)round % 2);
        if (round == 4) { /* no lane at all for a while */
            script_lane_end(&script, 1);
            assert_true(script_lane(&script) >= 0);
        }
        script.lanes_asleep = false;
        script_commit(&script, 1, &content);
        assert_int_equal(script_outcome(&script, 1, NULL), 0);
        script_all_slots_free(&script);
        uint16_t down = script_await(&script, SL_MSG_LANE_DOWN).lane_down.lane;
        assert_true(down == round % 2 || (round == 4 && down == 1)); /* both, in either order */
        must(script_read(&script, 2, name, &content) == 0);
        script_bye(&script);
    }
    content_free(&content);
    world_close(&world);
}

static void write__client_serves_no_pull__lane_is_closed_in_time(void **state)
{
    (void)state;
    struct world world;
    struct script script;
    world_open(&world, &(struct sl_target_config){.heartbeat_ms = 50, .dead_ms = 1500}, true);
    struct content content = content_new(&world, 1, 3 * MiB, false);
    script_open(&script, &world, &(struct script_options){.listening = true, .lanes = 1});
    script.lanes_asleep = true;
    script_write(&script, 1, "a", &content);
    assert_int_equal(script_await(&script, SL_MSG_LANE_DOWN).lane_down.lane, 0);
    script_lane_end(&script, 0);
    script.lanes_asleep = false;
    assert_true(script_lane(&script) >= 0);
    assert_int_equal(script_outcome(&script, 1, NULL), 0);
    script_bye(&script);
    content_free(&content);
    world_close(&world);
}

static void write__client_says_lane_down__answered_and_replaced(void **state)
{
    (void)state;
    struct world world;
    struct script script;
    world_open(&world, NULL, false);
    struct content content = content_new(&world, 1, 9 * MiB, false);
    script_open(&script, &world, NULL);
    script_create(&script, 1, "a");
    for (uint32_t i = 0; i < 9; i++) {
        struct sl_offer offer = script_fill(&script, 1, &content, i);
        script_offer(&script, &offer);
        if (i == 4) {
            struct sl_msg msg = {.type = SL_MSG_LANE_DOWN};
            msg.lane_down.lane = 1;
            script_send(&script, &msg);
        }
    }
    script_commit(&script, 1, &content);
    assert_int_equal(script_await(&script, SL_MSG_LANE_DOWN).lane_down.lane, 1);
    assert_int_equal(script_outcome(&script, 1, NULL), 0);
    script_bye(&script);
    content_free(&content);
    world_close(&world);
}

/* --- blocks that lie -------------------------------------------------------------------------- */

/* Object 1 fails with the code; its slots come back, also those of later offers; 2 is stored. */
static void expect_only_object_fails(struct script *script, const struct content *content, int code)
{
    assert_int_equal(script_outcome(script, 1, NULL), code);
    struct sl_offer offer = script_fill(script, 1, content, 1);
    script_offer(script, &offer);
    script_commit(script, 1, content);
    script_all_slots_free(script);
    script_put(script, 2, "good", content, SL_STORED_CREATED);
}

static void write__bytes_not_of_their_digest__object_fails(void **state)
{
    (void)state;
    struct world world;
    struct script script;
    world_open(&world, NULL, true);
    struct content content = content_new(&world, 1, 2 * MiB, false);
    for (int seal = 0; seal < 2; seal++) {
        struct script_options options = {.listening = true,
                                         .stanza = seal ? "sealed" : "open",
                                         .seal = seal ? SL_SEAL_ON : SL_SEAL_OFF};
        script_open(&script, &world, &options);
        script_create(&script, 1, "bad");
        struct sl_offer offer = script_fill(&script, 1, &content, 0);
        script.memory[(size_t)offer.slot * SL_BLOCK_BYTES + 500] ^= 1;
        script_offer(&script, &offer);
        expect_only_object_fails(&script, &content, seal ? SL_ERR_CRYPTO : SL_ERR_CHECKSUM);
        assert_int_equal(script_read(&script, 3, "bad", &content), SL_ERR_NOT_FOUND);
        script_bye(&script);
    }
    content_free(&content);
    world_close(&world);
}

/* A sealed block presented as another, under another number, with another tag. */
static void write__seal_of_another_block__object_fails(void **state)
{
    (void)state;
    struct world world;
    struct script script;
    world_open(&world, NULL, false);
    struct content content = content_new(&world, 1, 2 * MiB, false);
    for (int what = 0; what < 4; what++) {
        char stanza[8];
        snprintf(stanza, sizeof stanza, "s%d", what);
        script_open(&script, &world,
                    &(struct script_options){.stanza = stanza, .seal = SL_SEAL_ON});
        script_create(&script, 1, "bad");
        struct sl_offer offer = script_fill(&script, 1, &content, 0);
        if (what == 0)
            offer.block = 1;
        else if (what == 1)
            offer.seal_number++;
        else if (what == 2)
            offer.seal_tag.bytes[0] ^= 1;
        else
            offer.seal_number = 0;
        script_offer(&script, &offer);
        expect_only_object_fails(&script, &content, SL_ERR_CRYPTO);
        script_bye(&script);
    }
    content_free(&content);
    world_close(&world);
}

static void commit__not_what_was_offered__object_fails(void **state)
{
    (void)state;
    struct world world;
    struct script script;
    world_open(&world, NULL, false);
    struct content content = content_new(&world, 1, 2 * MiB + 9, false);
    for (int what = 0; what < 4; what++) {
        script_open(&script, &world, NULL);
        script_create(&script, 1, "bad");
        for (uint32_t i = 0; i < 3; i++) {
            struct sl_offer offer = script_fill(&script, 1, &content, i);
            if (what != 0 || i != 1)
                script_offer(&script, &offer);
        }
        struct content claim = content;
        if (what == 1)
            claim.length--;
        else if (what == 2)
            claim.digest.bytes[0] ^= 1;
        else if (what == 3)
            claim.length += MiB;
        script_commit(&script, 1, &claim);
        int rc = script_outcome(&script, 1, NULL);
        assert_int_equal(rc, what == 2 ? SL_ERR_CHECKSUM : SL_ERR_PROTOCOL);
        assert_int_equal(script_read(&script, 2, "bad", &content), SL_ERR_NOT_FOUND);
        script_bye(&script);
    }
    content_free(&content);
    world_close(&world);
}

static void abort__at_any_point__nothing_visible_slots_back(void **state)
{
    (void)state;
    struct world world;
    struct script script;
    world_open(&world, NULL, false);
    struct content content = content_new(&world, 1, 8 * MiB, true);
    script_open(&script, &world, NULL);
    for (uint32_t round = 0; round <= 8; round++) {
        uint32_t object = 10 + round;
        struct sl_msg msg = {.type = SL_MSG_ABORT};
        msg.abort.object = object;
        script_create(&script, object, "never");
        for (uint32_t i = 0; i < 8; i++) {
            if (i == round)
                script_send(&script, &msg);
            struct sl_offer offer = script_fill(&script, object, &content, i);
            script_offer(&script, &offer); /* also after it: TAKEN */
        }
        if (round == 8)
            script_send(&script, &msg);
        script_commit(&script, object, &content); /* let go */
    }
    script_all_slots_free(&script);
    assert_int_equal(script_read(&script, 50, "never", &content), SL_ERR_NOT_FOUND);
    assert_false(script_has(&script, SL_MSG_STORED));
    script_bye(&script);
    content_free(&content);
    world_close(&world);
}

/* --- disks ------------------------------------------------------------------------------------ */

static void write__disk_fails__that_object_only(void **state)
{
    (void)state;
    static const struct {
        const char *rule;
        int code;
    } cases[] = {
        {"posix.pwrite:ENOSPC", SL_ERR_FULL}, {"posix.pwrite:EIO@2", SL_ERR_WRITE},
        {"posix.fdatasync:EIO", SL_ERR_SYNC}, {"posix.tmpfile:ENOSPC", SL_ERR_FULL},
        {"posix.link:ENOSPC", SL_ERR_FULL},   {"target.pulled:EIO", SL_ERR_WRITE},
        {"target.checked:EIO", SL_ERR_WRITE}, {"target.written:ENOSPC", SL_ERR_FULL},
        {"target.finish:EIO", SL_ERR_WRITE},  {"target.published:EIO", SL_ERR_SYNC},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world world;
        struct script script;
        world_open(&world, NULL, false);
        struct content content = content_new(&world, 1, 2 * MiB + 5, false);
        script_open(&script, &world, NULL);
        script_put(&script, 1, "before", &content, SL_STORED_CREATED);
        must(sl_fault_set(cases[i].rule) == 0);
        script_write(&script, 2, "bad", &content);
        int rc = script_outcome(&script, 2, NULL);
        if (rc != cases[i].code)
            fprintf(stderr, "%s: %s\n", cases[i].rule, sl_code_name(rc));
        assert_int_equal(rc, cases[i].code);
        sl_fault_set(NULL);
        script_all_slots_free(&script);
        /* and again, as a client would */
        bool published = strstr(cases[i].rule, "published");
        script_put(&script, 3, "bad", &content,
                   published ? SL_STORED_IDENTICAL : SL_STORED_CREATED);
        must(script_read(&script, 4, "bad", &content) == 0);
        must(script_read(&script, 5, "before", &content) == 0);
        script_bye(&script);
        content_free(&content);
        world_close(&world);
    }
}

static void write__folder_sync_failed__writes_refused_reads_go_on(void **state)
{
    (void)state;
    struct world world;
    struct script script;
    world_open(&world, NULL, false);
    struct content content = content_new(&world, 1, MiB, false);
    script_open(&script, &world, NULL);
    script_put(&script, 1, "a/before", &content, SL_STORED_CREATED);
    must(sl_fault_set("posix.syncdir:EIO") == 0);
    script_write(&script, 2, "a/bad", &content);
    assert_int_equal(script_outcome(&script, 2, NULL), SL_ERR_SYNC);
    sl_fault_set(NULL);
    for (uint32_t i = 3; i < 6; i++) {
        script_write(&script, i, "a/later", &content);
        assert_int_equal(script_outcome(&script, i, NULL), SL_ERR_SYNC);
    }
    must(script_read(&script, 7, "a/before", &content) == 0);
    script_bye(&script);
    content_free(&content);
    world_close(&world);
}

/* --- sessions that end ------------------------------------------------------------------------ */

static void session__ends_at_each_step__nothing_left_behind(void **state)
{
    (void)state;
    static const char *const points[] = {"target.pulled", "target.checked",   "target.written",
                                         "target.finish", "target.published", "target.stored",
                                         "posix.tmpfile", "posix.fdatasync"};
    struct world world;
    world_open(&world, NULL, false);
    struct content content = content_new(&world, 1, 4 * MiB + 1, false);
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        for (int wait_ms = 0; wait_ms <= 20; wait_ms += 10) {
            struct script script;
            char rule[64], name[32];
            snprintf(name, sizeof name, "o%zu-%d", i, wait_ms);
            script_open(&script, &world, NULL);
            snprintf(rule, sizeof rule, "%s:sleep=15", points[i]);
            must(sl_fault_set(rule) == 0);
            script_write(&script, 1, name, &content);
            poll(NULL, 0, wait_ms);
            script_close(&script);
            /* the next is as well off as the first */
            script_open(&script, &world, NULL);
            snprintf(name, sizeof name, "after%zu-%d", i, wait_ms);
            script_put(&script, 1, name, &content, SL_STORED_CREATED);
            script_bye(&script);
            sl_fault_set(NULL);
        }
    struct sl_repo_verify verify = {0};
    must(sl_repo_verify(world.repo, "main", &verify, NULL) == 0);
    assert_int_equal(verify.damaged, 0);
    content_free(&content);
    world_close(&world);
}

static void session__silent__dead_in_time(void **state)
{
    (void)state;
    struct world world;
    struct script script;
    world_open(&world, &(struct sl_target_config){.heartbeat_ms = 50, .dead_ms = 300}, false);
    script_open(&script, &world, NULL);
    poll(NULL, 0, 600); /* no heartbeats meanwhile */
    script_await_close(&script);
    assert_int_equal(script.closed, SL_ERR_CLOSED);
    script_close(&script);
    world_close(&world);
}

/* --- stop ------------------------------------------------------------------------------------- */

static void stop__commits_end_the_rest_is_dropped(void **state)
{
    (void)state;
    struct world world;
    struct script script;
    world_open(&world, NULL, false);
    struct content content = content_new(&world, 1, 4 * MiB, false);
    script_open(&script, &world, NULL);
    script_create(&script, 1, "unfinished");
    must(sl_fault_set("posix.fdatasync:sleep=300") == 0);
    script_write(&script, 2, "committed", &content);
    while (sl_fault_passed() < 20) /* it is on its way */
        script_turn(&script, 5);
    world_stop(&world, 10000);
    assert_int_equal(script_outcome(&script, 2, NULL), 0);
    assert_int_equal(script_await(&script, SL_MSG_BYE).bye.reason, 1);
    script_await_close(&script);
    script_close(&script);

    world_start(&world, NULL, false);
    script_open(&script, &world, NULL);
    must(script_read(&script, 1, "committed", &content) == 0);
    assert_int_equal(script_read(&script, 2, "unfinished", &content), SL_ERR_NOT_FOUND);
    script_bye(&script);
    content_free(&content);
    world_close(&world);
}

static void stop__blocks_that_never_come__ends_after_grace(void **state)
{
    (void)state;
    struct world world;
    struct script script;
    world_open(&world, NULL, false);
    struct content content = content_new(&world, 1, 4 * MiB, false);
    script_open(&script, &world, &(struct script_options){.no_lanes = true});
    script_write(&script, 1, "stuck", &content); /* without a lane */
    uint64_t begin_ns = sl_now_ns();
    world_stop(&world, 300);
    uint64_t ms = (sl_now_ns() - begin_ns) / SL_NS_PER_MS;
    assert_in_range(ms, 290, 10000);
    assert_int_equal(script_await(&script, SL_MSG_BYE).bye.reason, 1);
    script_close(&script);
    content_free(&content);
    world_close(&world);
}

/* --- kill -9 ---------------------------------------------------------------------------------- */

/* In a process of its own: a target that dies at a point of the path. What it said was STORED is
 * written to `fd`, one byte a number. */
static void be_killed(struct world *world, const char *rule, int fd)
{
    struct script script;
    world_start(world, NULL, false);
    script_open(&script, world, &(struct script_options){.tolerant = true});
    struct content content = content_new(world, 1, 2 * MiB + 1, false);
    must(sl_fault_set(rule) == 0);
    for (uint32_t i = 0; i < 6; i++) {
        char name[16];
        snprintf(name, sizeof name, "o%u", i);
        script_put(&script, i, name, &content, SL_STORED_CREATED);
        uint8_t number = (uint8_t)i;
        must(write(fd, &number, 1) == 1);
    }
    _exit(0); /* it was not killed */
}

static void kill__at_each_step__what_was_stored_is_there(void **state)
{
    (void)state;
    static const char *const points[] = {"target.pulled",   "target.checked",   "target.written",
                                         "target.finish",   "target.published", "target.stored",
                                         "posix.fdatasync", "posix.link",       "posix.syncdir"};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        for (int nth = 1; nth <= 5; nth += 2) {
            struct world world;
            char rule[64];
            int fds[2], status;
            uint8_t number;
            world_make(&world, false);
            must(pipe(fds) == 0);
            snprintf(rule, sizeof rule, "%s:kill@%d", points[i], nth);
            pid_t child = fork();
            must(child >= 0);
            if (child == 0)
                be_killed(&world, rule, fds[1]);
            close(fds[1]);
            must(waitpid(child, &status, 0) == child);
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
            while (read(fds[0], &number, 1) == 1) {
                char name[32];
                struct sl_object *object;
                snprintf(name, sizeof name, "main/o%u", number);
                assert_int_equal(sl_object_open(world.repo, name, &object, NULL), 0);
                sl_object_close(object);
            }
            close(fds[0]);
            struct sl_repo_verify verify = {0};
            int rc = sl_repo_verify(world.repo, "main", &verify, NULL);
            assert_true(rc == 0 || rc == SL_ERR_NOT_FOUND);
            assert_int_equal(verify.damaged, 0);
            world_close(&world);
        }
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(kill__at_each_step__what_was_stored_is_there), /* forks: before there are threads */
        TEST(write__lane_dies_in_mid_pull__others_take_over),
        TEST(write__client_serves_no_pull__lane_is_closed_in_time),
        TEST(write__client_says_lane_down__answered_and_replaced),
        TEST(write__bytes_not_of_their_digest__object_fails),
        TEST(write__seal_of_another_block__object_fails),
        TEST(commit__not_what_was_offered__object_fails),
        TEST(abort__at_any_point__nothing_visible_slots_back),
        TEST(write__disk_fails__that_object_only),
        TEST(write__folder_sync_failed__writes_refused_reads_go_on),
        TEST(session__ends_at_each_step__nothing_left_behind),
        TEST(session__silent__dead_in_time),
        TEST(stop__commits_end_the_rest_is_dropped),
        TEST(stop__blocks_that_never_come__ends_after_grace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
