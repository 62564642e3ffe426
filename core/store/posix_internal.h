/* What the files of the posix store share. The essay on durability is in posix.c. */
#ifndef SL_STORE_POSIX_INTERNAL_H
#define SL_STORE_POSIX_INTERNAL_H

#include "core/base/fault.h"
#include "core/store/store.h"

#include <pthread.h>
#include <stdatomic.h>

#define SL_POSIX_TEMPORARY_FOLDER ".tmp"
#define SL_POSIX_KNOWN_SLOTS      1024u /* a power of two */

/* Blocks were written past the page cache and are read once: copying them through it would cost the
 * processor as much as everything else that is done with them. Tables and trailers are small. */
#define SL_POSIX_DIRECT_READ_MIN ((size_t)256 << 10)

/* What a folder is, so that another one made later under the same name is not taken for it. No
 * padding: compared as bytes. */
struct sl_folder_id {
    uint64_t device, inode;
    int64_t born_s;
    uint32_t born_ns, handle_bytes;
    uint8_t handle[128]; /* MAX_HANDLE_SZ */
};

struct sl_known_folder {
    char *path; /* owned, NULL: free slot */
    struct sl_folder_id id;
};

struct sl_sync_ring;

struct sl_posix {
    struct sl_store base;
    int root;
    bool no_proc;           /* /proc/self/fd is not there: no linking of nameless files */
    atomic_bool no_tmpfile; /* the file system has no O_TMPFILE */
    atomic_bool no_direct;  /* … no O_DIRECT */
    atomic_ulong next_temporary;
    char temporary_prefix[160];  /* ".tmp/.tmp-<host>-<boot>-<pid>-" */
    pthread_mutex_t folder_lock; /* one folder sync at a time, see publish.c; root_known, too */
    bool root_known;             /* the root's own entry is durable */
    pthread_mutex_t known_lock;
    struct sl_known_folder known[SL_POSIX_KNOWN_SLOTS];
    pthread_mutex_t ring_lock;
    struct sl_sync_ring *ring; /* for several fdatasync at once; NULL until needed */
    bool ring_failed;
};

struct sl_posix_file {
    struct sl_file base;
    int fd;               /* buffered */
    int direct_fd;        /* the same file with O_DIRECT, or -1 */
    atomic_bool direct;   /* direct_fd works */
    bool direct_reads;    /* direct_fd is for reading, else for writing */
    bool temporary;       /* not published: writable */
    char *temporary_name; /* owned; NULL: nameless */
    char *name;           /* owned: what it is or is to be, for messages */
};

static inline struct sl_posix *sl_posix_of(struct sl_store *store)
{
    return (struct sl_posix *)store;
}

static inline struct sl_posix_file *sl_posix_file_of(struct sl_file *file)
{
    return (struct sl_posix_file *)file;
}

/* Tests only, before a queue is made: no io_uring. */
void sl_store_posix_force_threads(bool force);
bool sl_store_posix_threads_forced(void);

/* --- posix.c ------------------------------------------------------------------------------------
 */

/* SL_ERR_SYNC and the reason when the store is poisoned, else 0. */
int sl_posix_refuse_poisoned(const struct sl_posix *store, struct sl_err *err);
void sl_posix_poison(struct sl_posix *store);
/* The fault point of a call that returns 0 or an errno: an errno or 0 (skip included) decided, or
 * "make the call". */
static inline bool sl_posix_fault(const char *point, int *ret_errno)
{
    int fault = sl_fault(point);
    *ret_errno = fault > 0 ? fault : 0;
    return fault != 0;
}
/* openat(2) behind a fault point, EINTR included: a descriptor (always O_CLOEXEC) or -errno. */
int sl_posix_openat(const char *point, int at, const char *path, int flags, mode_t mode);
/* The same for a name in the repository ("" is its root), through real folders only: -ENOTDIR or
 * -ELOOP if a symbolic link or a file stands in the way. What lies behind a link may be a disk that
 * is not mounted now, and what is missing there is not missing in the archive: -ENOENT comes only
 * where the folder that should hold the name is ours and there. */
