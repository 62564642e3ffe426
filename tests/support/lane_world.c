/* The world of the lane tests; see the header. No assertions here: threads other than the test's
 * use it too, and cmocka's must not be called there. */
#include "tests/support/lane_world.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* --- memory and patterns --------------------------------------------------------------------- */

uint64_t lane_random(uint64_t *state)
{
    /* splitmix64 */
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void lane_fill(uint8_t *start, size_t bytes, uint64_t seed)
{
    uint64_t word;
    for (; bytes >= sizeof word; bytes -= sizeof word, start += sizeof word) {
        word = lane_random(&seed);
        memcpy(start, &word, sizeof word);
    }
    word = lane_random(&seed);
    memcpy(start, &word, bytes);
}

bool lane_holds(const uint8_t *start, size_t bytes, uint64_t seed)
{
    uint64_t word, found;
    for (; bytes >= sizeof word; bytes -= sizeof word, start += sizeof word) {
        memcpy(&found, start, sizeof found);
        word = lane_random(&seed);
        if (word != found)
            return false;
    }
    word = lane_random(&seed);
    return memcmp(start, &word, bytes) == 0;
}

bool lane_all(const uint8_t *start, size_t bytes, uint8_t value)
{
    return !bytes || (*start == value && memcmp(start, start + 1, bytes - 1) == 0);
}

unsigned lane_repeat(const struct lane_fixture *fixture, unsigned times)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    times = times / 4 + 1;
#endif
    return fixture->light ? times / 20 + 2 : times;
}

int lane_memory_new(struct lane_memory *memory, struct sl_domain *domain, size_t bytes,
                    enum sl_access access, struct sl_err *err)
{
    *memory = (struct lane_memory){.bytes = bytes};
    /* Whole pages of its own, as registration wants; from malloc, so that AddressSanitizer sees a
     * touch after free. */
    size_t pages = (bytes + 4095) / 4096 * 4096;
    memory->start = aligned_alloc(4096, pages);
    if (!memory->start)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    memset(memory->start, 0, pages);
    int rc =
        domain->rail->ops->region_new(domain, memory->start, bytes, access, &memory->region, err);
    if (rc)
        lane_memory_free(memory);
    return rc;
}

void lane_memory_free(struct lane_memory *memory)
{
    if (memory->region)
        memory->region->domain->rail->ops->region_free(memory->region);
    free(memory->start);
    *memory = (struct lane_memory){0};
}

