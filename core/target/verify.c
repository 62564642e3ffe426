/* VERIFY: one thread for each, a few at once. It reads for hours, so nothing else may wait for it;
 * it stops when its session ends. What it finds damaged it says itself; how far it is the control
 * thread says, by the clock, so that a slow disk does not look like a dead target. */
#include "core/target/target_internal.h"

#include "core/base/alloc.h"
#include "core/base/thread.h"

#include <stdio.h>
#include <string.h>

#define TELL_NS (SL_NS_PER_S / 2) /* docs/wire.md: at least each second */

struct verification {
    struct task task;
    struct verification *next; /* control's */
    pthread_t thread;
    uint32_t request;
    uint64_t told_ns; /* control's */
    /* written by the thread, read by control */
    atomic_uint_fast64_t objects, bytes, damaged, total_bytes, stepped_ns;
    /* the thread's; control's once it has mailed */
    int code, send_code;
    struct sl_err err;
    char name[SL_FULL_NAME_MAX];
};

/* --- the thread ------------------------------------------------------------------------------ */

static int step(void *arg, uint64_t objects, uint64_t bytes, uint64_t damaged)
{
    struct verification *v = arg;
    if (atomic_load(&v->task.session->cancelled))
        return SL_ERR_CANCELLED;
    atomic_store(&v->objects, objects);
    atomic_store(&v->bytes, bytes);
    atomic_store(&v->damaged, damaged);
    atomic_store(&v->stepped_ns, sl_now_ns());
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
    sum_folder(&sum);
    atomic_store(&v->total_bytes, sum.bytes);
    v->code = sl_repo_verify(target->config.repo, v->name, &verify, &v->err);
    if (v->code && !v->err.code)
        sl_err_set(&v->err, v->code, "%s", sl_code_text(v->code));
    (void)step(v, verify.objects, verify.bytes, verify.damaged);
    sl_target_mailbox_post_one(&target->box, &v->task.mail);
    return NULL;
}

/* --- the control thread ---------------------------------------------------------------------- */

static void tell(struct verification *v, bool done, uint64_t now_ns)
{
    struct sl_msg msg = {.type = SL_MSG_VERIFIED};
    msg.verified.request = v->request;
    msg.verified.done = done;
    msg.verified.objects = atomic_load(&v->objects);
    msg.verified.bytes = atomic_load(&v->bytes);
    msg.verified.damaged = atomic_load(&v->damaged);
    msg.verified.total_bytes = atomic_load(&v->total_bytes);
    v->told_ns = now_ns;
    sl_target_answer(v->task.session, &msg);
}

void sl_target_verify_tick(struct session *session, uint64_t now_ns)
{
    uint64_t patience_ns = session->target->config.verify_stall_ms * SL_NS_PER_MS;
    for (struct verification *v = session->verifications; v; v = v->next) {
        if (now_ns < v->told_ns + TELL_NS)
            continue;
        if (now_ns < atomic_load(&v->stepped_ns) + patience_ns)
            tell(v, false, now_ns);
        v->told_ns = now_ns; /* a disk that hangs is left to the client's deadline */
    }
}

uint64_t sl_target_verify_due_ns(const struct session *session)
{
    uint64_t due_ns = UINT64_MAX;
    for (const struct verification *v = session->verifications; v; v = v->next)
        due_ns = v->told_ns + TELL_NS < due_ns ? v->told_ns + TELL_NS : due_ns;
    return due_ns;
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
    v->told_ns = sl_now_ns();
    atomic_init(&v->stepped_ns, v->told_ns);
    session->verifies++;
    target->verifies++;
    int rc = sl_repo_name(session->stanza, verify->name, true, v->name, err);
    if (!rc)
        rc = sl_thread_start(&v->thread, "sl-verify", verify_run, v, err);
    if (!rc) {
        v->next = session->verifications;
        session->verifications = v;
        return 0;
    }
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
    struct session *session = task->session;
    struct verification **at = &session->verifications;
    pthread_join(v->thread, NULL); /* mailing was the last it did */
    while (*at != v)
        at = &(*at)->next;
    *at = v->next;
    if (v->code)
        sl_target_answer_error(session, SL_ABOUT_REQUEST, v->request, &v->err);
    else
        tell(v, true, sl_now_ns());
    session->verifies--;
    session->target->verifies--;
    sl_free(v);
}
