/* What a backup tool says on its standard error, line by line: the last line, which has to be
 * "completed OK!", and the last one that names an error. */
#ifndef SL_MYSQL_SAID_H
#define SL_MYSQL_SAID_H

#include "core/base/err.h"

#include <stddef.h>

#define SL_MY_LINE_BYTES 512

struct sl_my_said {
    char line[SL_MY_LINE_BYTES], last[SL_MY_LINE_BYTES], complaint[SL_MY_LINE_BYTES];
    size_t line_bytes;
};

/* The next piece; each line is logged (detail). */
void sl_my_said_take(struct sl_my_said *said, const char *text, size_t count);
void sl_my_said_end(struct sl_my_said *said);
/* SL_ERR_READ unless the last line was the one that it has to be. */
int sl_my_said_done(const struct sl_my_said *said, struct sl_err *err);
/* Hangs what it said on a failure as a hint, if there is none. Returns `code`. */
int sl_my_said_blame(const struct sl_my_said *said, int code, struct sl_err *err);

#endif
