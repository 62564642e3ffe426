/* The client: one session with a target, its slots, and the pipeline on the database host.
 *
 * A client opens a session (TLS to a daemon, or a target embedded in this process), registers its
 * slots, makes lanes and keeps them alive. Workers then upload and download objects. Every call
 * has a deadline, and no call outlives it.
 *
 * Loss: a lost lane is replaced behind the scenes and its blocks are moved by other lanes. A lost
 * session fails every upload and download in progress with a retryable code; the next call that
 * needs a session makes a new one (with back-off, until its deadline). The caller does the work
 * over: a segment, or the pack that a worker was filling. What was STORED stays stored.
 *
 * Threads of its own, for each session: one for control and heartbeats, one that serves the lanes,
 * one that makes lanes (connecting blocks). Calls may come from any thread; one upload or download
 * is used by one thread at a time. Never call from code inside a database server that forks
 * afterwards.
 *
 * Slots are few and shared: who waits for one is served in order of arrival. An upload holds one
 * from sl_upload_space() until its block is full (not when lanes are sealed), so a thread should
 * not leave half-filled blocks lying about in many uploads. Read-ahead leaves slots for others.
 */
#ifndef SL_CLIENT_CLIENT_H
#define SL_CLIENT_CLIENT_H

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/progress.h"
#include "core/object/codec.h"
#include "core/session/control.h"
#include "core/session/embedded.h"
#include "core/transport/lane.h"

struct sl_client;

/* What a session is mostly for. Both can be done in any; the slots are shared out accordingly,
 * since each is registered either for the target to read or for it to write, never both: what backs
 * a database up lets the target write into no more than a sixteenth of its slots. */
enum sl_client_use { SL_CLIENT_STORES, SL_CLIENT_READS };

struct sl_client_config {
    const char *stanza;
    /* one of the two */
    const char *const *hosts;           /* "backup1:7430", NULL-terminated, tried in order */
    const struct sl_embedded *embedded; /* borrows what it names; the struct is copied */
    /* with hosts */
    struct sl_tls *tls;   /* borrows */
    const char *tls_name; /* NULL: the host part */
    enum sl_transport_kind transport;
    const struct sl_transport_plugin *rdma; /* NULL: none, `rdma_note` says why */
    const char *rdma_note;
    const char *bind_address;
    int traffic_class; /* -1: leave alone */
    /* both */
    enum sl_seal_kind seal;       /* AUTO: on over TCP, off over RDMA and embedded */
    enum sl_codec codec;          /* how blocks are packed where that helps; plain: not at all */
    int codec_level;              /* of `codec` */
    unsigned lanes;               /* 0: 4 over RDMA, 2 over TCP, 2 embedded */
    unsigned depth;               /* 0: 16 */
    enum sl_client_use use;       /* how the slots are shared out */
    size_t slot_bytes_total;      /* 0: min(64 MiB, memlock − reserve), see sl_slots_choose() */
    unsigned connect_ms;          /* 0: 10 s: one attempt */
    unsigned io_ms;               /* 0: 60 s: no progress on a call for so long fails it */
    struct sl_progress *progress; /* borrows; stages are measured into it; NULL */
    /* sl_client_open() connects nothing: the first call that needs a session does, trying each host
     * once. For who wants to be able to cancel that. */
    bool lazy;
};

/* What the session came to: for `check`, the log and JSON. */
struct sl_client_info {
    enum sl_transport_kind transport;
    char transport_why[200]; /* "auto: both sides have RDMA", "auto: no RDMA device here: …" */
    bool sealed;
    char host[128], software[64], store[64], rdma_note[160];
    struct sl_id repository;
    uint64_t digest_seed;
    int64_t clock_skew_ms; /* target − client */
    unsigned lanes, slots;
    struct sl_lane_info lane; /* of the first */
};

/* How many slots to have: as many as `wanted_bytes` (0: 64 MiB) give, at least 4, at most 1024;
 * over RDMA not more than RLIMIT_MEMLOCK lets be registered less 1 MiB for queues (no limit with
 * CAP_IPC_LOCK). SL_ERR_LIMIT, with the figure needed, when even 4 do not fit. */
int sl_slots_choose(bool rdma, size_t wanted_bytes, uint32_t *ret_slots, struct sl_err *err);

