/* Logging: core never prints. It hands (level, component, text) to one sink; programs set a
 * sink that writes text or JSON lines to standard error, the archive module one that calls
 * ereport. Log once, where an error is handled.
 */
#ifndef SL_BASE_LOG_H
#define SL_BASE_LOG_H

#include "core/base/err.h"

enum sl_log_level { SL_LOG_ERROR, SL_LOG_WARN, SL_LOG_INFO, SL_LOG_DETAIL, SL_LOG_DEBUG };

/* Called from any thread, one call at a time. `component` is a module's name ("verbs"),
 * `hint` may be "". Must not log itself. */
typedef void (*sl_log_sink)(void *arg, enum sl_log_level level, const char *component,
                            const char *text, const char *hint);

/* Set sink and threshold; before any thread is started. NULL restores the default, which
 * drops everything. */
void sl_log_set(sl_log_sink sink, void *arg, enum sl_log_level threshold);
void sl_log_threshold(enum sl_log_level threshold);
bool sl_log_wanted(enum sl_log_level level);

void sl_log(enum sl_log_level level, const char *component, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* An error with its hint; `fmt` says what was being done: "backup failed" gives
 * "backup failed: <message>". */
void sl_log_err(enum sl_log_level level, const char *component, const struct sl_err *err,
                const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Sinks for programs: to standard error, as "2026-11-30 16:25:37.123 P00  INFO: text" with a
 * HINT line, or as JSON lines {"time":…,"level":…,"component":…,"message":…,"hint":…}. */
void sl_log_sink_text(void *arg, enum sl_log_level level, const char *component, const char *text,
                      const char *hint);
void sl_log_sink_json(void *arg, enum sl_log_level level, const char *component, const char *text,
                      const char *hint);

const char *sl_log_level_name(enum sl_log_level level); /* "error" … "debug" */
enum sl_log_level sl_log_level_named(const char *name); /* the finest for a name that is none */

#endif
