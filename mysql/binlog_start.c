/* Where to go on: what the server has, against what the archive has. The cases are those of
 * docs/mysql.md; whatever is not plainly the continuation is a gap or a new history, and is said
 * aloud. */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "mysql/binlog_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEAL_MS (3600u * 1000u)

static int take_name(void *arg, const struct sl_my_row *row)
{
    struct sl_my_binlog_list *list = arg;
    const char *name = sl_my_row_value(row, "Log_name");
    uint64_t number;
    size_t base;
    if (!sl_my_binlog_number(name, &number, &base))
        return SL_ERR_UNSUPPORTED;
    struct sl_my_binlog_file *file = sl_my_binlog_list_add(list, name);
    if (!file)
        return SL_ERR_NO_MEMORY;
    file->bytes = strtoull(sl_my_row_value(row, "File_size"), NULL, 10);
    return 0;
}

static int list_server(struct sl_my_db *db, struct sl_my_binlog_list *list, struct sl_err *err)
{
    struct sl_err why = {0};
    int rc = sl_my_db_query(db, "SHOW BINARY LOGS", take_name, list, &why);
    if (rc == SL_ERR_UNSUPPORTED)
        return sl_err_set(err, rc, "the server's files have names that cannot be archived");
    if (rc == SL_ERR_NO_MEMORY)
        return sl_err_set(err, rc, "out of memory");
    if (rc) {
        sl_err_copy(err, &why);
        err->code = rc = sl_my_db_code(db);
        sl_err_prefix(err, "the server does not list its binary log");
        sl_err_hint(err, "it needs log_bin, and this account BINLOG MONITOR (MySQL: REPLICATION "
                         "CLIENT) and REPLICATION SLAVE");
        return rc;
    }
    return list->count ? 0 : sl_err_set(err, SL_ERR_DB_STATE, "the server has no binary log");
}

/* From the beginning of a file. */
static void from_start(struct sl_my_binlog_start *start, const struct sl_my_binlog_file *file)
{
    snprintf(start->file, sizeof start->file, "%s", file->name);
    start->position = SL_MY_BINLOG_START;
    start->begun = start->sealed = false;
}

static int begin_anew(struct sl_my_archiver *a, struct sl_my_binlog_start *start,
                      const struct sl_my_binlog_file *first, const char *why, struct sl_err *err)
{
    sl_grow_close(start->grow);
    start->grow = NULL;
    from_start(start, first);
    return sl_my_archive_begin(a, why, err);
}

static bool same_base(const char *one, const char *other)
{
    uint64_t number;
    size_t a, b;
    return sl_my_binlog_number(one, &number, &a) && sl_my_binlog_number(other, &number, &b) &&
           a == b && memcmp(one, other, a) == 0;
}

/* How much of the last file is archived; opens it if it still grows. */
static int open_last(struct sl_my_archiver *a, const struct sl_my_binlog_file *last,
                     struct sl_my_binlog_start *start, struct sl_err *err)
{
    char name[SL_NAME_MAX];
    struct sl_object_info info;
    sl_my_archive_object(a, last->name, "", name);
    if (last->growing) {
        int rc = sl_grow_open(a->client, name, 0, sl_deadline_in_ms(a->timeout_ms), &start->grow,
                              &start->position, err);
        if (rc == SL_ERR_EXISTS) /* sealed since it was listed, by another archiver */
            return err->code = SL_ERR_BUSY;
        if (rc || !last->sealed)
            return rc;
        /* a crash came between its naming and the end of its journal */
        rc = sl_grow_seal(start->grow, sl_deadline_in_ms(SEAL_MS), NULL, err);
        start->grow = NULL;
        if (rc)
            return rc;
    }
    int rc = sl_client_stat(a->client, name, sl_deadline_in_ms(a->timeout_ms), &info, err);
    if (rc == 0)
        return sl_err_set(err, SL_ERR_NOT_FOUND, "\"%s\" was removed meanwhile", name);
    start->position = info.length;
    start->sealed = true;
    return rc < 0 ? rc : 0;
}

