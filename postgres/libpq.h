/* libpq, loaded when a command connects to a server and not before: archive-push starts for every
 * segment and must not pay for a library it never calls. Headers at build time, libpq.so.5 at run
 * time.
 */
#ifndef SL_POSTGRES_LIBPQ_H
#define SL_POSTGRES_LIBPQ_H

#include "core/base/err.h"

#include <libpq-fe.h>

#define SL_LIBPQ_FUNCTIONS(X)                                                                      \
    X(PQclear)                                                                                     \
    X(PQconnectPoll)                                                                               \
    X(PQconnectStartParams)                                                                        \
    X(PQconsumeInput)                                                                              \
    X(PQerrorMessage)                                                                              \
    X(PQfinish)                                                                                    \
    X(PQflush)                                                                                     \
    X(PQgetResult)                                                                                 \
    X(PQgetisnull)                                                                                 \
    X(PQgetvalue)                                                                                  \
    X(PQisBusy)                                                                                    \
    X(PQntuples)                                                                                   \
    X(PQresultErrorField)                                                                          \
    X(PQresultErrorMessage)                                                                        \
    X(PQresultStatus)                                                                              \
    X(PQsendQueryParams)                                                                           \
    X(PQserverVersion)                                                                             \
    X(PQsetNoticeProcessor)                                                                        \
    X(PQsetnonblocking)                                                                            \
    X(PQsocket)                                                                                    \
    X(PQstatus)

struct sl_libpq {
#define X(name) __typeof__(&name) name;
    SL_LIBPQ_FUNCTIONS(X)
#undef X
};

/* The table, loaded at the first call; SL_ERR_UNSUPPORTED when there is no libpq. Main thread. */
int sl_libpq_load(const struct sl_libpq **ret_libpq, struct sl_err *err);

#endif
