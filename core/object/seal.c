/* Seals: AES-256-GCM over blocks on lanes. docs/security.md has the construction and its argument.
 * Not here: where secrets come from and how numbers are counted (core/session), encryption at
 * rest. OpenSSL's contexts are made once per epoch; a block costs no allocation. */
#include "core/object/seal.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/wire/cursor.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <string.h>

#define EPOCH_BITS  20
#define KEY_BYTES   32
#define NONCE_BYTES 12
#define TAG_BYTES   16
#define AAD_BYTES   (4 * 4 + 2 + 16)
#define INFO        "sluice seal"

/* EVP_CipherInit_ex's `enc` */
#define UNSEAL 0
#define SEAL   1

/* A key schedule. Workers see numbers out of order, so around a border both epochs are in use:
 * two are kept, by the epoch's lowest bit. */
struct schedule {
    EVP_CIPHER_CTX *context;
    bool keyed;
    uint64_t epoch;
    int direction;
};

struct sl_sealer {
    uint8_t secret[SL_SEAL_SECRET_BYTES];
    EVP_CIPHER *cipher;
    EVP_KDF_CTX *kdf;
    struct schedule schedules[2];
};

static void big_endian(uint64_t v, uint8_t bytes[8])
{
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(v >> (56 - 8 * i));
}

/* HKDF-Expand (RFC 5869 §2.3) with SHA-256: the exporter's secret is already uniform. */
static bool derive(struct sl_sealer *sealer, uint64_t epoch, uint8_t key[KEY_BYTES])
{
    int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
    uint8_t info[sizeof INFO - 1 + 8];
    memcpy(info, INFO, sizeof INFO - 1);
    big_endian(epoch, info + sizeof INFO - 1);
    char sha256[] = "SHA256";
    OSSL_PARAM params[] = {
        OSSL_PARAM_int(OSSL_KDF_PARAM_MODE, &mode),
        OSSL_PARAM_utf8_string(OSSL_KDF_PARAM_DIGEST, sha256, sizeof sha256 - 1),
        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_KEY, sealer->secret, sizeof sealer->secret),
        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_INFO, info, sizeof info),
        OSSL_PARAM_END,
    };
    EVP_KDF_CTX_reset(sealer->kdf); /* nothing of an earlier epoch stays */
    return EVP_KDF_derive(sealer->kdf, key, KEY_BYTES, params) == 1;
}

static EVP_CIPHER_CTX *schedule_for(struct sl_sealer *sealer, uint64_t number, int direction)
{
    uint64_t epoch = number >> EPOCH_BITS;
    struct schedule *s = &sealer->schedules[epoch & 1];
    if (s->keyed && s->epoch == epoch && s->direction == direction)
        return s->context;
    uint8_t key[KEY_BYTES];
    s->keyed = !sl_fault("seal.key") && derive(sealer, epoch, key) &&
               EVP_CipherInit_ex(s->context, sealer->cipher, NULL, key, NULL, direction) == 1;
    s->epoch = epoch;
    s->direction = direction;
    OPENSSL_cleanse(key, sizeof key);
    return s->keyed ? s->context : NULL;
}

static void additional_data(const struct sl_offer *block, uint8_t aad[AAD_BYTES])
{
    struct sl_writer w = sl_writer_on(aad, AAD_BYTES);
    sl_write_u32(&w, block->object);
    sl_write_u32(&w, block->block);
    sl_write_u32(&w, block->stored_bytes);
    sl_write_u32(&w, block->plain_bytes);
    sl_write_u8(&w, block->codec);
    sl_write_u8(&w, block->flags);
    sl_write_bytes(&w, block->plain_digest.bytes, sizeof block->plain_digest.bytes);
}

