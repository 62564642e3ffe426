/* The loader: finds and opens plugins. A plugin stays loaded until the program ends.
 *
 * Folders looked into, the first that has the file wins: $SLUICE_PLUGIN_PATH alone if it is set;
 * else
 * ../lib/sluice and ../<libdir>/sluice beside the program, then the <libdir>/sluice that was
 * configured.
 */
#ifndef SL_PLUGIN_LOADER_H
#define SL_PLUGIN_LOADER_H

#include "core/plugin/engine.h"
#include "core/transport/lane.h"

/* Opens sluice-<name>.so and checks what it exports. SL_ERR_USAGE for a name that is none,
 * SL_ERR_NOT_FOUND if no folder has it, SL_ERR_UNSUPPORTED if it does not load (the message says
 * why: a missing library), SL_ERR_VERSION if it was built for another Sluice. Main thread. */
int sl_plugin_engine(const char *name, const struct sl_engine **ret_engine, struct sl_err *err);

/* The same for RDMA lanes: sluice-verbs.so. Loading it touches no device. */
int sl_plugin_transport(const struct sl_transport_plugin **ret_plugin, struct sl_err *err);

#endif
