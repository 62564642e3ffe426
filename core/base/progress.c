/* Progress: counters that workers add to, a thread that prints them, and which stage was the
 * bottleneck. It measures nothing by itself: whoever waits says how long. */
#include "core/base/progress.h"

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/log_internal.h"
#include "core/base/options.h"
#include "core/base/thread.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PERIOD_MS 1000

struct sl_progress {
    enum sl_progress_mode mode;
    char what[32];
    bool reading; /* a restore: the pipeline runs the other way */
    bool terminal;
    uint64_t begin_ns, begin_cpu_ns;
    _Atomic uint64_t end_ns; /* 0 while it runs */
    uint64_t end_cpu_ns;
    _Atomic uint64_t bytes, files, total_bytes, total_files;
    _Atomic uint64_t stage_ns[SL_STAGE_COUNT];
    /* the printing thread's */
    pthread_t thread;
    bool thread_runs;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool stop;
    uint64_t shown_bytes, shown_ns;
    double rate; /* bytes a second, smoothed */
};

static const char *stage_name(const struct sl_progress *p, size_t stage)
{
    static const char *const writing[] = {"source read",     "checksum", "compression",
                                          "wire encryption", "wire",     "target write or sync"};
    static const char *const reading[] = {"file write",          "checksum",
                                          "uncompressing",       "wire encryption",
                                          "wire or target read", "file sync"};
    return p->reading ? reading[stage] : writing[stage];
}