size_t lane_open_fds(void)
{
    size_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

/* --- ends ------------------------------------------------------------------------------------ */

static void remember(struct lane_end *end, const struct sl_lane_event *event)
{
    if (end->count == end->room) {
        end->room = end->room ? end->room * 2 : 64;
        end->events = realloc(end->events, end->room * sizeof *end->events);
        if (!end->events)
            abort();
    }
    end->events[end->count++] = *event;
    end->broken |= end->closed;
    if (event->kind == SL_LANE_CLOSED) {
        end->closed = true;
        end->close_code = event->code;
    }
    if (end->on_event)
        end->on_event(end, event);
}

void lane_process(struct lane_end *end)
{
    struct sl_lane_event events[64];
    size_t n, max = end->max ? end->max : 16;
    do {
        n = sl_lane_process(end->lane, events, max);
        end->broken |= n > max;
        for (size_t i = 0; i < n; i++)
            remember(end, &events[i]);
    } while (n == max);
}

void lane_pump(struct lane_end *const *ends, size_t count, int ms)
{
    struct pollfd pollers[LANE_ENDS_MAX];
    struct lane_end *polled[LANE_ENDS_MAX];
    nfds_t n = 0;
    for (size_t i = 0; i < count; i++) {
        if (!ends[i]->lane || ends[i]->closed)
            continue;
        polled[n] = ends[i];
        pollers[n++] =
            (struct pollfd){.fd = ends[i]->lane->fd, .events = ends[i]->lane->events_wanted};
    }
    if (poll(pollers, n, ms) <= 0)
        return;
    for (nfds_t i = 0; i < n; i++)
        if (pollers[i].revents)
            lane_process(polled[i]);
}

size_t lane_count(const struct lane_end *end, enum sl_lane_event_kind kind)
{
    size_t count = 0;
    for (size_t i = 0; i < end->count; i++)
        count += end->events[i].kind == kind;
    return count;
}

size_t lane_answers(const struct lane_end *end, enum sl_lane_event_kind kind, uint64_t context,
                    int *ret_code)
{
    size_t count = 0;
    for (size_t i = 0; i < end->count; i++)
        if (end->events[i].kind == kind && end->events[i].context == context) {
            *ret_code = end->events[i].code;
            count++;
        }
    return count;
}

void lane_world_add(struct lane_world *world, struct lane_end *end, struct sl_lane *lane)
{
    *end = (struct lane_end){.lane = lane};
    lane->user = end;
    world->ends[world->end_count++] = end;
}

void lane_end_free(struct lane_world *world, struct lane_end *end)
{
    sl_lane_free(end->lane);
    free(end->events);
    *end = (struct lane_end){0};
    size_t kept = 0;
    for (size_t i = 0; i < world->end_count; i++)
        if (world->ends[i] != end)
            world->ends[kept++] = world->ends[i];
    world->end_count = kept;
}

/* --- connecting ------------------------------------------------------------------------------ */

int lane_cancel_fd;

int lane_connect(struct sl_rail *rail, struct sl_domain *domain, const struct lane_fixture *fixture,
                 const char *port, uint16_t id, uint16_t depth, sl_deadline deadline,
                 struct sl_lane **ret_lane, struct sl_err *err)
{
    const struct sl_lane_hello hello = {.version = 1, .lane = id, .depth = (uint8_t)depth};
    uint8_t bytes[SL_LANE_HELLO_BYTES], reply[SL_LANE_HELLO_BYTES];
    sl_lane_hello_encode(&hello, bytes);
    const struct sl_connect to = {.host = fixture->host,
                                  .port = port,
                                  .hello = bytes,
                                  .depth = depth,
                                  .deadline = deadline,
                                  .traffic_class = -1,
                                  .cancel_fd = lane_cancel_fd};
    return rail->ops->connect(rail, domain, &to, reply, ret_lane, err);
}

struct connecting {
    struct lane_world *world;
    uint16_t id, depth;
    struct sl_lane *lane;
    struct sl_err err;
    int rc;
    atomic_bool done;
};

static void *connect_thread(void *arg)
{
    struct connecting *c = arg;
    c->rc = lane_connect(c->world->client_rail, c->world->client, c->world->fixture,
                         c->world->target->port, c->id, c->depth, sl_deadline_in_ms(LANE_WAIT_MS),
                         &c->lane, &c->err);
    atomic_store(&c->done, true);
    return NULL;
}

/* One step of the target's side: accepts, then runs the lane (over TCP its first process() answers
 * the client's hello). */
static int accept_step(struct lane_world *world, struct sl_lane **lane, struct sl_err *err)
{
    if (!*lane) {
        int rc = world->fixture->target_accept(world->target, sl_deadline_in_ms(20), lane, err);
        return rc == SL_ERR_TIMEOUT ? 0 : rc;
    }
    struct pollfd poller = {.fd = (*lane)->fd, .events = (*lane)->events_wanted};
    struct sl_lane_event event; /* nothing is posted, so it can only be SL_LANE_CLOSED */
    if (poll(&poller, 1, 1) > 0 && sl_lane_process(*lane, &event, 1))
        return sl_err_set(err, SL_ERR_CLOSED, "lane closed while it was opened");
    return 0;
}

static int pair_over_network(struct lane_world *world, uint16_t id, uint16_t depth,
                             struct sl_lane **ret_passive, struct sl_lane **ret_active,
                             struct sl_err *err)
{
    struct connecting c = {.world = world, .id = id, .depth = depth};
    pthread_t thread;
    if (pthread_create(&thread, NULL, connect_thread, &c))
        return sl_err_set(err, SL_ERR_LIMIT, "no thread");
    struct sl_lane *active = NULL;
    sl_deadline until = sl_deadline_in_ms(LANE_WAIT_MS);
    int rc = 0;
    while (!rc && !(atomic_load(&c.done) && (c.rc || active)) && !sl_deadline_passed(until))
        rc = accept_step(world, &active, err);
    if (rc)
        sl_lane_free(active); /* so that the client is not kept waiting */
    pthread_join(thread, NULL);
    if (!rc && !c.rc && active) {
        *ret_passive = c.lane;
        *ret_active = active;
        return 0;
    }
    if (!rc)
        sl_lane_free(active);
    if (!c.rc)
        sl_lane_free(c.lane);
    if (c.rc)
        return sl_err_copy(err, &c.err);
    return rc ? rc : sl_err_set(err, SL_ERR_TIMEOUT, "no lane was accepted");
}

int lane_world_open(struct lane_world *world, const struct lane_fixture *fixture, uint16_t depth,
                    struct sl_err *err)
{
    *world = (struct lane_world){.fixture = fixture, .next_id = 1};
    int rc;
    if (fixture->pair) {
        rc = fixture->rail_new(&world->client_rail, err);
        if (!rc)
            rc = fixture->rail_new(&world->target_rail, err);
        if (!rc)
            rc =
                world->target_rail->ops->domain_new(world->target_rail, &world->target_domain, err);
    } else {
        rc = fixture->target_open(fixture, depth, &world->target, err);
        const struct sl_connect to = {.host = fixture->host,
                                      .port = rc ? NULL : world->target->port,
                                      .deadline = sl_deadline_in_ms(LANE_WAIT_MS),
                                      .traffic_class = -1};
        if (!rc)
            rc = fixture->rail->resolve(&to, &world->client_rail, err);
    }
    if (!rc)
        rc = world->client_rail->ops->domain_new(world->client_rail, &world->client, err);
    return rc;
}

int lane_pair(struct lane_world *world, uint16_t depth, struct lane_end *passive,
              struct lane_end *active, struct sl_err *err)
{
    struct sl_lane *p, *a;
    uint16_t id = world->next_id++;
    int rc = world->fixture->pair
                 ? world->fixture->pair(world->client, world->target_domain, id, depth, &p, &a, err)
                 : pair_over_network(world, id, depth, &p, &a, err);
    if (rc)
        return rc;
    world->target_domain = a->domain;
    lane_world_add(world, passive, p);
    lane_world_add(world, active, a);
    return 0;
}

void lane_world_close(struct lane_world *world)
{
    while (world->end_count)
        lane_end_free(world, world->ends[0]);
    if (world->client)
        world->client_rail->ops->domain_free(world->client);
    if (world->client_rail)
        world->client_rail->ops->rail_free(world->client_rail);
    if (world->target_rail) { /* a pair's; a network fixture frees its own */
        if (world->target_domain)
            world->target_rail->ops->domain_free(world->target_domain);
        world->target_rail->ops->rail_free(world->target_rail);
    }
    if (world->target)
        world->fixture->target_close(world->target);
    *world = (struct lane_world){0};
}
