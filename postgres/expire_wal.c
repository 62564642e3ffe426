/* Removing WAL that no backup needs any more: oldest first, so that what is left at any moment is
 * without holes. History files stay as long as their cluster's life does: they are small, and
 * recovery looks for them. */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "postgres/expire_internal.h"
#include "postgres/signals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct walk {
    struct sl_expire *e;
    uint64_t system_id;
    bool everything; /* of a life that is over and has no backups left */
    struct sl_pg_need *needs;
    size_t count;
    uint32_t segment_bytes;
    struct sl_pg_ancestry timeline;
    char folder[SL_NAME_MAX];
    struct sl_err nested;
};

/* --- needs -------------------------------------------------------------------------------------
 */

/* A backup that the policy has given up and somebody keeps for itself alone needs no more than its
 * own WAL; so do those before it in its set. */
static bool standalone(const struct sl_expire *e, const struct sl_subject *s)
{
    bool kept = false;
    if (!s->by_policy)
        return false;
    for (size_t i = 0; i < e->count; i++) {
        const struct sl_subject *other = &e->subjects[i];
        if (other->removed || !other->folder.keep ||
            !sl_label_same_set(s->folder.label, other->folder.label))
            continue;
        if (other->folder.keep == SL_KEEP_PITR)
            return false;
        kept = true;
    }
    return kept;
}

static uint64_t system_of(const struct sl_subject *s)
{
    const struct sl_pg_facts *f = s->facts;
    return f ? f->system_id : 0;
}

static void collect(struct walk *w)
{
    const struct sl_expire *e = w->e;
    for (size_t i = 0; i < e->count; i++) {
        const struct sl_subject *s = &e->subjects[i];
        const struct sl_pg_facts *f = s->facts;
        if (s->removed || system_of(s) != w->system_id || (!s->folder.manifest && !s->running))
            continue;
        w->segment_bytes = f->segment_bytes;
        w->needs[w->count++] = (struct sl_pg_need){
            .timeline = f->timeline,
            .first = sl_pg_lsn_segment(f->start_lsn, f->segment_bytes),
            .last = standalone(e, s) ? sl_pg_lsn_segment_before(f->stop_lsn, f->segment_bytes)
                                     : UINT64_MAX};
    }
}

/* Nothing is removed while it is not known what somebody needs. */
static const char *obstacle(const struct sl_expire *e)
{
    for (size_t i = 0; i < e->count; i++) {
        const struct sl_subject *s = &e->subjects[i];
        if (!s->removed && !s->readable && (s->folder.manifest || s->running))
            return s->folder.label;
    }
    return NULL;
}

/* --- removing ----------------------------------------------------------------------------------
 */

static int remove_one(struct walk *w, const char *name)
{
    char object[2 * SL_NAME_MAX];
    struct sl_expire *e = w->e;
    if (sl_pg_signals_caught())
        return sl_err_set(&w->nested, SL_ERR_CANCELLED, "cancelled");
    e->others++;
    if (e->dry)
        return 0;
    snprintf(object, sizeof object, "%s/%s", w->folder, name);
    return sl_client_remove(e->client, object, sl_expire_deadline(e), &w->nested);
}

static int visit_file(void *arg, const struct sl_entry *entry)
{
    struct walk *w = arg;
    struct sl_pg_wal_name name;
    if (entry->is_folder || sl_pg_wal_name_parse(entry->name, &name, NULL))
        return 0;
    if (w->everything)
        return remove_one(w, entry->name);
    if (name.kind == SL_PG_HISTORY ||
        sl_pg_wal_needed(w->needs, w->count, &w->timeline,
                         sl_pg_segment_number(&name, w->segment_bytes), w->segment_bytes))
        return 0;
    return remove_one(w, entry->name);
}

static int descend(struct walk *w, const char *name, int (*visit)(void *, const struct sl_entry *))
{
    char folder[SL_NAME_MAX];
    size_t used = strlen(w->folder);
    snprintf(w->folder + used, sizeof w->folder - used, "/%s", name);
    memcpy(folder, w->folder, sizeof folder);
    int rc =
        sl_client_list(w->e->client, folder, "", visit, w, sl_expire_deadline(w->e), &w->nested);
    w->folder[used] = '\0';
    return rc;
}

