/* The conformance suite on RDMA lanes over the fake device: as RoCE, and compiled once more with
 * FAKE_IWARP as iWARP (test_verbs_iwarp). The cases with a peer process are the lab's: the fake
 * lives in one process. */
#include "core/verbs/verbs_internal.h"
#include "tests/support/fake_verbs.h"
#include "tests/support/lane_conformance.h"

static const struct sl_transport_plugin plugin = {
    .abi = SL_TRANSPORT_ABI, .rail = &sl_verbs_rail_ops, .listen = sl_verbs_listen};

static struct lane_fixture fixture = {
    .name = "verbs on a fake device",
    .rail = &sl_verbs_rail_ops,
    .host = "127.0.0.1",
    .target_open = lane_plugin_target_open,
    .target_accept = lane_plugin_target_accept,
    .target_close = lane_plugin_target_close,
    .plugin = &plugin,
};

int main(int argc, char **argv)
{
    fake_verbs_install();
#ifdef FAKE_IWARP
    fake_verbs_iwarp();
    fixture.vague = true;
#endif
    cmocka_set_skip_filter("lane_peer*");
    int status = lane_conformance_main(argc, argv, &fixture, NULL, 0);
    if (fake_verbs.violations || fake_verbs_live()) {
        print_error("%u violations (%s), %zu objects left\n", fake_verbs.violations,
                    fake_verbs.violation, fake_verbs_live());
        return 1;
    }
    return status;
}
