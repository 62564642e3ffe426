/* Which transport a session uses, and why; its rail, registration and first lane. The only place
 * of the client that knows more than one transport. */
#include "core/base/log.h"
#include "core/client/client_internal.h"
#include "core/transport/loopback.h"
#include "core/transport/tcp.h"

#include <stdio.h>
#include <string.h>

#define AVOID_RDMA_MS       60000
#define FIRST_LANE_ATTEMPTS 3

/* --- choosing -------------------------------------------------------------------------------- */

/* RDMA cannot be: an error when it was demanded, else TCP with a reason. */
static int no_rdma(struct session *session, const char *why, struct sl_err *err)
{
    session->transport = SL_TRANSPORT_TCP;
    if (session->client->config.transport == SL_TRANSPORT_RDMA) {
        sl_err_set(err, SL_ERR_UNSUPPORTED, "transport = rdma: %s", why);
        return sl_err_hint(err, "transport = auto falls back to TCP");
    }
    snprintf(session->why, sizeof session->why, "auto: %.190s", why);
    return 0;
}

static bool recent_trouble(struct sl_client *client, char *why, size_t room)
{
    pthread_mutex_lock(&client->lock);
    bool recent = client->rdma_trouble[0] && !sl_deadline_passed(client->rdma_again);
    if (recent)
        snprintf(why, room, "%s", client->rdma_trouble);
    pthread_mutex_unlock(&client->lock);
    return recent;
}

void sl_client_transport_avoid_rdma(struct sl_client *client, const char *why)
{
    pthread_mutex_lock(&client->lock);
    snprintf(client->rdma_trouble, sizeof client->rdma_trouble, "RDMA failed: %.180s", why);
    client->rdma_again = sl_deadline_in_ms(AVOID_RDMA_MS);
    pthread_mutex_unlock(&client->lock);
}

static int intend_rdma(struct session *session, struct sl_err *err)
{
    struct sl_client *client = session->client;
    const struct sl_client_config *config = &client->config;
    char text[200];
    struct sl_err why;
    if (!config->rdma) {
        snprintf(text, sizeof text, "no RDMA here: %s",
                 config->rdma_note ? config->rdma_note : "the plugin is not loaded");
        return no_rdma(session, text, err);
    }
    if (config->transport == SL_TRANSPORT_AUTO && recent_trouble(client, text, sizeof text))
        return no_rdma(session, text, err);
    int rc = config->rdma->describe(text, sizeof text, &why);
    if (!rc)
        rc = sl_slots_choose(true, config->slot_bytes_total, &session->slots_wanted, &why);
    if (!rc)
        rc = config->rdma->memlock((size_t)session->slots_wanted * SL_BLOCK_BYTES, &why);
    if (!rc) {
        session->transport = SL_TRANSPORT_RDMA;
        return 0;
    }
    if (config->transport == SL_TRANSPORT_RDMA) {
        sl_err_copy(err, &why);
        return sl_err_prefix(err, "transport = rdma");
    }
    return no_rdma(session, why.msg, err);
}

int sl_client_transport_intend(struct session *session, struct sl_err *err)
{
    const struct sl_client_config *config = &session->client->config;
    int rc = 0;
    if (session->client->has_embedded) {
        session->transport = SL_TRANSPORT_LOCAL;
        snprintf(session->why, sizeof session->why, "the target is embedded");
    } else if (config->transport == SL_TRANSPORT_TCP) {
        session->transport = SL_TRANSPORT_TCP;
        snprintf(session->why, sizeof session->why, "transport = tcp");
    } else {
        rc = intend_rdma(session, err);
    }
    if (!rc && session->transport != SL_TRANSPORT_RDMA)
        rc = sl_slots_choose(false, config->slot_bytes_total, &session->slots_wanted, err);
    uint32_t few = session->slots_wanted / 16 ? session->slots_wanted / 16 : 1;
    session->slots_pulled = config->use == SL_CLIENT_READS ? few : session->slots_wanted - few;
    return rc;
}

int sl_client_transport_decide(struct session *session, struct sl_err *err)
{
    const struct sl_msg_welcome *welcome = &session->welcome;
    struct lanes *lanes = &session->lanes;
    const struct sl_client_config *config = &session->client->config;
    if (session->transport == SL_TRANSPORT_RDMA && !welcome->rdma_port) {
        char text[200];
        snprintf(text, sizeof text, "the target has no RDMA: %.150s", welcome->rdma_note);
        int rc = no_rdma(session, text, err);
        if (rc)
            return rc;
    }
    unsigned lanes_default = 2;
    if (session->transport == SL_TRANSPORT_RDMA) {
        snprintf(session->why, sizeof session->why, "%s",
                 config->transport == SL_TRANSPORT_RDMA ? "transport = rdma"
                                                        : "auto: both sides have RDMA");
        snprintf(lanes->port, sizeof lanes->port, "%u", welcome->rdma_port);
        lanes_default = 4;
    }
    lanes->wanted = config->lanes ? config->lanes : lanes_default;
    if (lanes->wanted > welcome->lanes)
        lanes->wanted = welcome->lanes;
    if (lanes->wanted > LANES_MAX)
        lanes->wanted = LANES_MAX;
    lanes->depth = (uint16_t)(config->depth ? config->depth : 16);
    if (lanes->depth > welcome->depth)
        lanes->depth = welcome->depth;
    session->sealed =
        sl_seal_decided(config->seal, (enum sl_seal_kind)welcome->seal, session->transport);
    return 0;
}

