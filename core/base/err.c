/* Errors: the table and the few functions that fill a struct sl_err. No logging here: whoever
 * handles an error logs it. */
#include "core/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *text;
    int exit_status;
    bool retryable;
} table[] = {{"OK", "success", 0, false},
#define X(name, exit_status, retryable, text) {#name, text, exit_status, retryable},
             SL_CODES(X)
#undef X
};

/* What the thread set last: a caller that passes no struct sl_err still gets the right code from
 * `return sl_err_hint(err, …)`. */
static _Thread_local int last_code = SL_ERR_INTERNAL;

static int index_of(int code)
{
    return code <= 0 && code > -SL_INDEX_COUNT_ ? -code : -1;
}

const char *sl_code_name(int code)
{
    int i = index_of(code);
    return i < 0 ? "UNKNOWN" : table[i].name;
}

const char *sl_code_text(int code)
{
    int i = index_of(code);
    return i < 0 ? "unknown error" : table[i].text;
}

int sl_code_exit(int code)
{
    int i = index_of(code);
    return i < 0 ? table[SL_INDEX_INTERNAL_].exit_status : table[i].exit_status;
}

bool sl_code_retryable(int code)
{
    int i = index_of(code);
    return i > 0 && table[i].retryable;
}

static void __attribute__((format(printf, 4, 0)))
set_message(struct sl_err *err, int code, int sys, const char *fmt, va_list args)
{
    last_code = code;
    if (!err)
        return;
    err->code = code;
    err->sys = sys;
    err->hint[0] = '\0';
    vsnprintf(err->msg, sizeof err->msg, fmt, args);
    if (sys) {
        char text[128];
        size_t used = strlen(err->msg);
        snprintf(err->msg + used, sizeof err->msg - used, ": %s",
                 strerror_r(sys, text, sizeof text));
    }
}

int sl_err_set(struct sl_err *err, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set_message(err, code, 0, fmt, args);
    va_end(args);
    return code;
}

int sl_err_sys(struct sl_err *err, int code, int sys_errno, const char *fmt, ...)
{
    if (sys_errno == ENOSPC || sys_errno == EDQUOT)
        code = SL_ERR_FULL;
    else if (sys_errno == ENOMEM)
        code = SL_ERR_NO_MEMORY;
    else if (sys_errno == EACCES || sys_errno == EPERM)
        code = SL_ERR_DENIED;
    va_list args;
    va_start(args, fmt);
    set_message(err, code, sys_errno, fmt, args);
    va_end(args);
    return code;
}

int sl_err_hint(struct sl_err *err, const char *fmt, ...)
{
    if (!err)
        return last_code;
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->hint, sizeof err->hint, fmt, args);
    va_end(args);
    return err->code;
}

int sl_err_prefix(struct sl_err *err, const char *fmt, ...)
{
    if (!err)
        return last_code;
    char whole[SL_ERR_MSG_BYTES];
    va_list args;
    va_start(args, fmt);
    int used = vsnprintf(whole, sizeof whole, fmt, args);
    va_end(args);
    if (used < 0 || (size_t)used >= sizeof whole)
        return err->code;
    snprintf(whole + used, sizeof whole - (size_t)used, ": %.*s",
             (int)sizeof whole - used - 3 > 0 ? (int)sizeof whole - used - 3 : 0, err->msg);
    memcpy(err->msg, whole, sizeof whole);
    return err->code;
}

int sl_err_copy(struct sl_err *to, const struct sl_err *from)
{
    last_code = from->code;
    if (to)
        *to = *from;
    return from->code;
}
