/* Conformance: bytes arrive, and nothing else changes; limits of what is in flight; order. */
#include "tests/support/lane_conformance.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t sizes[] = {
    1, 2, 15, 4095, 4096, 4097, 64 * 1024 + 1, SL_SLOT_BYTES_MAX - 1, SL_SLOT_BYTES_MAX};
#define SIZE_COUNT (sizeof sizes / sizeof *sizes)
static const size_t shifts[] = {0, 1, 4095, 4096 * 3 + 7};
#define SHIFT_COUNT (sizeof shifts / sizeof *shifts)

#define GUARD 0xa5

/* Whether all but [at, at + bytes) is still GUARD. */
static bool guarded(const struct lane_memory *memory, size_t at, size_t bytes)
{
    size_t end = at + bytes;
    return lane_all(memory->start, at, GUARD) &&
           lane_all(memory->start + end, memory->bytes - end, GUARD);
}

static void lane_pull__each_size__arrives_and_nothing_else(void **state)
{
    struct lane_case *c = *state;
    lane_fill(c->pulled.start, c->pulled.bytes, 1);
    for (size_t i = 0; i < SIZE_COUNT; i++)
        for (size_t j = 0; j < SHIFT_COUNT; j++) {
            uint64_t context = i * 100 + j;
            size_t from = lane_fixture->soft_iwarp ? 0 : shifts[j];
            size_t to = shifts[SHIFT_COUNT - 1 - j];
            int code = 1;
            memset(c->local.start, GUARD, c->local.bytes);
            assert_int_equal(lane_pull(c, to, from, sizes[i], context), 0);
            LANE_WAIT(&c->world, lane_answers(&c->world.active, SL_LANE_PULLED, context, &code));
            assert_int_equal(code, 0);
            assert_memory_equal(c->local.start + to, c->pulled.start + from, sizes[i]);
            assert_true(guarded(&c->local, to, sizes[i]));
        }
    assert_true(lane_holds(c->pulled.start, c->pulled.bytes, 1));
}

static void lane_push__each_size__arrives_and_nothing_else(void **state)
{
    struct lane_case *c = *state;
    lane_fill(c->local.start, c->local.bytes, 2);
    size_t told = 0;
    for (size_t i = 0; i < SIZE_COUNT; i++)
        for (size_t j = 0; j < SHIFT_COUNT; j++) {
            uint64_t context = i * 100 + j;
            size_t from = lane_fixture->soft_iwarp ? 0 : shifts[j];
            size_t to = shifts[SHIFT_COUNT - 1 - j];
            int code = 1;
            memset(c->pushed.start, GUARD, c->pushed.bytes);
            assert_int_equal(lane_push(c, from, to, sizes[i], context), 0);
            assert_int_equal(lane_notice(c, context), 0);
            told++;
            LANE_WAIT(&c->world, lane_count(&c->world.passive, SL_LANE_NOTICE) == told);
            assert_memory_equal(c->pushed.start + to, c->local.start + from, sizes[i]);
            assert_true(guarded(&c->pushed, to, sizes[i]));
            LANE_WAIT(&c->world, lane_answers(&c->world.active, SL_LANE_PUSHED, context, &code));
            assert_int_equal(code, 0);
        }
    assert_true(lane_holds(c->local.start, c->local.bytes, 2));
}

static void lane_pull__region_ends__first_and_last_byte(void **state)
{
    struct lane_case *c = *state;
    uint64_t last = c->pulled.bytes - 1;
    c->pulled.start[0] = 11;
    c->pulled.start[last] = 22;
    assert_int_equal(lane_pull(c, 0, 0, 1, 0), 0);
    assert_int_equal(lane_pull(c, c->local.bytes - 1, last, 1, 1), 0);
    LANE_WAIT(&c->world, lane_count(&c->world.active, SL_LANE_PULLED) == 2);
    lane_expect_answered(&c->world.active, 2, false);
    assert_int_equal(c->local.start[0], 11);
    assert_int_equal(c->local.start[c->local.bytes - 1], 22);
}

