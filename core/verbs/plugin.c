/* The one symbol of sluice-verbs.so. Loaded at run time, so that a host without rdma-core runs all
 * but RDMA. */
#include "core/verbs/verbs_internal.h"

__attribute__((visibility("default"))) extern const struct sl_transport_plugin sluice_transport;

const struct sl_transport_plugin sluice_transport = {
    .abi = SL_TRANSPORT_ABI,
    .rail = &sl_verbs_rail_ops,
    .listen = sl_verbs_listen,
    .describe = sl_verbs_describe,
    .memlock = sl_verbs_memlock,
};
