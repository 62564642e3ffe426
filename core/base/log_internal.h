/* What log and progress share: standard error. Nobody else includes it. */
#ifndef SL_BASE_LOG_INTERNAL_H
#define SL_BASE_LOG_INTERNAL_H

#include <stdatomic.h>

/* A progress line without a line end stands on the terminal: clear it before printing a line. */
extern atomic_bool log_line_is_open;

#endif
