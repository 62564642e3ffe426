/* Streams: what `sluice push` stores and `sluice pull` gives back, whatever it holds, and the way
 * of a pipe's bytes into an object, which engines use for the tools that they run.
 *
 * A stream is one object, stream/NAME: blocks of it travel over all lanes, it appears at once or
 * not at all, and nothing of a failed one remains.
 */
#ifndef SL_CLI_STREAM_H
#define SL_CLI_STREAM_H

#include "core/base/child.h"
#include "core/client/client.h"
#include "core/plugin/engine.h"

#define SL_STREAM_FOLDER   "stream"
#define SL_STREAM_NAME_MAX 200

/* The object's name of invocation->args: NAME or NAME NUMBER. */
int sl_stream_object(const struct sl_invocation *invocation, char object[SL_NAME_MAX],
                     struct sl_err *err);

/* Where an upload's bytes come from. */
struct sl_stream_source {
    int fd;            /* read to its end */
    int side_fd;       /* the same program's standard error, read meanwhile to its end; or -1 */
    unsigned close_ms; /* how long side_fd may stay open after the end of fd */
    /* each may be NULL */
    int (*bytes)(void *arg, const void *bytes, size_t count, struct sl_err *err);
    void (*side)(void *arg, const char *text, size_t count);
    void *arg;
    struct sl_progress *progress;
};

/* Copies until the end. A stop (core/base/stop.h), a failed upload, a failed read and a code of
 * bytes() end it before; it does not wait on a dead session for a source that is silent. How long
 * the source is silent is its own affair. Neither commits nor aborts. */
int sl_stream_copy(const struct sl_stream_source *source, struct sl_upload *upload,
                   struct sl_err *err);

/* Where a stream goes to. */
struct sl_stream_sink {
    int fd;
    const char *what;    /* "standard output", for messages */
    unsigned timeout_ms; /* without a block from the target; a slow reader is no failure */
    struct sl_progress *progress;
};

/* Writes an object (whose digest is `expect`, if not NULL) from its first byte to its last; only
 * blocks that were checked. A stop ends it, also while the reader is slow (of a pipe). SL_ERR_WRITE
 * when the reader is gone. Does not close sink->fd. */
int sl_stream_write(const struct sl_stream_sink *sink, struct sl_client *client, const char *object,
                    const struct sl_id *expect, struct sl_err *err);

/* Checks that the stanza is in the repository: streams of a mistyped one would go astray. */
int sl_stream_stanza(struct sl_client *client, const char *stanza, sl_deadline deadline,
                     struct sl_err *err);

/* For info: an array of {"name", "size", "created", "created-text", "creator"}, in the order of
 * names; returns owned. */
int sl_stream_list(struct sl_client *client, sl_deadline deadline, json_t **ret_list,
                   struct sl_err *err);
void sl_stream_print(const json_t *list);

#endif
