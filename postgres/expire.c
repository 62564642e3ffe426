/* expire: PostgreSQL's part of it, what backups need of the WAL. The rest is core's
 * (core/cli/expire.c). */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "postgres/catalog.h"
#include "postgres/expire_internal.h"
#include "postgres/signals.h"

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

static int keep_facts(struct sl_subject *s, const struct sl_pg_facts *facts, struct sl_err *err)
{
    struct sl_pg_facts *own = sl_calloc(1, sizeof *own);
    if (!own)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    *own = *facts;
    s->facts = own;
    return 0;
}

/* Of a running backup: from where on it needs WAL. What cannot be read needs all of it. */
static int read_open(struct sl_expire *e, struct sl_subject *s, struct sl_err *ret_err)
{
    char name[SL_NAME_MAX];
    SL_CLEANUP_FREE char *text = NULL;
    size_t count;
    struct sl_err err;
    struct sl_pg_facts f = {0};
    snprintf(name, sizeof name, "backup/%s/open", s->folder.label);
    int rc = sl_client_fetch(e->client, name, OPEN_MAX, sl_expire_deadline(e), &text, &count, &err);
    if (rc && sl_code_retryable(rc))
        return sl_err_copy(ret_err, &err);
    json_t *json = rc ? NULL : json_loads(text, 0, NULL);
    const char *id = json_string_value(json_object_get(json, "system_id"));
    take_lsn(json, "wal_from", &f.start_lsn);
    f.system_id = id ? strtoull(id, NULL, 10) : 0;
    f.timeline = (uint32_t)json_integer_value(json_object_get(json, "timeline"));
    f.segment_bytes = (uint32_t)json_integer_value(json_object_get(json, "wal_segment_size"));
    s->readable =
        f.system_id && f.start_lsn && f.timeline && sl_pg_segment_bytes_valid(f.segment_bytes);
    json_decref(json);
    return keep_facts(s, &f, ret_err);
}

static int read_finished(struct sl_expire *e, struct sl_subject *s, struct sl_err *ret_err)
{
    struct sl_pg_backup_info info;
    struct sl_err err;
    int rc = sl_pg_catalog_read(e->client, s->folder.label, sl_expire_deadline(e), &info, &err);
    if (rc && sl_code_retryable(rc))
        return sl_err_copy(ret_err, &err);
    if (rc) {
        sl_log_err(SL_LOG_WARN, "postgres", &err,
                   "backup %s cannot be read: it stays, and so does all WAL", s->folder.label);
        return 0;
    }
    const struct sl_pg_facts facts = {.system_id = info.system_id,
                                      .start_lsn = info.start_lsn,
                                      .stop_lsn = info.stop_lsn,
                                      .timeline = info.timeline,
                                      .segment_bytes = info.wal_segment_bytes};
    s->readable = sl_pg_segment_bytes_valid(info.wal_segment_bytes);
    sl_pg_backup_info_fini(&info);
    return keep_facts(s, &facts, ret_err);
}

int sl_pg_expire(struct sl_invocation *invocation, struct sl_err *err)
{
    struct sl_pg_repository repository;
    sl_pg_signals_install(sl_code_exit(SL_ERR_CANCELLED), 0);
    int rc = sl_pg_repository_open(
        invocation, false, false,
        sl_deadline_in_ms((uint64_t)sl_option_int(invocation->options, "timeout")), &repository,
        err);
    if (rc)
        return rc;
    const struct sl_expire_engine engine = {.finished = read_finished,
                                            .running = read_open,
                                            .others = sl_pg_expire_wal,
                                            .others_text = "WAL files",
                                            .others_key = "wal_files_removed",
                                            .arg = &repository};
    rc = sl_expire_run(invocation, repository.client, &engine, err);
    sl_pg_repository_close(&repository);
    return rc;
}
