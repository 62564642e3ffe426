/* Base64, strictly. */
#include "postgres/base64.h"

#include "core/base/alloc.h"

#include <stdint.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *sl_pg_base64_encode(const void *bytes, size_t count)
{
    const uint8_t *in = bytes;
    char *text = sl_alloc((count + 2) / 3 * 4 + 1), *to = text;
    if (!text)
        return NULL;
    for (size_t i = 0; i < count; i += 3) {
        size_t left = count - i;
        uint32_t v = (uint32_t)in[i] << 16 | (left > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
                     (left > 2 ? in[i + 2] : 0);
        *to++ = alphabet[v >> 18];
        *to++ = alphabet[v >> 12 & 63];
        *to++ = left > 1 ? alphabet[v >> 6 & 63] : '=';
        *to++ = left > 2 ? alphabet[v & 63] : '=';
    }
    *to = '\0';
    return text;
}

char *sl_pg_base64_decode(const char *text, size_t *ret_count)
{
    size_t length = strlen(text), pad = 0;
    while (pad < 2 && pad < length && text[length - 1 - pad] == '=')
        pad++;
    if (length % 4)
        return NULL;
    uint8_t *out = sl_alloc(length / 4 * 3 + 1);
    if (!out)
        return NULL;
    size_t count = 0;
    uint32_t v = 0;
    for (size_t i = 0; i < length; i++) {
        const char *at = i < length - pad ? strchr(alphabet, text[i]) : alphabet;
        if (!at || !text[i]) {
            sl_free(out);
            return NULL;
        }
        v = v << 6 | (uint32_t)(at - alphabet);
        if (i % 4 == 3) {
            out[count++] = (uint8_t)(v >> 16);
            out[count++] = (uint8_t)(v >> 8);
            out[count++] = (uint8_t)v;
        }
    }
    count -= pad;
    out[count] = '\0';
    *ret_count = count;
    return (char *)out;
}
