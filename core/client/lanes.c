/* Lanes: made, watched, served, replaced. Whoever holds lanes->lock is their owning thread for that
 * while; what they carry is not looked at here but for the number in a notice. */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/client/client_internal.h"

#include <errno.h>
#include <openssl/rand.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS_MAX 32
#define LANES_ROOM (LANES_MAX * 2)

int sl_client_lanes_init(struct lanes *lanes, struct sl_err *err)
{
    lanes->next_id = 1;
    lanes->none_since = sl_now_ns();
    pthread_mutex_init(&lanes->lock, NULL);
    lanes->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (lanes->wake_fd < 0 || sl_cond_init(&lanes->changed)) {
        int sys = errno;
        if (lanes->wake_fd >= 0)
            close(lanes->wake_fd);
        pthread_mutex_destroy(&lanes->lock);
        return sl_err_sys(err, SL_ERR_LIMIT, sys, "could not make an eventfd");
    }
    return 0;
}

void sl_client_lanes_fini(struct lanes *lanes)
{
    pthread_cond_destroy(&lanes->changed);
    pthread_mutex_destroy(&lanes->lock);
    close(lanes->wake_fd);
}

static void wake(struct lanes *lanes)
{
    static const uint64_t one = 1;
    ssize_t ignored = write(lanes->wake_fd, &one, sizeof one); /* full is awake, too */
    (void)ignored;
}

/* --- the table (lock held) ------------------------------------------------------------------- */

static struct lane_entry *find(struct lanes *lanes, uint16_t id)
{
    for (unsigned i = 0; i < LANES_ROOM; i++)
        if (lanes->table[i].used && lanes->table[i].id == id)
            return &lanes->table[i];
    return NULL;
}

static unsigned count_live(const struct lanes *lanes)
{
    unsigned live = 0;
    for (unsigned i = 0; i < LANES_ROOM; i++)
        live += lanes->table[i].used && !lanes->table[i].down;
    return live;
}

static bool any_up(const struct lanes *lanes)
{
    for (unsigned i = 0; i < LANES_ROOM; i++)
        if (lanes->table[i].used && lanes->table[i].up && !lanes->table[i].down)
            return true;
    return false;
}

/* The next attempt waits longer each time, until a lane has lived for a while. */
static void back_off(struct lanes *lanes, bool lived)
{
    uint64_t ms = BACKOFF_MIN_MS;
    lanes->failures = lived ? 0 : lanes->failures + 1;
    for (unsigned i = 1; i < lanes->failures && ms < BACKOFF_MAX_MS; i++)
        ms *= 2;
    lanes->not_before = sl_deadline_in_ms(ms < BACKOFF_MAX_MS ? ms : BACKOFF_MAX_MS);
}

/* Frees our end. The entry stays until the target has said LANE_DOWN, too. */
static void put_down(struct lanes *lanes, struct lane_entry *entry, const char *reason)
{
    if (entry->down)
        return;
    bool lived = entry->up && sl_now_ns() - entry->since > BACKOFF_MAX_MS * SL_NS_PER_MS;
    entry->down = true;
    sl_lane_free(entry->lane);
    entry->lane = NULL;
    snprintf(lanes->reason, sizeof lanes->reason, "%s", reason);
    if (!any_up(lanes) && !lanes->none_since)
        lanes->none_since = sl_now_ns();
    back_off(lanes, lived);
    pthread_cond_signal(&lanes->changed);
}

/* --- making one ------------------------------------------------------------------------------ */

static int reserve(struct session *session, struct lane_entry **ret_entry, uint16_t *ret_id,
                   struct sl_err *err)
{
    struct lanes *lanes = &session->lanes;
    int rc = SL_ERR_BUSY;
    pthread_mutex_lock(&lanes->lock);
    if (lanes->next_id > UINT16_MAX)
        rc = SL_ERR_LIMIT;
    for (unsigned i = 0; i < LANES_ROOM && rc == SL_ERR_BUSY; i++)
        if (!lanes->table[i].used) {
            lanes->table[i] = (struct lane_entry){.id = (uint16_t)lanes->next_id++, .used = true};
            *ret_entry = &lanes->table[i];
            *ret_id = lanes->table[i].id;
            rc = 0;
        }
    pthread_mutex_unlock(&lanes->lock);
    if (rc == SL_ERR_LIMIT)
        sl_client_session_fail(session, SL_ERR_CLOSED, "the session has used up its lane numbers");
    return rc ? sl_err_set(err, rc, "no place for another lane") : 0;
}

