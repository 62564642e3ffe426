/* HELLO and WELCOME: who the client is, what it may use, and the secrets of its session. */
#include "core/target/target_internal.h"

#include "core/base/alloc.h"
#include "core/base/log.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static int check(const struct session *session, const struct sl_msg_hello *hello,
                 struct sl_err *err)
{
    const struct sl_target *target = session->target;
    const char *client = sl_control_peer(session->control);
    char full[SL_FULL_NAME_MAX];
    if (target->stopping)
        return sl_err_set(err, SL_ERR_CLOSED, "the target is shutting down");
    if (hello->version_min > SL_WIRE_VERSION || hello->version < SL_WIRE_VERSION_MIN)
        return sl_err_set(err, SL_ERR_VERSION,
                          "the target speaks versions %d to %d of the wire, the client %u to %u",
                          SL_WIRE_VERSION_MIN, SL_WIRE_VERSION, hello->version_min, hello->version);
    if (hello->slot_bytes != SL_BLOCK_BYTES || hello->slots > SLOTS_MAX ||
        hello->slots_pulled > hello->slots)
        return sl_err_set(err, SL_ERR_PROTOCOL, "%u slots of %u bytes are not possible",
                          hello->slots, hello->slot_bytes);
    if (hello->seal > SL_SEAL_ON)
        return sl_err_set(err, SL_ERR_PROTOCOL, "unknown kind of seal %u", hello->seal);
    int rc = sl_repo_name(hello->stanza, "", true, full, err);
    if (rc)
        return rc;
    if (target->config.permit &&
        !target->config.permit(target->config.permit_arg, client, hello->stanza)) {
        sl_err_set(err, SL_ERR_DENIED, "client \"%s\" may not use stanza \"%s\"", client,
                   hello->stanza);
        return sl_err_hint(err,
                           "on the backup host, \"clients = %s\" in section [%s] of sluiced.conf "
                           "allows it, after systemctl reload sluiced; or is it a typing error?",
                           client, hello->stanza);
    }
    if (target->session_count >= target->config.sessions_max)
        return sl_err_set(err, SL_ERR_LIMIT, "the target has %u sessions, as many as it may",
                          target->session_count);
    return 0;
}

static int make_secrets(struct session *session, struct sl_err *err)
{
    if (getrandom(session->id.bytes, sizeof session->id.bytes, 0) !=
        (ssize_t)sizeof session->id.bytes)
        return sl_err_set(err, SL_ERR_CRYPTO, "no random bytes");
    int rc = sl_control_export(session->control, SL_EXPORT_LANE, &session->id, session->lane_key,
                               sizeof session->lane_key, err);
    if (!rc)
        rc = sl_control_export(session->control, SL_EXPORT_SEAL_CLIENT, &session->id,
                               session->secret_in, sizeof session->secret_in, err);
    if (!rc)
        rc = sl_control_export(session->control, SL_EXPORT_SEAL_TARGET, &session->id,
                               session->secret_out, sizeof session->secret_out, err);
    return rc;
}

static int make_room(struct session *session, const struct sl_msg_hello *hello, struct sl_err *err)
{
    session->lanes_used = sl_calloc(1, (UINT16_MAX + 1u) / 8);
    uint8_t *states = session->lanes_used ? sl_calloc(hello->slots, 1) : NULL;
    if (!states)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    session->slot_states = states;
    session->slots = hello->slots;
    session->slots_pulled = hello->slots_pulled;
    session->memory_wanted = (uint8_t)((hello->slots_pulled ? SL_ACCESS_PULLED : 0) |
                                       (hello->slots > hello->slots_pulled ? SL_ACCESS_PUSHED : 0));
    session->target->session_count++;
    return 0;
}

static void welcome(struct session *session)
{
    const struct sl_target *target = session->target;
    const struct sl_target_config *config = &target->config;
    struct sl_msg msg = {.type = SL_MSG_WELCOME};
    struct sl_msg_welcome *w = &msg.welcome;
    w->version = SL_WIRE_VERSION;
    if (config->repo->store->caps & SL_STORE_CAN_GROW)
        w->features = SL_FEATURE_GROW & session->features;
    snprintf(w->software, sizeof w->software, "%s", config->software ? config->software : "sluice");
    w->session = session->id;
    w->repository = config->repo->uuid;
    w->digest_seed = config->repo->digest_seed;
    w->rdma_port = sl_target_rdma_port(target);
    snprintf(w->rdma_note, sizeof w->rdma_note, "%s", target->rdma_note);
    w->seal = (uint8_t)config->seal;
    w->lanes = (uint16_t)config->lanes_per_session;
    w->depth = (uint16_t)config->depth;
    w->objects = OBJECTS_OPEN_MAX;
    w->heartbeat_ms = config->heartbeat_ms;
    w->dead_ms = config->dead_ms;
    w->wall_ns = sl_wall_ns();
    snprintf(w->store, sizeof w->store, "%s", config->repo->store->ops->name);
    sl_target_answer(session, &msg);
}

void sl_target_hello_arrived(struct session *session, const struct sl_msg_hello *hello)
{
    struct sl_target *target = session->target;
    struct sl_err err;
    snprintf(session->client, sizeof session->client, "%s", sl_control_peer(session->control));
    snprintf(session->label, sizeof session->label, "client \"%s\" (%s)", session->client,
             sl_control_address(session->control));
    snprintf(session->stanza, sizeof session->stanza, "%s", hello->stanza);
    session->seal_wanted = hello->seal;
    session->features = hello->features;
    session->permit_generation = target->permit_generation;
    if (check(session, hello, &err) || make_secrets(session, &err) ||
        make_room(session, hello, &err)) {
        sl_target_session_refuse(session, &err);
        return;
    }
    session->state = SESSION_LIVE;
    sl_control_heartbeat(session->control, target->config.heartbeat_ms, target->config.dead_ms);
    COUNT(target, sessions, 1);
    sl_log(SL_LOG_DETAIL, "target", "%s: session for stanza \"%s\", \"%s\" on \"%s\"",
           session->label, session->stanza, hello->software, hello->host);
    welcome(session);
}
