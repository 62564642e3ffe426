/* Lanes without a session: a target that pulls from or pushes into a client, over real RDMA devices
 * (or TCP's control line for what lanes do not carry). For the lab's fault tests and for comparing
 * bandwidth with perftest. Not the conformance suite: that is lane_lab.
 *
 *   lane_tool serve PORT                     control on PORT, lanes on PORT + 1; one client
 *   lane_tool run HOST PORT [NAME=NUMBER]…   control HOST (CONTROL_HOST overrides), see settings[]
 *   lane_tool describe
 *
 * The plugin is LANE_PLUGIN. Each side beats once a second over control and gives the peer up after
 * `dead` ms of silence, as a session does; the target gives a lane up when work waits so long. Each
 * side's last line tells what came of it. Exit status: 0 all moved and right, 3 lost (and every
 * piece of work was answered), 1 anything else.
 */
#include "core/base/alloc.h"
#include "core/transport/lane.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LANES_MAX 32
#define BEAT_MS   1000

enum mode { PULL = 1, PUSH = 2 };

static struct settings {
    uint64_t mode, lanes, depth, bytes, mib, seconds, check, dead, notices;
} set = {.mode = PULL,
         .lanes = 4,
         .depth = 16,
         .bytes = SL_SLOT_BYTES_MAX,
         .mib = 64,
         .seconds = 0, /* instead of mib */
         .check = 1,   /* compare each block */
         .dead = 8000,
         .notices = 1}; /* push: one after each block */

static const struct {
    const char *name;
    uint64_t *value;
} settings[] = {{"mode", &set.mode},   {"lanes", &set.lanes}, {"depth", &set.depth},
                {"bytes", &set.bytes}, {"mib", &set.mib},     {"seconds", &set.seconds},
                {"check", &set.check}, {"dead", &set.dead},   {"notices", &set.notices}};

static const struct sl_transport_plugin *plugin;
static struct sl_err err;

static void __attribute__((noreturn)) die(const char *what)
{
    printf("FAILED: %s: %s%s%s\n", what, err.msg, err.hint[0] ? "; " : "", err.hint);
    exit(1);
}

static void load(void)
{
    const char *path = getenv("LANE_PLUGIN");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        sl_err_set(&err, SL_ERR_OPEN, "%s", path ? dlerror() : "LANE_PLUGIN is not set");
        die("plugin");
    }
    plugin = dlsym(library, "sluice_transport");
    if (!plugin || plugin->abi != SL_TRANSPORT_ABI)
        die("plugin has no sluice_transport of this ABI");
}

/* --- control --------------------------------------------------------------------------------- */

struct control {
    int fd;
    bool closed;
    bool ending; /* the target has moved all; `total` notices were sent */
    uint64_t total;
    char words[64]; /* '.' a beat, 'E' and eight bytes the end */
    size_t have;
    sl_deadline beat_due, dead_at;
};

static void control_use(struct control *control)
{
    control->beat_due = sl_deadline_in_ms(BEAT_MS);
    control->dead_at = sl_deadline_in_ms(set.dead);
}

static void control_take(struct control *control)
{
    size_t used = 0;
    while (used < control->have) {
        if (control->words[used] == 'E') {
            if (control->have - used < 9)
                break;
            memcpy(&control->total, control->words + used + 1, 8);
            control->ending = true;
            used += 9;
        } else {
            used++;
        }
    }
    memmove(control->words, control->words + used, control->have - used);
    control->have -= used;
}

