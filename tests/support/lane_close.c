/* Conformance: closing and freeing, by either end, in any state, with work in flight: everything
 * posted is answered once, SL_LANE_CLOSED comes last, no memory is touched after it, nothing leaks.
 */
#include "tests/support/lane_conformance.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define GUARD  0x5a
#define REASON "closed by the test"

struct posted {
    uint64_t works;
    size_t notices;
};

/* As much as the depth allows: pulls, pushes and notices in turn. */
static struct posted post_all(struct lane_case *c)
{
    struct posted posted = {0};
    uint16_t depth = c->world.active.lane->depth;
    uint32_t piece = LANE_REGION_BYTES / depth;
    for (uint16_t i = 0; i < depth; i++) {
        size_t at = (size_t)i * piece;
        assert_int_equal(i % 2 ? lane_push(c, at, at, piece, i) : lane_pull(c, at, at, piece, i),
                         0);
        if (i % 2)
            assert_int_equal(lane_notice(c, i), 0);
        posted.works++;
        posted.notices += i % 2;
    }
    return posted;
}

/* `close_code` is the own one, or what the loss of the peer should show as. */
static void expect_all_answered(const struct lane_world *w, struct posted posted, int close_code)
{
    lane_expect_answered(&w->active, posted.works, true);
    assert_int_equal(lane_count(&w->active, SL_LANE_NOTICED), posted.notices);
    assert_int_equal(lane_count(&w->active, SL_LANE_CLOSED), 1);
    assert_int_equal(w->active.events[w->active.count - 1].kind, SL_LANE_CLOSED);
    if (!lane_fixture->vague)
        assert_int_equal(w->active.close_code, close_code);
    assert_true(w->active.close_code < 0);
    assert_string_not_equal(w->active.lane->reason, "");
}

static void renew(struct lane_case *c)
{
    struct sl_err err;
    lane_end_free(&c->world, &c->world.active);
    lane_end_free(&c->world, &c->world.passive);
    assert_int_equal(lane_pair(&c->world, LANE_DEPTH, &c->world.passive, &c->world.active, &err),
                     0);
}

static void expect_guarded(const struct lane_memory *memory)
{
    if (!lane_all(memory->start, memory->bytes, GUARD))
        fail_msg("memory was touched after SL_LANE_CLOSED");
}

static void progress(struct lane_case *c, int steps)
{
    c->world.active.max = 1;
    for (int i = 0; i < steps; i++)
        lane_pump(c->world.ends, c->world.end_count, 5);
}

#define STEPS 8

static void lane_close__active_with_work__each_answered_once(void **state)
{
    struct lane_case *c = *state;
    struct lane_world *w = &c->world;
    for (int steps = 0; steps < STEPS; steps++) {
        struct lane_end *active = &w->active, *passive = &w->passive;
        struct posted posted = post_all(c);
        progress(c, steps);
        sl_lane_close(active->lane, SL_ERR_CANCELLED, REASON);
        sl_lane_close(active->lane, SL_ERR_TIMEOUT, "the first reason stays");
        assert_int_equal(lane_pull(c, 0, 0, 1, 999), SL_ERR_CLOSED);
        assert_int_equal(lane_push(c, 0, 0, 1, 999), SL_ERR_CLOSED);
        assert_int_equal(lane_notice(c, 999), SL_ERR_CLOSED);
        sl_deadline until = sl_deadline_in_ms(LANE_WAIT_MS);
        while (!active->closed && !sl_deadline_passed(until))
            lane_pump(&active, 1, 20); /* needs nothing of the peer */
        expect_all_answered(w, posted, SL_ERR_CANCELLED);
        assert_string_equal(active->lane->reason, REASON);
        /* the peer still serves what had been asked */
        memset(c->local.start, GUARD, c->local.bytes);
        LANE_WAIT(w, passive->closed);
        assert_true(passive->close_code < 0);
        assert_string_not_equal(passive->lane->reason, "");
        expect_guarded(&c->local);
        renew(c);
    }
}

static void lane_close__passive_with_work__each_answered_once(void **state)
{
    struct lane_case *c = *state;
    struct lane_world *w = &c->world;
    for (int steps = 0; steps < STEPS; steps++) {
        struct lane_end *passive = &w->passive;
        struct posted posted = post_all(c);
        progress(c, steps);
        sl_lane_close(passive->lane, SL_ERR_CANCELLED, REASON);
        sl_lane_close(passive->lane, SL_ERR_TIMEOUT, "the first reason stays");
        sl_deadline until = sl_deadline_in_ms(LANE_WAIT_MS);
        while (!passive->closed && !sl_deadline_passed(until))
            lane_pump(&passive, 1, 20);
        assert_true(passive->closed);
        assert_int_equal(passive->close_code, SL_ERR_CANCELLED);
        assert_string_equal(passive->lane->reason, REASON);
        memset(c->pulled.start, GUARD, c->pulled.bytes);
        memset(c->pushed.start, GUARD, c->pushed.bytes);
        LANE_WAIT(w, w->active.closed);
        expect_all_answered(w, posted, SL_ERR_CLOSED);
        expect_guarded(&c->pushed);
        renew(c);
    }
}

