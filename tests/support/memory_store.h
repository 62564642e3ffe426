/* A store in memory, for tests: everything that struct sl_store_ops promises, with two states apart
 * from each other, what is *visible* and what is *durable*. A power cut makes the durable state the
 * visible one, so that a test sees what a writer really may rely on.
 *
 * Each call that could fail is a *step*, counted from 1; so is each sync and each link inside
 * publish() and settle(). Rules fail one step, or cut the power before it: then that step and all
 * later ones do nothing and fail, until sl_memory_store_reboot().
 *
 * One thread only. */
#ifndef TESTS_SUPPORT_MEMORY_STORE_H
#define TESTS_SUPPORT_MEMORY_STORE_H

#include "core/store/store.h"

/* Leave out one kind of sync, to see that a test notices. */
enum memory_store_cripple {
    MEMORY_STORE_SOUND,
    MEMORY_STORE_NO_FILE_SYNC,
    MEMORY_STORE_NO_FOLDER_SYNC,
    MEMORY_STORE_NO_SETTLE,
};

struct sl_store *sl_memory_store_new(void); /* freed by ops->free; NULL: out of memory */

/* Count from 0 again, without rules. */
void sl_memory_store_reset_steps(struct sl_store *store);
uint64_t sl_memory_store_steps(const struct sl_store *store);
/* Step `nth` fails with `code` (once); 0 removes the rule. */
void sl_memory_store_fail(struct sl_store *store, uint64_t nth, int code);
/* The power goes before step `nth`. */
void sl_memory_store_cut(struct sl_store *store, uint64_t nth);
bool sl_memory_store_is_cut(const struct sl_store *store);
/* After a cut, or as one: what was not durable is gone, unpublished files too. Rules are removed.
 * No file may be open. */
void sl_memory_store_reboot(struct sl_store *store);
void sl_memory_store_cripple(struct sl_store *store, enum memory_store_cripple cripple);

/* Tampering: the bytes of a name (valid until the name is replaced or removed), a new one, a rename
 * without any check. `bytes` may be NULL for a file without content. Visible and durable at once,
 * or, for put_unsynced, neither file nor name durable, as if a writer had stopped after link(). */
uint8_t *sl_memory_store_bytes(struct sl_store *store, const char *name, size_t *ret_count);
void sl_memory_store_put(struct sl_store *store, const char *name, const void *bytes, size_t count);
void sl_memory_store_put_unsynced(struct sl_store *store, const char *name, const void *bytes,
                                  size_t count);
void sl_memory_store_rename(struct sl_store *store, const char *from, const char *to);
/* Says that a range of a file is a hole or is not (default: what is all zero is one). */
void sl_memory_store_no_holes(struct sl_store *store, bool no_holes);

#endif
