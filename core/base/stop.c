/* Stopping on request: see the header. A process has one set of signal handlers, hence the static
 * state. */
#include "core/base/stop.h"

#include "core/base/fault.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define CALLS_MAX 8

struct call {
    atomic_bool taken; /* the slot is somebody's */
    atomic_bool armed; /* `function` and `arg` are set */
    void (*function)(void *arg);
    void *arg;
};

static struct call calls[CALLS_MAX];
static atomic_int stopped, handlers_running, second_exit_status;
static atomic_int stop_fd = -1;

static void make_calls(void)
{
    for (size_t i = 0; i < CALLS_MAX; i++)
        if (atomic_load(&calls[i].armed))
            calls[i].function(calls[i].arg);
}

static void handle(int number)
{
    int saved = errno;
    if (atomic_exchange(&stopped, number)) {
        int exit_status = atomic_load(&second_exit_status);
        _exit(exit_status ? exit_status : 128 + number);
    }
    atomic_fetch_add(&handlers_running, 1);
    make_calls();
    atomic_fetch_sub(&handlers_running, 1);
    uint64_t one = 1;
    if (write(atomic_load(&stop_fd), &one, sizeof one) < 0) {
        /* an eventfd that was never read takes it */
    }
    errno = saved;
}

int sl_stop_init(struct sl_err *err)
{
    int sys = sl_fault("stop.eventfd");
    int fd = sys ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return sl_err_sys(err, SL_ERR_LIMIT, sys ? sys : errno, "could not make an eventfd");
    atomic_store(&stop_fd, fd);
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return 0;
}

void sl_stop_exit_status(int exit_status)
{
    atomic_store(&second_exit_status, exit_status);
}

bool sl_stopped(void)
{
    return atomic_load(&stopped) != 0;
}

int sl_stop_fd(void)
{
    return atomic_load(&stop_fd);
}

int sl_stop_check(struct sl_err *err)
{
    int number = atomic_load(&stopped);
    if (!number)
        return 0;
    return sl_err_set(err, SL_ERR_CANCELLED, "cancelled by %s",
                      number == SIGINT ? "SIGINT" : "SIGTERM");
}

int sl_stop_on(void (*call)(void *arg), void *arg)
{
    for (int i = 0; i < CALLS_MAX; i++) {
        if (atomic_exchange(&calls[i].taken, true))
            continue;
        calls[i].function = call;
        calls[i].arg = arg;
        atomic_store(&calls[i].armed, true);
        /* a signal between the two finds it armed; one before made no call: do it here (twice
         * does no harm) */
        if (sl_stopped())
            call(arg);
        return i;
    }
    return -1;
}

void sl_stop_off(int ticket)
{
    if (ticket < 0)
        return;
    atomic_store(&calls[ticket].armed, false);
    while (atomic_load(&handlers_running))
        sched_yield();
    atomic_store(&calls[ticket].taken, false);
}
