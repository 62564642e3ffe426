/* info: what the repository holds of a stanza. JSON follows pgBackRest's where the meaning is the
 * same (status codes: 0 ok, 1 no stanza, 2 no backup, 99 other). Reads no more than listings and
 * manifests' headers; verify reads everything. */
#include "core/base/alloc.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/cli/backup_folder.h"
#include "core/cli/stream.h"
#include "postgres/catalog.h"
#include "postgres/commands.h"
#include "postgres/repository.h"
#include "postgres/signals.h"
#include "postgres/wal_archive.h"

#include <stdio.h>
#include <string.h>

#define WHOLE_MS (3600u * 1000) /* for everything; each question has --timeout besides */

enum status { STATUS_OK = 0, STATUS_NO_STANZA = 1, STATUS_NO_BACKUP = 2, STATUS_OTHER = 99 };

static const char *status_text(int status)
{
    switch (status) {
    case STATUS_OK:
        return "ok";
    case STATUS_NO_STANZA:
        return "missing stanza";
    case STATUS_NO_BACKUP:
        return "no valid backups";
    default:
        return "other";
    }
}

struct listing {
    const struct sl_invocation *invocation;
    struct sl_client *client;
    json_t *backups, *archives; /* arrays; borrowed */
    json_t *streams;            /* array, owned; NULL: not asked for */
    uint64_t system_id;         /* of the archive being listed */
    int broken;
};

/* --- gathering ---------------------------------------------------------------------------------
 */

static json_t *lsn(uint64_t value)
{
    char text[SL_PG_LSN_BYTES];
    return json_string(sl_pg_lsn_text(value, text));
}

static int add_keep(struct listing *l, const char *label, json_t *one)
{
    static const char *const texts[] = {
        [SL_KEEP_PITR] = "pitr", [SL_KEEP_STANDALONE] = "standalone"};
    struct sl_folder folder;
    int rc = sl_folder_read(l->client, label, sl_target_wall_ns(l->client),
                            sl_deadline_in_ms(WHOLE_MS), &folder, NULL);
    if (!rc && folder.keep)
        json_object_set_new(one, "keep", json_string(texts[folder.keep]));
    return rc;
}

static int add_backup(void *arg, const struct sl_pg_backup_info *info)
{
    struct listing *l = arg;
    const char *set = sl_option_string(l->invocation->options, "set");
    if (set && strcmp(set, info->label) != 0)
        return 0;
    char id[32];
    snprintf(id, sizeof id, "%llu", (unsigned long long)info->system_id);
    json_t *one = json_pack(
        "{s:s,s:s,s:s,s:s,s:i,s:{s:I,s:I,s:s,s:s},s:{s:o,s:o},s:{s:s,s:s},s:{s:I,s:I,s:{s:I}}}",
        "label", info->label, "type", info->type, "system-id", id, "pg-version", info->pg_version,
        "timeline", (int)info->timeline, "timestamp", "start", (json_int_t)info->start_epoch,
        "stop", (json_int_t)info->stop_epoch, "start-text", info->start_time, "stop-text",
        info->stop_time, "lsn", "start", lsn(info->start_lsn), "stop", lsn(info->stop_lsn),
        "archive", "start", info->start_wal, "stop", info->stop_wal, "info", "files",
        (json_int_t)info->files, "size", (json_int_t)info->bytes, "repository", "size",
        (json_int_t)info->stored_bytes);
    json_int_t ms = (json_int_t)((info->stop_epoch - info->start_epoch) * 1000);
    json_object_set(one, "prior", json_object_get(info->json, "prior"));
    json_object_set(one, "reference", json_object_get(info->json, "references"));
    json_object_set(json_object_get(one, "info"), "delta",
                    json_object_get(info->json, "delta_bytes"));
    if (ms > 0)
        json_object_set_new(json_object_get(one, "info"), "bytes-per-second",
                            json_integer((json_int_t)info->bytes / ms * 1000));
    int rc = add_keep(l, info->label, one);
    if (rc)
        return rc;
    json_object_set(one, "resumed", json_object_get(info->json, "resumed"));
    json_object_set(one, "annotation", json_object_get(info->json, "annotations"));
    json_object_set(one, "pages", json_object_get(info->json, "pages"));
    if (set) {
        json_object_set(one, "tablespace", json_object_get(info->json, "tablespaces"));
        json_object_set(one, "data-directory", json_object_get(info->json, "data_directory"));
        json_object_set(one, "host", json_object_get(info->json, "host"));
    }
    return json_array_append_new(l->backups, one) ? SL_ERR_NO_MEMORY : 0;
}

static void add_broken(void *arg, const char *label, const struct sl_err *err)
{
    struct listing *l = arg;
    l->broken++;
    json_array_append_new(l->backups,
                          json_pack("{s:s,s:o}", "label", label, "error", sl_json_text(err->msg)));
}

