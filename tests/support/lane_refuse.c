/* Conformance: what is not the peer's to use is refused, malformed work is not posted, and failing
 * to register harms nothing. */
#include "tests/support/lane_conformance.h"

#include "core/base/fault.h"

#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define PATTERN_PULLED 101
#define PATTERN_PUSHED 102
#define PATTERN_LOCAL  103

static void fill_all(struct lane_case *c)
{
    lane_fill(c->pulled.start, c->pulled.bytes, PATTERN_PULLED);
    lane_fill(c->pushed.start, c->pushed.bytes, PATTERN_PUSHED);
    lane_fill(c->local.start, c->local.bytes, PATTERN_LOCAL);
}

static void expect_untouched(struct lane_case *c)
{
    assert_true(lane_holds(c->pulled.start, c->pulled.bytes, PATTERN_PULLED));
    assert_true(lane_holds(c->pushed.start, c->pushed.bytes, PATTERN_PUSHED));
    assert_true(lane_holds(c->local.start, c->local.bytes, PATTERN_LOCAL));
}

/* Posts the work alone, expects its failure, the lane's, and no byte changed. */
static void expect_denied(struct lane_case *c, bool is_pull, const struct sl_remote *memory,
                          uint64_t offset, uint32_t bytes)
{
    struct lane_world *w = &c->world;
    struct sl_lane *active = w->active.lane;
    int code = 0;
    fill_all(c);
    int rc = is_pull ? sl_lane_pull(active, lane_local(&c->local, 0), memory, offset, bytes, 5)
                     : sl_lane_push(active, lane_local(&c->local, 0), memory, offset, bytes, 5);
    assert_int_equal(rc, 0);
    LANE_WAIT(w, w->active.closed && w->passive.closed);
    assert_int_equal(lane_answers(&w->active, is_pull ? SL_LANE_PULLED : SL_LANE_PUSHED, 5, &code),
                     1);
    /* "pushed" says nothing of the peer: it may have come before the refusal */
    if (is_pull)
        assert_true(code < 0);
    if (!lane_fixture->vague) {
        assert_true(code == SL_ERR_DENIED || (!is_pull && code == 0));
        assert_int_equal(w->active.close_code, SL_ERR_DENIED);
    }
    assert_true(w->active.close_code < 0);
    assert_true(w->passive.close_code < 0);
    assert_string_not_equal(active->reason, "");
    assert_string_not_equal(w->passive.lane->reason, "");
    expect_untouched(c);
    assert_int_equal(lane_pull(c, 0, 0, 1, 6), SL_ERR_CLOSED);
}

static void renew(struct lane_case *c)
{
    struct sl_err err;
    lane_end_free(&c->world, &c->world.active);
    lane_end_free(&c->world, &c->world.passive);
    assert_int_equal(lane_pair(&c->world, LANE_DEPTH, &c->world.passive, &c->world.active, &err),
                     0);
}

static void ranges_outside(struct lane_case *c, bool is_pull)
{
    const struct sl_remote *real = is_pull ? &c->pulled.region->remote : &c->pushed.region->remote;
    const uint64_t size = real->length;
    const struct {
        uint64_t offset;
        uint32_t bytes;
    } outside[] = {
        {size, 1},
        {size - 1, 2},
        {size - 4096, 4097},
        {size - SL_SLOT_BYTES_MAX + 1, SL_SLOT_BYTES_MAX},
        {size + 4096, 4096},
        {1ull << 32, 16},
        {UINT64_MAX, 1},
        {UINT64_MAX - 7, 16},
        {0 - real->address, 16},     /* wraps to address 0 */
        {0 - real->address - 8, 16}, /* and around it */
    };
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        if (outside[i].offset < size && outside[i].offset + outside[i].bytes <= size)
            continue; /* not outside: this transport's addresses begin at 0 */
        struct sl_remote lie = *real;
        lie.length = UINT64_MAX; /* what the peer said it has does not decide */
        expect_denied(c, is_pull, i % 2 ? real : &lie, outside[i].offset, outside[i].bytes);
        renew(c);
    }
    struct sl_remote shifted = *real;
    shifted.address -= 1;
    expect_denied(c, is_pull, &shifted, 0, 1);
}

static void lane_pull__outside_the_region__denied(void **state)
{
    ranges_outside(*state, true);
}

