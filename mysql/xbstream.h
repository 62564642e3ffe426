/* xbstream, the container that mariadb-backup and XtraBackup write: looked at while it passes.
 *
 * A stream is chunks (docs/mysql.md has the bytes). The format has no end mark: what was cut
 * between two chunks looks whole to mbstream and xbstream. Here the end of the stream is good only
 * if every file that began has had its end chunk. Payload is not kept, except of a few small files
 * that the caller wants.
 *
 * Threads: one at a time. Nothing blocks.
 */
#ifndef SL_MYSQL_XBSTREAM_H
#define SL_MYSQL_XBSTREAM_H

#include "core/base/err.h"

#include <stddef.h>
#include <stdint.h>

#define SL_MY_XB_PATH_MAX  512  /* FN_REFLEN, what the tools allow */
#define SL_MY_XB_FILES_MAX 4096 /* open at the same time */
#define SL_MY_XB_KEEP_MAX  (256u * 1024)

struct sl_my_xbstream;

struct sl_my_xb_totals {
    uint64_t bytes, chunks, files, payload; /* files: that have ended */
};

/* Files whose content is kept, by name; NULL-terminated; borrows; NULL: none. Returns owned. */
int sl_my_xbstream_new(const char *const *keep, struct sl_my_xbstream **ret_stream,
                       struct sl_err *err);
void sl_my_xbstream_free(struct sl_my_xbstream *stream); /* NULL ok */
/* The next bytes, any number. SL_ERR_FORMAT for what is no xbstream, with the place in the stream;
 * SL_ERR_CHECKSUM for a payload with another CRC; SL_ERR_LIMIT. After a failure every call fails.
 */
int sl_my_xbstream_take(struct sl_my_xbstream *stream, const void *bytes, size_t count,
                        struct sl_err *err);
/* Was that all of it? SL_ERR_FORMAT when it ends inside of a chunk or of a file, or holds no file.
 */
int sl_my_xbstream_end(struct sl_my_xbstream *stream, struct sl_err *err);
void sl_my_xbstream_totals(const struct sl_my_xbstream *stream, struct sl_my_xb_totals *ret_totals);
/* The content of a file that was to be kept, with a NUL behind it; NULL when it has not ended, or
 * is longer than SL_MY_XB_KEEP_MAX. Borrowed. */
const char *sl_my_xbstream_kept(const struct sl_my_xbstream *stream, const char *name);

#endif
