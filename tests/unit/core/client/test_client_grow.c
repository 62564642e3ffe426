/* Growing objects through client and target: embedded, over TCP with and without seals, with lanes
 * and sessions lost, and with a target that fails in between. */
#include "core/base/fault.h"
#include "core/repo/grow.h"
#include "tests/unit/core/client/world.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#define NAME "binlog/one"

static struct sl_grow *grow_must(struct sl_client *client, uint64_t known, uint64_t *ret_length)
{
    struct sl_grow *grow = NULL;
    struct sl_err err;
    int rc = sl_grow_open(client, NAME, known, SOON, &grow, ret_length, &err);
    if (rc)
        print_error("%s\n", err.msg);
    assert_int_equal(rc, 0);
    return grow;
}

/* Appends bytes[from, to) in pieces of awkward sizes, each marked. A code, or 0. */
static int append(struct sl_grow *grow, const uint8_t *bytes, size_t from, size_t to,
                  struct sl_err *err)
{
    size_t piece = 1;
    while (from < to) {
        size_t count = piece < to - from ? piece : to - from;
        int rc = sl_grow_append(grow, bytes + from, count, true, err);
        if (rc)
            return rc;
        from += count;
        piece = piece * 3 + 1 < MiB ? piece * 3 + 1 : 5;
    }
    return 0;
}

static void append_must(struct sl_grow *grow, const uint8_t *bytes, size_t from, size_t to)
{
    struct sl_err err;
    uint64_t durable;
    int rc = append(grow, bytes, from, to, &err);
    if (!rc)
        rc = sl_grow_wait(grow, SOON, &err);
    if (rc)
        print_error("%s\n", err.msg);
    assert_int_equal(rc, 0);
    assert_int_equal(sl_grow_durable(grow, &durable, &err), 0);
    assert_int_equal(durable, to);
}

static void seal_must(struct sl_grow *grow, size_t length, enum sl_outcome outcome)
{
    struct sl_stored stored;
    struct sl_err err;
    int rc = sl_grow_seal(grow, SOON, &stored, &err);
    if (rc)
        print_error("%s\n", err.msg);
    assert_int_equal(rc, 0);
    assert_int_equal(stored.length, length);
    assert_int_equal(stored.outcome, outcome);
}

static void grows_through(const struct world_options *options, enum sl_seal_kind seal,
                          enum sl_codec codec)
{
    const size_t count = 9 * MiB + 77, half = 4 * MiB + 5;
    uint8_t *bytes = content_new(3, count, true);
    struct world world;
    struct sl_err err;
    struct sl_object_info info;
    uint64_t length;
    world_open(&world, options);
    world.config.seal = seal;
    world.config.codec = codec;
    world.config.codec_level = 1;
    struct sl_client *client = world_connect(&world);
    struct sl_grow *grow = grow_must(client, 0, &length);
    assert_int_equal(length, 0);
    append_must(grow, bytes, 0, half);
    assert_int_equal(fetch_and_compare(client, NAME SL_JOURNAL_SUFFIX, bytes, half, &err), 0);
    assert_int_equal(sl_client_stat(client, NAME, SOON, &info, &err), 0);
    assert_int_equal(sl_client_stat(client, NAME SL_JOURNAL_SUFFIX, SOON, &info, &err), 1);
    assert_int_equal(info.length, half);
    sl_grow_close(grow);
    grow = grow_must(client, half, &length);
    assert_int_equal(length, half);
    append_must(grow, bytes, half, count);
    seal_must(grow, count, SL_STORED_CREATED);
    assert_int_equal(fetch_and_compare(client, NAME, bytes, count, &err), 0);
    assert_int_equal(sl_client_stat(client, NAME SL_JOURNAL_SUFFIX, SOON, &info, &err), 0);
    assert_int_equal(sl_grow_open(client, NAME, 0, SOON, &grow, &length, &err), SL_ERR_EXISTS);
    world_close(&world);
    free(bytes);
}

static void grow__embedded__comes_back(void **state)
{
    (void)state;
    grows_through(&(struct world_options){0}, SL_SEAL_AUTO, SL_CODEC_ZSTD);
}

static void grow__over_tcp__comes_back(void **state)
{
    (void)state;
    grows_through(&(struct world_options){.listening = true, .lanes = 4}, SL_SEAL_ON,
                  SL_CODEC_PLAIN);
    grows_through(&(struct world_options){.listening = true, .lanes = 4}, SL_SEAL_OFF,
                  SL_CODEC_LZ4);
}

static void grow__two_writers__second_is_refused_until_first_is_gone(void **state)
{
    (void)state;
    struct world world;
    struct sl_err err;
    struct sl_grow *grow, *second = NULL;
    uint64_t length;
    world_open(&world, &(struct world_options){.listening = true});
    struct sl_client *first_client = open_must(&world.config);
    struct sl_client *client = world_connect(&world);
    grow = grow_must(first_client, 0, &length);
    append_must(grow, (const uint8_t *)"0123456789", 0, 10);
    assert_int_equal(sl_grow_open(client, NAME, 0, sl_deadline_in_ms(500), &second, &length, &err),
                     SL_ERR_BUSY);
    sl_grow_close(grow);
    sl_client_close(first_client);
    second = grow_must(client, 0, &length);
    assert_int_equal(length, 10);
    sl_grow_close(second);
    world_close(&world);
}

