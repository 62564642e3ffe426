/* Fault points: named places where a test can make Sluice fail, wait, skip a call or die.
 *
 * In a build without SLUICE_FAULTS (every release) sl_fault() is the constant 0 and costs
 * nothing. In a test build the environment variable SLUICE_FAULT, or sl_fault_set(), holds a
 * list of rules, separated by commas:
 *
 *     POINT:ACTION[@N]      ACTION at the Nth passing of POINT (default 1), once
 *     POINT:ACTION@N+       at the Nth and every later passing
 *
 * ACTION is an errno name (EIO, ENOSPC, ENOMEM, …: the call is not made and fails with it),
 * `skip` (the call is not made and "succeeds": a build that lacks a sync), `kill` (SIGKILL to
 * the own process), `stop` (SIGSTOP), or `sleep=MS`. POINT is a name as below, or `*` for any.
 *
 * Points are named <module>.<call>, e.g. "posix.fdatasync", "posix.link", "alloc".
 */
#ifndef SL_BASE_FAULT_H
#define SL_BASE_FAULT_H

#include <stdint.h>

#define SL_FAULT_SKIP (-1)

#ifdef SLUICE_FAULTS

/* What is to happen at `point` now: 0 (go on), an errno, or SL_FAULT_SKIP. `kill`, `stop` and
 * `sleep` are carried out here. Thread-safe. */
int sl_fault(const char *point);

/* Replace the rules; NULL or "" removes them and resets all counts. Returns 0 or
 * SL_ERR_USAGE for a rule that cannot be read. */
int sl_fault_set(const char *rules);

/* How often any point was passed since sl_fault_set(): the bound of a torture loop. */
uint64_t sl_fault_passed(void);

#else

static inline int sl_fault(const char *point)
{
    (void)point;
    return 0;
}

#endif

#endif
