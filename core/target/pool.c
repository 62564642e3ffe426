/* Buffers for blocks in flight: page-aligned, one registration a rail. Owned by the control thread.
 * Who gets how many is schedule.c's business. */
#include "core/target/pool.h"

#include "core/base/alloc.h"

#include <assert.h>

int sl_target_pool_init(struct pool *pool, unsigned blocks, struct sl_err *err)
{
    *pool = (struct pool){0};
    pool->memory = sl_pages_alloc((size_t)blocks * SL_BLOCK_BYTES);
    pool->buffers = sl_calloc(blocks, sizeof *pool->buffers);
    if (!pool->memory || !pool->buffers) {
        sl_pages_free(pool->memory, (size_t)blocks * SL_BLOCK_BYTES);
        sl_free(pool->buffers);
        *pool = (struct pool){0};
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for a pool of %u MiB", blocks);
    }
    pool->count = blocks;
    for (unsigned i = blocks; i-- > 0;) {
        pool->buffers[i].start = pool->memory + (size_t)i * SL_BLOCK_BYTES;
        pool->buffers[i].next = pool->free;
        pool->free = &pool->buffers[i];
    }
    return 0;
}

void sl_target_pool_fini(struct pool *pool)
{
    assert(pool->held == 0);
    while (pool->rails) {
        struct pool_rail *it = pool->rails;
        pool->rails = it->next;
        it->rail->ops->region_free(it->region);
        it->rail->ops->domain_free(it->domain);
        sl_free(it);
    }
    sl_pages_free(pool->memory, (size_t)pool->count * SL_BLOCK_BYTES);
    sl_free(pool->buffers);
    *pool = (struct pool){0};
}

struct pool_rail *sl_target_pool_rail_of(const struct pool *pool, const struct sl_rail *rail)
{
    for (struct pool_rail *it = pool->rails; it; it = it->next)
        if (it->rail == rail)
            return it;
    return NULL;
}

int sl_target_pool_meet(struct pool *pool, struct sl_rail *rail, struct pool_rail **ret,
                        struct sl_err *err)
{
    struct pool_rail *it = sl_target_pool_rail_of(pool, rail);
    if (it) {
        *ret = it;
        return 0;
    }
    it = sl_calloc(1, sizeof *it);
    if (!it)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    it->rail = rail;
    int rc = rail->ops->domain_new(rail, &it->domain, err);
    if (rc) {
        sl_free(it);
        return rc;
    }
    rc = rail->ops->region_new(it->domain, pool->memory, (size_t)pool->count * SL_BLOCK_BYTES,
                               SL_ACCESS_LOCAL, &it->region, err);
    if (rc) {
        rail->ops->domain_free(it->domain);
        sl_free(it);
        return rc;
    }
    it->next = pool->rails;
    pool->rails = it;
    *ret = it;
    return 0;
}

struct buffer *sl_target_pool_take(struct pool *pool)
{
    struct buffer *buffer = pool->free;
    if (buffer) {
        pool->free = buffer->next;
        pool->held++;
    }
    return buffer;
}

void sl_target_pool_give(struct pool *pool, struct buffer *buffer)
{
    assert(pool->held > 0);
    pool->held--;
    buffer->next = pool->free;
    pool->free = buffer;
}
