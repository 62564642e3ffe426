/* XXH3-128 in parts. */
#include "core/object/stream.h"

#include "core/base/alloc.h"

#include <string.h>
#ifdef SLUICE_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

struct sl_digester {
    XXH3_state_t *state; /* wants more alignment than malloc gives */
    uint64_t seed;
};

int sl_digester_new(uint64_t seed, struct sl_digester **ret_digester, struct sl_err *err)
{
    struct sl_digester *digester = sl_calloc(1, sizeof *digester);
    if (digester)
        digester->state = XXH3_createState();
    if (!digester || !digester->state) {
        sl_free(digester);
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    }
    digester->seed = seed;
    XXH3_128bits_reset_withSeed(digester->state, seed);
    *ret_digester = digester;
    return 0;
}

void sl_digester_free(struct sl_digester *digester)
{
    if (digester)
        XXH3_freeState(digester->state);
    sl_free(digester);
}

void sl_digester_feed(struct sl_digester *digester, const void *bytes, size_t count)
{
    XXH3_128bits_update(digester->state, bytes, count);
}

struct sl_id sl_digester_take(struct sl_digester *digester)
{
    XXH128_canonical_t canonical;
    struct sl_id id;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(digester->state));
    memcpy(&id, &canonical, sizeof id);
    XXH3_128bits_reset_withSeed(digester->state, digester->seed);
    return id;
}
