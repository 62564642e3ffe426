/* restore --dry-run: the plan, the space, the WAL with its gaps. Nothing is written; what would
 * make the restore fail is the result, all of it is listed. */
#include "core/base/alloc.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "postgres/cluster_rules.h"
#include "postgres/data_folder.h"
#include "postgres/restore_internal.h"
#include "postgres/wal_archive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

struct dry {
    struct sl_pg_restore *restore;
    json_t *places;   /* oid ("": the data directory) → {"path", "bytes", "files"} */
    json_t *wal;      /* ranges from the backup's start on */
    json_t *problems; /* texts */
    struct sl_err first;
};

static void problem(struct dry *dry, const struct sl_err *err)
{
    json_array_append_new(dry->problems, sl_json_text(err->msg));
    if (!dry->restore->invocation->json)
        printf("PROBLEM: %s\n", err->msg);
    if (!dry->first.code)
        dry->first = *err;
}

/* --- space -------------------------------------------------------------------------------------
 */

static json_t *place_of(struct dry *dry, const char *oid, const char *path)
{
    json_t *place = json_object_get(dry->places, oid);
    if (!place) {
        place = json_pack("{s:o,s:i,s:i}", "path", sl_json_text(path), "bytes", 0, "files", 0);
        json_object_set_new(dry->places, oid, place);
    }
    return place;
}

static int visit(void *arg, const struct sl_manifest_entry *entry, struct sl_err *err)
{
    struct dry *dry = arg;
    struct sl_pg_restore *r = dry->restore;
    char oid[16] = "";
    if (entry->kind == SL_ENTRY_LINK && sl_pg_is_tablespace(entry->path)) {
        const char *path = sl_pg_restore_tablespace(r, entry->path, entry->link);
        struct sl_err stands = {0};
        place_of(dry, strrchr(entry->path, '/') + 1, path);
        if (sl_pg_restore_may_lead(r, entry->path, path, &stands))
            problem(dry, &stands);
        return 0;
    }
    if (entry->kind != SL_ENTRY_FILE)
        return 0;
    if (!strncmp(entry->path, "pg_tblspc/", 10))
        snprintf(oid, sizeof oid, "%.*s", (int)strcspn(entry->path + 10, "/"), entry->path + 10);
    json_t *place = json_object_get(dry->places, oid);
    if (!place)
        return sl_err_set(err, SL_ERR_FORMAT, "\"%s\" is in no tablespace", entry->path);
    json_int_t bytes = json_integer_value(json_object_get(place, "bytes"));
    json_int_t files = json_integer_value(json_object_get(place, "files"));
    json_object_set_new(place, "bytes", json_integer(bytes + (json_int_t)entry->size));
    json_object_set_new(place, "files", json_integer(files + 1));
    return 0;
}

/* Of the nearest folder above that exists. */
static bool free_space(const char *path, uint64_t *ret_free)
{
    struct statvfs vfs;
    SL_CLEANUP_FREE char *at = sl_strdup(path);
    while (at && statvfs(at, &vfs)) {
        char *slash = strrchr(at, '/');
        if (!slash)
            return false;
        if (slash == at)
            slash++;
        if (!*slash)
            return false;
        *slash = '\0';
    }
    if (!at)
        return false;
    *ret_free = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    return true;
}

static void show_places(struct dry *dry)
{
    const char *oid;
    json_t *place;
    bool delta = sl_option_bool(dry->restore->invocation->options, "delta");
    json_object_foreach(dry->places, oid, place)
    {
        char need_text[32], free_text[32];
        uint64_t space = 0, need = (uint64_t)json_integer_value(json_object_get(place, "bytes"));
        const char *path = json_string_value(json_object_get(place, "path"));
        bool known = free_space(*oid ? path : dry->restore->data_folder, &space);
        sl_bytes_text(need, need_text, sizeof need_text);
        sl_bytes_text(space, free_text, sizeof free_text);
        json_object_set_new(place, "free", known ? json_integer((json_int_t)space) : json_null());
        if (!dry->restore->invocation->json)
            printf("%s%s%s: %lld files, %s; free: %s\n", *oid ? "tablespace " : "", oid,
                   *oid ? "" : "data directory",
                   (long long)json_integer_value(json_object_get(place, "files")), need_text,
                   known ? free_text : "not known");
        if (!dry->restore->invocation->json)
            printf("    %s\n", path);
        struct sl_err err = {0};
        if (!known || delta || need <= space)
            continue;
        sl_err_set(&err, SL_ERR_FULL, "\"%s\" has %s free, %s are needed", path, free_text,
                   need_text);
        problem(dry, &err);
    }
}

