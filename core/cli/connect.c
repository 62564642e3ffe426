/* From options to an open client: embedded target or a daemon's host. Nothing is decided here that
 * the client decides: which transport, how many slots. */
#include "core/cli/connect.h"

#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/base/stop.h"
#include "core/plugin/loader.h"
#include "core/repo/repo.h"
#include "core/store/store.h"
#include "core/target/target.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define SHORT_LIVED_SLOT_BYTES (8u << 20)
#define SHORT_LIVED_POOL_BYTES (16u << 20)
#define DEFAULT_PORT           "7430"

struct sl_connection {
    struct sl_client *client;
    int stop_ticket;
    /* embedded */
    struct sl_store *store;
    struct sl_repo *repo;
    struct sl_target *target;
    /* to a host */
    struct sl_tls *tls;
    char **hosts;           /* with ports, NULL-terminated */
    struct sl_err rdma_err; /* why there is no RDMA: the client may say it later */
};

static int out_of_memory(struct sl_err *err)
{
    return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
}

/* --- hosts -------------------------------------------------------------------------------------
 */

/* "backup1" → "backup1:7430"; "::1" → "[::1]:7430"; what has a port stays. Returns owned. */
static char *with_port(const char *host)
{
    const char *bracket = strrchr(host, ']');
    const char *colon = strrchr(bracket ? bracket : host, ':');
    if (*host != '[' && colon && strchr(host, ':') != colon)
        return sl_asprintf("[%s]:" DEFAULT_PORT, host);
    return colon ? sl_strdup(host) : sl_asprintf("%s:" DEFAULT_PORT, host);
}

static int make_hosts(struct sl_connection *connection, const struct sl_options *options,
                      struct sl_err *err)
{
    const char **items;
    size_t count = sl_option_list(options, "repo-host", &items);
    connection->hosts = sl_calloc(count + 1, sizeof *connection->hosts);
    if (!connection->hosts)
        return out_of_memory(err);
    for (size_t i = 0; i < count; i++) {
        connection->hosts[i] = with_port(items[i]);
        if (!connection->hosts[i])
            return out_of_memory(err);
    }
    return 0;
}

static int make_tls(struct sl_connection *connection, const struct sl_options *options,
                    struct sl_err *err)
{
    static const char *const names[] = {"tls-cert", "tls-key", "tls-ca"};
    for (size_t i = 0; i < 3; i++) {
        if (sl_option_string(options, names[i]))
            continue;
        sl_err_set(err, SL_ERR_CONFIG, "repo-host needs %s", names[i]);
        sl_err_hint(err, "make certificates with \"sluice cert init\" and \"sluice cert "
                         "issue\", then set tls-cert, tls-key and tls-ca");
        return SL_ERR_CONFIG;
    }
    struct sl_tls_files files = {.certificate = sl_option_string(options, "tls-cert"),
                                 .key = sl_option_string(options, "tls-key"),
                                 .authority = sl_option_string(options, "tls-ca")};
    return sl_tls_new(&files, false, &connection->tls, err);
}

static enum sl_transport_kind transport_kind(const char *text, bool short_lived)
{
    if (strcmp(text, "rdma") == 0)
        return SL_TRANSPORT_RDMA;
    /* setting up queue pairs and pinning memory costs more than one segment is worth */
    return strcmp(text, "tcp") == 0 || short_lived ? SL_TRANSPORT_TCP : SL_TRANSPORT_AUTO;
}

/* The RDMA plugin, or why there is none, which is an error only if RDMA is demanded. */
static int make_rdma(struct sl_connection *connection, struct sl_client_config *config,
                     struct sl_err *err)
{
    struct sl_err *note = &connection->rdma_err;
    if (config->transport == SL_TRANSPORT_TCP)
        return 0;
    int rc = sl_plugin_transport(&config->rdma, note);
    if (!rc)
        return 0;
    if (config->transport == SL_TRANSPORT_RDMA)
        return sl_err_copy(err, note);
    config->rdma_note = note->msg;
    return 0;
}

