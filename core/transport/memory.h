/* Domains and regions of the transports that have no device (loopback, tcp): what a protection
 * domain of an RDMA card does, in software. A peer reaches bytes only by the random key of a
 * region, inside its range, and in the direction that the region was made for.
 *
 * Threads: regions may be made, freed and looked up by any threads; a lock guards the domain's
 * list. It does not guard the bytes: a region is freed only when no live lane can be using it
 * (lane.h).
 */
#ifndef SL_TRANSPORT_MEMORY_H
#define SL_TRANSPORT_MEMORY_H

#include "core/transport/lane.h"

/* As in struct sl_rail_ops; fault points "transport.domain", "transport.region". */
int sl_memory_domain_new(struct sl_rail *rail, struct sl_domain **ret_domain, struct sl_err *err);
void sl_memory_domain_free(struct sl_domain *domain);
int sl_memory_region_new(struct sl_domain *domain, void *start, size_t bytes, enum sl_access access,
                         struct sl_region **ret_region, struct sl_err *err);
void sl_memory_region_free(struct sl_region *region);

/* What a peer that names `key` and `offset` may reach, or NULL when the range is not its to use
 * in this way (`access` is _PULLED or _PUSHED). `bytes` is at least 1. */
uint8_t *sl_memory_reach(struct sl_domain *domain, uint32_t key, uint64_t offset, uint32_t bytes,
                         enum sl_access access);

/* Whether the piece lies in its region, and that in `domain`; and is 1..SL_SLOT_BYTES_MAX long. */
bool sl_memory_is_local(const struct sl_domain *domain, struct sl_local piece, uint32_t bytes);

/* The offset to put on the wire for `offset` in `memory`: UINT64_MAX, which no region holds, if
 * the sum overflows. */
uint64_t sl_memory_address(const struct sl_remote *memory, uint64_t offset);

#endif