int sl_posix_open_below(const char *point, const struct sl_posix *store, const char *path,
                        int flags, mode_t mode);
/* The hint for these two, to a message that is there already. */
void sl_posix_hint(int sys, struct sl_err *err);
/* … for reading what lies under a name: no link followed, no wait for a FIFO's writer. */
#define SL_POSIX_READ (O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)
/* A published name, for reading: a descriptor or a code. */
int sl_posix_open_name(const struct sl_posix *store, const char *name, struct sl_err *err);
/* The file of an open descriptor, which it takes, also when it fails. */
int sl_posix_file_new(struct sl_posix *store, int fd, const char *name,
                      struct sl_posix_file **ret_file, struct sl_err *err);
/* fsync or fdatasync behind a fault point, EINTR included: 0 or an errno. */
int sl_posix_sync_fd(const char *point, int fd, bool data_only);

/* --- temporary.c --------------------------------------------------------------------------------
 */

int sl_posix_create(struct sl_store *store, const char *name_hint, uint64_t length_hint,
                    struct sl_file **ret_file, struct sl_err *err);
void sl_posix_close(struct sl_file *file);
int sl_posix_sweep(struct sl_store *store, uint64_t age_ns, uint64_t *ret_removed,
                   struct sl_err *err);
void sl_posix_temporary_prefix(struct sl_posix *store);
/* A second descriptor of the open file, with O_DIRECT, where that can be had. Switching the flag on
 * one descriptor (F_SETFL) would race with what is queued. */
void sl_posix_open_direct(struct sl_posix_file *file);
/* Give the file the name `leaf` in the folder: 0 or an errno. */
int sl_posix_link(const struct sl_posix_file *file, int folder, const char *leaf);
/* Drop the temporary's own name, if it has one. */
void sl_posix_drop_temporary_name(struct sl_posix_file *file);

/* --- folders.c ----------------------------------------------------------------------------------
 */

/* The folder part of a name, "" for a name in the root; and what follows it. */
void sl_posix_split(const char *name, char folder[SL_STORE_NAME_MAX], const char **ret_leaf);
/* Open a folder for syncing and for names in it; with `make` missing ones are made. Returns the
 * descriptor or a code; without `make`, SL_ERR_NOT_FOUND. */
int sl_posix_folder_open(const struct sl_posix *store, const char *folder, bool make,
                         struct sl_err *err);
/* Make the entries of `folder`, of every folder above it and of the root durable, those apart that
 * are known to be. The caller holds folder_lock. */
int sl_posix_folder_entries_sync(struct sl_posix *store, const char *folder, struct sl_err *err);
/* Sync one open folder; a failure poisons the store. The caller holds folder_lock. */
int sl_posix_folder_sync(struct sl_posix *store, const char *point, int fd, const char *folder,
                         struct sl_err *err);
/* mkdir -p of the repository's root, each new entry synced. */
int sl_posix_root_make(const char *path, struct sl_err *err);

/* --- sync.c -------------------------------------------------------------------------------------
 */

/* fdatasync of several files, at the same time if that can be had; results[i] is 0 or an errno. */
void sl_posix_sync_files(struct sl_posix *store, const int *fds, int *results, size_t count);
void sl_posix_sync_ring_free(struct sl_sync_ring *ring);

/* --- publish.c ----------------------------------------------------------------------------------
 */

int sl_posix_publish(struct sl_store *store, struct sl_publish *batch, size_t count);
int sl_posix_settle(struct sl_store *store, const char *name, struct sl_err *err);

/* --- transfer.c: one write or read, in as many calls as it takes --------------------------------
 */

struct sl_transfer {
    struct sl_posix_file *file;
    union {
        void *in;        /* a read's */
        const void *out; /* a write's */
    } bytes;
    size_t left;
    uint64_t offset, context;
    bool writing;
    bool was_direct; /* of the call under way */
    int code, sys;   /* the end */
    int fault;       /* decided by a fault point in place of the call under way */
    struct sl_transfer *next;
};

