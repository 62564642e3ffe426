/* What a manifest's header says of a backup: its JSON, read. Pure; the manifest is fetched by
 * catalog.c. */
#include "core/base/json.h"
#include "postgres/catalog.h"
#include "postgres/repository.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sl_pg_backup_info_fini(struct sl_pg_backup_info *info)
{
    json_decref(info->json);
    info->json = NULL;
}

static void text_of(const json_t *json, const char *key, char *to, size_t room)
{
    const char *text = json_string_value(json_object_get(json, key));
    snprintf(to, room, "%s", text ? text : "");
}

static uint64_t number_of(const json_t *json, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(json, key));
    return value > 0 ? (uint64_t)value : 0;
}

static uint64_t lsn_of(const json_t *json, const char *key)
{
    char text[SL_PG_LSN_BYTES];
    uint64_t lsn = 0;
    text_of(json, key, text, sizeof text);
    sl_pg_lsn_parse(text, &lsn, NULL);
    return lsn;
}

int sl_pg_backup_info_parse(const char *label, const char *json, struct sl_pg_backup_info *info,
                            struct sl_err *err)
{
    struct sl_pg_backup_info i = {0};
    char id[32];
    json_error_t at = {0};
    json_t *root = sl_json_load(json, strlen(json), &at);
    if (!root && json_error_code(&at) == json_error_out_of_memory)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for backup \"%s\"", label);
    const char *engine = json_string_value(json_object_get(root, "engine"));
    json_int_t version = json_integer_value(json_object_get(root, "version"));
    if (!engine || strcmp(engine, SL_PG_ENGINE) || version != 1) {
        json_decref(root);
        return sl_err_set(err, SL_ERR_FORMAT,
                          "backup \"%s\" is not one of PostgreSQL in a form known here", label);
    }
    snprintf(i.label, sizeof i.label, "%s", label);
    text_of(root, "type", i.type, sizeof i.type);
    text_of(root, "system_id", id, sizeof id);
    i.system_id = strtoull(id, NULL, 10);
    i.timeline = (uint32_t)number_of(root, "timeline");
    i.wal_segment_bytes = (uint32_t)number_of(root, "wal_segment_size");
    i.start_lsn = lsn_of(root, "start_lsn");
    i.stop_lsn = lsn_of(root, "stop_lsn");
    i.start_epoch = json_number_value(json_object_get(root, "start_epoch"));
    i.stop_epoch = json_number_value(json_object_get(root, "stop_epoch"));
    text_of(root, "start_time", i.start_time, sizeof i.start_time);
    text_of(root, "stop_time", i.stop_time, sizeof i.stop_time);
    text_of(root, "start_wal", i.start_wal, sizeof i.start_wal);
    text_of(root, "stop_wal", i.stop_wal, sizeof i.stop_wal);
    text_of(root, "pg_version", i.pg_version, sizeof i.pg_version);
    i.files = number_of(root, "files");
    i.bytes = number_of(root, "bytes");
    i.stored_bytes = number_of(root, "stored_bytes");
    i.json = root;
    *info = i;
    return 0;
}