static int check_reply(const struct session *session, const struct sl_lane_hello *ours,
                       const uint8_t bytes[SL_LANE_HELLO_BYTES], struct sl_err *err)
{
    struct sl_lane_hello reply;
    if (sl_lane_hello_decode(bytes, SL_LANE_HELLO_BYTES, &reply) ||
        !sl_lane_hello_verify(&reply, session->lane_key, 't') ||
        !sl_id_equal(&reply.session, &ours->session) || reply.lane != ours->lane ||
        reply.rail != ours->rail || reply.nonce != ours->nonce)
        return sl_err_set(err, SL_ERR_CRYPTO,
                          "who answered for a lane is not the target of this session");
    return 0;
}

static int dial(struct session *session, uint16_t id, sl_deadline deadline,
                struct sl_lane **ret_lane, struct sl_err *err)
{
    const struct sl_client_config *config = &session->client->config;
    struct lanes *lanes = &session->lanes;
    struct sl_lane_hello hello = {.version = SL_WIRE_VERSION,
                                  .session = session->welcome.session,
                                  .lane = id,
                                  .depth = (uint8_t)(lanes->depth > 255 ? 255 : lanes->depth)};
    uint8_t bytes[SL_LANE_HELLO_BYTES], reply[SL_LANE_HELLO_BYTES];
    if (RAND_bytes((uint8_t *)&hello.nonce, sizeof hello.nonce) != 1)
        return sl_err_set(err, SL_ERR_CRYPTO, "no random numbers");
    sl_lane_hello_sign(&hello, session->lane_key, 'c');
    sl_lane_hello_encode(&hello, bytes);
    struct sl_connect to = {.host = session->peer_ip,
                            .port = lanes->port,
                            .bind_address = config->bind_address,
                            .hello = bytes,
                            .depth = lanes->depth,
                            .deadline = deadline,
                            .traffic_class = config->traffic_class,
                            .cancel_fd = session->kick_fd};
    struct sl_lane *lane;
    int rc = lanes->rail->ops->connect(lanes->rail, lanes->domain, &to, reply, &lane, err);
    if (rc)
        return rc == SL_ERR_CANCELLED ? sl_client_session_over(session, err) : rc;
    rc = check_reply(session, &hello, reply, err);
    if (rc) {
        sl_lane_free(lane);
        return rc;
    }
    *ret_lane = lane;
    return 0;
}

int sl_client_lanes_add(struct session *session, sl_deadline deadline, struct sl_err *err)
{
    struct lanes *lanes = &session->lanes;
    const struct sl_embedded *embedded = &session->client->embedded;
    struct lane_entry *entry = NULL;
    struct sl_lane *lane = NULL;
    uint16_t id = 0;
    int rc = reserve(session, &entry, &id, err);
    if (rc)
        return rc;
    if (session->transport == SL_TRANSPORT_LOCAL)
        rc = embedded->local_lane(embedded->target, &session->welcome.session, lanes->domain, id,
                                  &lane, err);
    else
        rc = dial(session, id, deadline, &lane, err);
    pthread_mutex_lock(&lanes->lock);
    if (rc) {
        entry->used = false; /* should the target have a lane of that number, it will say so */
        if (!any_up(lanes) && !lanes->none_since)
            lanes->none_since = sl_now_ns();
    } else if (entry->down || !entry->used) {
        sl_lane_free(lane); /* the target was faster: LANE_DOWN came while we connected */
        entry->used = false;
    } else {
        entry->lane = lane;
        entry->since = sl_now_ns();
        if (!lanes->info.transport[0])
            lane->ops->info(lane, &lanes->info);
    }
    pthread_mutex_unlock(&lanes->lock);
    wake(lanes);
    return rc;
}

/* --- serving --------------------------------------------------------------------------------- */

struct watch {
    struct pollfd fds[LANES_ROOM + 1];
    uint16_t ids[LANES_ROOM + 1];
    nfds_t count;
};

static void watch_all(struct lanes *lanes, struct watch *watch)
{
    watch->fds[0] = (struct pollfd){.fd = lanes->wake_fd, .events = POLLIN};
    watch->count = 1;
    for (unsigned i = 0; i < LANES_ROOM; i++) {
        const struct lane_entry *entry = &lanes->table[i];
        if (!entry->used || !entry->lane)
            continue;
        watch->ids[watch->count] = entry->id;
        watch->fds[watch->count++] =
            (struct pollfd){.fd = entry->lane->fd, .events = entry->lane->events_wanted};
    }
}