static int open_host(struct sl_connection *connection, const struct sl_options *options,
                     bool short_lived, struct sl_client_config *config, sl_deadline deadline,
                     struct sl_err *err)
{
    config->transport = transport_kind(sl_option_string(options, "transport"), short_lived);
    int rc = make_hosts(connection, options, err);
    if (!rc)
        rc = make_tls(connection, options, err);
    if (!rc)
        rc = make_rdma(connection, config, err);
    if (rc)
        return rc;
    config->hosts = (const char *const *)connection->hosts;
    config->tls = connection->tls;
    config->tls_name = sl_option_string(options, "tls-name");
    config->bind_address = sl_option_string(options, "bind-address");
    return sl_client_open(config, deadline, &connection->client, err);
}

/* --- embedded ----------------------------------------------------------------------------------
 */

static bool permit_all(void *arg, const char *client, const char *stanza)
{
    (void)arg, (void)client, (void)stanza;
    return true;
}

static int open_repository(struct sl_connection *connection, const char *path, bool create,
                           struct sl_err *err)
{
    int rc = sl_store_posix_open(path, create, &connection->store, err);
    if (!rc)
        rc = sl_repo_open(connection->store, create, &connection->repo, err);
    /* NOT_FOUND and OPEN: no folder, or nothing in it; REPO may be something else's folder */
    bool missing =
        rc == SL_ERR_NOT_FOUND || rc == SL_ERR_OPEN || (rc == SL_ERR_REPO && err && !err->hint[0]);
    if (missing && !create)
        sl_err_hint(err, "\"sluice stanza-create\" makes the repository; or correct repo-path (%s)",
                    path);
    return rc;
}

static int open_embedded(struct sl_connection *connection, const struct sl_options *options,
                         const struct sl_connect_options *wanted, struct sl_client_config *config,
                         sl_deadline deadline, struct sl_err *err)
{
    int rc = open_repository(connection, sl_option_string(options, "repo-path"),
                             wanted->create_repository, err);
    if (rc)
        return rc;
    struct sl_target_config target = {
        .repo = connection->repo,
        .workers = wanted->short_lived ? 1 : 0,
        .pool_bytes = wanted->short_lived ? SHORT_LIVED_POOL_BYTES : 0,
        .lanes_per_session = config->lanes,
        .sessions_max = 4,
        .depth = config->depth,
        .seal = SL_SEAL_AUTO,
        .software = "sluice " SLUICE_VERSION,
        .permit = permit_all,
        .permit_remove = permit_all, /* who can write the folder can remove from it */
    };
    rc = sl_target_start(&target, &connection->target, err);
    if (rc)
        return rc;
    struct sl_embedded embedded = {connection->target, sl_target_attach, sl_target_local_lane};
    config->embedded = &embedded; /* copied */
    return sl_client_open(config, deadline, &connection->client, err);
}

/* --- both --------------------------------------------------------------------------------------
 */

static enum sl_seal_kind seal_kind(const char *text)
{
    return strcmp(text, "on") == 0    ? SL_SEAL_ON
           : strcmp(text, "off") == 0 ? SL_SEAL_OFF
                                      : SL_SEAL_AUTO;
}

static enum sl_codec codec_kind(const struct sl_options *options)
{
    enum sl_codec codec = SL_CODEC_PLAIN;
    sl_codec_parse(sl_option_string(options, "compress-type"), &codec); /* a choice: it is known */
    return codec;
}

static int64_t number_if_set(const struct sl_options *options, const char *name, int64_t otherwise)
{
    return sl_option_is_set(options, name) ? sl_option_int(options, name) : otherwise;
}

