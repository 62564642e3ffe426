/* sluice_archive: PostgreSQL's side of the archive module, and the only file that knows the
 * server's headers. It runs in the archiver's one thread; what may block does so in the pusher's.
 *
 * The rules of living here: no error is ever thrown through a frame of ours (on 15 and 16 it would
 * restart the archiver): a failure is a WARNING and `false`, upon which the server tries again.
 * While a file is under way its signals are served within 100 ms, and a server that stops, or a
 * postmaster that died, is not kept waiting. */
#include <postgres.h>

#include <fmgr.h>
#include <miscadmin.h>
#include <pgstat.h>
#include <postmaster/interrupt.h>
#include <storage/pmsignal.h>
#include <storage/procsignal.h>
#include <utils/guc.h>
#include <utils/memutils.h>
#include <utils/pidfile.h>
#include <utils/timestamp.h>
#if PG_VERSION_NUM >= 160000
#include <archive/archive_module.h>
#else
#include <postmaster/pgarch.h>
#endif
#if PG_VERSION_NUM >= 170000
#include <utils/wait_event.h>
#endif

#include "core/base/clock.h"
#include "core/cli/settings.h"
#include "postgres/archive_module/notes.h"
#include "postgres/archive_module/pusher.h"

#include <poll.h>
#include <stdio.h>

#define POLL_MS        100
#define STOPPING_MS    2000u /* without any progress, of a server that is being stopped */
#define STOPPING_MORE  200u  /* the same, once that has happened */
#define SHUTDOWN_MS    1500u
#define STATUS_LOOK_MS 500u

#if PG_VERSION_NUM >= 180000
PG_MODULE_MAGIC_EXT(.name = "sluice_archive", .version = SLUICE_VERSION);
#else
PG_MODULE_MAGIC;
#endif

extern PGDLLEXPORT void _PG_init(void);
#if PG_VERSION_NUM < 160000
extern PGDLLEXPORT void _PG_archive_module_init(ArchiveModuleCallbacks *cb);
#endif

static char *config_setting, *stanza_setting;
static struct sl_pg_pusher *pusher;
static TimestampTz settings_of; /* when the server last read its own */
static bool gave_up;            /* on a file, because the server was stopping */

void _PG_init(void)
{
    DefineCustomStringVariable("sluice_archive.config", "Configuration file of Sluice.", NULL,
                               &config_setting, SL_CLI_CONFIG, PGC_SIGHUP, 0, NULL, NULL, NULL);
    DefineCustomStringVariable("sluice_archive.stanza",
                               "Stanza to archive into, if the configuration file has several.",
                               NULL, &stanza_setting, "", PGC_SIGHUP, 0, NULL, NULL, NULL);
    MarkGUCPrefixReserved("sluice_archive");
}

/* --- saying ----------------------------------------------------------------------------------- */

static int server_level(enum sl_log_level level)
{
    switch (level) {
    case SL_LOG_ERROR:
    case SL_LOG_WARN:
        return WARNING;
    case SL_LOG_INFO:
        return LOG;
    case SL_LOG_DETAIL:
        return DEBUG1;
    default:
        return DEBUG2;
    }
}

static void say_notes(void)
{
    struct sl_pg_note note;
    while (sl_pg_notes_take(&note))
        ereport(server_level(note.level), (errmsg("sluice_archive: %s", note.text),
                                           note.hint[0] ? errhint("%s", note.hint) : 0));
}

static void complain(const char *file, struct sl_err *err)
{
    sl_pg_notes_plain(err->msg);
    sl_pg_notes_plain(err->hint);
    ereport(WARNING, (errmsg("sluice_archive: could not archive \"%s\": %s", file, err->msg),
                      err->hint[0] ? errhint("%s", err->hint) : 0));
}

/* --- waiting ---------------------------------------------------------------------------------- */

struct watch {
    uint64_t moved, moved_ns, looked_ns;
};

/* Does postmaster.pid say that the server is being stopped? That the archiver itself is told in a
 * variable of its own, which a module cannot see. */
static bool server_stops(void)
{
    char line[32];
    int number = 0;
    FILE *file = fopen("postmaster.pid", "re");
    bool stops = false;
    while (file && number < LOCK_FILE_LINE_PM_STATUS && fgets(line, sizeof line, file))
        if (strlen(line) < sizeof line - 1 || line[sizeof line - 2] == '\n')
            stops = ++number == LOCK_FILE_LINE_PM_STATUS &&
                    strncmp(line, "stopping", strlen("stopping")) == 0;
    if (file)
        fclose(file);
    return stops;
}

