/* VERIFY: one thread for each, a few at once. It reads for hours, so nothing else may wait for it;
 * it sends its findings itself and stops when its session ends. */
#include "core/target/target_internal.h"

#include "core/base/alloc.h"
#include "core/base/thread.h"

#include <stdio.h>
#include <string.h>

struct verification {
    struct task task;
    pthread_t thread;
    uint32_t request;
    uint64_t told_ns, total_bytes;
    int send_code;
    char name[SL_FULL_NAME_MAX];
};

static void send_progress(struct verification *v, bool done, uint64_t objects, uint64_t bytes,
                          uint64_t damaged)
{
    struct sl_msg msg = {.type = SL_MSG_VERIFIED};
    msg.verified.request = v->request;
    msg.verified.done = done;
    msg.verified.objects = objects;
    msg.verified.bytes = bytes;
    msg.verified.damaged = damaged;
    msg.verified.total_bytes = v->total_bytes;
    v->told_ns = sl_now_ns();
    int rc = sl_control_send(v->task.session->control, &msg);
    if (rc && !v->send_code)
        v->send_code = rc;
}

static int step(void *arg, uint64_t objects, uint64_t bytes, uint64_t damaged)
{
    struct verification *v = arg;
    if (atomic_load(&v->task.session->cancelled))
        return SL_ERR_CANCELLED;
    if (sl_now_ns() - v->told_ns >= SL_NS_PER_S / 2) /* at least each second, docs/wire.md */
        send_progress(v, false, objects, bytes, damaged);
    return v->send_code;
}

static void damage(void *arg, const char *name, int code, const char *text)
{
    struct verification *v = arg;
    size_t stanza = strlen(v->task.session->stanza);
    struct sl_msg msg = {.type = SL_MSG_DAMAGE};
    if (!strncmp(name, v->task.session->stanza, stanza) && name[stanza] == '/')
        name += stanza + 1;
    msg.damage.request = v->request;
    msg.damage.code = (uint16_t)-code;
    snprintf(msg.damage.name, sizeof msg.damage.name, "%s", name);
    snprintf(msg.damage.text, sizeof msg.damage.text, "%s", text);
    int rc = sl_control_send(v->task.session->control, &msg);
    if (rc && !v->send_code)
        v->send_code = rc;
}

/* How much there is to read, for progress; what cannot be listed is not counted. */
struct sum {
    struct verification *v;
    struct sl_store *store;
    const char *folder;
    uint64_t bytes;
};

static void sum_folder(struct sum *sum);

static int sum_visit(void *arg, const char *name, bool is_folder, uint64_t length)
{
    struct sum *sum = arg;
    if (!is_folder) {
        sum->bytes += length;
        return 0;
    }
    char *folder = sl_asprintf("%s/%s", sum->folder, name);
    if (folder && strlen(folder) < SL_FULL_NAME_MAX) {
        struct sum below = {sum->v, sum->store, folder, 0};
        sum_folder(&below);
        sum->bytes += below.bytes;
    }
    sl_free(folder);
    return step(sum->v, 0, 0, 0);
}

static void sum_folder(struct sum *sum)
{
    sum->store->ops->list(sum->store, sum->folder, sum_visit, sum, NULL);
}

static void *verify_run(void *arg)
{
    struct verification *v = arg;
    struct sl_target *target = v->task.session->target;
    struct sl_repo_verify verify = {.damage = damage, .step = step, .arg = v};
    struct sum sum = {v, target->config.repo->store, v->name, 0};
    struct sl_err err = {0};
    v->told_ns = sl_now_ns();
    sum_folder(&sum);
    v->total_bytes = sum.bytes;
    int rc = sl_repo_verify(target->config.repo, v->name, &verify, &err);
    if (!rc) {
        send_progress(v, true, verify.objects, verify.bytes, verify.damaged);
    } else {
        struct sl_msg msg = {.type = SL_MSG_ERROR};
        msg.error.code = (uint16_t)-rc;
        msg.error.kind = SL_ABOUT_REQUEST;
        msg.error.about = v->request;
        snprintf(msg.error.text, sizeof msg.error.text, "%s",
                 err.msg[0] ? err.msg : sl_code_text(rc));
        snprintf(msg.error.hint, sizeof msg.error.hint, "%s", err.hint);
        sl_control_send(v->task.session->control, &msg);
    }
    sl_target_mailbox_post_one(&target->box, &v->task.mail);
    return NULL;
}

/* Its thread runs, or the code. It counts before it runs: it keeps the control. */
static int verify_begin(struct session *session, const struct sl_msg_verify *verify,
                        struct sl_err *err)
{
    struct sl_target *target = session->target;
    if (target->verifies >= VERIFIES_MAX || target->stopping)
        return sl_err_set(err, SL_ERR_BUSY, "the target runs %u verifications already",
                          target->verifies);
    struct verification *v = sl_calloc(1, sizeof *v);
    if (!v)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    v->task.mail.kind = MAIL_TASK;
    v->task.kind = TASK_VERIFY;
    v->task.session = session;
    v->request = verify->request;
    session->verifies++;
    target->verifies++;
    int rc = sl_repo_name(session->stanza, verify->name, true, v->name, err);
    if (!rc)
        rc = sl_thread_start(&v->thread, "sl-verify", verify_run, v, err);
    if (!rc)
        return 0;
    session->verifies--;
    target->verifies--;
    sl_free(v);
    return rc;
}

void sl_target_verify_arrived(struct session *session, const struct sl_msg_verify *verify)
{
    struct sl_err err;
    if (sl_target_session_permitted(session) && verify_begin(session, verify, &err) != 0)
        sl_target_answer_error(session, SL_ABOUT_REQUEST, verify->request, &err);
}

void sl_target_verify_done(struct task *task)
{
    struct verification *v = CONTAINER(task, struct verification, task);
    pthread_join(v->thread, NULL); /* mailing was the last it did */
    task->session->verifies--;
    task->session->target->verifies--;
    sl_free(v);
}
