/* Time: monotonic deadlines and wall-clock stamps.
 *
 * Every wait in Sluice has a deadline: an absolute CLOCK_MONOTONIC time in nanoseconds.
 */
#ifndef SL_BASE_CLOCK_H
#define SL_BASE_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define SL_NS_PER_MS 1000000ull
#define SL_NS_PER_S  1000000000ull

typedef uint64_t sl_deadline; /* CLOCK_MONOTONIC, ns */

uint64_t sl_now_ns(void);        /* CLOCK_MONOTONIC */
uint64_t sl_wall_ns(void);       /* CLOCK_REALTIME, ns since 1970 */
uint64_t sl_thread_cpu_ns(void); /* CPU time of the calling thread */

sl_deadline sl_deadline_in_ms(uint64_t ms);
bool sl_deadline_passed(sl_deadline deadline);
/* Milliseconds until the deadline, rounded up, for poll(2): 0 when passed, at most INT_MAX. */
int sl_deadline_poll_ms(sl_deadline deadline);
/* The same as a CLOCK_MONOTONIC timespec, for pthread_cond_clockwait(). */
struct timespec sl_deadline_timespec(sl_deadline deadline);

/* "2026-11-30 16:25:37.123+00" (UTC, as PostgreSQL writes it) of a wall-clock stamp. Returns
 * `text`. `bytes` of at least 40 are enough. */
const char *sl_wall_text(uint64_t wall_ns, char *text, size_t bytes);

#endif
