/* A lane worker: the loop over its lanes, its mailbox and its store queue. It decides nothing: it
 * carries the pieces it is given (pull.c, push.c have their steps) and mails them back. */
#include "core/target/target_internal.h"

#include "core/base/clock.h"
#include "core/base/thread.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_MAX 32

/* --- pieces ---------------------------------------------------------------------------------- */

static void out_add(struct worker *worker, struct mail *mail)
{
    sl_target_mail_chain_add(&worker->out, mail);
}

void sl_target_worker_over(struct worker *worker, struct piece *piece, int code, int sys)
{
    sl_target_piece_to(piece, PIECE_OVER);
    piece->code = code;
    piece->sys = sys;
    out_add(worker, &piece->mail);
}

void sl_target_worker_lost(struct worker *worker, struct piece *piece)
{
    piece->lost = true;
    sl_target_worker_over(worker, piece, SL_ERR_CLOSED, 0);
}

/* Hands waiting pieces to the store queue until it is full. */
static void store_pump(struct worker *worker)
{
    struct piece *piece;
    while ((piece = worker->store_waiting.first)) {
        int rc = sl_target_store_post(worker, piece);
        if (rc == SL_ERR_BUSY)
            return;
        sl_target_piece_list_remove(&worker->store_waiting, piece);
        if (rc) {
            sl_target_worker_over(worker, piece, rc, 0);
            continue;
        }
        sl_target_piece_to(piece, PIECE_STORING);
        worker->submitted = true;
    }
}

int sl_target_store_post(struct worker *worker, struct piece *piece)
{
    const struct sl_store_ops *ops = worker->queue->store->ops;
    size_t bytes = (size_t)sl_align_up(piece->block.stored_bytes);
    uint64_t context = (uint64_t)(uintptr_t)piece;
    if (piece->out)
        return ops->queue_read(worker->queue, piece->file, piece->buffer->start, bytes,
                               piece->file_offset, context);
    return ops->queue_write(worker->queue, piece->file, piece->buffer->start, bytes,
                            piece->file_offset, context);
}

void sl_target_worker_store(struct worker *worker, struct piece *piece)
{
    sl_target_piece_to(piece, PIECE_STORE_WAIT);
    sl_target_piece_list_add(&worker->store_waiting, piece);
    store_pump(worker);
}

static void store_reap(struct worker *worker)
{
    struct sl_store_done done[EVENTS_MAX];
    size_t n;
    do {
        n = worker->queue->store->ops->queue_reap(worker->queue, done, EVENTS_MAX);
        for (size_t i = 0; i < n; i++) {
            struct piece *piece = (struct piece *)(uintptr_t)done[i].context;
            (piece->out ? sl_target_push_read : sl_target_pull_written)(worker, piece, done[i].code,
                                                                        done[i].sys);
        }
    } while (n == EVENTS_MAX);
    store_pump(worker);
}

/* --- lanes ----------------------------------------------------------------------------------- */

/* The lane is closed: frees it, then reports it, then the pieces it did not carry, in this order:
 * control must say LANE_DOWN before their new transfers can be seen by the client. */
static void lane_end(struct worker *worker, struct lane *lane)
{
    if (lane->watched)
        epoll_ctl(worker->epoll_fd, EPOLL_CTL_DEL, lane->lane->fd, NULL);
    snprintf(lane->reason, sizeof lane->reason, "%s", lane->lane->reason);
    sl_lane_free(lane->lane);
    lane->lane = NULL;
    sl_sealer_free(lane->sealer);
    sl_sealer_free(lane->unsealer);
    lane->sealer = lane->unsealer = NULL;
    for (struct lane **at = &worker->lanes; *at; at = &(*at)->worker_next)
        if (*at == lane) {
            *at = lane->worker_next;
            break;
        }
    out_add(worker, &lane->mail);
    struct piece *piece;
    while ((piece = sl_target_piece_list_pop(&lane->lost)) ||
           (piece = sl_target_piece_list_pop(&lane->waiting)) ||
           (piece = sl_target_piece_list_pop(&lane->moving)))
        sl_target_worker_lost(worker, piece);
}

static bool lane_busy(const struct lane *lane)
{
    return lane->moving.count || lane->waiting.count;
}

static void lane_watch(struct worker *worker, struct lane *lane)
{
    short wanted = lane->lane->events_wanted;
    if (wanted == lane->watched)
        return;
    struct epoll_event event = {.events = (wanted & POLLIN ? (uint32_t)EPOLLIN : 0u) |
                                          (wanted & POLLOUT ? (uint32_t)EPOLLOUT : 0u),
                                .data.ptr = lane};
    int op = !lane->watched ? EPOLL_CTL_ADD : wanted ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
    if (epoll_ctl(worker->epoll_fd, op, lane->lane->fd, &event) == 0)
        lane->watched = wanted;
    else
        sl_lane_close(lane->lane, SL_ERR_LIMIT, "the target could not watch the lane");
}

