/* expire: what the policy gives up is marked, looked at again, and removed.
 *
 * Everybody who needs a backup first publishes that (open, keep, lease-…) and then looks whether it
 * is marked; expire first publishes the mark and then looks whether anybody needs it. So of two
 * that meet, at least one sees the other, without a lock, from any host. A mark is never taken back
 * but from a backup that was finished in that very moment. Order of removal: newest backup first,
 * of each the manifest first and the mark last: a crash leaves backups that are whole or gone, and
 * what is marked is removed by the next run. docs/repository.md has the rules for other programs.
 */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/log.h"
#include "core/base/stop.h"
#include "core/cli/expire_internal.h"
#include "core/cli/retention.h"

#include <stdio.h>
#include <string.h>

/* --- what is to go -----------------------------------------------------------------------------
 */

static bool is_gone(const struct sl_subject *s)
{
    return s->folder.marked && !s->folder.keep;
}

/* Twice: as it is, and as if nothing were kept, for by_policy. */
static int decide(struct sl_expire *e, bool heed_keep, struct sl_err *err)
{
    size_t n = 0;
    SL_CLEANUP_FREE struct sl_candidate *c = sl_calloc(e->count + 1, sizeof *c);
    if (!c)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < e->count; i++) {
        struct sl_subject *s = &e->subjects[i];
        if (!s->folder.manifest || !s->readable || is_gone(s))
            continue;
        c[n].stop_epoch = s->stop_epoch;
        c[n].keep = heed_keep ? s->folder.keep : SL_KEEP_NOT;
        c[n].user = s;
        memcpy(c[n++].label, s->folder.label, sizeof s->folder.label);
    }
    sl_retention(c, n, e->fulls, e->days, (double)e->now_ns / 1e9);
    for (size_t i = 0; i < n; i++) {
        struct sl_subject *s = c[i].user;
        *(heed_keep ? &s->expire : &s->by_policy) = c[i].expired;
        s->why = "retention";
    }
    return 0;
}

static int plan(struct sl_expire *e, struct sl_err *err)
{
    int rc = decide(e, false, err);
    if (!rc)
        rc = decide(e, true, err);
    for (size_t i = 0; !rc && i < e->count; i++) {
        struct sl_subject *s = &e->subjects[i];
        bool broken_off = !s->folder.manifest && !s->running && !s->folder.marked;
        if (is_gone(s))
            s->expire = true, s->why = "marked before";
        else if (broken_off)
            s->expire = true, s->why = "broken off";
    }
    return rc;
}

/* --- marking -----------------------------------------------------------------------------------
 */

static int mark(struct sl_expire *e, const struct sl_subject *s, struct sl_err *err)
{
    char name[SL_NAME_MAX], text[100];
    struct sl_stored stored;
    int fault = sl_fault("expire.mark");
    if (fault > 0)
        return sl_err_sys(err, SL_ERR_WRITE, fault, "could not mark backup \"%s\"",
                          s->folder.label);
    snprintf(name, sizeof name, "backup/%s/expired", s->folder.label);
    snprintf(text, sizeof text, "{\"version\":1,\"reason\":\"%s\"}\n", s->why);
    int rc =
        sl_client_put(e->client, name, text, strlen(text), sl_expire_deadline(e), &stored, err);
    return rc == SL_ERR_EXISTS ? 0 : rc; /* marked by another run, for another reason */
}

static int mark_all(struct sl_expire *e, struct sl_err *err)
{
    int rc = 0;
    for (size_t i = e->count; !rc && i-- > 0;)
        if (e->subjects[i].expire && !e->subjects[i].folder.marked)
            rc = mark(e, &e->subjects[i], err);
    return rc;
}

/* --- looking again -----------------------------------------------------------------------------
 */

/* Who needs it now that it is marked, or NULL. */
static const char *needed_by(const struct sl_expire *e, size_t index)
{
    const struct sl_subject *s = &e->subjects[index];
    if (s->folder.keep)
        return "it is kept";
    if (s->folder.leases)
        return "it is being read";
    for (size_t i = index + 1; i < e->count; i++) {
        const struct sl_subject *later = &e->subjects[i];
        if (later->removed || !sl_label_same_set(s->folder.label, later->folder.label))
            continue;
        if (later->folder.manifest)
            return "a later backup refers to it";
        if (later->running)
            return "a running backup builds on it";
    }
    return NULL;
}

static void tell(json_t *list, const struct sl_expire *e, const char *label, const char *reason,
                 const char *words)
{
    json_array_append_new(list, json_pack("{s:s,s:s}", "label", label, "reason", reason));
    if (!e->invocation->json)
        printf("%s backup %s: %s\n", words, label, reason);
}

/* The second look at all; what was decided in the first stays decided, unless it was finished
 * between. */
static int look_again(struct sl_expire *e, struct sl_err *err)
{
    struct sl_subject *before = e->subjects;
    size_t count = e->count;
    e->subjects = NULL;
    e->count = e->room = 0;
    int rc = sl_expire_load(e, err);
    for (size_t i = 0, k = 0; !rc && i < e->count; i++) {
        struct sl_subject *s = &e->subjects[i];
        for (k = 0; k < count && strcmp(before[k].folder.label, s->folder.label) != 0;)
            k++;
        if (k == count) /* begun meanwhile */
            continue;
        s->expire = before[k].expire;
        s->by_policy = before[k].by_policy;
        s->why = before[k].why;
        if (s->expire && s->folder.manifest && !before[k].folder.manifest) {
            char name[SL_NAME_MAX];
            s->expire = false;
            snprintf(name, sizeof name, "backup/%s/expired", s->folder.label);
            rc = sl_client_remove(e->client, name, sl_expire_deadline(e), err);
        }
    }
    sl_expire_free(before, count);
    return rc;
}

