/* stanza-create: says whose backups the stanza will hold; the same server again is success, another
 * is refused. stanza-upgrade: another server has taken the place of the one before. */
#include "core/base/alloc.h"
#include "mysql/commands.h"
#include "mysql/repository.h"
#include "mysql/server.h"

#include <stdio.h>
#include <string.h>

static const struct sl_lives_words words = {.engine = SL_MY_ENGINE,
                                            .product = "",
                                            .identity = "server",
                                            .upgrade =
                                                "this one has taken the place of the one before"};

static void report(const struct sl_invocation *invocation, const struct sl_my_server *server,
                   bool created, bool dry_run)
{
    if (!invocation->json)
        printf("stanza \"%s\" %s: %s, server %s\n", invocation->stanza,
               dry_run   ? "would be created"
               : created ? "created"
                         : "is there already",
               server->version, server->id);
    json_object_set_new(invocation->result, "stanza", json_string(invocation->stanza));
    json_object_set_new(invocation->result, "created", json_boolean(created));
    if (dry_run)
        json_object_set_new(invocation->result, "dry_run", json_true());
    json_object_set_new(invocation->result, "server_id", json_string(server->id));
    json_object_set_new(invocation->result, "server_version", json_string(server->version));
}

static int record(struct sl_invocation *invocation, const struct sl_my_server *server, bool first,
                  sl_deadline deadline, bool *ret_added, struct sl_err *err)
{
    struct sl_stanza_life life = {.created_ns = sl_wall_ns()};
    SL_CLEANUP_FREE struct sl_my_repository *repository = sl_calloc(1, sizeof *repository);
    if (!repository)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    memcpy(life.id, server->id, sizeof life.id);
    memcpy(life.version, server->version, sizeof life.version);
    int rc = sl_my_repository_open(invocation, first, deadline, repository, err);
    if (rc)
        return rc;
    rc = (first ? sl_lives_create : sl_lives_upgrade)(
        repository->client, &words, invocation->stanza, &life, deadline, ret_added, err);
    sl_my_repository_close(repository);
    return rc;
}

static int run(struct sl_invocation *invocation, bool first, struct sl_err *err)
{
    sl_deadline deadline =
        sl_deadline_in_ms((uint64_t)sl_option_int(invocation->options, "timeout"));
    struct sl_my_server server;
    bool added = false, dry_run = sl_option_bool(invocation->options, "dry-run");
    int rc = sl_my_server_ask(invocation->options, deadline, &server, err);
    if (!rc && !dry_run)
        rc = record(invocation, &server, first, deadline, &added, err);
    if (!rc)
        report(invocation, &server, added, dry_run);
    return rc;
}

int sl_my_stanza_create(struct sl_invocation *invocation, struct sl_err *err)
{
    return run(invocation, true, err);
}

int sl_my_stanza_upgrade(struct sl_invocation *invocation, struct sl_err *err)
{
    return run(invocation, false, err);
}
