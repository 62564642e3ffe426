/* Errors: one table of codes, one optional detail structure.
 *
 * Every fallible function of Sluice returns 0 (or a count) on success and a negative `enum
 * sl_code` on failure. Functions that can say more take a last parameter `struct sl_err *err`,
 * which may be NULL; they fill it exactly when they fail. A caller adds context with
 * sl_err_prefix() on the way up; the one who handles the error logs it, once.
 *
 * The exit status of a command is sl_code_exit(code). The numbers are a contract with users
 * (docs/exit-codes.md) and follow pgBackRest's where the meaning is the same.
 */
#ifndef SL_BASE_ERR_H
#define SL_BASE_ERR_H

#include <stdarg.h>
#include <stdbool.h>

/* X(NAME, exit status, retryable, text). "Retryable" means: the same request may succeed later
 * or over another connection without anyone changing anything. */
#define SL_CODES(X)                                                                                \
    X(INTERNAL, 25, false, "internal error")                                                       \
    X(CHECKSUM, 26, false, "checksum mismatch")                                                    \
    X(CONFIG, 27, false, "invalid configuration")                                                  \
    X(USAGE, 31, false, "invalid use of the command")                                              \
    X(FORMAT, 29, false, "invalid format")                                                         \
    X(VERSION, 46, false, "version not supported")                                                 \
    X(PG_RUNNING, 38, false, "server is running")                                                  \
    X(PROTOCOL, 39, false, "protocol violation by the peer")                                       \
    X(NOT_EMPTY, 40, false, "folder is not empty")                                                 \
    X(OPEN, 41, false, "could not open")                                                           \
    X(READ, 42, false, "could not read")                                                           \
    X(WRITE, 64, false, "could not write")                                                         \
    X(SYNC, 52, false, "could not sync to storage")                                                \
    X(MISMATCH, 44, false, "does not belong to this stanza")                                       \
    X(EXISTS, 45, false, "exists with different content")                                          \
    X(CONNECT, 49, true, "could not connect")                                                      \
    X(LOCKED, 50, true, "in use by another process")                                               \
    X(NOT_FOUND, 55, false, "not found")                                                           \
    X(DB_CONNECT, 56, true, "could not connect to the database server")                            \
    X(DB_QUERY, 57, false, "query failed")                                                         \
    X(DB_STATE, 58, false, "the database server's state does not allow it")                        \
    X(FULL, 60, false, "no space left on the target")                                              \
    X(NO_MEMORY, 61, true, "out of memory")                                                        \
    X(LIMIT, 62, false, "a resource limit is too low")                                             \
    X(DENIED, 63, false, "not permitted")                                                          \
    X(CLOSED, 65, true, "connection closed")                                                       \
    X(TIMEOUT, 66, true, "deadline passed")                                                        \
    X(BUSY, 67, true, "too much in flight")                                                        \
    X(UNSUPPORTED, 68, false, "not supported")                                                     \
    X(CRYPTO, 95, false, "cryptographic failure")                                                  \
    X(CANCELLED, 70, false, "cancelled")                                                           \
    X(DEVICE, 71, true, "RDMA device failed")                                                      \
    X(GAP, 72, false, "a segment is missing in the repository")                                    \
    X(WAL_TIMEOUT, 82, true, "WAL did not arrive in time")                                         \
    X(REPO, 103, false, "invalid repository")

enum sl_code_index_ {
    SL_INDEX_OK_ = 0,
#define X(name, exit_status, retryable, text) SL_INDEX_##name##_,
    SL_CODES(X)
#undef X
        SL_INDEX_COUNT_
};

enum sl_code {
    SL_OK = 0,
#define X(name, exit_status, retryable, text) SL_ERR_##name = -SL_INDEX_##name##_,
    SL_CODES(X)
#undef X
};

#define SL_ERR_MSG_BYTES  768
#define SL_ERR_HINT_BYTES 384

struct sl_err {
    int code;                     /* enum sl_code, 0 when nothing failed */
    int sys;                      /* errno or 0 */
    char msg[SL_ERR_MSG_BYTES];   /* lower case, no final stop, names quoted */
    char hint[SL_ERR_HINT_BYTES]; /* what to do about it, or "" */
};

/* Text, exit status and class of a code; any int is accepted (unknown codes read "unknown"). */
const char *sl_code_name(int code); /* "NOT_FOUND" */
const char *sl_code_text(int code); /* "not found" */
int sl_code_exit(int code);         /* 0 for SL_OK, else 1..125 */
bool sl_code_retryable(int code);

/* Fill `err` (if not NULL) and return `code`, so that a failing function ends in
 * `return sl_err_set(err, SL_ERR_CONFIG, "...")`. The hint is cleared. */
int sl_err_set(struct sl_err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a failed system call: appends ": " and the text of `sys_errno`. ENOSPC and
 * EDQUOT become SL_ERR_FULL, ENOMEM SL_ERR_NO_MEMORY, EACCES and EPERM SL_ERR_DENIED, whatever
 * `code` says. Returns the code chosen. */
int sl_err_sys(struct sl_err *err, int code, int sys_errno, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Set the hint of an error that was just set. Returns its code, also when `err` is NULL. */
int sl_err_hint(struct sl_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Put "context: " before the message. Returns the code, also when `err` is NULL. */
int sl_err_prefix(struct sl_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Copy; `to` may be NULL. Returns from->code. */
int sl_err_copy(struct sl_err *to, const struct sl_err *from);

#endif
