/* Complaints about peers, kept within a rate: whoever can reach the port must not be able to fill
 * the disk with our log. What is left out is counted, and said. Strangers and clients have a bucket
 * each, so that the former cannot hide news about the latter. */
#include "core/target/target_internal.h"

#include "core/base/log.h"

#include <stdarg.h>
#include <stdio.h>

#define BURST     20u
#define REFILL_NS (3 * SL_NS_PER_S)

static const char *const of_whom[] = {
    [COMPLAIN_STRANGER] = "connections", [COMPLAIN_CLIENT] = "clients"};

static void refill(struct complaints *bucket, uint64_t now_ns)
{
    if (!bucket->since_ns) {
        bucket->tokens = BURST;
        bucket->since_ns = now_ns;
    }
    uint64_t more = (now_ns - bucket->since_ns) / REFILL_NS;
    bucket->since_ns += more * REFILL_NS;
    bucket->tokens = more > BURST - bucket->tokens ? BURST : bucket->tokens + (unsigned)more;
}

static void say_left_out(struct complaints *bucket, enum complain_about about)
{
    if (!bucket->left_out || !bucket->tokens)
        return;
    bucket->tokens--;
    sl_log(SL_LOG_WARN, "target", "%llu more complaints about %s were not logged",
           (unsigned long long)bucket->left_out, of_whom[about]);
    bucket->left_out = 0;
}

void sl_target_complain(struct sl_target *target, enum complain_about about,
                        const struct sl_err *err, const char *fmt, ...)
{
    struct complaints *bucket = &target->complaints[about];
    char text[256];
    va_list args;
    refill(bucket, sl_now_ns());
    say_left_out(bucket, about);
    if (!bucket->tokens) {
        bucket->left_out++;
        return;
    }
    bucket->tokens--;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    sl_log_err(SL_LOG_WARN, "target", err, "%s", text);
}

void sl_target_complain_tick(struct sl_target *target, uint64_t now_ns)
{
    for (unsigned i = 0; i < COMPLAIN_KINDS; i++)
        if (target->complaints[i].left_out) {
            refill(&target->complaints[i], now_ns);
            say_left_out(&target->complaints[i], i);
        }
}