static void lane_both__one_region_pulled_and_pushed(void **state)
{
    struct lane_case *c = *state;
    struct lane_memory both;
    struct sl_err err;
    assert_int_equal(lane_memory_new(&both, c->world.client, 8192, SL_ACCESS_BOTH, &err), 0);
    lane_fill(c->local.start, 4096, 7);
    struct sl_lane *active = c->world.active.lane;
    assert_int_equal(
        sl_lane_push(active, lane_local(&c->local, 0), &both.region->remote, 4096, 4096, 0), 0);
    assert_int_equal(lane_notice(c, 0), 0);
    LANE_WAIT(&c->world, lane_count(&c->world.passive, SL_LANE_NOTICE) == 1);
    assert_int_equal(
        sl_lane_pull(active, lane_local(&c->local, 65536), &both.region->remote, 4096, 4096, 1), 0);
    LANE_WAIT(&c->world, lane_count(&c->world.active, SL_LANE_PULLED) == 1);
    lane_expect_answered(&c->world.active, 2, false);
    assert_true(lane_holds(c->local.start + 65536, 4096, 7));
    lane_end_free(&c->world, &c->world.active);
    lane_end_free(&c->world, &c->world.passive);
    lane_memory_free(&both);
}

static void lane_notice__many__in_order_and_whole(void **state)
{
    struct lane_case *c = *state;
    uint64_t posted = 0, total = lane_repeat(lane_fixture, 3000);
    while (posted < total) {
        int rc = 0;
        while (posted < total && (rc = lane_notice(c, posted)) == 0)
            posted++;
        assert_true(rc == 0 || rc == SL_ERR_BUSY);
        /* not all of them, so that some are always in flight */
        LANE_WAIT(&c->world, lane_count(&c->world.active, SL_LANE_NOTICED) + 3 > posted);
    }
    LANE_WAIT(&c->world, lane_count(&c->world.passive, SL_LANE_NOTICE) == total);
    uint64_t expected = 0;
    for (size_t i = 0; i < c->world.passive.count; i++)
        if (c->world.passive.events[i].kind == SL_LANE_NOTICE)
            assert_int_equal(lane_notice_number(&c->world.passive.events[i]), expected++);
    LANE_WAIT(&c->world, lane_count(&c->world.active, SL_LANE_NOTICED) == total);
}

static void lane_ready__is_the_passive_ends_first_event(void **state)
{
    struct lane_case *c = *state;
    LANE_WAIT(&c->world, c->world.passive.count > 0);
    assert_int_equal(c->world.passive.events[0].kind, SL_LANE_READY);
    assert_int_equal(lane_count(&c->world.passive, SL_LANE_READY), 1);
    assert_int_equal(lane_count(&c->world.active, SL_LANE_READY), 0);
}

/* Posts to the depth with pulls, pushes, or both in turn. */
static void fill_to_depth(struct lane_case *c, int kind)
{
    uint16_t depth = c->world.active.lane->depth;
    assert_true(depth >= 1);
    uint32_t piece = LANE_REGION_BYTES / 2 / depth;
    for (int round = 0; round < 5; round++) {
        c->world.active.count = 0;
        for (uint16_t i = 0; i < depth; i++) {
            bool pull = kind == 0 || (kind == 2 && i % 2);
            size_t at = (size_t)i * piece;
            assert_int_equal(pull ? lane_pull(c, at, at, piece, i) : lane_push(c, at, at, piece, i),
                             0);
        }
        assert_int_equal(lane_pull(c, 0, 0, 1, 999), SL_ERR_BUSY);
        assert_int_equal(lane_push(c, 0, 0, 1, 999), SL_ERR_BUSY);
        LANE_WAIT(&c->world, lane_count(&c->world.active, SL_LANE_PULLED) +
                                     lane_count(&c->world.active, SL_LANE_PUSHED) ==
                                 depth);
        lane_expect_answered(&c->world.active, depth, false);
    }
}

static void lane_pull__depth_reached__busy_then_recovers(void **state)
{
    fill_to_depth(*state, 0);
}

static void lane_push__depth_reached__busy_then_recovers(void **state)
{
    fill_to_depth(*state, 1);
}

static void lane_mixed__depth_reached__busy_then_recovers(void **state)
{
    fill_to_depth(*state, 2);
}

static void lane_notice__depth_reached__busy_then_recovers(void **state)
{
    struct lane_case *c = *state;
    uint16_t depth = c->world.active.lane->depth;
    for (uint64_t round = 1; round <= 5; round++) {
        for (uint16_t i = 0; i < depth; i++)
            assert_int_equal(lane_notice(c, i), 0);
        assert_int_equal(lane_notice(c, 0), SL_ERR_BUSY);
        /* notices do not count with pulls and pushes */
        assert_int_equal(lane_pull(c, 0, 0, 1, round), 0);
        LANE_WAIT(&c->world, lane_count(&c->world.active, SL_LANE_NOTICED) == round * depth);
        LANE_WAIT(&c->world, lane_count(&c->world.passive, SL_LANE_NOTICE) == round * depth);
    }
}