/* Everything but the tag. `ret_context` is for its getting or checking. */
static bool crypt_block(struct sl_sealer *sealer, const struct sl_offer *block, const void *from,
                        void *to, int direction, EVP_CIPHER_CTX **ret_context)
{
    uint8_t nonce[NONCE_BYTES] = {0}, aad[AAD_BYTES];
    int done;
    EVP_CIPHER_CTX *context = schedule_for(sealer, block->seal_number, direction);
    if (!context)
        return false;
    big_endian(block->seal_number, nonce + 4);
    additional_data(block, aad);
    *ret_context = context;
    return EVP_CipherInit_ex(context, NULL, NULL, NULL, nonce, direction) == 1 &&
           EVP_CipherUpdate(context, NULL, &done, aad, AAD_BYTES) == 1 &&
           EVP_CipherUpdate(context, to, &done, from, (int)block->stored_bytes) == 1;
}

static int check_request(const struct sl_offer *block, struct sl_err *err)
{
    if (!block->seal_number)
        return sl_err_set(err, SL_ERR_CRYPTO, "block %u is not sealed", block->block);
    if (!block->stored_bytes || block->stored_bytes > SL_BLOCK_BYTES)
        return sl_err_set(err, SL_ERR_CRYPTO, "a seal over %u bytes is not possible",
                          block->stored_bytes);
    return 0;
}

int sl_seal(struct sl_sealer *sealer, struct sl_offer *block, const void *from, void *to,
            struct sl_err *err)
{
    int rc = check_request(block, err), done;
    if (rc)
        return rc;
    uint8_t end[16];
    EVP_CIPHER_CTX *context;
    if (!crypt_block(sealer, block, from, to, SEAL, &context) ||
        EVP_CipherFinal_ex(context, end, &done) != 1 ||
        EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, block->seal_tag.bytes) != 1)
        return sl_err_set(err, SL_ERR_CRYPTO, "could not seal block %u", block->block);
    return 0;
}

int sl_unseal(struct sl_sealer *sealer, const struct sl_offer *block, const void *from, void *to,
              struct sl_err *err)
{
    int rc = check_request(block, err), done;
    if (rc)
        return rc;
    uint8_t end[16], tag[TAG_BYTES];
    memcpy(tag, block->seal_tag.bytes, sizeof tag);
    EVP_CIPHER_CTX *context;
    if (crypt_block(sealer, block, from, to, UNSEAL, &context) &&
        EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, tag) == 1 &&
        EVP_CipherFinal_ex(context, end, &done) == 1)
        return 0;
    /* What was decrypted is not authentic: nobody may see it. */
    memset(to, 0, block->stored_bytes);
    return sl_err_set(err, SL_ERR_CRYPTO, "seal of block %u is broken", block->block);
}

int sl_sealer_new(const uint8_t secret[SL_SEAL_SECRET_BYTES], struct sl_sealer **ret_sealer,
                  struct sl_err *err)
{
    struct sl_sealer *sealer = sl_calloc(1, sizeof *sealer);
    if (!sealer)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a sealer");
    memcpy(sealer->secret, secret, sizeof sealer->secret);
    EVP_KDF *hkdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    sealer->cipher = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
    sealer->kdf = hkdf ? EVP_KDF_CTX_new(hkdf) : NULL;
    EVP_KDF_free(hkdf); /* the context holds its own reference */
    for (int i = 0; i < 2; i++)
        sealer->schedules[i].context = EVP_CIPHER_CTX_new();
    if (!sealer->cipher || !sealer->kdf || !sealer->schedules[0].context ||
        !sealer->schedules[1].context || sl_fault("seal.new")) {
        sl_sealer_free(sealer);
        return sl_err_set(err, SL_ERR_CRYPTO, "OpenSSL has no AES-256-GCM or HKDF");
    }
    *ret_sealer = sealer;
    return 0;
}

void sl_sealer_free(struct sl_sealer *sealer)
{
    if (!sealer)
        return;
    for (int i = 0; i < 2; i++)
        EVP_CIPHER_CTX_free(sealer->schedules[i].context);
    EVP_KDF_CTX_free(sealer->kdf);
    EVP_CIPHER_free(sealer->cipher);
    OPENSSL_cleanse(sealer->secret, sizeof sealer->secret);
    sl_free(sealer);
}
