/* Grants: the 16 bytes that a client sends on an RDMA lane, by which the target knows how many
 * notices will find a buffer (docs/wire.md). Pure encode and decode; what they mean to a lane is
 * lane.c's. */
#ifndef SL_VERBS_GRANT_H
#define SL_VERBS_GRANT_H

#include "core/transport/lane.h"

#define SL_VERBS_GRANT_MAGIC 0x31674c53u /* "SLg1" */
#define SL_VERBS_GRANT_MAX   UINT16_MAX  /* of one, and of all that are not used yet */

void sl_verbs_grant_encode(uint32_t count, uint8_t out[SL_NOTICE_BYTES]);
/* `*ret_count` more notices may be sent; 0 is a nudge. SL_ERR_PROTOCOL: not a grant, or of more
 * than SL_VERBS_GRANT_MAX. */
int sl_verbs_grant_decode(const uint8_t *bytes, size_t length, uint32_t *ret_count);

#endif
