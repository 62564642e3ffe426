/* sluiced's options, and who may use which stanza. */
#include "core/cli/daemon.h"

#include "core/base/alloc.h"
#include "core/cli/cli.h"
#include "core/cli/option_rows.h"

#include <string.h>

const struct sl_option sl_daemon_options[] = {
    ROW_CONFIG(.default_text = SL_DAEMON_CONFIG, .group = "General"),
    ROW_OUTPUT(.help = "form of log lines"),
    ROW_LOG_LEVEL(.default_text = "info"),
    {.name = "stop-timeout",
     .type = SL_OPTION_DURATION,
     .value_name = "TIME",
     .default_text = "20s",
     .min = 0,
     .max = 3600000,
     .help = "how long commits that have begun may take when it is stopped"},

    ROW_REPO_PATH(.group = "Repository",
                  .help = "folder of the repository; made if it is missing or empty"),
    {.name = "clients",
     .type = SL_OPTION_LIST,
     .value_name = "NAME",
     .flags = SL_OPTION_SECTION,
     .help = "in a stanza's section: the hosts, by their certificates' names, that may add to it "
             "and read it"},
    {.name = "expire-clients",
     .type = SL_OPTION_LIST,
     .value_name = "NAME",
     .flags = SL_OPTION_SECTION,
     .help = "in a stanza's section: the hosts that may also remove what is in it (sluice expire, "
             "unkeep); not a database host: who takes one over must not be able to delete its "
             "backups. No \"*\" here"},

    {.name = "listen-address",
     .type = SL_OPTION_STRING,
     .value_name = "ADDRESS",
     .group = "Network",
     .help = "address to listen on (default: all)"},
    {.name = "port",
     .type = SL_OPTION_INT,
     .value_name = "N",
     .default_text = "7430",
     .min = 0,
     .max = 65535,
     .help = "TCP port; 0 takes a free one"},
    {.name = "rdma-port",
     .type = SL_OPTION_INT,
     .value_name = "N",
     .min = 1,
     .max = 65535,
     .help = "rdma_cm port (default: port + 1)"},
    ROW_TRANSPORT(.help = "auto offers RDMA if this host has it; rdma does not start without it"),
    ROW_TRAFFIC_CLASS(
            .default_text = "0",
            .help = "IP type of service of what is sent over TCP; RDMA lanes follow the client's"),
    ROW_WIRE_ENCRYPTION(.help = "what is insisted on; auto leaves it to the client"),
    ROW_TLS_CERT,
    ROW_TLS_KEY,
    ROW_TLS_CA(.help = "certificate of the authority that clients are trusted by"),

    {.name = "workers",
     .type = SL_OPTION_INT,
     .value_name = "N",
     .min = 1,
     .max = 256,
     .group = "Resources",
     .help = "threads that move blocks (default: one a processor, 2 to 16)"},
    {.name = "pool-size",
     .type = SL_OPTION_BYTES,
     .value_name = "SIZE",
     .default_text = "64MiB",
     .min = 8 << 20,
     .max = 1ll << 40,
     .help = "memory for blocks in flight, of all clients"},
    {.name = "sessions-max",
     .type = SL_OPTION_INT,
     .value_name = "N",
     .default_text = "256",
     .min = 1,
     .max = 100000,
     .help = "most clients at a time"},
    ROW_LANES(.default_text = "4", .help = "most data connections of a session"),
    ROW_QUEUE_DEPTH,
    {NULL},
};

