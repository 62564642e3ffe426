/* Rails, domains and regions: what lanes are made in. Not the making of lanes (connect.c,
 * listen.c), nor the choice of a device (address.c).
 */
#include "core/verbs/verbs_internal.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"

#include <errno.h>
#include <stdio.h>

static const char *port_state(enum ibv_port_state state)
{
    return state == IBV_PORT_ACTIVE ? "active" : state == IBV_PORT_DOWN ? "down" : "not active";
}

/* The target's queue pair has twice `depth` sends, the client's as many receives; and a few each.
 */
static uint16_t depth_limit(const struct ibv_device_attr *attr)
{
    int wr = attr->max_qp_wr / 2;
    if (attr->max_qp_wr < SL_VERBS_GRANT_BUFFERS + SL_VERBS_NUDGES)
        return 0;
    int cqe = (attr->max_cqe - SL_VERBS_CQ_SPARE - SL_VERBS_GRANT_BUFFERS - SL_VERBS_NUDGES) / 2;
    int limit = wr < cqe ? wr : cqe;
    return (uint16_t)(limit < 0 ? 0 : limit > SL_VERBS_DEPTH_MAX ? SL_VERBS_DEPTH_MAX : limit);
}

static int check(struct verbs_rail *rail, struct sl_err *err)
{
    const char *name = rail->device->context->device->name;
    const struct ibv_port_attr *port = &rail->port_attr;
    if (port->state != IBV_PORT_ACTIVE)
        return sl_err_set(err, SL_ERR_CONNECT, "port %u of RDMA device \"%s\" is %s", rail->port,
                          name, port_state(port->state));
    if (port->max_msg_sz < SL_SLOT_BYTES_MAX || rail->base.max_depth == 0)
        return sl_err_set(err, SL_ERR_UNSUPPORTED,
                          "RDMA device \"%s\" is too small: messages of %u bytes, %d requests",
                          name, port->max_msg_sz, rail->device->attr.max_qp_wr);
    return 0;
}

int sl_verbs_rail_new(struct ibv_context *context, uint8_t port, struct verbs_rail **ret_rail,
                      struct sl_err *err)
{
    int rc = sl_verbs_fork_safe(err);
    if (rc != 0)
        return rc;
    struct verbs_rail *rail = sl_calloc(1, sizeof *rail);
    if (!rail)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    rail->base.ops = &sl_verbs_rail_ops;
    rail->port = port;
    atomic_init(&rail->refs, 1);
    rc = sl_verbs_device_get(context, &rail->device, err);
    if (rc != 0) {
        sl_free(rail);
        return rc;
    }
    rail->base.own_sink = rail->device->iwarp;
    rail->base.max_depth = depth_limit(&rail->device->attr);
    snprintf(rail->base.label, sizeof rail->base.label, "rdma %s/%u", context->device->name, port);
    rc = sl_verbs->query_port(context, port, &rail->port_attr);
    rc = rc != 0 ? sl_verbs_err(err, rc, "could not query the RDMA device's port")
                 : check(rail, err);
    if (rc != 0) {
        sl_verbs_rail_drop(rail);
        return rc;
    }
    *ret_rail = rail;
    return 0;
}

void sl_verbs_rail_hold(struct verbs_rail *rail)
{
    atomic_fetch_add(&rail->refs, 1);
}

void sl_verbs_rail_drop(struct verbs_rail *rail)
{
    if (atomic_fetch_sub(&rail->refs, 1) != 1)
        return;
    sl_verbs_device_put(rail->device);
    sl_free(rail);
}

static void rail_free(struct sl_rail *rail)
{
    /* A listener's rails end with it, and with the last domain made in them. */
    if (rail && !sl_verbs_rail(rail)->met)
        sl_verbs_rail_drop(sl_verbs_rail(rail));
}

static int resolve(const struct sl_connect *to, struct sl_rail **ret_rail, struct sl_err *err)
{
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct verbs_rail *rail = NULL;
    int rc = sl_verbs_channel_new(&channel, err);
    if (rc != 0)
        return rc;
    rc = sl_verbs_resolve(to, NULL, channel, &id, err);
    if (rc == 0) {
        rc = sl_verbs_rail_new(id->verbs, id->port_num, &rail, err);
        sl_verbs->destroy_id(id);
    }
    sl_verbs->destroy_event_channel(channel);
    if (rc == 0)
        *ret_rail = &rail->base;
    return rc;
}

