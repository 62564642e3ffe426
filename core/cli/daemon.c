/* The daemon `sluiced`: configuration, start, signals, stop. All work is the target's; this thread
 * only waits for signals. */
#include "core/cli/daemon.h"

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/cli/cli.h"
#include "core/plugin/loader.h"
#include "core/repo/repo.h"
#include "core/target/target.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

struct daemon {
    int argc;
    char **argv, **environment;
    struct sl_options *options; /* as of the last reload */
    struct sl_options *started; /* as of the start: the target keeps strings of it */
    pthread_mutex_t mutex;      /* of `permissions` */
    struct sl_permissions *permissions;
    struct sl_tls *tls;
    const struct sl_transport_plugin *rdma; /* NULL: none, for rdma_note */
    char rdma_note[SL_ERR_MSG_BYTES];       /* or its devices */
    struct sl_store *store;
    struct sl_repo *repo;
    struct sl_target *target;
};

static bool permit(void *arg, const char *client, const char *stanza)
{
    struct daemon *daemon = arg;
    pthread_mutex_lock(&daemon->mutex);
    bool allowed = sl_permissions_allow(daemon->permissions, client, stanza);
    pthread_mutex_unlock(&daemon->mutex);
    return allowed;
}

static bool permit_remove(void *arg, const char *client, const char *stanza)
{
    struct daemon *daemon = arg;
    pthread_mutex_lock(&daemon->mutex);
    bool allowed = sl_permissions_allow_remove(daemon->permissions, client, stanza);
    pthread_mutex_unlock(&daemon->mutex);
    return allowed;
}

/* --- parts -------------------------------------------------------------------------------------
 */

static int make_tls(const struct sl_options *options, struct sl_tls **ret_tls, struct sl_err *err)
{
    struct sl_tls_files files = {.certificate = sl_option_string(options, "tls-cert"),
                                 .key = sl_option_string(options, "tls-key"),
                                 .authority = sl_option_string(options, "tls-ca")};
    if (files.certificate && files.key && files.authority)
        return sl_tls_new(&files, true, ret_tls, err);
    sl_err_set(err, SL_ERR_CONFIG, "tls-cert, tls-key and tls-ca must be set");
    return sl_err_hint(err, "make them with \"sluice cert init DIR\" and \"sluice cert issue "
                            "--dir=DIR NAME\"");
}

/* RDMA, if this host has it and may use it. */
static int try_rdma(struct daemon *daemon, struct sl_err *err)
{
    const struct sl_transport_plugin *plugin = NULL;
    int rc = sl_plugin_transport(&plugin, err);
    if (!rc)
        rc = plugin->describe(daemon->rdma_note, sizeof daemon->rdma_note, err);
    if (!rc)
        rc = plugin->memlock((size_t)sl_option_int(daemon->options, "pool-size"), err);
    if (!rc)
        daemon->rdma = plugin;
    return rc;
}

static int find_rdma(struct daemon *daemon, struct sl_err *err)
{
    const char *wish = sl_option_string(daemon->options, "transport");
    if (strcmp(wish, "tcp") == 0) {
        snprintf(daemon->rdma_note, sizeof daemon->rdma_note, "transport = tcp");
        return 0;
    }
    struct sl_err failure = {0};
    if (!try_rdma(daemon, &failure))
        return 0;
    if (strcmp(wish, "rdma") == 0)
        return sl_err_copy(err, &failure);
    /* a host without a device is an ordinary host; one whose device cannot be used is not */
    bool ordinary = failure.code == SL_ERR_NOT_FOUND || failure.code == SL_ERR_UNSUPPORTED;
    sl_log_err(ordinary ? SL_LOG_INFO : SL_LOG_WARN, "sluiced", &failure,
               "no RDMA, TCP only (transport = auto)");
    snprintf(daemon->rdma_note, sizeof daemon->rdma_note, "%s", failure.msg);
    return 0;
}

static int open_repository(struct daemon *daemon, struct sl_err *err)
{
    const char *path = sl_option_string(daemon->options, "repo-path");
    int rc = sl_store_posix_open(path, true, &daemon->store, err);
    if (rc)
        return rc;
    struct sl_err missing = {0};
    rc = sl_repo_open(daemon->store, false, &daemon->repo, &missing);
    if (!rc)
        return 0;
    rc = sl_repo_open(daemon->store, true, &daemon->repo, err);
    if (!rc)
        sl_log(SL_LOG_INFO, "sluiced", "\"%s\" was empty: made a repository", path);
    return rc;
}

static enum sl_seal_kind seal_kind(const char *text)
{
    return strcmp(text, "on") == 0    ? SL_SEAL_ON
           : strcmp(text, "off") == 0 ? SL_SEAL_OFF
                                      : SL_SEAL_AUTO;
}

static unsigned number(const struct sl_options *options, const char *name)
{
    return (unsigned)sl_option_int(options, name);
}

