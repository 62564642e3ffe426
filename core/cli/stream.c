/* Streams in a repository: names, copying a pipe into an upload, listing. What a stream holds is
 * not looked at here. */
#include "core/cli/stream.h"

#include "core/base/fault.h"
#include "core/base/json.h"
#include "core/base/stop.h"
#include "core/cli/cli.h"
#include "core/cli/lives.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHECK_MS   1000 /* a silent source: how often the session is looked at */
#define PIPE_BYTES (1 << 20)
#define SIDE_BYTES 4096

/* --- names ------------------------------------------------------------------------------------ */

int sl_stream_object(const struct sl_invocation *invocation, char object[SL_NAME_MAX],
                     struct sl_err *err)
{
    const char *name = invocation->args[0];
    const char *number = invocation->arg_count > 1 ? invocation->args[1] : NULL;
    size_t length = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                 "._+=@:-");
    if (!length || name[length] || length > SL_STREAM_NAME_MAX || *name == '.') {
        sl_err_set(err, SL_ERR_USAGE, "\"%.220s\" cannot be a stream's name", name);
        return sl_err_hint(err,
                           "a name is 1 to %d of letters, digits and ._+=@:- and does not begin "
                           "with a dot",
                           SL_STREAM_NAME_MAX);
    }
    if (!number) {
        snprintf(object, SL_NAME_MAX, SL_STREAM_FOLDER "/%s", name);
        return 0;
    }
    size_t digits = strspn(number, "0123456789");
    if (!digits || number[digits] || digits > 9) {
        sl_err_set(err, SL_ERR_USAGE, "\"%.80s\" is not a stream's number", number);
        return sl_err_hint(err, "a command to be run is written behind \"--\"");
    }
    snprintf(object, SL_NAME_MAX, SL_STREAM_FOLDER "/%s.%s", name, number);
    return 0;
}

int sl_stream_stanza(struct sl_client *client, const char *stanza, sl_deadline deadline,
                     struct sl_err *err)
{
    struct sl_object_info info;
    int rc = sl_client_stat(client, "stanza.json", deadline, &info, err);
    if (rc < 0)
        return rc;
    return rc ? 0 : sl_lives_missing(stanza, err);
}

/* --- copying ---------------------------------------------------------------------------------- */

/* Straight into the block. 1, 0 at the end, or a code. */
static int take_bytes(const struct sl_stream_source *source, struct sl_upload *upload,
                      struct sl_err *err)
{
    uint8_t *at;
    size_t room;
    int rc = sl_upload_space(upload, &at, &room, err);
    if (rc)
        return rc;
    uint64_t began = sl_now_ns();
    int fault = sl_fault("stream.read");
    ssize_t n = fault ? -1 : read(source->fd, at, room);
    sl_progress_stage(source->progress, SL_STAGE_SOURCE, sl_now_ns() - began);
    if (n < 0 && !fault && (errno == EINTR || errno == EAGAIN))
        return 1;
    if (n < 0)
        return sl_err_sys(err, SL_ERR_READ, fault ? fault : errno, "could not read the stream");
    if (!n)
        return 0;
    rc = source->bytes ? source->bytes(source->arg, at, (size_t)n, err) : 0;
    if (!rc)
        rc = sl_upload_advance(upload, (size_t)n, err);
    sl_progress_add(source->progress, (uint64_t)n, 0);
    return rc ? rc : 1;
}

static int take_side(const struct sl_stream_source *source, struct sl_err *err)
{
    char text[SIDE_BYTES];
    ssize_t n = read(source->side_fd, text, sizeof text);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 1;
    if (n < 0)
        return sl_err_sys(err, SL_ERR_READ, errno, "could not read a program's standard error");
    if (n && source->side)
        source->side(source->arg, text, (size_t)n);
    return n ? 1 : 0;
}

struct copying {
    struct pollfd fds[3]; /* stop, side, source; -1 once at its end */
    sl_deadline side_end;
};

static int wait_ms(const struct copying *c)
{
    int left = c->fds[2].fd < 0 ? sl_deadline_poll_ms(c->side_end) : CHECK_MS;
    return left < CHECK_MS ? left : CHECK_MS;
}