/* The server has not the file any more that was archived last. */
static int last_is_gone(struct sl_my_archiver *a, const struct sl_my_binlog_file *last,
                        const struct sl_my_binlog_list *server, struct sl_my_binlog_start *start,
                        struct sl_err *err)
{
    char why[512];
    const struct sl_my_binlog_file *first = &server->files[0];
    if (!same_base(first->name, last->name) || first->number <= last->number) {
        snprintf(why, sizeof why, "the server has %s to %s, and not %s, which was archived last",
                 first->name, server->files[server->count - 1].name, last->name);
        return begin_anew(a, start, first, why, err);
    }
    int rc = 0;
    if (start->grow || first->number > last->number + 1)
        rc = sl_my_archive_gap(a, last->name, start->position, first->name, err);
    if (!rc && start->grow) { /* no more of it will come */
        rc = sl_grow_seal(start->grow, sl_deadline_in_ms(SEAL_MS), NULL, err);
        start->grow = NULL;
    }
    from_start(start, first);
    return rc;
}

static int go_on(struct sl_my_archiver *a, const struct sl_my_binlog_file *last,
                 const struct sl_my_binlog_list *server, struct sl_my_binlog_start *start,
                 struct sl_err *err)
{
    char why[512];
    const struct sl_my_binlog_file *there = sl_my_binlog_list_find(server, last->name);
    if (!there)
        return last_is_gone(a, last, server, start, err);
    snprintf(start->file, sizeof start->file, "%s", last->name);
    if (there->bytes < start->position || (start->sealed && there->bytes != start->position)) {
        snprintf(why, sizeof why,
                 "the server's %s has %" PRIu64 " bytes, %" PRIu64 " of it were archived",
                 last->name, there->bytes, start->position);
        /* After a lost tail the files before it are the same, and archived again; after RESET
         * MASTER, which looks the same when the new files have come as far, they are not. */
        return begin_anew(a, start, &server->files[0], why, err);
    }
    start->begun = start->position > 0;
    if (!start->begun)
        start->position = SL_MY_BINLOG_START;
    if (start->sealed && start->position > UINT32_MAX &&
        there + 1 < server->files + server->count) {
        /* its end cannot be asked for (COM_BINLOG_DUMP has 32 bits), and need not be */
        from_start(start, there + 1);
    }
    return 0;
}

/* Opens what grows before the server is asked for its files: from then on nobody else archives, and
 * what the server says is not older than what is archived. */
int sl_my_binlog_decide(struct sl_my_archiver *a, struct sl_my_db *db,
                        struct sl_my_binlog_start *start, struct sl_err *err)
{
    struct sl_my_binlog_list server = {0};
    const struct sl_my_binlog_file *last = NULL;
    memset(start, 0, sizeof *start);
    int rc = sl_my_archive_load(a, err);
    if (!rc && a->archived.count && !a->new_history)
        rc = open_last(a, last = &a->archived.files[a->archived.count - 1], start, err);
    if (!rc)
        rc = list_server(db, &server, err);
    if (!rc && a->new_history)
        rc = begin_anew(a, start, &server.files[0], a->why_new, err);
    else if (!rc && !a->history)
        rc = begin_anew(a, start, &server.files[0], "the first", err);
    else if (!rc && !last)
        from_start(start, &server.files[0]);
    else if (!rc)
        rc = go_on(a, last, &server, start, err);
    if (!rc) {
        const char *newest = server.files[server.count - 1].name;
        a->new_history = false;
        snprintf(start->last, sizeof start->last, "%s", newest);
        if (a->once && strcmp(start->file, newest) == 0)
            start->file[0] = '\0'; /* it has not ended */
    }
    if (rc || !start->file[0]) {
        sl_grow_close(start->grow);
        start->grow = NULL;
    }
    sl_my_binlog_list_free(&server);
    return rc;
}
