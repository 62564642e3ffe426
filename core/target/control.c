/* The control thread: one turn after another of events, mail, sessions and scheduling. It waits
 * for nothing but its epoll. */
#include "core/target/target_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#define EVENTS_MAX 64

int sl_target_control_watch(struct sl_target *target, int fd, struct watch *watch,
                            struct sl_err *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};
    if (epoll_ctl(target->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        return sl_err_sys(err, SL_ERR_LIMIT, errno, "could not watch a connection");
    return 0;
}

void sl_target_control_unwatch(struct sl_target *target, int fd)
{
    epoll_ctl(target->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

static void answer_ask(struct sl_target *target, struct ask *ask)
{
    int code = ask->run(target, ask, &ask->err);
    pthread_mutex_lock(&ask->lock);
    ask->code = code;
    ask->done = true;
    pthread_cond_signal(&ask->done_cond);
    pthread_mutex_unlock(&ask->lock);
}

static void task_done(struct task *task)
{
    if (task->kind <= TASK_CLOSE)
        sl_target_object_task_done(CONTAINER(task, struct object, task));
    else if (task->kind == TASK_VERIFY)
        sl_target_verify_done(task);
    else
        sl_target_question_done(task);
}

static void read_mail(struct sl_target *target)
{
    struct mail *next;
    for (struct mail *mail = sl_target_mailbox_take(&target->box); mail; mail = next) {
        next = mail->next; /* whoever gets the mail may free it */
        switch (mail->kind) {
        case MAIL_TAKEN:
            sl_target_piece_taken(CONTAINER(mail, struct piece, taken_mail));
            break;
        case MAIL_PIECE:
            sl_target_piece_over(CONTAINER(mail, struct piece, mail));
            break;
        case MAIL_LANE:
            sl_target_lane_gone(CONTAINER(mail, struct lane, mail));
            break;
        case MAIL_LANE_CLOSE:
            sl_target_lane_close_seen(CONTAINER(mail, struct lane, close_mail));
            break;
        case MAIL_TASK:
            task_done(CONTAINER(mail, struct task, mail));
            break;
        case MAIL_PUBLISHED:
            sl_target_writing_published(CONTAINER(mail, struct object, published_mail));
            break;
        case MAIL_ASK:
            answer_ask(target, CONTAINER(mail, struct ask, mail));
            break;
        default:
            abort(); /* mail for another thread */
        }
    }
}

static void sweep(struct sl_target *target)
{
    uint64_t now = sl_now_ns();
    struct session *next;
    sl_target_accept_tick(target, now);
    sl_target_complain_tick(target, now);
    for (struct session *session = target->sessions; session; session = next) {
        next = session->next;
        sl_target_session_tick(session, now);
        sl_target_session_over(session);
    }
}

static int wait_ms(const struct sl_target *target)
{
    uint64_t due = sl_target_accept_due_ns(target);
    for (const struct session *session = target->sessions; session; session = session->next) {
        if (session->dirty && !session->deaf && session->state != SESSION_ENDED)
            return 0;
        if (session->state != SESSION_ENDED && session->due_ns < due)
            due = session->due_ns;
        if (session->state != SESSION_LIVE && session->state != SESSION_ENDED &&
            session->deadline < due)
            due = session->deadline;
        uint64_t verify_due =
            session->state == SESSION_LIVE ? sl_target_verify_due_ns(session) : due;
        due = verify_due < due ? verify_due : due;
    }
    if (target->stopping && target->stop_deadline < due &&
        !sl_deadline_passed(target->stop_deadline))
        due = target->stop_deadline;
    return due == UINT64_MAX ? -1 : sl_deadline_poll_ms(due);
}

void *sl_target_control_run(void *arg)
{
    struct sl_target *target = arg;
    struct epoll_event events[EVENTS_MAX];
    while (!target->stopping || target->sessions) {
        int n = epoll_wait(target->epoll_fd, events, EVENTS_MAX, wait_ms(target));
        for (int i = 0; i < n; i++) {
            struct watch *watch = events[i].data.ptr;
            watch->ready(target, watch);
        }
        read_mail(target);
        sweep(target);
        sl_target_schedule_run(target);
    }
    return NULL;
}
