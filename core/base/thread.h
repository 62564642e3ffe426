/* Threads: started with all signals blocked and a name, as every thread of Sluice is. */
#ifndef SL_BASE_THREAD_H
#define SL_BASE_THREAD_H

#include "core/base/clock.h"
#include "core/base/err.h"

#include <pthread.h>

/* `name` of at most 15 bytes is shown by ps -L. */
int sl_thread_start(pthread_t *ret_thread, const char *name, void *(*run)(void *), void *arg,
                    struct sl_err *err);

/* A condition variable on CLOCK_MONOTONIC. */
int sl_cond_init(pthread_cond_t *cond);
/* Waits until signalled or the deadline; false when it passed. Spurious wake-ups happen. */
bool sl_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, sl_deadline deadline);

#endif