/* Takes heartbeats and sends them. */
static void control_step(struct control *control)
{
    ssize_t n = recv(control->fd, control->words + control->have,
                     sizeof control->words - control->have, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        control->closed = true;
    if (n > 0) {
        control->dead_at = sl_deadline_in_ms(set.dead);
        control->have += (size_t)n;
        control_take(control);
    }
    if (sl_deadline_passed(control->beat_due)) {
        if (send(control->fd, ".", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
            control->closed = true;
        control->beat_due = sl_deadline_in_ms(BEAT_MS);
    }
}

static void control_end(struct control *control, uint64_t total)
{
    char word[9] = "E";
    memcpy(word + 1, &total, 8);
    if (send(control->fd, word, sizeof word, MSG_NOSIGNAL) < 0)
        control->closed = true;
    sl_deadline until = sl_deadline_in_ms(set.dead);
    while (!control->closed && !sl_deadline_passed(until)) {
        struct pollfd wait = {control->fd, POLLIN, 0};
        poll(&wait, 1, 200);
        control_step(control);
    }
}

static int control_listen(const char *port)
{
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof any) != 0 || listen(fd, 1) != 0) {
        sl_err_sys(&err, SL_ERR_OPEN, errno, "port %s", port);
        die("control");
    }
    return fd;
}

static int control_connect(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    const char *other = getenv("CONTROL_HOST");
    if (getaddrinfo(other ? other : host, port, &hints, &list) != 0)
        die("control host");
    sl_deadline until = sl_deadline_in_ms(60000);
    for (;;) {
        int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, list->ai_addr, list->ai_addrlen) == 0) {
            freeaddrinfo(list);
            return fd;
        }
        close(fd);
        if (sl_deadline_passed(until))
            die("control connection");
        usleep(50000);
    }
}

/* --- both sides ------------------------------------------------------------------------------ */

static void fill(uint8_t *block, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word = (seed + 1) * 0x9e3779b97f4a7c15u + i;
        memcpy(block + i, &word, 8);
    }
}

static bool holds(const uint8_t *block, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word = (seed + 1) * 0x9e3779b97f4a7c15u + i;
        if (memcmp(block + i, &word, 8) != 0)
            return false;
    }
    return true;
}

static struct sl_lane *lanes[LANES_MAX];
static bool lane_closed[LANES_MAX];
static const char *lost_reason; /* of the first lane that was lost, or of control */
static uint64_t lost_at;

static void lost(const char *reason)
{
    if (lost_reason)
        return;
    lost_reason = strdup(reason);
    lost_at = sl_now_ns();
}

static bool all_closed(void)
{
    for (uint64_t i = 0; i < set.lanes; i++)
        if (!lane_closed[i])
            return false;
    return true;
}

static void close_all(int code, const char *reason)
{
    for (uint64_t i = 0; i < set.lanes; i++)
        sl_lane_close(lanes[i], code, reason);
}

static void wait_for_something(struct control *control)
{
    struct pollfd fds[LANES_MAX + 1];
    for (uint64_t i = 0; i < set.lanes; i++)
        fds[i] = (struct pollfd){lane_closed[i] ? -1 : lanes[i]->fd, lanes[i]->events_wanted, 0};
    fds[set.lanes] = (struct pollfd){control->closed ? -1 : control->fd, POLLIN, 0};
    poll(fds, (nfds_t)set.lanes + 1, 200);
    control_step(control);
}

/* --- the target ------------------------------------------------------------------------------ */

static struct sl_domain *domain;
static struct sl_region *pool;
static uint8_t *pool_memory;
static struct sl_remote memory;
static uint64_t posted, answered, failed, moved, wrong;
static uint64_t notices_posted, notices_answered;
static sl_deadline work_due[LANES_MAX];
static uint64_t in_flight[LANES_MAX];

static int rail_met(void *arg, struct sl_rail *rail, struct sl_err *e)
{
    (void)arg;
    return rail->ops->domain_new(rail, &domain, e);
}

static int admit(void *arg, struct sl_rail *rail, const struct sl_lane_hello *hello,
                 const uint8_t *bytes, struct sl_domain **ret_domain,
                 uint8_t reply[SL_LANE_HELLO_BYTES], struct sl_err *e)
{
    (void)arg, (void)rail, (void)bytes, (void)e;
    sl_lane_hello_encode(hello, reply);
    *ret_domain = domain;
    return 0;
}

/* Block number n of a lane lies in slot n % depth of the lane's part of both memories. */
static uint64_t slot_offset(uint64_t lane, uint64_t number)
{
    return (lane * set.depth + number % set.depth) * set.bytes;
}

static uint64_t next_number[LANES_MAX], notices_in_flight[LANES_MAX];

