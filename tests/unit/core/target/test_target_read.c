/* Reading through a target, and its questions: damage on the disk, slow readers, lanes that die,
 * LIST, STAT, SPACE, VERIFY. */
#include "core/base/fault.h"
#include "tests/unit/core/target/scripted.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct fixture {
    struct world world;
    struct script script;
    struct content content; /* stored as "a/b", number 1 */
};

static void begin(struct fixture *f, const struct sl_target_config *config,
                  const struct script_options *options, uint64_t length)
{
    world_open(&f->world, config, options->listening);
    f->content = content_new(&f->world, 11, length, false); /* takes a while */
    script_open(&f->script, &f->world, options);
    script_put(&f->script, 1, "a/b", &f->content, SL_STORED_CREATED);
}

static void end(struct fixture *f)
{
    script_bye(&f->script);
    content_free(&f->content);
    world_close(&f->world);
}

/* Flips a bit of the object's file. */
static void damage(const struct fixture *f, const char *name, off_t offset)
{
    char path[160];
    uint8_t byte;
    snprintf(path, sizeof path, "%s/repo/main/%s", f->world.dir, name);
    int fd = open(path, O_RDWR);
    must(fd >= 0 && pread(fd, &byte, 1, offset) == 1);
    byte ^= 0x10;
    must(pwrite(fd, &byte, 1, offset) == 1 && fsync(fd) == 0);
    close(fd);
}

static struct sl_msg_opened open_object(struct script *script, uint32_t object, const char *name)
{
    struct sl_msg msg = {.type = SL_MSG_OPEN};
    msg.open.object = object;
    snprintf(msg.open.name, sizeof msg.open.name, "%s", name);
    script_send(script, &msg);
    return script_await(script, SL_MSG_OPENED).opened;
}

static void close_object(struct script *script, uint32_t object)
{
    struct sl_msg msg = {.type = SL_MSG_CLOSE};
    msg.close.object = object;
    script_send(script, &msg);
}

/* The one block that the next SENT is about. */
static struct sl_sent await_sent(struct script *script)
{
    struct sl_msg_sent msg = script_await(script, SL_MSG_SENT).sent;
    must(msg.blocks_bytes == SL_SENT_BYTES);
    struct sl_reader r = sl_reader_on(msg.blocks, msg.blocks_bytes);
    struct sl_sent sent;
    sl_sent_read(&r, &sent);
    return sent;
}

/* --- damage ----------------------------------------------------------------------------------- */

static void get__bit_flipped_in_a_block__that_block_only(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, NULL, &(struct script_options){0}, 3 * MiB + 77);
    damage(&f, "a/b", MiB + 1234);
    struct sl_msg_opened opened = open_object(&f.script, 2, "a/b");
    assert_int_equal(opened.length, f.content.length);
    assert_string_equal(opened.creator, "db1");
    script_get_block(&f.script, 2, 1, 0);
    struct sl_sent sent = await_sent(&f.script);
    assert_int_equal(sent.code, SL_ERR_CHECKSUM);
    assert_int_equal(sent.block.slot, f.script.slots);
    script_get_block(&f.script, 2, 0, 0); /* the slot is free again */
    sent = await_sent(&f.script);
    assert_int_equal(sent.code, 0);
    assert_true(sent.push >> 48 < 2); /* the lane's number */
    damage(&f, "a/b", 3 * MiB + 100); /* the padding behind the last block */
    script_get_block(&f.script, 2, 3, 1);
    assert_int_not_equal(await_sent(&f.script).code, 0);
    close_object(&f.script, 2);
    end(&f);
}

static void open__trailer_damaged_or_nothing_there__error(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, NULL, &(struct script_options){0}, 100);
    assert_int_equal(script_read(&f.script, 2, "a/c", &f.content), SL_ERR_NOT_FOUND);
    damage(&f, "a/b", 8192 + 40);
    int rc = script_read(&f.script, 3, "a/b", &f.content);
    assert_true(rc == SL_ERR_CHECKSUM || rc == SL_ERR_FORMAT);
    end(&f);
}

