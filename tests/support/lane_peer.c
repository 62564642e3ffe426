/* Conformance: the peer is another process that is killed, ends, or is stopped, at many points. The
 * other process is this program again, started with
 *
 *     --peer client PORT CALLS    connects, says "address key length", serves
 *     --peer target CALLS         says its port, is told "address key length", pulls and pushes
 *
 * and kills itself after CALLS rounds of poll and process (0: never). It ends when its lane closes
 * or its standard input does.
 */
#include "tests/support/lane_conformance.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define GUARD       0x3c
#define PIECE_BYTES 65536u

extern char **environ;

/* --- the other process ----------------------------------------------------------------------- */

static int complain(const char *what, const struct sl_err *err)
{
    fprintf(stderr, "peer: %s: %s\n", what, err->msg);
    return 1;
}

/* Drives the lane until it is closed or nobody wants it any more. `post`, if any, posts more. */
static int live(struct lane_end *end, long calls, void (*post)(struct lane_end *end))
{
    for (long i = 1; !end->closed; i++) {
        struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
        if (post)
            post(end);
        lane_pump(&end, 1, 20);
        if (i == calls)
            kill(getpid(), SIGKILL);
        if (poll(&in, 1, 0) > 0)
            return 0;
    }
    return 0;
}

static int client_main(const char *port, long calls)
{
    struct sl_err err = {0};
    struct sl_rail *rail;
    struct sl_domain *domain;
    struct lane_memory memory;
    struct lane_end end = {0};
    const struct sl_connect to = {.host = lane_fixture->host,
                                  .port = port,
                                  .deadline = sl_deadline_in_ms(LANE_WAIT_MS),
                                  .traffic_class = -1};
    if (lane_fixture->rail->resolve(&to, &rail, &err))
        return complain("resolve", &err);
    if (rail->ops->domain_new(rail, &domain, &err))
        return complain("domain", &err);
    if (lane_memory_new(&memory, domain, LANE_REGION_BYTES, SL_ACCESS_BOTH, &err))
        return complain("region", &err);
    if (lane_connect(rail, domain, lane_fixture, port, 500, LANE_DEPTH, to.deadline, &end.lane,
                     &err))
        return complain("connect", &err);
    printf("%" PRIu64 " %" PRIu32 " %" PRIu64 "\n", memory.region->remote.address,
           memory.region->remote.key, memory.region->remote.length);
    fflush(stdout);
    return live(&end, calls, NULL);
}

static struct sl_remote target_memory;
static struct lane_memory target_local;

/* As much as goes, at changing places. */
static void post_more(struct lane_end *end)
{
    static uint64_t n;
    uint64_t places = target_memory.length / PIECE_BYTES;
    uint8_t notice[SL_NOTICE_BYTES] = {0};
    for (int rc = 0; !rc; n++) {
        uint64_t at = n % places * PIECE_BYTES;
        rc = n % 3 ? sl_lane_push(end->lane, lane_local(&target_local, at), &target_memory, at,
                                  PIECE_BYTES, n)
                   : sl_lane_pull(end->lane, lane_local(&target_local, at), &target_memory, at,
                                  PIECE_BYTES, n);
        if (!rc)
            (void)sl_lane_notice(end->lane, notice);
    }
}

static int target_main(long calls)
{
    struct sl_err err = {0};
    struct lane_target *target;
    struct lane_end end = {0}, *ends = &end;
    if (lane_fixture->target_open(lane_fixture, LANE_DEPTH, &target, &err))
        return complain("listen", &err);
    printf("%s\n", target->port);
    fflush(stdout);
    if (lane_fixture->target_accept(target, sl_deadline_in_ms(LANE_WAIT_MS), &end.lane, &err))
        return complain("accept", &err);
    if (lane_memory_new(&target_local, end.lane->domain, LANE_REGION_BYTES, SL_ACCESS_LOCAL, &err))
        return complain("region", &err);
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    while (poll(&in, 1, 0) == 0)
        lane_pump(&ends, 1, 5); /* the client waits for the hello's answer first */
    if (scanf("%" SCNu64 " %" SCNu32 " %" SCNu64, &target_memory.address, &target_memory.key,
              &target_memory.length) != 3)
        return 1;
    return live(&end, calls, post_more);
}