static void lane_push__outside_the_region__denied(void **state)
{
    ranges_outside(*state, false);
}

static void wrong_keys(struct lane_case *c, bool is_pull)
{
    const struct sl_remote *real = is_pull ? &c->pulled.region->remote : &c->pushed.region->remote;
    const uint32_t changes[] = {1, 0x100, 0x80000000, real->key};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct sl_remote wrong = *real;
        wrong.key ^= changes[i]; /* the last: key 0 */
        expect_denied(c, is_pull, &wrong, 0, 4096);
        renew(c);
    }
}

static void lane_pull__wrong_key__denied(void **state)
{
    wrong_keys(*state, true);
}

static void lane_push__wrong_key__denied(void **state)
{
    wrong_keys(*state, false);
}

static void lane_pull__region_for_pushes__denied(void **state)
{
    struct lane_case *c = *state;
    if (lane_fixture->soft_iwarp)
        skip(); /* it serves READs of whatever is registered */
    expect_denied(c, true, &c->pushed.region->remote, 0, 4096);
}

static void lane_push__region_for_pulls__denied(void **state)
{
    struct lane_case *c = *state;
    expect_denied(c, false, &c->pulled.region->remote, 0, 4096);
}

static void local_region(struct lane_case *c, bool is_pull)
{
    struct lane_memory own;
    struct sl_err err;
    assert_int_equal(lane_memory_new(&own, c->world.client, 8192, SL_ACCESS_LOCAL, &err), 0);
    lane_fill(own.start, own.bytes, 9);
    struct sl_remote remote = own.region->remote;
    remote.length = own.bytes;
    expect_denied(c, is_pull, &remote, 0, 4096);
    assert_true(lane_holds(own.start, own.bytes, 9));
    lane_end_free(&c->world, &c->world.active);
    lane_end_free(&c->world, &c->world.passive);
    lane_memory_free(&own);
}

static void lane_pull__local_region__denied(void **state)
{
    if (lane_fixture->soft_iwarp)
        skip();
    local_region(*state, true);
}

static void lane_push__local_region__denied(void **state)
{
    struct lane_case *c = *state;
    if (c->world.client_rail->own_sink)
        skip(); /* iWARP: a sink of pulls is writable for the peer (lane.h) */
    local_region(c, false);
}

/* A key is good in its own domain only. */
static void lane_pull__region_of_another_domain__denied(void **state)
{
    struct lane_case *c = *state;
    struct sl_domain *other;
    struct lane_memory memory;
    struct sl_err err;
    assert_int_equal(c->world.client_rail->ops->domain_new(c->world.client_rail, &other, &err), 0);
    assert_int_equal(lane_memory_new(&memory, other, 8192, SL_ACCESS_BOTH, &err), 0);
    lane_fill(memory.start, memory.bytes, 9);
    expect_denied(c, true, &memory.region->remote, 0, 4096);
    renew(c);
    expect_denied(c, false, &memory.region->remote, 0, 4096);
    assert_true(lane_holds(memory.start, memory.bytes, 9));
    lane_memory_free(&memory);
    c->world.client_rail->ops->domain_free(other);
}

static void lane_pull__region_was_freed__denied(void **state)
{
    struct lane_case *c = *state;
    struct lane_memory memory;
    struct sl_err err;
    assert_int_equal(lane_memory_new(&memory, c->world.client, 8192, SL_ACCESS_BOTH, &err), 0);
    struct sl_remote remote = memory.region->remote;
    lane_memory_free(&memory);
    expect_denied(c, true, &remote, 0, 4096);
}

/* Other work in flight is answered too when one piece is refused. */
static void lane_pull__refused_among_others__each_answered_once(void **state)
{
    struct lane_case *c = *state;
    struct lane_world *w = &c->world;
    uint16_t depth = w->active.lane->depth, i = 0;
    uint32_t piece = LANE_REGION_BYTES / 2 / depth;
    int code;
    for (; i < depth / 2; i++)
        assert_int_equal(lane_pull(c, (size_t)i * piece, 0, piece, i), 0);
    uint16_t bad = i++;
    assert_int_equal(lane_pull(c, (size_t)bad * piece, LANE_REGION_BYTES, piece, bad), 0);
    for (; i < depth; i++) {
        int rc = lane_push(c, (size_t)i * piece, 0, piece, i);
        if (rc == SL_ERR_CLOSED)
            break; /* a transport that knows at once */
        assert_int_equal(rc, 0);
    }
    LANE_WAIT(w, w->active.closed && w->passive.closed);
    lane_expect_answered(&w->active, i, true);
    assert_int_equal(lane_answers(&w->active, SL_LANE_PULLED, bad, &code), 1);
    if (lane_fixture->vague)
        assert_true(code < 0);
    else
        assert_int_equal(code, SL_ERR_DENIED);
}

