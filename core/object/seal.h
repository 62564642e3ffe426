/* Seals: AES-256-GCM over blocks on lanes, the same for TCP and RDMA. docs/security.md holds the
 * argument; in short:
 *
 *   - one secret per session and direction, from the TLS exporter (RFC 8446 §7.5);
 *   - a block's number comes from one atomic counter of that direction, which starts at 1 (0 says
 *     "not sealed" and is refused here), and is never used twice;
 *     nonce = 96 bits: u32 zero ‖ u64 number (big-endian); the number travels on control;
 *   - a fresh key each 2^20 blocks: HKDF-Expand(secret, "sluice seal" ‖ u64 number >> 20), so that
 *     one key never protects more than 1 TiB;
 *   - additional data: object, block, lengths, codec, flags, plain digest (as in the message that
 *     describes the block), so that a block cannot be presented as another;
 *   - the tag travels on control, which is authentic.
 *
 * The number is not tied to a lane: any live lane may carry a sealed block, so a lost lane costs
 * no second sealing.
 */
#ifndef SL_OBJECT_SEAL_H
#define SL_OBJECT_SEAL_H

#include "core/base/err.h"
#include "core/wire/message.h"

#define SL_SEAL_SECRET_BYTES 32

/* One direction; one thread at a time: make one per worker. Does not block; after the first block
 * of an epoch (2^20 numbers) it allocates nothing. Secrets are wiped when freed. */
struct sl_sealer;

/* Makes a sealer from a direction's secret. Returns owned; freed with sl_sealer_free (NULL ok). */
int sl_sealer_new(const uint8_t secret[SL_SEAL_SECRET_BYTES], struct sl_sealer **ret_sealer,
                  struct sl_err *err);
void sl_sealer_free(struct sl_sealer *sealer);

/* Encrypts block->stored_bytes from `from` to `to` (may be equal) under block->seal_number (set by
 * the caller from the session's counter; the other fields are those that will be sent), and sets
 * block->seal_tag. SL_ERR_CRYPTO when the number is 0, the length is not 1..SL_BLOCK_BYTES (zero
 * blocks are not sealed) or OpenSSL fails; then `to` is undefined and must not be shown. */
int sl_seal(struct sl_sealer *sealer, struct sl_offer *block, const void *from, void *to,
            struct sl_err *err);
/* The reverse. SL_ERR_CRYPTO when the tag does not fit: then `to` holds zeros. A block whose number
 * or length cannot be sealed is SL_ERR_CRYPTO, too, with `to` untouched. */
int sl_unseal(struct sl_sealer *sealer, const struct sl_offer *block, const void *from, void *to,
              struct sl_err *err);

#endif