static void lane_event(struct worker *worker, struct lane *lane, const struct sl_lane_event *event)
{
    if (event->kind == SL_LANE_CLOSED) {
        lane->end_code = event->code;
        lane_end(worker, lane);
        return;
    }
    lane->progress_ns = sl_now_ns();
    if (event->kind == SL_LANE_NOTICED)
        lane->notices--;
    if (event->kind != SL_LANE_PULLED && event->kind != SL_LANE_PUSHED)
        return;
    struct piece *piece = (struct piece *)(uintptr_t)event->context;
    assert(piece->lane == lane && piece->state == PIECE_MOVING);
    sl_target_piece_list_remove(&lane->moving, piece);
    if (event->code)
        sl_target_piece_list_add(&lane->lost, piece); /* answered when the lane is gone */
    else if (piece->out)
        sl_target_worker_over(worker, piece, 0, 0);
    else
        sl_target_pull_arrived(worker, piece);
}

/* Posts what waits. Returns true when the lane failed meanwhile and must be processed. */
static bool lane_pump(struct lane *lane)
{
    struct piece *piece;
    while ((piece = lane->waiting.first)) {
        int rc = sl_target_lane_post(lane, piece);
        if (rc == SL_ERR_BUSY)
            return false;
        if (rc) {
            sl_lane_close(lane->lane, rc, "work could not be posted");
            return true; /* what waits is lost with the lane */
        }
        sl_target_piece_list_remove(&lane->waiting, piece);
        sl_target_piece_to(piece, PIECE_MOVING);
        sl_target_piece_list_add(&lane->moving, piece);
    }
    return false;
}

int sl_target_lane_post(struct lane *lane, struct piece *piece)
{
    struct sl_local local = {lane->region, piece->buffer->start};
    uint64_t offset = (uint64_t)(piece->block.slot - piece->memory_slot) * SL_BLOCK_BYTES;
    uint64_t context = (uint64_t)(uintptr_t)piece;
    uint32_t bytes = piece->block.stored_bytes;
    if (!piece->out)
        return sl_lane_pull(lane->lane, local, &piece->memory, offset, bytes, context);
    if (lane->notices >= lane->lane->depth) /* a push without its notice would be for nothing */
        return SL_ERR_BUSY;
    int rc = sl_lane_push(lane->lane, local, &piece->memory, offset, bytes, context);
    if (rc)
        return rc;
    piece->push_number = (uint64_t)lane->id << 48 | ++lane->pushes;
    uint8_t notice[SL_NOTICE_BYTES];
    struct sl_writer w = sl_writer_on(notice, sizeof notice);
    sl_write_u64(&w, piece->push_number);
    sl_write_u64(&w, 0);
    rc = sl_lane_notice(lane->lane, notice);
    lane->notices += !rc;
    if (rc) /* the push is posted and will be answered, but the lane is of no use any more */
        sl_lane_close(lane->lane, rc, "a notice could not be posted");
    return 0;
}

static void lane_run(struct worker *worker, struct lane *lane)
{
    struct sl_lane_event events[EVENTS_MAX];
    bool failed;
    size_t n;
    do { /* posts first: what is posted is sent by process() */
        lane->touched = false;
        failed = lane_pump(lane);
        n = sl_lane_process(lane->lane, events, EVENTS_MAX);
        for (size_t i = 0; i < n; i++) {
            lane_event(worker, lane, &events[i]);
            if (!lane->lane)
                return;
        }
    } while (failed || n == EVENTS_MAX || (n && lane->waiting.count));
    lane_watch(worker, lane);
}

/* Lanes that got work in this turn: once for all of it. */
static void run_touched(struct worker *worker)
{
    struct lane *next;
    for (struct lane *lane = worker->lanes; lane; lane = next) {
        next = lane->worker_next;
        if (lane->touched)
            lane_run(worker, lane);
    }
}

void sl_target_worker_move(struct worker *worker, struct piece *piece)
{
    struct lane *lane = piece->lane;
    if (!lane->lane) {
        sl_target_worker_lost(worker, piece);
        return;
    }
    if (!lane_busy(lane))
        lane->progress_ns = sl_now_ns();
    sl_target_piece_to(piece, PIECE_MOVE_WAIT);
    sl_target_piece_list_add(&lane->waiting, piece);
    lane->touched = true;
}

static void lane_begin(struct worker *worker, struct lane *lane)
{
    lane->worker_next = worker->lanes;
    worker->lanes = lane;
    int rc = 0;
    if (lane->sealed) {
        rc = sl_sealer_new(lane->session->secret_in, &lane->unsealer, NULL);
        if (!rc)
            rc = sl_sealer_new(lane->session->secret_out, &lane->sealer, NULL);
    }
    if (rc)
        sl_lane_close(lane->lane, rc, "the target could not make the lane's seals");
    lane_run(worker, lane);
}

