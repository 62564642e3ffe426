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

static void close_pair(const int fds[2])
{
    for (size_t i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* SIGPIPE is ignored and stop's handlers stand: neither is the child's business. */
static int spawn(const char *const *argv, int out, int err_fd, pid_t *ret_pid)
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
    sys = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (!sys && err_fd >= 0)
        sys = posix_spawn_file_actions_adddup2(&actions, err_fd, STDERR_FILENO);
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

int sl_child_start(const char *const *argv, bool with_err, struct sl_child *ret_child,
                   struct sl_err *err)
{
    int out[2] = {-1, -1}, errors[2] = {-1, -1};
    struct sl_child child = {.out_fd = -1, .err_fd = -1};
    snprintf(child.name, sizeof child.name, "%s", argv[0]);
    int sys = sl_fault("child.pipe");
    if (sys || pipe2(out, O_CLOEXEC) || (with_err && pipe2(errors, O_CLOEXEC))) {
        int code =
            sl_err_sys(err, SL_ERR_LIMIT, sys ? sys : errno, "could not make a pipe to a program");
        close_pair(out);
        return code;
    }
    sys = sl_fault("child.spawn");
    if (!sys)
        sys = spawn(argv, out[1], errors[1], &child.pid);
    close(out[1]);
    if (with_err)
        close(errors[1]);
    if (sys) {
        close(out[0]);
        if (with_err)
            close(errors[0]);
        return sl_err_sys(err, SL_ERR_OPEN, sys, "could not start \"%s\"", child.name);
    }
    child.out_fd = out[0];
    child.err_fd = errors[0];
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
    if (child->out_fd >= 0)
        close(child->out_fd);
    if (child->err_fd >= 0)
        close(child->err_fd);
    child->out_fd = child->err_fd = -1;
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
