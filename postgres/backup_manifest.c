/* The first and the last object of a backup: "open", which claims the label, and the manifest, with
 * which the backup exists. What is in the header is listed in docs/repository.md. */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/cli/backup_folder.h"
#include "postgres/backup_internal.h"
#include "postgres/base64.h"
#include "postgres/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LABEL_ATTEMPTS 16

static int no_memory(struct sl_err *err)
{
    return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
}

/* --- open --------------------------------------------------------------------------------------
 */

/* The WAL it will need begins nowhere before the last checkpoint's redo: checkpoints (and a
 * standby's restartpoints) only go forward. `expire` leaves all from there on. */
static char *open_json(const struct sl_pg_backup *b)
{
    const struct sl_pg_control *control = &b->control; /* read when the server was checked */
    char host[65] = "", now[40], id[32], redo[SL_PG_LSN_BYTES];
    gethostname(host, sizeof host - 1);
    snprintf(id, sizeof id, "%llu", (unsigned long long)control->system_id);
    json_t *json = json_pack("{s:i,s:s,s:s,s:s,s:o,s:i,s:s,s:s,s:I,s:s,s:I,s:o}", "version", 1,
                             "engine", SL_PG_ENGINE, "label", b->label, "type",
                             sl_pg_backup_type(b), "host", sl_json_text(host), "pid", (int)getpid(),
                             "started", sl_wall_text(sl_wall_ns(), now, sizeof now), "system_id",
                             id, "timeline", (json_int_t)control->timeline, "wal_from",
                             sl_pg_lsn_text(control->redo_lsn, redo), "wal_segment_size",
                             (json_int_t)control->wal_segment_bytes, "references",
                             b->prior[0] ? json_pack("[s]", b->prior) : json_array());
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

/* The same bytes each time: if they were stored before the session was lost they are found
 * identical. */
int sl_pg_backup_put_open(struct sl_pg_backup *b, const char *object, struct sl_err *err)
{
    char name[SL_NAME_MAX];
    struct sl_stored stored;
    struct sl_pg_retry retry = {0};
    char *json = open_json(b);
    if (!json)
        return no_memory(err);
    snprintf(name, sizeof name, "backup/%s/%s", b->label, object);
    int rc;
    do {
        rc = sl_client_put(b->repository.client, name, json, strlen(json), sl_pg_backup_deadline(b),
                           &stored, err);
    } while (rc && sl_pg_try_again(&retry, rc, b->step_ms));
    free(json); /* jansson's */
    return rc;
}

static int newest_label(struct sl_pg_backup *b, const char *full, char label[SL_LABEL_MAX],
                        struct sl_err *err)
{
    struct sl_pg_retry retry = {0};
    int rc;
    do {
        rc = sl_pg_catalog_newest_label(b->repository.client, full, sl_pg_backup_deadline(b), label,
                                        err);
    } while (rc && sl_pg_try_again(&retry, rc, b->step_ms));
    return rc;
}

/* Published first, then looked: expire marks first and then looks for what is open. */
static int check_base(struct sl_pg_backup *b, struct sl_err *err)
{
    if (!b->prior[0])
        return 0;
    int rc = sl_folder_gone(b->repository.client, b->prior, sl_pg_backup_deadline(b), err);
    if (rc != 1)
        return rc;
    sl_err_set(err, SL_ERR_BUSY, "backup %s, to build on, is being removed by expire", b->prior);
    sl_err_hint(err, "back up again: another one is chosen");
    return SL_ERR_BUSY;
}

int sl_pg_backup_open(struct sl_pg_backup *b, struct sl_err *err)
{
    char latest[SL_LABEL_MAX] = "", full[SL_LABEL_MAX] = "";
    snprintf(full, sizeof full, "%.*s", (int)strcspn(b->prior, "_"), b->prior);
    int rc = newest_label(b, full, latest, err);
    b->attempt = 1;
    if (!rc && latest[0] && sl_option_bool(b->invocation->options, "resume"))
        rc = sl_pg_resume_claim(b, latest, err);
    if (rc)
        return rc == 1 ? check_base(b, err) : rc;
    for (int attempt = 0; rc >= 0 && attempt < LABEL_ATTEMPTS; attempt++) {
        rc = sl_label_new(b->kind, full[0] ? full : NULL, latest[0] ? latest : NULL, b->label, err);
        if (rc)
            return rc;
        rc = sl_pg_backup_put_open(b, "open", err);
        if (!rc)
            return check_base(b, err);
        if (rc != SL_ERR_EXISTS)
            return rc;
        memcpy(latest, b->label, sizeof latest); /* another backup of this second has it */
        rc = 0;
    }
    return rc ? rc : sl_err_set(err, SL_ERR_BUSY, "no free label for the backup was found");
}

/* --- header ------------------------------------------------------------------------------------
 */

static const char *time_text(double seconds, char text[40])
{
    return sl_wall_text((uint64_t)(seconds * 1e3) * SL_NS_PER_MS, text, 40);
}

static int set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value);
}

