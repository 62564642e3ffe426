/* The repository: named objects of a store, made and read in the object format.
 *
 * Publication is in one place: sl_repo_publish(). It finishes the files (footer, trailer), has the
 * store sync and name them, and for each name that was taken compares content digest and length,
 * settles it and answers "identical" or SL_ERR_EXISTS with both digests, by whom and when.
 *
 * Threads: a sl_repo may be used by many; a draft or an opened object by one at a time. All but
 * sl_draft_block, sl_draft_finish and sl_object_block_check may block on the disk.
 */
#ifndef SL_REPO_REPO_H
#define SL_REPO_REPO_H

#include "core/object/object.h"
#include "core/store/store.h"
#include "core/wire/message.h"

struct sl_repo {
    struct sl_store *store; /* borrows */
    struct sl_id uuid;
    uint64_t digest_seed;
    bool settled; /* sl_repo_publish's: repo.json is known to be durable */
};

/* Opens the repository in a store; with `create` an empty store becomes one (repo.json, written
 * by an exclusive create: of two that race, one wins and both use it). A store that holds
 * something else is SL_ERR_REPO, an empty one without `create` SL_ERR_NOT_FOUND. Returns owned
 * (sl_repo_close); the store stays the caller's. */
int sl_repo_open(struct sl_store *store, bool create, struct sl_repo **ret_repo,
                 struct sl_err *err);
void sl_repo_close(struct sl_repo *repo);

/* "<stanza>/<name>" checked and joined. SL_ERR_USAGE for names a peer may not use. */
int sl_repo_name(const char *stanza, const char *name, bool allow_empty,
                 char full[SL_FULL_NAME_MAX], struct sl_err *err);

/* --- writing --------------------------------------------------------------------------------- */

/* An object under construction. Blocks come in any order. Not thread-safe by itself. */
struct sl_object_draft;

int sl_draft_new(struct sl_repo *repo, const char *full_name, uint64_t length_hint,
                 const char *creator, struct sl_object_draft **ret_draft, struct sl_err *err);
void sl_draft_free(struct sl_object_draft *draft);            /* drops the temporary; NULL ok */
struct sl_file *sl_draft_file(struct sl_object_draft *draft); /* for queue_write */
/* Enters a block in the table and says where in the file its stored bytes go (written by the
 * caller, padded with zeros to 4096). Zero blocks get no place (`*ret_offset` = 0); that their
 * digest is that of zeros is checked here. Refuses a block that was entered before, bad lengths and
 * codecs, and one that is more than 4096 ahead of the number of blocks entered (SL_ERR_PROTOCOL).
 * From the first compressed block on, and up to it, blocks come in order. */
int sl_draft_block(struct sl_object_draft *draft, const struct sl_offer *block,
                   uint64_t *ret_offset, struct sl_err *err);
/* All blocks are written: check that none is missing, that lengths fit, that the digest is
 * `expect` (computed here from the leaves), and fix the trailer. Touches no disk. SL_ERR_PROTOCOL,
 * or SL_ERR_CHECKSUM when the digest is another. */
int sl_draft_finish(struct sl_object_draft *draft, uint64_t length, uint64_t index_bytes,
                    const struct sl_id *expect, struct sl_err *err);

struct sl_repo_publish {
    struct sl_object_draft *draft; /* finished; borrows */
    enum sl_outcome outcome;       /* when code is 0 */
    struct sl_id digest;
    int code; /* 0 or why not (then err is set) */
    struct sl_err err;
};
/* Blocks on the disk. The batch's items share their syncs and succeed or fail each by itself.
 * SL_ERR_EXISTS: the name holds other content. SL_ERR_CHECKSUM, _FORMAT, _REPO, …: it is taken by
 * something damaged or foreign, which is never overwritten. "Identical" is answered only after the
 * whole of what is there was read, checked and settled. */
void sl_repo_publish(struct sl_repo *repo, struct sl_repo_publish *batch, size_t count);
/* A small object from memory: for repo.json, tests and tools. `creator` and `ret_outcome` may be
 * NULL. */
int sl_repo_put(struct sl_repo *repo, const char *full_name, const void *bytes, size_t count,
                const char *creator, enum sl_outcome *ret_outcome, struct sl_err *err);

/* --- reading --------------------------------------------------------------------------------- */

/* A published object, opened: trailer and footer were read and checked, its name and repository
 * are the ones asked for. */
struct sl_object {
    struct sl_repo *repo;
    struct sl_file *file;
    uint64_t file_bytes;
    struct sl_trailer trailer;
    struct sl_block *table;       /* trailer.blocks entries */
    struct sl_unpacker *unpacker; /* with `packed`, from the first compressed block on */
    void *packed;
};

int sl_object_open(struct sl_repo *repo, const char *full_name, struct sl_object **ret_object,
                   struct sl_err *err);
void sl_object_close(struct sl_object *object); /* NULL ok */
/* The trailer only (stat). */
int sl_object_stat(struct sl_repo *repo, const char *full_name, struct sl_trailer *ret_trailer,
                   struct sl_err *err);
/* For readers with a queue: are these the stored bytes of block `index` (not a zero block), with
 * their padding up to 4096? 0, SL_ERR_CHECKSUM or SL_ERR_FORMAT. */
int sl_object_block_check(const struct sl_object *object, uint32_t index, const void *bytes,
                          struct sl_err *err);
/* Block `index`, checked against its stored digest, unpacked, checked against its
 * leaf digest. `to` has room for SL_BLOCK_BYTES, aligned to SL_STORE_ALIGN. */
int sl_object_block(struct sl_object *object, uint32_t index, void *to, size_t *ret_bytes,
                    struct sl_err *err);
/* The whole object in memory, at most `max` bytes; returns owned, NUL after the end. */
int sl_repo_fetch(struct sl_repo *repo, const char *full_name, size_t max, char **ret_bytes,
                  size_t *ret_count, struct sl_err *err);

/* --- checking -------------------------------------------------------------------------------- */

struct sl_repo_verify {
    /* each may be NULL; `damage` once a bad object (a pack that is missing or wrong: once a
     * manifest that names it); `step` after each object and each block; a nonzero return of step
     * ends the walk with that code */
    void (*damage)(void *arg, const char *name, int code, const char *text);
    int (*step)(void *arg, uint64_t objects, uint64_t bytes, uint64_t damaged);
    void *arg;
    uint64_t objects, bytes, damaged; /* results; bytes of files, as list() tells them */
};
/* Checks every file below `folder` (a full name; a stanza, or one object): format, name,
 * repository, every block and hole, padding. A file that is no object is damage too (temporaries
 * left out). Backups are checked as wholes: the manifest parses, its SHA-256 fits, each extent lies
 * in a pack that is there with the digest the manifest names. A file that cannot be read is damage.
 * Packs of a backup without manifest are none, but logged. Returns 0 even with damage; a code only
 * when the walk itself failed, or SL_ERR_NOT_FOUND when there is nothing of that name. */
int sl_repo_verify(struct sl_repo *repo, const char *folder, struct sl_repo_verify *verify,
                   struct sl_err *err);

#endif