/* --- pushes, and the notices that tell of them ----------------------------------------------- */

#define SLOTS      4
#define SLOT_BYTES (LANE_REGION_BYTES / SLOTS)

struct told {
    struct lane_case *c;
    atomic_uint bytes[SLOTS]; /* atomic: a tool cannot see that the lane orders them */
    atomic_ullong seed[SLOTS];
    atomic_uint got;   /* notices */
    atomic_bool wrong; /* a notice came before its data */
};

/* In the passive end's thread, at the very time of the notice. */
static void check_slot(struct lane_end *end, const struct sl_lane_event *event)
{
    struct told *told = end->arg;
    if (event->kind != SL_LANE_NOTICE)
        return;
    uint64_t slot = lane_notice_number(event);
    if (slot >= SLOTS ||
        !lane_holds(told->c->pushed.start + slot * SLOT_BYTES, told->bytes[slot], told->seed[slot]))
        atomic_store(&told->wrong, true);
    atomic_fetch_add(&told->got, 1);
}

/* The slots are used in turn, so that SLOTS pushes and notices are in flight. Each push is cut in
 * two: the notice comes after both. */
static void push_slot(struct lane_case *c, struct told *told, uint64_t turn, uint64_t *random)
{
    uint64_t slot = turn % SLOTS;
    size_t at = slot * SLOT_BYTES;
    uint32_t bytes = (uint32_t)(2 + lane_random(random) % (turn % 7 ? 3000 : SLOT_BYTES - 2));
    uint32_t cut = (uint32_t)(1 + lane_random(random) % (bytes - 1));
    told->bytes[slot] = bytes;
    told->seed[slot] = turn + 1000;
    lane_fill(c->local.start + at, bytes, told->seed[slot]);
    assert_int_equal(lane_push(c, at, at, cut, turn), 0);
    assert_int_equal(lane_push(c, at + cut, at + cut, bytes - cut, turn), 0);
    assert_int_equal(lane_notice(c, slot), 0);
}

static void told_turns(struct lane_case *c, struct told *told, struct lane_end *const *ends,
                       size_t count)
{
    uint64_t turns = lane_repeat(lane_fixture, 1500), random = 42;
    if (c->world.active.lane->depth < 2 * SLOTS)
        skip();
    for (uint64_t turn = 0; turn < turns + SLOTS; turn++) {
        sl_deadline until = sl_deadline_in_ms(LANE_WAIT_MS);
        /* the slot's last user has come, and its two pushes were answered */
        while (turn >= SLOTS &&
               (atomic_load(&told->got) < turn - SLOTS + 1 ||
                lane_count(&c->world.active, SL_LANE_PUSHED) < 2 * (turn - SLOTS + 1))) {
            assert_false(sl_deadline_passed(until));
            lane_pump(ends, count, 1); /* short: the passive end may be another thread's */
        }
        if (turn < turns)
            push_slot(c, told, turn, &random);
    }
    assert_false(atomic_load(&told->wrong));
}

static void lane_notice__after_pushes__their_data_are_there(void **state)
{
    struct lane_case *c = *state;
    struct told told = {.c = c};
    c->world.passive.on_event = check_slot;
    c->world.passive.arg = &told;
    told_turns(c, &told, c->world.ends, c->world.end_count);
}

struct runner {
    struct lane_end *end;
    atomic_bool stop;
};

static void *run_end(void *arg)
{
    struct runner *runner = arg;
    while (!atomic_load(&runner->stop))
        lane_pump(&runner->end, 1, 5);
    return NULL;
}

static void lane_notice__ends_in_two_threads__their_data_are_there(void **state)
{
    struct lane_case *c = *state;
    struct told told = {.c = c};
    struct runner runner = {.end = &c->world.passive};
    pthread_t thread;
    c->world.passive.on_event = check_slot;
    c->world.passive.arg = &told;
    assert_int_equal(pthread_create(&thread, NULL, run_end, &runner), 0);
    struct lane_end *active = &c->world.active;
    told_turns(c, &told, &active, 1);
    atomic_store(&runner.stop, true);
    pthread_join(thread, NULL);
}

