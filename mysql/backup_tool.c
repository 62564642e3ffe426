/* Running mariadb-backup (or what my-backup-command names) and storing its stream. The tool's word
 * alone is not believed, nor is its stream alone: see backup_internal.h. */
#include "core/base/alloc.h"
#include "core/cli/stream.h"
#include "mysql/backup_internal.h"
#include "mysql/said.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS_MAX 64

static const char *const kept[] = {"xtrabackup_info", "mariadb_backup_info",
                                   "xtrabackup_binlog_info", "mariadb_backup_binlog_info", NULL};

struct tool {
    struct sl_my_backup *backup;
    struct sl_my_xbstream *xbstream;
    char folder[64]; /* an empty one: the tool wants --target-dir also when it streams */
    struct sl_my_said said;
};

/* --- its command line -------------------------------------------------------------------------
 */

struct words {
    char *items[WORDS_MAX + 1];
    size_t count;
    bool failed;
};

static void take(struct words *w, char *word)
{
    if (word && w->count < WORDS_MAX) {
        w->items[w->count++] = word;
    } else {
        w->failed = true;
        sl_free(word);
    }
}

static void take_option(struct words *w, const struct sl_options *options, const char *name,
                        const char *tools)
{
    const char *value = sl_option_string(options, name);
    if (value)
        take(w, sl_asprintf("--%s=%s", tools, value));
}

static void words_fini(struct words *w)
{
    for (size_t i = 0; i < w->count; i++)
        sl_free(w->items[i]);
}

/* --defaults-file must be the first option (of every program of these servers). */
static int make_words(const struct tool *t, struct words *w, struct sl_err *err)
{
    const struct sl_options *options = t->backup->invocation->options;
    const char *at = sl_option_string(options, "my-backup-command");
    for (at += strspn(at, " "); *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        take(w, sl_strndup(at, length));
        at += length;
        if (w->count == 1)
            take_option(w, options, "my-defaults-file", "defaults-file");
    }
    if (!w->count)
        return sl_err_set(err, SL_ERR_CONFIG, "my-backup-command is empty");
    take(w, sl_strdup("--backup"));
    take(w, sl_strdup("--stream=xbstream"));
    take(w, sl_asprintf("--target-dir=%s", t->folder));
    take_option(w, options, "my-user", "user");
    take_option(w, options, "my-host", "host");
    take_option(w, options, "my-socket", "socket");
    if (sl_option_is_set(options, "my-port"))
        take(w, sl_asprintf("--port=%d", (int)sl_option_int(options, "my-port")));
    return w->failed ? sl_err_set(err, SL_ERR_LIMIT, "my-backup-command is too long") : 0;
}

/* --- what it says -----------------------------------------------------------------------------
 */

static void take_text(void *arg, const char *text, size_t count)
{
    struct tool *t = arg;
    sl_my_said_take(&t->said, text, count);
}

static int take_bytes(void *arg, const void *bytes, size_t count, struct sl_err *err)
{
    struct tool *t = arg;
    return sl_my_xbstream_take(t->xbstream, bytes, count, err);
}

/* --- running it --------------------------------------------------------------------------------
 */

static const char *kept_of(const struct tool *t, const char *one, const char *other)
{
    const char *content = sl_my_xbstream_kept(t->xbstream, one);
    return content ? content : sl_my_xbstream_kept(t->xbstream, other);
}

/* A stream may be cut where no file is open: only the tool's last file tells that it is all. */
static int judge(struct tool *t, struct sl_err *err)
{
    struct sl_my_backup *b = t->backup;
    int rc = sl_my_said_done(&t->said, err);
    if (!rc)
        rc = sl_my_xbstream_end(t->xbstream, err);
    if (rc)
        return rc;
    const char *info = kept_of(t, kept[0], kept[1]);
    if (!info)
        return sl_err_set(err, SL_ERR_FORMAT, "xbstream: it ends without xtrabackup_info");
    sl_my_xbstream_totals(t->xbstream, &b->totals);
    return sl_my_coordinates_parse(info, kept_of(t, kept[2], kept[3]), &b->coordinates, err);
}

static int run(struct tool *t, struct sl_upload *upload, struct sl_err *err)
{
    struct sl_my_backup *b = t->backup;
    struct words words = {0};
    struct sl_child child = {.in_fd = -1, .out_fd = -1, .err_fd = -1};
    int rc = make_words(t, &words, err);
    if (!rc)
        rc = sl_child_start((const char *const *)words.items, SL_CHILD_OUT | SL_CHILD_ERR, &child,
                            err);
    words_fini(&words);
    if (rc)
        return rc;
    struct sl_stream_source source = {.fd = child.out_fd,
                                      .side_fd = child.err_fd,
                                      .close_ms = b->timeout_ms,
                                      .bytes = take_bytes,
                                      .side = take_text,
                                      .arg = t,
                                      .progress = b->invocation->progress};
    rc = sl_stream_copy(&source, upload, err);
    sl_my_said_end(&t->said);
    if (!rc)
        rc = sl_child_wait(&child, sl_deadline_in_ms(b->timeout_ms), err);
    sl_child_kill(&child);
    return sl_my_said_blame(&t->said, rc ? rc : judge(t, err), err);
}

static int store(struct tool *t, struct sl_err *err)
{
    struct sl_my_backup *b = t->backup;
    struct sl_upload *upload;
    char name[SL_NAME_MAX];
    snprintf(name, sizeof name, "backup/%s/" SL_MY_STREAM_ENTRY, b->label);
    int rc = sl_upload_begin(b->repository.client, name, 0, sl_deadline_in_ms(b->timeout_ms),
                             &upload, err);
    if (rc)
        return rc;
    rc = run(t, upload, err);
    if (rc) {
        sl_upload_abort(upload);
        return rc;
    }
    return sl_upload_commit(upload, 0, UINT64_MAX, &b->stored, err);
}

int sl_my_backup_stream(struct sl_my_backup *b, struct sl_err *err)
{
    struct tool *t = sl_calloc(1, sizeof *t);
    if (!t)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    t->backup = b;
    strcpy(t->folder, "/tmp/sluice-backup-XXXXXX");
    int rc = mkdtemp(t->folder) ? 0
                                : sl_err_sys(err, SL_ERR_OPEN, errno,
                                             "could not make a folder for the backup tool");
    if (!rc) {
        b->start_ns = sl_wall_ns();
        rc = sl_my_xbstream_new(kept, &t->xbstream, err);
        if (!rc)
            rc = store(t, err);
        b->stop_ns = sl_wall_ns();
        rmdir(t->folder); /* what the tool may have left there is the tool's */
    }
    sl_my_xbstream_free(t->xbstream);
    sl_free(t);
    return rc;
}
