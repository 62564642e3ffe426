/* Writing through a target: sizes, holes, re-pushes, many at once; on loopback and on TCP. */
#include "tests/unit/core/target/scripted.h"

#include <pthread.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const uint64_t lengths[] = {0,       1,   4095,    4096,    4097,
                                   MiB - 1, MiB, MiB + 1, 5 * MiB, 20 * MiB + 12345};
#define LENGTHS (sizeof lengths / sizeof *lengths)

static void put_and_read(struct world *world, const struct script_options *options)
{
    struct script script;
    uint32_t number = 0;
    script_open(&script, world, options);
    for (size_t i = 0; i < LENGTHS; i++)
        for (int holes = 0; holes < 2; holes++) {
            char name[64];
            struct content content = content_new(world, (unsigned)i + 1, lengths[i], holes);
            snprintf(name, sizeof name, "wal/%d/o%zu", holes, i);
            script_put(&script, ++number, name, &content, SL_STORED_CREATED);
            must(script_read(&script, ++number, name, &content) == 0);
            content_free(&content);
        }
    script_all_slots_free(&script);
    script_bye(&script);
}

static void put__all_sizes_on_loopback__read_back(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, NULL, false);
    put_and_read(&world, &(struct script_options){0});
    put_and_read(&world, &(struct script_options){.stanza = "other", .seal = SL_SEAL_ON});
    struct sl_target_stats stats;
    sl_target_stats(world.target, &stats);
    assert_int_equal(stats.sessions, 2);
    assert_int_equal(stats.objects_created, 4 * LENGTHS);
    assert_int_equal(stats.objects_failed, 0);
    world_close(&world);
}

static void put__all_sizes_on_tcp__read_back(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, NULL, true);
    put_and_read(&world, &(struct script_options){.listening = true});
    put_and_read(&world, &(struct script_options){
                             .listening = true, .stanza = "other", .seal = SL_SEAL_OFF});
    world_close(&world);
}

static void put__same_again__identical(void **state)
{
    (void)state;
    struct world world;
    struct script script;
    world_open(&world, NULL, false);
    script_open(&script, &world, NULL);
    struct content content = content_new(&world, 1, 2 * MiB + 5, false);
    struct content other = content_new(&world, 2, 2 * MiB + 5, false);
    script_put(&script, 1, "a/b", &content, SL_STORED_CREATED);
    script_put(&script, 2, "a/b", &content, SL_STORED_IDENTICAL);
    script_write(&script, 3, "a/b", &other);
    assert_int_equal(script_outcome(&script, 3, NULL), SL_ERR_EXISTS);
    script_put(&script, 4, "a/c", &other, SL_STORED_CREATED);
    must(script_read(&script, 5, "a/b", &content) == 0);
    struct sl_target_stats stats;
    sl_target_stats(world.target, &stats);
    assert_int_equal(stats.objects_created, 2);
    assert_int_equal(stats.objects_identical, 1);
    assert_int_equal(stats.objects_refused, 1);
    script_bye(&script);
    content_free(&content);
    content_free(&other);
    world_close(&world);
}

static void put__many_objects_at_once__all_stored_in_few_batches(void **state)
{
    (void)state;
    struct world world;
    struct script script;
    world_open(&world, NULL, false);
    script_open(&script, &world, NULL);
    struct content content = content_new(&world, 3, 300 * KiB, false);
    for (uint32_t i = 1; i <= 60; i++) {
        char name[32];
        snprintf(name, sizeof name, "seg/%u", i);
        script_write(&script, i, name, &content);
    }
    for (uint32_t i = 1; i <= 60; i++)
        assert_int_equal(script_outcome(&script, i, NULL), 0);
    struct sl_target_stats stats;
    sl_target_stats(world.target, &stats);
    assert_int_equal(stats.objects_created, 60);
    assert_int_equal(stats.batch_objects, 60);
    script_bye(&script);
    content_free(&content);
    world_close(&world);
}

/* --- many sessions ---------------------------------------------------------------------------- */

struct crowd {
    struct world *world;
    pthread_t thread;
    unsigned number;
    bool listening;
};

static void *one_of_many(void *arg)
{
    struct crowd *one = arg;
    struct script script;
    char name[32], stanza[32];
    snprintf(stanza, sizeof stanza, "s%u", one->number % 4);
    snprintf(name, sizeof name, "n%u", one->number);
    struct script_options options = {
        .stanza = stanza, .lanes = 1, .slots = 8, .listening = one->listening};
    struct content content = content_new(one->world, one->number, 3 * MiB, false);
    script_open(&script, one->world, &options);
    script_put(&script, 1, name, &content, SL_STORED_CREATED);
    must(script_read(&script, 2, name, &content) == 0);
    content_free(&content);
    script_bye(&script);
    return NULL;
}

static void crowd_run(unsigned count, bool listening)
{
    struct world world;
    struct crowd *crowd = calloc(count, sizeof *crowd);
    must(crowd);
    world_open(&world, &(struct sl_target_config){.pool_bytes = 8 * MiB}, listening);
    for (unsigned i = 0; i < count; i++) {
        crowd[i] = (struct crowd){.world = &world, .number = i, .listening = listening};
        must(pthread_create(&crowd[i].thread, NULL, one_of_many, &crowd[i]) == 0);
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(crowd[i].thread, NULL);
    struct sl_target_stats stats;
    sl_target_stats(world.target, &stats);
    assert_int_equal(stats.objects_created, count);
    assert_true(stats.pool_waits > 0); /* else the test has not tried what it should */
    free(crowd);
    world_close(&world);
}

static void put__hundred_sessions_and_eight_buffers__all_make_progress(void **state)
{
    (void)state;
    crowd_run(100, false);
}

static void put__twenty_sessions_over_tls__all_make_progress(void **state)
{
    (void)state;
    crowd_run(20, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(put__all_sizes_on_loopback__read_back),
        cmocka_unit_test(put__all_sizes_on_tcp__read_back),
        cmocka_unit_test(put__same_again__identical),
        cmocka_unit_test(put__many_objects_at_once__all_stored_in_few_batches),
        cmocka_unit_test(put__hundred_sessions_and_eight_buffers__all_make_progress),
        cmocka_unit_test(put__twenty_sessions_over_tls__all_make_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
