/* Stopping on request: SIGINT and SIGTERM of a command.
 *
 * The first signal cancels: it calls what was registered with sl_stop_on() and makes sl_stop_fd()
 * readable. A second one ends the process at once. Programs call sl_stop_init(); without it
 * nothing is ever stopped, and everything here still works (in a database server's process).
 */
#ifndef SL_BASE_STOP_H
#define SL_BASE_STOP_H

#include "core/base/err.h"

/* Installs the handlers. Main thread, before any other thread is started. */
int sl_stop_init(struct sl_err *err);
/* What a second signal ends the process with (128 + signal before this was called). */
void sl_stop_exit_status(int exit_status);

bool sl_stopped(void);
int sl_stop_fd(void); /* stays readable once stopped: never read it; -1 without sl_stop_init() */
/* SL_ERR_CANCELLED and a message if stopped, else 0. */
int sl_stop_check(struct sl_err *err);

/* Have `call(arg)` called in the signal handler: it must be async-signal-safe (signal-safety(7)),
 * as sl_client_cancel() is. Called at once if stopped already. Returns a ticket for sl_stop_off(),
 * or -1 when eight are registered. sl_stop_off() returns only when `call` does not run any more;
 * -1 is accepted. Any thread. */
int sl_stop_on(void (*call)(void *arg), void *arg);
void sl_stop_off(int ticket);

#endif
