/* How a client reaches a target that lives in its own process. Client and target meet only through
 * core/session, so the program that has both fills this in:
 *
 *     struct sl_embedded embedded = {target, sl_target_attach, sl_target_local_lane};
 */
#ifndef SL_SESSION_EMBEDDED_H
#define SL_SESSION_EMBEDDED_H

#include "core/session/control.h"

struct sl_target;
struct sl_domain;
struct sl_lane;

struct sl_embedded {
    struct sl_target *target; /* borrows */
    /* Takes the target's end of a control pair (freed on failure too). */
    int (*attach)(struct sl_target *target, struct sl_control *control, struct sl_err *err);
    /* Makes a lane of a session between a domain of the client's loopback rail and the target;
     * returns the client's end. */
    int (*local_lane)(struct sl_target *target, const struct sl_id *session,
                      struct sl_domain *client_domain, uint16_t lane_id,
                      struct sl_lane **ret_passive, struct sl_err *err);
};

#endif
