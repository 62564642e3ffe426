/* Time: wrappers over clock_gettime. */
#include "core/base/clock.h"

#include <limits.h>
#include <stdio.h>

static uint64_t read_clock(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * SL_NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t sl_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t sl_wall_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

uint64_t sl_thread_cpu_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

sl_deadline sl_deadline_in_ms(uint64_t ms)
{
    uint64_t now = sl_now_ns();
    return ms > (UINT64_MAX - now) / SL_NS_PER_MS ? UINT64_MAX : now + ms * SL_NS_PER_MS;
}

bool sl_deadline_passed(sl_deadline deadline)
{
    return sl_now_ns() >= deadline;
}

int sl_deadline_poll_ms(sl_deadline deadline)
{
    uint64_t now = sl_now_ns();
    if (now >= deadline)
        return 0;
    uint64_t ms = (deadline - now + SL_NS_PER_MS - 1) / SL_NS_PER_MS;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

struct timespec sl_deadline_timespec(sl_deadline deadline)
{
    return (struct timespec){(time_t)(deadline / SL_NS_PER_S), (long)(deadline % SL_NS_PER_S)};
}

const char *sl_wall_text(uint64_t wall_ns, char *text, size_t bytes)
{
    time_t seconds = (time_t)(wall_ns / SL_NS_PER_S);
    struct tm utc;
    char day[32];
    gmtime_r(&seconds, &utc);
    strftime(day, sizeof day, "%Y-%m-%d %H:%M:%S", &utc);
    snprintf(text, bytes, "%s.%03u+00", day, (unsigned)(wall_ns % SL_NS_PER_S / SL_NS_PER_MS));
    return text;
}
