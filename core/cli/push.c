/* `sluice push`: standard input, or the output of a command that it runs, becomes one object. A
 * pipe cannot be read again: whatever fails, all of it fails, and nothing is published. */
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/cli/cli.h"
#include "core/cli/connect.h"
#include "core/cli/stream.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

struct push {
    struct sl_invocation *invocation;
    struct sl_client *client;
    char object[SL_NAME_MAX];
    unsigned timeout_ms;
};

static int check(const struct push *p, struct sl_err *err)
{
    if (sl_option_bool(p->invocation->options, "dry-run"))
        return sl_err_set(err, SL_ERR_USAGE, "push has no --dry-run");
    const char *const *program = p->invocation->program;
    if (program && !*program)
        return sl_err_set(err, SL_ERR_USAGE, "no command follows \"--\"");
    if (!program && isatty(STDIN_FILENO)) {
        sl_err_set(err, SL_ERR_USAGE, "standard input is a terminal");
        return sl_err_hint(err,
                           "usage: COMMAND | sluice push NAME, or sluice push NAME -- COMMAND");
    }
    return 0;
}

/* What would fail at the end anyway, said at the beginning. */
static int ask(const struct push *p, struct sl_err *err)
{
    struct sl_object_info info;
    sl_deadline deadline = sl_deadline_in_ms(p->timeout_ms);
    int rc = sl_stream_stanza(p->client, p->invocation->stanza, deadline, err);
    if (!rc)
        rc = sl_client_stat(p->client, p->object, deadline, &info, err);
    if (rc == 1)
        sl_log(SL_LOG_WARN, "cli",
               "stream \"%s\" is there already: only the same content will be accepted",
               p->invocation->args[0]);
    return rc < 0 ? rc : 0;
}

static int fill(const struct push *p, struct sl_upload *upload, struct sl_err *err)
{
    const char *const *program = p->invocation->program;
    struct sl_child child = {.in_fd = -1, .out_fd = -1, .err_fd = -1};
    struct sl_stream_source source = {.fd = STDIN_FILENO,
                                      .side_fd = -1,
                                      .close_ms = p->timeout_ms,
                                      .progress = p->invocation->progress};
    int rc = program ? sl_child_start(program, SL_CHILD_OUT, &child, err) : 0;
    if (rc)
        return rc;
    if (program)
        source.fd = child.out_fd;
    rc = sl_stream_copy(&source, upload, err);
    if (!rc && program)
        rc = sl_child_wait(&child, sl_deadline_in_ms(p->timeout_ms), err);
    sl_child_kill(&child);
    if (!rc && !sl_upload_length(upload))
        rc = sl_err_set(err, SL_ERR_READ, "there was nothing to read: an empty stream");
    return rc;
}

static int store(const struct push *p, struct sl_stored *ret_stored, struct sl_err *err)
{
    struct sl_upload *upload;
    int rc =
        sl_upload_begin(p->client, p->object, 0, sl_deadline_in_ms(p->timeout_ms), &upload, err);
    if (rc)
        return rc;
    rc = fill(p, upload, err);
    if (rc) {
        sl_upload_abort(upload);
        return sl_err_prefix(err, "nothing was stored");
    }
    return sl_upload_commit(upload, 0, UINT64_MAX, ret_stored, err);
}

static int report(const struct push *p, const struct sl_stored *stored, struct sl_err *err)
{
    struct sl_invocation *invocation = p->invocation;
    const char *name = p->object + strlen(SL_STREAM_FOLDER "/");
    bool same = stored->outcome == SL_STORED_IDENTICAL;
    char size[16], digest[SL_ID_TEXT];
    sl_id_text(&stored->digest, digest);
    if (!invocation->json)
        printf("stream \"%s\": %s %s, digest %s\n", name,
               sl_bytes_text(stored->length, size, sizeof size),
               same ? "are there already" : "stored", digest);
    json_t *report = sl_progress_report(invocation->progress);
    json_t *all = json_pack("{s:s, s:s, s:b, s:I, s:I, s:s}", "stanza", invocation->stanza, "name",
                            name, "created", !same, "bytes", (json_int_t)stored->length,
                            "stored_bytes", (json_int_t)stored->stored_bytes, "digest", digest);
    int failed = !all || json_object_update(invocation->result, all);
    json_decref(all);
    if (report)
        failed |= json_object_set_new(invocation->result, "progress", report);
    return failed ? sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for the result") : 0;
}

int sl_cli_push(struct sl_invocation *invocation, struct sl_err *err)
{
    struct push p = {.invocation = invocation,
                     .timeout_ms = (unsigned)sl_option_int(invocation->options, "timeout")};
    struct sl_connect_options options = {0};
    struct sl_connection *connection = NULL;
    struct sl_stored stored;
    int rc = sl_stream_object(invocation, p.object, err);
    if (!rc)
        rc = check(&p, err);
    if (!rc)
        rc = sl_connection_open(invocation, &options, sl_deadline_in_ms(p.timeout_ms), &connection,
                                err);
    if (rc)
        return rc;
    p.client = sl_connection_client(connection);
    rc = ask(&p, err);
    if (!rc)
        rc = store(&p, &stored, err);
    sl_connection_close(connection);
    sl_progress_done(invocation->progress);
    return rc ? rc : report(&p, &stored, err);
}
