/* What the files of the binary log's archiver share. Private to mysql/.
 *
 * The archive of a server: binlog/SERVER/NNNN/ with, for each of its files,
 *
 *   FILE.about     what the file is: its format description. Another file of the same name has
 *                  another one
 *   FILE.growing   as long as the server writes it (core/repo/grow.h)
 *   FILE           once it has ended
 *   FILE.gap       behind FILE, or inside of it, something is missing: the server has removed it
 *
 * NNNN counts the server's histories: RESET MASTER, another server under the same identity, or a
 * lost tail begin a new one. Nothing is ever overwritten. */
#ifndef SL_MYSQL_BINLOG_INTERNAL_H
#define SL_MYSQL_BINLOG_INTERNAL_H

#include "mysql/binlog_event.h"
#include "mysql/binlog_send.h"
#include "mysql/repository.h"
#include "mysql/server.h"

struct sl_my_binlog_file {
    char name[SL_MY_BINLOG_NAME_MAX];
    uint64_t number;
    uint64_t bytes;       /* on a server: its length; in the archive: what it takes */
    bool sealed, growing; /* in the archive; both after a crash while it was sealed */
};

struct sl_my_binlog_list {
    struct sl_my_binlog_file *files; /* owned; ascending numbers */
    size_t count, room;
};

void sl_my_binlog_list_free(struct sl_my_binlog_list *list);
/* The entry of that name, added if it is not there; NULL: out of memory. */
struct sl_my_binlog_file *sl_my_binlog_list_add(struct sl_my_binlog_list *list, const char *name);
const struct sl_my_binlog_file *sl_my_binlog_list_find(const struct sl_my_binlog_list *list,
                                                       const char *name);

struct sl_my_archiver {
    struct sl_invocation *invocation;
    struct sl_my_repository repository;
    struct sl_client *client;
    struct sl_my_server server;
    unsigned timeout_ms;
    bool once, semi_sync;
    uint32_t replica_id;
    /* the archive's newest history */
    unsigned history; /* 0: none yet */
    struct sl_my_binlog_list archived;
    uint64_t gaps;    /* found in this run */
    uint64_t sealed;  /* files, in this run */
    bool new_history; /* the stream has shown that the server's files are others */
    char why_new[512];
};

/* Where to go on. */
struct sl_my_binlog_start {
    char file[SL_MY_BINLOG_NAME_MAX]; /* "": nothing to do (once) */
    uint64_t position;                /* the archive has everything before it */
    struct sl_grow *grow;             /* owned; NULL: the file is sealed, or not begun */
    bool begun;                       /* events of `file` from `position` on, else from its start */
    bool sealed;                      /* begun, and ended: nothing of it is missing */
    char last[SL_MY_BINLOG_NAME_MAX]; /* the server's last file when it was asked */
};

/* --- binlog_archive.c --------------------------------------------------------------------------
 */

/* "binlog/SERVER", "binlog/SERVER/0001", "…/FILE" of the newest history. */
void sl_my_archive_folder(const struct sl_my_archiver *a, char to[SL_NAME_MAX]);
void sl_my_archive_object(const struct sl_my_archiver *a, const char *file, const char *suffix,
                          char to[SL_NAME_MAX]);
/* Finds the newest history and its files. */
int sl_my_archive_load(struct sl_my_archiver *a, struct sl_err *err);
/* Begins a new one; `why` is kept in it. */
int sl_my_archive_begin(struct sl_my_archiver *a, const char *why, struct sl_err *err);
/* Records that of `file` everything from `position` on, and all before `next`, is missing. */
int sl_my_archive_gap(struct sl_my_archiver *a, const char *file, uint64_t position,
                      const char *next, struct sl_err *err);
/* What a file is, from its format description: JSON, returns owned. NULL: out of memory. */
char *sl_my_about(const char *file, const struct sl_my_event *format);
/* When the archived file's format description was made, and by which server: compared with that of
 * the file the server has under the name. SL_ERR_NOT_FOUND. */
int sl_my_about_read(struct sl_my_archiver *a, const char *file, uint32_t *ret_created,
                     uint32_t *ret_server_id, struct sl_err *err);
/* For info: an array of histories of all servers; returns owned. */
int sl_my_archive_list(struct sl_client *client, sl_deadline deadline, json_t **ret_list,
                       struct sl_err *err);
void sl_my_archive_print(const json_t *list);

/* --- binlog_start.c ----------------------------------------------------------------------------
 */

/* Compares what the server has with what the archive has. Begins a new history, and records gaps,
 * where they differ. */
int sl_my_binlog_decide(struct sl_my_archiver *a, struct sl_my_db *db,
                        struct sl_my_binlog_start *start, struct sl_err *err);

/* --- binlog_stream.c ---------------------------------------------------------------------------
 */

/* Follows the server from `start` on (takes start->grow) until something fails, the process is
 * stopped (SL_ERR_CANCELLED), or, once, all that had ended is archived (0). */
int sl_my_binlog_follow(struct sl_my_archiver *a, struct sl_my_db *db,
                        struct sl_my_binlog_start *start, bool *ret_progress, struct sl_err *err);

#endif
