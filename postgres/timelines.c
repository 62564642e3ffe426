/* Timelines: which one goes through which point of another. */
#include "postgres/timelines.h"

#include "core/base/alloc.h"

#include <stdio.h>
#include <string.h>

static void history_object(uint64_t system_id, uint32_t timeline, char to[SL_NAME_MAX])
{
    struct sl_pg_wal_name name = {.kind = SL_PG_HISTORY, .timeline = timeline};
    snprintf(name.text, sizeof name.text, "%08X.history", timeline);
    sl_pg_wal_object(system_id, &name, to, SL_NAME_MAX);
}

void sl_pg_lineage_fini(struct sl_pg_lineage *lineage)
{
    sl_free(lineage->ancestors);
    *lineage = (struct sl_pg_lineage){0};
}

static void add_ancestor(void *arg, const struct sl_pg_switch *line)
{
    struct sl_pg_lineage *l = arg;
    if (l->count == l->room) {
        size_t room = l->room * 2 + 16;
        void *bigger = sl_realloc(l->ancestors, room * sizeof *l->ancestors);
        if (!bigger) {
            l->room = SIZE_MAX; /* told by the caller */
            return;
        }
        l->ancestors = bigger;
        l->room = room;
    }
    if (l->room != SIZE_MAX)
        l->ancestors[l->count++] = *line;
}

int sl_pg_lineage_read(struct sl_client *client, uint64_t system_id, uint32_t timeline,
                       sl_deadline deadline, struct sl_pg_lineage *ret_lineage, struct sl_err *err)
{
    struct sl_pg_lineage l = {.system_id = system_id, .timeline = timeline};
    char name[SL_NAME_MAX];
    SL_CLEANUP_FREE char *text = NULL;
    size_t count = 0;
    if (timeline > 1) {
        history_object(system_id, timeline, name);
        int rc = sl_client_fetch(client, name, SL_PG_HISTORY_MAX, deadline, &text, &count, err);
        if (!rc)
            rc = sl_pg_history_parse(text, count, timeline, add_ancestor, &l, err);
        if (!rc && l.room == SIZE_MAX)
            rc = sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
        if (rc) {
            sl_pg_lineage_fini(&l);
            return rc;
        }
    }
    *ret_lineage = l;
    return 0;
}

bool sl_pg_lineage_has(const struct sl_pg_lineage *lineage, uint32_t timeline, uint64_t lsn)
{
    if (timeline == lineage->timeline)
        return true;
    for (size_t i = 0; i < lineage->count; i++)
        if (lineage->ancestors[i].timeline == timeline)
            return lsn <= lineage->ancestors[i].switch_lsn;
    return false;
}

int sl_pg_timeline_newest(struct sl_client *client, uint64_t system_id, uint32_t timeline,
                          sl_deadline deadline, uint32_t *ret_newest, struct sl_err *err)
{
    for (uint32_t next = timeline + 1; next; next++) {
        char name[SL_NAME_MAX];
        struct sl_object_info info;
        history_object(system_id, next, name);
        int rc = sl_client_stat(client, name, deadline, &info, err);
        if (rc < 0)
            return rc;
        if (!rc)
            break;
        timeline = next;
    }
    *ret_newest = timeline;
    return 0;
}