static int set_base64(json_t *object, const char *key, const char *text)
{
    if (!text)
        return 0;
    SL_CLEANUP_FREE char *encoded = sl_pg_base64_encode(text, strlen(text));
    return set(object, key, encoded ? json_string(encoded) : NULL);
}

static json_t *annotations(const struct sl_pg_backup *b)
{
    const char **items;
    size_t count = sl_option_list(b->invocation->options, "annotation", &items);
    json_t *object = json_object();
    for (size_t i = 0; i < count; i++) {
        SL_CLEANUP_FREE char *key = sl_strndup(items[i], strcspn(items[i], "="));
        const char *equals = strchr(items[i], '=');
        if (key)
            set(object, key, sl_json_text(equals ? equals + 1 : ""));
    }
    return object;
}

static int set_wal(const struct sl_pg_backup *b, json_t *o)
{
    char start[SL_PG_LSN_BYTES], stop[SL_PG_LSN_BYTES], checkpoint[SL_PG_LSN_BYTES];
    struct sl_pg_wal_name first, last;
    uint32_t bytes = b->server.wal_segment_bytes, timeline = b->start.timeline;
    sl_pg_segment_name(timeline, sl_pg_lsn_segment(b->start.start_lsn, bytes), bytes, &first);
    sl_pg_segment_name(timeline, sl_pg_lsn_segment_before(b->stop_lsn, bytes), bytes, &last);
    return set(o, "timeline", json_integer(timeline)) |
           set(o, "start_lsn", json_string(sl_pg_lsn_text(b->start.start_lsn, start))) |
           set(o, "checkpoint_lsn",
               json_string(sl_pg_lsn_text(b->start.checkpoint_lsn, checkpoint))) |
           set(o, "stop_lsn", json_string(sl_pg_lsn_text(b->stop_lsn, stop))) |
           set(o, "start_wal", json_string(first.text)) |
           set(o, "stop_wal", json_string(last.text)) |
           set(o, "wal_segment_size", json_integer(bytes));
}

/* Page checksums: how many pages were seen, which were bad (the first ones of many). */
static json_t *pages(const struct sl_pg_backup *b)
{
    return b->bad_pages ? json_pack("{s:I,s:I,s:O}", "checked", (json_int_t)atomic_load(&b->pages),
                                    "bad", (json_int_t)b->bad_page_count, "list", b->bad_pages)
                        : json_object();
}

/* Whose packs the manifest names, beside its own. */
static json_t *references(const struct sl_pg_backup *b)
{
    const struct sl_manifest_pack *packs;
    const bool *used;
    char last[SL_LABEL_MAX] = "";
    json_t *list = json_array();
    size_t count = b->base ? sl_pg_base_packs(b->base, &packs, &used) : 0;
    for (size_t i = 0; i < count; i++) {
        const char *label = packs[i].name + strlen("backup/");
        int length = (int)strcspn(label, "/");
        if (!used[i] || length >= SL_LABEL_MAX)
            continue;
        if ((size_t)length == strlen(last) && !strncmp(last, label, (size_t)length))
            continue;
        snprintf(last, sizeof last, "%.*s", length, label);
        json_array_append_new(list, json_string(last));
    }
    return list;
}

/* That it was broken off, and goes on; incr_base.c reads first_pack. */
static json_t *resumed(const struct sl_pg_backup *b)
{
    return json_pack("{s:i,s:I,s:I}", "attempt", (int)b->attempt, "first_pack",
                     (json_int_t)b->first_pack, "bytes", (json_int_t)atomic_load(&b->resumed));
}

static int set_all(const struct sl_pg_backup *b, json_t *o)
{
    char id[32], text[40], host[65] = "";
    gethostname(host, sizeof host - 1);
    snprintf(id, sizeof id, "%llu", (unsigned long long)b->server.system_id);
    return set(o, "version", json_integer(1)) | set(o, "engine", json_string(SL_PG_ENGINE)) |
           set(o, "sluice", json_string(SLUICE_VERSION)) |
           set(o, "type", json_string(sl_pg_backup_type(b))) |
           set(o, "system_id", json_string(id)) | set_wal(b, o) |
           set(o, "start_time", json_string(time_text(b->start_time, text))) |
           set(o, "start_epoch", json_real(b->start_time)) |
           set(o, "stop_time", json_string(time_text(b->stop_time, text))) |
           set(o, "stop_epoch", json_real(b->stop_time)) |
           set(o, "pg_version", json_string(b->server.version)) |
           set(o, "pg_version_num", json_integer(b->server.version_num)) |
           set(o, "pg_version_text", sl_json_text(b->server.version_text)) |
           set(o, "catalog_version", json_integer(b->control.catalog_version)) |
           set(o, "block_size", json_integer(b->control.block_bytes)) |
           set(o, "data_checksums", json_boolean(b->control.data_checksum_version != 0)) |
           set(o, "data_directory", sl_json_text(b->data_folder)) |
           set(o, "tablespaces", json_incref(b->tablespaces)) |
           set(o, "config_files", sl_pg_backup_config_json(b)) | set(o, "pages", pages(b)) |
           set(o, "host", sl_json_text(host)) | set(o, "annotations", annotations(b)) |
           set(o, "files", json_integer((json_int_t)atomic_load(&b->files))) |
           set(o, "bytes", json_integer((json_int_t)atomic_load(&b->bytes))) |
           set(o, "stored_bytes", json_integer((json_int_t)atomic_load(&b->stored_bytes))) |
           set(o, "delta_bytes",
               json_integer((json_int_t)(atomic_load(&b->delta) + atomic_load(&b->resumed)))) |
           (b->broken ? set(o, "resumed", resumed(b)) : 0) |
           (b->prior[0] ? set(o, "prior", json_string(b->prior)) : 0) |
           set(o, "references", references(b)) | set_base64(o, "backup_label", b->backup_label) |
           set_base64(o, "tablespace_map", b->tablespace_map);
}

