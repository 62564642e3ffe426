/* What is derived from a control connection: key material, the lanes' proofs, and whether blocks
 * are sealed. */
#include "core/session/control_internal.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

/* A pair's exporter: HMAC-SHA-256 blocks over label, context and a counter, in the manner of
 * HKDF-Expand (RFC 5869 §2.3; the secret is uniform, so there is nothing to extract). */
static bool expand(const uint8_t *secret, size_t secret_bytes, const char *label,
                   const struct sl_id *context, uint8_t *out, size_t bytes)
{
    uint8_t block[32], text[128];
    size_t label_bytes = strlen(label), done = 0;
    if (label_bytes + sizeof *context + 1 > sizeof text)
        return false;
    memcpy(text, label, label_bytes);
    memcpy(text + label_bytes, context->bytes, sizeof *context);
    for (uint8_t i = 1; done < bytes; i++) {
        size_t part = bytes - done < sizeof block ? bytes - done : sizeof block;
        text[label_bytes + sizeof *context] = i;
        if (!HMAC(EVP_sha256(), secret, (int)secret_bytes, text, label_bytes + sizeof *context + 1,
                  block, NULL))
            return false;
        memcpy(out + done, block, part);
        done += part;
    }
    OPENSSL_cleanse(block, sizeof block);
    return true;
}

int sl_control_export(struct sl_control *control, const char *label, const struct sl_id *context,
                      uint8_t *out, size_t bytes, struct sl_err *err)
{
    if (control->state == SL_CONTROL_SHAKING || bytes == 0 || bytes > 255)
        return sl_err_set(err, SL_ERR_INTERNAL, "no key material can be exported yet");
    ERR_clear_error();
    bool ok = control->ssl
                  ? SSL_export_keying_material(control->ssl, out, bytes, label, strlen(label),
                                               context->bytes, sizeof *context, 1) == 1
                  : expand(control->secret, sizeof control->secret, label, context, out, bytes);
    return ok ? 0
              : sl_err_set(err, SL_ERR_CRYPTO, "could not export key material: %s",
                           sl_tls_reason());
}

/* The MAC covers the hello as it lies on the wire, up to the MAC itself. */
static bool hello_mac(const struct sl_lane_hello *hello, const uint8_t key[SL_LANE_KEY_BYTES],
                      char direction, struct sl_id *ret_mac)
{
    uint8_t text[SL_LANE_HELLO_BYTES], full[32];
    size_t covered = SL_LANE_HELLO_BYTES - sizeof hello->mac;
    sl_lane_hello_encode(hello, text);
    text[covered] = (uint8_t)direction; /* in the place of the MAC's first byte */
    if (!HMAC(EVP_sha256(), key, SL_LANE_KEY_BYTES, text, covered + 1, full, NULL))
        return false;
    memcpy(ret_mac->bytes, full, sizeof ret_mac->bytes);
    return true;
}

void sl_lane_hello_sign(struct sl_lane_hello *hello, const uint8_t key[SL_LANE_KEY_BYTES],
                        char direction)
{
    /* without memory for an HMAC the hello goes out unsigned, and is refused */
    if (!hello_mac(hello, key, direction, &hello->mac))
        memset(&hello->mac, 0, sizeof hello->mac);
}

bool sl_lane_hello_verify(const struct sl_lane_hello *hello, const uint8_t key[SL_LANE_KEY_BYTES],
                          char direction)
{
    struct sl_id mac;
    return hello_mac(hello, key, direction, &mac) &&
           CRYPTO_memcmp(mac.bytes, hello->mac.bytes, sizeof mac.bytes) == 0;
}

bool sl_seal_decided(enum sl_seal_kind client, enum sl_seal_kind target,
                     enum sl_transport_kind transport)
{
    if (client == SL_SEAL_ON || target == SL_SEAL_ON)
        return true;
    if (client == SL_SEAL_OFF || target == SL_SEAL_OFF)
        return false;
    return transport == SL_TRANSPORT_TCP;
}