static bool post(uint64_t lane, uint64_t number)
{
    struct sl_local local = {pool, pool_memory + slot_offset(lane, number)};
    if (notices_in_flight[lane] == set.depth)
        return false;
    int (*op)(struct sl_lane *, struct sl_local, const struct sl_remote *, uint64_t, uint32_t,
              uint64_t) = set.mode == PULL ? sl_lane_pull : sl_lane_push;
    if (set.check && set.mode == PULL)
        memset(local.start, 0, set.bytes);
    if (op(lanes[lane], local, &memory, slot_offset(lane, number), (uint32_t)set.bytes, number))
        return false;
    posted++;
    in_flight[lane]++;
    work_due[lane] = sl_deadline_in_ms(set.dead);
    if (set.mode == PUSH && set.notices) {
        uint8_t notice[SL_NOTICE_BYTES] = {0};
        memcpy(notice, &number, sizeof number);
        if (sl_lane_notice(lanes[lane], notice) != 0)
            die("a notice was refused");
        notices_posted++;
        notices_in_flight[lane]++;
    }
    return true;
}

static sl_deadline run_end;

static bool enough(sl_deadline end)
{
    return set.seconds ? sl_deadline_passed(end) : posted * set.bytes >= set.mib << 20;
}

static void target_event(uint64_t lane, const struct sl_lane_event *event)
{
    switch (event->kind) {
    case SL_LANE_PULLED:
    case SL_LANE_PUSHED:
        answered++;
        in_flight[lane]--;
        failed += event->code != 0;
        if (event->code == 0) {
            moved += set.bytes;
            work_due[lane] = sl_deadline_in_ms(set.dead);
            if (set.check && set.mode == PULL)
                wrong += !holds(pool_memory + slot_offset(lane, event->context), set.bytes,
                                lane * set.depth + event->context % set.depth);
        }
        return;
    case SL_LANE_NOTICED:
        notices_answered++;
        notices_in_flight[lane]--;
        return;
    case SL_LANE_CLOSED:
        lane_closed[lane] = true;
        lost(lanes[lane]->reason);
        return;
    default:
        die("an event that a target does not get");
    }
}

static void target_lane(uint64_t lane, bool more)
{
    struct sl_lane_event events[32];
    size_t n;
    if (!lane_closed[lane])
        do {
            n = sl_lane_process(lanes[lane], events, 32);
            for (size_t i = 0; i < n; i++)
                target_event(lane, &events[i]);
            while (more && !lost_reason && in_flight[lane] < set.depth && !enough(run_end) &&
                   post(lane, next_number[lane]))
                next_number[lane]++;
        } while (n == 32);
    if (!lane_closed[lane] && in_flight[lane] && sl_deadline_passed(work_due[lane]))
        sl_lane_close(lanes[lane], SL_ERR_TIMEOUT, "work waits too long");
}

static void accept_lanes(struct sl_listener *listener, struct control *control)
{
    sl_deadline until = sl_deadline_in_ms(20000);
    for (uint64_t i = 0; i < set.lanes;) {
        struct pollfd fds[2] = {{listener->fd, POLLIN, 0}, {control->fd, POLLIN, 0}};
        poll(fds, 1, 100);
        int rc = listener->ops->accept(listener, &lanes[i], &err);
        if (rc < 0)
            die("accept");
        i += (uint64_t)rc;
        if (sl_deadline_passed(until))
            die("no lanes came");
    }
}

static int report(const char *who, uint64_t start_ns, uint64_t bytes)
{
    uint64_t now = lost_reason ? lost_at : sl_now_ns();
    double seconds = (double)(now - start_ns) / 1e9;
    printf("%s: %s%s%s, %" PRIu64 " MiB in %.2f s, %.1f MB/s\n", who,
           lost_reason ? "lost (" : "done", lost_reason ? lost_reason : "", lost_reason ? ")" : "",
           bytes >> 20, seconds, (double)bytes / 1e6 / seconds);
    return lost_reason ? 3 : 0;
}

