/* Fragments from inside: what the merge needs. Private to core/repo. */
#ifndef SL_REPO_FRAGMENT_H
#define SL_REPO_FRAGMENT_H

#include "core/repo/record.h"

/* Pieces in the order of (path, offset) from `start` to the next run's start. */
struct sl_fragment {
    int fd;           /* nameless */
    uint64_t end;     /* bytes added */
    uint64_t on_disk; /* of them; the rest is in the buffer */
    uint8_t *buffer;
    size_t used, room;
    uint64_t *runs; /* where each begins */
    size_t run_count, run_room;
    bool has_last;
    uint64_t last_offset;
    char last_path[SL_PATH_MAX];
};

/* More than a few runs mean that the work was not handed out in order of path. */
#define SL_FRAGMENT_RUNS_MAX 256

/* A cursor over pieces of a fragment. */
struct sl_fragment_cursor {
    struct sl_fragment *fragment;
    uint64_t at, end; /* of the fragment, of what is not in the buffer yet */
    uint8_t *buffer;
    size_t start, filled, room;
    struct sl_manifest_entry piece;
};

int sl_fragment_flush(struct sl_fragment *fragment, struct sl_err *err);
int sl_fragment_cursor_init(struct sl_fragment_cursor *cursor, struct sl_fragment *fragment,
                            uint64_t start, uint64_t end, struct sl_err *err);
void sl_fragment_cursor_fini(struct sl_fragment_cursor *cursor);
/* The next piece in cursor->piece, its record's bytes in `*ret_record` if wanted (valid until the
 * next call). 1, 0 at the end, or a code. */
int sl_fragment_cursor_next(struct sl_fragment_cursor *cursor, const uint8_t **ret_record,
                            size_t *ret_bytes, struct sl_err *err);
/* Order of pieces: by path, then by their place in the file. */
int sl_piece_compare(const struct sl_manifest_entry *a, const struct sl_manifest_entry *b);

#endif
