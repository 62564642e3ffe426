/* See the header. */
#include "tests/unit/core/client/proxy.h"

#include "tests/unit/core/session/fixture.h"

#include <netinet/tcp.h>
#include <stdatomic.h>

#define PIPES_MAX 64
#define PIPE_ROOM 65536

struct pipe {
    int ends[2]; /* client's, target's */
    bool used, lane, known;
    uint64_t carried, last;      /* `last`: cut when so much was carried */
    uint8_t bytes[2][PIPE_ROOM]; /* from ends[i] to the other */
    size_t at[2], count[2];
    bool over[2];
};

struct proxy {
    pthread_mutex_t lock;
    pthread_t thread;
    int listener;
    char host[32];
    char target_port[8];
    bool hold, refuse_lanes, refuse_all;
    unsigned lanes;
    uint64_t carried; /* by all lanes */
    uint64_t cut_after;
    _Atomic bool stop;
    struct pipe pipes[PIPES_MAX];
};

static void reset(int fd)
{
    struct linger now = {1, 0}; /* RST, as when a host dies */
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
}

static void pipe_end(struct pipe *pipe)
{
    reset(pipe->ends[0]);
    reset(pipe->ends[1]);
    pipe->used = false;
}

static void take_in(struct proxy *proxy)
{
    int fd = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct pipe *pipe = proxy->pipes;
    if (fd < 0)
        return;
    while (pipe < proxy->pipes + PIPES_MAX && pipe->used)
        pipe++;
    if (proxy->refuse_all || pipe == proxy->pipes + PIPES_MAX) {
        close(fd);
        return;
    }
    int on = 1;
    pipe->used = true;
    pipe->lane = pipe->known = false;
    pipe->carried = 0;
    pipe->last = proxy->cut_after;
    pipe->ends[0] = fd;
    pipe->ends[1] = dial_local(proxy->target_port);
    setsockopt(pipe->ends[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(pipe->ends[1], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(pipe->ends[1], F_SETFL, O_NONBLOCK);
    memset(pipe->count, 0, sizeof pipe->count);
    memset(pipe->over, 0, sizeof pipe->over);
}

/* Moves what can be moved one way; false when the connection is broken. */
static bool pump(struct proxy *proxy, struct pipe *pipe, int from)
{
    if (!pipe->count[from] && !pipe->over[from]) {
        ssize_t got = recv(pipe->ends[from], pipe->bytes[from], PIPE_ROOM, 0);
        if (got < 0 && errno == EAGAIN)
            return true;
        if (got < 0)
            return false;
        if (got == 0) {
            pipe->over[from] = true;
            shutdown(pipe->ends[1 - from], SHUT_WR);
            return !pipe->over[1 - from];
        }
        pipe->at[from] = 0;
        pipe->count[from] = (size_t)got;
        if (!pipe->known && from == 0) {
            pipe->known = true;
            pipe->lane = pipe->bytes[0][0] == 'S';
            proxy->lanes += pipe->lane;
            if (pipe->lane && proxy->refuse_lanes)
                return false;
        }
    }
    if (!pipe->count[from])
        return true;
    ssize_t put = send(pipe->ends[1 - from], pipe->bytes[from] + pipe->at[from], pipe->count[from],
                       MSG_NOSIGNAL);
    if (put < 0)
        return errno == EAGAIN;
    pipe->at[from] += (size_t)put;
    pipe->count[from] -= (size_t)put;
    pipe->carried += (size_t)put;
    proxy->carried += pipe->lane ? (size_t)put : 0;
    return !(pipe->lane && pipe->last && pipe->carried > pipe->last);
}

static void *proxy_run(void *arg)
{
    struct proxy *proxy = arg;
    while (!atomic_load(&proxy->stop)) {
        struct pollfd fds[PIPES_MAX * 2 + 1] = {{.fd = proxy->listener, .events = POLLIN}};
        nfds_t count = 1;
        pthread_mutex_lock(&proxy->lock);
        for (struct pipe *p = proxy->pipes; p < proxy->pipes + PIPES_MAX && !proxy->hold; p++)
            for (int i = 0; p->used && i < 2; i++) {
                short events = 0;
                if (!p->count[i] && !p->over[i])
                    events |= POLLIN;
                if (p->count[1 - i])
                    events |= POLLOUT;
                fds[count++] = (struct pollfd){.fd = events ? p->ends[i] : -1, .events = events};
            }
        pthread_mutex_unlock(&proxy->lock);
        poll(fds, count, 10);
        pthread_mutex_lock(&proxy->lock);
        if (fds[0].revents)
            take_in(proxy);
        for (struct pipe *p = proxy->pipes; p < proxy->pipes + PIPES_MAX && !proxy->hold; p++)
            if (p->used && (!pump(proxy, p, 0) || !pump(proxy, p, 1)))
                pipe_end(p);
        pthread_mutex_unlock(&proxy->lock);
    }
    return NULL;
}

struct proxy *proxy_new(const char *target_host)
{
    struct proxy *proxy = calloc(1, sizeof *proxy);
    char port[8];
    MUST(proxy);
    pthread_mutex_init(&proxy->lock, NULL);
    proxy->listener = listen_local(port);
    fcntl(proxy->listener, F_SETFL, O_NONBLOCK);
    snprintf(proxy->host, sizeof proxy->host, "127.0.0.1:%s", port);
    snprintf(proxy->target_port, sizeof proxy->target_port, "%s", strchr(target_host, ':') + 1);
    MUST(pthread_create(&proxy->thread, NULL, proxy_run, proxy) == 0);
    return proxy;
}

void proxy_free(struct proxy *proxy)
{
    atomic_store(&proxy->stop, true);
    pthread_join(proxy->thread, NULL);
    proxy_cut_all(proxy);
    close(proxy->listener);
    pthread_mutex_destroy(&proxy->lock);
    free(proxy);
}

const char *proxy_host(const struct proxy *proxy)
{
    return proxy->host;
}

static void cut(struct proxy *proxy, bool lanes_only)
{
    pthread_mutex_lock(&proxy->lock);
    for (struct pipe *p = proxy->pipes; p < proxy->pipes + PIPES_MAX; p++)
        if (p->used && (p->lane || !lanes_only))
            pipe_end(p);
    pthread_mutex_unlock(&proxy->lock);
}

void proxy_cut_lanes(struct proxy *proxy)
{
    cut(proxy, true);
}

void proxy_cut_all(struct proxy *proxy)
{
    cut(proxy, false);
}

void proxy_target(struct proxy *proxy, const char *target_host)
{
    pthread_mutex_lock(&proxy->lock);
    snprintf(proxy->target_port, sizeof proxy->target_port, "%s", strchr(target_host, ':') + 1);
    pthread_mutex_unlock(&proxy->lock);
}

void proxy_hold(struct proxy *proxy, bool hold)
{
    pthread_mutex_lock(&proxy->lock);
    proxy->hold = hold;
    pthread_mutex_unlock(&proxy->lock);
}

void proxy_refuse(struct proxy *proxy, bool lanes_only, bool refuse)
{
    pthread_mutex_lock(&proxy->lock);
    *(lanes_only ? &proxy->refuse_lanes : &proxy->refuse_all) = refuse;
    pthread_mutex_unlock(&proxy->lock);
}

void proxy_cut_after(struct proxy *proxy, uint64_t bytes)
{
    pthread_mutex_lock(&proxy->lock);
    proxy->cut_after = bytes;
    for (struct pipe *p = proxy->pipes; p < proxy->pipes + PIPES_MAX; p++)
        p->last = bytes ? p->carried + bytes : 0;
    pthread_mutex_unlock(&proxy->lock);
}

unsigned proxy_lanes(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->lock);
    unsigned lanes = proxy->lanes;
    pthread_mutex_unlock(&proxy->lock);
    return lanes;
}

uint64_t proxy_carried(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->lock);
    uint64_t carried = proxy->carried;
    pthread_mutex_unlock(&proxy->lock);
    return carried;
}
