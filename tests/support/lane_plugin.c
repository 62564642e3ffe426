/* The target's side of the lane tests for transports with a listener (struct sl_transport_plugin):
 * one domain for the first rail met, every lane but LANE_ID_REFUSED admitted. */
#include "tests/support/lane_world.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

struct plugin_target {
    struct lane_target target;
    struct sl_listener *listener;
    struct sl_rail *rail;
};

static int rail_met(void *arg, struct sl_rail *rail, struct sl_err *err)
{
    struct plugin_target *target = arg;
    if (target->rail)
        return sl_err_set(err, SL_ERR_UNSUPPORTED, "the tests know one rail only");
    int rc = rail->ops->domain_new(rail, &target->target.domain, err);
    if (!rc)
        target->rail = rail;
    return rc;
}

static int admit(void *arg, struct sl_rail *rail, const struct sl_lane_hello *hello,
                 const uint8_t *hello_bytes, struct sl_domain **ret_domain,
                 uint8_t reply[SL_LANE_HELLO_BYTES], struct sl_err *err)
{
    (void)rail, (void)hello_bytes;
    struct plugin_target *target = arg;
    if (hello->lane == LANE_ID_REFUSED)
        return sl_err_set(err, SL_ERR_DENIED, "refused, as the test wants");
    sl_lane_hello_encode(hello, reply);
    *ret_domain = target->target.domain;
    return 0;
}

int lane_plugin_target_open(const struct lane_fixture *fixture, uint16_t depth,
                            struct lane_target **ret_target, struct sl_err *err)
{
    struct plugin_target *target = calloc(1, sizeof *target);
    if (!target)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    const struct sl_listen listen = {.admit = admit,
                                     .admit_arg = target,
                                     .rail_met = rail_met,
                                     .depth = depth,
                                     .half_open_max = 16,
                                     .handshake_ms = 5000};
    int rc = fixture->plugin->listen(&listen, &target->listener, err);
    if (rc) {
        free(target);
        return rc;
    }
    snprintf(target->target.port, sizeof target->target.port, "%u", target->listener->port);
    *ret_target = &target->target;
    return 0;
}

int lane_plugin_target_accept(struct lane_target *base, sl_deadline deadline,
                              struct sl_lane **ret_lane, struct sl_err *err)
{
    struct plugin_target *target = (struct plugin_target *)base;
    do {
        struct pollfd poller = {.fd = target->listener->fd, .events = POLLIN};
        int rc = poll(&poller, 1, sl_deadline_poll_ms(deadline));
        if (rc > 0)
            rc = target->listener->ops->accept(target->listener, ret_lane, err);
        if (rc)
            return rc < 0 ? rc : 0;
    } while (!sl_deadline_passed(deadline));
    return sl_err_set(err, SL_ERR_TIMEOUT, "no lane came");
}

void lane_plugin_target_close(struct lane_target *base)
{
    struct plugin_target *target = (struct plugin_target *)base;
    if (!target)
        return;
    if (target->target.domain)
        target->rail->ops->domain_free(target->target.domain);
    /* rails that a listener met are its own */
    target->listener->ops->free(target->listener);
    free(target);
}