static void say_down(struct session *session, uint16_t id, const char *reason)
{
    struct sl_msg msg = {.type = SL_MSG_LANE_DOWN};
    msg.lane_down.lane = id;
    snprintf(msg.lane_down.reason, sizeof msg.lane_down.reason, "%s", reason);
    pthread_mutex_lock(&session->lock);
    bool over = session->closed || session->failure.code; /* then lanes end as they should */
    sl_client_session_send(session, &msg);
    pthread_mutex_unlock(&session->lock);
    sl_log(over ? SL_LOG_DEBUG : SL_LOG_WARN, "client", "lane %u to %s was lost: %s", id,
           session->host, reason);
}

/* One turn of a lane; false when it is closed. Pushes noticed are noted in `pushes`; `*ret_more`
 * when there may be more to do. */
static bool turn(struct sl_lane *lane, uint64_t pushes[EVENTS_MAX], size_t *ret_count,
                 bool *ret_more)
{
    struct sl_lane_event events[EVENTS_MAX];
    size_t count = sl_lane_process(lane, events, EVENTS_MAX);
    *ret_count = 0;
    *ret_more = count == EVENTS_MAX;
    for (size_t i = 0; i < count; i++) {
        if (events[i].kind == SL_LANE_CLOSED)
            return false;
        if (events[i].kind != SL_LANE_NOTICE)
            continue;
        struct sl_reader r = sl_reader_on(events[i].notice, SL_NOTICE_BYTES);
        pushes[(*ret_count)++] = sl_read_u64(&r);
    }
    return true;
}

static void tell_pushes(struct session *session, const uint64_t *pushes, size_t count)
{
    pthread_mutex_lock(&session->lock);
    for (size_t i = 0; i < count; i++)
        sl_client_slots_noticed(session, pushes[i]);
    pthread_mutex_unlock(&session->lock);
}

static void serve(struct session *session, uint16_t id)
{
    struct lanes *lanes = &session->lanes;
    uint64_t pushes[EVENTS_MAX];
    for (bool more = true; more;) {
        char reason[sizeof((struct sl_lane *)0)->reason];
        size_t count = 0;
        more = false;
        /* the lock is dropped between turns, so that LANE_DOWN need not wait for a busy lane */
        pthread_mutex_lock(&lanes->lock);
        struct lane_entry *entry = find(lanes, id);
        bool there = entry && entry->lane, open = true;
        if (there)
            open = turn(entry->lane, pushes, &count, &more);
        if (there && !open) {
            snprintf(reason, sizeof reason, "%s", entry->lane->reason);
            put_down(lanes, entry, reason);
        }
        pthread_mutex_unlock(&lanes->lock);
        if (count)
            tell_pushes(session, pushes, count);
        if (there && !open)
            say_down(session, id, reason);
    }
}

static void *serving(void *arg)
{
    struct session *session = arg;
    struct lanes *lanes = &session->lanes;
    struct watch watch;
    for (;;) {
        pthread_mutex_lock(&lanes->lock);
        bool stop = lanes->stop;
        watch_all(lanes, &watch);
        pthread_mutex_unlock(&lanes->lock);
        if (stop)
            return NULL;
        /* a lane freed by the control thread while we wait is harmless: its number is looked up
         * again, and wake_fd is written whenever the table changes */
        int ready = poll(watch.fds, watch.count, 1000);
        uint64_t count;
        if (ready > 0 && watch.fds[0].revents)
            while (read(lanes->wake_fd, &count, sizeof count) < 0 && errno == EINTR)
                ;
        for (nfds_t i = 1; ready > 0 && i < watch.count; i++)
            if (watch.fds[i].revents)
                serve(session, watch.ids[i]);
    }
}

/* --- replacing ------------------------------------------------------------------------------- */

static void *connecting(void *arg)
{
    struct session *session = arg;
    struct lanes *lanes = &session->lanes;
    pthread_mutex_lock(&lanes->lock);
    while (!lanes->stop) {
        bool wanted = count_live(lanes) < lanes->wanted;
        if (!wanted || !sl_deadline_passed(lanes->not_before)) {
            sl_cond_wait(&lanes->changed, &lanes->lock,
                         wanted ? lanes->not_before : sl_deadline_in_ms(1000));
            continue;
        }
        struct sl_err err;
        pthread_mutex_unlock(&lanes->lock);
        int rc = sl_client_lanes_add(session, sl_deadline_in_ms(LANE_CONNECT_MS), &err);
        pthread_mutex_lock(&lanes->lock);
        if (rc) {
            back_off(lanes, false);
            snprintf(lanes->reason, sizeof lanes->reason, "%.199s", err.msg);
            if (!lanes->stop)
                sl_log_err(SL_LOG_DETAIL, "client", &err, "no new lane to %s", session->host);
        }
    }
    pthread_mutex_unlock(&lanes->lock);
    return NULL;
}