static void lane_close_asked(struct worker *worker, struct lane *lane)
{
    if (lane->lane) {
        sl_lane_close(lane->lane, SL_ERR_CLOSED, "closed by the target");
        lane_run(worker, lane);
    }
    out_add(worker, &lane->close_mail);
}

/* Closes lanes on which nothing ended for dead_ms although something is under way. */
static void watchdog(struct worker *worker)
{
    uint64_t now = sl_now_ns(), patience = worker->target->config.dead_ms * SL_NS_PER_MS;
    struct lane *next;
    for (struct lane *lane = worker->lanes; lane; lane = next) {
        next = lane->worker_next;
        if (!lane_busy(lane) || now - lane->progress_ns < patience)
            continue;
        char reason[sizeof lane->reason];
        snprintf(reason, sizeof reason, "no transfer ended for %u ms",
                 worker->target->config.dead_ms);
        sl_lane_close(lane->lane, SL_ERR_TIMEOUT, reason);
        lane_run(worker, lane);
    }
}

static int wait_ms(const struct worker *worker)
{
    for (const struct lane *lane = worker->lanes; lane; lane = lane->worker_next)
        if (lane_busy(lane)) {
            unsigned ms = worker->target->config.dead_ms / 4;
            return (int)(ms < 20 ? 20 : ms > 1000 ? 1000 : ms);
        }
    return -1;
}

/* --- the loop -------------------------------------------------------------------------------- */

static void read_mail(struct worker *worker)
{
    struct mail *next;
    for (struct mail *mail = sl_target_mailbox_take(&worker->box); mail; mail = next) {
        next = mail->next;
        switch (mail->kind) {
        case MAIL_PIECE: {
            struct piece *piece = CONTAINER(mail, struct piece, mail);
            (piece->out ? sl_target_push_begin : sl_target_pull_begin)(worker, piece);
            break;
        }
        case MAIL_LANE:
            lane_begin(worker, CONTAINER(mail, struct lane, mail));
            break;
        case MAIL_LANE_CLOSE:
            lane_close_asked(worker, CONTAINER(mail, struct lane, close_mail));
            break;
        case MAIL_END:
            worker->end = true;
            break;
        default:
            abort(); /* mail for another thread */
        }
    }
}

static void *worker_run(void *arg)
{
    struct worker *worker = arg;
    struct epoll_event events[EVENTS_MAX];
    while (!worker->end) {
        int n = epoll_wait(worker->epoll_fd, events, EVENTS_MAX, wait_ms(worker));
        for (int i = 0; i < n; i++) {
            void *owner = events[i].data.ptr;
            if (owner == &worker->box || owner == worker->queue)
                continue;
            struct lane *lane = owner;
            if (lane->lane) /* it may have ended in this turn; its struct is control's only later */
                lane_run(worker, lane);
        }
        read_mail(worker);
        store_reap(worker);
        run_touched(worker);
        watchdog(worker);
        if (worker->submitted) {
            worker->queue->store->ops->queue_flush(worker->queue);
            worker->submitted = false;
        }
        sl_target_mailbox_post(&worker->target->box, &worker->out);
    }
    return NULL;
}

static int watch_fd(struct worker *worker, int fd, void *owner, struct sl_err *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = owner};
    if (epoll_ctl(worker->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        return sl_err_sys(err, SL_ERR_LIMIT, errno, "could not watch a file");
    return 0;
}

int sl_target_worker_start(struct worker *worker, struct sl_target *target, unsigned number,
                           struct sl_err *err)
{
    struct sl_store *store = target->config.repo->store;
    unsigned depth = target->pool.count < 128 ? target->pool.count : 128;
    char name[16];
    worker->target = target;
    worker->box.fd = -1;
    sl_target_mail_chain_init(&worker->out);
    sl_target_mail_chain_init(&worker->given);
    worker->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (worker->epoll_fd < 0)
        return sl_err_sys(err, SL_ERR_LIMIT, errno, "could not make an epoll");
    int rc = sl_target_mailbox_init(&worker->box, err);
    if (!rc)
        rc = store->ops->queue_new(store, depth, &worker->queue, err);
    if (!rc)
        rc = watch_fd(worker, worker->box.fd, &worker->box, err);
    if (!rc)
        rc = watch_fd(worker, worker->queue->fd, worker->queue, err);
    snprintf(name, sizeof name, "sl-lanes-%u", number);
    if (!rc)
        rc = sl_thread_start(&worker->thread, name, worker_run, worker, err);
    worker->started = !rc;
    return rc;
}

void sl_target_worker_end(struct worker *worker)
{
    if (!worker->target)
        return; /* never begun */
    if (worker->started) {
        worker->end_mail.kind = MAIL_END;
        sl_target_mailbox_post_one(&worker->box, &worker->end_mail);
        pthread_join(worker->thread, NULL);
    }
    if (worker->queue)
        worker->queue->store->ops->queue_free(worker->queue);
    sl_target_mailbox_fini(&worker->box);
    if (worker->epoll_fd >= 0)
        close(worker->epoll_fd);
}