/* --- removing ----------------------------------------------------------------------------------
 */

struct removal {
    struct sl_expire *e;
    const char *label;
    struct sl_err nested;
};

static int remove_part(struct removal *r, const char *part)
{
    char name[2 * SL_NAME_MAX];
    int fault = sl_fault("expire.remove");
    if (fault > 0)
        return sl_err_sys(&r->nested, SL_ERR_WRITE, fault, "could not remove \"%s\"", r->label);
    if (sl_stopped())
        return sl_stop_check(&r->nested);
    snprintf(name, sizeof name, "backup/%s/%s", r->label, part);
    return sl_client_remove(r->e->client, name, sl_expire_deadline(r->e), &r->nested);
}

static int visit_part(void *arg, const struct sl_entry *entry)
{
    return strcmp(entry->name, "expired") != 0 ? remove_part(arg, entry->name) : 0;
}

/* The mark stays for a while: a writer that was stopped for days and goes on finds it, and so does
 * who reads what it publishes then. */
static int remove_backup(struct sl_expire *e, struct sl_subject *s, struct sl_err *err)
{
    struct removal r = {.e = e, .label = s->folder.label};
    char folder[SL_NAME_MAX];
    bool mark_only = s->folder.marked && s->folder.objects == 1;
    snprintf(folder, sizeof folder, "backup/%s", s->folder.label);
    int rc = 0;
    if (!mark_only) {
        rc = s->folder.manifest ? remove_part(&r, "manifest") : 0;
        if (!rc)
            rc = sl_client_list(e->client, folder, "", visit_part, &r, sl_expire_deadline(e), err);
    } else if (s->folder.marked_ns + SL_LEASE_NS < e->now_ns) {
        rc = remove_part(&r, "expired");
    }
    if (rc && r.nested.code == rc)
        sl_err_copy(err, &r.nested);
    s->removed = !rc;
    if (!rc && !mark_only)
        tell(e->removed, e, s->folder.label, s->why, "removed");
    return rc;
}

static int remove_all(struct sl_expire *e, struct sl_err *err)
{
    int rc = 0;
    for (size_t i = e->count; !rc && i-- > 0;) {
        struct sl_subject *s = &e->subjects[i];
        const char *need = s->expire ? needed_by(e, i) : NULL;
        if (!s->expire)
            continue;
        if (need) {
            tell(e->deferred, e, s->folder.label, need, "not now:");
        } else if (e->dry) {
            s->removed = true;
            if (!(s->folder.marked && s->folder.objects == 1))
                tell(e->removed, e, s->folder.label, s->why, "would remove");
        } else {
            rc = remove_backup(e, s, err);
        }
    }
    return rc;
}

/* --- the command -------------------------------------------------------------------------------
 */

static int run(struct sl_expire *e, struct sl_err *err)
{
    int rc = sl_expire_load(e, err);
    if (!rc)
        rc = plan(e, err);
    if (!rc && !e->dry)
        rc = mark_all(e, err);
    if (!rc && !e->dry)
        rc = look_again(e, err);
    if (!rc)
        rc = remove_all(e, err);
    if (!rc && e->engine->others)
        rc = e->engine->others(e, err);
    if (!rc && !e->dry)
        rc = sl_client_sweep(e->client, e->abandoned_ns, sl_expire_deadline(e), &e->swept, err);
    return rc;
}

static void report(const struct sl_expire *e)
{
    json_t *result = e->invocation->result;
    const struct sl_expire_engine *engine = e->engine;
    if (!e->invocation->json) {
        printf("%s %zu backups", e->dry ? "would remove" : "removed", json_array_size(e->removed));
        if (engine->others)
            printf(", %llu %s", (unsigned long long)e->others, engine->others_text);
        putchar('\n');
    }
    if (e->dry)
        json_object_set_new(result, "dry_run", json_true());
    json_object_set(result, "removed", e->removed);
    json_object_set(result, "deferred", e->deferred);
    if (engine->others)
        json_object_set_new(result, engine->others_key, json_integer((json_int_t)e->others));
    json_object_set_new(result, "temporaries_removed", json_integer((json_int_t)e->swept));
}

static unsigned number_if_set(const struct sl_options *options, const char *name)
{
    return sl_option_is_set(options, name) ? (unsigned)sl_option_int(options, name) : 0;
}

int sl_expire_run(const struct sl_invocation *invocation, struct sl_client *client,
                  const struct sl_expire_engine *engine, struct sl_err *err)
{
    const struct sl_options *options = invocation->options;
    struct sl_expire e = {
        .invocation = invocation,
        .engine = engine,
        .client = client,
        .step_ms = (uint64_t)sl_option_int(options, "timeout"),
        .abandoned_ns = (uint64_t)sl_option_int(options, "abandoned-after") * SL_NS_PER_MS,
        .fulls = number_if_set(options, "retention-full"),
        .days = number_if_set(options, "retention-days"),
        .dry = sl_option_bool(options, "dry-run"),
        .removed = json_array(),
        .deferred = json_array(),
    };
    if (!e.fulls && !e.days)
        sl_log(SL_LOG_WARN, "cli",
               "neither retention-full nor retention-days is set: every finished backup stays");
    int rc = run(&e, err);
    report(&e); /* also what was removed before a failure */
    sl_expire_unload(&e);
    json_decref(e.removed);
    json_decref(e.deferred);
    return rc;
}
