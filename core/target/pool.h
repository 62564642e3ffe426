/* The blocks of memory a target moves data through: a fixed number, so that clients cannot exhaust
 * it. */
#ifndef SL_TARGET_POOL_H
#define SL_TARGET_POOL_H

#include "core/transport/lane.h"

struct buffer {
    uint8_t *start; /* SL_BLOCK_BYTES */
    struct buffer *next;
};

/* The pool's memory as one rail knows it. */
struct pool_rail {
    struct sl_rail *rail;
    struct sl_domain *domain;
    struct sl_region *region;
    struct pool_rail *next;
};

struct pool {
    uint8_t *memory;
    unsigned count, held;
    struct buffer *buffers, *free;
    struct pool_rail *rails;
};

int sl_target_pool_init(struct pool *pool, unsigned blocks, struct sl_err *err);
/* all buffers are back, no lane of its domains is left */
void sl_target_pool_fini(struct pool *pool);
/* Makes a domain on the rail and registers the pool there, if that was not done. */
int sl_target_pool_meet(struct pool *pool, struct sl_rail *rail, struct pool_rail **ret,
                        struct sl_err *err);
struct pool_rail *sl_target_pool_rail_of(const struct pool *pool, const struct sl_rail *rail);
struct buffer *sl_target_pool_take(struct pool *pool); /* NULL: none is free */
void sl_target_pool_give(struct pool *pool, struct buffer *buffer);

#endif
