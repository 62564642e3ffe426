/* See the header. */
#include "tests/unit/core/client/world.h"

#include "core/base/fault.h"
#include "core/base/thread.h"

#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

/* --- target ---------------------------------------------------------------------------------- */

static bool permit(void *arg, const char *client, const char *stanza)
{
    (void)arg;
    (void)client;
    return strcmp(stanza, "forbidden") != 0;
}

void world_start(struct world *world, const struct world_options *options, uint16_t port)
{
    struct sl_err err;
    struct sl_target_config config = {.repo = world->repo,
                                      .workers = 2,
                                      .pool_bytes = 16 * MiB,
                                      .seal = options->seal,
                                      .heartbeat_ms = options->heartbeat_ms,
                                      .dead_ms = options->dead_ms,
                                      .lanes_per_session = options->lanes,
                                      .software = "test target",
                                      .permit = permit,
                                      .tls = options->listening ? world->server : NULL,
                                      .listen_address = "127.0.0.1",
                                      .listen_port = port,
                                      .rdma_note = "none in this test"};
    int rc = sl_target_start(&config, &world->target, &err);
    if (rc)
        fprintf(stderr, "%s\n", err.msg);
    MUST(rc == 0);
    world->embedded = (struct sl_embedded){world->target, sl_target_attach, sl_target_local_lane};
    if (options->listening)
        snprintf(world->host, sizeof world->host, "127.0.0.1:%u", sl_target_port(world->target));
}

void world_open(struct world *world, const struct world_options *options)
{
    struct sl_err err;
    char path[96];
    *world = (struct world){0};
    certs_make(&world->certs);
    snprintf(path, sizeof path, "%s/repo", world->certs.dir);
    MUST(sl_store_posix_open(path, true, &world->store, &err) == 0);
    MUST(sl_repo_open(world->store, true, &world->repo, &err) == 0);
    if (options->listening) {
        certs_issue(&world->certs, "backup1", "127.0.0.1");
        certs_issue(&world->certs, "db1", NULL);
        world->server = certs_tls_must(&world->certs, "backup1", true);
        world->client = certs_tls_must(&world->certs, "db1", false);
    }
    world_start(world, options, 0);
}

void world_close(struct world *world)
{
    sl_fault_set(NULL);
    if (world->target)
        sl_target_stop(world->target, 0);
    sl_tls_free(world->server);
    sl_tls_free(world->client);
    sl_repo_close(world->repo);
    world->store->ops->free(world->store);
    certs_remove(&world->certs);
}

void world_path(const struct world *world, const char *name, char *path, size_t room)
{
    snprintf(path, room, "%s/repo/main/%s", world->certs.dir, name);
}

uint8_t *content_new(unsigned seed, size_t count, bool holes)
{
    uint8_t *bytes = malloc(count + 1);
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
    MUST(bytes);
    for (size_t i = 0; i < count; i++) {
        if (i % 8 == 0)
            x = x * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(holes && i / MiB % 3 == 1 ? 0 : x >> (i % 8 * 8) | 1);
    }
    return bytes;
}

/* --- clients ------------------------------------------------------------------------------------
 */

struct sl_client_config config_for(const struct world *world, const char *const *hosts)
{
    return (struct sl_client_config){.stanza = "main",
                                     .hosts = hosts,
                                     .embedded = hosts ? NULL : &world->embedded,
                                     .tls = world->client,
                                     .traffic_class = -1,
                                     .connect_ms = 5000,
                                     .io_ms = 20000};
}

struct sl_client *open_must(const struct sl_client_config *config)
{
    struct sl_client *client = NULL;
    struct sl_err err;
    int rc = sl_client_open(config, SOON, &client, &err);
    if (rc)
        print_error("%s\n", err.msg);
    MUST(rc == 0);
    return client;
}

/* Uploads `bytes`, in pieces of awkward sizes. */
int upload(struct sl_client *client, const char *name, const uint8_t *bytes, size_t count,
           struct sl_stored *stored, struct sl_err *err)
{
    struct sl_upload *up;
    int rc = sl_upload_begin(client, name, count, SOON, &up, err);
    size_t done = 0, piece = 1;
    while (!rc && done < count) {
        size_t part = count - done < piece ? count - done : piece;
        if (piece % 2) {
            rc = sl_upload_write(up, bytes + done, part, err);
        } else {
            uint8_t *at;
            size_t room;
            rc = sl_upload_space(up, &at, &room, err);
            part = part < room ? part : room;
            if (!rc) {
                memcpy(at, bytes + done, part);
                rc = sl_upload_advance(up, part, err);
            }
        }
        done += part;
        piece = piece < 300000 ? piece * 3 + piece % 2 : 7;
        if (!rc)
            MUST(sl_upload_length(up) == done);
        else
            sl_upload_abort(up);
    }
    return rc ? rc : sl_upload_commit(up, 0, SOON, stored, err);
}

int fetch_and_compare(struct sl_client *client, const char *name, const uint8_t *bytes,
                      size_t count, struct sl_err *err)
{
    char *got = NULL;
    size_t got_count = 0;
    int rc = sl_client_fetch(client, name, 256 * MiB, SOON, &got, &got_count, err);
    if (rc)
        return rc;
    MUST(got_count == count && memcmp(got, bytes, count) == 0);
    free(got);
    return 0;
}

struct job {
    struct sl_client *client;
    unsigned number, objects;
    size_t bytes;
    pthread_t thread;
    unsigned redone; /* after a session was lost */
    int rc;
    struct sl_err err;
};

/* Does an object over until it is stored, as a caller of the client should. */
static void *work(void *arg)
{
    struct job *job = arg;
    sl_deadline deadline = sl_deadline_in_ms(60000);
    for (unsigned i = 0; i < job->objects && !job->rc; i++) {
        char name[64];
        struct sl_stored stored;
        size_t count = job->bytes / 2 + (job->number * 7919u + i * 104729u) % job->bytes;
        uint8_t *bytes = content_new(job->number * 100 + i, count, i % 2);
        snprintf(name, sizeof name, "j%u/o%u", job->number, i);
        while ((job->rc = upload(job->client, name, bytes, count, &stored, &job->err)) &&
               sl_code_retryable(job->rc) && !sl_deadline_passed(deadline))
            job->redone++;
        while (!job->rc &&
               (job->rc = fetch_and_compare(job->client, name, bytes, count, &job->err)) &&
               sl_code_retryable(job->rc) && !sl_deadline_passed(deadline)) {
            job->redone++;
            job->rc = 0;
        }
        free(bytes);
    }
    return NULL;
}

unsigned run_jobs(struct sl_client *client, unsigned threads, unsigned objects, size_t bytes,
                  void (*meanwhile)(void *arg), void *arg)
{
    struct job jobs[16];
    unsigned redone = 0;
    for (unsigned i = 0; i < threads; i++) {
        jobs[i] = (struct job){.client = client, .number = i, .objects = objects, .bytes = bytes};
        MUST(pthread_create(&jobs[i].thread, NULL, work, &jobs[i]) == 0);
    }
    if (meanwhile)
        meanwhile(arg);
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(jobs[i].thread, NULL);
        if (jobs[i].rc)
            print_error("job %u: %s\n", i, jobs[i].err.msg);
        assert_int_equal(jobs[i].rc, 0);
        redone += jobs[i].redone;
    }
    return redone;
}

/* --- proxy ----------------------------------------------------------------------------------- */

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
