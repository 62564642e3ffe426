/* info: the stanza's backups with their coordinates, and its streams. Reads listings and manifests,
 * not the backups; verify reads everything. */
#include "core/base/alloc.h"
#include "core/base/json.h"
#include "core/cli/stream.h"
#include "mysql/binlog_internal.h"
#include "mysql/catalog.h"
#include "mysql/commands.h"
#include "mysql/repository.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- gathering ---------------------------------------------------------------------------------
 */

/* One that has no manifest runs, or was broken off: it is not listed. */
static int add_backup(struct sl_my_repository *r, const char *label, json_t *backups,
                      sl_deadline deadline, struct sl_err *err)
{
    struct sl_err why = {0};
    struct sl_my_manifest manifest = {0};
    int rc = sl_my_is_there(r->client, label, deadline, err);
    if (rc <= 0)
        return rc;
    rc = sl_my_manifest_read(r->client, label, deadline, &manifest, &why);
    if (rc == SL_ERR_NOT_FOUND)
        return 0;
    if (rc && sl_code_retryable(rc))
        return sl_err_copy(err, &why);
    json_t *header =
        rc ? json_pack("{s:o}", "error", sl_json_text(why.msg)) : json_incref(manifest.header);
    sl_my_manifest_fini(&manifest);
    if (!header || json_object_set_new(header, "label", json_string(label)) ||
        json_array_append_new(backups, header))
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    return 0;
}

static int gather(struct sl_my_repository *r, json_t *stanza, sl_deadline deadline,
                  struct sl_err *err)
{
    json_t *labels = NULL, *backups = json_array(), *streams = NULL, *binlogs = NULL, *label;
    size_t i;
    int rc = backups ? sl_my_labels(r->client, deadline, &labels, err)
                     : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    json_array_foreach(labels, i, label)
    {
        if (!rc)
            rc = add_backup(r, json_string_value(label), backups, deadline, err);
    }
    if (!rc)
        rc = sl_stream_list(r->client, deadline, &streams, err);
    if (!rc)
        rc = sl_my_archive_list(r->client, deadline, &binlogs, err);
    json_decref(labels);
    if (!rc &&
        (json_object_set(stanza, "backup", backups) | json_object_set(stanza, "stream", streams) |
         json_object_set(stanza, "binlog", binlogs)))
        rc = sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    json_decref(backups);
    json_decref(streams);
    json_decref(binlogs);
    return rc;
}

/* --- text --------------------------------------------------------------------------------------
 */

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static uint64_t number_at(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static void print_backup(const json_t *backup)
{
    char size[16], stored[16];
    const json_t *binlog = json_object_get(backup, "binlog");
    if (json_object_get(backup, "error")) {
        printf("\n    damaged backup: %s\n        %s\n", text_at(backup, "label"),
               text_at(backup, "error"));
        return;
    }
    printf("\n    %s backup: %s\n", text_at(backup, "type"), text_at(backup, "label"));
    printf("        timestamp start/stop: %s / %s\n", text_at(backup, "start_time"),
           text_at(backup, "stop_time"));
    printf("        by %s %s of %s\n", text_at(backup, "tool"), text_at(backup, "tool_version"),
           text_at(backup, "server_version"));
    if (*text_at(backup, "prior"))
        printf("        builds on %s, from lsn %" PRIu64 "\n", text_at(backup, "prior"),
               number_at(backup, "from_lsn"));
    printf("        lsn: %" PRIu64 "\n", number_at(backup, "to_lsn"));
    if (binlog)
        printf("        binlog: %s, position %" PRIu64 "%s%s\n", text_at(binlog, "file"),
               number_at(binlog, "position"), *text_at(binlog, "gtid") ? ", GTID " : "",
               text_at(binlog, "gtid"));
    printf("        %" PRIu64 " files, %s; in the repository: %s\n", number_at(backup, "files"),
           sl_bytes_text(number_at(backup, "bytes"), size, sizeof size),
           sl_bytes_text(number_at(backup, "stored_bytes"), stored, sizeof stored));
}

static void print_stanza(const json_t *stanza, const struct sl_stanza *s)
{
    size_t i;
    const json_t *one;
    const json_t *backups = json_object_get(stanza, "backup");
    printf("stanza: %s\n    status: %s\n", text_at(stanza, "name"),
           json_array_size(backups) ? "ok" : "no valid backups");
    for (uint32_t life = 0; life < s->life_count; life++)
        printf("    %s, server %s\n", s->lives[life].version, s->lives[life].id);
    json_array_foreach(backups, i, one) print_backup(one);
    sl_my_archive_print(json_object_get(stanza, "binlog"));
    sl_stream_print(json_object_get(stanza, "stream"));
}

int sl_my_info(struct sl_invocation *invocation, struct sl_err *err)
{
    sl_deadline deadline =
        sl_deadline_in_ms((uint64_t)sl_option_int(invocation->options, "timeout"));
    struct sl_my_repository *r = sl_calloc(1, sizeof *r);
    json_t *stanza = json_pack("{s:s,s:s}", "name", invocation->stanza, "engine", SL_MY_ENGINE);
    int rc = r && stanza ? sl_my_repository_open(invocation, false, deadline, r, err)
                         : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    if (!rc) {
        rc = gather(r, stanza, deadline, err);
        sl_my_repository_close(r);
    }
    if (!rc && !invocation->json)
        print_stanza(stanza, &r->stanza);
    if (!rc && json_object_set_new(invocation->result, "stanza", json_pack("[O]", stanza)))
        rc = sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    json_decref(stanza);
    sl_free(r);
    return rc;
}