static uint64_t process_cpu_ns(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return ((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) * SL_NS_PER_S +
           ((uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec) * 1000;
}

/* --- printing -------------------------------------------------------------------------------- */

static void update_rate(struct sl_progress *p, uint64_t now_ns, uint64_t bytes)
{
    double seconds = (double)(now_ns - p->shown_ns) / 1e9;
    if (seconds <= 0)
        return;
    double latest = (double)(bytes - p->shown_bytes) / seconds;
    /* the mean of about the last five seconds, but of all of them in the beginning */
    p->rate = now_ns - p->begin_ns < 2 * SL_NS_PER_S ? latest : p->rate * 0.7 + latest * 0.3;
    p->shown_ns = now_ns;
    p->shown_bytes = bytes;
}

static uint64_t seconds_left(const struct sl_progress *p, uint64_t bytes, uint64_t total)
{
    double left = total > bytes && p->rate >= 1 ? (double)(total - bytes) / p->rate : 0;
    return left < 1e9 ? (uint64_t)(left + 0.5) : 0;
}

static void print_text(struct sl_progress *p, uint64_t bytes, uint64_t total, bool last)
{
    char line[200], left[32] = "";
    uint64_t seconds = seconds_left(p, bytes, total);
    size_t used = 0;
    if (last)
        snprintf(left, sizeof left, ", done");
    else if (seconds >= 3600)
        snprintf(left, sizeof left, ", %" PRIu64 ":%02u:%02u left", seconds / 3600,
                 (unsigned)(seconds / 60 % 60), (unsigned)(seconds % 60));
    else if (seconds)
        snprintf(left, sizeof left, ", %u:%02u left", (unsigned)(seconds / 60),
                 (unsigned)(seconds % 60));
    if (total)
        used =
            (size_t)snprintf(line, sizeof line, "%" PRIu64 "/%" PRIu64 " kB (%u%%)", bytes / 1024,
                             total / 1024, (unsigned)((double)bytes / (double)total * 100));
    else
        used = (size_t)snprintf(line, sizeof line, "%" PRIu64 " kB", bytes / 1024);
    snprintf(line + used, sizeof line - used, ", %.1f MB/s%s", p->rate / 1e6, left);
    /* on a terminal the next line takes the place of this one, padded over its rest */
    if (p->terminal && !last)
        fprintf(stderr, "\r%-70s", line);
    else
        fprintf(stderr, "%s%-*s\n", p->terminal ? "\r" : "", p->terminal ? 70 : 0, line);
    fflush(stderr);
    atomic_store(&log_line_is_open, p->terminal && !last);
}

static void print_json(struct sl_progress *p, uint64_t bytes, uint64_t total, bool last)
{
    double seconds = (double)(sl_now_ns() - p->begin_ns) / 1e9;
    json_t *line = json_pack("{s:{s:o*, s:I, s:I, s:I, s:I, s:f, s:f, s:b}}", "progress", "command",
                             sl_json_text(p->what), "bytes", (json_int_t)bytes, "bytes_total",
                             (json_int_t)total, "files", (json_int_t)atomic_load(&p->files),
                             "files_total", (json_int_t)atomic_load(&p->total_files), "seconds",
                             seconds, "bytes_per_second", p->rate, "done", (int)last);
    uint64_t left = seconds_left(p, bytes, total);
    if (line && left && !last)
        json_object_set_new(json_object_get(line, "progress"), "seconds_left",
                            json_integer((json_int_t)left));
    char *dump = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (dump) {
        fprintf(stderr, "%s\n", dump);
        fflush(stderr);
    }
    free(dump);
    json_decref(line);
}

static void print(struct sl_progress *p, bool last)
{
    uint64_t bytes = atomic_load(&p->bytes), total = atomic_load(&p->total_bytes);
    uint64_t now_ns = sl_now_ns();
    if (last) {
        double seconds = (double)(now_ns - p->begin_ns) / 1e9;
        p->rate = seconds > 0 ? (double)bytes / seconds : 0;
    } else {
        update_rate(p, now_ns, bytes);
    }
    /* files grow while they are read: more than all would look silly */
    if (total && bytes > total)
        total = bytes;
    if (p->mode == SL_PROGRESS_TEXT)
        print_text(p, bytes, total, last);
    else
        print_json(p, bytes, total, last);
}

static void *run(void *arg)
{
    struct sl_progress *p = arg;
    sl_deadline next = sl_deadline_in_ms(PERIOD_MS);
    pthread_mutex_lock(&p->mutex);
    while (!p->stop) {
        if (sl_cond_wait(&p->cond, &p->mutex, next) || !sl_deadline_passed(next))
            continue;
        next += PERIOD_MS * SL_NS_PER_MS;
        print(p, false);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

/* --- life ------------------------------------------------------------------------------------ */

int sl_progress_new(enum sl_progress_mode mode, const char *what, struct sl_progress **ret,
                    struct sl_err *err)
{
    struct sl_progress *p = sl_calloc(1, sizeof *p);
    if (!p)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    p->mode = mode;
    snprintf(p->what, sizeof p->what, "%s", what);
    p->reading = strcmp(what, "restore") == 0;
    p->terminal = isatty(STDERR_FILENO) == 1;
    p->begin_ns = p->shown_ns = sl_now_ns();
    p->begin_cpu_ns = process_cpu_ns();
    pthread_mutex_init(&p->mutex, NULL);
    int rc = sl_cond_init(&p->cond);
    if (rc) {
        pthread_mutex_destroy(&p->mutex);
        sl_free(p);
        return sl_err_set(err, rc, "out of memory");
    }
    *ret = p;
    return 0;
}

/* The thread begins with the first total or count: a command that never works prints nothing. */
static void start(struct sl_progress *p)
{
    if (p->mode == SL_PROGRESS_NONE)
        return;
    pthread_mutex_lock(&p->mutex);
    if (!p->thread_runs && !p->stop)
        p->thread_runs = sl_thread_start(&p->thread, "progress", run, p, NULL) == 0;
    pthread_mutex_unlock(&p->mutex);
}

/* Ends the thread; true if there was one. */
static bool end(struct sl_progress *p)
{
    pthread_mutex_lock(&p->mutex);
    bool runs = p->thread_runs;
    p->stop = true;
    p->thread_runs = false;
    pthread_cond_signal(&p->cond);
    pthread_mutex_unlock(&p->mutex);
    if (runs)
        pthread_join(p->thread, NULL);
    return runs;
}

void sl_progress_free(struct sl_progress *p)
{
    if (!p)
        return;
    end(p);
    pthread_cond_destroy(&p->cond);
    pthread_mutex_destroy(&p->mutex);
    sl_free(p);
}

void sl_progress_done(struct sl_progress *p)
{
    if (!p || atomic_load(&p->end_ns))
        return;
    bool began = end(p);
    p->end_cpu_ns = process_cpu_ns();
    atomic_store(&p->end_ns, sl_now_ns());
    if (began)
        print(p, true);
}

void sl_progress_total(struct sl_progress *p, uint64_t bytes, uint64_t files)
{
    if (!p)
        return;
    atomic_store(&p->total_bytes, bytes);
    atomic_store(&p->total_files, files);
    start(p);
}

void sl_progress_add(struct sl_progress *p, uint64_t bytes, uint64_t files)
{
    if (!p)
        return;
    atomic_fetch_add_explicit(&p->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->files, files, memory_order_relaxed);
}

void sl_progress_stage(struct sl_progress *p, enum sl_stage stage, uint64_t ns)
{
    if (p)
        atomic_fetch_add_explicit(&p->stage_ns[stage], ns, memory_order_relaxed);
}

/* --- the end --------------------------------------------------------------------------------- */

/* Shares of the time all threads spent in stages; returns the largest, or -1 if none was measured.
 */
static int shares(const struct sl_progress *p, double share[SL_STAGE_COUNT])
{
    double sum = 0;
    int most = 0;
    for (int i = 0; i < SL_STAGE_COUNT; i++) {
        share[i] = (double)atomic_load(&p->stage_ns[i]);
        sum += share[i];
        if (share[i] > share[most])
            most = i;
    }
    for (int i = 0; i < SL_STAGE_COUNT; i++)
        share[i] = sum > 0 ? share[i] / sum : 0;
    return sum > 0 ? most : -1;
}

static double seconds_run(const struct sl_progress *p)
{
    uint64_t end_ns = atomic_load(&p->end_ns);
    return (double)((end_ns ? end_ns : sl_now_ns()) - p->begin_ns) / 1e9;
}

json_t *sl_progress_report(const struct sl_progress *p)
{
    if (!p)
        return json_object();
    double share[SL_STAGE_COUNT];
    int most = shares(p, share);
    double seconds = seconds_run(p);
    uint64_t bytes = atomic_load(&p->bytes);
    uint64_t cpu_ns = (atomic_load(&p->end_ns) ? p->end_cpu_ns : process_cpu_ns());
    json_t *stages = json_object();
    for (size_t i = 0; i < SL_STAGE_COUNT; i++)
        json_object_set_new(stages, stage_name(p, i), json_real(share[i]));
    return json_pack("{s:I, s:I, s:f, s:f, s:f, s:s?, s:o*}", "bytes", (json_int_t)bytes, "files",
                     (json_int_t)atomic_load(&p->files), "seconds", seconds, "bytes_per_second",
                     seconds > 0 ? (double)bytes / seconds : 0.0, "cpu_seconds",
                     (double)(cpu_ns - p->begin_cpu_ns) / 1e9, "bottleneck",
                     most < 0 ? NULL : stage_name(p, (size_t)most), "stages", stages);
}

void sl_progress_summary(const struct sl_progress *p, char *text, size_t bytes)
{
    if (!p) {
        snprintf(text, bytes, "done");
        return;
    }
    char size[16], rate[16];
    double share[SL_STAGE_COUNT];
    int most = shares(p, share);
    double seconds = seconds_run(p);
    uint64_t moved = atomic_load(&p->bytes);
    sl_bytes_text(moved, size, sizeof size);
    sl_bytes_text(seconds > 0 ? (uint64_t)((double)moved / seconds) : 0, rate, sizeof rate);
    int used = snprintf(text, bytes, "%s in %.1f s (%s/s)", size, seconds, rate);
    if (most >= 0 && used > 0 && (size_t)used < bytes)
        snprintf(text + used, bytes - (size_t)used, ", bottleneck: %s (%.0f%%)",
                 stage_name(p, (size_t)most), share[most] * 100);
}
