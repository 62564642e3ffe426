/* A backup under way: shared by backup.c (the order of things), backup_tool.c (the program and its
 * stream) and backup_manifest.c (open and manifest). */
#ifndef SL_MYSQL_BACKUP_INTERNAL_H
#define SL_MYSQL_BACKUP_INTERNAL_H

#include "mysql/coordinates.h"
#include "mysql/repository.h"
#include "mysql/server.h"
#include "mysql/xbstream.h"

#define SL_MY_STREAM_ENTRY                                                                         \
    "xbstream" /* the manifest's one entry, and the last part of its pack                          \
                */

struct sl_my_backup {
    struct sl_invocation *invocation;
    struct sl_my_repository repository;
    struct sl_my_server server;
    struct sl_my_coordinates coordinates;
    struct sl_my_xb_totals totals;
    struct sl_stored stored; /* the stream */
    char label[SL_LABEL_MAX];
    uint64_t start_ns, stop_ns; /* wall clock of this host */
    unsigned timeout_ms;
};

/* Claims a label: publishes backup/LABEL/open. */
int sl_my_backup_open(struct sl_my_backup *b, struct sl_err *err);
/* Runs the tool and stores its stream; sets coordinates, totals and stored. Without error all of
 * this holds: the tool ended with 0, said "completed OK!" last, the stream was whole and has the
 * tool's own account of the backup. */
int sl_my_backup_stream(struct sl_my_backup *b, struct sl_err *err);
/* Publishes the manifest: the backup exists. */
int sl_my_backup_publish(struct sl_my_backup *b, struct sl_err *err);

#endif
