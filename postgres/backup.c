/* backup: the command. Order and parts are told in backup_internal.h. */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/log.h"
#include "postgres/backup_internal.h"
#include "postgres/commands.h"
#include "postgres/signals.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Read as late as may be: recovery starts from what it says, and its LSNs must not be older than
 * the pages (basebackup.c sends it last, too). */
static int read_control(struct sl_pg_backup *b, uint8_t bytes[SL_PG_CONTROL_BYTES],
                        struct sl_pg_item *item, struct sl_err *err)
{
    struct stat st;
    int rc = sl_pg_control_read(b->data_folder, sl_pg_backup_deadline(b), bytes, &b->control, err);
    if (rc)
        return rc;
    if (fstatat(b->root_fd, "global/pg_control", &st, 0))
        st = (struct stat){.st_mode = 0600, .st_uid = geteuid(), .st_gid = getegid()};
    item->kind = SL_ENTRY_FILE;
    item->mode = st.st_mode & 07777;
    item->uid = st.st_uid;
    item->gid = st.st_gid;
    item->mtime_ns = (uint64_t)st.st_mtim.tv_sec * SL_NS_PER_S;
    return 0;
}

/* pg_control was read before the stop, backup_label is known after it; both go into a last pack. */
static int finish_files(struct sl_pg_backup *b, struct sl_err *err)
{
    uint8_t control[SL_PG_CONTROL_BYTES];
    struct sl_pg_item *like = sl_calloc(1, sizeof *like);
    struct sl_fragment *fragment = NULL;
    int rc = like ? read_control(b, control, like, err)
                  : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    if (!rc)
        rc = sl_pg_backup_stop(b, err);
    if (!rc)
        rc = sl_fragment_new(NULL, &fragment, err);
    if (!rc) {
        b->fragments[b->fragment_count++] = fragment;
        struct sl_pg_memory_file files[3 + SL_PG_CONFIG_MAX] = {
            {"backup_label", b->backup_label, strlen(b->backup_label)},
            {"global/pg_control", control, sizeof control},
        };
        size_t count = 2;
        if (b->config_count)
            files[count++] = (struct sl_pg_memory_file){SL_PG_CONFIG_FOLDER, NULL, 0};
        for (size_t i = 0; i < b->config_count; i++)
            files[count++] = (struct sl_pg_memory_file){b->config[i].stored, b->config[i].bytes,
                                                        b->config[i].count};
        rc = sl_pg_packer_memory(b, fragment, files, count, like, err);
    }
    sl_free(like);
    return rc;
}

static int take(struct sl_pg_backup *b, struct sl_err *err)
{
    int rc = sl_pg_incr_choose(b, err);
    if (!rc)
        rc = sl_pg_backup_open(b, err);
    if (!rc)
        rc = sl_pg_incr_load(b, err);
    if (!rc)
        rc = sl_pg_resume_load(b, err);
    if (!rc)
        rc = sl_pg_backup_start(b, err);
    if (!rc)
        rc = sl_pg_incr_summary(b, err);
    if (!rc)
        rc = sl_pg_backup_files(b, sl_pg_jobs(b->invocation), err);
    if (!rc)
        rc = finish_files(b, err);
    if (!rc)
        rc = sl_pg_backup_wal(b, err);
    if (!rc)
        rc = sl_pg_backup_publish(b, err);
    return rc;
}

static void report(const struct sl_pg_backup *b)
{
    char summary[256], start[SL_PG_LSN_BYTES], stop[SL_PG_LSN_BYTES];
    struct sl_progress *progress = b->invocation->progress;
    sl_progress_done(progress);
    sl_progress_summary(progress, summary, sizeof summary);
    sl_pg_lsn_text(b->start.start_lsn, start);
    sl_pg_lsn_text(b->stop_lsn, stop);
    if (!b->invocation->json && b->broken) {
        char bytes[32];
        printf("resumed: %s were stored before it was broken off\n",
               sl_bytes_text(atomic_load(&b->resumed), bytes, sizeof bytes));
    }
    if (!b->invocation->json) {
        printf("backup %s complete: %s to %s, %llu files\n%s\n", b->label, start, stop,
               (unsigned long long)atomic_load(&b->files), summary);
        return;
    }
    json_t *r = b->invocation->result;
    json_object_set_new(r, "label", json_string(b->label));
    json_object_set_new(r, "type", json_string(sl_pg_backup_type(b)));
    if (b->prior[0])
        json_object_set_new(r, "prior", json_string(b->prior));
    json_object_set_new(r, "delta_bytes", json_integer((json_int_t)atomic_load(&b->delta)));
    json_object_set_new(r, "read_bytes", json_integer((json_int_t)atomic_load(&b->read)));
    if (b->broken) {
        json_object_set_new(r, "attempt", json_integer(b->attempt));
        json_object_set_new(r, "resumed_bytes", json_integer((json_int_t)atomic_load(&b->resumed)));
    }
    json_object_set_new(r, "start_lsn", json_string(start));
    json_object_set_new(r, "stop_lsn", json_string(stop));
    json_object_set_new(r, "files", json_integer((json_int_t)atomic_load(&b->files)));
    json_object_set_new(r, "bytes", json_integer((json_int_t)atomic_load(&b->bytes)));
    json_object_set_new(r, "stored_bytes", json_integer((json_int_t)atomic_load(&b->stored_bytes)));
    if (b->bad_pages)
        json_object_set_new(r, "bad_pages", json_integer((json_int_t)b->bad_page_count));
    json_object_set_new(r, "progress", sl_progress_report(progress));
}

