/* The target: pull → check → write → sync → publish → STORED, for many sessions at once.
 *
 * Used in two ways: sluiced listens with it; an embedded target (repo-path) is one in the
 * client's own process, reached by a control pair and loopback lanes.
 *
 * Threads it starts: one control thread (all control connections: TLS, messages, heartbeats; never
 * touches a disk), `workers` lane workers (each an event loop over its lanes and one store queue),
 * one committer (footer, trailer, publish in batches), four disk threads (drafts, OPEN, STAT, LIST,
 * SPACE), and one for each VERIFY, at most four. Signals are blocked in all of them. Their law is
 * in target_internal.h.
 *
 * Memory: the pool, and for a session its slots' states and lanes, at most 64 objects for writing
 * and 64 for reading, whose tables of blocks are what is large (72 bytes a MiB of content).
 *
 * Fault points: target.accept; in the order of a block's way target.pulled, target.checked,
 * target.written, target.finish, target.published, target.stored; target.read; target.remove.
 *
 * All functions but sl_target_start and _stop may be called from any thread at the same time; they
 * wait for the control thread, which never blocks.
 */
#ifndef SL_TARGET_TARGET_H
#define SL_TARGET_TARGET_H

#include "core/base/err.h"
#include "core/session/control.h"
#include "core/store/store.h"
#include "core/transport/lane.h"

struct sl_repo;
struct sl_target;

/* Objects whose last component is this say that what lies beside them may be removed: only who may
 * remove may make them. */
#define SL_TARGET_MARK "expired"

/* May this client (certificate name) use this stanza, and how? Called on the control thread at
 * HELLO; must not block. */
typedef bool (*sl_target_permit)(void *arg, const char *client, const char *stanza);

struct sl_target_config {
    struct sl_repo *repo;           /* borrows */
    unsigned workers;               /* 0: number of processors, at least 2, at most 16 */
    size_t pool_bytes;              /* buffers for blocks in flight; 0: 64 MiB */
    unsigned lanes_per_session;     /* 0: 4 */
    unsigned sessions_max;          /* 0: 256 */
    unsigned depth;                 /* pulls or pushes in flight on a lane; 0: 16, at most 255 */
    enum sl_seal_kind seal;         /* what the target insists on */
    unsigned heartbeat_ms, dead_ms; /* 0: 2000, 8000 */
    unsigned verify_stall_ms;       /* a disk so long silent gets no more VERIFIED; 0: 10 min */
    const char *software;           /* "sluiced 0.1.0" */
    sl_target_permit permit;
    sl_target_permit permit_remove; /* asked at each REMOVE and SWEEP; NULL: nobody may */
    void *permit_arg;
    /* only for a listening target */
    struct sl_tls *tls;         /* borrows; NULL: does not listen; replaced by sl_target_reload */
    const char *listen_address; /* NULL: all */
    uint16_t listen_port;       /* 0: any, see sl_target_port */
    uint16_t rdma_port;         /* 0: listen_port + 1 */
    int traffic_class;          /* IP TOS of accepted connections, 1..255; 0: leave it alone */
    const struct sl_transport_plugin *rdma; /* NULL: no RDMA, for `rdma_note` */
    const char *rdma_note;                  /* why there is none */
};

/* Starts; listens if `config` has tls. Returns owned (sl_target_stop). What `config` points to must
 * outlive the target. RDMA that cannot be had is logged and said in WELCOME, it fails nothing.
 * SL_ERR_NO_MEMORY, SL_ERR_LIMIT, SL_ERR_CONNECT (the port), SL_ERR_CONFIG (the address). */
int sl_target_start(const struct sl_target_config *config, struct sl_target **ret_target,
                    struct sl_err *err);
uint16_t sl_target_port(const struct sl_target *target); /* 0: does not listen */
/* Where RDMA lanes are taken; 0: nowhere, for the reason that sl_target_rdma_note() gives ("" when
 * none was asked for), which else names the devices. */
uint16_t sl_target_rdma_port(const struct sl_target *target);
const char *sl_target_rdma_note(const struct sl_target *target);
/* Stop: refuse new sessions, let commits that have begun end (at most `grace_ms`), drop the rest,
 * say BYE, end the threads, free. Blocks for the grace, a second for last words, and as long as a
 * disk takes that was asked before. NULL ok. */
void sl_target_stop(struct sl_target *target, unsigned grace_ms);
/* SIGHUP: new certificates for new sessions (`tls`, borrows; NULL: the old ones stay), and
 * permissions are asked anew at the next CREATE, OPEN or question of each session. When it returns
 * the old tls is not used any more. */
int sl_target_reload(struct sl_target *target, struct sl_tls *tls, struct sl_err *err);

/* Embedded: takes (also on failure) the target's end of a control pair, whose client is
 * `client_domain`'s owner; lanes are made by sl_target_local_lane(), called by the client's side
 * for each, after WELCOME. It returns owned the passive end. SL_ERR_CLOSED: no such session,
 * SL_ERR_PROTOCOL: a lane number used before, SL_ERR_LIMIT: too many lanes. */
int sl_target_attach(struct sl_target *target, struct sl_control *control, struct sl_err *err);
int sl_target_local_lane(struct sl_target *target, const struct sl_id *session,
                         struct sl_domain *client_domain, uint16_t lane_id,
                         struct sl_lane **ret_passive, struct sl_err *err);

/* Counters for logs, `check` and tests. */
struct sl_target_stats {
    uint64_t sessions, sessions_refused, blocks_in, bytes_in, blocks_out, bytes_out;
    uint64_t objects_created, objects_identical, objects_refused, objects_failed;
    uint64_t batches, batch_objects; /* commits that shared their syncs */
    uint64_t lanes_lost, pool_waits;
};
void sl_target_stats(const struct sl_target *target, struct sl_target_stats *stats);

#endif
