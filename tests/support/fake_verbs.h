/* An RDMA device that is not there: the verbs of core/verbs/verbs_ops.h within one process.
 *
 * Two connected queue pairs really move bytes, check keys, ranges and access, run out of receives,
 * flush. Everything that can go wrong with a device is a switch or a call here. Rules that a real
 * device enforces by hanging, crashing or losing data (unacknowledged events, a full queue, the
 * iWARP side that must speak first) are counted as violations: tests expect none.
 *
 * With SLUICE_FAULTS every call that can fail has a fault point "verbs.<call>". Any thread may
 * call.
 */
#ifndef SL_TESTS_FAKE_VERBS_H
#define SL_TESTS_FAKE_VERBS_H

#include "core/verbs/verbs_ops.h"

#include <stdbool.h>
#include <stddef.h>

struct fake_verbs {
    enum ibv_transport_type transport;
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    bool absent;           /* no device at all */
    int address_status;    /* of RDMA_CM_EVENT_ADDR_ERROR, 0: resolved */
    bool silent;           /* connection requests are lost on the way */
    uint8_t private_max;   /* bytes of private data that arrive; 0: all, padded to 56 */
    bool lose_disconnects; /* the peer is not told */
    bool hold;             /* work waits for fake_verbs_run() */
    /* of the work executed next, the nth (from 1; 0 none) … */
    unsigned fail_at; /* … ends with fail_status, */
    enum ibv_wc_status fail_status;
    uint32_t vendor_error;
    unsigned hang_at;       /* … never ends */
    unsigned post_error_at; /* … is not taken: post_send returns post_error */
    int post_error;
    /* what happened */
    unsigned rnr; /* a SEND that found no receive */
    unsigned violations;
    char violation[128]; /* the first */
    unsigned flushed;
};

extern struct fake_verbs fake_verbs;

/* Put the fake in place with the settings of a device like Soft-RoCE, everything well. */
void fake_verbs_install(void);
/* From now on a device like soft iWARP; before anything is made. */
void fake_verbs_iwarp(void);
/* Begin to count work and posts anew, for the …_at settings. */
void fake_verbs_count_from_here(void);
/* Objects that live: queue pairs, completion queues, channels, ids, domains, regions, events. */
size_t fake_verbs_live(void);
/* Execute at most `max` pieces of held work; `reverse` serves the youngest queue pair first.
 * Returns how many. */
size_t fake_verbs_run(size_t max, bool reverse);
void fake_verbs_device_fatal(void); /* IBV_EVENT_DEVICE_FATAL; all queue pairs fail */
void fake_verbs_remove(void);       /* RDMA_CM_EVENT_DEVICE_REMOVAL to every id */
void fake_verbs_port(bool up);      /* IBV_EVENT_PORT_ERR, _ACTIVE */
void fake_verbs_overrun(void);      /* IBV_EVENT_CQ_ERR of the youngest completion queue */
/* A SEND of these bytes from a queue pair whose peer is the target ('t') or the client ('c'), past
 * everything the code under test would do: what a hostile peer sends. Returns whether it was
 * received. */
bool fake_verbs_forge(char to, const void *bytes, uint32_t count);
/* A completion that belongs to nothing, on the youngest completion queue. */
void fake_verbs_stray_completion(uint64_t wr_id);

#endif