static void get__disk_fails__code(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, NULL, &(struct script_options){0}, MiB);
    open_object(&f.script, 2, "a/b");
    must(sl_fault_set("target.read:EIO") == 0);
    script_get_block(&f.script, 2, 0, 0);
    assert_int_equal(await_sent(&f.script).code, SL_ERR_READ);
    sl_fault_set(NULL);
    script_get_block(&f.script, 2, 0, 0);
    assert_int_equal(await_sent(&f.script).code, 0);
    end(&f);
}

/* --- order ------------------------------------------------------------------------------------ */

static void close__gets_under_way__each_is_answered(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, NULL, &(struct script_options){0}, 12 * MiB);
    open_object(&f.script, 2, "a/b");
    for (uint32_t i = 0; i < 12; i++)
        script_get_block(&f.script, 2, i, i);
    close_object(&f.script, 2);
    unsigned answered = 0;
    while (answered < 12) {
        struct sl_msg_sent msg = script_await(&f.script, SL_MSG_SENT).sent;
        struct sl_reader r = sl_reader_on(msg.blocks, msg.blocks_bytes);
        while (sl_reader_left(&r)) {
            struct sl_sent sent;
            sl_sent_read(&r, &sent);
            must(sent.code == 0 || sent.code == SL_ERR_CANCELLED);
            answered++;
        }
    }
    /* after it: let go */
    script_get_block(&f.script, 2, 0, 0);
    assert_int_equal(await_sent(&f.script).code, SL_ERR_CANCELLED);
    memset(f.script.use, 0, sizeof f.script.use);
    f.script.notice_count = 0;
    must(script_read(&f.script, 3, "a/b", &f.content) == 0);
    end(&f);
}

static void read__reader_that_sleeps__others_go_on(void **state)
{
    (void)state;
    struct fixture f;
    struct script other;
    begin(&f, &(struct sl_target_config){.pool_bytes = 4 * MiB},
          &(struct script_options){.listening = true}, 16 * MiB);
    script_open(&other, &f.world, &(struct script_options){.listening = true});
    open_object(&f.script, 2, "a/b");
    f.script.lanes_asleep = true;
    for (uint32_t i = 0; i < 16; i++)
        script_get_block(&f.script, 2, i, i);
    for (int i = 0; i < 10; i++)
        script_turn(&f.script, 10);
    must(script_read(&other, 1, "a/b", &f.content) == 0);
    script_bye(&other);
    f.script.lanes_asleep = false;
    while (f.script.notice_count < 16)
        script_turn(&f.script, 100);
    end(&f);
}

static void read__reader_that_sleeps_too_long__its_lanes_die_and_it_recovers(void **state)
{
    (void)state;
    struct fixture f;
    struct sl_target_config config = {.heartbeat_ms = 50, .dead_ms = 1500};
    begin(&f, &config, &(struct script_options){.listening = true, .lanes = 1}, 16 * MiB);
    open_object(&f.script, 2, "a/b");
    f.script.lanes_asleep = true;
    for (uint32_t i = 0; i < 16; i++)
        script_get_block(&f.script, 2, i, i);
    while (!script_has(&f.script, SL_MSG_LANE_DOWN))
        script_turn(&f.script, 50);
    f.script.lanes_asleep = false;
    script_lane_end(&f.script, 0);
    struct sl_target_stats stats;
    sl_target_stats(f.world.target, &stats);
    assert_int_equal(stats.lanes_lost, 1);
    close_object(&f.script, 2);
    end(&f);
}

/* Lanes that die at every point of a download: what was lost is asked for again. */
static void read__lanes_die_in_the_middle__whole_in_the_end(void **state)
{
    (void)state;
    for (int listening = 0; listening < 2; listening++) {
        struct fixture f;
        begin(&f, NULL, &(struct script_options){.listening = listening, .lanes = 2}, 24 * MiB);
        for (uint32_t round = 0; round < 8; round++) {
            f.script.kill_lane_at = 1 + 2 * round; /* notices seen */
            must(script_read(&f.script, 10 + round, "a/b", &f.content) == 0);
        }
        struct sl_target_stats stats;
        sl_target_stats(f.world.target, &stats);
        assert_true(stats.lanes_lost >= 4);
        end(&f);
    }
}