/* --- WAL ---------------------------------------------------------------------------------------
 */

static int add_range(void *arg, const struct sl_pg_wal_range *range)
{
    struct dry *dry = arg;
    const struct sl_pg_backup_info *info = &dry->restore->info;
    /* names of one timeline sort as their places do */
    if (range->timeline < info->timeline || strcmp(range->last + 8, info->start_wal + 8) < 0)
        return 0;
    json_array_append_new(dry->wal, json_pack("{s:i,s:s,s:s}", "timeline", (int)range->timeline,
                                              "first", range->first, "last", range->last));
    return 0;
}

static const char *text_at(const json_t *range, const char *key)
{
    return json_string_value(json_object_get(range, key));
}

/* A backup without all of its own WAL is lost; a gap after it ends what can be recovered. */
static void judge_wal(struct dry *dry)
{
    const struct sl_pg_backup_info *info = &dry->restore->info;
    struct sl_err err = {0};
    size_t i;
    json_t *range, *before = NULL;
    bool covered = false;
    json_array_foreach(dry->wal, i, range)
    {
        bool same = json_integer_value(json_object_get(range, "timeline")) == info->timeline;
        if (same && strcmp(text_at(range, "first"), info->start_wal) <= 0 &&
            strcmp(text_at(range, "last"), info->stop_wal) >= 0)
            covered = true;
        if (!dry->restore->invocation->json)
            printf("WAL: %s to %s\n",
                   same && strcmp(text_at(range, "first"), info->start_wal) < 0
                       ? info->start_wal
                       : text_at(range, "first"),
                   text_at(range, "last"));
        if (before &&
            json_equal(json_object_get(before, "timeline"), json_object_get(range, "timeline"))) {
            sl_err_set(&err, SL_ERR_GAP, "WAL is missing between %s and %s: recovery stops there",
                       text_at(before, "last"), text_at(range, "first"));
            problem(dry, &err);
        }
        before = range;
    }
    if (covered)
        return;
    sl_err_set(&err, SL_ERR_GAP, "the WAL that the backup needs, %s to %s, is not all there",
               info->start_wal, info->stop_wal);
    problem(dry, &err);
}

/* --- the whole ---------------------------------------------------------------------------------
 */

static int look(struct dry *dry, struct sl_err *err)
{
    struct sl_pg_restore *r = dry->restore;
    struct sl_err found = {0};
    long pid = sl_pg_postmaster(r->data_folder);
    bool delta = sl_option_bool(r->invocation->options, "delta") &&
                 !sl_pg_restore_is_free(r->data_folder, NULL);
    if (pid) {
        sl_err_set(&found, SL_ERR_PG_RUNNING, "a server (process %ld) is running in \"%s\"", pid,
                   r->data_folder);
        problem(dry, &found);
    } else if (delta && sl_pg_delta_check(r, &found)) {
        problem(dry, &found);
    } else if (!delta) {
        int rc = sl_pg_restore_is_free(r->data_folder, &found);
        if (!rc)
            sl_err_set(&found, SL_ERR_NOT_EMPTY, "folder \"%s\" is not empty", r->data_folder);
        if (rc != 1)
            problem(dry, &found);
    }
    place_of(dry, "", r->data_folder);
    int rc = sl_pg_restore_read(r, visit, dry, err);
    if (!rc)
        rc = sl_pg_restore_map_end(r, err);
    if (rc)
        return rc;
    show_places(dry);
    rc = sl_pg_wal_ranges(r->repository.client, r->info.system_id, r->info.wal_segment_bytes,
                          add_range, dry, sl_pg_restore_deadline(r), err);
    if (!rc)
        judge_wal(dry);
    return rc;
}

int sl_pg_restore_dry(struct sl_pg_restore *r, struct sl_err *err)
{
    struct dry dry = {
        .restore = r, .places = json_object(), .wal = json_array(), .problems = json_array()};
    int rc = look(&dry, err);
    json_object_set_new(r->invocation->result, "places", dry.places);
    json_object_set_new(r->invocation->result, "wal", dry.wal);
    json_object_set_new(r->invocation->result, "problems", dry.problems);
    if (rc || !dry.first.code)
        return rc;
    sl_err_copy(err, &dry.first);
    return dry.first.code;
}