static int target_run(struct control *control)
{
    uint64_t start = sl_now_ns();
    sl_deadline end = run_end = sl_deadline_in_ms(set.seconds * 1000);
    for (uint64_t lane = 0; lane < set.lanes; lane++)
        for (; next_number[lane] < set.depth && !enough(end); next_number[lane]++)
            if (!post(lane, next_number[lane]))
                break;
    while (!(enough(end) && posted == answered && notices_posted == notices_answered)) {
        wait_for_something(control);
        for (uint64_t lane = 0; lane < set.lanes; lane++)
            target_lane(lane, !enough(end));
        if (control->closed)
            lost("control closed");
        if (sl_deadline_passed(control->dead_at))
            lost("the peer is silent");
        if (lost_reason)
            break;
    }
    if (lost_reason) {
        close_all(SL_ERR_CLOSED, "given up");
        for (int i = 0; i < 50 && !all_closed(); i++)
            for (uint64_t lane = 0; lane < set.lanes; lane++)
                target_lane(lane, false);
        if (!all_closed() || posted != answered || notices_posted != notices_answered) {
            printf("posted %" PRIu64 " answered %" PRIu64 " notices %" PRIu64 " %" PRIu64 "\n",
                   posted, answered, notices_posted, notices_answered);
            die("work was not answered");
        }
    }
    int status = report("target", start, moved);
    if (status == 0)
        control_end(control, notices_posted);
    if (wrong)
        die("wrong bytes came");
    return status;
}

static void print_lane(const char *who)
{
    struct sl_lane_info info;
    lanes[0]->ops->info(lanes[0], &info);
    printf("%s: %" PRIu64 " lanes, %s %s/%u %s %s MTU %u, %s - %s, depth %u\n", who, set.lanes,
           info.transport, info.device, info.port, info.link_layer, info.gid_type, info.mtu,
           info.local, info.remote, info.depth);
    fflush(stdout);
}

static int serve(const char *port)
{
    struct sl_listener *listener;
    const struct sl_listen listen_config = {.port = (uint16_t)(atoi(port) + 1),
                                            .admit = admit,
                                            .rail_met = rail_met,
                                            .depth = 255,
                                            .half_open_max = LANES_MAX,
                                            .handshake_ms = 10000};
    if (plugin->listen(&listen_config, &listener, &err) != 0)
        die("listen");
    int control_listener = control_listen(port);
    struct control control = {.fd = accept(control_listener, NULL, NULL)};
    if (read(control.fd, &set, sizeof set) != (ssize_t)sizeof set)
        die("no settings came");
    accept_lanes(listener, &control);
    if (recv(control.fd, &memory, sizeof memory, MSG_WAITALL) != (ssize_t)sizeof memory)
        die("no memory came");
    control_use(&control);
    print_lane("target");
    size_t bytes = set.lanes * set.depth * set.bytes;
    pool_memory = sl_pages_alloc(bytes);
    if (!pool_memory || domain->rail->ops->region_new(domain, pool_memory, bytes, SL_ACCESS_LOCAL,
                                                      &pool, &err) != 0)
        die("pool");
    if (set.mode == PUSH)
        for (uint64_t i = 0; i < set.lanes * set.depth; i++)
            fill(pool_memory + i * set.bytes, set.bytes, i);
    int status = target_run(&control);
    for (uint64_t i = 0; i < set.lanes; i++)
        sl_lane_free(lanes[i]);
    domain->rail->ops->region_free(pool);
    domain->rail->ops->domain_free(domain);
    listener->ops->free(listener);
    sl_pages_free(pool_memory, bytes);
    close(control.fd);
    close(control_listener);
    return status;
}

/* --- the client ------------------------------------------------------------------------------ */

static void connect_lanes(struct sl_rail *rail, struct sl_domain *client, struct sl_connect *to)
{
    for (uint64_t i = 0; i < set.lanes; i++) {
        uint8_t hello_bytes[SL_LANE_HELLO_BYTES], reply[SL_LANE_HELLO_BYTES];
        const struct sl_lane_hello hello = {
            .version = SL_WIRE_VERSION, .lane = (uint16_t)i, .depth = (uint8_t)set.depth};
        sl_lane_hello_encode(&hello, hello_bytes);
        to->hello = hello_bytes;
        to->depth = (uint16_t)set.depth;
        to->deadline = sl_deadline_in_ms(10000);
        if (rail->ops->connect(rail, client, to, reply, &lanes[i], &err) != 0)
            die("connect");
    }
}

static uint64_t client_notices;

