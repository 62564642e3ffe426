/* Threads: see the header. */
#include "core/base/thread.h"

#include "core/base/fault.h"

#include <signal.h>

int sl_thread_start(pthread_t *ret_thread, const char *name, void *(*run)(void *), void *arg,
                    struct sl_err *err)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = sl_fault("thread");
    if (!rc)
        rc = pthread_create(ret_thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc)
        return sl_err_sys(err, SL_ERR_LIMIT, rc, "could not start thread \"%s\"", name);
    pthread_setname_np(*ret_thread, name);
    return 0;
}

int sl_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes))
        return SL_ERR_NO_MEMORY;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int rc = pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
    return rc ? SL_ERR_NO_MEMORY : 0;
}

bool sl_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, sl_deadline deadline)
{
    struct timespec until = sl_deadline_timespec(deadline);
    return pthread_cond_timedwait(cond, mutex, &until) == 0;
}
