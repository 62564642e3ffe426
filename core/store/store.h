/* The store contract: the driver under a repository. posix is the first; rados and s3 follow the
 * same contract as plugins.
 *
 * A store keeps immutable named things ("files" here, whatever they are below) and publishes each
 * under its name exactly once:
 *
 *   1. create()   a nameless temporary
 *   2. write()    anywhere in it, in any order (posix: O_DIRECT when offset, length and memory are
 *                 multiples of SL_STORE_ALIGN, buffered otherwise)
 *   3. publish()  a batch: sync all of them, give each its name only if that is free, make the
 *                 names durable. Answers per file SL_PUBLISH_CREATED or SL_PUBLISH_TAKEN. A file
 *                 is never visible under its name before its bytes are durable, and no success is
 *                 answered before name and bytes are.
 *   4. settle()   for a name that was taken: sync that file and its folder, because another writer
 *                 may have linked without having synced yet. Whoever answers "it is there" for a
 *                 name it did not create calls this first.
 *
 * After a failed file sync the temporary is worthless (the kernel may have dropped the pages and
 * cleared the error): the object is rewritten from its source, never synced again. After a failed
 * folder sync, and after a failed settle(), the store refuses writes until reopened
 * (store->poisoned).
 *
 * Names are relative paths, components of 1..255 bytes from [A-Za-z0-9._+=@:-] (no component
 * begins with '.'), shorter than SL_STORE_NAME_MAX in all: sl_store_name_check(). Every function
 * that takes a name checks it. Folders are made as needed.
 *
 * Threads: every function may be called from any thread, but one sl_file or sl_store_queue is used
 * by one thread at a time. Functions block on the disk, but those of sl_store_queue.
 */
#ifndef SL_STORE_STORE_H
#define SL_STORE_STORE_H

#include "core/base/clock.h"
#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SL_STORE_ALIGN    4096u
#define SL_STORE_NAME_MAX 576 /* with the NUL; a stanza, '/', and a name of the wire */

#define SL_STORE_CAN_GROW 0x1u /* has grow(), grow_read() and grow_sync() */

struct sl_store;
struct sl_file;
struct sl_store_queue;

enum sl_publish_result { SL_PUBLISH_FAILED, SL_PUBLISH_CREATED, SL_PUBLISH_TAKEN };

/* One file of a publish() batch. */
struct sl_publish {
    struct sl_file *file; /* borrows; after publish() only sl_file_close() is allowed on it */
    const char *name;     /* borrows */
    enum sl_publish_result result;
    struct sl_err err; /* when FAILED */
};

/* What a queue finished. */
struct sl_store_done {
    uint64_t context;
    int code; /* 0 or why not */
    int sys;  /* errno of a failure */
};

struct sl_store_ops {
    const char *name;
    void (*free)(struct sl_store *store);

    /* `name_hint` is for messages, or NULL. `length_hint`: the length to expect, 0: unknown. A file
     * with a hint may be that long from the start: truncate() must be called before publish(). */
    int (*create)(struct sl_store *store, const char *name_hint, uint64_t length_hint,
                  struct sl_file **ret_file, struct sl_err *err);
    int (*write)(struct sl_file *file, const void *bytes, size_t count, uint64_t offset,
                 struct sl_err *err);
    /* Set the length (a trailing hole is a hole), before publish. */
    int (*truncate)(struct sl_file *file, uint64_t length, struct sl_err *err);
    /* Results are in the batch. Returns 0 when every item has CREATED or TAKEN. */
    int (*publish)(struct sl_store *store, struct sl_publish *batch, size_t count);
    int (*settle)(struct sl_store *store, const char *name, struct sl_err *err);

    int (*open)(struct sl_store *store, const char *name, struct sl_file **ret_file,
                uint64_t *ret_length, struct sl_err *err); /* SL_ERR_NOT_FOUND if it is not there */
    /* Reads exactly `count` bytes; a short file is SL_ERR_FORMAT. */
    int (*read)(struct sl_file *file, void *bytes, size_t count, uint64_t offset,
                struct sl_err *err);
    /* Is there anything but a hole in this range? (for checks of zero blocks) 1, 0, or a code; a
     * store that cannot tell says 1. */
    int (*has_data)(struct sl_file *file, uint64_t offset, uint64_t count, struct sl_err *err);
    void (*close)(struct sl_file *file); /* drops a temporary; NULL allowed */

