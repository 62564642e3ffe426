/* stanza-create: says whose backups the stanza will hold. The same server again is success, another
 * is refused. */
#include "core/base/alloc.h"
#include "mysql/commands.h"
#include "mysql/repository.h"
#include "mysql/server.h"

#include <stdio.h>
#include <string.h>

static int put(struct sl_my_repository *repository, const struct sl_my_server *server,
               sl_deadline deadline, struct sl_err *err)
{
    SL_CLEANUP_FREE char *json = NULL;
    struct sl_stored stored;
    struct sl_stanza *stanza = &repository->stanza;
    snprintf(stanza->engine, sizeof stanza->engine, "%s", SL_MY_ENGINE);
    stanza->life_count = 1;
    struct sl_stanza_life *life = &stanza->lives[0];
    *life = (struct sl_stanza_life){.created_ns = sl_wall_ns()};
    memcpy(life->id, server->id, sizeof life->id);
    memcpy(life->version, server->version, sizeof life->version);
    int rc = sl_stanza_encode(stanza, &json, err);
    return rc ? rc
              : sl_client_put(repository->client, "stanza.json", json, strlen(json), deadline,
                              &stored, err);
}

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
    json_object_set_new(invocation->result, "server_id", json_string(server->id));
    json_object_set_new(invocation->result, "server_version", json_string(server->version));
}

int sl_my_stanza_create(struct sl_invocation *invocation, struct sl_err *err)
{
    sl_deadline deadline =
        sl_deadline_in_ms((uint64_t)sl_option_int(invocation->options, "timeout"));
    struct sl_my_server server;
    int rc = sl_my_server_ask(invocation->options, deadline, &server, err);
    if (rc)
        return rc;
    if (sl_option_bool(invocation->options, "dry-run")) {
        report(invocation, &server, false, true);
        return 0;
    }
    struct sl_my_repository *repository = sl_calloc(1, sizeof *repository);
    if (!repository)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    rc = sl_my_repository_open(invocation, true, deadline, repository, err);
    if (rc) {
        sl_free(repository);
        return rc;
    }
    bool created = !repository->stanza.life_count;
    rc = created ? put(repository, &server, deadline, err)
                 : sl_my_repository_check(repository, server.id, invocation->stanza, err);
    sl_my_repository_close(repository);
    sl_free(repository);
    if (!rc)
        report(invocation, &server, created, false);
    return rc;
}
