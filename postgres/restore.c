/* restore: the command. Order and parts are told in restore_internal.h. Into an empty folder only;
 * a delta restore comes later. */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/cli/backup_folder.h"
#include "postgres/commands.h"
#include "postgres/restore_internal.h"
#include "postgres/signals.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the manifest ------------------------------------------------------------------------------
 */

/* What was done already, so that after a lost session a second reading goes on where the first one
 * stopped: an object never changes. */
struct reading {
    struct sl_pg_restore *restore;
    sl_pg_visit_entry visit;
    void *arg;
    struct sl_err nested;              /* of a visit that ended a reading */
    uint64_t packs_done, entries_done; /* of all readings */
    uint64_t packs, entries;           /* of this one */
};

static int on_pack(void *arg, const struct sl_manifest_pack *pack)
{
    struct reading *reading = arg;
    if (reading->packs++ < reading->packs_done)
        return 0;
    reading->packs_done++;
    return !reading->restore->plan
               ? 0
               : sl_pg_plan_add_pack(reading->restore->plan, pack, &reading->nested);
}

static int on_entry(void *arg, const struct sl_manifest_entry *entry)
{
    struct reading *reading = arg;
    if (sl_pg_signals_caught())
        return sl_err_set(&reading->nested, SL_ERR_CANCELLED, "cancelled");
    if (reading->entries++ < reading->entries_done)
        return 0;
    reading->entries_done++;
    return reading->visit(reading->arg, entry, &reading->nested);
}

static int feed(struct sl_pg_restore *r, struct sl_download *download,
                struct sl_manifest_reader *reader, struct sl_err *err)
{
    for (;;) {
        uint32_t block;
        const uint8_t *bytes;
        size_t count;
        int rc = sl_download_next(download, &block, &bytes, &count, sl_pg_restore_deadline(r), err);
        if (rc > 0)
            rc = sl_manifest_feed(reader, bytes, count, err);
        else if (!rc)
            return sl_manifest_finish(reader, NULL, NULL, err);
        if (rc)
            return rc;
    }
}

static int read_once(struct sl_pg_restore *r, struct reading *reading, struct sl_err *err)
{
    char name[SL_NAME_MAX];
    const struct sl_manifest_visitor visitor = {.pack = on_pack, .entry = on_entry, .arg = reading};
    struct sl_download *download = NULL;
    struct sl_manifest_reader *reader = NULL;
    struct sl_object_info info;
    snprintf(name, sizeof name, "backup/%s/manifest", r->info.label);
    reading->packs = reading->entries = 0;
    reading->nested.code = 0;
    int rc = sl_download_open(r->repository.client, name, NULL, sl_pg_restore_deadline(r),
                              &download, &info, err);
    if (rc)
        return rc;
    rc = sl_manifest_reader_new(&visitor, &reader, err);
    if (!rc)
        rc = feed(r, download, reader, err);
    if (rc && reading->nested.code == rc)
        sl_err_copy(err, &reading->nested);
    sl_manifest_reader_free(reader);
    sl_download_close(download);
    return rc;
}

int sl_pg_restore_read(struct sl_pg_restore *r, sl_pg_visit_entry visit, void *arg,
                       struct sl_err *err)
{
    struct reading reading = {.restore = r, .visit = visit, .arg = arg};
    struct sl_pg_retry retry = {0};
    int rc;
    while ((rc = read_once(r, &reading, err)) && sl_pg_try_again(&retry, rc, r->step_ms))
        sl_log_err(SL_LOG_WARN, "postgres", err, "the manifest is read again");
    return rc;
}

/* Folders, links and empty files come to be, files are planned. */
static int take_entry(void *arg, const struct sl_manifest_entry *entry, struct sl_err *err)
{
    struct sl_pg_restore *r = arg;
    int rc = sl_pg_manifest_entry(r, entry, err);
    return rc ? rc : sl_pg_restore_entry(r, entry, err);
}

static int read_manifest(struct sl_pg_restore *r, struct sl_err *err)
{
    int rc = sl_pg_restore_read(r, take_entry, r, err);
    if (!rc)
        rc = sl_pg_restore_map_end(r, err);
    if (!rc)
        rc = sl_pg_delta_end(r, err);
    return rc ? rc : sl_pg_plan_end(r->plan, err);
}

/* --- the command -------------------------------------------------------------------------------
 */

