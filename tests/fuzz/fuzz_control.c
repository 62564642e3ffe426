/* Fuzzes the framing of the control connection: bytes written to one socket of a pair, in pieces
 * of sizes that the input chooses, are read by the other end's control. (Over TLS only an
 * authenticated peer gets so far.) Messages are decoded, too, and their lists' elements walked. */
#include "core/session/control_internal.h"

#include <stdlib.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static int look(void *arg, struct sl_control *control, const struct sl_msg *msg, struct sl_err *err)
{
    (void)control;
    ++*(size_t *)arg;
    if (msg->type == SL_MSG_BYE)
        return sl_err_set(err, SL_ERR_CLOSED, "bye");
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct sl_control *client, *target;
    struct sl_err err;
    size_t seen = 0, piece = count ? (size_t)bytes[0] * 16 + 1 : 1;
    if (sl_control_pair("fuzz", &client, &target, NULL))
        return 0;
    int rc = 0;
    while (count && !rc) {
        size_t part = count < piece ? count : piece;
        ssize_t sent = send(client->fd, bytes, part, MSG_NOSIGNAL);
        if (sent <= 0)
            break;
        bytes += sent;
        count -= (size_t)sent;
        rc = sl_control_process(target, look, &seen, &err);
    }
    if (rc && (rc != err.code || (rc != SL_ERR_PROTOCOL && rc != SL_ERR_CLOSED)))
        abort();
    sl_control_free(client);
    sl_control_free(target);
    return 0;
}