static int start_target(struct daemon *daemon, struct sl_err *err)
{
    const struct sl_options *options = daemon->options;
    struct sl_target_config config = {
        .repo = daemon->repo,
        .workers = number(options, "workers"),
        .pool_bytes = (size_t)sl_option_int(options, "pool-size"),
        .lanes_per_session = number(options, "lanes"),
        .sessions_max = number(options, "sessions-max"),
        .depth = number(options, "queue-depth"),
        .seal = seal_kind(sl_option_string(options, "wire-encryption")),
        .software = "sluiced " SLUICE_VERSION,
        .permit = permit,
        .permit_remove = permit_remove,
        .permit_arg = daemon,
        .tls = daemon->tls,
        .listen_address = sl_option_string(options, "listen-address"),
        .listen_port = (uint16_t)sl_option_int(options, "port"),
        .rdma_port = (uint16_t)sl_option_int(options, "rdma-port"),
        .rdma = daemon->rdma,
        .rdma_note = daemon->rdma_note,
        .traffic_class = (int)number(options, "traffic-class"),
    };
    int rc = sl_target_start(&config, &daemon->target, err);
    if (rc || strcmp(sl_option_string(options, "transport"), "rdma") != 0 ||
        sl_target_rdma_port(daemon->target))
        return rc;
    return sl_err_set(err, SL_ERR_CONNECT, "transport = rdma: %s",
                      sl_target_rdma_note(daemon->target));
}

static void warn_of_certificate(const struct sl_tls *tls)
{
    int days = sl_tls_days_left(tls);
    if (days < 30)
        sl_log(days < 0 ? SL_LOG_ERROR : SL_LOG_WARN, "sluiced",
               days < 0 ? "the certificate ended %d days ago" : "the certificate ends in %d days",
               days < 0 ? -days : days);
}

/* The one line on standard output: what it listens on. */
static int announce(const struct daemon *daemon)
{
    unsigned port = sl_target_port(daemon->target);
    unsigned rdma_port = sl_target_rdma_port(daemon->target);
    const char *note = sl_target_rdma_note(daemon->target);
    const char *path = sl_option_string(daemon->options, "repo-path");
    if (strcmp(sl_option_string(daemon->options, "output"), "json") == 0) {
        json_t *line = json_pack("{s:s, s:i, s:i, s:o*, s:o*}", "listening", SLUICE_VERSION, "port",
                                 (int)port, "rdma_port", (int)rdma_port, "rdma", sl_json_text(note),
                                 "repository", sl_json_text(path));
        json_dumpf(line, stdout, JSON_COMPACT);
        json_decref(line);
        putchar('\n');
    } else if (rdma_port) {
        printf("sluiced %s is listening on port %u, RDMA on port %u (%s); repository %s\n",
               SLUICE_VERSION, port, rdma_port, note, path);
    } else {
        printf("sluiced %s is listening on port %u, no RDMA (%s); repository %s\n", SLUICE_VERSION,
               port, note, path);
    }
    return fflush(stdout);
}

/* --- signals -----------------------------------------------------------------------------------
 */

static const char *const kept_until_restart[] = {
    "repo-path",       "listen-address", "port",    "rdma-port", "transport",
    "wire-encryption", "traffic-class",  "workers", "pool-size", "sessions-max",
    "lanes",           "queue-depth",    "output"};

static void warn_of_changes(const struct sl_options *before, const struct sl_options *now)
{
    for (size_t i = 0; i < sizeof kept_until_restart / sizeof *kept_until_restart; i++) {
        const char *name = kept_until_restart[i];
        const char *a = sl_option_string(before, name), *b = sl_option_string(now, name);
        if (a == b || (a && b && strcmp(a, b) == 0))
            continue;
        sl_log(SL_LOG_WARN, "sluiced", "%s changed: that takes a restart", name);
    }
}

/* All of the new file, or nothing of it. */
static int reload(struct daemon *daemon, struct sl_err *err)
{
    struct sl_options *options = NULL;
    struct sl_permissions *permissions = NULL;
    struct sl_tls *tls = NULL;
    int rc = sl_daemon_configure(daemon->argc, daemon->argv, daemon->environment, &options, err);
    if (!rc)
        rc = sl_permissions_new(options, &permissions, err);
    if (!rc)
        rc = make_tls(options, &tls, err);
    /* new permissions first: the target asks them while it reloads */
    struct sl_permissions *old_permissions = daemon->permissions;
    if (!rc) {
        pthread_mutex_lock(&daemon->mutex);
        daemon->permissions = permissions;
        pthread_mutex_unlock(&daemon->mutex);
        rc = sl_target_reload(daemon->target, tls, err);
        if (rc) {
            pthread_mutex_lock(&daemon->mutex);
            daemon->permissions = old_permissions;
            pthread_mutex_unlock(&daemon->mutex);
        }
    }
    if (rc) {
        sl_tls_free(tls);
        sl_permissions_free(permissions);
        sl_options_free(options);
        return rc;
    }
    sl_tls_free(daemon->tls);
    daemon->tls = tls;
    sl_permissions_free(old_permissions);
    warn_of_changes(daemon->started, options);
    if (daemon->options != daemon->started)
        sl_options_free(daemon->options);
    daemon->options = options;
    sl_output_log(options);
    warn_of_certificate(tls);
    return 0;
}

