/* stanza-create: says whose WAL and backups the stanza will hold. The same system again is
 * success, another is refused. stanza-upgrade: adds what pg_upgrade made of the cluster. */
#include "core/base/alloc.h"
#include "postgres/commands.h"
#include "postgres/control_file.h"
#include "postgres/db.h"
#include "postgres/repository.h"
#include "postgres/signals.h"

#include <stdio.h>
#include <string.h>

static int ask_folder(const struct sl_invocation *invocation, sl_deadline deadline,
                      struct sl_stanza_life *life, struct sl_err *err)
{
    const char *folder = sl_option_string(invocation->options, "pg-path");
    struct sl_pg_control control;
    if (!folder)
        return sl_err_set(err, SL_ERR_USAGE, "--no-online needs --pg-path");
    int rc = sl_pg_control_read(folder, deadline, NULL, &control, err);
    if (!rc)
        rc = sl_pg_version_read(folder, life->version, err);
    if (!rc)
        snprintf(life->id, sizeof life->id, "%llu", (unsigned long long)control.system_id);
    return rc;
}

static int ask_server(const struct sl_invocation *invocation, sl_deadline deadline,
                      struct sl_stanza_life *life, struct sl_err *err)
{
    struct sl_pg_db *db = NULL;
    struct sl_pg_server server;
    int rc = sl_pg_db_connect(invocation, deadline, &db, err);
    if (rc) {
        if (sl_option_string(invocation->options, "pg-path"))
            sl_err_hint(err, "run this as the server's user (often postgres), or see --pg-host, "
                             "--pg-port, --pg-user; with --no-online the data directory is read "
                             "instead");
        return rc;
    }
    rc = sl_pg_db_server(db, deadline, &server, err);
    if (!rc) {
        snprintf(life->id, sizeof life->id, "%llu", (unsigned long long)server.system_id);
        snprintf(life->version, sizeof life->version, "%s", server.version);
    }
    sl_pg_db_close(db);
    return rc;
}

static const struct sl_lives_words words = {.engine = SL_PG_ENGINE,
                                            .product = "PostgreSQL ",
                                            .identity = "system identifier",
                                            .upgrade = "this one is what pg_upgrade made of it"};

static void report(const struct sl_invocation *invocation, const struct sl_stanza_life *life,
                   bool dry_run, bool created)
{
    if (!invocation->json)
        printf("stanza \"%s\" %s: PostgreSQL %s, system identifier %s\n", invocation->stanza,
               dry_run   ? "would be created"
               : created ? "created"
                         : "is there already",
               life->version, life->id);
    if (!invocation->result)
        return;
    json_object_set_new(invocation->result, "stanza", json_string(invocation->stanza));
    json_object_set_new(invocation->result, "created", json_boolean(created));
    if (dry_run)
        json_object_set_new(invocation->result, "dry_run", json_true());
    json_object_set_new(invocation->result, "system_id", json_string(life->id));
    json_object_set_new(invocation->result, "pg_version", json_string(life->version));
}

static int run(struct sl_invocation *invocation, bool first, struct sl_err *err)
{
    sl_deadline deadline =
        sl_deadline_in_ms((uint64_t)sl_option_int(invocation->options, "timeout"));
    struct sl_stanza_life life = {.created_ns = sl_wall_ns()};
    struct sl_pg_repository repository;
    bool created = false;
    sl_pg_signals_install(sl_code_exit(SL_ERR_CANCELLED), 0);
    int rc = sl_option_bool(invocation->options, "online")
                 ? ask_server(invocation, deadline, &life, err)
                 : ask_folder(invocation, deadline, &life, err);
    if (!rc && sl_option_bool(invocation->options, "dry-run")) {
        report(invocation, &life, true, false);
        return 0;
    }
    if (!rc)
        rc = sl_pg_repository_open(invocation, first, false, deadline, &repository, err);
    if (rc)
        return rc;
    rc = (first ? sl_lives_create : sl_lives_upgrade)(repository.client, &words, invocation->stanza,
                                                      &life, deadline, &created, err);
    sl_pg_repository_close(&repository);
    if (!rc)
        report(invocation, &life, false, created);
    return rc;
}

int sl_pg_stanza_create(struct sl_invocation *invocation, struct sl_err *err)
{
    return run(invocation, true, err);
}

int sl_pg_stanza_upgrade(struct sl_invocation *invocation, struct sl_err *err)
{
    return run(invocation, false, err);
}