/* Ranges of one timeline are joined into one archive entry; what is between them are gaps. */
static int add_range(void *arg, const struct sl_pg_wal_range *range)
{
    struct listing *l = arg;
    size_t count = json_array_size(l->archives);
    json_t *last = count ? json_array_get(l->archives, count - 1) : NULL;
    char id[32];
    snprintf(id, sizeof id, "%llu", (unsigned long long)l->system_id);
    bool continues = last &&
                     json_integer_value(json_object_get(last, "timeline")) == range->timeline &&
                     !strcmp(json_string_value(json_object_get(last, "system-id")), id);
    if (!continues) {
        json_t *one = json_pack("{s:s,s:i,s:s,s:s,s:I,s:[]}", "system-id", id, "timeline",
                                (int)range->timeline, "min", range->first, "max", range->last,
                                "count", (json_int_t)range->count, "gaps");
        return json_array_append_new(l->archives, one) ? SL_ERR_NO_MEMORY : 0;
    }
    json_t *gap =
        json_pack("{s:O,s:s}", "after", json_object_get(last, "max"), "before", range->first);
    json_array_append_new(json_object_get(last, "gaps"), gap);
    json_int_t before = json_integer_value(json_object_get(last, "count"));
    json_object_set_new(last, "count", json_integer(before + (json_int_t)range->count));
    return json_object_set_new(last, "max", json_string(range->last)) ? SL_ERR_NO_MEMORY : 0;
}

static int gather(struct listing *l, struct sl_pg_repository *repository, struct sl_err *err)
{
    sl_deadline deadline = sl_deadline_in_ms(WHOLE_MS);
    const struct sl_pg_catalog_visitor visitor = {add_backup, add_broken, l};
    int rc = sl_pg_catalog_visit(repository->client, &visitor, deadline, err);
    for (uint32_t i = 0; !rc && i < repository->stanza.life_count; i++) {
        l->system_id = strtoull(repository->stanza.lives[i].id, NULL, 10);
        rc = sl_pg_wal_ranges(repository->client, l->system_id, 0, add_range, l, deadline, err);
    }
    return rc ? rc : sl_stream_list(repository->client, deadline, &l->streams, err);
}

static json_t *lives(const struct sl_stanza *stanza)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < stanza->life_count; i++)
        json_array_append_new(array, json_pack("{s:s,s:s}", "system-id", stanza->lives[i].id,
                                               "version", stanza->lives[i].version));
    return array;
}

static json_t *describe(const struct sl_invocation *invocation,
                        const struct sl_pg_repository *repository, json_t *backups,
                        json_t *archives, int status)
{
    return json_pack("{s:s,s:s,s:{s:i,s:s},s:o,s:o,s:o}", "name", invocation->stanza, "engine",
                     SL_PG_ENGINE, "status", "code", status, "message", status_text(status), "db",
                     lives(&repository->stanza), "archive", archives, "backup", backups);
}

/* --- text --------------------------------------------------------------------------------------
 */

static const char *text_at(const json_t *object, const char *key, const char *inner)
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(inner ? json_object_get(value, inner) : value);
    return text ? text : "";
}

static uint64_t number_at(const json_t *object, const char *key, const char *inner)
{
    const json_t *value = json_object_get(object, key);
    return (uint64_t)json_integer_value(inner ? json_object_get(value, inner) : value);
}

static void print_archive(const json_t *archive)
{
    size_t i;
    const json_t *gap;
    printf("    wal archive (%s, timeline %llu): %s to %s, %llu segments\n",
           text_at(archive, "system-id", NULL),
           (unsigned long long)number_at(archive, "timeline", NULL), text_at(archive, "min", NULL),
           text_at(archive, "max", NULL), (unsigned long long)number_at(archive, "count", NULL));
    json_array_foreach(json_object_get(archive, "gaps"), i, gap)
        printf("        GAP: nothing between %s and %s\n", text_at(gap, "after", NULL),
               text_at(gap, "before", NULL));
}

static void print_pages(const json_t *pages)
{
    size_t i;
    const json_t *one;
    uint64_t bad = number_at(pages, "bad", NULL);
    if (bad)
        printf("        DAMAGED PAGES: %llu\n", (unsigned long long)bad);
    json_array_foreach(json_object_get(pages, "list"), i, one)
        printf("            %s block %llu\n", text_at(one, "file", NULL),
               (unsigned long long)number_at(one, "block", NULL));
}

