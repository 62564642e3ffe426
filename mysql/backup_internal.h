/* A backup under way: shared by backup.c (the order of things), backup_base.c (what it builds on),
 * backup_tool.c (the program and what it says), backup_streams.c (its streams) and
 * backup_manifest.c (open and manifest). */
#ifndef SL_MYSQL_BACKUP_INTERNAL_H
#define SL_MYSQL_BACKUP_INTERNAL_H

#include "core/base/child.h"
#include "mysql/catalog.h"
#include "mysql/coordinates.h"
#include "mysql/repository.h"
#include "mysql/server.h"
#include "mysql/xbstream.h"

#define SL_MY_STREAM_ENTRY "xbstream" /* of the second stream: xbstream-02 */
#define SL_MY_STREAMS_MAX  64u
#define SL_MY_FOLDER_BYTES 64

struct sl_my_backup {
    struct sl_invocation *invocation;
    struct sl_my_repository repository;
    struct sl_my_server server;
    char kind;                  /* 'F', 'D', 'I' */
    struct sl_my_manifest base; /* what it builds on; no parts: nothing */
    uint64_t base_lsn;
    unsigned streams;
    struct sl_my_coordinates coordinates;
    struct sl_my_xb_totals totals;
    struct sl_stored stored[SL_MY_STREAMS_MAX]; /* the streams */
    uint64_t stored_bytes;
    char label[SL_LABEL_MAX];
    uint64_t start_ns, stop_ns; /* wall clock of this host */
    unsigned timeout_ms;
};

static inline sl_deadline sl_my_backup_deadline(const struct sl_my_backup *b)
{
    return sl_deadline_in_ms(b->timeout_ms);
}

/* "full", "diff", "incr" */
const char *sl_my_backup_type(const struct sl_my_backup *b);
/* Sets kind, base and base_lsn as --type asks. A full one is made, and said, when there is nothing
 * to build on. */
int sl_my_backup_choose(struct sl_my_backup *b, struct sl_err *err);
/* "backup/LABEL/xbstream" of the stream with this number (from 0). */
void sl_my_backup_object(const struct sl_my_backup *b, unsigned number, char name[SL_NAME_MAX]);
/* Claims a label: publishes backup/LABEL/open; then sees that its base is not being removed. */
int sl_my_backup_open(struct sl_my_backup *b, struct sl_err *err);
/* Runs the tool and stores its streams; sets coordinates, totals and stored. Without error all of
 * this holds: the tool ended with 0, said "completed OK!" last, the streams were whole and have the
 * tool's own account of the backup, which begins where the base ended. */
int sl_my_backup_stream(struct sl_my_backup *b, struct sl_err *err);
/* Publishes the manifest: the backup exists. */
int sl_my_backup_publish(struct sl_my_backup *b, struct sl_err *err);

/* --- streams ---------------------------------------------------------------------------------- */

/* One stream of the tool on its way into one object, by a thread of its own. */
struct sl_my_streams;

/* Reads from the child's output, or with more than one stream from the pipes FOLDER/thread_0 and so
 * on that the tool makes (XtraBackup's --fifo-streams), once they are there. `keep` as in
 * xbstream.h. The threads run when this returns 0. */
int sl_my_streams_start(struct sl_my_backup *b, const struct sl_child *child, const char *folder,
                        const char *const *keep, struct sl_my_streams **ret_streams,
                        struct sl_err *err);
int sl_my_streams_fd(const struct sl_my_streams *s); /* readable when one has ended */
/* How many have not ended; `*ret_code` is that of the first that failed, or 0. */
unsigned sl_my_streams_left(struct sl_my_streams *s, int *ret_code);
/* No writer will come any more: streams that never had one end now. */
void sl_my_streams_no_writer(struct sl_my_streams *s);
/* Waits for the threads; the first failure; adds up totals. */
int sl_my_streams_join(struct sl_my_streams *s, struct sl_my_xb_totals *ret_totals,
                       struct sl_err *err);
/* After join: did all of them end where a stream may end? */
int sl_my_streams_whole(const struct sl_my_streams *s, struct sl_err *err);
/* After join: the content of a small file of any stream, or NULL. */
const char *sl_my_streams_kept(const struct sl_my_streams *s, const char *name);
/* After join: publishes them all; of one that is empty `length` is 0, and there is no object. */
int sl_my_streams_commit(struct sl_my_streams *s, struct sl_stored *ret_stored, struct sl_err *err);
/* Aborts what was not committed. Threads must have been joined. NULL ok. */
void sl_my_streams_free(struct sl_my_streams *s);

#endif
