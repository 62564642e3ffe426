/* `expire` for every engine: which backups go, and removing them so that nobody who needs one meets
 * a hole (docs/repository.md, "Removing"). What else goes with them (WAL, binary logs) is the
 * engine's. */
#ifndef SL_CLI_EXPIRE_H
#define SL_CLI_EXPIRE_H

#include "core/cli/backup_folder.h"
#include "core/plugin/engine.h"

/* One backup folder. */
struct sl_subject {
    struct sl_folder folder;
    bool readable;  /* the engine's facts are known */
    bool running;   /* open, and something was stored lately */
    bool expire;    /* to be marked and removed */
    bool by_policy; /* the policy alone would have it removed (it may be kept all the same) */
    bool removed;
    double stop_epoch; /* of the manifest's publication, by the target's clock */
    const char *why;
    void *facts; /* the engine's; freed with sl_free() */
};

struct sl_expire;

struct sl_expire_engine {
    /* Of a finished backup, and of one that runs (may be NULL): sets `readable`, and `facts` if it
     * wants. What cannot be read stays unreadable, and the backup stays; only a failure that may
     * pass is returned. */
    int (*finished)(struct sl_expire *e, struct sl_subject *subject, struct sl_err *err);
    int (*running)(struct sl_expire *e, struct sl_subject *subject, struct sl_err *err);
    /* Removes what no backup that is left needs (not with e->dry); counts e->others. May be NULL.
     */
    int (*others)(struct sl_expire *e, struct sl_err *err);
    const char *others_text, *others_key; /* "WAL files", "wal_files_removed" */
    void *arg;
};

struct sl_expire {
    const struct sl_invocation *invocation;
    const struct sl_expire_engine *engine;
    struct sl_client *client;
    uint64_t step_ms, now_ns, abandoned_ns;
    unsigned fulls, days;
    bool dry;
    struct sl_subject *subjects; /* by time */
    size_t count, room;
    struct sl_err nested; /* a failure inside of a visit */
    uint64_t others, swept;
    json_t *removed, *deferred; /* owned: [{"label":…,"reason":…}] */
};

static inline sl_deadline sl_expire_deadline(const struct sl_expire *e)
{
    return sl_deadline_in_ms(e->step_ms);
}

/* Rows for the engine's table of options; what days and the time until a backup counts as broken
 * off mean differs between engines. */
/* clang-format off */
#define SL_EXPIRE_OPTIONS(days_help, abandoned_help)                                               \
    {.name = "retention-full",                                                                     \
     .type = SL_OPTION_INT,                                                                        \
     .value_name = "N",                                                                            \
     .min = 1,                                                                                     \
     .max = 9999,                                                                                  \
     .commands = "expire",                                                                         \
     .group = "Retention",                                                                         \
     .help = "so many newest full backups stay, with all that build on them"},                     \
    {.name = "retention-days",                                                                     \
     .type = SL_OPTION_INT,                                                                        \
     .value_name = "DAYS",                                                                         \
     .min = 1,                                                                                     \
     .max = 36500,                                                                                 \
     .commands = "expire",                                                                         \
     .help = days_help},                                                                           \
    {.name = "abandoned-after",                                                                    \
     .type = SL_OPTION_DURATION,                                                                   \
     .value_name = "TIME",                                                                         \
     .default_text = "1d",                                                                         \
     .min = 1000,                                                                                  \
     .max = 365ll * 86400000,                                                                      \
     .commands = "expire",                                                                         \
     .help = abandoned_help}
/* clang-format on */

/* The command, over an open client. Reads the options above, timeout and dry-run; prints, fills the
 * result. */
int sl_expire_run(const struct sl_invocation *invocation, struct sl_client *client,
                  const struct sl_expire_engine *engine, struct sl_err *err);

/* keep LABEL, or with `undo` unkeep LABEL: publishes or removes backup/LABEL/keep. `wal`: "pitr",
 * or "standalone" (docs/repository.md). */
int sl_keep_run(const struct sl_invocation *invocation, struct sl_client *client, bool undo,
                const char *wal, struct sl_err *err);

#endif
