/* An index in memory of records in a temporary file: 24 bytes a record, however long it is. What is
 * in the records is not looked at here. */
#include "core/base/alloc.h"
#include "core/object/object.h"
#include "postgres/incr_internal.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(struct sl_err *err)
{
    return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for the backup to build on");
}

uint64_t sl_pg_index_key(const char *path, uint64_t offset)
{
    struct sl_id id = sl_digest(offset, path, strlen(path));
    uint64_t key;
    memcpy(&key, id.bytes, sizeof key);
    return key;
}

int sl_pg_index_add(struct sl_pg_index *index, uint64_t key, uint32_t pack, const void *bytes,
                    size_t count, struct sl_err *err)
{
    if (index->count == index->room) {
        size_t room = index->room * 2 + 1024;
        struct sl_pg_place *bigger = sl_realloc(index->places, room * sizeof *bigger);
        if (!bigger)
            return no_memory(err);
        index->places = bigger;
        index->room = room;
    }
    uint8_t head[4];
    struct sl_writer w = sl_writer_on(head, sizeof head);
    sl_write_u32(&w, pack);
    index->places[index->count++] =
        (struct sl_pg_place){key, sl_pg_spool_end(index->spool), (uint32_t)(count + sizeof head)};
    int rc = sl_pg_spool_append(index->spool, head, sizeof head, err);
    return rc ? rc : sl_pg_spool_append(index->spool, bytes, count, err);
}

static int by_key(const void *a, const void *b)
{
    const struct sl_pg_place *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? -1 : 1) : x->at < y->at ? -1 : x->at > y->at;
}

int sl_pg_index_end(struct sl_pg_index *index, struct sl_err *err)
{
    if (index->count)
        qsort(index->places, index->count, sizeof *index->places, by_key);
    return sl_pg_spool_flush(index->spool, err);
}

size_t sl_pg_index_find(const struct sl_pg_index *index, uint64_t key)
{
    size_t low = 0, high = index->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (index->places[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void sl_pg_index_fini(struct sl_pg_index *index)
{
    sl_pg_spool_free(index->spool);
    sl_free(index->places);
}