/* --- setting up ------------------------------------------------------------------------------ */

static int make_rail(struct session *session, sl_deadline deadline, struct sl_err *err)
{
    const struct sl_client_config *config = &session->client->config;
    struct lanes *lanes = &session->lanes;
    if (session->transport == SL_TRANSPORT_LOCAL)
        return sl_loopback_rail_new(&lanes->rail, err);
    const struct sl_rail_ops *ops =
        session->transport == SL_TRANSPORT_RDMA ? config->rdma->rail : &sl_tcp_rail_ops;
    struct sl_connect to = {.host = session->peer_ip,
                            .port = lanes->port,
                            .bind_address = config->bind_address,
                            .depth = lanes->depth,
                            .deadline = deadline,
                            .traffic_class = config->traffic_class,
                            .cancel_fd = session->kick_fd};
    int rc = ops->resolve(&to, &lanes->rail, err);
    return rc == SL_ERR_CANCELLED ? sl_client_session_over(session, err) : rc;
}

static const enum sl_access access_of[SLOT_KINDS] = {
    [SLOT_PULLED] = SL_ACCESS_PULLED, [SLOT_PUSHED] = SL_ACCESS_PUSHED};

static int make_memory(struct session *session, struct sl_err *err)
{
    struct lanes *lanes = &session->lanes;
    int rc =
        sl_client_slots_init(&session->slots, session->slots_wanted, session->slots_pulled, err);
    if (!rc)
        rc = lanes->rail->ops->domain_new(lanes->rail, &lanes->domain, err);
    for (int kind = 0; kind < SLOT_KINDS && !rc; kind++) {
        const struct slot_pool *pool = &session->slots.pools[kind];
        rc = lanes->rail->ops->region_new(
            lanes->domain, sl_client_slot_memory(&session->slots, pool->first),
            (size_t)pool->count * SL_BLOCK_BYTES, access_of[kind], &lanes->regions[kind], err);
    }
    return rc;
}

static void send_memory(struct session *session)
{
    pthread_mutex_lock(&session->lock);
    for (int kind = 0; kind < SLOT_KINDS; kind++) {
        const struct sl_remote *remote = &session->lanes.regions[kind]->remote;
        struct sl_msg msg = {.type = SL_MSG_MEMORY};
        msg.memory = (struct sl_msg_memory){.rail = 0,
                                            .access = (uint8_t)access_of[kind],
                                            .address = remote->address,
                                            .key = remote->key,
                                            .length = remote->length};
        sl_client_session_send(session, &msg);
    }
    pthread_mutex_unlock(&session->lock);
}

static int await_up(struct session *session, sl_deadline deadline, struct sl_err *err)
{
    int rc = 0;
    pthread_mutex_lock(&session->lock);
    while (!rc && !session->lanes_up)
        rc = sl_client_session_wait(session, &session->changed, deadline, err);
    pthread_mutex_unlock(&session->lock);
    if (rc == SL_ERR_TIMEOUT)
        sl_err_prefix(err, "the target did not take up the lane");
    return rc;
}

/* The first lane, which decides whether there is a session. A connection that breaks at its start
 * is no reason to give up, unless there is another transport to try. */
static int first_lane(struct session *session, sl_deadline deadline, struct sl_err *err)
{
    unsigned attempts = session->transport == SL_TRANSPORT_RDMA &&
                                session->client->config.transport == SL_TRANSPORT_AUTO
                            ? 1
                            : FIRST_LANE_ATTEMPTS;
    for (;;) {
        int rc = sl_client_lanes_add(session, deadline, err);
        if (!rc || !--attempts || !sl_code_retryable(rc) || sl_deadline_passed(deadline))
            return rc;
        sl_deadline pause = sl_deadline_in_ms(BACKOFF_MIN_MS);
        pthread_mutex_lock(&session->lock);
        int over = 0; /* waits for the pause's end, or the session's */
        while (!over && !sl_deadline_passed(pause))
            over = sl_client_session_wait(session, &session->changed, pause, NULL);
        pthread_mutex_unlock(&session->lock);
        if (over && over != SL_ERR_TIMEOUT)
            return rc;
    }
}

int sl_client_transport_setup(struct session *session, sl_deadline deadline, struct sl_err *err)
{
    int rc = make_rail(session, deadline, err);
    if (!rc)
        rc = make_memory(session, err);
    if (!rc)
        rc = first_lane(session, deadline, err);
    if (rc)
        return rc;
    send_memory(session);
    rc = sl_client_lanes_start(session, err);
    return rc ? rc : await_up(session, deadline, err);
}

void sl_client_transport_teardown(struct session *session)
{
    struct lanes *lanes = &session->lanes;
    sl_client_lanes_stop(session);
    if (!lanes->rail)
        return;
    for (int kind = 0; kind < SLOT_KINDS; kind++)
        if (lanes->regions[kind])
            lanes->rail->ops->region_free(lanes->regions[kind]);
    if (lanes->domain)
        lanes->rail->ops->domain_free(lanes->domain);
    lanes->rail->ops->rail_free(lanes->rail);
    lanes->rail = NULL;
}
