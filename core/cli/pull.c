/* `sluice pull`: a stream to standard output. After any failure the status says that it is not all.
 */
#include "core/cli/cli.h"
#include "core/cli/connect.h"
#include "core/cli/stream.h"

#include <unistd.h>

int sl_cli_pull(struct sl_invocation *invocation, struct sl_err *err)
{
    unsigned timeout_ms = (unsigned)sl_option_int(invocation->options, "timeout");
    struct sl_connect_options options = {0};
    struct sl_connection *connection = NULL;
    struct sl_stream_sink sink = {.fd = STDOUT_FILENO,
                                  .what = "standard output",
                                  .timeout_ms = timeout_ms,
                                  .progress = invocation->progress};
    char object[SL_NAME_MAX];
    int rc = sl_stream_object(invocation, object, err);
    if (!rc && isatty(STDOUT_FILENO)) {
        rc = sl_err_set(err, SL_ERR_USAGE, "standard output is a terminal");
        sl_err_hint(err, "usage: sluice pull NAME | COMMAND, or sluice pull NAME >FILE");
    }
    if (!rc)
        rc = sl_connection_open(invocation, &options, sl_deadline_in_ms(timeout_ms), &connection,
                                err);
    if (rc)
        return rc;
    struct sl_client *client = sl_connection_client(connection);
    rc = sl_stream_stanza(client, invocation->stanza, sl_deadline_in_ms(timeout_ms), err);
    if (!rc)
        rc = sl_stream_write(&sink, client, object, NULL, err);
    sl_connection_close(connection);
    return rc;
}
