/* A digest over bytes that come in parts: what sl_digest() gives for all of them in one piece. */
#ifndef SL_OBJECT_STREAM_H
#define SL_OBJECT_STREAM_H

#include "core/object/object.h"

/* One thread at a time. */
struct sl_digester;

/* Returns owned (sl_digester_free, NULL ok), ready to be fed. SL_ERR_NO_MEMORY. */
int sl_digester_new(uint64_t seed, struct sl_digester **ret_digester, struct sl_err *err);
void sl_digester_free(struct sl_digester *digester);
void sl_digester_feed(struct sl_digester *digester, const void *bytes, size_t count);
/* The digest of what was fed since the last one; begins anew. */
struct sl_id sl_digester_take(struct sl_digester *digester);

#endif
