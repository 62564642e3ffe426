/* Fault points: the rules behind sl_fault(). Empty in a build without SLUICE_FAULTS. */
#include "core/base/fault.h"

#ifdef SLUICE_FAULTS

#include "core/base/err.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum action { FAIL, SKIP, KILL, STOP, SLEEP };

struct rule {
    char point[48];
    enum action action;
    long value; /* errno or milliseconds */
    uint64_t nth, passed;
    bool onwards;
};

#define RULES_MAX 32

static struct rule rules[RULES_MAX];
static size_t rule_count;
static uint64_t passed_total;
static bool loaded;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const struct {
    const char *name;
    int value;
} errno_names[] = {
    {"EIO", EIO},
    {"ENOSPC", ENOSPC},
    {"EDQUOT", EDQUOT},
    {"ENOMEM", ENOMEM},
    {"EINTR", EINTR},
    {"EAGAIN", EAGAIN},
    {"ESTALE", ESTALE},
    {"EROFS", EROFS},
    {"EACCES", EACCES},
    {"EMFILE", EMFILE},
    {"ENODEV", ENODEV},
    {"EOPNOTSUPP", EOPNOTSUPP},
    {"ECONNRESET", ECONNRESET},
    {"EINVAL", EINVAL},
    {"ENOENT", ENOENT},
    {"EPIPE", EPIPE},
};

static bool parse_action(struct rule *rule, const char *text, size_t length)
{
    if (length == 4 && !memcmp(text, "skip", 4))
        return rule->action = SKIP, true;
    if (length == 4 && !memcmp(text, "kill", 4))
        return rule->action = KILL, true;
    if (length == 4 && !memcmp(text, "stop", 4))
        return rule->action = STOP, true;
    if (length > 6 && !memcmp(text, "sleep=", 6)) {
        rule->value = strtol(text + 6, NULL, 10);
        return rule->action = SLEEP, true;
    }
    for (size_t i = 0; i < sizeof errno_names / sizeof *errno_names; i++)
        if (strlen(errno_names[i].name) == length && !memcmp(text, errno_names[i].name, length)) {
            rule->value = errno_names[i].value;
            return rule->action = FAIL, true;
        }
    return false;
}

static bool parse_rule(struct rule *rule, const char *text, size_t length)
{
    const char *colon = memchr(text, ':', length);
    if (!colon || colon == text || (size_t)(colon - text) >= sizeof rule->point)
        return false;
    *rule = (struct rule){.nth = 1};
    memcpy(rule->point, text, (size_t)(colon - text));
    const char *end = text + length, *action = colon + 1;
    const char *at = memchr(action, '@', (size_t)(end - action));
    if (at) {
        char *rest;
        rule->nth = strtoull(at + 1, &rest, 10);
        rule->onwards = rest < end && *rest == '+';
        if (!rule->nth)
            return false;
    }
    return parse_action(rule, action, (size_t)((at ? at : end) - action));
}

static int set_locked(const char *text)
{
    rule_count = 0;
    passed_total = 0;
    loaded = true;
    for (const char *at = text ? text : ""; *at;) {
        size_t length = strcspn(at, ",");
        if (rule_count == RULES_MAX || !parse_rule(&rules[rule_count], at, length)) {
            rule_count = 0;
            return SL_ERR_USAGE;
        }
        rule_count++;
        at += length + (at[length] == ',');
    }
    return 0;
}

int sl_fault_set(const char *text)
{
    pthread_mutex_lock(&lock);
    int rc = set_locked(text);
    pthread_mutex_unlock(&lock);
    return rc;
}

uint64_t sl_fault_passed(void)
{
    pthread_mutex_lock(&lock);
    uint64_t passed = passed_total;
    pthread_mutex_unlock(&lock);
    return passed;
}

/* The first rule that strikes at `point` now, or NULL. Counts the passing for every rule. */
static struct rule *strike(const char *point)
{
    struct rule *hit = NULL;
    passed_total++;
    for (size_t i = 0; i < rule_count; i++) {
        struct rule *rule = &rules[i];
        if (strcmp(rule->point, "*") != 0 && strcmp(rule->point, point) != 0)
            continue;
        rule->passed++;
        if (!hit && (rule->onwards ? rule->passed >= rule->nth : rule->passed == rule->nth))
            hit = rule;
    }
    return hit;
}

int sl_fault(const char *point)
{
    pthread_mutex_lock(&lock);
    if (!loaded && set_locked(getenv("SLUICE_FAULT")) != 0)
        abort(); /* a test with an unreadable rule must not pass */
    struct rule *hit = strike(point);
    enum action action = hit ? hit->action : FAIL;
    long value = hit ? hit->value : 0;
    pthread_mutex_unlock(&lock);
    if (!hit)
        return 0;
    switch (action) {
    case SKIP:
        return SL_FAULT_SKIP;
    case KILL:
        kill(getpid(), SIGKILL);
        return 0;
    case STOP:
        raise(SIGSTOP); /* to this thread: sent to the process, it would run on for a while */
        return 0;
    case SLEEP:
        nanosleep(&(struct timespec){value / 1000, value % 1000 * 1000000}, NULL);
        return 0;
    case FAIL:
        break;
    }
    return (int)value;
}

#else
typedef int sl_fault_is_compiled_out;
#endif