    /* Calls visit() for each name in `folder` in bytewise order, temporaries left out; a folder
     * that does not exist has none. visit() returning nonzero ends the listing with that value. */
    int (*list)(struct sl_store *store, const char *folder,
                int (*visit)(void *arg, const char *name, bool is_folder, uint64_t length),
                void *arg, struct sl_err *err);
    int (*space)(struct sl_store *store, uint64_t *ret_free, uint64_t *ret_total,
                 struct sl_err *err);
    /* Deletes a name or an empty folder (role "expire"). 0 also when it is not there;
     * SL_ERR_NOT_EMPTY. Not synced: after a power cut the name may be there again, but later
     * changes are not there without earlier ones. */
    int (*remove)(struct sl_store *store, const char *name, struct sl_err *err);
    /* Removes named temporaries not written to for `age_ns`. */
    int (*sweep)(struct sl_store *store, uint64_t age_ns, uint64_t *ret_removed,
                 struct sl_err *err);

    /* With SL_STORE_CAN_GROW, else NULL. grow() opens a published file to be written on with
     * write() and truncate(): by one writer at a time, of all processes (SL_ERR_BUSY). It ends with
     * close(). grow_sync() makes durable what was written; once it has failed, the file must be
     * closed, and opened and read anew. grow_read() reads from any opened file what the disk has,
     * not what a cache thinks that it has (posix: O_DIRECT where that can be had); `bytes`, `count`
     * and `offset` are multiples of SL_STORE_ALIGN; `*ret_got` is less than `count` at the end. */
    int (*grow)(struct sl_store *store, const char *name, struct sl_file **ret_file,
                uint64_t *ret_length, struct sl_err *err); /* SL_ERR_NOT_FOUND */
    int (*grow_read)(struct sl_file *file, void *bytes, size_t count, uint64_t offset,
                     size_t *ret_got, struct sl_err *err);
    int (*grow_sync)(struct sl_file *file, struct sl_err *err);

    /* Asynchronous writes and reads for one event loop (posix: io_uring, else a helper thread).
     * `fd` of the queue polls readable when reap() has something. Memory must stay until reaped,
     * and the file open. Nothing is sure to begin before flush(); reap() continues what was cut
     * short and returns how many ended, in any order. Submit functions: 0, or SL_ERR_BUSY when
     * `depth` are in flight, or SL_ERR_SYNC on a poisoned store. Queue writes need not be aligned;
     * aligned ones, and big aligned reads, are direct. A read behind the file's end is
     * SL_ERR_FORMAT. */
    int (*queue_new)(struct sl_store *store, unsigned depth, struct sl_store_queue **ret_queue,
                     struct sl_err *err);
    void (*queue_free)(struct sl_store_queue *queue); /* waits for what is in flight */
    int (*queue_write)(struct sl_store_queue *queue, struct sl_file *file, const void *bytes,
                       size_t count, uint64_t offset, uint64_t context);
    int (*queue_read)(struct sl_store_queue *queue, struct sl_file *file, void *bytes, size_t count,
                      uint64_t offset, uint64_t context);
    int (*queue_flush)(struct sl_store_queue *queue); /* hand submissions to the kernel */
    size_t (*queue_reap)(struct sl_store_queue *queue, struct sl_store_done *done, size_t max);
};

struct sl_store {
    const struct sl_store_ops *ops;
    unsigned caps;
    char label[256]; /* "posix /var/lib/sluice" for messages */
    bool poisoned;   /* a folder sync failed; writes are refused (read with sl_store_poisoned) */
};

static inline bool sl_store_poisoned(const struct sl_store *store)
{
    return __atomic_load_n(&store->poisoned, __ATOMIC_ACQUIRE);
}

struct sl_file {
    struct sl_store *store;
};

struct sl_store_queue {
    struct sl_store *store;
    int fd;
    unsigned depth, in_flight;
};

/* 0, or SL_ERR_USAGE naming what is wrong with a name that came from a peer or a user. "" is
 * accepted only with `allow_empty` (the root, for list). */
int sl_store_name_check(const char *name, bool allow_empty, struct sl_err *err);

/* The posix driver on the folder `path`. `create` makes the folder (and parents) if it is not
 * there. SL_ERR_OPEN when it is not there or cannot be used. Freed with ops->free, after its files
 * and queues.
 *
 * Fault points: posix.open (a file, a folder) posix.tmpfile posix.named (a named temporary)
 * posix.direct (its second descriptor, for O_DIRECT) posix.pwrite posix.truncate posix.fdatasync
 * posix.mkdir posix.link posix.stat posix.syncdir (folder of the name) posix.syncparent (the folder
 * that holds a folder's entry) posix.settle_file posix.settle_dir posix.pread posix.seek posix.list
 * posix.space posix.unlink posix.uring posix.eventfd posix.grow (its opening) posix.grow_lock
 * posix.grow_sync. `skip` at a sync pretends it was done. */
int sl_store_posix_open(const char *path, bool create, struct sl_store **ret_store,
                        struct sl_err *err);

#endif
