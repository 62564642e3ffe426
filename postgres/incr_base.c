/* The backup that an increment builds on: its manifest and its groups, in temporary files with an
 * index in memory. Or the packs of one that was broken off, and their indexes. Reading objects is
 * incr_load.c's, looking up incr_find.c's. */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "postgres/incr_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct sl_err *err)
{
    return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for the backup to build on");
}

/* Nobody's fault but of what was read: it is not used, and what it is about is stored anew. */
static bool is_damage(int code)
{
    return !sl_code_retryable(code) && code != SL_ERR_WRITE && code != SL_ERR_CANCELLED;
}

/* Of all packs that the backup itself has stored. */
static int load_own_groups(struct sl_pg_base *base, struct sl_client *client, const char *label,
                           uint64_t step_ms, struct sl_err *err)
{
    char own[SL_NAME_MAX];
    snprintf(own, sizeof own, "backup/%s/", label);
    for (size_t i = 0; i < base->pack_count; i++) {
        uint32_t number = base->packs[i].number;
        size_t before = base->groups.count;
        if (number < base->first_own || strncmp(base->packs[i].name, own, strlen(own)) != 0)
            continue;
        int rc = sl_pg_base_load_groups(base, client, label, number, step_ms, err);
        if (rc && !is_damage(rc))
            return rc;
        if (!rc)
            continue;
        base->groups.count = before;
        sl_log_err(SL_LOG_WARN, "postgres", err,
                   "groups-%04u of backup %s is not used: its files are stored anew", number,
                   label);
    }
    return 0;
}

/* --- the whole ---------------------------------------------------------------------------------
 */

static int base_new(struct sl_pg_base **ret_base, struct sl_err *err)
{
    struct sl_pg_base *base = sl_calloc(1, sizeof *base);
    if (!base)
        return no_memory(err);
    int rc = sl_pg_spool_new(&base->entries.spool, err);
    if (!rc)
        rc = sl_pg_spool_new(&base->groups.spool, err);
    if (rc) {
        sl_pg_base_free(base);
        return rc;
    }
    *ret_base = base;
    return 0;
}

static int base_end(struct sl_pg_base *base, struct sl_err *err)
{
    int rc = sl_pg_index_end(&base->entries, err);
    if (!rc)
        rc = sl_pg_index_end(&base->groups, err);
    base->used = rc ? NULL : sl_calloc(base->pack_count + 1, sizeof *base->used);
    return !rc && !base->used ? no_memory(err) : rc;
}

int sl_pg_base_load(struct sl_client *client, const char *label, uint64_t step_ms,
                    struct sl_pg_base **ret_base, struct sl_err *err)
{
    struct sl_pg_base *base;
    int rc = base_new(&base, err);
    if (rc)
        return rc;
    rc = sl_pg_base_load_manifest(base, client, label, step_ms, err);
    if (!rc)
        rc = load_own_groups(base, client, label, step_ms, err);
    if (!rc)
        rc = base_end(base, err);
    if (rc) {
        sl_pg_base_free(base);
        return rc;
    }
    *ret_base = base;
    return 0;
}

/* One pack of a backup without manifest. Of one that is damaged or foreign nothing is used. */
static int load_pack(struct sl_pg_base *base, struct sl_client *client, const char *label,
                     uint32_t number, uint64_t step_ms, struct sl_err *err)
{
    size_t entries = base->entries.count, groups = base->groups.count;
    struct sl_manifest_pack pack = {.number = number};
    sl_pg_pack_name(label, number, pack.name);
    base->loading = number;
    int rc = sl_pg_base_load_index(base, client, &pack, step_ms, err);
    if (!rc)
        rc = sl_pg_base_load_groups(base, client, label, number, step_ms, err);
    if (!rc)
        return sl_pg_base_add_pack(base, &pack) ? sl_err_copy(err, &base->nested),
               base->nested.code                : 0;
    base->entries.count = entries;
    base->groups.count = groups;
    if (!is_damage(rc))
        return rc;
    sl_log_err(SL_LOG_WARN, "postgres", err, "pack %u of the broken-off backup is not used",
               number);
    return 0;
}

struct numbers {
    uint32_t *list;
    size_t count, room;
};

static int list_pack(void *arg, const struct sl_entry *entry)
{
    struct numbers *n = arg;
    char *end;
    if (strncmp(entry->name, "pack-", 5) != 0)
        return 0;
    unsigned long number = strtoul(entry->name + 5, &end, 10);
    if (*end || !number || number > UINT32_MAX)
        return 0;
    if (n->count == n->room) {
        size_t room = n->room * 2 + 16;
        uint32_t *bigger = sl_realloc(n->list, room * sizeof *bigger);
        if (!bigger)
            return SL_ERR_NO_MEMORY;
        n->list = bigger;
        n->room = room;
    }
    n->list[n->count++] = (uint32_t)number;
    return 0;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

int sl_pg_base_load_packs(struct sl_client *client, const char *label, uint64_t step_ms,
                          struct sl_pg_base **ret_base, struct sl_err *err)
{
    struct sl_pg_base *base;
    struct numbers numbers = {0};
    char folder[SL_NAME_MAX];
    int rc = base_new(&base, err);
    if (rc)
        return rc;
    base->by_piece = true;
    snprintf(folder, sizeof folder, "backup/%s", label);
    rc = sl_client_list(client, folder, "", list_pack, &numbers, sl_deadline_in_ms(step_ms), err);
    if (rc == SL_ERR_NO_MEMORY)
        no_memory(err);
    if (numbers.count)
        qsort(numbers.list, numbers.count, sizeof *numbers.list, by_value);
    for (size_t i = 0; !rc && i < numbers.count; i++)
        rc = load_pack(base, client, label, numbers.list[i], step_ms, err);
    sl_free(numbers.list);
    if (!rc)
        rc = base_end(base, err);
    if (rc) {
        sl_pg_base_free(base);
        return rc;
    }
    *ret_base = base;
    return 0;
}

void sl_pg_base_free(struct sl_pg_base *base)
{
    if (!base)
        return;
    sl_pg_index_fini(&base->entries);
    sl_pg_index_fini(&base->groups);
    sl_free(base->packs);
    sl_free(base->used);
    sl_free(base);
}

size_t sl_pg_base_packs(const struct sl_pg_base *base, const struct sl_manifest_pack **ret_packs,
                        const bool **ret_used)
{
    *ret_packs = base->packs;
    *ret_used = base->used;
    return base->pack_count;
}

uint32_t sl_pg_base_last_pack(const struct sl_pg_base *base)
{
    return base->pack_count ? base->packs[base->pack_count - 1].number : 0;
}