int sl_daemon_configure(int argc, char **argv, char **environment, struct sl_options **ret_options,
                        struct sl_err *err)
{
    const struct sl_option *const tables[] = {sl_daemon_options};
    struct sl_options *options = NULL;
    int rc = sl_options_new(tables, 1, &options, err);
    if (rc)
        return rc;
    rc = sl_options_parse_args(options, NULL, argc, argv, NULL, 0, err);
    if (rc >= 0) {
        /* variables for `sluice` may stand in the same environment */
        sl_options_lenient(options, true);
        rc = sl_options_parse_env(options, environment, err);
        sl_options_lenient(options, false);
    }
    if (!rc)
        rc = sl_options_parse_file(options, sl_option_string(options, "config"), NULL, NULL, err);
    if (!rc && !sl_option_string(options, "repo-path"))
        rc = sl_err_set(err, SL_ERR_CONFIG, "repo-path is not set");
    if (rc) {
        sl_options_free(options);
        return rc;
    }
    *ret_options = options;
    return 0;
}

/* --- permissions -------------------------------------------------------------------------------
 */

struct grant {
    char *stanza, *client; /* client "*": all */
    bool remove;
};

struct sl_permissions {
    struct grant *grants;
    size_t count;
};

static int add(struct sl_permissions *permissions, const char *stanza, const char *client,
               size_t length, bool may_remove, struct sl_err *err)
{
    struct grant *grants =
        sl_realloc(permissions->grants, (permissions->count + 1) * sizeof *grants);
    if (!grants)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    permissions->grants = grants;
    struct grant *grant = &grants[permissions->count++];
    *grant = (struct grant){sl_strdup(stanza), sl_strndup(client, length), may_remove};
    return grant->stanza && grant->client ? 0 : sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
}

static int add_stanza(struct sl_permissions *permissions, const char *stanza, const char *clients,
                      bool may_remove, struct sl_err *err)
{
    static const char blanks[] = ", \t";
    int rc = sl_stanza_check(stanza, err);
    for (const char *at = clients; !rc && at;) {
        at += strspn(at, blanks);
        size_t length = strcspn(at, blanks);
        if (!length)
            break;
        if (may_remove && length == 1 && *at == '*')
            return sl_err_set(err, SL_ERR_CONFIG, "[%s]: expire-clients takes names, not \"*\"",
                              stanza);
        rc = add(permissions, stanza, at, length, may_remove, err);
        at += length;
    }
    return rc;
}

int sl_permissions_new(const struct sl_options *options, struct sl_permissions **ret_permissions,
                       struct sl_err *err)
{
    struct sl_permissions *permissions = sl_calloc(1, sizeof *permissions);
    if (!permissions)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    const char **stanzas;
    sl_options_sections(options, &stanzas);
    int rc = 0;
    for (; *stanzas && !rc; stanzas++) {
        rc = add_stanza(permissions, *stanzas, sl_options_in_section(options, *stanzas, "clients"),
                        false, err);
        if (!rc)
            rc = add_stanza(permissions, *stanzas,
                            sl_options_in_section(options, *stanzas, "expire-clients"), true, err);
    }
    if (rc) {
        sl_permissions_free(permissions);
        return rc;
    }
    *ret_permissions = permissions;
    return 0;
}

void sl_permissions_free(struct sl_permissions *permissions)
{
    if (!permissions)
        return;
    for (size_t i = 0; i < permissions->count; i++) {
        sl_free(permissions->grants[i].stanza);
        sl_free(permissions->grants[i].client);
    }
    sl_free(permissions->grants);
    sl_free(permissions);
}

bool sl_permissions_allow_remove(const struct sl_permissions *permissions, const char *client,
                                 const char *stanza)
{
    for (size_t i = 0; i < permissions->count; i++) {
        const struct grant *grant = &permissions->grants[i];
        if (grant->remove && strcmp(grant->stanza, stanza) == 0 &&
            strcmp(grant->client, client) == 0)
            return true;
    }
    return false;
}

bool sl_permissions_allow(const struct sl_permissions *permissions, const char *client,
                          const char *stanza)
{
    for (size_t i = 0; i < permissions->count; i++) {
        const struct grant *grant = &permissions->grants[i];
        if (strcmp(grant->stanza, stanza) == 0 &&
            (strcmp(grant->client, "*") == 0 || strcmp(grant->client, client) == 0))
            return true;
    }
    return false;
}
