/* Progress and the bottleneck: what a long command says while it works, and at its end.
 *
 * Workers add to counters (atomic, any thread); one thread prints once a second: on a terminal a
 * line in the manner of pg_basebackup -P ("123456/234567 kB (52%), 310.5 MB/s, 0:12 left"), as
 * JSON lines, or nothing. Stages measure how long workers waited in each: the stage in which the
 * pipeline's threads spent most of their time is the bottleneck.
 */
#ifndef SL_BASE_PROGRESS_H
#define SL_BASE_PROGRESS_H

#include "core/base/err.h"

#include <jansson.h>
#include <stdint.h>

enum sl_stage {
    SL_STAGE_SOURCE, /* reading the source (restore: writing the files) */
    SL_STAGE_DIGEST, /* digests, zero detection */
    SL_STAGE_PACK,   /* compressing, uncompressing */
    SL_STAGE_SEAL,   /* wire encryption */
    SL_STAGE_SLOT,   /* waiting for a free slot: wire or target */
    SL_STAGE_COMMIT, /* waiting for STORED: target write and sync */
    SL_STAGE_COUNT
};

enum sl_progress_mode { SL_PROGRESS_NONE, SL_PROGRESS_TEXT, SL_PROGRESS_JSON };

struct sl_progress;

/* `auto` (text on a terminal, else none) is decided by the caller. Returns owned. */
int sl_progress_new(enum sl_progress_mode mode, const char *what, struct sl_progress **ret,
                    struct sl_err *err);
void sl_progress_free(struct sl_progress *p); /* NULL ok */
/* All accept p == NULL. */
void sl_progress_total(struct sl_progress *p, uint64_t bytes, uint64_t files);
void sl_progress_add(struct sl_progress *p, uint64_t bytes, uint64_t files);
void sl_progress_stage(struct sl_progress *p, enum sl_stage stage, uint64_t ns);
/* Ends the printing thread, prints the last line. */
void sl_progress_done(struct sl_progress *p);
/* {"bytes":…,"files":…,"seconds":…,"bytes_per_second":…,"cpu_seconds":…,
 *  "bottleneck":"target write or sync","stages":{"source read":0.31,…}}; returns owned. */
json_t *sl_progress_report(const struct sl_progress *p);
/* One line for people: "2.1 GB in 1.9 s (1.1 GB/s), bottleneck: target write or sync (61%)". */
void sl_progress_summary(const struct sl_progress *p, char *text, size_t bytes);

#endif
