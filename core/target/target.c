/* Life of a target: start, stop, and what is asked of it from outside. */
#include "core/target/target.h"

#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/target/target_internal.h"
#include "core/transport/loopback.h"
#include "core/transport/tcp.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define POOL_BLOCKS_MIN 4u

static unsigned default_workers(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 2 ? 2 : n > 16 ? 16 : (unsigned)n;
}

static void set_default(unsigned *value, unsigned otherwise)
{
    if (!*value)
        *value = otherwise;
}

static void defaults(struct sl_target_config *config)
{
    set_default(&config->workers, default_workers());
    set_default(&config->lanes_per_session, 4);
    set_default(&config->sessions_max, 256);
    set_default(&config->depth, 16);
    set_default(&config->heartbeat_ms, 2000);
    set_default(&config->dead_ms, 8000);
    set_default(&config->verify_stall_ms, 600000);
    if (!config->pool_bytes)
        config->pool_bytes = 64u << 20;
    if (config->lanes_per_session > 64)
        config->lanes_per_session = 64;
    if (config->depth > 255) /* u8 in the lane's hello */
        config->depth = 255;
}

/* --- start ----------------------------------------------------------------------------------- */

static void mail_ready(struct sl_target *target, struct watch *watch)
{
    (void)target;
    (void)watch; /* mail is read in every turn */
}

static int start_rails(struct sl_target *target, struct sl_err *err)
{
    struct pool_rail *pool_rail;
    int rc = sl_loopback_rail_new(&target->local_rail, err);
    if (!rc)
        rc = sl_target_pool_meet(&target->pool, target->local_rail, &pool_rail, err);
    if (!rc && target->config.tls)
        rc = sl_tcp_rail_new(&target->tcp_rail, err);
    if (!rc && target->tcp_rail)
        rc = sl_target_pool_meet(&target->pool, target->tcp_rail, &pool_rail, err);
    return rc;
}

static int start_threads(struct sl_target *target, struct sl_err *err)
{
    target->workers = sl_calloc(target->config.workers, sizeof *target->workers);
    if (!target->workers)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    target->worker_count = target->config.workers;
    int rc = sl_target_disk_start(target, err);
    if (!rc)
        rc = sl_target_committer_start(target, err);
    for (unsigned i = 0; !rc && i < target->worker_count; i++)
        rc = sl_target_worker_start(&target->workers[i], target, i, err);
    if (!rc)
        rc = sl_thread_start(&target->thread, "sl-control", sl_target_control_run, target, err);
    target->started = !rc;
    return rc;
}

/* Frees what there is: also a target that was half made. Its control thread has ended. */
static void target_free(struct sl_target *target)
{
    for (unsigned i = 0; i < target->worker_count; i++)
        sl_target_worker_end(&target->workers[i]);
    sl_target_disk_end(target);
    sl_target_committer_end(target);
    if (target->epoll_fd >= 0)
        sl_target_accept_stop(target);
    sl_target_pool_fini(&target->pool);
    if (target->rdma_listener)
        target->rdma_listener->ops->free(target->rdma_listener);
    if (target->tcp_rail)
        target->tcp_rail->ops->rail_free(target->tcp_rail);
    if (target->local_rail)
        target->local_rail->ops->rail_free(target->local_rail);
    sl_target_mailbox_fini(&target->box);
    if (target->epoll_fd >= 0)
        close(target->epoll_fd);
    sl_free(target->workers);
    sl_free(target);
}

static int make(struct sl_target *target, struct sl_err *err)
{
    size_t blocks = target->config.pool_bytes / SL_BLOCK_BYTES;
    blocks = blocks < POOL_BLOCKS_MIN ? POOL_BLOCKS_MIN : blocks > 1u << 20 ? 1u << 20 : blocks;
    target->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (target->epoll_fd < 0)
        return sl_err_sys(err, SL_ERR_LIMIT, errno, "could not make an epoll");
    int rc = sl_target_mailbox_init(&target->box, err);
    target->box_watch.ready = mail_ready;
    if (!rc)
        rc = sl_target_control_watch(target, target->box.fd, &target->box_watch, err);
    if (!rc)
        rc = sl_target_pool_init(&target->pool, (unsigned)blocks, err);
    if (!rc)
        rc = start_rails(target, err);
    if (!rc && target->config.tls)
        rc = sl_target_accept_start(target, err);
    if (!rc)
        rc = start_threads(target, err);
    return rc;
}