/* --- questions -------------------------------------------------------------------------------- */

static void stat__there_and_not__answered(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, NULL, &(struct script_options){0}, MiB + 1);
    struct sl_msg msg = {.type = SL_MSG_STAT};
    msg.stat.request = 7;
    snprintf(msg.stat.name, sizeof msg.stat.name, "a/b");
    script_send(&f.script, &msg);
    struct sl_msg_stated stated = script_await(&f.script, SL_MSG_STATED).stated;
    assert_int_equal(stated.request, 7);
    assert_int_equal(stated.exists, 1);
    assert_int_equal(stated.length, MiB + 1);
    assert_true(sl_id_equal(&stated.digest, &f.content.digest));
    assert_string_equal(stated.creator, "db1");
    snprintf(msg.stat.name, sizeof msg.stat.name, "a/c");
    script_send(&f.script, &msg);
    assert_int_equal(script_await(&f.script, SL_MSG_STATED).stated.exists, 0);
    snprintf(msg.stat.name, sizeof msg.stat.name, "../other/c");
    script_send(&f.script, &msg);
    assert_int_equal(script_await_error(&f.script, SL_ABOUT_REQUEST, SL_ERR_USAGE).error.about, 7);
    msg = (struct sl_msg){.type = SL_MSG_SPACE};
    msg.space.request = 8;
    script_send(&f.script, &msg);
    struct sl_msg_spaced spaced = script_await(&f.script, SL_MSG_SPACED).spaced;
    assert_int_equal(spaced.request, 8);
    assert_true(spaced.total_bytes >= spaced.free_bytes && spaced.total_bytes > 0);
    end(&f);
}

static void list__more_than_a_page__in_order_and_complete(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    struct fixture f;
    begin(&f, NULL, &(struct script_options){0}, 10);
    char name[300], filler[220], after[256] = "";
    memset(filler, 'x', sizeof filler);
    filler[sizeof filler - 1] = '\0';
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "many/%03u%s", i, filler);
        script_put(&f.script, 2 + i, name, &f.content, SL_STORED_CREATED);
    }
    unsigned seen = 0, pages = 0;
    bool more = true;
    /* each name is examined once, and those of the first, short page twice */
    must(sl_fault_set("posix.stat:EIO@310+") == 0);
    while (more) {
        struct sl_msg msg = {.type = SL_MSG_LIST};
        snprintf(msg.list.name, sizeof msg.list.name, "many");
        snprintf(msg.list.after, sizeof msg.list.after, "%s", after);
        msg.list.limit = pages == 0 ? 5 : 0;
        script_send(&f.script, &msg);
        struct sl_msg_listed listed = script_await(&f.script, SL_MSG_LISTED).listed;
        struct sl_reader r = sl_reader_on(listed.entries, listed.entries_bytes);
        while (sl_reader_left(&r)) {
            struct sl_entry entry;
            sl_entry_read(&r, &entry);
            assert_true(strcmp(entry.name, after) > 0);
            assert_int_equal(atoi(entry.name), seen++);
            assert_int_equal(entry.is_folder, 0);
            snprintf(after, sizeof after, "%s", entry.name);
        }
        if (pages++ == 0)
            assert_int_equal(seen, 5);
        more = listed.more;
    }
    assert_int_equal(seen, COUNT);
    assert_true(pages >= 3);
    sl_fault_set(NULL);
    /* the stanza itself, and a folder that is not there */
    struct sl_msg msg = {.type = SL_MSG_LIST};
    script_send(&f.script, &msg);
    struct sl_msg_listed listed = script_await(&f.script, SL_MSG_LISTED).listed;
    struct sl_reader r = sl_reader_on(listed.entries, listed.entries_bytes);
    struct sl_entry entry;
    sl_entry_read(&r, &entry);
    assert_string_equal(entry.name, "a");
    assert_int_equal(entry.is_folder, 1);
    snprintf(msg.list.name, sizeof msg.list.name, "nowhere");
    script_send(&f.script, &msg);
    listed = script_await(&f.script, SL_MSG_LISTED).listed;
    assert_int_equal(listed.entries_bytes, 0);
    assert_int_equal(listed.more, 0);
    end(&f);
}

