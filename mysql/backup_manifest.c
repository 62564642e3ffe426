/* The first and the last object of a backup: "open", which claims the label, and the manifest, with
 * which the backup exists. Its header is specified in docs/repository.md. */
#include "core/base/alloc.h"
#include "core/base/json.h"
#include "mysql/backup_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LABEL_ATTEMPTS 16

static int no_memory(struct sl_err *err)
{
    return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
}

static sl_deadline deadline_of(const struct sl_my_backup *b)
{
    return sl_deadline_in_ms(b->timeout_ms);
}

/* --- open --------------------------------------------------------------------------------------
 */

static int newer(void *arg, const struct sl_entry *entry)
{
    char *latest = arg;
    if (sl_label_valid(entry->name) && strcmp(entry->name, latest) > 0)
        snprintf(latest, SL_LABEL_MAX, "%.63s", entry->name);
    return 0;
}

static int put_open(struct sl_my_backup *b, struct sl_err *err)
{
    char name[SL_NAME_MAX], host[65] = "", now[40];
    struct sl_stored stored;
    gethostname(host, sizeof host - 1);
    json_t *json = json_pack(
        "{s:i,s:s,s:s,s:s,s:o,s:i,s:s,s:s,s:[]}", "version", 1, "engine", SL_MY_ENGINE, "label",
        b->label, "type", "full", "host", sl_json_text(host), "pid", (int)getpid(), "started",
        sl_wall_text(sl_wall_ns(), now, sizeof now), "server_id", b->server.id, "references");
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (!text)
        return no_memory(err);
    snprintf(name, sizeof name, "backup/%s/open", b->label);
    int rc =
        sl_client_put(b->repository.client, name, text, strlen(text), deadline_of(b), &stored, err);
    free(text); /* jansson's */
    return rc;
}

int sl_my_backup_open(struct sl_my_backup *b, struct sl_err *err)
{
    char latest[SL_LABEL_MAX] = "";
    int rc = sl_client_list(b->repository.client, "backup", "", newer, latest, deadline_of(b), err);
    for (int attempt = 0; !rc && attempt < LABEL_ATTEMPTS; attempt++) {
        rc = sl_label_new('F', NULL, latest[0] ? latest : NULL, b->label, err);
        if (!rc)
            rc = put_open(b, err);
        if (rc != SL_ERR_EXISTS)
            return rc;
        memcpy(latest, b->label, sizeof latest); /* another backup of this second has it */
        rc = 0;
    }
    return rc ? rc : sl_err_set(err, SL_ERR_BUSY, "no free label for the backup was found");
}

/* --- manifest ----------------------------------------------------------------------------------
 */

static json_t *coordinates_json(const struct sl_my_coordinates *c)
{
    json_t *json = json_pack("{s:o,s:o,s:o,s:o,s:I,s:I,s:b,s:b,s:b,s:b}", "tool",
                             sl_json_text(c->tool), "tool_version", sl_json_text(c->tool_version),
                             "server_version_text", sl_json_text(c->server_version), "tool_uuid",
                             sl_json_text(c->uuid), "from_lsn", (json_int_t)c->from_lsn, "to_lsn",
                             (json_int_t)c->to_lsn, "incremental", c->incremental, "partial",
                             c->partial, "compressed", c->compressed, "encrypted", c->encrypted);
    if (json && c->binlog_file[0])
        json_object_set_new(json, "binlog",
                            json_pack("{s:o,s:I,s:o}", "file", sl_json_text(c->binlog_file),
                                      "position", (json_int_t)c->binlog_position, "gtid",
                                      sl_json_text(c->gtid)));
    return json;
}

static char *header_json(const struct sl_my_backup *b)
{
    char start[40], stop[40];
    json_t *json = json_pack(
        "{s:i,s:s,s:s,s:s,s:s,s:s,s:o,s:o,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I}", "version", 1, "engine",
        SL_MY_ENGINE, "sluice", SLUICE_VERSION, "type", "full", "server_id", b->server.id,
        "server_version", b->server.version, "host", sl_json_text(b->server.host), "data_directory",
        sl_json_text(b->server.data_folder), "start_time",
        sl_wall_text(b->start_ns, start, sizeof start), "stop_time",
        sl_wall_text(b->stop_ns, stop, sizeof stop), "start_epoch",
        (json_int_t)(b->start_ns / SL_NS_PER_S), "stop_epoch",
        (json_int_t)(b->stop_ns / SL_NS_PER_S), "files", (json_int_t)b->totals.files, "bytes",
        (json_int_t)b->totals.payload, "stream_bytes", (json_int_t)b->totals.bytes, "stored_bytes",
        (json_int_t)b->stored.stored_bytes);
    json_t *more = coordinates_json(&b->coordinates);
    char *text =
        json && more && !json_object_update(json, more) ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(more);
    json_decref(json);
    return text;
}

static int to_upload(void *arg, const void *bytes, size_t count, struct sl_err *err)
{
    return sl_upload_write(arg, bytes, count, err);
}

/* The stream is a pack without an index, and the manifest's one file. */
static int write_all(struct sl_my_backup *b, struct sl_upload *upload, const char *header,
                     struct sl_err *err)
{
    struct sl_manifest_writer *writer = NULL;
    struct sl_manifest_pack pack = {
        .number = 1, .length = b->stored.length, .digest = b->stored.digest};
    struct sl_extent extent = {.length = b->stored.length, .pack = 1};
    struct sl_manifest_entry *entry = sl_calloc(1, sizeof *entry);
    if (!entry)
        return no_memory(err);
    *entry = (struct sl_manifest_entry){.kind = SL_ENTRY_FILE,
                                        .mode = 0600,
                                        .size = b->stored.length,
                                        .mtime_ns = b->stop_ns,
                                        .path = SL_MY_STREAM_ENTRY,
                                        .extent_count = 1,
                                        .extents = &extent};
    snprintf(pack.name, sizeof pack.name, "backup/%s/" SL_MY_STREAM_ENTRY, b->label);
    int rc = sl_manifest_writer_new(to_upload, upload, b->label, NULL, header, &writer, err);
    if (!rc)
        rc = sl_manifest_write_pack(writer, &pack, err);
    if (!rc)
        rc = sl_manifest_write_entry(writer, entry, err);
    if (!rc)
        rc = sl_manifest_write_end(writer, err);
    sl_manifest_writer_free(writer);
    sl_free(entry);
    return rc;
}

int sl_my_backup_publish(struct sl_my_backup *b, struct sl_err *err)
{
    char name[SL_NAME_MAX];
    struct sl_upload *upload;
    struct sl_stored stored;
    char *header = header_json(b);
    if (!header)
        return no_memory(err);
    snprintf(name, sizeof name, "backup/%s/manifest", b->label);
    int rc = sl_upload_begin(b->repository.client, name, 0, deadline_of(b), &upload, err);
    if (!rc) {
        rc = write_all(b, upload, header, err);
        if (rc)
            sl_upload_abort(upload);
        else
            rc = sl_upload_commit(upload, 0, deadline_of(b), &stored, err);
    }
    free(header); /* jansson's */
    return rc;
}
