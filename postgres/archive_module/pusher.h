/* The pusher: files of pg_wal into the repository, for a server's archiver process. It knows
 * nothing of the server: threads of its own, with all signals blocked, do the work, and the
 * archiver's only thread asks, waits on a descriptor, and may stop waiting whenever it likes.
 *
 *     sl_pg_pusher_ask("0000…", "pg_wal/0000…")      1: durable   0: under way   < 0: not
 *     poll(sl_pg_pusher_fd())                         as long as it is under way
 *     sl_pg_pusher_answer()                           the same answers
 *
 * One session serves many files; it is closed when nothing was asked for a while, and begun anew
 * after a failure or sl_pg_pusher_reload(). Meanwhile the files that are .ready after the one that
 * was asked for are sent as well, several at a time. Each is *published* only when all before it
 * are stored, so that a server whose file is refused (it lost a failover, it is a copy) gets none
 * of its later ones in. What was stored ahead is remembered until it is asked for, and forgotten if
 * the file is not the same any more. Failures of what nobody asked for are not reported: it is sent
 * again when it is asked for.
 *
 * Calls come from one thread. Nothing is inherited by fork: make it in the process that uses it.
 */
#ifndef SL_POSTGRES_PUSHER_H
#define SL_POSTGRES_PUSHER_H

#include "core/base/err.h"

#include <stdint.h>

struct sl_pg_pusher;

/* Starts no thread yet. Strings are copied; `stanza` may be NULL: see core/cli/settings.h. */
int sl_pg_pusher_new(const char *config_path, const char *stanza, struct sl_pg_pusher **ret_pusher,
                     struct sl_err *err);
/* Before the next file the configuration is read again and a new session begun. SL_ERR_NO_MEMORY:
 * all stays as it was. */
int sl_pg_pusher_reload(struct sl_pg_pusher *pusher, const char *config_path, const char *stanza,
                        struct sl_err *err);
/* `path` is the file; where it is, archive_status is, too. Does not block. */
int sl_pg_pusher_ask(struct sl_pg_pusher *pusher, const char *name, const char *path,
                     struct sl_err *err);
/* For what was asked last. Does not block. Who does not wait for the answer may ask again later:
 * the work goes on. */
int sl_pg_pusher_answer(struct sl_pg_pusher *pusher, struct sl_err *err);
int sl_pg_pusher_fd(const struct sl_pg_pusher *pusher); /* readable: there may be an answer */
/* Grows as long as anything moves. */
uint64_t sl_pg_pusher_moved(const struct sl_pg_pusher *pusher);
/* Breaks off what is under way, ends session and threads; NULL ok. False when a thread had not
 * ended after `limit_ms` (a file system that hangs): then all of it is left as it is. */
bool sl_pg_pusher_free(struct sl_pg_pusher *pusher, unsigned limit_ms);

#endif