static int visit_inside(void *arg, const struct sl_entry *entry)
{
    struct walk *w = arg;
    if (entry->is_folder)
        return strlen(entry->name) == 16 ? descend(w, entry->name, visit_file) : 0;
    return visit_file(w, entry);
}

static void take_switch(void *arg, const struct sl_pg_switch *line)
{
    struct sl_pg_ancestry *a = arg;
    if (a->count < sizeof a->switches / sizeof *a->switches)
        a->switches[a->count++] = *line;
    else
        a->known = false; /* more ancestors than anybody has: all of it stays */
}

static int read_ancestry(struct walk *w, const char *folder)
{
    char name[SL_NAME_MAX];
    SL_CLEANUP_FREE char *text = NULL;
    size_t count;
    struct sl_err err;
    w->timeline = (struct sl_pg_ancestry){.timeline = (uint32_t)strtoul(folder, NULL, 16)};
    if (w->timeline.timeline == 1 || w->everything)
        return 0;
    struct sl_pg_wal_name history = {.kind = SL_PG_HISTORY, .timeline = w->timeline.timeline};
    snprintf(history.text, sizeof history.text, "%08X.history", history.timeline);
    sl_pg_wal_object(w->system_id, &history, name, sizeof name);
    int rc = sl_client_fetch(w->e->client, name, SL_PG_HISTORY_MAX, sl_expire_deadline(w->e), &text,
                             &count, &err);
    if (rc && sl_code_retryable(rc)) {
        sl_err_copy(&w->nested, &err);
        return rc;
    }
    w->timeline.known = !rc;
    if (!rc &&
        sl_pg_history_parse(text, count, w->timeline.timeline, take_switch, &w->timeline, NULL))
        w->timeline.known = false;
    return 0;
}

static int visit_timeline(void *arg, const struct sl_entry *entry)
{
    struct walk *w = arg;
    if (!entry->is_folder || strlen(entry->name) != 8)
        return 0;
    int rc = read_ancestry(w, entry->name);
    return rc ? rc : descend(w, entry->name, visit_inside);
}

static int one_life(struct sl_expire *e, uint64_t system_id, bool current, struct sl_err *err)
{
    struct walk w = {.e = e, .system_id = system_id};
    w.needs = sl_calloc(e->count + 1, sizeof *w.needs);
    if (!w.needs)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    collect(&w);
    w.everything = !w.count && !current;
    int rc = 0;
    if (w.count || w.everything) {
        snprintf(w.folder, sizeof w.folder, "wal/%llu", (unsigned long long)system_id);
        char folder[SL_NAME_MAX];
        memcpy(folder, w.folder, sizeof folder);
        rc = sl_client_list(e->client, folder, "", visit_timeline, &w, sl_expire_deadline(e), err);
    }
    if (rc && w.nested.code == rc)
        sl_err_copy(err, &w.nested);
    sl_free(w.needs);
    return rc;
}

/* Of lives that are over WAL goes only when a later one has a backup. */
static bool current_has_backup(const struct sl_expire *e)
{
    const struct sl_pg_repository *repository = e->engine->arg;
    for (size_t i = 0; i < e->count; i++)
        if (e->subjects[i].folder.manifest && !e->subjects[i].removed &&
            system_of(&e->subjects[i]) == repository->system_id)
            return true;
    return false;
}

int sl_pg_expire_wal(struct sl_expire *e, struct sl_err *err)
{
    const struct sl_pg_repository *repository = e->engine->arg;
    const struct sl_stanza *stanza = &repository->stanza;
    const char *label = obstacle(e);
    if (label) {
        sl_log(SL_LOG_WARN, "postgres", "no WAL is removed: it is not known what backup %s needs",
               label);
        return 0;
    }
    int rc = 0;
    for (uint32_t i = 0; !rc && i < stanza->life_count; i++) {
        bool current = i + 1 == stanza->life_count;
        if (current || current_has_backup(e))
            rc = one_life(e, strtoull(stanza->lives[i].id, NULL, 10), current, err);
    }
    return rc;
}