/* The same, but the memory is gone: a touch is seen by AddressSanitizer, or crashes. */
static void lane_close__memory_freed_at_once__not_touched(void **state)
{
    struct lane_case *c = *state;
    struct lane_world *w = &c->world;
    struct sl_err err;
    for (int steps = 0; steps < STEPS; steps++) {
        bool by_passive = steps % 2;
        struct lane_end *end = by_passive ? &w->passive : &w->active;
        struct lane_memory *memory = by_passive ? &c->pushed : &c->local;
        struct sl_domain *domain = by_passive ? w->client : w->target_domain;
        post_all(c);
        progress(c, steps / 2);
        sl_lane_close(end->lane, SL_ERR_CANCELLED, REASON);
        while (!end->closed)
            lane_pump(&end, 1, 20);
        lane_memory_free(memory);
        LANE_WAIT(w, w->active.closed && w->passive.closed);
        assert_int_equal(lane_memory_new(memory, domain, LANE_REGION_BYTES,
                                         by_passive ? SL_ACCESS_PUSHED : SL_ACCESS_LOCAL, &err),
                         0);
        renew(c);
    }
}

static void lane_close__both_ends_at_once__both_closed(void **state)
{
    struct lane_case *c = *state;
    struct posted posted = post_all(c);
    sl_lane_close(c->world.passive.lane, SL_ERR_CANCELLED, REASON);
    sl_lane_close(c->world.active.lane, SL_ERR_TIMEOUT, REASON);
    LANE_WAIT(&c->world, c->world.active.closed && c->world.passive.closed);
    lane_expect_answered(&c->world.active, posted.works, true);
    assert_true(c->world.active.close_code < 0 && c->world.passive.close_code < 0);
}

static void lane_close__idle_and_before_any_event__closed(void **state)
{
    struct lane_case *c = *state;
    for (int i = 0; i < 4; i++) {
        struct lane_end *end = i % 2 ? &c->world.active : &c->world.passive;
        if (i > 1)
            LANE_WAIT(&c->world, c->world.passive.count > 0); /* READY was seen */
        sl_lane_close(end->lane, SL_ERR_CANCELLED, REASON);
        LANE_WAIT(&c->world, c->world.active.closed && c->world.passive.closed);
        assert_int_equal(end->close_code, SL_ERR_CANCELLED);
        /* stays closed, and quiet */
        sl_lane_close(end->lane, SL_ERR_TIMEOUT, "again");
        lane_process(&c->world.active);
        lane_process(&c->world.passive);
        assert_int_equal(lane_count(end, SL_LANE_CLOSED), 1);
        assert_string_equal(end->lane->reason, REASON);
        renew(c);
    }
}

static void lane_close__after_completion__peer_has_it_all(void **state)
{
    struct lane_case *c = *state;
    struct lane_world *w = &c->world;
    lane_fill(c->pulled.start, c->pulled.bytes, 4);
    struct posted posted = post_all(c);
    LANE_WAIT(w,
              lane_count(&w->passive, SL_LANE_NOTICE) == posted.notices &&
                  lane_count(&w->active, SL_LANE_NOTICED) == posted.notices &&
                  lane_count(&w->active, SL_LANE_PULLED) + lane_count(&w->active, SL_LANE_PUSHED) ==
                      posted.works);
    lane_expect_answered(&w->active, posted.works, false);
    sl_lane_close(w->active.lane, SL_ERR_CLOSED, REASON);
    LANE_WAIT(w, w->active.closed && w->passive.closed);
    expect_all_answered(w, posted, SL_ERR_CLOSED);
}

static void lane_free__any_state__peer_closes(void **state)
{
    struct lane_case *c = *state;
    struct lane_world *w = &c->world;
    struct sl_err err;
    for (int i = 0; i < 4 * STEPS; i++) {
        bool by_passive = i % 2, close_first = i % 4 > 1;
        struct lane_end *end = by_passive ? &w->passive : &w->active;
        struct lane_end *peer = by_passive ? &w->active : &w->passive;
        struct lane_memory *memory = by_passive ? &c->pushed : &c->local;
        struct posted posted = post_all(c);
        progress(c, i / 4);
        if (close_first)
            sl_lane_close(end->lane, SL_ERR_CANCELLED, REASON);
        lane_end_free(w, end);
        lane_memory_free(memory);
        LANE_WAIT(w, peer->closed);
        if (by_passive)
            expect_all_answered(w, posted, SL_ERR_CLOSED);
        lane_end_free(w, peer);
        assert_int_equal(lane_memory_new(memory, by_passive ? w->client : w->target_domain,
                                         LANE_REGION_BYTES,
                                         by_passive ? SL_ACCESS_PUSHED : SL_ACCESS_LOCAL, &err),
                         0);
        assert_int_equal(lane_pair(w, LANE_DEPTH, &w->passive, &w->active, &err), 0);
    }
    sl_lane_free(NULL);
}

