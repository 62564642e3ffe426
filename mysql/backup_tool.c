/* Running mariadb-backup (or what my-backup-command names) and judging it. The tool's word alone is
 * not believed, nor are its streams alone: see backup_internal.h. */
#include "core/base/alloc.h"
#include "core/base/stop.h"
#include "mysql/backup_internal.h"
#include "mysql/said.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS_MAX      64
#define STREAMS_OPTION "--fifo-streams="
#define TURN_MS        1000

static const char *const kept[] = {"xtrabackup_info", "mariadb_backup_info",
                                   "xtrabackup_binlog_info", "mariadb_backup_binlog_info", NULL};

struct tool {
    struct sl_my_backup *backup;
    struct sl_my_streams *streams;
    struct sl_child child;
    char folder[SL_MY_FOLDER_BYTES]; /* an empty one: the tool wants --target-dir also when it
                                        streams, and makes its pipes there */
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

static int take_command(struct words *w, const struct sl_options *options, struct sl_err *err)
{
    const char *at = sl_option_string(options, "my-backup-command");
    for (at += strspn(at, " "); *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        take(w, sl_strndup(at, length));
        at += length;
        if (w->count == 1) /* it must be the first option, of every program of these servers */
            take_option(w, options, "my-defaults-file", "defaults-file");
    }
    return w->count ? 0 : sl_err_set(err, SL_ERR_CONFIG, "my-backup-command is empty");
}

/* XtraBackup's: so many streams through named pipes instead of one through its output. */
static int count_streams(struct sl_my_backup *b, const struct words *w, struct sl_err *err)
{
    b->streams = 1;
    for (size_t i = 0; i < w->count; i++) {
        if (strncmp(w->items[i], STREAMS_OPTION, strlen(STREAMS_OPTION)) != 0)
            continue;
        const char *digits = w->items[i] + strlen(STREAMS_OPTION);
        long number = strtol(digits, NULL, 10);
        if (number < 1 || number > (long)SL_MY_STREAMS_MAX || digits[strspn(digits, "0123456789")])
            return sl_err_set(err, SL_ERR_CONFIG, "\"%.60s\": 1 to %u streams are possible",
                              w->items[i], SL_MY_STREAMS_MAX);
        b->streams = (unsigned)number;
    }
    return 0;
}

static int make_words(const struct tool *t, struct words *w, struct sl_err *err)
{
    const struct sl_options *options = t->backup->invocation->options;
    int rc = take_command(w, options, err);
    if (!rc)
        rc = count_streams(t->backup, w, err);
    if (rc)
        return rc;
    take(w, sl_strdup("--backup"));
    take(w, sl_strdup("--stream=xbstream"));
    take(w, sl_asprintf("--target-dir=%s", t->folder));
    if (t->backup->kind != 'F')
        take(w, sl_asprintf("--incremental-lsn=%" PRIu64, t->backup->base_lsn));
    take_option(w, options, "my-user", "user");
    take_option(w, options, "my-host", "host");
    take_option(w, options, "my-socket", "socket");
    if (sl_option_is_set(options, "my-port"))
        take(w, sl_asprintf("--port=%d", (int)sl_option_int(options, "my-port")));
    return w->failed ? sl_err_set(err, SL_ERR_LIMIT, "my-backup-command is too long") : 0;
}

static int start(struct tool *t, struct sl_err *err)
{
    struct words words = {0};
    int rc = make_words(t, &words, err);
    if (!rc)
        rc = sl_child_start((const char *const *)words.items,
                            t->backup->streams > 1 ? SL_CHILD_ERR : SL_CHILD_OUT | SL_CHILD_ERR,
                            &t->child, err);
    words_fini(&words);
    return rc;
}

/* --- while it runs -----------------------------------------------------------------------------
 */

/* 1, 0 when it has closed its standard error, or a code. */
static int hear(struct tool *t, struct sl_err *err)
{
    char text[4096];
    ssize_t n = read(t->child.err_fd, text, sizeof text);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 1;
    if (n < 0)
        return sl_err_sys(err, SL_ERR_READ, errno, "could not read a program's standard error");
    sl_my_said_take(&t->said, text, (size_t)n);
    return n ? 1 : 0;
}

/* Until the tool has closed everything, or something failed (0 then too: join says what). */
static int attend(struct tool *t, struct sl_err *err)
{
    struct pollfd fds[3] = {{.fd = sl_stop_fd(), .events = POLLIN},
                            {.fd = t->child.err_fd, .events = POLLIN},
                            {.fd = sl_my_streams_fd(t->streams), .events = POLLIN}};
    sl_deadline end = 0;
    for (;;) {
        int code, rc = 0, n = poll(fds, 3, TURN_MS);
        if (n < 0 && errno != EINTR)
            return sl_err_sys(err, SL_ERR_INTERNAL, errno, "poll failed");
        if (sl_stopped())
            return sl_stop_check(err);
        if (n > 0 && fds[1].revents && (rc = hear(t, err)) < 0)
            return rc;
        if (n > 0 && fds[1].revents && !rc) {
            fds[1].fd = -1;
            sl_my_streams_no_writer(t->streams);
        }
        unsigned left = sl_my_streams_left(t->streams, &code);
        if (code || (!left && fds[1].fd < 0))
            return 0;
        if (!left && !end)
            end = sl_deadline_in_ms(t->backup->timeout_ms);
        if (end && sl_deadline_passed(end))
            return sl_err_set(err, SL_ERR_TIMEOUT, "a program keeps its standard error open");
    }
}

/* --- judging -----------------------------------------------------------------------------------
 */

static const char *kept_of(const struct tool *t, const char *one, const char *other)
{
    const char *content = sl_my_streams_kept(t->streams, one);
    return content ? content : sl_my_streams_kept(t->streams, other);
}

/* An increment must begin where its base ended, and a full backup must be none. */
static int check_kind(const struct sl_my_backup *b, struct sl_err *err)
{
    const struct sl_my_coordinates *c = &b->coordinates;
    if (b->kind == 'F')
        return c->incremental ? sl_err_set(err, SL_ERR_MISMATCH,
                                           "the tool made an increment from LSN %" PRIu64
                                           ", not a full backup",
                                           c->from_lsn)
                              : 0;
    if (c->incremental && c->from_lsn == b->base_lsn)
        return 0;
    return sl_err_set(err, SL_ERR_MISMATCH,
                      "the tool made %s from LSN %" PRIu64 ", not an increment from %" PRIu64,
                      c->incremental ? "an increment" : "a backup", c->from_lsn, b->base_lsn);
}

/* A stream may be cut where no file is open: only the tool's last file tells that it is all. */
static int judge(struct tool *t, struct sl_err *err)
{
    struct sl_my_backup *b = t->backup;
    int rc = sl_my_said_done(&t->said, err);
    if (!rc)
        rc = sl_my_streams_whole(t->streams, err);
    if (rc)
        return rc;
    const char *info = kept_of(t, kept[0], kept[1]);
    if (!info)
        return sl_err_set(err, SL_ERR_FORMAT, "xbstream: it ends without xtrabackup_info");
    rc = sl_my_coordinates_parse(info, kept_of(t, kept[2], kept[3]), &b->coordinates, err);
    return rc ? rc : check_kind(b, err);
}

static int run(struct tool *t, struct sl_err *err)
{
    struct sl_my_backup *b = t->backup;
    struct sl_err later = {0};
    int rc = start(t, err);
    if (rc)
        return rc;
    rc = sl_my_streams_start(b, &t->child, t->folder, kept, &t->streams, err);
    if (!rc)
        rc = attend(t, err);
    int code = 0;
    if (rc || (t->streams && (sl_my_streams_left(t->streams, &code), code)))
        sl_child_kill(&t->child); /* the streams end with it */
    if (t->streams) {
        sl_my_streams_no_writer(t->streams);
        code = sl_my_streams_join(t->streams, &b->totals, rc ? &later : err);
        rc = rc ? rc : code;
    }
    sl_my_said_end(&t->said);
    if (!rc)
        rc = sl_child_wait(&t->child, sl_my_backup_deadline(b), err);
    sl_child_kill(&t->child);
    return sl_my_said_blame(&t->said, rc ? rc : judge(t, err), err);
}

int sl_my_backup_stream(struct sl_my_backup *b, struct sl_err *err)
{
    struct tool *t = sl_calloc(1, sizeof *t);
    if (!t)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    t->backup = b;
    t->child = (struct sl_child){.in_fd = -1, .out_fd = -1, .err_fd = -1};
    strcpy(t->folder, "/tmp/sluice-backup-XXXXXX");
    if (!mkdtemp(t->folder)) {
        sl_free(t);
        return sl_err_sys(err, SL_ERR_OPEN, errno, "could not make a folder for the backup tool");
    }
    b->start_ns = sl_wall_ns();
    int rc = run(t, err);
    if (!rc)
        rc = sl_my_streams_commit(t->streams, b->stored, err);
    b->stop_ns = sl_wall_ns();
    for (unsigned i = 0; !rc && i < b->streams; i++)
        b->stored_bytes += b->stored[i].stored_bytes;
    sl_my_streams_free(t->streams);
    rmdir(t->folder); /* what the tool may have left there is the tool's */
    sl_free(t);
    return rc;
}