static int domain_new(struct sl_rail *rail, struct sl_domain **ret_domain, struct sl_err *err)
{
    struct verbs_domain *domain = sl_calloc(1, sizeof *domain);
    if (!domain)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    domain->base.rail = rail;
    int sys = sl_fault("transport.domain"); /* as in every transport */
    if (sys <= 0) {
        domain->pd = sl_verbs->alloc_pd(sl_verbs_rail(rail)->device->context);
        sys = errno;
    }
    if (!domain->pd) {
        sl_free(domain);
        return sl_verbs_err(err, sys, "could not allocate an RDMA protection domain");
    }
    atomic_init(&domain->refs, 1);
    sl_verbs_rail_hold(sl_verbs_rail(rail));
    *ret_domain = &domain->base;
    return 0;
}

void sl_verbs_domain_hold(struct sl_domain *domain)
{
    atomic_fetch_add(&sl_verbs_domain(domain)->refs, 1);
}

void sl_verbs_domain_drop(struct sl_domain *domain)
{
    if (atomic_fetch_sub(&sl_verbs_domain(domain)->refs, 1) != 1)
        return;
    sl_verbs->dealloc_pd(sl_verbs_domain(domain)->pd);
    sl_verbs_rail_drop(sl_verbs_rail(domain->rail));
    sl_free(domain);
}

static void domain_free(struct sl_domain *domain)
{
    if (domain)
        sl_verbs_domain_drop(domain);
}

/* Relaxed ordering lets the adapter use the bus better; a completion still orders all data before
 * it (ibv_reg_mr(3)), and nothing here polls memory. */
static unsigned access_flags(const struct verbs_rail *rail, enum sl_access access)
{
    if (access != SL_ACCESS_LOCAL) {
        unsigned flags = access & SL_ACCESS_PULLED ? IBV_ACCESS_REMOTE_READ : 0;
        if (access & SL_ACCESS_PUSHED)
            flags |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_RELAXED_ORDERING;
        return flags;
    }
    unsigned flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
    /* On iWARP a READ's response is a tagged write: its sink must be remotely writable
     * (RFC 5040 §5.2; Linux drivers/infiniband/core/rw.c does the same). */
    return rail->device->iwarp ? flags | IBV_ACCESS_REMOTE_WRITE : flags;
}

static int region_new(struct sl_domain *domain, void *start, size_t bytes, enum sl_access access,
                      struct sl_region **ret_region, struct sl_err *err)
{
    if (!start || bytes == 0)
        return sl_err_set(err, SL_ERR_LIMIT, "a region of no bytes cannot be registered");
    struct verbs_region *region = sl_calloc(1, sizeof *region);
    if (!region)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    unsigned flags = access_flags(sl_verbs_rail(domain->rail), access);
    int sys = sl_fault("transport.region");
    if (sys <= 0) {
        region->mr = sl_verbs->reg_mr(sl_verbs_domain(domain)->pd, start, bytes, flags);
        sys = errno;
    }
    if (!region->mr) {
        char what[80];
        sl_free(region);
        snprintf(what, sizeof what, "could not register %zu bytes for RDMA", bytes);
        return sl_verbs_err(err, sys, what);
    }
    region->base = (struct sl_region){
        .domain = domain,
        .start = start,
        .bytes = bytes,
        .remote = {.address = (uintptr_t)start, .key = region->mr->rkey, .length = bytes}};
    *ret_region = &region->base;
    return 0;
}

static void region_free(struct sl_region *region)
{
    if (!region)
        return;
    sl_verbs->dereg_mr(sl_verbs_region(region)->mr);
    sl_free(region);
}

const struct sl_rail_ops sl_verbs_rail_ops = {
    .name = "rdma",
    .resolve = resolve,
    .connect = sl_verbs_connect,
    .domain_new = domain_new,
    .domain_free = domain_free,
    .region_new = region_new,
    .region_free = region_free,
    .rail_free = rail_free,
};