static void client_lane(uint64_t lane, uint8_t *slots)
{
    struct sl_lane_event events[32];
    size_t n;
    if (lane_closed[lane])
        return;
    do {
        n = sl_lane_process(lanes[lane], events, 32);
        for (size_t i = 0; i < n; i++) {
            if (events[i].kind == SL_LANE_CLOSED) {
                lane_closed[lane] = true;
                lost(lanes[lane]->reason);
            } else if (events[i].kind == SL_LANE_NOTICE) {
                uint64_t number;
                memcpy(&number, events[i].notice, sizeof number);
                client_notices++;
                if (set.check && !holds(slots + slot_offset(lane, number), set.bytes,
                                        lane * set.depth + number % set.depth))
                    die("a notice came before its block");
            }
        }
    } while (n == 32);
}

static int client_run(struct control *control, uint8_t *slots)
{
    uint64_t start = sl_now_ns();
    while (!control->closed && !all_closed() &&
           !(control->ending && client_notices == control->total)) {
        wait_for_something(control);
        for (uint64_t lane = 0; lane < set.lanes; lane++)
            client_lane(lane, slots);
        if (sl_deadline_passed(control->dead_at)) {
            lost("the peer is silent");
            break;
        }
    }
    if (control->closed)
        lost("control closed");
    int status = report("client", start, client_notices * set.bytes);
    close_all(SL_ERR_CLOSED, "done");
    for (int i = 0; i < 50 && !all_closed(); i++)
        for (uint64_t lane = 0; lane < set.lanes; lane++)
            client_lane(lane, slots);
    if (!all_closed())
        die("a lane does not close");
    return status;
}

static int run(const char *host, const char *port)
{
    char lane_port[16];
    struct sl_rail *rail;
    struct sl_domain *client;
    struct sl_region *region;
    snprintf(lane_port, sizeof lane_port, "%d", atoi(port) + 1);
    struct control control = {.fd = control_connect(host, port)};
    struct sl_connect to = {
        .host = host, .port = lane_port, .deadline = sl_deadline_in_ms(10000), .traffic_class = -1};
    size_t bytes = set.lanes * set.depth * set.bytes;
    uint8_t *slots = sl_pages_alloc(bytes);
    if (plugin->memlock(bytes, &err) != 0 || plugin->rail->resolve(&to, &rail, &err) != 0 ||
        rail->ops->domain_new(rail, &client, &err) != 0 ||
        rail->ops->region_new(client, slots, bytes,
                              set.mode == PULL ? SL_ACCESS_PULLED : SL_ACCESS_PUSHED, &region,
                              &err) != 0)
        die("client");
    if (set.mode == PULL)
        for (uint64_t i = 0; i < set.lanes * set.depth; i++)
            fill(slots + i * set.bytes, set.bytes, i);
    if (send(control.fd, &set, sizeof set, 0) < 0)
        die("settings");
    connect_lanes(rail, client, &to);
    if (send(control.fd, &region->remote, sizeof region->remote, 0) < 0)
        die("memory");
    control_use(&control);
    print_lane("client");
    int status = client_run(&control, slots);
    for (uint64_t i = 0; i < set.lanes; i++)
        sl_lane_free(lanes[i]);
    rail->ops->region_free(region);
    rail->ops->domain_free(client);
    rail->ops->rail_free(rail);
    sl_pages_free(slots, bytes);
    close(control.fd);
    return status;
}

static int describe(void)
{
    char text[512];
    if (plugin->describe(text, sizeof text, &err) != 0)
        die("describe");
    printf("%s\n", text);
    return 0;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    load();
    for (int i = 4; i < argc; i++) {
        char *is = strchr(argv[i], '=');
        for (size_t s = 0; is && s < sizeof settings / sizeof *settings; s++)
            if (strlen(settings[s].name) == (size_t)(is - argv[i]) &&
                !strncmp(settings[s].name, argv[i], (size_t)(is - argv[i])))
                *settings[s].value = strtoull(is + 1, NULL, 10);
    }
    if (set.lanes == 0 || set.lanes > LANES_MAX)
        return 2;
    if (argc == 3 && !strcmp(argv[1], "serve"))
        return serve(argv[2]);
    if (argc >= 4 && !strcmp(argv[1], "run"))
        return run(argv[2], argv[3]);
    if (argc == 2 && !strcmp(argv[1], "describe"))
        return describe();
    return 2;
}