/* --- what is not posted at all --------------------------------------------------------------- */

static void lane_post__bad_length_or_place__limit_and_lane_usable(void **state)
{
    struct lane_case *c = *state;
    size_t size = c->local.bytes;
    assert_int_equal(lane_pull(c, 0, 0, 0, 1), SL_ERR_LIMIT);
    assert_int_equal(lane_push(c, 0, 0, 0, 1), SL_ERR_LIMIT);
    assert_int_equal(lane_pull(c, 0, 0, SL_SLOT_BYTES_MAX + 1, 1), SL_ERR_LIMIT);
    assert_int_equal(lane_push(c, 0, 0, SL_SLOT_BYTES_MAX + 1, 1), SL_ERR_LIMIT);
    assert_int_equal(lane_pull(c, 0, 0, UINT32_MAX, 1), SL_ERR_LIMIT);
    assert_int_equal(lane_pull(c, size - 10, 0, 11, 1), SL_ERR_LIMIT);
    assert_int_equal(lane_push(c, size - 10, 0, 11, 1), SL_ERR_LIMIT);
    assert_int_equal(lane_pull(c, size, 0, 1, 1), SL_ERR_LIMIT);
    assert_int_equal(lane_push(c, (size_t)0 - 4096, 0, 8192, 1), SL_ERR_LIMIT);
    assert_int_equal(lane_pull(c, 0, 0, 4096, 0), 0);
    LANE_WAIT(&c->world, lane_count(&c->world.active, SL_LANE_PULLED) == 1);
    lane_expect_answered(&c->world.active, 1, false);
    assert_false(c->world.active.closed);
}

static void lane_region__registration_fails__all_else_works(void **state)
{
#ifdef SLUICE_FAULTS
    struct lane_case *c = *state;
    struct lane_memory memory;
    struct sl_domain *const domains[] = {c->world.client, c->world.target_domain};
    for (size_t i = 0; i < 2; i++) {
        struct sl_err err = {0};
        assert_int_equal(sl_fault_set("transport.region:ENOMEM@1"), 0);
        int rc = lane_memory_new(&memory, domains[i], 65536, SL_ACCESS_BOTH, &err);
        sl_fault_set(NULL);
        assert_true(rc < 0);
        assert_int_equal(err.code, rc);
        assert_string_not_equal(err.msg, "");
        /* the lane does not notice, and the next registration succeeds */
        assert_int_equal(lane_pull(c, 0, 0, 4096, i), 0);
        LANE_WAIT(&c->world, lane_count(&c->world.active, SL_LANE_PULLED) == i + 1);
        assert_int_equal(lane_memory_new(&memory, domains[i], 65536, SL_ACCESS_LOCAL, &err), 0);
        lane_memory_free(&memory);
    }
    lane_expect_answered(&c->world.active, 2, false);
#else
    (void)state;
    skip();
#endif
}

/* --- connecting ------------------------------------------------------------------------------ */

static void lane_connect__refused_by_the_target__fails_and_next_works(void **state)
{
    struct lane_case *c = *state;
    struct lane_end passive, active;
    struct sl_err err = {0};
    if (lane_fixture->pair)
        skip();
    uint16_t next = c->world.next_id;
    c->world.next_id = LANE_ID_REFUSED;
    sl_deadline until = sl_deadline_in_ms(LANE_WAIT_MS / 2);
    assert_true(lane_pair(&c->world, LANE_DEPTH, &passive, &active, &err) < 0);
    assert_false(sl_deadline_passed(until)); /* told, not timed out */
    c->world.next_id = next;
    assert_int_equal(lane_pair(&c->world, LANE_DEPTH, &passive, &active, &err), 0);
    assert_int_equal(active.lane->id, next);
    lane_end_free(&c->world, &passive);
    lane_end_free(&c->world, &active);
}