/* Nothing has moved for long while the server stops: it is not kept waiting. In a smart shutdown,
 * which may last, a file that comes slowly is still archived. */
static bool is_hopeless(struct watch *w)
{
    uint64_t now = sl_now_ns(), moved = sl_pg_pusher_moved(pusher);
    uint64_t limit_ms = gave_up ? STOPPING_MORE : STOPPING_MS;
    if (moved != w->moved) {
        w->moved = moved;
        w->moved_ns = now;
    }
    if (now - w->moved_ns < limit_ms * SL_NS_PER_MS ||
        now - w->looked_ns < STATUS_LOOK_MS * SL_NS_PER_MS)
        return false;
    w->looked_ns = now;
    return server_stops();
}

/* 0: go on waiting. */
static int serve_interrupts(struct watch *w, struct sl_err *err)
{
    if (ProcSignalBarrierPending)
        ProcessProcSignalBarrier();
    if (LogMemoryContextPending)
        ProcessLogMemoryContextInterrupt();
    if (!PostmasterIsAlive())
        return sl_err_set(err, SL_ERR_CANCELLED, "the postmaster has died");
    if (ShutdownRequestPending)
        return sl_err_set(err, SL_ERR_CANCELLED, "the archiver is told to end");
    if (!is_hopeless(w))
        return 0;
    gave_up = true;
    sl_err_set(err, SL_ERR_TIMEOUT, "the server stops, and the target does not answer");
    return sl_err_hint(err, "it will be archived after the next start");
}

static int await(struct sl_err *err)
{
    struct watch watch = {.moved = sl_pg_pusher_moved(pusher), .moved_ns = sl_now_ns()};
    struct pollfd fd = {.fd = sl_pg_pusher_fd(pusher), .events = POLLIN};
    int rc = 0;
    pgstat_report_wait_start(PG_WAIT_EXTENSION);
    while (!rc) {
        poll(&fd, 1, POLL_MS); /* a signal ends it, too */
        rc = sl_pg_pusher_answer(pusher, err);
        if (!rc)
            rc = serve_interrupts(&watch, err);
        if (!rc)
            say_notes();
    }
    pgstat_report_wait_end();
    return rc;
}

/* --- the module ------------------------------------------------------------------------------- */

/* Here and not earlier: in the process that will use it. After a SIGHUP all is read again, the
 * files that the settings name, too. */
static int prepare(struct sl_err *err)
{
    const char *stanza = stanza_setting && stanza_setting[0] ? stanza_setting : NULL;
    int rc = 0;
    if (pusher && settings_of == PgReloadTime)
        return 0;
    if (pusher) {
        rc = sl_pg_pusher_reload(pusher, config_setting, stanza, err);
    } else {
        sl_log_set(sl_pg_notes_sink, NULL, SL_LOG_WARN);
        rc = sl_pg_pusher_new(config_setting, stanza, &pusher, err);
    }
    if (!rc)
        settings_of = PgReloadTime;
    return rc;
}

static bool archive_one(const char *file, const char *path)
{
    struct sl_err err = {0};
    int rc = prepare(&err);
    if (!rc) {
        rc = sl_pg_pusher_ask(pusher, file, path, &err);
        if (!rc)
            rc = await(&err);
    }
    say_notes();
    if (rc < 0)
        complain(file, &err);
    gave_up = gave_up && rc < 0;
    return rc > 0;
}

/* A thread that does not end (a file system that hangs) is left alone: the process ends anyway. */
static void shut_down(void)
{
    if (!sl_pg_pusher_free(pusher, SHUTDOWN_MS))
        elog(DEBUG1, "sluice_archive: a thread has not ended in time");
    pusher = NULL;
}

/* Asked before every file: what is missing is said when the file is asked for. */
#if PG_VERSION_NUM >= 160000

static bool check_configured(ArchiveModuleState *state)
{
    (void)state;
    return true;
}

static bool archive_file(ArchiveModuleState *state, const char *file, const char *path)
{
    (void)state;
    return archive_one(file, path);
}

static void shutdown_module(ArchiveModuleState *state)
{
    (void)state;
    shut_down();
}

static const ArchiveModuleCallbacks callbacks = {.check_configured_cb = check_configured,
                                                 .archive_file_cb = archive_file,
                                                 .shutdown_cb = shutdown_module};

const ArchiveModuleCallbacks *_PG_archive_module_init(void)
{
    return &callbacks;
}

#else

static bool check_configured(void)
{
    return true;
}

void _PG_archive_module_init(ArchiveModuleCallbacks *cb)
{
    cb->check_configured_cb = check_configured;
    cb->archive_file_cb = archive_one;
    cb->shutdown_cb = shut_down;
}

#endif
