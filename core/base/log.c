/* Logging: hands messages to the one sink, and the two sinks of programs. It decides nothing
 * about where logs go; there is no rotation and no file: systemd and the shell do that. */
#include "core/base/log.h"

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/log_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_BYTES (SL_ERR_MSG_BYTES + 512)

atomic_bool log_line_is_open;

static struct {
    pthread_mutex_t mutex; /* one call of the sink at a time */
    sl_log_sink sink;
    void *arg;
    atomic_int threshold;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER, .threshold = -1};

void sl_log_set(sl_log_sink sink, void *arg, enum sl_log_level threshold)
{
    pthread_mutex_lock(&state.mutex);
    state.sink = sink;
    state.arg = arg;
    pthread_mutex_unlock(&state.mutex);
    atomic_store(&state.threshold, sink ? (int)threshold : -1);
}

void sl_log_threshold(enum sl_log_level threshold)
{
    if (atomic_load(&state.threshold) >= 0)
        atomic_store(&state.threshold, (int)threshold);
}

bool sl_log_wanted(enum sl_log_level level)
{
    return (int)level <= atomic_load_explicit(&state.threshold, memory_order_relaxed);
}

static void hand_out(enum sl_log_level level, const char *component, const char *text,
                     const char *hint)
{
    int saved = errno;
    pthread_mutex_lock(&state.mutex);
    if (state.sink)
        state.sink(state.arg, level, component, text, hint);
    pthread_mutex_unlock(&state.mutex);
    errno = saved;
}

void sl_log(enum sl_log_level level, const char *component, const char *fmt, ...)
{
    if (!sl_log_wanted(level))
        return;
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    hand_out(level, component, text, "");
}

void sl_log_err(enum sl_log_level level, const char *component, const struct sl_err *err,
                const char *fmt, ...)
{
    if (!sl_log_wanted(level))
        return;
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    int used = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (used >= 0 && (size_t)used < sizeof text)
        snprintf(text + used, sizeof text - (size_t)used, ": %s", err->msg);
    hand_out(level, component, text, err->hint);
}

const char *sl_log_level_name(enum sl_log_level level)
{
    static const char *const names[] = {"error", "warn", "info", "detail", "debug"};
    return (size_t)level < sizeof names / sizeof *names ? names[level] : "error";
}

enum sl_log_level sl_log_level_named(const char *name)
{
    enum sl_log_level level = SL_LOG_ERROR;
    while (level < SL_LOG_DEBUG && strcmp(name, sl_log_level_name(level)) != 0)
        level++;
    return level;
}

/* --- sinks ----------------------------------------------------------------------------------- */

/* In one write, so that lines of several processes do not mix. Nothing can be done about a
 * standard error that is gone. */
static void put(const char *line, size_t bytes)
{
    if (atomic_exchange(&log_line_is_open, false) && write(STDERR_FILENO, "\r\033[K", 4) < 0)
        return;
    while (bytes) {
        ssize_t n = write(STDERR_FILENO, line, bytes);
        if (n < 0 && errno != EINTR)
            return;
        if (n > 0) {
            line += n;
            bytes -= (size_t)n;
        }
    }
}

/* Messages may quote what a peer sent: nothing in them may forge a line or move a cursor. */
static size_t append_plain(char *line, size_t used, size_t room, const char *text)
{
    for (; *text && used + 2 < room; text++)
        line[used++] = (unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text;
    return used;
}

static size_t append_line(char *line, size_t used, size_t room, const char *stamp,
                          const char *label, const char *text)
{
    int n = snprintf(line + used, room - used, "%s P00 %6s: ", stamp, label);
    if (n < 0 || (size_t)n >= room - used)
        return used;
    used = append_plain(line, used + (size_t)n, room, text);
    line[used++] = '\n';
    return used;
}

void sl_log_sink_text(void *arg, enum sl_log_level level, const char *component, const char *text,
                      const char *hint)
{
    (void)arg;
    (void)component;
    static const char *const labels[] = {"ERROR", "WARN", "INFO", "DETAIL", "DEBUG"};
    char stamp[40], line[TEXT_BYTES + SL_ERR_HINT_BYTES + 160];
    uint64_t now_ns = sl_wall_ns();
    time_t seconds = (time_t)(now_ns / SL_NS_PER_S);
    struct tm local;
    localtime_r(&seconds, &local);
    size_t stamped = strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &local);
    snprintf(stamp + stamped, sizeof stamp - stamped, ".%03u",
             (unsigned)(now_ns % SL_NS_PER_S / SL_NS_PER_MS));
    size_t used =
        append_line(line, 0, sizeof line - SL_ERR_HINT_BYTES - 80, stamp, labels[level], text);
    if (*hint)
        used = append_line(line, used, sizeof line, stamp, "HINT", hint);
    put(line, used);
}

void sl_log_sink_json(void *arg, enum sl_log_level level, const char *component, const char *text,
                      const char *hint)
{
    char stamp[40];
    json_t *line = json_pack(
        "{s:s, s:s, s:s, s:o}", "time", sl_wall_text(sl_wall_ns(), stamp, sizeof stamp), "level",
        sl_log_level_name(level), "component", component, "message", sl_json_text(text));
    if (line && *hint)
        json_object_set_new(line, "hint", sl_json_text(hint));
    char *dump = line ? json_dumps(line, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    if (dump) {
        size_t length = strlen(dump);
        dump[length] = '\n'; /* takes the place of the NUL */
        put(dump, length + 1);
    } else { /* no memory */
        sl_log_sink_text(arg, level, component, text, hint);
    }
    free(dump);
    json_decref(line);
}
