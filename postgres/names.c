/* Sorted names of a folder. */
#include "postgres/names.h"

#include "core/base/alloc.h"

#include <stdlib.h>
#include <string.h>

static bool grow(void **memory, size_t *room, size_t need, size_t bytes_each)
{
    if (need <= *room)
        return true;
    size_t to = *room + *room / 2;
    if (to < need)
        to = need + 256;
    void *bigger = sl_realloc(*memory, to * bytes_each);
    if (!bigger)
        return false;
    *memory = bigger;
    *room = to;
    return true;
}

bool sl_pg_names_add(struct sl_pg_names *names, const char *name, const char *suffix)
{
    size_t name_bytes = strlen(name), suffix_bytes = strlen(suffix);
    size_t need = names->used + name_bytes + suffix_bytes + 1;
    void *bytes = names->bytes, *offsets = names->offsets;
    bool ok = need <= UINT32_MAX && grow(&bytes, &names->bytes_room, need, 1);
    names->bytes = bytes;
    ok = ok && grow(&offsets, &names->room, names->count + 1, sizeof *names->offsets);
    names->offsets = offsets;
    if (!ok)
        return false;
    memcpy(names->bytes + names->used, name, name_bytes);
    memcpy(names->bytes + names->used + name_bytes, suffix, suffix_bytes + 1);
    names->offsets[names->count++] = (uint32_t)names->used;
    names->used = need;
    return true;
}

static int compare(const void *a, const void *b, void *bytes)
{
    const uint32_t *x = a, *y = b;
    return strcmp((const char *)bytes + *x, (const char *)bytes + *y);
}

void sl_pg_names_sort(struct sl_pg_names *names)
{
    if (names->count)
        qsort_r(names->offsets, names->count, sizeof *names->offsets, compare, names->bytes);
}

const char *sl_pg_names_at(const struct sl_pg_names *names, size_t index)
{
    return names->bytes + names->offsets[index];
}

bool sl_pg_names_has(const struct sl_pg_names *names, const char *name)
{
    size_t low = 0, high = names->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(sl_pg_names_at(names, middle), name);
        if (!order)
            return true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

void sl_pg_names_free(struct sl_pg_names *names)
{
    sl_free(names->bytes);
    sl_free(names->offsets);
    *names = (struct sl_pg_names){0};
}
