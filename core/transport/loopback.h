/* Loopback lanes: the lane contract by memcpy, within one process. The reference
 * implementation, and the lanes of an embedded target.
 */
#ifndef SL_TRANSPORT_LOOPBACK_H
#define SL_TRANSPORT_LOOPBACK_H

#include "core/transport/lane.h"

int sl_loopback_rail_new(struct sl_rail **ret_rail, struct sl_err *err);

/* A connected pair: the passive end in `client` (a domain of one loopback rail), the active end in
 * `target` (a domain of another, or the same). The ends may be owned by different threads. */
int sl_loopback_pair(struct sl_domain *client, struct sl_domain *target, uint16_t lane_id,
                     uint16_t depth, struct sl_lane **ret_passive, struct sl_lane **ret_active,
                     struct sl_err *err);

#endif
