/* The state of a stanza's backups as `expire` sees it. Reads only. */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "postgres/catalog.h"
#include "postgres/expire_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPEN_MAX 65536u

static void take_lsn(const json_t *json, const char *key, uint64_t *lsn)
{
    const char *text = json_string_value(json_object_get(json, key));
    if (text)
        sl_pg_lsn_parse(text, lsn, NULL);
}

/* Of a running backup: from where on it needs WAL. What cannot be read needs all of it (start_lsn
 * 0, system_id 0). */
static int read_open(struct sl_pg_expire *e, struct sl_pg_subject *s)
{
    char name[SL_NAME_MAX];
    SL_CLEANUP_FREE char *text = NULL;
    size_t count;
    struct sl_err err;
    snprintf(name, sizeof name, "backup/%s/open", s->folder.label);
    int rc =
        sl_client_fetch(e->client, name, OPEN_MAX, sl_pg_expire_deadline(e), &text, &count, &err);
    if (rc && sl_code_retryable(rc)) {
        sl_err_copy(&e->nested, &err);
        return rc;
    }
    json_t *json = rc ? NULL : json_loads(text, 0, NULL);
    const char *id = json_string_value(json_object_get(json, "system_id"));
    take_lsn(json, "wal_from", &s->start_lsn);
    s->system_id = id ? strtoull(id, NULL, 10) : 0;
    s->timeline = (uint32_t)json_integer_value(json_object_get(json, "timeline"));
    s->segment_bytes = (uint32_t)json_integer_value(json_object_get(json, "wal_segment_size"));
    s->readable =
        s->system_id && s->start_lsn && s->timeline && sl_pg_segment_bytes_valid(s->segment_bytes);
    json_decref(json);
    return 0;
}

static int read_finished(struct sl_pg_expire *e, struct sl_pg_subject *s)
{
    char name[SL_NAME_MAX];
    struct sl_pg_backup_info info;
    struct sl_object_info object = {0};
    struct sl_err err;
    snprintf(name, sizeof name, "backup/%s/manifest", s->folder.label);
    int rc = sl_client_stat(e->client, name, sl_pg_expire_deadline(e), &object, &err);
    if (rc == 1)
        rc = sl_pg_catalog_read(e->client, s->folder.label, sl_pg_expire_deadline(e), &info, &err);
    if (rc && sl_code_retryable(rc)) {
        sl_err_copy(&e->nested, &err);
        return rc;
    }
    if (rc) {
        sl_log_err(SL_LOG_WARN, "postgres", &err,
                   "backup %s cannot be read: it stays, and so does all WAL", s->folder.label);
        return 0;
    }
    s->readable = sl_pg_segment_bytes_valid(info.wal_segment_bytes);
    s->system_id = info.system_id;
    s->timeline = info.timeline;
    s->segment_bytes = info.wal_segment_bytes;
    s->start_lsn = info.start_lsn;
    s->stop_lsn = info.stop_lsn;
    s->stop_epoch = (double)object.created_ns / 1e9;
    sl_pg_backup_info_fini(&info);
    return 0;
}

static int add(void *arg, const char *label)
{
    struct sl_pg_expire *e = arg;
    if (e->count == e->room) {
        size_t room = e->room * 2 + 16;
        struct sl_pg_subject *bigger = sl_realloc(e->subjects, room * sizeof *bigger);
        if (!bigger)
            return sl_err_set(&e->nested, SL_ERR_NO_MEMORY, "out of memory");
        e->subjects = bigger;
        e->room = room;
    }
    struct sl_pg_subject *s = &e->subjects[e->count];
    *s = (struct sl_pg_subject){0};
    int rc = sl_folder_read(e->client, label, e->now_ns, sl_pg_expire_deadline(e), &s->folder,
                            &e->nested);
    if (rc || !s->folder.objects)
        return rc;
    s->running = !s->folder.manifest && s->folder.newest_ns + e->abandoned_ns > e->now_ns;
    rc = s->folder.manifest ? read_finished(e, s) : s->running ? read_open(e, s) : 0;
    if (!rc)
        e->count++;
    return rc;
}

static int by_stamp(const void *a, const void *b)
{
    const struct sl_pg_subject *x = a, *y = b;
    return strcmp(sl_label_stamp(x->folder.label), sl_label_stamp(y->folder.label));
}

int sl_pg_expire_load(struct sl_pg_expire *e, struct sl_err *err)
{
    sl_pg_expire_unload(e);
    e->now_ns = sl_target_wall_ns(e->client);
    int rc = sl_pg_catalog_labels(e->client, add, e, sl_pg_expire_deadline(e), err);
    if (rc && e->nested.code == rc)
        sl_err_copy(err, &e->nested);
    if (!rc && e->count)
        qsort(e->subjects, e->count, sizeof *e->subjects, by_stamp);
    return rc;
}

void sl_pg_expire_unload(struct sl_pg_expire *e)
{
    sl_free(e->subjects);
    e->subjects = NULL;
    e->count = e->room = 0;
}
