/* The first and the last object of a backup: "open", which claims the label, and the manifest, with
 * which the backup exists. Its header is specified in docs/repository.md. */
#include "core/base/alloc.h"
#include "core/base/json.h"
#include "core/cli/backup_folder.h"
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

void sl_my_backup_object(const struct sl_my_backup *b, unsigned number, char name[SL_NAME_MAX])
{
    if (number)
        snprintf(name, SL_NAME_MAX, "backup/%s/" SL_MY_STREAM_ENTRY "-%02u", b->label, number + 1);
    else
        snprintf(name, SL_NAME_MAX, "backup/%s/" SL_MY_STREAM_ENTRY, b->label);
}

/* Labels of all that it builds on. */
static json_t *references(const struct sl_my_backup *b)
{
    json_t *list = json_array();
    for (size_t i = 0; i < b->base.count; i++)
        if (strcmp(b->base.parts[i].label, b->label) != 0 &&
            (!i || strcmp(b->base.parts[i].label, b->base.parts[i - 1].label) != 0))
            json_array_append_new(list, json_string(b->base.parts[i].label));
    return list;
}

/* --- open --------------------------------------------------------------------------------------
 */

static int put_open(struct sl_my_backup *b, struct sl_err *err)
{
    char name[SL_NAME_MAX], host[65] = "", now[40];
    struct sl_stored stored;
    gethostname(host, sizeof host - 1);
    json_t *json =
        json_pack("{s:i,s:s,s:s,s:s,s:o,s:i,s:s,s:s,s:o}", "version", 1, "engine", SL_MY_ENGINE,
                  "label", b->label, "type", sl_my_backup_type(b), "host", sl_json_text(host),
                  "pid", (int)getpid(), "started", sl_wall_text(sl_wall_ns(), now, sizeof now),
                  "server_id", b->server.id, "references", references(b));
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (!text)
        return no_memory(err);
    snprintf(name, sizeof name, "backup/%s/open", b->label);
    int rc = sl_client_put(b->repository.client, name, text, strlen(text), sl_my_backup_deadline(b),
                           &stored, err);
    free(text); /* jansson's */
    return rc;
}

/* The newest label of all, or of the set of a full backup. */
static int newest(struct sl_my_backup *b, const char *full, char label[SL_LABEL_MAX],
                  struct sl_err *err)
{
    json_t *labels = NULL;
    label[0] = '\0';
    int rc = sl_my_labels(b->repository.client, sl_my_backup_deadline(b), &labels, err);
    for (size_t i = json_array_size(labels); !rc && !label[0] && i-- > 0;) {
        const char *one = json_string_value(json_array_get(labels, i));
        if (!full || sl_label_same_set(one, full))
            snprintf(label, SL_LABEL_MAX, "%s", one);
    }
    json_decref(labels);
    return rc;
}

/* Who needs a backup first says so, and then looks whether it is gone: docs/repository.md. */
static int check_base(struct sl_my_backup *b, struct sl_err *err)
{
    if (b->kind == 'F')
        return 0;
    int rc = sl_folder_gone(b->repository.client, b->base.label, sl_my_backup_deadline(b), err);
    if (rc == 1)
        rc = sl_err_set(err, SL_ERR_NOT_FOUND,
                        "backup %s, which this one builds on, is being removed", b->base.label);
    return rc;
}

