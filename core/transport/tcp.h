/* TCP lanes: the lane contract over one TCP connection.
 *
 * After the hellos (52 bytes each way, core/wire/message.h) the target sends requests and the
 * client answers pulls. A frame is u8 op, 3 bytes zero, u32 bytes, u64 offset, u64 tag, then
 * `bytes` bytes of data if the op carries any (docs/wire.md):
 *
 *   1 PULL       target asks for bytes at offset of region `key` (key in the tag's upper half)
 *   2 PULLED     client's answer: the data
 *   3 PUSH       target's data for offset
 *   4 NOTICE     16 bytes
 *   5 REFUSED    client's answer to a pull it may not serve; the target closes the lane
 *
 * Anything else, or a range outside the client's regions, closes the lane.
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