static void print_backup(const json_t *backup)
{
    char size[32], stored[32], delta[32], rate[32];
    if (json_object_get(backup, "error")) {
        printf("\n    damaged backup: %s\n        %s\n", text_at(backup, "label", NULL),
               text_at(backup, "error", NULL));
        return;
    }
    const json_t *info = json_object_get(backup, "info");
    sl_bytes_text(number_at(info, "size", NULL), size, sizeof size);
    sl_bytes_text(number_at(info, "repository", "size"), stored, sizeof stored);
    printf("\n    %s backup: %s\n", text_at(backup, "type", NULL), text_at(backup, "label", NULL));
    printf("        timestamp start/stop: %s / %s\n", text_at(backup, "timestamp", "start-text"),
           text_at(backup, "timestamp", "stop-text"));
    printf("        lsn start/stop: %s / %s\n", text_at(backup, "lsn", "start"),
           text_at(backup, "lsn", "stop"));
    printf("        wal start/stop: %s / %s\n", text_at(backup, "archive", "start"),
           text_at(backup, "archive", "stop"));
    sl_bytes_text(number_at(info, "delta", NULL), delta, sizeof delta);
    printf("        %llu files, %s", (unsigned long long)number_at(info, "files", NULL), size);
    if (number_at(info, "bytes-per-second", NULL))
        printf(" at %s/s",
               sl_bytes_text(number_at(info, "bytes-per-second", NULL), rate, sizeof rate));
    printf("; changed: %s; in the repository: %s\n", delta, stored);
    if (json_object_get(backup, "prior"))
        printf("        builds on: %s\n", text_at(backup, "prior", NULL));
    if (json_object_get(backup, "resumed"))
        printf("        broken off and resumed: attempt %llu, %s from those before\n",
               (unsigned long long)number_at(backup, "resumed", "attempt"),
               sl_bytes_text(number_at(json_object_get(backup, "resumed"), "bytes", NULL), rate,
                             sizeof rate));
    if (json_object_get(backup, "keep"))
        printf("        kept until unkeep (WAL: %s)\n", text_at(backup, "keep", NULL));
    print_pages(json_object_get(backup, "pages"));
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(backup, "annotation"), key, value)
        printf("        annotation %s: %s\n", key, json_string_value(value));
}

static void print_stanza(const json_t *stanza)
{
    size_t i;
    const json_t *one;
    printf("stanza: %s\n    status: %s\n", text_at(stanza, "name", NULL),
           text_at(stanza, "status", "message"));
    json_array_foreach(json_object_get(stanza, "db"), i, one)
        printf("    PostgreSQL %s, system identifier %s\n", text_at(one, "version", NULL),
               text_at(one, "system-id", NULL));
    json_array_foreach(json_object_get(stanza, "archive"), i, one) print_archive(one);
    json_array_foreach(json_object_get(stanza, "backup"), i, one) print_backup(one);
    sl_stream_print(json_object_get(stanza, "stream"));
}

/* --- the command -------------------------------------------------------------------------------
 */

static int show(struct sl_invocation *invocation, struct sl_pg_repository *repository, int status,
                struct sl_err *err)
{
    struct listing l = {.invocation = invocation,
                        .client = repository->client,
                        .backups = json_array(),
                        .archives = json_array()};
    int rc = l.backups && l.archives ? 0 : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    if (!rc && status == STATUS_OK)
        rc = gather(&l, repository, err);
    if (rc) {
        json_decref(l.backups);
        json_decref(l.archives);
        json_decref(l.streams);
        return rc;
    }
    if (status == STATUS_OK && !json_array_size(l.backups))
        status = STATUS_NO_BACKUP;
    if (l.broken)
        status = STATUS_OTHER;
    json_t *stanza = describe(invocation, repository, l.backups, l.archives, status);
    if (!stanza)
        json_decref(l.streams);
    if (!stanza || (l.streams && json_object_set_new(stanza, "stream", l.streams)))
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    if (!invocation->json)
        print_stanza(stanza);
    json_object_set_new(invocation->result, "stanza", json_pack("[o]", stanza));
    return 0;
}

int sl_pg_info(struct sl_invocation *invocation, struct sl_err *err)
{
    sl_pg_signals_install(sl_code_exit(SL_ERR_CANCELLED), 0);
    struct sl_pg_repository repository = {0};
    sl_deadline deadline =
        sl_deadline_in_ms((uint64_t)sl_option_int(invocation->options, "timeout"));
    struct sl_connection *connection = NULL;
    const struct sl_connect_options options = {.stanza = invocation->stanza};
    int rc = sl_connection_open(invocation, &options, deadline, &connection, err);
    if (rc)
        return rc;
    repository.connection = connection;
    repository.client = sl_connection_client(connection);
    sl_pg_signals_client(repository.client);
    rc = sl_pg_repository_stanza(&repository, deadline, err);
    if (rc >= 0)
        rc = show(invocation, &repository, rc ? STATUS_OK : STATUS_NO_STANZA, err);
    sl_pg_repository_close(&repository);
    return rc;
}