/* --dry-run: everything was checked; what there would be to read. */
static int try_dry(struct sl_pg_backup *b, struct sl_err *err)
{
    uint64_t bytes, files;
    char text[32];
    int rc = sl_pg_backup_count(b, &bytes, &files, err);
    if (rc)
        return rc;
    if (!b->invocation->json)
        printf("would back up %llu files, %s, from \"%s\"\n", (unsigned long long)files,
               sl_bytes_text(bytes, text, sizeof text), b->data_folder);
    json_object_set_new(b->invocation->result, "dry_run", json_true());
    json_object_set_new(b->invocation->result, "files", json_integer((json_int_t)files));
    json_object_set_new(b->invocation->result, "bytes", json_integer((json_int_t)bytes));
    return 0;
}

static int check_type(const struct sl_invocation *invocation, char *ret_kind, struct sl_err *err)
{
    static const struct {
        const char *name;
        char kind;
    } types[] = {{"full", 'F'}, {"diff", 'D'}, {"incr", 'I'}};
    const char *type = sl_option_string(invocation->options, "type");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(type ? type : "full", types[i].name)) {
            *ret_kind = types[i].kind;
            return 0;
        }
    return sl_err_set(err, SL_ERR_USAGE, "\"%.40s\" is no type of a backup: full, diff, incr",
                      type);
}

static void release(struct sl_pg_backup *b)
{
    sl_pg_db_close(b->db); /* ends the backup on the server if it was not stopped */
    sl_pg_repository_close(&b->repository);
    for (size_t i = 0; i < b->fragment_count; i++)
        sl_fragment_free(b->fragments[i]);
    if (b->root_fd >= 0)
        close(b->root_fd);
    json_decref(b->tablespaces);
    json_decref(b->bad_pages);
    sl_pg_backup_config_free(b);
    sl_pg_base_free(b->base);
    sl_pg_base_free(b->broken);
    sl_pg_summary_free(b->summary);
    sl_free(b->packs);
    sl_free(b->data_folder);
    sl_free(b->backup_label);
    sl_free(b->tablespace_map);
    pthread_cond_destroy(&b->ended);
    pthread_mutex_destroy(&b->lock);
    sl_free(b);
}

int sl_pg_backup(struct sl_invocation *invocation, struct sl_err *err)
{
    sl_pg_signals_install(sl_code_exit(SL_ERR_CANCELLED), 0);
    char kind = 'F';
    int rc = check_type(invocation, &kind, err);
    if (rc)
        return rc;
    struct sl_pg_backup *b = sl_calloc(1, sizeof *b);
    if (!b)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    b->invocation = invocation;
    b->root_fd = -1;
    b->kind = kind;
    b->step_ms = (uint64_t)sl_option_int(invocation->options, "timeout");
    pthread_mutex_init(&b->lock, NULL);
    sl_cond_init(&b->ended);
    rc = sl_pg_backup_check(b, err);
    if (!rc)
        rc = sl_pg_repository_open(invocation, false, false, sl_pg_backup_deadline(b),
                                   &b->repository, err);
    if (!rc)
        rc = sl_pg_repository_check(&b->repository, b->server.system_id, "the server", err);
    bool dry = !rc && sl_option_bool(invocation->options, "dry-run");
    if (dry)
        rc = try_dry(b, err);
    else if (!rc && !(rc = take(b, err))) {
        report(b);
        rc = sl_pg_backup_pages_verdict(b, err);
    }
    release(b);
    return rc;
}
