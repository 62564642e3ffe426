/* Programs that a command starts: their output is read, and how they ended is always learned.
 *
 * A child has this process's environment, standard input and, unless it is read too, standard
 * error; default signal actions and no signal blocked. It is started without copying memory
 * (posix_spawn), so a process with registered slots may do so. If this process is killed, the
 * child finds its pipe broken.
 */
#ifndef SL_BASE_CHILD_H
#define SL_BASE_CHILD_H

#include "core/base/clock.h"
#include "core/base/err.h"

#include <sys/types.h>

struct sl_child {
    pid_t pid;  /* 0: none, or ended and waited for */
    int in_fd;  /* its standard input, if wanted; close it (and set -1) to end that; -1 */
    int out_fd; /* its standard output; -1 */
    int err_fd; /* its standard error, if wanted; -1 */
    char name[64];
};

#define SL_CHILD_IN  0x1u /* its standard input comes from here */
#define SL_CHILD_OUT 0x2u /* its standard output is read here */
#define SL_CHILD_ERR 0x4u

/* `wanted` says which of its streams are pipes to here; the others are this process's own.
 * `argv` is NULL-terminated; argv[0] is looked for in PATH unless it holds a slash. SL_ERR_OPEN
 * when there is no such program. Released with sl_child_wait() or sl_child_kill(). */
int sl_child_start(const char *const *argv, unsigned wanted, struct sl_child *ret_child,
                   struct sl_err *err);
/* Waits for its end. 0 when it ended with status 0; SL_ERR_READ names another status, or the signal
 * that it died of; SL_ERR_TIMEOUT and SL_ERR_CANCELLED leave it running. */
int sl_child_wait(struct sl_child *child, sl_deadline deadline, struct sl_err *err);
/* Has it ended (and is to be waited for)? Does not block. */
bool sl_child_ended(const struct sl_child *child);
/* For a program that says little: reads its output and its standard error, as far as they are
 * wanted, to their ends; `text` gets the first `room` - 1 bytes of both, and a NUL. Then it is
 * waited for: as sl_child_wait(). */
int sl_child_read(struct sl_child *child, char *text, size_t room, sl_deadline deadline,
                  struct sl_err *err);
/* SIGTERM, then SIGKILL after 5 s; waits, closes the pipes. Of one that has ended: closes the
 * pipes. All zeros is accepted. */
void sl_child_kill(struct sl_child *child);

#endif
