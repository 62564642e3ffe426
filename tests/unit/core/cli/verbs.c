/* An RDMA plugin for tests of sluiced: never gives RDMA, for the reason that TEST_VERBS says. */
#include "core/transport/lane.h"

#include <stdlib.h>
#include <string.h>

static bool reason_is(const char *reason)
{
    const char *wanted = getenv("TEST_VERBS");
    return wanted && strcmp(wanted, reason) == 0;
}

static int describe(char *text, size_t bytes, struct sl_err *err)
{
    if (!reason_is("memlock") && !reason_is("listen"))
        return sl_err_set(err, SL_ERR_UNSUPPORTED, "no RDMA device");
    return text && bytes ? 0 : SL_ERR_INTERNAL;
}

static int memlock(size_t bytes, struct sl_err *err)
{
    if (reason_is("listen"))
        return 0;
    sl_err_set(err, SL_ERR_LIMIT, "RLIMIT_MEMLOCK is 8 MiB, %zu bytes are needed", bytes);
    return sl_err_hint(err, "ulimit -l");
}

static int listen_never(const struct sl_listen *listen, struct sl_listener **ret_listener,
                        struct sl_err *err)
{
    (void)listen, (void)ret_listener;
    return sl_err_set(err, SL_ERR_CONNECT, "could not listen for RDMA");
}

static const struct sl_rail_ops rail = {.name = "rdma"};

extern const struct sl_transport_plugin sluice_transport;
const struct sl_transport_plugin sluice_transport = {
    .abi = SL_TRANSPORT_ABI,
    .rail = &rail,
    .listen = listen_never,
    .describe = describe,
    .memlock = memlock,
};
