/* What grow.c and grow_read.c share. Private to core/repo. */
#ifndef SL_REPO_GROW_INTERNAL_H
#define SL_REPO_GROW_INTERNAL_H

#include "core/repo/grow.h"
#include "core/repo/repo_internal.h"

/* What a journal was found to hold. */
struct sl_journal_extent {
    uint64_t content, end; /* bytes of content that are whole; where the file's next record goes */
    uint64_t mark_content, mark_end; /* the same behind the last marked record */
};

/* Reads head and records of an open file, past the caches. `known`: content that is known to be
 * durable. visit() (may be NULL) gets the content of each whole record, in order, but nothing from
 * byte `limit` of the content on. */
struct sl_journal_scan {
    struct sl_repo *repo;
    struct sl_file *file;
    const char *journal_name;
    uint64_t known, limit;
    int (*visit)(void *arg, const uint8_t *bytes, size_t count, struct sl_err *err);
    void *arg;
    /* results */
    struct sl_journal_head head;
    struct sl_journal_extent extent;
};
int sl_journal_scan(struct sl_journal_scan *scan, struct sl_err *err);

/* The content of an open journal, up to `length`, as a finished draft for `full_name`. */
int sl_journal_draft(struct sl_repo *repo, struct sl_file *file, const char *journal_name,
                     const char *full_name, const char *creator, uint64_t length,
                     enum sl_codec codec, int level, struct sl_object_draft **ret_draft,
                     struct sl_err *err);

#endif