int sl_client_lanes_start(struct session *session, struct sl_err *err)
{
    struct lanes *lanes = &session->lanes;
    int rc = sl_thread_start(&lanes->serving, "sl-lanes", serving, session, err);
    if (rc)
        return rc;
    lanes->serving_runs = true;
    rc = sl_thread_start(&lanes->connecting, "sl-connect", connecting, session, err);
    lanes->connecting_runs = !rc;
    return rc;
}

void sl_client_lanes_stop(struct session *session)
{
    struct lanes *lanes = &session->lanes;
    pthread_mutex_lock(&lanes->lock);
    lanes->stop = true;
    pthread_cond_broadcast(&lanes->changed);
    pthread_mutex_unlock(&lanes->lock);
    wake(lanes);
    if (lanes->connecting_runs)
        pthread_join(lanes->connecting, NULL);
    if (lanes->serving_runs)
        pthread_join(lanes->serving, NULL);
    for (unsigned i = 0; i < LANES_ROOM; i++) {
        sl_lane_free(lanes->table[i].lane);
        lanes->table[i] = (struct lane_entry){0};
    }
}

/* --- what the target says of them (control thread) ----------------------------------------------
 */

void sl_client_lanes_up(struct session *session, uint16_t id)
{
    struct lanes *lanes = &session->lanes;
    pthread_mutex_lock(&lanes->lock);
    struct lane_entry *entry = find(lanes, id);
    bool up = entry && !entry->down && !entry->up;
    if (up) {
        entry->up = true;
        lanes->none_since = 0;
    }
    pthread_mutex_unlock(&lanes->lock);
    if (!up)
        return; /* given up here meanwhile */
    pthread_mutex_lock(&session->lock);
    session->lanes_up++;
    pthread_cond_broadcast(&session->changed);
    pthread_mutex_unlock(&session->lock);
}

/* Lanes that come up but never move a block are what a wrong MTU, or lost pause frames, look like:
 * small packets pass, full ones do not. */
static void suspect_path(struct session *session, const char *reason)
{
    struct sl_err err;
    pthread_mutex_lock(&session->lock);
    bool waiting = session->slots.offered > 0;
    for (uint32_t i = 0; i < session->slots.count && !waiting; i++)
        waiting = session->slots.all[i].state == SLOT_GOT;
    bool suspect = session->transport == SL_TRANSPORT_RDMA && !session->moved && waiting &&
                   ++session->lanes.lost_unmoved >= 2;
    if (suspect) {
        sl_err_set(&err, SL_ERR_DEVICE, "RDMA lanes come up, but no block gets through: %s",
                   reason);
        sl_err_hint(&err, "compare the MTU of both hosts' ports and of the switches between "
                          "(and PFC or ECN on RoCE), or set transport = tcp");
        sl_client_session_fail_locked(session, &err);
    }
    pthread_mutex_unlock(&session->lock);
    if (suspect)
        sl_client_transport_avoid_rdma(session->client, err.msg);
}

void sl_client_lanes_down(struct session *session, uint16_t id, const char *reason)
{
    struct lanes *lanes = &session->lanes;
    pthread_mutex_lock(&lanes->lock);
    struct lane_entry *entry = find(lanes, id);
    bool known = entry, news = entry && !entry->down, connecting_now = news && !entry->lane;
    if (news)
        put_down(lanes, entry, reason);
    if (entry && !connecting_now)
        entry->used = false; /* else sl_client_lanes_add() lets it go */
    pthread_mutex_unlock(&lanes->lock);
    wake(lanes);
    if (!known)
        return;
    if (news) /* else our end was down first, and has said so */
        sl_log(SL_LOG_WARN, "client", "the target closed lane %u: %s", id, reason);
    suspect_path(session, reason);
}

uint64_t sl_client_lanes_none_ns(struct session *session)
{
    struct lanes *lanes = &session->lanes;
    pthread_mutex_lock(&lanes->lock);
    uint64_t since = lanes->none_since;
    pthread_mutex_unlock(&lanes->lock);
    return since ? sl_now_ns() - since : 0;
}