static void lane_free__both_with_work__no_trace(void **state)
{
    struct lane_case *c = *state;
    for (int steps = 0; steps < STEPS; steps++) {
        post_all(c);
        progress(c, steps);
        renew(c);
    }
}

/* --- several lanes --------------------------------------------------------------------------- */

static void lane_two__one_closes__other_goes_on(void **state)
{
    struct lane_case *c = *state;
    struct lane_world *w = &c->world;
    struct lane_end passive, active;
    struct sl_err err;
    assert_int_equal(lane_pair(w, LANE_DEPTH, &passive, &active, &err), 0);
    assert_int_not_equal(active.lane->id, w->active.lane->id);
    lane_fill(c->pulled.start, c->pulled.bytes, 5);
    struct posted posted = post_all(c);
    for (uint64_t i = 0; i < 50; i++) {
        memset(c->local.start, 0, 4096);
        assert_int_equal(sl_lane_pull(active.lane, lane_local(&c->local, 0),
                                      &c->pulled.region->remote, i * 4096, 4096, i),
                         0);
        if (i == 10)
            sl_lane_close(w->active.lane, SL_ERR_CANCELLED, REASON);
        LANE_WAIT(w, lane_count(&active, SL_LANE_PULLED) == i + 1);
        if (i > 10) {
            LANE_WAIT(w, w->active.closed && w->passive.closed);
            assert_memory_equal(c->local.start, c->pulled.start + i * 4096, 4096);
        }
    }
    expect_all_answered(w, posted, SL_ERR_CANCELLED);
    lane_expect_answered(&active, 50, false);
    assert_false(active.closed || passive.closed);
    lane_end_free(w, &active);
    lane_end_free(w, &passive);
}

struct hammer {
    struct lane_case *c;
    struct lane_end passive, active;
    size_t at;
    atomic_bool stop;
    atomic_uint failed;
};

static void *serve(void *arg)
{
    struct hammer *hammer = arg;
    struct lane_end *end = &hammer->passive;
    while (!atomic_load(&hammer->stop))
        lane_pump(&end, 1, 5);
    return NULL;
}

/* Pulls what was pushed, for ever the same place of the memory: the lane's own. */
static void *work(void *arg)
{
    struct hammer *hammer = arg;
    struct lane_end *end = &hammer->active;
    struct lane_case *c = hammer->c;
    unsigned rounds = lane_repeat(lane_fixture, 200);
    for (unsigned i = 0; i < rounds; i++) {
        sl_deadline until = sl_deadline_in_ms(LANE_WAIT_MS);
        struct sl_local local = lane_local(&c->local, hammer->at);
        lane_fill(local.start, 65536, i);
        end->count = 0;
        bool ok =
            !sl_lane_push(end->lane, local, &c->pushed.region->remote, hammer->at, 65536, 0) &&
            !sl_lane_pull(end->lane, lane_local(&c->local, hammer->at + 65536),
                          &c->pulled.region->remote, hammer->at, 65536, 1);
        while (ok && end->count < 2 && !sl_deadline_passed(until))
            lane_pump(&end, 1, 20);
        ok = ok && end->count == 2 && !end->events[0].code && !end->events[1].code &&
             lane_holds(c->local.start + hammer->at + 65536, 65536, hammer->at);
        if (!ok)
            atomic_fetch_add(&hammer->failed, 1);
    }
    return NULL;
}

#define HAMMERS 2

static void lane_several__each_end_in_its_own_thread(void **state)
{
    struct lane_case *c = *state;
    struct sl_err err;
    struct hammer hammers[HAMMERS] = {0};
    pthread_t threads[2 * HAMMERS];
    for (size_t i = 0; i < HAMMERS; i++) {
        struct hammer *hammer = &hammers[i];
        hammer->c = c;
        hammer->at = i * 262144;
        lane_fill(c->pulled.start + hammer->at, 65536, hammer->at);
        assert_int_equal(lane_pair(&c->world, LANE_DEPTH, &hammer->passive, &hammer->active, &err),
                         0);
    }
    for (size_t i = 0; i < HAMMERS; i++) {
        assert_int_equal(pthread_create(&threads[2 * i], NULL, serve, &hammers[i]), 0);
        assert_int_equal(pthread_create(&threads[2 * i + 1], NULL, work, &hammers[i]), 0);
    }
    /* regions come and go meanwhile, as sessions' do */
    for (int i = 0; i < 50; i++) {
        struct lane_memory memory;
        assert_int_equal(lane_memory_new(&memory, c->world.client, 4096, SL_ACCESS_BOTH, &err), 0);
        lane_memory_free(&memory);
    }
    for (size_t i = 0; i < HAMMERS; i++) {
        pthread_join(threads[2 * i + 1], NULL);
        atomic_store(&hammers[i].stop, true);
        pthread_join(threads[2 * i], NULL);
        assert_int_equal(atomic_load(&hammers[i].failed), 0);
        lane_end_free(&c->world, &hammers[i].active);
        lane_end_free(&c->world, &hammers[i].passive);
    }
}