/* Opens the first session (unless lazy); returns owned. Each host is tried once; blocks until
 * `deadline` at the longest. The strings of `config` are copied. */
int sl_client_open(const struct sl_client_config *config, sl_deadline deadline,
                   struct sl_client **ret_client, struct sl_err *err);
/* Says BYE, ends the threads. Uploads and downloads must have been freed before. NULL ok. */
void sl_client_close(struct sl_client *client);
void sl_client_info(struct sl_client *client, struct sl_client_info *info);
/* Makes every call in progress and every later one fail with SL_ERR_CANCELLED. Async-signal-safe
 * (one write to an eventfd). */
void sl_client_cancel(struct sl_client *client);

/* --- uploads --------------------------------------------------------------------------------- */

struct sl_upload;

struct sl_stored {
    enum sl_outcome outcome;
    struct sl_id digest;
    uint64_t length;
    uint64_t stored_bytes; /* what was sent for it: compressed, without holes */
};

/* Begin an object; nothing is visible until commit. Names: see sl_store_name_check(). */
int sl_upload_begin(struct sl_client *client, const char *name, uint64_t length_hint,
                    sl_deadline deadline, struct sl_upload **ret_upload, struct sl_err *err);
/* Where to put the next bytes: `*ret_room` > 0 bytes at `*ret_at`, valid until the next call.
 * Blocks for a slot. The bytes go straight into a slot, or into a private buffer when lanes are
 * sealed or blocks are packed. sl_upload_advance(n) says that n of them were filled; a full block
 * is digested, packed, sealed and offered there. */
int sl_upload_space(struct sl_upload *upload, uint8_t **ret_at, size_t *ret_room,
                    struct sl_err *err);
int sl_upload_advance(struct sl_upload *upload, size_t filled, struct sl_err *err);
/* The same by copying. */
int sl_upload_write(struct sl_upload *upload, const void *bytes, size_t count, struct sl_err *err);
uint64_t sl_upload_length(const struct sl_upload *upload); /* bytes so far */
/* May it still become an object? 0, or why not (a lost session, the target's complaint): for who
 * waits long for the next bytes. Does not block. */
int sl_upload_check(struct sl_upload *upload, struct sl_err *err);
/* Publish; blocks until STORED. The last `index_bytes` are an index. Frees the upload in any
 * case. SL_ERR_EXISTS: the name holds other content; the message has both digests. */
int sl_upload_commit(struct sl_upload *upload, uint64_t index_bytes, sl_deadline deadline,
                     struct sl_stored *ret_stored, struct sl_err *err);
void sl_upload_abort(struct sl_upload *upload); /* frees; NULL ok */

/* --- growing objects ------------------------------------------------------------------------- */

/* An object that grows for hours and is durable as it grows (core/repo/grow.h). Until it is sealed
 * it is read under its name with ".growing" behind it, like a published one, as far as it is then.
 */
struct sl_grow;

/* Begins it, or continues it: `*ret_length` bytes of it are there and durable, up to its last mark;
 * what was behind that is gone. `known`: so much this client knows to be durable (else 0); less is
 * an error (SL_ERR_CHECKSUM). While another writes it, asks again until `deadline`; then
 * SL_ERR_BUSY. SL_ERR_EXISTS: it has been sealed. SL_ERR_UNSUPPORTED: the target's store cannot. */
int sl_grow_open(struct sl_client *client, const char *name, uint64_t known, sl_deadline deadline,
                 struct sl_grow **ret_grow, uint64_t *ret_length, struct sl_err *err);
/* Sends `count` (1..SL_BLOCK_BYTES) bytes to be put behind what is there; `mark`: it may be
 * continued behind them. Waits for a slot, and for the target when too much is under way. */
int sl_grow_append(struct sl_grow *grow, const void *bytes, size_t count, bool mark,
                   struct sl_err *err);
/* How much is durable now; or why it cannot grow any more. Does not block. */
int sl_grow_durable(struct sl_grow *grow, uint64_t *ret_durable, struct sl_err *err);
/* A descriptor that polls readable when sl_grow_durable() may say something else than before;
 * sl_grow_durable() empties it. */
int sl_grow_fd(const struct sl_grow *grow);
/* Waits until all that was appended is durable. */
int sl_grow_wait(struct sl_grow *grow, sl_deadline deadline, struct sl_err *err);
/* Waits for that, then has it published; blocks until STORED. Frees it in any case. */
int sl_grow_seal(struct sl_grow *grow, sl_deadline deadline, struct sl_stored *ret_stored,
                 struct sl_err *err);