static int check_options(struct sl_pg_restore *r, struct sl_err *err)
{
    const struct sl_options *options = r->invocation->options;
    const char *folder = sl_option_string(options, "datadir");
    r->data_folder = folder ? folder : sl_option_string(options, "pg-path");
    if (!r->data_folder)
        return sl_err_set(err, SL_ERR_USAGE, "--datadir (or pg-path) is needed");
    SL_CLEANUP_FREE char *command = NULL; /* what is wrong with it shows now and not at the end */
    int rc = sl_pg_restore_command(r->invocation, &command, err);
    if (!rc)
        rc = sl_pg_restore_map_read(r, err);
    return rc ? rc : sl_pg_target_parse(options, &r->target, err);
}

/* Is it the folder on the host that the backup was taken from? */
static bool same_place(const struct sl_pg_restore *r, const char **ret_why)
{
    char host[65] = "", there[PATH_MAX], here[PATH_MAX];
    gethostname(host, sizeof host - 1);
    const char *old_host = json_string_value(json_object_get(r->info.json, "host"));
    const char *old_path = json_string_value(json_object_get(r->info.json, "data_directory"));
    if (!old_host || strcmp(host, old_host) != 0)
        return *ret_why = "it is another host than the backup's", false;
    if (!old_path || !realpath(old_path, there) || !realpath(r->data_folder, here) ||
        strcmp(there, here) != 0)
        return *ret_why = "it is another folder than the backup's", false;
    return true;
}

/* A clone that archives puts its history and segments into the stanza of the server that it was
 * made from; whoever wants that has to say so. */
static void choose_archive_mode(struct sl_pg_restore *r)
{
    const char *mode = sl_option_string(r->invocation->options, "archive-mode");
    r->archive_why = "";
    if (mode) {
        r->archive_off = !strcmp(mode, "off");
        return;
    }
    r->archive_off = true;
    if (sl_pg_target_is_set(&r->target))
        r->archive_why = "it stops before the end of WAL";
    else if (same_place(r, &r->archive_why))
        r->archive_off = false;
}

static void announce(const struct sl_pg_restore *r, bool dry)
{
    json_t *out = r->invocation->result;
    const struct sl_pg_target *t = &r->target;
    if (dry)
        json_object_set_new(out, "dry_run", json_true());
    json_object_set_new(out, "label", json_string(r->info.label));
    json_object_set_new(out, "type", json_string(sl_pg_target_kind_text(t->kind)));
    json_object_set_new(out, "target_timeline", json_string(t->timeline));
    json_object_set_new(out, "archive_mode", json_string(r->archive_off ? "off" : "preserve"));
    if (t->text)
        json_object_set_new(out, "target", sl_json_text(t->text));
    if (t->kind == SL_PG_TO_TIME && !t->time.zone_given)
        sl_log(SL_LOG_WARN, "postgres", "--target-time has no zone: it is taken as %s", t->text);
    if (r->invocation->json)
        return;
    printf("%s backup %s (%s to %s) into %s\n", dry ? "would restore" : "restoring", r->info.label,
           r->info.start_time, r->info.stop_time, r->data_folder);
    if (sl_pg_target_is_set(t))
        printf("recovery target: %s%s%s%s, timeline %s, then %s\n", sl_pg_target_kind_text(t->kind),
               t->text ? " " : "", t->text ? t->text : "", t->exclusive ? " (exclusive)" : "",
               t->timeline, t->action);
    if (r->archive_off && *r->archive_why)
        printf("archive_mode = off, because %s; --archive-mode=preserve leaves it as it was\n",
               r->archive_why);
    fflush(stdout);
}

static int fill(struct sl_pg_restore *r, struct sl_err *err)
{
    unsigned jobs = sl_pg_jobs(r->invocation);
    sl_progress_total(r->invocation->progress, r->info.bytes, r->info.files);
    int rc = sl_pg_plan_new(&r->plan, err);
    if (!rc)
        rc = sl_pg_manifest_begin(r, err);
    if (!rc)
        rc = read_manifest(r, err);
    if (!rc)
        rc = sl_pg_manifest_end(r, err);
    if (!rc)
        rc = sl_pg_delta_compare(r, jobs, err);
    if (!rc)
        rc = sl_pg_restore_fill(r, jobs, err);
    if (!rc)
        rc = sl_pg_restore_wal(r, err);
    if (!rc)
        rc = sl_pg_restore_finish(r, jobs, err);
    if (rc && err && !err->hint[0] && r->delta)
        sl_err_hint(err,
                    "\"%s\" is incomplete and no server can start there: restore --delta again",
                    r->data_folder);
    else if (rc && err && !err->hint[0])
        sl_err_hint(err,
                    "\"%s\" is incomplete and no server can start there: empty it (and the folders "
                    "of its tablespaces) and restore again",
                    r->data_folder);
    return rc;
}

