/* Backups of a stanza of this engine, by listing and by their manifests. A manifest names the
 * streams of its backup and of all those that it builds on, in the order in which they are
 * restored. */
#ifndef SL_MYSQL_CATALOG_H
#define SL_MYSQL_CATALOG_H

#include "core/client/client.h"
#include "core/repo/manifest.h"

#include <jansson.h>

#define SL_MY_PARTS_MAX 4096 /* streams of a backup and of what it builds on */

/* One stream: the manifest's entry LABEL/xbstream, LABEL/xbstream-02 and so on, which is one pack.
 */
struct sl_my_part {
    char label[SL_LABEL_MAX]; /* of the backup that made it */
    struct sl_manifest_pack pack;
};

struct sl_my_manifest {
    char label[SL_LABEL_MAX], prior[SL_LABEL_MAX];
    json_t *header;           /* owned */
    struct sl_my_part *parts; /* owned */
    size_t count, room;
};

/* Reads and checks all of one manifest. SL_ERR_NOT_FOUND when there is none, SL_ERR_FORMAT when it
 * is none of this engine. */
int sl_my_manifest_read(struct sl_client *client, const char *label, sl_deadline deadline,
                        struct sl_my_manifest *ret_manifest, struct sl_err *err);
void sl_my_manifest_fini(struct sl_my_manifest *manifest); /* all zeros is accepted */
/* Of the header: "" and 0 where it does not say. */
const char *sl_my_manifest_text(const struct sl_my_manifest *manifest, const char *key);
uint64_t sl_my_manifest_number(const struct sl_my_manifest *manifest, const char *key);
/* Adds a part at the end. */
int sl_my_manifest_add(struct sl_my_manifest *manifest, const char *label,
                       const struct sl_manifest_pack *pack, struct sl_err *err);

/* The labels in use, finished or not, by their own times, oldest first: an array of strings, owned.
 */
int sl_my_labels(struct sl_client *client, sl_deadline deadline, json_t **ret_labels,
                 struct sl_err *err);
/* Finished, and not given up by expire? 1, 0 or a code. */
int sl_my_is_there(struct sl_client *client, const char *label, sl_deadline deadline,
                   struct sl_err *err);

#endif
