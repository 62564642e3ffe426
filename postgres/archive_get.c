/* archive-get: one file of the archive for recovery. What matters most is the status: PostgreSQL
 * takes 1 to 125 for "not in the archive", and ends recovery there; it takes more, or a signal,
 * for a failure, and stops (xlogarchive.c: RestoreArchivedFile). So
 *
 *   0          there, whole and checked
 *   1          surely not in the archive: the name is not there, no later segment of its timeline
 *              is, and the repository could be listed whole; or the history file is not there
 *   143        ended by SIGTERM: a server that shuts down expects just that
 *   200        everything else, a gap included
 *
 * but while the server is a standby (standby.signal, which wins over recovery.signal) every
 * failure is 1, after a short deadline: a standby asks again, and more than 125 would end it. */
#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/base/log.h"
#include "postgres/commands.h"
#include "postgres/control_file.h"
#include "postgres/data_folder.h"
#include "postgres/repository.h"
#include "postgres/signals.h"
#include "postgres/wal_archive.h"
#include "postgres/wal_header.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATUS_ABSENT     1
#define STATUS_FAILED     200
#define STATUS_TERMINATED (128 + SIGTERM)
#define STANDBY_MS        10000u
#define LIMIT_GRACE_MS    5000u

static bool surely_absent; /* set by the command, read by its status; one command a process */

struct get {
    const struct sl_invocation *invocation;
    struct sl_pg_wal_name name;
    const char *destination;
    char *temporary;
    struct sl_pg_repository repository;
    uint64_t system_id;
    char object[SL_NAME_MAX];
    sl_deadline deadline;
    int fd;
};

/* --- is it there? ------------------------------------------------------------------------------
 */

/* The name was not there: is that the end of the archive, or a gap? SL_ERR_NOT_FOUND (with
 * surely_absent), SL_ERR_GAP, 1 when it has come meanwhile, or what kept it from being known. */
static int absent(struct get *g, struct sl_err *err)
{
    char later[SL_PG_WAL_NAME_BYTES];
    if (g->name.kind == SL_PG_SEGMENT) {
        int rc =
            sl_pg_wal_later(g->repository.client, g->system_id, &g->name, g->deadline, later, err);
        if (rc < 0)
            return rc;
        struct sl_object_info info;
        if (rc > 0)
            rc = sl_client_stat(g->repository.client, g->object, g->deadline, &info, err);
        else
            later[0] = '\0';
        if (rc)
            return rc;
        if (later[0]) {
            rc =
                sl_err_set(err, SL_ERR_GAP, "\"%s\" is missing in the archive, but \"%s\" is there",
                           g->name.text, later);
            sl_err_hint(err, "recovery cannot go past this gap: archive the segment, if a server "
                             "still has it in pg_wal, or choose a target before it");
            return rc;
        }
    }
    surely_absent = true;
    return sl_err_set(err, SL_ERR_NOT_FOUND, "\"%s\" is not in the archive", g->name.text);
}

/* --- fetching ----------------------------------------------------------------------------------
 */

static int write_all(const struct get *g, const uint8_t *bytes, size_t count, struct sl_err *err)
{
    while (count) {
        int fault = sl_fault("pg.get_write");
        ssize_t n = fault ? -1 : write(g->fd, bytes, count);
        if (n < 0 && !fault && errno == EINTR)
            continue;
        if (n < 0)
            return sl_err_sys(err, SL_ERR_WRITE, fault ? fault : errno, "could not write \"%s\"",
                              g->temporary);
        bytes += n;
        count -= (size_t)n;
    }
    return 0;
}

static int check_first(const struct get *g, const uint8_t *bytes, size_t count, uint64_t length,
                       struct sl_err *err)
{
    struct sl_pg_wal_header header;
    if (g->name.kind != SL_PG_SEGMENT && g->name.kind != SL_PG_PARTIAL)
        return 0;
    int rc = sl_pg_wal_header_decode(bytes, count, &header, err);
    return rc ? rc : sl_pg_wal_header_check(&header, &g->name, length, g->system_id, err);
}

static int copy(const struct get *g, struct sl_download *download, uint64_t length,
                struct sl_err *err)
{
    uint64_t done = 0;
    for (;;) {
        uint32_t block;
        const uint8_t *bytes;
        size_t count;
        int rc = sl_download_next(download, &block, &bytes, &count, g->deadline, err);
        if (rc < 0)
            return rc;
        if (!rc)
            break;
        rc = done ? 0 : check_first(g, bytes, count, length, err);
        if (!rc)
            rc = write_all(g, bytes, count, err);
        if (rc)
            return rc;
        done += count;
    }
    if (done != length)
        return sl_err_set(err, SL_ERR_READ, "\"%s\" came with %llu of %llu bytes", g->name.text,
                          (unsigned long long)done, (unsigned long long)length);
    return 0;
}

/* Into a file beside the destination, then renamed: recovery never sees a half one. Nothing is
 * synced: after a crash recovery asks again. */
