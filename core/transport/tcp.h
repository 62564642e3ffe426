/* TCP lanes: the lane contract over one TCP connection.
 *
 * After the hellos (52 bytes each way, core/wire/message.h) the target sends requests and the
 * client answers pulls. A frame is u8 op, 3 bytes zero, u32 bytes, u64 offset, u64 tag, then
 * `bytes` bytes of data if the op carries any. Integers are little-endian. The tag's upper half is
 * the region's key, its lower half a number of the target's choice:
 *
 *   1 PULL       target asks for `bytes` (1..SL_SLOT_BYTES_MAX) at `offset` of the region
 *   2 PULLED     client's answer, in any order: offset and tag as asked, then the data
 *   3 PUSH       target's data for `offset` of the region
 *   4 NOTICE     16 bytes; offset and tag are 0
 *   5 REFUSED    client's answer to a pull or push it may not serve, with its tag; bytes 0
 *
 * The client answers REFUSED when no region of its domain has that key, range and direction
 * (SL_ACCESS_PULLED, SL_ACCESS_PUSHED). It then sends nothing more, reads away what still comes,
 * and both ends close (SL_ERR_DENIED). Anything else that is not listed here closes the lane at
 * once (SL_ERR_PROTOCOL): an unknown op, reserved bytes set, more pulls unanswered than the
 * client's hello has as depth, an answer that was not asked for, a length of 0 or above a slot's.
 *
 * Owners: posting only queues; call process() afterwards (or poll for `events_wanted`, which then
 * has POLLOUT). One process() call moves 4 MiB each way at most. The active end's first process()
 * sends the target's hello. A lane does not use TCP keep-alive: that a silent peer is dead is
 * decided by the session.
 */
#ifndef SL_TRANSPORT_TCP_H
#define SL_TRANSPORT_TCP_H

#include "core/transport/lane.h"

extern const struct sl_rail_ops sl_tcp_rail_ops;

/* The target's TCP rail, for its lanes accepted on the control port. */
int sl_tcp_rail_new(struct sl_rail **ret_rail, struct sl_err *err);

/* Makes the active end of a lane from an accepted, non-blocking socket whose hello (all of its
 * 52 bytes) was read and admitted, and queues `reply`. Takes `fd` (closed on failure too). */
int sl_tcp_lane_accept(int fd, struct sl_domain *domain, const struct sl_lane_hello *hello,
                       const uint8_t reply[SL_LANE_HELLO_BYTES], uint16_t depth,
                       struct sl_lane **ret_lane, struct sl_err *err);

#endif
