/* binlog-get: an archived file of the binary log to standard output, also one that still grows, as
 * far as it is now. */
#include "core/base/alloc.h"
#include "core/cli/stream.h"
#include "core/object/journal.h"
#include "mysql/binlog_internal.h"
#include "mysql/commands.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The object of that file: of the history that was asked for, or the newest that has it. */
static int find(struct sl_my_archiver *a, const char *file, char object[SL_NAME_MAX],
                struct sl_err *err)
{
    static const char *const suffixes[] = {"", SL_JOURNAL_SUFFIX};
    bool given = sl_option_is_set(a->invocation->options, "history");
    unsigned newest = a->history, oldest = 1;
    if (given)
        newest = oldest = (unsigned)sl_option_int(a->invocation->options, "history");
    for (a->history = newest; a->history >= oldest; a->history--)
        for (int i = 0; i < 2; i++) {
            sl_my_archive_object(a, file, suffixes[i], object);
            int rc = sl_client_stat(a->client, object, sl_deadline_in_ms(a->timeout_ms), NULL, err);
            if (rc)
                return rc < 0 ? rc : 0;
        }
    return sl_err_set(err, SL_ERR_NOT_FOUND, "%s is not in the archive of server %s", file,
                      a->server.id);
}

int sl_my_binlog_get(struct sl_invocation *invocation, struct sl_err *err)
{
    struct sl_my_archiver *a = sl_calloc(1, sizeof *a);
    char object[SL_NAME_MAX];
    uint64_t number;
    size_t base;
    if (!a)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    a->invocation = invocation;
    a->timeout_ms = (unsigned)sl_option_int(invocation->options, "timeout");
    struct sl_stream_sink sink = {.fd = STDOUT_FILENO,
                                  .what = "standard output",
                                  .timeout_ms = a->timeout_ms,
                                  .progress = invocation->progress};
    int rc = sl_my_binlog_number(invocation->args[0], &number, &base)
                 ? 0
                 : sl_err_set(err, SL_ERR_USAGE, "\"%s\" is no name of a binary log's file",
                              invocation->args[0]);
    if (!rc)
        rc = sl_my_repository_open(invocation, false, sl_deadline_in_ms(a->timeout_ms),
                                   &a->repository, err);
    if (!rc) {
        const struct sl_stanza *s = &a->repository.stanza;
        a->client = a->repository.client;
        snprintf(a->server.id, sizeof a->server.id, "%s", s->lives[s->life_count - 1].id);
        rc = sl_my_archive_load(a, err);
        if (!rc)
            rc = find(a, invocation->args[0], object, err);
        if (!rc)
            rc = sl_stream_write(&sink, a->client, object, NULL, err);
        sl_my_repository_close(&a->repository);
    }
    sl_my_binlog_list_free(&a->archived);
    sl_free(a);
    return rc;
}