static int fetch(struct get *g, struct sl_download *download, uint64_t length, struct sl_err *err)
{
    struct stat st;
    if (lstat(g->destination, &st) == 0 && !S_ISREG(st.st_mode))
        return sl_err_set(err, SL_ERR_OPEN, "\"%s\" is there and not a regular file",
                          g->destination);
    int fault = sl_fault("pg.get_open");
    g->fd = fault ? -1
                  : open(g->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (g->fd < 0)
        return sl_err_sys(err, SL_ERR_OPEN, fault ? fault : errno, "could not create \"%s\"",
                          g->temporary);
    int rc = copy(g, download, length, err);
    if (close(g->fd) && !rc)
        rc = sl_err_sys(err, SL_ERR_WRITE, errno, "could not write \"%s\"", g->temporary);
    if (!rc && ((fault = sl_fault("pg.get_rename")) || rename(g->temporary, g->destination)))
        rc = sl_err_sys(err, SL_ERR_WRITE, fault ? fault : errno, "could not rename to \"%s\"",
                        g->destination);
    if (rc)
        unlink(g->temporary);
    return rc;
}

static int get_once(struct get *g, struct sl_err *err)
{
    struct sl_download *download = NULL;
    struct sl_object_info info;
    int rc;
    do {
        rc = sl_download_open(g->repository.client, g->object, NULL, g->deadline, &download, &info,
                              err);
        if (rc == SL_ERR_NOT_FOUND)
            rc = absent(g, err);
    } while (rc > 0);
    if (rc)
        return rc;
    rc = fetch(g, download, info.length, err);
    sl_download_close(download);
    return rc;
}

static int get_until(struct get *g, struct sl_err *err)
{
    for (;;) {
        int rc = get_once(g, err);
        if (!rc || !sl_code_retryable(rc) || sl_pg_signals_caught() ||
            sl_deadline_passed(g->deadline))
            return rc;
        sl_log_err(SL_LOG_WARN, "postgres", err, "\"%s\" is asked for again", g->name.text);
    }
}

/* --- whose WAL ---------------------------------------------------------------------------------
 */

/* The system identifier of the folder being recovered, if it can be seen; it must be one of the
 * stanza's lives (a backup from before pg_upgrade is recovered with WAL from before it). */
static int choose_system(struct get *g, struct sl_err *err)
{
    g->system_id = g->repository.system_id;
    SL_CLEANUP_FREE char *folder = sl_pg_data_folder(g->invocation, g->destination);
    if (!folder)
        return 0;
    struct sl_pg_control control;
    int rc = sl_pg_control_read(folder, g->deadline, NULL, &control, err);
    if (rc)
        return rc;
    char id[32];
    snprintf(id, sizeof id, "%llu", (unsigned long long)control.system_id);
    if (!sl_lives_have(&g->repository.stanza, id))
        return sl_pg_repository_check(&g->repository, control.system_id, "the data directory", err);
    g->system_id = control.system_id;
    return 0;
}

static int prepare(struct get *g, struct sl_err *err)
{
    int rc = sl_pg_wal_name_parse(g->invocation->args[0], &g->name, err);
    if (rc) {
        sl_err_hint(err, "restore_command = 'sluice archive-get %%f \"%%p\"'");
        return rc;
    }
    g->temporary = sl_asprintf("%s.sluice-tmp", g->destination);
    if (!g->temporary)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    return 0;
}

int sl_pg_archive_get(struct sl_invocation *invocation, struct sl_err *err)
{
    if (sl_option_bool(invocation->options, "dry-run"))
        return sl_err_set(err, SL_ERR_USAGE, "there is no dry run of this command");
    uint64_t timeout_ms = (uint64_t)sl_option_int(invocation->options, "timeout");
    bool standby = sl_pg_is_standby(invocation);
    if (standby && !sl_option_is_set(invocation->options, "timeout"))
        timeout_ms = STANDBY_MS;
    struct get g = {.invocation = invocation,
                    .destination = invocation->args[1],
                    .fd = -1,
                    .deadline = sl_deadline_in_ms(timeout_ms)};
    surely_absent = false;
    sl_pg_signals_install(standby ? STATUS_ABSENT : STATUS_TERMINATED, timeout_ms + LIMIT_GRACE_MS);
    int rc = prepare(&g, err);
    if (!rc)
        rc = sl_pg_repository_open(invocation, false, true, g.deadline, &g.repository, err);
    if (!rc) {
        rc = choose_system(&g, err);
        sl_pg_wal_object(g.system_id, &g.name, g.object, sizeof g.object);
        if (!rc)
            rc = get_until(&g, err);
        sl_pg_repository_close(&g.repository);
    }
    if (!rc)
        sl_log(SL_LOG_DETAIL, "postgres", "got \"%s\" from the archive", g.name.text);
    sl_free(g.temporary);
    return rc;
}

int sl_pg_archive_get_status(const struct sl_invocation *invocation, int code)
{
    if (!code)
        return 0;
    if (sl_pg_is_standby(invocation) || (code == SL_ERR_NOT_FOUND && surely_absent))
        return STATUS_ABSENT;
    return sl_pg_signals_caught() ? STATUS_TERMINATED : STATUS_FAILED;
}