/* --- everything at random -------------------------------------------------------------------- */

static void lane_mixed__random_sizes_and_places__all_arrive(void **state)
{
    struct lane_case *c = *state;
    uint64_t random = 7, total = lane_repeat(lane_fixture, 1500), posted = 0;
    uint16_t depth = c->world.active.lane->depth;
    uint32_t piece = LANE_REGION_BYTES / 2 / depth;
    uint32_t *sizes_of = calloc(depth, sizeof *sizes_of);
    bool *is_pull = calloc(depth, sizeof *is_pull);
    assert_true(sizes_of && is_pull);
    c->world.active.max = 3; /* fewer than come at once */
    lane_fill(c->pulled.start, c->pulled.bytes, 3);
    /* rounds of `depth` works, each in its own piece of the memory, the first half of the target's
     * for pulls, the second for pushes */
    while (posted < total) {
        c->world.active.count = 0;
        for (uint16_t i = 0; i < depth; i++, posted++) {
            size_t at = (size_t)i * piece;
            is_pull[i] = lane_random(&random) % 2;
            sizes_of[i] = (uint32_t)(1 + lane_random(&random) % piece);
            if (!is_pull[i])
                lane_fill(c->local.start + LANE_REGION_BYTES / 2 + at, sizes_of[i], posted);
            assert_int_equal(is_pull[i]
                                 ? lane_pull(c, at, at, sizes_of[i], i)
                                 : lane_push(c, LANE_REGION_BYTES / 2 + at, at, sizes_of[i], i),
                             0);
        }
        assert_int_equal(lane_notice(c, posted), 0);
        c->world.passive.count = 0;
        LANE_WAIT(&c->world, lane_count(&c->world.passive, SL_LANE_NOTICE) &&
                                 lane_count(&c->world.active, SL_LANE_PULLED) +
                                         lane_count(&c->world.active, SL_LANE_PUSHED) ==
                                     depth);
        lane_expect_answered(&c->world.active, depth, false);
        for (uint16_t i = 0; i < depth; i++) {
            size_t at = (size_t)i * piece;
            assert_memory_equal(is_pull[i] ? c->local.start + at : c->pushed.start + at,
                                is_pull[i] ? c->pulled.start + at
                                           : c->local.start + LANE_REGION_BYTES / 2 + at,
                                sizes_of[i]);
        }
    }
    free(sizes_of);
    free(is_pull);
}

static void lane_info__tells_transport_depth_and_addresses(void **state)
{
    struct lane_case *c = *state;
    for (size_t i = 0; i < c->world.end_count; i++) {
        const struct sl_lane *lane = c->world.ends[i]->lane;
        struct sl_lane_info info;
        lane->ops->info(lane, &info);
        assert_string_not_equal(info.transport, "");
        assert_string_not_equal(info.local, "");
        assert_string_not_equal(info.remote, "");
        assert_int_equal(info.depth, lane->depth);
        assert_string_equal(lane->reason, "");
        assert_int_equal(lane->id, 1);
    }
}

static const struct CMUnitTest tests[] = {
    LANE_CASE(lane_ready__is_the_passive_ends_first_event),
    LANE_CASE(lane_info__tells_transport_depth_and_addresses),
    LANE_CASE(lane_pull__each_size__arrives_and_nothing_else),
    LANE_CASE(lane_push__each_size__arrives_and_nothing_else),
    LANE_CASE(lane_pull__region_ends__first_and_last_byte),
    LANE_CASE(lane_both__one_region_pulled_and_pushed),
    LANE_CASE(lane_notice__many__in_order_and_whole),
    LANE_CASE(lane_pull__depth_reached__busy_then_recovers),
    LANE_CASE(lane_push__depth_reached__busy_then_recovers),
    LANE_CASE(lane_mixed__depth_reached__busy_then_recovers),
    LANE_CASE(lane_notice__depth_reached__busy_then_recovers),
    LANE_CASE(lane_notice__after_pushes__their_data_are_there),
    LANE_CASE(lane_notice__ends_in_two_threads__their_data_are_there),
    LANE_CASE(lane_mixed__random_sizes_and_places__all_arrive),
};

const struct lane_tests lane_transfer_tests = {tests, sizeof tests / sizeof *tests};
