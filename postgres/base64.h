/* Base64 (RFC 4648 §4): how bytes of any kind lie in a manifest's JSON.
 */
#ifndef SL_POSTGRES_BASE64_H
#define SL_POSTGRES_BASE64_H

#include <stddef.h>

/* Both return owned (sl_free), NUL-terminated, or NULL: out of memory, or (decoding) not base64. */
char *sl_pg_base64_encode(const void *bytes, size_t count);
char *sl_pg_base64_decode(const char *text, size_t *ret_count);

#endif
