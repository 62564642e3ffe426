/* What lanes cost: pulls or pushes of whole blocks between two threads of this process, memory to
 * memory, over a number of lanes. One thread drives the client's ends, one the target's; each walks
 * through its own 64 MiB, so that data come from memory and not from cache.
 *
 *     bench_lanes loopback|tcp pull|push LANES MEGABYTES
 *
 * Prints the rate and the CPU seconds of either side. Not a test: nothing is compared. (The
 * contents are what the conformance suite checks.) */
#include "tests/support/lane_fixtures.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_BYTES ((size_t)64 << 20)
#define BLOCK_BYTES  SL_SLOT_BYTES_MAX

struct side {
    struct lane_end *ends[LANE_ENDS_MAX];
    size_t count;
    double cpu_s;
};

static struct {
    struct lane_world world;
    struct lane_end passive[LANE_ENDS_MAX], active[LANE_ENDS_MAX];
    struct lane_memory theirs, ours;
    struct side client, target;
    bool is_pull;
    uint64_t blocks, posted, done;
    atomic_bool stop;
    double wall_s;
} bench;

static int fail(const char *what, const struct sl_err *err)
{
    fprintf(stderr, "bench_lanes: %s: %s\n", what, err->msg);
    return 1;
}

static void forget_events(struct side *side)
{
    for (size_t i = 0; i < side->count; i++)
        side->ends[i]->count = 0;
}

static void *run_client(void *arg)
{
    (void)arg;
    uint64_t begin = sl_thread_cpu_ns();
    while (!atomic_load(&bench.stop)) {
        lane_pump(bench.client.ends, bench.client.count, 50);
        forget_events(&bench.client);
    }
    bench.client.cpu_s = (double)(sl_thread_cpu_ns() - begin) / SL_NS_PER_S;
    return NULL;
}

static void on_event(struct lane_end *end, const struct sl_lane_event *event)
{
    (void)end;
    if (event->kind == SL_LANE_CLOSED || event->code) {
        fprintf(stderr, "bench_lanes: lane lost: %s\n", end->lane->reason);
        exit(1);
    }
    bench.done++;
}

static void post(struct sl_lane *lane)
{
    for (int rc = 0; !rc && bench.posted < bench.blocks;) {
        size_t at = bench.posted * BLOCK_BYTES % MEMORY_BYTES;
        const struct sl_remote *memory = &bench.theirs.region->remote;
        rc = bench.is_pull
                 ? sl_lane_pull(lane, lane_local(&bench.ours, at), memory, at, BLOCK_BYTES, 0)
                 : sl_lane_push(lane, lane_local(&bench.ours, at), memory, at, BLOCK_BYTES, 0);
        bench.posted += rc == 0;
    }
}

static void *run_target(void *arg)
{
    (void)arg;
    uint64_t begin = sl_thread_cpu_ns(), wall = sl_now_ns();
    while (bench.done < bench.blocks) {
        for (size_t i = 0; i < bench.target.count; i++)
            post(bench.target.ends[i]->lane);
        lane_pump(bench.target.ends, bench.target.count, 50);
        forget_events(&bench.target);
    }
    bench.wall_s = (double)(sl_now_ns() - wall) / SL_NS_PER_S;
    bench.target.cpu_s = (double)(sl_thread_cpu_ns() - begin) / SL_NS_PER_S;
    atomic_store(&bench.stop, true);
    return NULL;
}

static int open_lanes(const struct lane_fixture *fixture, size_t lanes)
{
    struct sl_err err;
    struct lane_world *w = &bench.world;
    if (lane_world_open(w, fixture, LANE_DEPTH, &err))
        return fail("open", &err);
    for (size_t i = 0; i < lanes; i++) {
        if (lane_pair(w, LANE_DEPTH, &bench.passive[i], &bench.active[i], &err))
            return fail("lane", &err);
        bench.client.ends[bench.client.count++] = &bench.passive[i];
        bench.target.ends[bench.target.count++] = &bench.active[i];
        bench.active[i].on_event = on_event;
    }
    if (lane_memory_new(&bench.theirs, w->client, MEMORY_BYTES, SL_ACCESS_BOTH, &err) ||
        lane_memory_new(&bench.ours, w->target_domain, MEMORY_BYTES, SL_ACCESS_LOCAL, &err))
        return fail("memory", &err);
    lane_fill(bench.theirs.start, MEMORY_BYTES, 1);
    lane_fill(bench.ours.start, MEMORY_BYTES, 2);
    return 0;
}

int main(int argc, char **argv)
{
    const size_t lanes = argc == 5 ? strtoul(argv[3], NULL, 10) : 0;
    if (lanes < 1 || lanes > LANE_ENDS_MAX / 2) {
        fprintf(stderr, "usage: bench_lanes loopback|tcp pull|push LANES(1..%d) MEGABYTES\n",
                LANE_ENDS_MAX / 2);
        return 31;
    }
    bench.is_pull = !strcmp(argv[2], "pull");
    bench.blocks = strtoull(argv[4], NULL, 10) * 1000000 / BLOCK_BYTES + 1;
    if (open_lanes(strcmp(argv[1], "tcp") ? &lane_loopback_fixture : &lane_tcp_fixture, lanes))
        return 1;
    pthread_t client, target;
    if (pthread_create(&client, NULL, run_client, NULL) ||
        pthread_create(&target, NULL, run_target, NULL))
        return 1;
    pthread_join(target, NULL);
    pthread_join(client, NULL);
    double gb = (double)bench.blocks * BLOCK_BYTES / 1e9;
    printf("%s %s, %zu lanes: %.0f MB/s, CPU s/GB: client %.3f, target %.3f\n", argv[1], argv[2],
           lanes, gb * 1000 / bench.wall_s, bench.client.cpu_s / gb, bench.target.cpu_s / gb);
    while (bench.world.end_count)
        lane_end_free(&bench.world, bench.world.ends[0]);
    lane_memory_free(&bench.theirs);
    lane_memory_free(&bench.ours);
    lane_world_close(&bench.world);
    return 0;
}