static void handle_reload(struct daemon *daemon)
{
    struct sl_err err = {0};
    sl_notify("RELOADING=1\nMONOTONIC_USEC=%" PRIu64, sl_now_ns() / 1000);
    if (reload(daemon, &err))
        sl_log_err(SL_LOG_ERROR, "sluiced", &err, "nothing was reloaded");
    else
        sl_log(SL_LOG_INFO, "sluiced", "reloaded \"%s\"",
               sl_option_string(daemon->options, "config"));
    sl_notify("READY=1");
}

static void log_counters(const struct daemon *daemon)
{
    struct sl_target_stats s;
    sl_target_stats(daemon->target, &s);
    sl_log(SL_LOG_INFO, "sluiced",
           "sessions %" PRIu64 " (%" PRIu64 " refused), blocks in %" PRIu64 " out %" PRIu64
           ", objects created %" PRIu64 " identical %" PRIu64 " refused %" PRIu64 " failed %" PRIu64
           ", commits %" PRIu64 " in %" PRIu64 " batches, lanes lost %" PRIu64
           ", waits for the pool %" PRIu64,
           s.sessions, s.sessions_refused, s.blocks_in, s.blocks_out, s.objects_created,
           s.objects_identical, s.objects_refused, s.objects_failed, s.batch_objects, s.batches,
           s.lanes_lost, s.pool_waits);
}

static void wait_for_stop(struct daemon *daemon, const sigset_t *signals)
{
    for (;;) {
        int number_got = sigwaitinfo(signals, NULL);
        if (number_got == SIGHUP)
            handle_reload(daemon);
        else if (number_got == SIGUSR1)
            log_counters(daemon);
        else if (number_got > 0)
            return;
    }
}

/* --- life --------------------------------------------------------------------------------------
 */

static int start(struct daemon *daemon, struct sl_err *err)
{
    int rc =
        sl_daemon_configure(daemon->argc, daemon->argv, daemon->environment, &daemon->options, err);
    if (rc)
        return rc;
    daemon->started = daemon->options;
    sl_output_log(daemon->options);
    rc = sl_permissions_new(daemon->options, &daemon->permissions, err);
    if (!rc)
        rc = make_tls(daemon->options, &daemon->tls, err);
    if (rc)
        return rc;
    warn_of_certificate(daemon->tls);
    rc = find_rdma(daemon, err);
    if (!rc)
        rc = open_repository(daemon, err);
    return rc ? rc : start_target(daemon, err);
}

static void stop(struct daemon *daemon)
{
    if (daemon->target)
        sl_target_stop(daemon->target, number(daemon->options, "stop-timeout"));
    if (daemon->repo)
        sl_repo_close(daemon->repo);
    if (daemon->store)
        daemon->store->ops->free(daemon->store);
    sl_tls_free(daemon->tls);
    sl_permissions_free(daemon->permissions);
    if (daemon->options != daemon->started)
        sl_options_free(daemon->options);
    sl_options_free(daemon->started);
    pthread_mutex_destroy(&daemon->mutex);
}

static int serve(struct daemon *daemon)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* EFBIG instead (setrlimit(2)) */
    struct sl_err err = {0};
    int rc = start(daemon, &err);
    if (rc) {
        sl_output_hint(&err);
        sl_output_error(&err);
        stop(daemon);
        return sl_code_exit(rc);
    }
    announce(daemon);
    sl_notify("READY=1\nSTATUS=listening on port %u", sl_target_port(daemon->target));
    wait_for_stop(daemon, &signals);
    sl_notify("STOPPING=1");
    sl_log(SL_LOG_INFO, "sluiced", "stopping");
    /* a second signal ends the process at once */
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGINT);
    sigaddset(&end, SIGTERM);
    pthread_sigmask(SIG_UNBLOCK, &end, NULL);
    stop(daemon);
    return 0;
}

static bool has_word(int argc, char **argv, const char *word, const char *letter)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], word) == 0 || strcmp(argv[i], letter) == 0)
            return true;
    return false;
}

static int print_help(void)
{
    const struct sl_option *const tables[] = {sl_daemon_options};
    struct sl_options *options = NULL;
    if (sl_options_new(tables, 1, &options, NULL))
        return sl_code_exit(SL_ERR_NO_MEMORY);
    fputs("sluiced " SLUICE_VERSION ": backup host of Sluice\n\nusage: sluiced [OPTION...]\n",
          stdout);
    sl_options_help(options, NULL, stdout);
    sl_options_free(options);
    return 0;
}

int sl_daemon_main(int argc, char **argv, char **environment)
{
    if (has_word(argc, argv, "--help", "-h"))
        return print_help();
    if (has_word(argc, argv, "--version", "-V"))
        return printf("sluiced %s\n", SLUICE_VERSION) < 0;
    struct daemon daemon = {.argc = argc - 1, .argv = argv + 1, .environment = environment};
    pthread_mutex_init(&daemon.mutex, NULL);
    return serve(&daemon);
}