/* Config files that were not in the data directory: where they are now. */
static void report_config(const struct sl_pg_restore *r)
{
    size_t i;
    json_t *one, *list = json_object_get(r->info.json, "config_files");
    json_t *told = json_array();
    json_array_foreach(list, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));
        const char *path = json_string_value(json_object_get(one, "path"));
        const char *stored = json_string_value(json_object_get(one, "stored"));
        if (!name || !path || !stored)
            continue;
        if (!r->invocation->json)
            printf("%s %s of the backed up server is now %s/%s\n", name, path, r->data_folder,
                   stored);
        json_array_append(told, one);
    }
    if (json_array_size(told) && !r->invocation->json)
        printf("the restored server does not use them: copy what it needs to \"%s\"\n",
               r->data_folder);
    json_object_set_new(r->invocation->result, "config_files", told);
}

static void report(const struct sl_pg_restore *r)
{
    char summary[256];
    struct sl_progress *progress = r->invocation->progress;
    sl_progress_done(progress);
    sl_progress_summary(progress, summary, sizeof summary);
    if (!r->invocation->json) {
        printf("restore complete: %llu files", (unsigned long long)atomic_load(&r->files));
        if (r->delta)
            printf(", %llu of them were as they should be",
                   (unsigned long long)atomic_load(&r->kept));
        printf("\n%s\n", summary);
        report_config(r);
        return;
    }
    json_t *out = r->invocation->result;
    json_object_set_new(out, "datadir", json_string(r->data_folder));
    json_object_set_new(out, "files", json_integer((json_int_t)atomic_load(&r->files)));
    json_object_set_new(out, "bytes", json_integer((json_int_t)atomic_load(&r->bytes)));
    if (r->delta)
        json_object_set_new(out, "kept", json_integer((json_int_t)atomic_load(&r->kept)));
    report_config(r);
    json_object_set_new(out, "progress", sl_progress_report(progress));
}

static void release(struct sl_pg_restore *r)
{
    sl_pg_plan_free(r->plan);
    sl_pg_manifest_free(r);
    sl_pg_delta_free(r);
    if (r->lease[0])
        sl_lease_end(r->repository.client, r->lease, sl_pg_restore_deadline(r));
    sl_pg_repository_close(&r->repository);
    sl_pg_backup_info_fini(&r->info);
    if (r->root_fd >= 0)
        close(r->root_fd);
    sl_free(r->control.extents);
    sl_free(r->map_used);
    pthread_mutex_destroy(&r->lock);
    sl_free(r);
}

int sl_pg_restore(struct sl_invocation *invocation, struct sl_err *err)
{
    sl_pg_signals_install(sl_code_exit(SL_ERR_CANCELLED), 0);
    struct sl_pg_restore *r = sl_calloc(1, sizeof *r);
    if (!r)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    r->invocation = invocation;
    r->root_fd = -1;
    r->as_root = geteuid() == 0;
    r->step_ms = (uint64_t)sl_option_int(invocation->options, "timeout");
    pthread_mutex_init(&r->lock, NULL);
    int rc = check_options(r, err);
    if (!rc)
        rc = sl_pg_repository_open(invocation, false, false, sl_pg_restore_deadline(r),
                                   &r->repository, err);
    struct sl_pg_retry retry = {0};
    if (!rc)
        while ((rc = sl_pg_restore_choose(r, err)) && sl_pg_try_again(&retry, rc, r->step_ms))
            sl_pg_backup_info_fini(&r->info);
    bool dry = !rc && sl_option_bool(invocation->options, "dry-run");
    if (!rc && !dry)
        rc = sl_pg_restore_lease(r, err);
    if (!rc && !dry)
        rc = sl_pg_restore_claim(r, err);
    if (!rc) {
        choose_archive_mode(r);
        announce(r, dry);
    }
    if (!rc && dry)
        rc = sl_pg_restore_dry(r, err);
    else if (!rc && !(rc = fill(r, err)))
        report(r);
    release(r);
    return rc;
}
