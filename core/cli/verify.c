/* `sluice verify`: has the target read and check every object, and lists what is damaged. */
#include "core/cli/cli.h"

#include "core/base/json.h"
#include "core/base/progress.h"
#include "core/cli/connect.h"

#include <inttypes.h>
#include <string.h>

struct verify {
    struct sl_invocation *invocation;
    json_t *damage; /* array */
    uint64_t bytes; /* told to the progress so far */
    uint64_t total;
    bool no_memory; /* `damage` lacks something */
};

static void damaged(void *arg, const char *name, int code, const char *text)
{
    struct verify *verify = arg;
    json_t *item =
        json_pack("{s:o, s:i, s:s, s:o}", "name", sl_json_text(name), "code", sl_code_exit(code),
                  "error", sl_code_name(code), "message", sl_json_text(text));
    verify->no_memory |= json_array_append_new(verify->damage, item) != 0;
    if (!verify->invocation->json) {
        fputs("damaged: ", stdout);
        sl_output_plain(stdout, name);
        fputs(": ", stdout);
        sl_output_plain(stdout, text);
        putchar('\n');
        fflush(stdout);
    }
}

static void step(void *arg, const struct sl_verify_progress *progress)
{
    struct verify *verify = arg;
    if (progress->total_bytes != verify->total)
        sl_progress_total(verify->invocation->progress, progress->total_bytes, 0);
    verify->total = progress->total_bytes;
    if (progress->bytes > verify->bytes) {
        sl_progress_add(verify->invocation->progress, progress->bytes - verify->bytes, 0);
        verify->bytes = progress->bytes;
    }
}

static int report(struct verify *verify, const struct sl_verify_progress *total, struct sl_err *err)
{
    struct sl_invocation *invocation = verify->invocation;
    char size[16];
    json_t *result = invocation->result;
    if (verify->no_memory | json_object_set_new(result, "stanza", json_string(invocation->stanza)) |
        json_object_set_new(result, "objects", json_integer((json_int_t)total->objects)) |
        json_object_set_new(result, "bytes", json_integer((json_int_t)total->bytes)) |
        json_object_set_new(result, "damaged", json_integer((json_int_t)total->damaged)) |
        json_object_set(result, "damage", verify->damage))
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for the result");
    if (!invocation->json)
        printf("stanza %s: %" PRIu64 " objects, %s checked, %" PRIu64 " damaged\n",
               invocation->stanza, total->objects, sl_bytes_text(total->bytes, size, sizeof size),
               total->damaged);
    if (!total->damaged)
        return 0;
    sl_err_set(err, SL_ERR_CHECKSUM,
               "%" PRIu64 " of %" PRIu64 " objects of stanza \"%s\" are damaged", total->damaged,
               total->objects, invocation->stanza);
    return sl_err_hint(err, "make a new full backup; keep what is damaged for an inquiry");
}

int sl_cli_verify(struct sl_invocation *invocation, struct sl_err *err)
{
    uint64_t timeout_ms = (uint64_t)sl_option_int(invocation->options, "timeout");
    struct sl_connect_options options = {0};
    struct sl_connection *connection = NULL;
    int rc =
        sl_connection_open(invocation, &options, sl_deadline_in_ms(timeout_ms), &connection, err);
    if (rc)
        return rc;
    struct verify verify = {.invocation = invocation, .damage = json_array()};
    struct sl_verify_progress total = {0};
    rc = sl_client_verify(sl_connection_client(connection),
                          invocation->arg_count ? invocation->args[0] : "", damaged, step, &verify,
                          &total, err);
    sl_progress_done(invocation->progress);
    if (!rc)
        rc = report(&verify, &total, err);
    json_decref(verify.damage);
    sl_connection_close(connection);
    return rc;
}
