/* Growing objects: content that comes for hours, and is durable as it comes. What was appended lies
 * in a journal, "<name>.growing" (core/object/journal.h), until sl_growing_seal() publishes all of
 * it as a plain object under "<name>" and removes the journal.
 *
 * Continuing one finds the records that are whole. One that is not ends the journal there, and what
 * is behind it is cut off: a write that power cut short. But a damaged record of which a later
 * one, or the client, says that it was durable is an error that names it: nothing is cut then.
 *
 * Threads: a sl_growing is used by one at a time; everything may block on the disk.
 */
#ifndef SL_REPO_GROW_H
#define SL_REPO_GROW_H

#include "core/object/codec.h"
#include "core/object/journal.h"
#include "core/repo/repo.h"

struct sl_growing;

/* Opens it for writing, or makes it. `full_name` without suffix. What lies behind the last record
 * with SL_JOURNAL_MARK is dropped; all that is left is durable. `known`: so much the client knows
 * to be durable. SL_ERR_BUSY: it has a writer. SL_ERR_EXISTS: the name is taken by a plain object,
 * and there is no journal. SL_ERR_UNSUPPORTED: the store cannot. SL_ERR_CHECKSUM, SL_ERR_FORMAT:
 * damage. Returns owned (sl_growing_close). */
int sl_growing_open(struct sl_repo *repo, const char *full_name, const char *creator,
                    uint64_t known, struct sl_growing **ret_growing, struct sl_err *err);
void sl_growing_close(struct sl_growing *growing);             /* NULL ok */
uint64_t sl_growing_length(const struct sl_growing *growing);  /* of the content */
uint64_t sl_growing_durable(const struct sl_growing *growing); /* so much of it */
/* Writes `count` (1..SL_BLOCK_BYTES) bytes behind what is there; `digest` is theirs, checked by the
 * caller. Behind them there is room for SL_JOURNAL_ALIGN - 1 bytes, which are zero. Not durable
 * yet. After a failure of this or of sl_growing_sync() nothing is left but to close it. */
int sl_growing_append(struct sl_growing *growing, const void *bytes, uint32_t count, uint8_t flags,
                      const struct sl_id *digest, struct sl_err *err);
int sl_growing_sync(struct sl_growing *growing, struct sl_err *err);
/* Publishes the content, of `length` bytes, all durable, and removes the journal. Blocks are
 * packed by `codec` where that helps. SL_ERR_EXISTS: the name holds other content; the journal
 * stays. Only closing is allowed afterwards, if it succeeds. */
int sl_growing_seal(struct sl_growing *growing, uint64_t length, enum sl_codec codec, int level,
                    enum sl_outcome *ret_outcome, struct sl_id *ret_digest, struct sl_err *err);

/* For readers, by the journal's own name, "….growing"; it may have a writer meanwhile. */
/* An object that is nowhere published: the content up to the last mark as it is now, durable.
 * Closed with sl_object_close(). */
int sl_growing_snapshot(struct sl_repo *repo, const char *journal_name,
                        struct sl_object **ret_object, struct sl_err *err);
/* Length up to the last mark, time of making and creator; the digest is zeros. Reads all of it. */
int sl_growing_stat(struct sl_repo *repo, const char *journal_name, struct sl_trailer *ret_trailer,
                    struct sl_err *err);
/* Is every record whole, up to a torn end? */
int sl_growing_check(struct sl_repo *repo, const char *journal_name, struct sl_err *err);

#endif
