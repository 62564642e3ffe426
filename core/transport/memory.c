/* Domains and regions in software: a list of ranges with random keys. No data moves here. */
#include "core/transport/memory.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sys/random.h>

struct region {
    struct sl_region region;
    enum sl_access access;
    struct region *next;
};

struct domain {
    struct sl_domain domain;
    pthread_mutex_t lock; /* guards the list */
    struct region *first;
};

int sl_memory_domain_new(struct sl_rail *rail, struct sl_domain **ret_domain, struct sl_err *err)
{
    int fault = sl_fault("transport.domain");
    if (fault)
        return sl_err_sys(err, SL_ERR_DEVICE, fault, "could not make a protection domain");
    struct domain *domain = sl_calloc(1, sizeof *domain);
    if (!domain)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    domain->domain.rail = rail;
    pthread_mutex_init(&domain->lock, NULL);
    *ret_domain = &domain->domain;
    return 0;
}

void sl_memory_domain_free(struct sl_domain *base)
{
    if (!base)
        return;
    struct domain *domain = (struct domain *)base;
    assert(!domain->first);
    pthread_mutex_destroy(&domain->lock);
    sl_free(domain);
}

/* Called with the lock held. */
static struct region *find(struct domain *domain, uint32_t key)
{
    struct region *region = domain->first;
    while (region && region->region.remote.key != key)
        region = region->next;
    return region;
}

static int random_key(uint32_t *ret_key, struct sl_err *err)
{
    /* Up to 256 bytes are returned whole and without EINTR once the pool is initialised
     * (getrandom(2)). */
    if (getrandom(ret_key, sizeof *ret_key, 0) != (ssize_t)sizeof *ret_key)
        return sl_err_sys(err, SL_ERR_CRYPTO, errno, "could not get random bytes");
    return 0;
}

int sl_memory_region_new(struct sl_domain *base, void *start, size_t bytes, enum sl_access access,
                         struct sl_region **ret_region, struct sl_err *err)
{
    int fault = sl_fault("transport.region");
    if (fault)
        return sl_err_sys(err, SL_ERR_DEVICE, fault, "could not register %zu bytes", bytes);
    if (!bytes)
        return sl_err_set(err, SL_ERR_LIMIT, "could not register an empty range");
    struct domain *domain = (struct domain *)base;
    struct region *region = sl_calloc(1, sizeof *region);
    if (!region)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    region->access = access;
    region->region = (struct sl_region){
        .domain = base, .start = start, .bytes = bytes, .remote = {.length = bytes}};

    pthread_mutex_lock(&domain->lock);
    uint32_t key = 0;
    int rc = 0;
    while (!rc && (!key || find(domain, key)))
        rc = random_key(&key, err);
    if (!rc) {
        region->region.remote.key = key;
        region->next = domain->first;
        domain->first = region;
    }
    pthread_mutex_unlock(&domain->lock);
    if (rc) {
        sl_free(region);
        return rc;
    }
    *ret_region = &region->region;
    return 0;
}

void sl_memory_region_free(struct sl_region *region)
{
    if (!region)
        return;
    struct domain *domain = (struct domain *)region->domain;
    pthread_mutex_lock(&domain->lock);
    struct region **link = &domain->first;
    while (&(*link)->region != region)
        link = &(*link)->next;
    struct region *gone = *link;
    *link = gone->next;
    pthread_mutex_unlock(&domain->lock);
    sl_free(gone);
}

uint8_t *sl_memory_reach(struct sl_domain *base, uint32_t key, uint64_t offset, uint32_t bytes,
                         enum sl_access access)
{
    struct domain *domain = (struct domain *)base;
    uint8_t *reached = NULL;
    pthread_mutex_lock(&domain->lock);
    const struct region *region = find(domain, key);
    if (region && (region->access & access) && bytes <= region->region.bytes &&
        offset <= region->region.bytes - bytes)
        reached = region->region.start + offset;
    pthread_mutex_unlock(&domain->lock);
    return reached;
}

bool sl_memory_is_local(const struct sl_domain *domain, struct sl_local piece, uint32_t bytes)
{
    const struct sl_region *region = piece.region;
    if (!bytes || bytes > SL_SLOT_BYTES_MAX || region->domain != domain)
        return false;
    uintptr_t first = (uintptr_t)region->start, at = (uintptr_t)piece.start;
    return at >= first && bytes <= region->bytes && at - first <= region->bytes - bytes;
}

uint64_t sl_memory_address(const struct sl_remote *memory, uint64_t offset)
{
    uint64_t address;
    return __builtin_add_overflow(memory->address, offset, &address) ? UINT64_MAX : address;
}