/* Choose the descriptor of the next call. */
int sl_transfer_fd(struct sl_transfer *t);
/* The fault point of the next call: true when its result (in *ret) is decided. */
bool sl_transfer_fault(const struct sl_transfer *t, ssize_t *ret);
/* The next call, blocking: a count or -errno. */
ssize_t sl_transfer_call(struct sl_transfer *t);
/* Take a call's result. True when the transfer has ended (code, sys), false: another call. */
bool sl_transfer_step(struct sl_transfer *t, ssize_t result);

int sl_posix_write(struct sl_file *file, const void *bytes, size_t count, uint64_t offset,
                   struct sl_err *err);
int sl_posix_read(struct sl_file *file, void *bytes, size_t count, uint64_t offset,
                  struct sl_err *err);
int sl_posix_truncate(struct sl_file *file, uint64_t length, struct sl_err *err);
int sl_posix_has_data(struct sl_file *file, uint64_t offset, uint64_t count, struct sl_err *err);

/* --- walk.c -------------------------------------------------------------------------------------
 */

int sl_posix_list(struct sl_store *store, const char *folder,
                  int (*visit)(void *arg, const char *name, bool is_folder, uint64_t length),
                  void *arg, struct sl_err *err);
/* The names in an open folder, sorted, `.` and `..` left out; returns owned: one block of memory.
 */
int sl_posix_names(int folder, char ***ret_names, size_t *ret_count, struct sl_err *err);

/* --- grow.c -------------------------------------------------------------------------------------
 */

int sl_posix_grow(struct sl_store *store, const char *name, struct sl_file **ret_file,
                  uint64_t *ret_length, struct sl_err *err);
int sl_posix_grow_read(struct sl_file *file, void *bytes, size_t count, uint64_t offset,
                       size_t *ret_got, struct sl_err *err);
int sl_posix_grow_sync(struct sl_file *file, struct sl_err *err);

/* --- queues -------------------------------------------------------------------------------------
 */

struct sl_queue_ops {
    void (*free)(struct sl_store_queue *queue);
    void (*submit)(struct sl_store_queue *queue, struct sl_transfer *transfer);
    int (*flush)(struct sl_store_queue *queue);
    /* The next that ended, or NULL. */
    struct sl_transfer *(*reap)(struct sl_store_queue *queue);
    /* Wait until reap() may have something. */
    void (*wait)(struct sl_store_queue *queue);
};

struct sl_posix_queue {
    struct sl_store_queue base;
    const struct sl_queue_ops *ops;
    struct sl_transfer *transfers; /* `depth` of them */
    struct sl_transfer *idle;
};

int sl_posix_queue_new(struct sl_store *store, unsigned depth, struct sl_store_queue **ret_queue,
                       struct sl_err *err);
void sl_posix_queue_free(struct sl_store_queue *queue);
int sl_posix_queue_write(struct sl_store_queue *queue, struct sl_file *file, const void *bytes,
                         size_t count, uint64_t offset, uint64_t context);
int sl_posix_queue_read(struct sl_store_queue *queue, struct sl_file *file, void *bytes,
                        size_t count, uint64_t offset, uint64_t context);
int sl_posix_queue_flush(struct sl_store_queue *queue);
size_t sl_posix_queue_reap(struct sl_store_queue *queue, struct sl_store_done *done, size_t max);

/* queue_thread.c; queue_uring.c: SL_ERR_UNSUPPORTED where io_uring cannot be had. Both return the
 * part below sl_posix_queue with `ops` and `fd` set. */
int sl_queue_thread_new(unsigned depth, struct sl_posix_queue **ret_queue, struct sl_err *err);
int sl_queue_uring_new(unsigned depth, struct sl_posix_queue **ret_queue, struct sl_err *err);

#endif