static void fill(struct sl_client_config *config, const struct sl_invocation *invocation,
                 const struct sl_connect_options *wanted)
{
    const struct sl_options *options = invocation->options;
    int64_t timeout_ms = sl_option_int(options, "timeout");
    *config = (struct sl_client_config){
        .stanza = wanted->stanza ? wanted->stanza : invocation->stanza,
        .traffic_class = (int)number_if_set(options, "traffic-class", -1),
        .use =
            invocation->command && invocation->command->reads ? SL_CLIENT_READS : SL_CLIENT_STORES,
        .seal = seal_kind(sl_option_string(options, "wire-encryption")),
        .codec = codec_kind(options),
        .codec_level = (int)sl_option_int(options, "compress-level"),
        .lanes = (unsigned)number_if_set(options, "lanes", wanted->short_lived ? 1 : 0),
        .depth = (unsigned)sl_option_int(options, "queue-depth"),
        .slot_bytes_total = (size_t)number_if_set(options, "memory",
                                                  wanted->short_lived ? SHORT_LIVED_SLOT_BYTES : 0),
        .io_ms = timeout_ms > (int64_t)UINT_MAX ? UINT_MAX : (unsigned)timeout_ms,
        .progress = invocation->progress,
        .lazy = wanted->lazy,
    };
}

static void cancel(void *arg)
{
    sl_client_cancel(arg);
}

static int check(const struct sl_options *options, const char *stanza, bool *ret_embedded,
                 struct sl_err *err)
{
    const char *path = sl_option_string(options, "repo-path");
    bool host = sl_option_is_set(options, "repo-host");
    if (!stanza) {
        sl_err_set(err, SL_ERR_USAGE, "no stanza is named");
        sl_err_hint(err, "add --stanza=NAME");
        return SL_ERR_USAGE;
    }
    if (path && host) {
        sl_err_set(err, SL_ERR_CONFIG, "repo-path (%s) and repo-host (%s) are both set",
                   sl_option_origin(options, "repo-path"), sl_option_origin(options, "repo-host"));
        sl_err_hint(err, "keep one: a folder of this host, or a backup host");
        return SL_ERR_CONFIG;
    }
    if (!path && !host) {
        sl_err_set(err, SL_ERR_CONFIG, "no repository is named");
        sl_err_hint(err, "set repo-path (a folder of this host) or repo-host (a host that "
                         "runs sluiced)");
        return SL_ERR_CONFIG;
    }
    *ret_embedded = path != NULL;
    return 0;
}

int sl_connection_open(const struct sl_invocation *invocation,
                       const struct sl_connect_options *options, sl_deadline deadline,
                       struct sl_connection **ret_connection, struct sl_err *err)
{
    struct sl_client_config config;
    fill(&config, invocation, options);
    bool embedded = false;
    int rc = check(invocation->options, config.stanza, &embedded, err);
    if (!rc)
        rc = sl_stop_check(err);
    if (rc)
        return rc;
    struct sl_connection *connection = sl_calloc(1, sizeof *connection);
    if (!connection)
        return out_of_memory(err);
    connection->stop_ticket = -1;
    if (embedded)
        rc = open_embedded(connection, invocation->options, options, &config, deadline, err);
    else
        rc = open_host(connection, invocation->options, options->short_lived, &config, deadline,
                       err);
    if (rc) {
        sl_connection_close(connection);
        return rc;
    }
    connection->stop_ticket = sl_stop_on(cancel, connection->client);
    *ret_connection = connection;
    return 0;
}

struct sl_client *sl_connection_client(struct sl_connection *connection)
{
    return connection->client;
}

int sl_connection_certificate_days(const struct sl_connection *connection)
{
    return connection->tls ? sl_tls_days_left(connection->tls) : INT_MAX;
}

void sl_connection_close(struct sl_connection *connection)
{
    if (!connection)
        return;
    sl_stop_off(connection->stop_ticket);
    sl_client_close(connection->client);
    if (connection->target)
        sl_target_stop(connection->target, 0);
    if (connection->repo)
        sl_repo_close(connection->repo);
    if (connection->store)
        connection->store->ops->free(connection->store);
    sl_tls_free(connection->tls);
    for (char **host = connection->hosts; host && *host; host++)
        sl_free(*host);
    sl_free(connection->hosts);
    sl_free(connection);
}