/* The passive end closes from its own thread, and its memory is freed at once, while the active end
 * posts without pause. */
static void *close_and_free(void *arg)
{
    struct lane_case *c = arg;
    struct lane_end *end = &c->world.passive;
    nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
    sl_lane_close(end->lane, SL_ERR_CANCELLED, REASON);
    while (!end->closed)
        lane_pump(&end, 1, 20);
    lane_memory_free(&c->pulled);
    lane_memory_free(&c->pushed);
    return NULL;
}

static void lane_close__passive_in_its_thread_while_active_posts(void **state)
{
    struct lane_case *c = *state;
    struct lane_world *w = &c->world;
    struct sl_err err;
    for (unsigned round = 0; round < lane_repeat(lane_fixture, 40); round++) {
        /* what to name is told once, as MEMORY does */
        const struct sl_remote pulled = c->pulled.region->remote, pushed = c->pushed.region->remote;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, close_and_free, c), 0);
        struct lane_end *active = &w->active;
        uint64_t posted = 0;
        sl_deadline until = sl_deadline_in_ms(LANE_WAIT_MS);
        while (!active->closed && !sl_deadline_passed(until)) {
            size_t at = posted % 4 * 262144;
            int rc = posted % 2 ? sl_lane_pull(active->lane, lane_local(&c->local, at), &pulled, at,
                                               262144, posted)
                                : sl_lane_push(active->lane, lane_local(&c->local, at), &pushed, at,
                                               262144, posted);
            posted += rc == 0;
            assert_true(rc == 0 || rc == SL_ERR_BUSY || rc == SL_ERR_CLOSED);
            lane_pump(&active, 1, rc ? 20 : 0);
        }
        pthread_join(thread, NULL);
        assert_true(active->closed);
        lane_expect_answered(active, posted, true);
        assert_int_equal(
            lane_memory_new(&c->pulled, w->client, LANE_REGION_BYTES, SL_ACCESS_PULLED, &err), 0);
        assert_int_equal(
            lane_memory_new(&c->pushed, w->client, LANE_REGION_BYTES, SL_ACCESS_PUSHED, &err), 0);
        renew(c);
    }
}

static void lane_many_cycles__no_descriptor_leaks(void **state)
{
    struct lane_case *c = *state;
    struct lane_world *w = &c->world;
    renew(c); /* what is opened once, is open now */
    size_t before = lane_open_fds();
    for (unsigned i = 0; i < lane_repeat(lane_fixture, 1000); i++) {
        w->next_id = 1; /* the number is the session's business */
        renew(c);
        assert_int_equal(lane_pull(c, 0, 0, 4096, 0), 0);
        if (i % 4)
            LANE_WAIT(w, lane_count(&w->active, SL_LANE_PULLED) == 1);
        if (i % 3 == 0)
            sl_lane_close(w->active.lane, SL_ERR_CANCELLED, REASON);
    }
    renew(c);
    assert_int_equal(lane_open_fds(), before);
}

static const struct CMUnitTest tests[] = {
    LANE_CASE(lane_close__active_with_work__each_answered_once),
    LANE_CASE(lane_close__passive_with_work__each_answered_once),
    LANE_CASE(lane_close__memory_freed_at_once__not_touched),
    LANE_CASE(lane_close__both_ends_at_once__both_closed),
    LANE_CASE(lane_close__idle_and_before_any_event__closed),
    LANE_CASE(lane_close__after_completion__peer_has_it_all),
    LANE_CASE(lane_free__any_state__peer_closes),
    LANE_CASE(lane_free__both_with_work__no_trace),
    LANE_CASE(lane_two__one_closes__other_goes_on),
    LANE_CASE(lane_several__each_end_in_its_own_thread),
    LANE_CASE(lane_close__passive_in_its_thread_while_active_posts),
    LANE_CASE(lane_many_cycles__no_descriptor_leaks),
};

const struct lane_tests lane_close_tests = {tests, sizeof tests / sizeof *tests};