static void verify__damage__named_and_counted(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, NULL, &(struct script_options){0}, 2 * MiB);
    for (uint32_t i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "wal/%u", i);
        script_put(&f.script, 2 + i, name, &f.content, SL_STORED_CREATED);
    }
    damage(&f, "wal/3", MiB);
    struct sl_msg msg = {.type = SL_MSG_VERIFY};
    msg.verify.request = 9;
    script_send(&f.script, &msg);
    struct sl_msg_damage found = script_await(&f.script, SL_MSG_DAMAGE).damage;
    assert_int_equal(found.request, 9);
    assert_string_equal(found.name, "wal/3");
    assert_string_equal(found.text, "block 1 is damaged"); /* named once, not again in the text */
    struct sl_msg_verified done;
    do
        done = script_await(&f.script, SL_MSG_VERIFIED).verified;
    while (!done.done);
    assert_int_equal(done.objects, 6);
    assert_int_equal(done.damaged, 1);
    assert_true(done.total_bytes >= 12 * MiB && done.bytes > 0);
    end(&f);
}

/* How often VERIFIED comes while one read takes `sleep_ms`. */
static unsigned told_while_disk_sleeps(unsigned sleep_ms, unsigned stall_ms)
{
    struct fixture f;
    char rule[64];
    unsigned told = 0;
    begin(&f, &(struct sl_target_config){.verify_stall_ms = stall_ms}, &(struct script_options){0},
          2 * MiB);
    snprintf(rule, sizeof rule, "posix.pread:sleep=%u@2", sleep_ms);
    must(sl_fault_set(rule) == 0);
    struct sl_msg msg = {.type = SL_MSG_VERIFY};
    script_send(&f.script, &msg);
    while (!script_await(&f.script, SL_MSG_VERIFIED).verified.done)
        told++;
    sl_fault_set(NULL);
    end(&f);
    return told;
}

static void verify__disk_is_slow__told_by_the_clock(void **state)
{
    (void)state;
    assert_in_range(told_while_disk_sleeps(2600, 0), 2, 6);
}

static void verify__disk_hangs__told_no_more(void **state)
{
    (void)state;
    assert_in_range(told_while_disk_sleeps(3600, 1000), 0, 3);
}

static void verify__session_ends_meanwhile__stops(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, NULL, &(struct script_options){0}, 2 * MiB);
    must(sl_fault_set("posix.pread:sleep=20@1+") == 0);
    for (uint32_t i = 0; i < 5; i++) {
        struct sl_msg msg = {.type = SL_MSG_VERIFY};
        msg.verify.request = i;
        script_send(&f.script, &msg);
    }
    /* the fifth is one too many, if the first four have not ended yet */
    while (!script_has(&f.script, SL_MSG_ERROR) && !script_has(&f.script, SL_MSG_VERIFIED))
        script_turn(&f.script, 100);
    if (script_has(&f.script, SL_MSG_ERROR))
        assert_int_equal(script_await_error(&f.script, SL_ABOUT_REQUEST, SL_ERR_BUSY).error.about,
                         4);
    script_close(&f.script);
    content_free(&f.content);
    world_close(&f.world); /* does not wait for long */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(get__bit_flipped_in_a_block__that_block_only),
        cmocka_unit_test(open__trailer_damaged_or_nothing_there__error),
        cmocka_unit_test(get__disk_fails__code),
        cmocka_unit_test(close__gets_under_way__each_is_answered),
        cmocka_unit_test(read__reader_that_sleeps__others_go_on),
        cmocka_unit_test(read__reader_that_sleeps_too_long__its_lanes_die_and_it_recovers),
        cmocka_unit_test(read__lanes_die_in_the_middle__whole_in_the_end),
        cmocka_unit_test(stat__there_and_not__answered),
        cmocka_unit_test(list__more_than_a_page__in_order_and_complete),
        cmocka_unit_test(verify__damage__named_and_counted),
        cmocka_unit_test(verify__disk_is_slow__told_by_the_clock),
        cmocka_unit_test(verify__disk_hangs__told_no_more),
        cmocka_unit_test(verify__session_ends_meanwhile__stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
