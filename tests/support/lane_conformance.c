/* The conformance suite's frame: the case's world, the list of all cases, main. */
#include "tests/support/lane_conformance.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct lane_fixture *lane_fixture;

int lane_case_open(struct lane_case *c, struct sl_err *err)
{
    struct lane_world *w = &c->world;
    int rc = lane_world_open(w, lane_fixture, LANE_DEPTH, err);
    if (!rc)
        rc = lane_pair(w, LANE_DEPTH, &w->passive, &w->active, err);
    if (!rc)
        rc = lane_memory_new(&c->pulled, w->client, LANE_REGION_BYTES, SL_ACCESS_PULLED, err);
    if (!rc)
        rc = lane_memory_new(&c->pushed, w->client, LANE_REGION_BYTES, SL_ACCESS_PUSHED, err);
    if (!rc)
        rc = lane_memory_new(&c->local, w->target_domain, LANE_REGION_BYTES, SL_ACCESS_LOCAL, err);
    return rc;
}

bool lane_case_close(struct lane_case *c)
{
    bool broken = false;
    for (size_t i = 0; i < c->world.end_count; i++)
        broken |= c->world.ends[i]->broken;
    /* lanes first: memory may be in use until they are gone */
    while (c->world.end_count)
        lane_end_free(&c->world, c->world.ends[0]);
    lane_memory_free(&c->pulled);
    lane_memory_free(&c->pushed);
    lane_memory_free(&c->local);
    lane_world_close(&c->world);
    return !broken;
}

int lane_case_setup(void **state)
{
    struct sl_err err = {0};
    struct lane_case *c = calloc(1, sizeof *c);
    *state = c;
    int rc = c ? lane_case_open(c, &err) : SL_ERR_NO_MEMORY;
    if (rc)
        print_error("setup: %s\n", err.msg);
    return rc;
}

int lane_case_teardown(void **state)
{
    struct lane_case *c = *state;
    bool sane = !c || lane_case_close(c);
    free(c);
    if (!sane)
        print_error("an event came after SL_LANE_CLOSED, or more than asked for\n");
    return sane ? 0 : -1;
}

int lane_pull(struct lane_case *c, size_t to, uint64_t offset, uint32_t bytes, uint64_t context)
{
    return sl_lane_pull(c->world.active.lane, lane_local(&c->local, to), &c->pulled.region->remote,
                        offset, bytes, context);
}

int lane_push(struct lane_case *c, size_t from, uint64_t offset, uint32_t bytes, uint64_t context)
{
    return sl_lane_push(c->world.active.lane, lane_local(&c->local, from),
                        &c->pushed.region->remote, offset, bytes, context);
}

int lane_notice(struct lane_case *c, uint64_t number)
{
    uint8_t bytes[SL_NOTICE_BYTES];
    struct sl_writer w = sl_writer_on(bytes, sizeof bytes);
    sl_write_u64(&w, number);
    sl_write_u64(&w, ~number);
    return sl_lane_notice(c->world.active.lane, bytes);
}

/* UINT64_MAX if the notice was not made by lane_notice(). */
uint64_t lane_notice_number(const struct sl_lane_event *event)
{
    struct sl_reader r = sl_reader_on(event->notice, SL_NOTICE_BYTES);
    uint64_t number = sl_read_u64(&r);
    return sl_read_u64(&r) == ~number ? number : UINT64_MAX;
}

void lane_expect_answered(const struct lane_end *active, uint64_t count, bool may_fail)
{
    for (uint64_t context = 0; context < count; context++) {
        int code = 0;
        size_t times = lane_answers(active, SL_LANE_PULLED, context, &code) +
                       lane_answers(active, SL_LANE_PUSHED, context, &code);
        if (times != 1)
            fail_msg("work %llu was answered %zu times", (unsigned long long)context, times);
        if (code && (!may_fail || code > 0))
            fail_msg("work %llu: code %s", (unsigned long long)context, sl_code_name(code));
    }
}

int lane_conformance_main(int argc, char **argv, const struct lane_fixture *fixture,
                          const struct CMUnitTest *extra, size_t extra_count)
{
    lane_fixture = fixture;
    if (argc > 1 && !strcmp(argv[1], "--peer"))
        /* leaves without tidying up, as processes do */
        _exit(lane_peer_main(argc - 2, argv + 2));
    signal(SIGPIPE, SIG_IGN);
    const struct lane_tests own = {extra, extra_count};
    const struct lane_tests *const parts[] = {&lane_transfer_tests, &lane_refuse_tests,
                                              &lane_close_tests,    &lane_peer_tests,
                                              &lane_torture_tests,  &own};
    size_t count = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        count += parts[i]->count;
    struct CMUnitTest *all = calloc(count, sizeof *all), *at = all;
    if (!all)
        return 1;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i]->count)
            at = (struct CMUnitTest *)memcpy(at, parts[i]->tests, parts[i]->count * sizeof *all) +
                 parts[i]->count;
    if (getenv("LANE_TESTS"))
        cmocka_set_test_filter(getenv("LANE_TESTS"));
    int failed = _cmocka_run_group_tests(fixture->name, all, count, NULL, NULL);
    free(all);
    return failed > 0;
}
