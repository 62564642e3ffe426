/* Arbitrary bytes at either end of a TCP lane, after the hello. The first byte chooses the end (bit
 * 0: active), the second how the rest is cut into pieces. Memory is of exact size, so that
 * AddressSanitizer sees a byte too many; whatever came, each piece of work must have been answered
 * once when the lane has closed, and SL_LANE_CLOSED is the last event. */
#include "core/transport/tcp_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEY          0x41414141u
#define REGION_BYTES 4096u
#define DEPTH        4
#define WORKS        3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct lane {
    struct sl_lane *lane;
    unsigned answers[WORKS], noticed;
    bool closed;
};

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void process(struct lane *l, size_t max)
{
    struct sl_lane_event events[8];
    size_t n;
    do {
        n = sl_lane_process(l->lane, events, max);
        must(n <= max);
        for (size_t i = 0; i < n; i++) {
            must(!l->closed);
            if (events[i].kind == SL_LANE_PULLED || events[i].kind == SL_LANE_PUSHED) {
                must(events[i].context < WORKS);
                l->answers[events[i].context]++;
            }
            l->noticed += events[i].kind == SL_LANE_NOTICED;
            l->closed |= events[i].kind == SL_LANE_CLOSED;
        }
    } while (n == max);
}

/* Two pulls, a push and a notice; the first three are works 0, 1, 2 with the same numbers in their
 * tags' lower half. */
static void post(struct lane *l, struct sl_region *region)
{
    const struct sl_remote memory = {.key = KEY, .length = REGION_BYTES};
    const struct sl_local local = {region, region->start};
    const uint8_t notice[SL_NOTICE_BYTES] = {1};
    must(!sl_lane_pull(l->lane, local, &memory, 0, REGION_BYTES, 0));
    must(!sl_lane_pull(l->lane, local, &memory, 16, 40, 1));
    must(!sl_lane_push(l->lane, local, &memory, 0, 100, 2));
    must(!sl_lane_notice(l->lane, notice));
}

static void read_away(int fd)
{
    uint8_t bytes[8192];
    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
}

static void feed(struct lane *l, int fd, size_t piece, const uint8_t *data, size_t size)
{
    for (size_t at = 0; at < size && !l->closed; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        (void)!send(fd, data + at, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        process(l, 1 + at % 8);
        if (at % 3)
            read_away(fd);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sl_rail *rail;
    static struct sl_domain *domain;
    if (!rail) {
        must(!sl_tcp_rail_new(&rail, NULL));
        must(!rail->ops->domain_new(rail, &domain, NULL));
    }
    if (size < 2)
        return 0;
    bool is_active = data[0] & 1;
    int fds[2];
    struct sl_region *region;
    struct tcp_lane *tcp;
    uint8_t *memory = calloc(1, REGION_BYTES);
    const struct sl_lane_hello hello = {.version = 1, .depth = DEPTH};
    must(memory && !socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds));
    must(!rail->ops->region_new(domain, memory, REGION_BYTES,
                                is_active ? SL_ACCESS_LOCAL : SL_ACCESS_BOTH, &region, NULL));
    region->remote.key = KEY; /* so that inputs can name it */
    must(!tcp_lane_new(fds[0], domain, &hello, DEPTH, is_active, &tcp, NULL));

    struct lane l = {.lane = &tcp->lane};
    if (is_active)
        post(&l, region);
    process(&l, 8);
    feed(&l, fds[1], data[1] ? data[1] : 4096, data + 2, size - 2);
    if (data[0] & 2)
        sl_lane_close(l.lane, SL_ERR_CANCELLED, "the end of the input");
    else
        close(fds[1]);
    for (int i = 0; i < 10000 && !l.closed; i++)
        process(&l, 8);
    must(l.closed);
    for (size_t i = 0; is_active && i < WORKS; i++)
        must(l.answers[i] == 1);
    must(l.noticed == (is_active ? 1 : 0));
    sl_lane_free(l.lane);
    if (data[0] & 2)
        close(fds[1]);
    rail->ops->region_free(region);
    free(memory);
    return 0;
}
