/* The state of a stanza's backups as `expire` sees it. Reads only. */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/cli/expire_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A backup's own facts are read by its engine. */
static int read_finished(struct sl_expire *e, struct sl_subject *s)
{
    char name[SL_NAME_MAX];
    struct sl_object_info object = {0};
    struct sl_err err = {0};
    snprintf(name, sizeof name, "backup/%s/manifest", s->folder.label);
    int rc = sl_client_stat(e->client, name, sl_expire_deadline(e), &object, &err);
    if (rc < 0 && sl_code_retryable(rc))
        return sl_err_copy(&e->nested, &err);
    if (rc < 0)
        sl_log_err(SL_LOG_WARN, "cli", &err, "backup %s cannot be read: it stays", s->folder.label);
    if (rc != 1)
        return 0;
    s->stop_epoch = (double)object.created_ns / 1e9;
    return e->engine->finished(e, s, &e->nested);
}

static int add(void *arg, const char *label)
{
    struct sl_expire *e = arg;
    if (e->count == e->room) {
        size_t room = e->room * 2 + 16;
        struct sl_subject *bigger = sl_realloc(e->subjects, room * sizeof *bigger);
        if (!bigger)
            return sl_err_set(&e->nested, SL_ERR_NO_MEMORY, "out of memory");
        e->subjects = bigger;
        e->room = room;
    }
    struct sl_subject *s = &e->subjects[e->count];
    *s = (struct sl_subject){0};
    int rc =
        sl_folder_read(e->client, label, e->now_ns, sl_expire_deadline(e), &s->folder, &e->nested);
    if (rc || !s->folder.objects)
        return rc;
    s->running = !s->folder.manifest && s->folder.newest_ns + e->abandoned_ns > e->now_ns;
    rc = s->folder.manifest                 ? read_finished(e, s)
         : s->running && e->engine->running ? e->engine->running(e, s, &e->nested)
                                            : 0;
    if (!rc)
        e->count++;
    return rc;
}

static int by_stamp(const void *a, const void *b)
{
    const struct sl_subject *x = a, *y = b;
    return strcmp(sl_label_stamp(x->folder.label), sl_label_stamp(y->folder.label));
}

int sl_expire_load(struct sl_expire *e, struct sl_err *err)
{
    sl_expire_unload(e);
    e->now_ns = sl_target_wall_ns(e->client);
    int rc = sl_folder_labels(e->client, add, e, sl_expire_deadline(e), err);
    if (rc && e->nested.code == rc)
        sl_err_copy(err, &e->nested);
    if (!rc && e->count)
        qsort(e->subjects, e->count, sizeof *e->subjects, by_stamp);
    return rc;
}

void sl_expire_free(struct sl_subject *subjects, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sl_free(subjects[i].facts);
    sl_free(subjects);
}

void sl_expire_unload(struct sl_expire *e)
{
    sl_expire_free(e->subjects, e->count);
    e->subjects = NULL;
    e->count = e->room = 0;
}