int sl_my_backup_open(struct sl_my_backup *b, struct sl_err *err)
{
    char latest[SL_LABEL_MAX], full[SL_LABEL_MAX];
    snprintf(full, sizeof full, "%.*s", (int)strcspn(b->base.label, "_"), b->base.label);
    const char *prior = b->kind == 'F' ? NULL : full;
    int rc = newest(b, prior, latest, err);
    for (int attempt = 0; !rc && attempt < LABEL_ATTEMPTS; attempt++) {
        rc = sl_label_new(b->kind, prior, latest[0] ? latest : NULL, b->label, err);
        if (!rc)
            rc = put_open(b, err);
        if (rc != SL_ERR_EXISTS)
            return rc ? rc : check_base(b, err);
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
        SL_MY_ENGINE, "sluice", SLUICE_VERSION, "type", sl_my_backup_type(b), "server_id",
        b->server.id, "server_version", b->server.version, "host", sl_json_text(b->server.host),
        "data_directory", sl_json_text(b->server.data_folder), "start_time",
        sl_wall_text(b->start_ns, start, sizeof start), "stop_time",
        sl_wall_text(b->stop_ns, stop, sizeof stop), "start_epoch",
        (json_int_t)(b->start_ns / SL_NS_PER_S), "stop_epoch",
        (json_int_t)(b->stop_ns / SL_NS_PER_S), "files", (json_int_t)b->totals.files, "bytes",
        (json_int_t)b->totals.payload, "stream_bytes", (json_int_t)b->totals.bytes, "stored_bytes",
        (json_int_t)b->stored_bytes);
    if (json && b->kind != 'F') {
        json_object_set_new(json, "prior", json_string(b->base.label));
        json_object_set_new(json, "references", references(b));
    }
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

/* Its own streams behind those that it builds on. */
static int add_own(struct sl_my_backup *b, struct sl_err *err)
{
    int rc = 0;
    for (unsigned i = 0; !rc && i < b->streams; i++) {
        struct sl_manifest_pack pack = {.length = b->stored[i].length,
                                        .digest = b->stored[i].digest};
        sl_my_backup_object(b, i, pack.name);
        if (pack.length)
            rc = sl_my_manifest_add(&b->base, b->label, &pack, err);
    }
    return rc;
}

/* A stream is a pack without an index, and one entry of its name. */
static int write_part(struct sl_manifest_writer *writer, const struct sl_my_backup *b,
                      uint32_t number, struct sl_manifest_entry *entry, struct sl_err *err)
{
    const struct sl_my_part *part = &b->base.parts[number - 1];
    struct sl_extent extent = {.length = part->pack.length, .pack = number};
    *entry = (struct sl_manifest_entry){.kind = SL_ENTRY_FILE,
                                        .mode = 0600,
                                        .size = part->pack.length,
                                        .mtime_ns = b->stop_ns,
                                        .extent_count = 1,
                                        .extents = &extent};
    snprintf(entry->path, sizeof entry->path, "%s", part->pack.name + strlen("backup/"));
    return sl_manifest_write_entry(writer, entry, err);
}

static int write_all(struct sl_my_backup *b, struct sl_upload *upload, const char *header,
                     struct sl_err *err)
{
    struct sl_manifest_writer *writer = NULL;
    SL_CLEANUP_FREE struct sl_manifest_entry *entry = sl_calloc(1, sizeof *entry);
    if (!entry)
        return no_memory(err);
    int rc = sl_manifest_writer_new(to_upload, upload, b->label,
                                    b->kind == 'F' ? NULL : b->base.label, header, &writer, err);
    for (uint32_t i = 0; !rc && i < b->base.count; i++) {
        b->base.parts[i].pack.number = i + 1;
        rc = sl_manifest_write_pack(writer, &b->base.parts[i].pack, err);
    }
    for (uint32_t i = 1; !rc && i <= b->base.count; i++)
        rc = write_part(writer, b, i, entry, err);
    if (!rc)
        rc = sl_manifest_write_end(writer, err);
    sl_manifest_writer_free(writer);
    return rc;
}

/* Published first, then looked: expire may have taken it for broken off. */
static int check_mark(struct sl_my_backup *b, struct sl_err *err)
{
    int rc = sl_folder_gone(b->repository.client, b->label, sl_my_backup_deadline(b), err);
    if (rc == 1)
        rc = sl_err_set(err, SL_ERR_NOT_FOUND, "expire has taken backup %s for broken off",
                        b->label);
    return rc;
}

int sl_my_backup_publish(struct sl_my_backup *b, struct sl_err *err)
{
    char name[SL_NAME_MAX];
    struct sl_upload *upload;
    struct sl_stored stored;
    int rc = add_own(b, err);
    if (rc)
        return rc;
    char *header = header_json(b);
    if (!header)
        return no_memory(err);
    snprintf(name, sizeof name, "backup/%s/manifest", b->label);
    rc = sl_upload_begin(b->repository.client, name, 0, sl_my_backup_deadline(b), &upload, err);
    if (!rc) {
        rc = write_all(b, upload, header, err);
        if (rc)
            sl_upload_abort(upload);
        else
            rc = sl_upload_commit(upload, 0, sl_my_backup_deadline(b), &stored, err);
    }
    free(header); /* jansson's */
    return rc ? rc : check_mark(b, err);
}