int lane_peer_main(int argc, char **argv)
{
    setvbuf(stdin, NULL, _IONBF, 0); /* poll(2) tells the truth about it */
    if (argc == 3 && !strcmp(argv[0], "client"))
        return client_main(argv[1], strtol(argv[2], NULL, 10));
    if (argc == 2 && !strcmp(argv[0], "target"))
        return target_main(strtol(argv[1], NULL, 10));
    return 2;
}

/* --- this process ---------------------------------------------------------------------------- */

struct peer {
    pid_t pid;
    int in, out; /* its standard input and output */
};

static struct peer spawn_peer(char *const arguments[])
{
    struct peer peer;
    int in[2], out[2];
    posix_spawn_file_actions_t actions;
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    assert_int_equal(posix_spawn(&peer.pid, "/proc/self/exe", &actions, NULL, arguments, environ),
                     0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    peer.in = in[1];
    peer.out = out[0];
    return peer;
}

static struct peer spawn_client(const struct lane_case *c, long calls)
{
    char number[24];
    snprintf(number, sizeof number, "%ld", calls);
    char *const arguments[] = {
        "lane-peer", "--peer", "client", (char *)(uintptr_t)c->world.target->port, number, NULL};
    return spawn_peer(arguments);
}

static struct peer spawn_target(long calls)
{
    char number[24];
    snprintf(number, sizeof number, "%ld", calls);
    char *const arguments[] = {"lane-peer", "--peer", "target", number, NULL};
    return spawn_peer(arguments);
}

/* Its end, killed if it does not come by itself in time. */
static int reap(struct peer *peer, int ms)
{
    int status = 0;
    sl_deadline until = sl_deadline_in_ms((uint64_t)ms);
    close(peer->in);
    while (waitpid(peer->pid, &status, WNOHANG) == 0) {
        if (sl_deadline_passed(until))
            kill(peer->pid, SIGKILL);
        usleep(1000);
    }
    close(peer->out);
    return status;
}

/* A line of the peer's, while the world goes on; false when it ended without one. */
static bool read_line(struct lane_case *c, struct peer *peer, char *line, size_t room)
{
    size_t used = 0;
    sl_deadline until = sl_deadline_in_ms(LANE_WAIT_MS);
    while (!sl_deadline_passed(until)) {
        struct pollfd out = {.fd = peer->out, .events = POLLIN};
        if (poll(&out, 1, 0) > 0) {
            if (used + 1 == room || read(peer->out, line + used, 1) != 1)
                return false;
            if (line[used++] == '\n')
                return line[used - 1] = '\0', true;
        } else {
            lane_pump(c->world.ends, c->world.end_count, 5);
        }
    }
    return false;
}

/* The active end of a lane to a client process, and that process's memory. */
static bool meet_client(struct lane_case *c, struct peer *peer, struct lane_end *active,
                        struct sl_remote *memory)
{
    struct sl_lane *lane = NULL;
    struct sl_err err;
    char line[128];
    sl_deadline until = sl_deadline_in_ms(LANE_WAIT_MS);
    while (!lane && !sl_deadline_passed(until))
        (void)lane_fixture->target_accept(c->world.target, sl_deadline_in_ms(50), &lane, &err);
    assert_non_null(lane);
    lane_world_add(&c->world, active, lane);
    return read_line(c, peer, line, sizeof line) &&
           sscanf(line, "%" SCNu64 " %" SCNu32 " %" SCNu64, &memory->address, &memory->key,
                  &memory->length) == 3;
}

static uint64_t post_until_busy(struct lane_case *c, struct lane_end *active,
                                const struct sl_remote *memory, uint64_t posted)
{
    for (;; posted++) {
        uint64_t at = posted % (LANE_REGION_BYTES / PIECE_BYTES) * PIECE_BYTES;
        int rc = posted % 3 ? sl_lane_pull(active->lane, lane_local(&c->local, at), memory, at,
                                           PIECE_BYTES, posted)
                            : sl_lane_push(active->lane, lane_local(&c->local, at), memory, at,
                                           PIECE_BYTES, posted);
        if (rc) {
            assert_true(rc == SL_ERR_BUSY || rc == SL_ERR_CLOSED);
            return posted;
        }
    }
}

static void client_dies_after(struct lane_case *c, long calls)
{
    struct lane_end active;
    struct sl_remote memory;
    struct peer peer = spawn_client(c, calls);
    assert_true(meet_client(c, &peer, &active, &memory));
    uint64_t posted = 0;
    sl_deadline until = sl_deadline_in_ms(LANE_WAIT_MS);
    for (bool closing = false; !active.closed;) {
        posted = post_until_busy(c, &active, &memory, posted);
        lane_pump(c->world.ends, c->world.end_count, 20);
        assert_false(sl_deadline_passed(until));
        if (!calls && !closing && posted > 100) {
            close(peer.in); /* it ends by itself, in an orderly way, lane and all */
            peer.in = -1;
            closing = true;
        }
    }
    int status = reap(&peer, 1000);
    assert_true(calls ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(active.close_code < 0);
    assert_string_not_equal(active.lane->reason, "");
    lane_expect_answered(&active, posted, true);
    assert_false(active.broken);
    lane_end_free(&c->world, &active);
}

static void lane_peer__client_killed_at_each_point__work_answered_once(void **state)
{
    if (lane_fixture->pair)
        skip();
    for (long calls = 1; calls <= (long)lane_repeat(lane_fixture, 12); calls++)
        client_dies_after(*state, calls);
}

static void lane_peer__client_exits__work_answered_once(void **state)
{
    if (lane_fixture->pair)
        skip();
    client_dies_after(*state, 0);
}

static void lane_peer__client_stopped__caller_closes_in_bounded_time(void **state)
{
    struct lane_case *c = *state;
    struct lane_end active;
    struct sl_remote memory;
    if (lane_fixture->pair)
        skip();
    for (int run = 0; run < 2; run++) {
        struct peer peer = spawn_client(c, 0);
        assert_true(meet_client(c, &peer, &active, &memory));
        uint64_t posted = 0;
        if (run) /* stopped in the middle of work, or before any */
            for (int i = 0; i < 20; i++) {
                posted = post_until_busy(c, &active, &memory, posted);
                lane_pump(c->world.ends, c->world.end_count, 20);
            }
        kill(peer.pid, SIGSTOP);
        sl_deadline caller = sl_deadline_in_ms(300);
        while (!sl_deadline_passed(caller)) {
            posted = post_until_busy(c, &active, &memory, posted);
            lane_pump(c->world.ends, c->world.end_count, 20);
        }
        uint64_t begin = sl_now_ns();
        sl_lane_close(active.lane, SL_ERR_TIMEOUT, "the peer does not answer");
        LANE_WAIT(&c->world, active.closed);
        assert_true(sl_now_ns() - begin < 5 * SL_NS_PER_S);
        assert_int_equal(active.close_code, SL_ERR_TIMEOUT);
        lane_expect_answered(&active, posted, true);
        lane_end_free(&c->world, &active);
        kill(peer.pid, SIGCONT);
        reap(&peer, 1000);
    }
}

/* A passive end in this process, to a target process. */
struct visit {
    struct peer peer;
    struct sl_rail *rail;
    struct sl_domain *domain;
    struct lane_memory memory;
    struct lane_end passive;
};

static void visit_target(struct lane_case *c, struct visit *visit, long calls)
{
    struct sl_err err;
    struct sl_lane *lane;
    char port[16], line[128];
    *visit = (struct visit){.peer = spawn_target(calls)};
    assert_true(read_line(c, &visit->peer, port, sizeof port));
    const struct sl_connect to = {.host = lane_fixture->host,
                                  .port = port,
                                  .deadline = sl_deadline_in_ms(LANE_WAIT_MS),
                                  .traffic_class = -1};
    assert_int_equal(lane_fixture->rail->resolve(&to, &visit->rail, &err), 0);
    assert_int_equal(visit->rail->ops->domain_new(visit->rail, &visit->domain, &err), 0);
    assert_int_equal(
        lane_memory_new(&visit->memory, visit->domain, LANE_REGION_BYTES, SL_ACCESS_BOTH, &err), 0);
    assert_int_equal(lane_connect(visit->rail, visit->domain, lane_fixture, port, 600, LANE_DEPTH,
                                  to.deadline, &lane, &err),
                     0);
    lane_world_add(&c->world, &visit->passive, lane);
    const struct sl_remote *remote = &visit->memory.region->remote;
    int n = snprintf(line, sizeof line, "%" PRIu64 " %" PRIu32 " %" PRIu64 "\n", remote->address,
                     remote->key, remote->length);
    assert_int_equal(write(visit->peer.in, line, (size_t)n), n);
}

static void leave_target(struct lane_case *c, struct visit *visit)
{
    lane_end_free(&c->world, &visit->passive);
    lane_memory_free(&visit->memory);
    visit->rail->ops->domain_free(visit->domain);
    visit->rail->ops->rail_free(visit->rail);
}

static void expect_guarded(const struct lane_memory *memory)
{
    if (!lane_all(memory->start, memory->bytes, GUARD))
        fail_msg("memory was touched after SL_LANE_CLOSED");
}

static void lane_peer__target_killed_at_each_point__closed_and_memory_left_alone(void **state)
{
    struct lane_case *c = *state;
    struct visit visit;
    if (lane_fixture->pair)
        skip();
    for (long calls = 1; calls <= (long)lane_repeat(lane_fixture, 12); calls++) {
        visit_target(c, &visit, calls);
        LANE_WAIT(&c->world, visit.passive.closed);
        memset(visit.memory.start, GUARD, visit.memory.bytes);
        assert_true(visit.passive.close_code < 0);
        assert_true(WIFSIGNALED(reap(&visit.peer, 1000)));
        usleep(10000);
        expect_guarded(&visit.memory);
        leave_target(c, &visit);
    }
}

static void lane_peer__target_stopped__caller_closes_and_memory_left_alone(void **state)
{
    struct lane_case *c = *state;
    struct visit visit;
    if (lane_fixture->pair)
        skip();
    for (int run = 0; run < 3; run++) {
        visit_target(c, &visit, 0);
        LANE_WAIT(&c->world, lane_count(&visit.passive, SL_LANE_NOTICE) > (size_t)run * 20);
        kill(visit.peer.pid, SIGSTOP);
        uint64_t begin = sl_now_ns();
        sl_lane_close(visit.passive.lane, SL_ERR_TIMEOUT, "the peer does not answer");
        LANE_WAIT(&c->world, visit.passive.closed);
        assert_true(sl_now_ns() - begin < 5 * SL_NS_PER_S);
        memset(visit.memory.start, GUARD, visit.memory.bytes);
        kill(visit.peer.pid, SIGCONT); /* its late writes must find nothing */
        int status = 0;
        sl_deadline until = sl_deadline_in_ms(LANE_WAIT_MS);
        while (waitpid(visit.peer.pid, &status, WNOHANG) == 0 && !sl_deadline_passed(until))
            usleep(1000);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        close(visit.peer.in);
        close(visit.peer.out);
        expect_guarded(&visit.memory);
        leave_target(c, &visit);
    }
}

static const struct CMUnitTest tests[] = {
    LANE_CASE(lane_peer__client_killed_at_each_point__work_answered_once),
    LANE_CASE(lane_peer__client_exits__work_answered_once),
    LANE_CASE(lane_peer__client_stopped__caller_closes_in_bounded_time),
    LANE_CASE(lane_peer__target_killed_at_each_point__closed_and_memory_left_alone),
    LANE_CASE(lane_peer__target_stopped__caller_closes_and_memory_left_alone),
};

const struct lane_tests lane_peer_tests = {tests, sizeof tests / sizeof *tests};
