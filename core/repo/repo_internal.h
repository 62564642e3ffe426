/* What the files of core/repo share about objects. Private to core/repo. */
#ifndef SL_REPO_REPO_INTERNAL_H
#define SL_REPO_REPO_INTERNAL_H

#include "core/repo/repo.h"

#define SL_REPO_FILE "repo.json"

struct sl_object_draft {
    struct sl_repo *repo;
    struct sl_file *file;
    struct sl_block *table; /* plain_bytes 0: not entered yet */
    uint32_t room;
    uint32_t entered;     /* how many blocks */
    uint32_t high;        /* greatest index + 1 */
    uint32_t short_block; /* index of a block that is not full, or UINT32_MAX */
    uint64_t cursor;      /* where block `high` begins */
    bool packed;          /* some block is compressed: then they come in order */
    bool finished;
    struct sl_trailer trailer;
};

/* Footer, trailer and the exact length of the file. */
int sl_draft_write_tail(struct sl_object_draft *draft, struct sl_err *err);

/* repo.json is durable, or made so: before anything is named that must not outlive it. */
int sl_repo_settle(struct sl_repo *repo, struct sl_err *err);

/* Reads and checks every byte of an opened object: blocks, holes, padding. visit() (may be NULL)
 * gets each block's plain bytes in order, after they were checked; a nonzero answer ends it.
 * `buffer` has SL_BLOCK_BYTES and is aligned. */
int sl_object_check(struct sl_object *object, void *buffer,
                    int (*visit)(void *arg, uint64_t offset, const void *bytes, size_t count,
                                 struct sl_err *err),
                    void *arg, struct sl_err *err);

/* Does a failure to open or read an object say something about the object, not about us? */
bool sl_code_is_damage(int code);

/* For "<stanza>/backup/<label>/manifest" and "…/pack-0001": what the last part is. */
enum sl_backup_part { SL_PART_NONE, SL_PART_MANIFEST, SL_PART_PACK, SL_PART_OTHER };
enum sl_backup_part sl_backup_part_of(const char *full_name);

/* Checks of a manifest or a pack's index, fed with the object's content while it is verified. */
struct sl_backup_check;
int sl_backup_check_new(struct sl_object *object,
                        void (*damage)(void *arg, const char *name, int code, const char *text),
                        void *arg, const char *scope, struct sl_backup_check **ret,
                        struct sl_err *err);
int sl_backup_check_feed(struct sl_backup_check *check, uint64_t offset, const void *bytes,
                         size_t count, struct sl_err *err);
int sl_backup_check_finish(struct sl_backup_check *check, struct sl_err *err);
void sl_backup_check_free(struct sl_backup_check *check); /* NULL ok */

#endif
