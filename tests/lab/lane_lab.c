/* The conformance suite of lanes on a real RDMA device: the plugin is LANE_PLUGIN, the device the
 * one behind the address LANE_HOST. In a lab kernel: test_lanes_rxe.sh, test_lanes_siw.sh. */
#include "tests/support/lane_conformance.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static const struct sl_transport_plugin *load(const char *path)
{
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library)
        print_error("LANE_PLUGIN: %s\n", path ? dlerror() : "not set");
    return library ? dlsym(library, "sluice_transport") : NULL;
}

/* Which device it is decides what a refusal looks like; the only iWARP of the lab is siw. */
static bool host_is_iwarp(const struct sl_transport_plugin *plugin, const char *host)
{
    struct sl_rail *rail;
    struct sl_err err;
    const struct sl_connect to = {
        .host = host, .port = "1", .deadline = sl_deadline_in_ms(5000), .traffic_class = -1};
    if (plugin->rail->resolve(&to, &rail, &err) != 0) {
        print_error("%s\n%s\n", err.msg, err.hint);
        exit(1);
    }
    bool iwarp = rail->own_sink;
    plugin->rail->rail_free(rail);
    return iwarp;
}

int main(int argc, char **argv)
{
    const struct sl_transport_plugin *plugin = load(getenv("LANE_PLUGIN"));
    const char *host = getenv("LANE_HOST");
    if (!plugin || !host)
        return 1;
    bool iwarp = host_is_iwarp(plugin, host);
    const struct lane_fixture fixture = {
        .name = "verbs",
        .light = true,
        .vague = iwarp,
        .soft_iwarp = iwarp,
        .rail = plugin->rail,
        .host = host,
        .target_open = lane_plugin_target_open,
        .target_accept = lane_plugin_target_accept,
        .target_close = lane_plugin_target_close,
        .plugin = plugin,
    };
    return lane_conformance_main(argc, argv, &fixture, NULL, 0);
}