static void grow__names_of_journals__refused(void **state)
{
    (void)state;
    struct world world;
    struct sl_err err;
    struct sl_grow *grow;
    uint64_t length;
    world_open(&world, &(struct world_options){0});
    struct sl_client *client = world_connect(&world);
    assert_int_equal(sl_client_put(client, NAME SL_JOURNAL_SUFFIX, "x", 1, SOON, NULL, &err),
                     SL_ERR_USAGE);
    assert_int_equal(sl_grow_open(client, NAME SL_JOURNAL_SUFFIX, 0, SOON, &grow, &length, &err),
                     SL_ERR_USAGE);
    world_close(&world);
}

static void grow__descriptor__tells_of_what_is_durable(void **state)
{
    (void)state;
    struct world world;
    struct sl_err err;
    uint64_t length, durable = 0;
    world_open(&world, &(struct world_options){.listening = true});
    struct sl_grow *grow = grow_must(world_connect(&world), 0, &length);
    assert_int_equal(sl_grow_durable(grow, &durable, &err), 0);
    assert_int_equal(sl_grow_append(grow, "abc", 3, true, &err), 0);
    while (durable < 3) {
        struct pollfd fd = {.fd = sl_grow_fd(grow), .events = POLLIN};
        assert_int_equal(poll(&fd, 1, 20000), 1);
        assert_int_equal(sl_grow_durable(grow, &durable, &err), 0);
    }
    sl_grow_close(grow);
    world_close(&world);
}

/* Whatever is lost: what was said to be durable is there, and the rest can be sent again. */
static void goes_on_after(struct world *world, const uint8_t *bytes, size_t count, const char *rule)
{
    struct sl_client *client = world->client;
    struct sl_err err;
    uint64_t length, durable = 0;
    unsigned attempts = 0;
    sl_fault_set(rule);
    for (;;) {
        struct sl_grow *grow;
        int rc = sl_grow_open(client, NAME, durable, SOON, &grow, &length, &err);
        assert_true(attempts++ < 200);
        if (rc == SL_ERR_CHECKSUM)
            print_error("%s\n", err.msg);
        assert_int_not_equal(rc, SL_ERR_CHECKSUM);
        if (rc == SL_ERR_EXISTS)
            break;
        if (rc)
            continue;
        rc = append(grow, bytes, length, count, &err);
        (void)sl_grow_durable(grow, &durable, &err);
        if (rc)
            sl_grow_close(grow);
        else
            (void)sl_grow_seal(grow, SOON, NULL, &err);
    }
    sl_fault_set(NULL);
    assert_int_equal(fetch_and_compare(client, NAME, bytes, count, &err), 0);
}

static void grow__faults_of_the_target__nothing_durable_is_lost(void **state)
{
    (void)state;
    static const char *const rules[] = {
        "target.append:EIO@2",       "posix.grow_sync:EIO@3", "posix.pwrite:ENOSPC@7",
        "posix.pwrite:EIO@20",       "target.pulled:EIO@4",   "target.checked:EIO@5",
        "repo.grow_sealed:sleep=20", "posix.link:EIO@2",      "posix.fdatasync:EIO@2",
    };
    const size_t count = 3 * MiB + 13;
    uint8_t *bytes = content_new(5, count, false);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct world world;
        world_open(&world, &(struct world_options){.listening = true});
        world_connect(&world);
        goes_on_after(&world, bytes, count, rules[i]);
        world_close(&world);
    }
    free(bytes);
}

static void grow__lanes_are_cut__nothing_is_lost_or_out_of_order(void **state)
{
    (void)state;
    const size_t count = 12 * MiB + 3;
    uint8_t *bytes = content_new(6, count, false);
    struct world world;
    struct sl_err err;
    uint64_t length;
    world_open(&world, &(struct world_options){.listening = true, .proxied = true, .lanes = 3});
    struct sl_client *client = world_connect(&world);
    struct sl_grow *grow = grow_must(client, 0, &length);
    for (size_t at = 0, part = count / 8; at < count; at += part) {
        size_t end = count - at < part ? count : at + part;
        assert_int_equal(append(grow, bytes, at, end, &err), 0);
        proxy_cut_lanes(world.proxy);
    }
    append_must(grow, bytes, count, count);
    seal_must(grow, count, SL_STORED_CREATED);
    assert_int_equal(fetch_and_compare(client, NAME, bytes, count, &err), 0);
    world_close(&world);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grow__embedded__comes_back),
        cmocka_unit_test(grow__over_tcp__comes_back),
        cmocka_unit_test(grow__two_writers__second_is_refused_until_first_is_gone),
        cmocka_unit_test(grow__names_of_journals__refused),
        cmocka_unit_test(grow__descriptor__tells_of_what_is_durable),
        cmocka_unit_test(grow__faults_of_the_target__nothing_durable_is_lost),
        cmocka_unit_test(grow__lanes_are_cut__nothing_is_lost_or_out_of_order),
    };
    return cmocka_run_group_tests(tests, no_sigpipe, NULL);
}
