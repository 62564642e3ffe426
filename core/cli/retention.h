/* Which backups stay: the rules of `expire`, pure. */
#ifndef SL_CLI_RETENTION_H
#define SL_CLI_RETENTION_H

#include "core/cli/backup_folder.h"

/* A finished backup. */
struct sl_candidate {
    char label[SL_LABEL_MAX];
    double stop_epoch;
    enum sl_keep keep;
    bool expired; /* the answer */
    void *user;
};

/* Decides `expired` of each. `fulls` (0: not given): so many newest full backups stay. `days` (0:
 * not given): the newest full that ended so long ago stays, and all after it, so that every moment
 * of these days can be restored. With both, what either wants stays; with neither, all. Backups
 * that build on a full one go with it. A kept one stays, with all of its set that are older. `now`
 * in seconds since 1970. Sorts the array by time. */
void sl_retention(struct sl_candidate *backups, size_t count, unsigned fulls, unsigned days,
                  double now);

#endif
