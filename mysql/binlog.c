/* binlog: archives the server's binary log, as long as it runs (or once, what has ended). This file
 * is the loop around connections; what is decided at the beginning of each is in binlog_start.c,
 * the stream in binlog_stream.c. */
#include "mysql/binlog_internal.h"

#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/base/stop.h"
#include "core/object/object.h"
#include "mysql/commands.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PAUSE_MIN_MS 200u
#define PAUSE_MAX_MS 10000u
#define SILENCE_MS   10000u /* heartbeats come each second */
#define REPLICA_ID   0x51000000u

/* A number that no server of the installation should have, the same each time: two clients of one
 * number disconnect each other. */
static uint32_t choose_replica_id(const struct sl_my_archiver *a)
{
    const char *stanza = a->invocation->stanza;
    if (sl_option_is_set(a->invocation->options, "my-replica-id"))
        return (uint32_t)sl_option_int(a->invocation->options, "my-replica-id");
    return REPLICA_ID | (sl_crc32c(0, stanza, strlen(stanza)) & 0xffffff);
}

static int connect_and_follow(struct sl_my_archiver *a, bool *ret_progress, struct sl_err *err)
{
    struct sl_my_db *db = NULL;
    struct sl_my_binlog_start start;
    const struct sl_options *options = a->invocation->options;
    int rc = sl_my_db_open(options, sl_deadline_in_ms(SILENCE_MS), &db, err);
    if (rc)
        return rc;
    rc = sl_my_server_describe(db, &a->server, err);
    if (!rc)
        rc = sl_my_repository_check(&a->repository, a->server.id, a->invocation->stanza, err);
    if (!rc)
        rc = sl_my_binlog_decide(a, db, &start, err);
    if (!rc && start.file[0])
        rc = sl_my_binlog_follow(a, db, &start, ret_progress, err);
    sl_my_db_close(db);
    sl_my_binlog_list_free(&a->archived);
    return rc;
}

/* Until it is time, or the process is stopped. */
static void pause_ms(unsigned ms)
{
    struct pollfd fd = {.fd = sl_stop_fd(), .events = POLLIN};
    if (!sl_stopped())
        (void)poll(&fd, 1, (int)ms);
}

/* Things that may pass without anybody doing something here. A full or failing target may be mended
 * while the server waits. */
static bool passes(const struct sl_my_archiver *a, int code)
{
    if (a->new_history)
        return true;
    if (a->once)
        return false;
    return sl_code_retryable(code) || code == SL_ERR_FULL || code == SL_ERR_WRITE ||
           code == SL_ERR_SYNC || code == SL_ERR_PROTOCOL || code == SL_ERR_NOT_FOUND;
}

static int archive(struct sl_my_archiver *a, struct sl_err *err)
{
    unsigned pause = PAUSE_MIN_MS;
    unsigned histories = 0;
    for (;;) {
        bool progress = false;
        int rc = connect_and_follow(a, &progress, err);
        if (!rc)
            return 0;
        if (sl_stopped())
            return a->once ? rc : 0; /* what is durable is durable */
        if (!passes(a, rc) || (a->new_history && ++histories > 2))
            return rc;
        sl_log_err(SL_LOG_WARN, "binlog", err, "archiving goes on in %u ms", pause);
        pause_ms(pause);
        if (progress) {
            pause = PAUSE_MIN_MS;
            histories = 0;
        } else if (pause < PAUSE_MAX_MS) {
            pause = pause * 2 < PAUSE_MAX_MS ? pause * 2 : PAUSE_MAX_MS;
        }
    }
}

static int report(struct sl_my_archiver *a, struct sl_err *err)
{
    struct sl_invocation *invocation = a->invocation;
    if (!invocation->json)
        printf("%" PRIu64 " files archived\n", a->sealed);
    json_t *all = json_pack("{s:s,s:I,s:I}", "stanza", invocation->stanza, "files",
                            (json_int_t)a->sealed, "gaps", (json_int_t)a->gaps);
    int bad = !all || json_object_update(invocation->result, all);
    json_decref(all);
    if (bad)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for the result");
    if (a->gaps) {
        sl_err_set(err, SL_ERR_GAP, "%" PRIu64 " gaps were found in the binary log", a->gaps);
        return sl_err_hint(err, "info names them; take a new backup, and run this without pauses");
    }
    return 0;
}

int sl_my_binlog(struct sl_invocation *invocation, struct sl_err *err)
{
    struct sl_my_archiver *a = sl_calloc(1, sizeof *a);
    if (!a)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    a->invocation = invocation;
    a->timeout_ms = (unsigned)sl_option_int(invocation->options, "timeout");
    a->once = sl_option_bool(invocation->options, "once");
    a->semi_sync = sl_option_bool(invocation->options, "semi-sync");
    a->replica_id = choose_replica_id(a);
    int rc = sl_option_bool(invocation->options, "dry-run")
                 ? sl_err_set(err, SL_ERR_USAGE, "binlog has no --dry-run")
                 : 0;
    if (!rc && a->once && a->semi_sync)
        rc = sl_err_set(err, SL_ERR_USAGE, "--once and --semi-sync exclude each other");
    if (!rc)
        rc = sl_my_repository_open(invocation, false, sl_deadline_in_ms(a->timeout_ms),
                                   &a->repository, err);
    if (!rc) {
        a->client = a->repository.client;
        rc = archive(a, err);
        sl_my_repository_close(&a->repository);
        if (!rc)
            rc = report(a, err);
    }
    sl_free(a);
    return rc;
}