static char *header_json(const struct sl_pg_backup *b)
{
    json_t *object = json_object();
    char *text = object && !set_all(b, object) ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}

/* --- manifest ----------------------------------------------------------------------------------
 */

static int to_upload(void *arg, const void *bytes, size_t count, struct sl_err *err)
{
    return sl_upload_write(arg, bytes, count, err);
}

static int write_entry(void *arg, const struct sl_manifest_entry *entry, struct sl_err *err)
{
    return sl_manifest_write_entry(arg, entry, err);
}

static int by_number(const void *a, const void *b)
{
    const struct sl_manifest_pack *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int write_all(struct sl_pg_backup *b, struct sl_upload *upload, const char *header,
                     struct sl_err *err)
{
    struct sl_manifest_writer *writer = NULL;
    const struct sl_manifest_pack *earlier;
    const bool *used;
    size_t count = b->base ? sl_pg_base_packs(b->base, &earlier, &used) : 0;
    int rc = sl_manifest_writer_new(to_upload, upload, b->label, b->prior[0] ? b->prior : NULL,
                                    header, &writer, err);
    for (size_t i = 0; !rc && i < count; i++) /* their numbers are below ours */
        if (used[i])
            rc = sl_manifest_write_pack(writer, &earlier[i], err);
    count = b->broken ? sl_pg_base_packs(b->broken, &earlier, &used) : 0;
    for (size_t i = 0; !rc && i < count; i++) /* and so are those of the attempts before */
        if (used[i])
            rc = sl_manifest_write_pack(writer, &earlier[i], err);
    for (size_t i = 0; !rc && i < b->pack_count; i++)
        rc = sl_manifest_write_pack(writer, &b->packs[i], err);
    if (!rc)
        rc = sl_fragments_merge(b->fragments, b->fragment_count, write_entry, writer, err);
    if (!rc)
        rc = sl_manifest_write_end(writer, err);
    sl_manifest_writer_free(writer);
    return rc;
}

static int publish_once(struct sl_pg_backup *b, const char *header, struct sl_err *err)
{
    char name[SL_NAME_MAX];
    struct sl_upload *upload = NULL;
    struct sl_stored stored;
    snprintf(name, sizeof name, "backup/%s/manifest", b->label);
    int rc = sl_upload_begin(b->repository.client, name, 0, sl_pg_backup_deadline(b), &upload, err);
    if (rc)
        return rc;
    rc = write_all(b, upload, header, err);
    int fault = rc ? 0 : sl_fault("pg.manifest_commit");
    if (fault)
        rc = sl_err_sys(err, SL_ERR_CLOSED, fault, "could not commit the manifest");
    if (rc) {
        sl_upload_abort(upload);
        return rc;
    }
    return sl_upload_commit(upload, 0, sl_pg_backup_deadline(b), &stored, err);
}

/* A backup that stood still for longer than abandoned-after may have been taken for broken off. */
static int still_ours(struct sl_pg_backup *b, struct sl_err *err)
{
    struct sl_pg_retry retry = {0};
    int rc;
    do {
        rc = sl_folder_gone(b->repository.client, b->label, sl_pg_backup_deadline(b), err);
    } while (rc < 0 && sl_pg_try_again(&retry, rc, b->step_ms));
    if (rc != 1)
        return rc;
    sl_err_set(err, SL_ERR_CANCELLED,
               "expire took backup %s for broken off: it had stored nothing for too long",
               b->label);
    return sl_err_hint(err, "see abandoned-after of expire; then back up again");
}

int sl_pg_backup_publish(struct sl_pg_backup *b, struct sl_err *err)
{
    qsort(b->packs, b->pack_count, sizeof *b->packs, by_number);
    char *header = header_json(b);
    if (!header)
        return no_memory(err);
    struct sl_pg_retry retry = {0};
    int rc;
    while ((rc = publish_once(b, header, err)) && sl_pg_try_again(&retry, rc, b->step_ms))
        sl_log_err(SL_LOG_WARN, "postgres", err, "the manifest is sent again");
    free(header); /* jansson's */
    if (rc == SL_ERR_EXISTS)
        sl_err_hint(err, "another process has taken this backup for broken off, and finished it");
    return rc ? rc : still_ours(b, err);
}