static void lane_connect__target_does_not_answer__fails_at_the_deadline(void **state)
{
    struct lane_case *c = *state;
    struct sl_lane *lane;
    struct sl_err err = {0};
    if (lane_fixture->pair)
        skip();
    uint64_t begin = sl_now_ns();
    int rc =
        lane_connect(c->world.client_rail, c->world.client, lane_fixture, c->world.target->port, 77,
                     LANE_DEPTH, sl_deadline_in_ms(300), &lane, &err);
    assert_true(rc < 0);
    assert_string_not_equal(err.msg, "");
    assert_true(sl_now_ns() - begin < 5 * SL_NS_PER_S);
}

static void lane_connect__cancelled_while_it_waits__at_once(void **state)
{
    struct lane_case *c = *state;
    struct sl_lane *lane;
    struct sl_err err = {0};
    if (lane_fixture->pair)
        skip();
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    struct itimerspec soon = {.it_value.tv_nsec = 200 * 1000 * 1000};
    assert_int_equal(timerfd_settime(timer, 0, &soon, NULL), 0);
    sl_deadline deadline = sl_deadline_in_ms(LANE_WAIT_MS);
    lane_cancel_fd = timer;
    int rc = lane_connect(c->world.client_rail, c->world.client, lane_fixture,
                          c->world.target->port, 77, LANE_DEPTH, deadline, &lane, &err);
    lane_cancel_fd = 0;
    close(timer);
    assert_int_equal(rc, SL_ERR_CANCELLED);
    assert_int_equal(err.code, SL_ERR_CANCELLED);
    assert_false(sl_deadline_passed(deadline));
}

static void lane_connect__nobody_listens__fails(void **state)
{
    struct lane_case *c = *state;
    struct sl_rail *rail;
    struct sl_lane *lane;
    struct sl_err err = {0};
    if (lane_fixture->pair)
        skip();
    /* port 1 (tcpmux): nobody serves it on a test's machine */
    const struct sl_connect to = {.host = lane_fixture->host,
                                  .port = "1",
                                  .deadline = sl_deadline_in_ms(LANE_WAIT_MS),
                                  .traffic_class = -1};
    struct sl_domain *domain;
    assert_int_equal(lane_fixture->rail->resolve(&to, &rail, &err), 0);
    assert_int_equal(rail->ops->domain_new(rail, &domain, &err), 0);
    int rc =
        lane_connect(rail, domain, lane_fixture, "1", 77, LANE_DEPTH, to.deadline, &lane, &err);
    assert_true(rc < 0);
    assert_false(sl_deadline_passed(to.deadline));
    assert_non_null(strstr(err.msg, lane_fixture->host));
    rail->ops->domain_free(domain);
    rail->ops->rail_free(rail);
    (void)c;
}

static const struct CMUnitTest tests[] = {
    LANE_CASE(lane_pull__outside_the_region__denied),
    LANE_CASE(lane_push__outside_the_region__denied),
    LANE_CASE(lane_pull__wrong_key__denied),
    LANE_CASE(lane_push__wrong_key__denied),
    LANE_CASE(lane_pull__region_for_pushes__denied),
    LANE_CASE(lane_push__region_for_pulls__denied),
    LANE_CASE(lane_pull__local_region__denied),
    LANE_CASE(lane_push__local_region__denied),
    LANE_CASE(lane_pull__region_of_another_domain__denied),
    LANE_CASE(lane_pull__region_was_freed__denied),
    LANE_CASE(lane_pull__refused_among_others__each_answered_once),
    LANE_CASE(lane_post__bad_length_or_place__limit_and_lane_usable),
    LANE_CASE(lane_region__registration_fails__all_else_works),
    LANE_CASE(lane_connect__refused_by_the_target__fails_and_next_works),
    LANE_CASE(lane_connect__target_does_not_answer__fails_at_the_deadline),
    LANE_CASE(lane_connect__cancelled_while_it_waits__at_once),
    LANE_CASE(lane_connect__nobody_listens__fails),
};

const struct lane_tests lane_refuse_tests = {tests, sizeof tests / sizeof *tests};
