/* What lies in one backup's folder, and what that says of it: finished, running, broken off, kept,
 * expired. docs/repository.md ("Removing") has the rules that the parts follow together:
 *
 *   open      who makes it, what it refers to, from where on it needs WAL; open-2 … who resumed it
 *   manifest  the backup exists
 *   keep      it is not expired by policy; wins over `expired`
 *   expired   it is gone for all but the removal, which may take its time
 *   lease-…   somebody reads it
 */
#ifndef SL_CLI_BACKUP_FOLDER_H
#define SL_CLI_BACKUP_FOLDER_H

#include "core/client/client.h"
#include "core/repo/manifest.h"

#include <stdbool.h>

#define SL_LEASE_NS                                                                                \
    (7ull * 86400 * SL_NS_PER_S) /* a lease that was not taken back ends then                      \
                                  */

enum sl_keep { SL_KEEP_NOT, SL_KEEP_PITR, SL_KEEP_STANDALONE };

struct sl_folder {
    char label[SL_LABEL_MAX];
    bool manifest, open, marked;
    enum sl_keep keep;
    unsigned leases;     /* that still count */
    uint64_t newest_ns;  /* when something was last stored: the last open, or the last pack */
    uint64_t marked_ns;  /* when it was marked as expired */
    uint32_t objects;    /* all that lie there */
    char last_open[256]; /* "open"; "open-2" and so on of one that was resumed; or "" */
    char last_pack[256]; /* "pack-0007", or "" */
};

/* Every label in order of names, finished backups or not. A nonzero return of `visit` ends it. */
int sl_folder_labels(struct sl_client *client, int (*visit)(void *arg, const char *label),
                     void *arg, sl_deadline deadline, struct sl_err *err);
/* `now_ns` by the target's clock. A folder that is not there has no objects. */
int sl_folder_read(struct sl_client *client, const char *label, uint64_t now_ns,
                   sl_deadline deadline, struct sl_folder *ret_folder, struct sl_err *err);
/* Marked as expired, and not kept? 1, 0 or a code. */
int sl_folder_gone(struct sl_client *client, const char *label, sl_deadline deadline,
                   struct sl_err *err);
/* The target's clock. */
uint64_t sl_target_wall_ns(struct sl_client *client);

/* Publishes a lease, then sees that the backup is not gone (SL_ERR_NOT_FOUND, the lease taken
 * back). `ret_name` is what to give to sl_lease_end(), which removes it and cannot fail: one
 * that stays ends by itself. */
int sl_lease_begin(struct sl_client *client, const char *label, const char *purpose,
                   sl_deadline deadline, char ret_name[SL_NAME_MAX], struct sl_err *err);
void sl_lease_end(struct sl_client *client, const char *name, sl_deadline deadline);

#endif