/* 1, or a code. */
static int step(const struct sl_stream_source *source, struct sl_upload *upload, struct copying *c,
                struct sl_err *err)
{
    int n = poll(c->fds, 3, wait_ms(c));
    if (n < 0 && errno != EINTR)
        return sl_err_sys(err, SL_ERR_INTERNAL, errno, "poll failed");
    if (n < 0)
        return 1;
    int rc = c->fds[0].revents ? sl_stop_check(err) : 0;
    if (!rc && !n)
        rc = sl_upload_check(upload, err);
    if (!rc && c->fds[2].fd < 0 && sl_deadline_passed(c->side_end))
        rc = sl_err_set(err, SL_ERR_TIMEOUT, "a program keeps its standard error open");
    if (rc)
        return rc;
    if (c->fds[1].revents && (rc = take_side(source, err)) <= 0) {
        if (rc < 0)
            return rc;
        c->fds[1].fd = -1;
    }
    if (c->fds[2].revents && (rc = take_bytes(source, upload, err)) <= 0) {
        if (rc < 0)
            return rc;
        c->fds[2].fd = -1;
        c->side_end = sl_deadline_in_ms(source->close_ms);
    }
    return 1;
}

int sl_stream_copy(const struct sl_stream_source *source, struct sl_upload *upload,
                   struct sl_err *err)
{
    struct copying c = {.fds = {{.fd = sl_stop_fd(), .events = POLLIN},
                                {.fd = source->side_fd, .events = POLLIN},
                                {.fd = source->fd, .events = POLLIN}}};
    /* fewer turns; a file, or a limit of the system, does without */
    (void)fcntl(source->fd, F_SETPIPE_SZ, PIPE_BYTES);
    int rc = 1;
    while (rc > 0 && (c.fds[1].fd >= 0 || c.fds[2].fd >= 0))
        rc = step(source, upload, &c, err);
    return rc < 0 ? rc : sl_stop_check(err);
}

/* --- listing ---------------------------------------------------------------------------------- */

struct listing {
    struct sl_client *client;
    sl_deadline deadline;
    json_t *list;
    struct sl_err *err;
};

static int add(void *arg, const struct sl_entry *entry)
{
    struct listing *l = arg;
    if (entry->is_folder)
        return 0;
    json_t *one = json_pack("{s:o}", "name", sl_json_text(entry->name));
    if (!one || json_array_append_new(l->list, one))
        return sl_err_set(l->err, SL_ERR_NO_MEMORY, "out of memory for the list of streams");
    return 0;
}

static int describe(struct listing *l, json_t *one)
{
    char object[SL_NAME_MAX], when[40];
    struct sl_object_info info;
    const char *name = json_string_value(json_object_get(one, "name"));
    snprintf(object, sizeof object, SL_STREAM_FOLDER "/%.255s", name ? name : "");
    struct sl_err err = {0};
    int rc = sl_client_stat(l->client, object, l->deadline, &info, &err);
    if (rc <= 0 && rc != SL_ERR_FORMAT && rc != SL_ERR_CHECKSUM && rc != SL_ERR_REPO)
        return rc ? sl_err_copy(l->err, &err) : 0;
    if (rc < 0)
        return json_object_set_new(one, "error", sl_json_text(err.msg));
    sl_wall_text(info.created_ns, when, sizeof when);
    return json_object_set_new(one, "size", json_integer((json_int_t)info.length)) |
           json_object_set_new(one, "created",
                               json_integer((json_int_t)(info.created_ns / SL_NS_PER_S))) |
           json_object_set_new(one, "created-text", json_string(when)) |
           json_object_set_new(one, "creator", sl_json_text(info.creator));
}

int sl_stream_list(struct sl_client *client, sl_deadline deadline, json_t **ret_list,
                   struct sl_err *err)
{
    struct listing l = {client, deadline, json_array(), err};
    size_t i;
    json_t *one;
    if (!l.list)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for the list of streams");
    int rc = sl_client_list(client, SL_STREAM_FOLDER, "", add, &l, deadline, err);
    json_array_foreach(l.list, i, one)
    {
        if (!rc)
            rc = describe(&l, one);
    }
    if (rc == -1)
        rc = sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for the list of streams");
    if (rc) {
        json_decref(l.list);
        return rc;
    }
    *ret_list = l.list;
    return 0;
}

void sl_stream_print(const json_t *list)
{
    size_t i;
    const json_t *one;
    json_array_foreach(list, i, one)
    {
        char size[16];
        const char *error = json_string_value(json_object_get(one, "error"));
        const char *when = json_string_value(json_object_get(one, "created-text"));
        uint64_t bytes = (uint64_t)json_integer_value(json_object_get(one, "size"));
        fputs(i ? "            " : "    streams: ", stdout);
        sl_output_plain(stdout, json_string_value(json_object_get(one, "name")));
        if (error) {
            fputs(": damaged: ", stdout);
            sl_output_plain(stdout, error);
            putchar('\n');
        } else {
            printf(", %s, %s\n", sl_bytes_text(bytes, size, sizeof size), when ? when : "");
        }
    }
}