/* It stays as far as it is durable, to be continued. Frees; NULL ok. */
void sl_grow_close(struct sl_grow *grow);

/* --- downloads ------------------------------------------------------------------------------- */

struct sl_download;

struct sl_object_info {
    uint64_t length, index_bytes, created_ns;
    struct sl_id digest;
    char creator[64];
};

/* Opens a published object; its leaf digests are fetched and checked against its content digest
 * (and against `expect`, if not NULL: the digest a manifest names). */
int sl_download_open(struct sl_client *client, const char *name, const struct sl_id *expect,
                     sl_deadline deadline, struct sl_download **ret_download,
                     struct sl_object_info *ret_info, struct sl_err *err);
/* What sl_download_next() gives from now on: blocks [first, first + count), in this order. As many
 * as the slots allow are asked for at once; what an earlier range had not given yet is dropped.
 * Optional: a new download gives all blocks. SL_ERR_USAGE when the object has not so many. */
int sl_download_range(struct sl_download *download, uint32_t first, uint32_t count,
                      struct sl_err *err);
/* The next block of the range: checked against its leaf digest, unsealed, decoded. `*ret_bytes`
 * stay valid until the next call on this download. Returns 1, 0 at the range's end, or a code. */
int sl_download_next(struct sl_download *download, uint32_t *ret_block, const uint8_t **ret_bytes,
                     size_t *ret_count, sl_deadline deadline, struct sl_err *err);
void sl_download_close(struct sl_download *download); /* NULL ok */
/* A small object whole (at most `max` bytes); returns owned (sl_free), NUL added after the end. A
 * session that is lost meanwhile is begun anew, here and in all that follows but verify. */
int sl_client_fetch(struct sl_client *client, const char *name, size_t max, sl_deadline deadline,
                    char **ret_bytes, size_t *ret_count, struct sl_err *err);
/* A small object from memory: begin, write, commit. */
int sl_client_put(struct sl_client *client, const char *name, const void *bytes, size_t count,
                  sl_deadline deadline, struct sl_stored *ret_stored, struct sl_err *err);

/* --- questions ------------------------------------------------------------------------------- */

/* 1 there, 0 not, or a code. */
int sl_client_stat(struct sl_client *client, const char *name, sl_deadline deadline,
                   struct sl_object_info *ret_info, struct sl_err *err);
/* Names in `folder` greater than `after`, in bytewise order, all of them (it asks in pages). What
 * `visit` returns other than 0 ends the listing and is returned; `err` is then the visitor's. */
int sl_client_list(struct sl_client *client, const char *folder, const char *after,
                   int (*visit)(void *arg, const struct sl_entry *entry), void *arg,
                   sl_deadline deadline, struct sl_err *err);
int sl_client_space(struct sl_client *client, sl_deadline deadline, uint64_t *ret_free,
                    uint64_t *ret_total, struct sl_err *err);

/* Deletes an object; success also when it is not there. Folders that become empty go with it.
 * SL_ERR_DENIED unless this client has the role (sluiced: expire-clients), or the object is a lease
 * (SL_LEASE_PREFIX) that this client has made. Not durable by itself, but never out of order: after
 * a power cut a removal is there only if the earlier ones of this target are. */
int sl_client_remove(struct sl_client *client, const char *name, sl_deadline deadline,
                     struct sl_err *err);
/* Deletes what broken-off writers left (store temporaries) and has not been written to for so long
 * (at least an hour). The same role. */
int sl_client_sweep(struct sl_client *client, uint64_t age_ns, sl_deadline deadline,
                    uint64_t *ret_removed, struct sl_err *err);

struct sl_verify_progress {
    uint64_t objects, bytes, damaged, total_bytes;
};
/* Has the target check every object below `folder` ("" the stanza). `damage` is called for each bad
 * one. Deadline is for silence, not the whole. */
int sl_client_verify(struct sl_client *client, const char *folder,
                     void (*damage)(void *arg, const char *name, int code, const char *text),
                     void (*step)(void *arg, const struct sl_verify_progress *progress), void *arg,
                     struct sl_verify_progress *ret_total, struct sl_err *err);

#endif
