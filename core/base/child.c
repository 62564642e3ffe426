/* Starting, waiting for and ending a program. What it says is not looked at here. */
#include "core/base/child.h"

#include "core/base/fault.h"
#include "core/base/stop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define TERM_MS 5000u

extern char **environ;

/* The child's end and ours of its standard input, output, error. */
struct pipes {
    int theirs[3], ours[3];
};

static void close_all(int fds[3])
{
    for (size_t i = 0; i < 3; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

static int make_pipes(unsigned wanted, struct pipes *p)
{
    int sys = sl_fault("child.pipe");
    for (int i = 0; !sys && i < 3; i++) {
        int fds[2];
        if (!(wanted & 1u << i))
            continue;
        if (pipe2(fds, O_CLOEXEC)) {
            sys = errno;
        } else {
            p->theirs[i] = fds[i ? 1 : 0];
            p->ours[i] = fds[i ? 0 : 1];
        }
    }
    return sys;
}

static int add_pipes(posix_spawn_file_actions_t *actions, const struct pipes *p)
{
    int sys = 0;
    for (int i = 0; !sys && i < 3; i++)
        if (p->theirs[i] >= 0)
            sys = posix_spawn_file_actions_adddup2(actions, p->theirs[i], i);
    return sys;
}

/* SIGPIPE is ignored and stop's handlers stand: neither is the child's business. */
static int spawn(const char *const *argv, const struct pipes *p, pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    int sys = posix_spawn_file_actions_init(&actions);
    if (sys)
        return sys;
    sys = posix_spawnattr_init(&attributes);
    if (sys) {
        posix_spawn_file_actions_destroy(&actions);
        return sys;
    }
    sigemptyset(&none);
    sigfillset(&all);
    sys = add_pipes(&actions, p);
    if (!sys)
        sys = posix_spawnattr_setsigmask(&attributes, &none);
    if (!sys)
        sys = posix_spawnattr_setsigdefault(&attributes, &all);
    if (!sys)
        sys = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (!sys) /* posix_spawn changes neither the words nor their array */
        sys = posix_spawnp(ret_pid, argv[0], &actions, &attributes, (char *const *)(uintptr_t)argv,
                           environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return sys;
}

int sl_child_start(const char *const *argv, unsigned wanted, struct sl_child *ret_child,
                   struct sl_err *err)
{
    struct pipes p = {{-1, -1, -1}, {-1, -1, -1}};
    struct sl_child child = {0};
    snprintf(child.name, sizeof child.name, "%s", argv[0]);
    int rc = 0, sys = make_pipes(wanted, &p);
    if (sys)
        rc = sl_err_sys(err, SL_ERR_LIMIT, sys, "could not make a pipe to a program");
    if (!rc) {
        sys = sl_fault("child.spawn");
        if (!sys)
            sys = spawn(argv, &p, &child.pid);
        if (sys)
            rc = sl_err_sys(err, SL_ERR_OPEN, sys, "could not start \"%s\"", child.name);
    }
    close_all(p.theirs);
    if (rc) {
        close_all(p.ours);
        return rc;
    }
    child.in_fd = p.ours[0];
    child.out_fd = p.ours[1];
    child.err_fd = p.ours[2];
    *ret_child = child;
    return 0;
}

/* 1 ended, 0 not yet, or a code; a stop counts only with `stoppable`. */
static int await_end(pid_t pid, sl_deadline deadline, bool stoppable, struct sl_err *err)
{
    struct pollfd fds[2] = {{.fd = pidfd_open(pid, 0), .events = POLLIN},
                            {.fd = stoppable ? sl_stop_fd() : -1, .events = POLLIN}};
    if (fds[0].fd < 0)
        return sl_err_sys(err, SL_ERR_LIMIT, errno, "could not watch process %d", (int)pid);
    int rc = 0;
    while (!rc && !(fds[0].revents & POLLIN)) {
        int n = poll(fds, 2, sl_deadline_poll_ms(deadline));
        if (n < 0 && errno != EINTR)
            rc = sl_err_sys(err, SL_ERR_INTERNAL, errno, "poll failed");
        else if (fds[1].revents)
            rc = sl_stop_check(err);
        else if (!n && sl_deadline_passed(deadline))
            break;
        if (n < 0)
            fds[0].revents = fds[1].revents = 0;
    }
    close(fds[0].fd);
    return rc ? rc : fds[0].revents & POLLIN ? 1 : 0;
}

bool sl_child_ended(const struct sl_child *child)
{
    siginfo_t info = {0};
    return !child->pid || (!waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) &&
                           info.si_pid == child->pid);
}

static int reap(struct sl_child *child)
{
    int status = 0;
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        ;
    child->pid = 0;
    return status;
}

static void close_pipes(struct sl_child *child)
{
    if (child->in_fd >= 0)
        close(child->in_fd);
    if (child->out_fd >= 0)
        close(child->out_fd);
    if (child->err_fd >= 0)
        close(child->err_fd);
    child->in_fd = child->out_fd = child->err_fd = -1;
}

int sl_child_wait(struct sl_child *child, sl_deadline deadline, struct sl_err *err)
{
    int rc = await_end(child->pid, deadline, true, err);
    if (rc < 0)
        return rc;
    if (!rc)
        return sl_err_set(err, SL_ERR_TIMEOUT,
                          "\"%s\" has ended its output, but does not end itself", child->name);
    int status = reap(child);
    close_pipes(child);
    if (WIFEXITED(status) && !WEXITSTATUS(status))
        return 0;
    if (WIFSIGNALED(status))
        return sl_err_set(err, SL_ERR_READ, "\"%s\" died of signal %d (%s)", child->name,
                          WTERMSIG(status), strsignal(WTERMSIG(status)));
    return sl_err_set(err, SL_ERR_READ, "\"%s\" failed with status %d", child->name,
                      WEXITSTATUS(status));
}

/* 1, 0 at the end of both, or a code. */
static int read_some(struct sl_child *child, struct pollfd fds[3], char *text, size_t room,
                     size_t *used, struct sl_err *err)
{
    for (size_t i = 0; i < 2; i++) {
        char piece[512];
        if (!fds[i].revents)
            continue;
        ssize_t n = read(fds[i].fd, piece, sizeof piece);
        if (n < 0 && errno != EINTR)
            return sl_err_sys(err, SL_ERR_READ, errno, "could not read what \"%s\" says",
                              child->name);
        if (!n)
            fds[i].fd = -1;
        size_t left = room - 1 - *used, part = n > 0 ? (size_t)n : 0;
        part = part < left ? part : left;
        memcpy(text + *used, piece, part);
        *used += part;
        text[*used] = '\0';
    }
    return fds[0].fd >= 0 || fds[1].fd >= 0;
}

int sl_child_read(struct sl_child *child, char *text, size_t room, sl_deadline deadline,
                  struct sl_err *err)
{
    struct pollfd fds[3] = {{.fd = child->out_fd, .events = POLLIN},
                            {.fd = child->err_fd, .events = POLLIN},
                            {.fd = sl_stop_fd(), .events = POLLIN}};
    size_t used = 0;
    int rc = 1;
    text[0] = '\0';
    while (rc > 0) {
        int n = poll(fds, 3, sl_deadline_poll_ms(deadline));
        if (n < 0 && errno != EINTR)
            return sl_err_sys(err, SL_ERR_INTERNAL, errno, "poll failed");
        rc = sl_stop_check(err);
        if (!rc && !n && sl_deadline_passed(deadline))
            rc = sl_err_set(err, SL_ERR_TIMEOUT, "\"%s\" does not end", child->name);
        if (!rc)
            rc = n > 0 ? read_some(child, fds, text, room, &used, err) : 1;
    }
    return rc ? rc : sl_child_wait(child, deadline, err);
}

void sl_child_kill(struct sl_child *child)
{
    if (!child->pid && !child->name[0])
        return;
    close_pipes(child);
    if (!child->pid)
        return;
    kill(child->pid, SIGTERM);
    if (await_end(child->pid, sl_deadline_in_ms(TERM_MS), false, NULL) != 1)
        kill(child->pid, SIGKILL);
    reap(child);
}