int sl_target_start(const struct sl_target_config *config, struct sl_target **ret_target,
                    struct sl_err *err)
{
    struct sl_target *target = sl_calloc(1, sizeof *target);
    if (!target)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    target->config = *config;
    defaults(&target->config);
    target->epoll_fd = target->listen_fd = target->box.fd = -1;
    int rc = make(target, err);
    if (rc) {
        target_free(target);
        return rc;
    }
    *ret_target = target;
    return 0;
}

uint16_t sl_target_port(const struct sl_target *target)
{
    return target->port;
}

uint16_t sl_target_rdma_port(const struct sl_target *target)
{
    return target->rdma_listener ? target->rdma_listener->port : 0;
}

const char *sl_target_rdma_note(const struct sl_target *target)
{
    return target->rdma_note;
}

/* --- asked from outside ----------------------------------------------------------------------- */

int sl_target_ask(struct sl_target *target, struct ask *ask, struct sl_err *err)
{
    ask->mail.kind = MAIL_ASK;
    ask->done = false;
    pthread_mutex_init(&ask->lock, NULL);
    sl_cond_init(&ask->done_cond);
    sl_target_mailbox_post_one(&target->box, &ask->mail);
    pthread_mutex_lock(&ask->lock);
    while (!ask->done)
        sl_cond_wait(&ask->done_cond, &ask->lock, UINT64_MAX);
    pthread_mutex_unlock(&ask->lock);
    pthread_cond_destroy(&ask->done_cond);
    pthread_mutex_destroy(&ask->lock);
    if (ask->code)
        sl_err_copy(err, &ask->err);
    return ask->code;
}

struct stop_ask {
    struct ask ask;
    unsigned grace_ms;
};

static int stop_run(struct sl_target *target, struct ask *ask, struct sl_err *err)
{
    (void)err;
    struct stop_ask *stop = CONTAINER(ask, struct stop_ask, ask);
    sl_target_accept_stop(target);
    target->stopping = true; /* the sweep winds every session down */
    target->stop_deadline = sl_deadline_in_ms(stop->grace_ms);
    return 0;
}

void sl_target_stop(struct sl_target *target, unsigned grace_ms)
{
    struct stop_ask stop = {.ask.run = stop_run, .grace_ms = grace_ms};
    if (!target)
        return;
    sl_target_ask(target, &stop.ask, NULL);
    pthread_join(target->thread, NULL);
    target_free(target);
}

struct reload_ask {
    struct ask ask;
    struct sl_tls *tls;
};

static int reload_run(struct sl_target *target, struct ask *ask, struct sl_err *err)
{
    (void)err;
    struct reload_ask *reload = CONTAINER(ask, struct reload_ask, ask);
    if (reload->tls)
        target->config.tls = reload->tls;
    target->permit_generation++;
    return 0;
}

int sl_target_reload(struct sl_target *target, struct sl_tls *tls, struct sl_err *err)
{
    struct reload_ask reload = {.ask.run = reload_run, .tls = tls};
    return sl_target_ask(target, &reload.ask, err);
}

struct attach_ask {
    struct ask ask;
    struct sl_control *control;
};

static int attach_run(struct sl_target *target, struct ask *ask, struct sl_err *err)
{
    struct attach_ask *attach = CONTAINER(ask, struct attach_ask, ask);
    return sl_target_session_new(target, attach->control, NULL, sl_deadline_in_ms(HANDSHAKE_MS),
                                 err);
}

int sl_target_attach(struct sl_target *target, struct sl_control *control, struct sl_err *err)
{
    struct attach_ask attach = {.ask.run = attach_run, .control = control};
    return sl_target_ask(target, &attach.ask, err);
}

int sl_target_local_lane(struct sl_target *target, const struct sl_id *session,
                         struct sl_domain *client_domain, uint16_t lane_id,
                         struct sl_lane **ret_passive, struct sl_err *err)
{
    struct local_ask local = {.ask.run = sl_target_lane_local,
                              .session = *session,
                              .client_domain = client_domain,
                              .lane_id = lane_id};
    int rc = sl_target_ask(target, &local.ask, err);
    if (!rc)
        *ret_passive = local.passive;
    return rc;
}

void sl_target_stats(const struct sl_target *target, struct sl_target_stats *stats)
{
#define X(name) stats->name = atomic_load_explicit(&target->counters.name, memory_order_relaxed);
    COUNTERS(X)
#undef X
}
