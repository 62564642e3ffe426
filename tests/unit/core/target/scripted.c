/* See the headers: the world, the letters that come, and opening a session. */
#include "tests/unit/core/target/scripted_internal.h"

#include "core/base/alloc.h"
#include "core/base/fault.h"
#include "core/session/cert.h"
#include "core/transport/loopback.h"
#include "core/transport/tcp.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

/* --- the world ------------------------------------------------------------------------------- */

static void make_certificates(struct world *world)
{
    static const char *const names[] = {"localhost", "127.0.0.1", NULL};
    char dir[80], files[5][112];
    struct sl_err err;
    snprintf(dir, sizeof dir, "%s/pki", world->dir);
    must(sl_cert_init(dir, &err) == 0);
    must(sl_cert_issue(dir, "target1", names, 0, &err) == 0);
    must(sl_cert_issue(dir, "db1", NULL, 0, &err) == 0);
    snprintf(files[0], sizeof files[0], "%s/ca.crt", dir);
    snprintf(files[1], sizeof files[1], "%s/target1.crt", dir);
    snprintf(files[2], sizeof files[2], "%s/target1.key", dir);
    snprintf(files[3], sizeof files[3], "%s/db1.crt", dir);
    snprintf(files[4], sizeof files[4], "%s/db1.key", dir);
    struct sl_tls_files server = {files[1], files[2], files[0]};
    struct sl_tls_files client = {files[3], files[4], files[0]};
    must(sl_tls_new(&server, true, &world->server, &err) == 0);
    must(sl_tls_new(&client, false, &world->client, &err) == 0);
}

static void open_repository(struct world *world)
{
    char path[80];
    struct sl_err err = {0};
    snprintf(path, sizeof path, "%s/repo", world->dir);
    must(sl_store_posix_open(path, true, &world->store, &err) == 0);
    must(sl_repo_open(world->store, true, &world->repo, &err) == 0);
}

void world_reopen(struct world *world)
{
    sl_repo_close(world->repo);
    world->store->ops->free(world->store);
    open_repository(world);
}

void world_make(struct world *world, bool listening)
{
    *world = (struct world){0};
    snprintf(world->dir, sizeof world->dir, "/tmp/sluice-target-XXXXXX");
    must(mkdtemp(world->dir));
    open_repository(world);
    if (listening)
        make_certificates(world);
}

void world_start(struct world *world, const struct sl_target_config *config, bool listening)
{
    struct sl_target_config own = config ? *config : (struct sl_target_config){0};
    struct sl_err err = {0};
    own.repo = world->repo;
    if (!own.pool_bytes)
        own.pool_bytes = 16 * MiB;
    own.tls = listening ? world->server : NULL;
    own.listen_address = "127.0.0.1";
    int rc = sl_target_start(&own, &world->target, &err);
    if (rc)
        fprintf(stderr, "%s\n", err.msg);
    must(rc == 0);
    snprintf(world->port, sizeof world->port, "%u", sl_target_port(world->target));
}

void world_open(struct world *world, const struct sl_target_config *config, bool listening)
{
    world_make(world, listening);
    world_start(world, config, listening);
}

void world_stop(struct world *world, unsigned grace_ms)
{
    sl_target_stop(world->target, grace_ms);
    world->target = NULL;
}

void world_close(struct world *world)
{
    char command[96];
    sl_fault_set(NULL);
    if (world->target)
        world_stop(world, 0);
    sl_tls_free(world->server);
    sl_tls_free(world->client);
    sl_repo_close(world->repo);
    world->store->ops->free(world->store);
    snprintf(command, sizeof command, "rm -rf %s", world->dir);
    must(system(command) == 0);
}

/* --- letters --------------------------------------------------------------------------------- */

static uint8_t *copy_rest(struct sl_msg *msg)
{
    const uint8_t **rest = NULL;
    size_t bytes = 0;
    if (msg->type == SL_MSG_TABLED)
        rest = &msg->tabled.digests, bytes = msg->tabled.digests_bytes;
    else if (msg->type == SL_MSG_SENT)
        rest = &msg->sent.blocks, bytes = msg->sent.blocks_bytes;
    else if (msg->type == SL_MSG_LISTED)
        rest = &msg->listed.entries, bytes = msg->listed.entries_bytes;
    if (!rest)
        return NULL;
    uint8_t *copy = malloc(bytes ? bytes : 1);
    must(copy);
    memcpy(copy, *rest, bytes);
    *rest = copy;
    return copy;
}

static void taken(struct script *script, const struct sl_msg_taken *msg)
{
    struct sl_reader r = sl_reader_on(msg->slots, msg->slots_bytes);
    while (sl_reader_left(&r)) {
        uint32_t slot = sl_read_u32(&r);
        must(slot < script->slots && script->use[slot] == SLOT_OFFERED);
        script->use[slot] = SLOT_FREE;
    }
}

static int on_message(void *arg, struct sl_control *control, const struct sl_msg *msg,
                      struct sl_err *err)
{
    struct script *script = arg;
    (void)control, (void)err;
    if (msg->type == SL_MSG_TAKEN) {
        taken(script, &msg->taken);
        return 0;
    }
    struct letter *letter = calloc(1, sizeof *letter);
    must(letter);
    letter->msg = *msg;
    letter->rest = copy_rest(&letter->msg);
    *script->letters_end = letter;
    script->letters_end = &letter->next;
    return 0;
}

static void turn_control(struct script *script)
{
    struct sl_err err = {0};
    if (!script->closed)
        script->closed = sl_control_process(script->control, on_message, script, &err);
}

static void turn_lane(struct script *script, struct sl_lane **lane)
{
    struct sl_lane_event events[16];
    size_t n;
    do {
        n = sl_lane_process(*lane, events, 16);
        for (size_t i = 0; i < n; i++) {
            if (events[i].kind == SL_LANE_NOTICE) {
                struct sl_reader r = sl_reader_on(events[i].notice, SL_NOTICE_BYTES);
                must(script->notice_count < 1024);
                script->notices[script->notice_count++] = sl_read_u64(&r);
                must(sl_read_u64(&r) == 0);
            } else if (events[i].kind == SL_LANE_CLOSED) {
                sl_lane_free(*lane);
                *lane = NULL;
                return;
            }
        }
    } while (n == 16);
}

void script_turn(struct script *script, int ms)
{
    struct pollfd fds[LANES_MAX + 1] = {{sl_control_fd(script->control), POLLIN, 0}};
    nfds_t n = 1;
    int due = sl_control_next_ms(script->control);
    for (int i = 0; i < LANES_MAX && !script->lanes_asleep; i++)
        if (script->lanes[i])
            fds[n++] = (struct pollfd){script->lanes[i]->fd, script->lanes[i]->events_wanted, 0};
    if (script->closed)
        fds[0].fd = -1;
    else if (due >= 0 && due < ms)
        ms = due;
    if (script->tolerant && script->any_lane && n == 1)
        _exit(SCRIPT_REFUSED); /* its lanes are gone; a real client would open others */
    poll(fds, n, ms);
    turn_control(script);
    for (int i = 0; i < LANES_MAX && !script->lanes_asleep; i++)
        if (script->lanes[i])
            turn_lane(script, &script->lanes[i]);
    turn_control(script); /* what was queued meanwhile */
}

struct letter **script_find(struct script *script, enum sl_msg_type type)
{
    struct letter **at = &script->letters;
    while (*at && (*at)->msg.type != type)
        at = &(*at)->next;
    return at;
}

bool script_has(const struct script *script, enum sl_msg_type type)
{
    for (const struct letter *letter = script->letters; letter; letter = letter->next)
        if (letter->msg.type == type)
            return true;
    return false;
}

static void letter_free(struct letter *letter)
{
    if (letter)
        free(letter->rest);
    free(letter);
}

struct sl_msg *script_take(struct script *script, struct letter **at)
{
    struct letter *letter = *at;
    *at = letter->next;
    if (!letter->next)
        script->letters_end = at;
    letter_free(script->last);
    script->last = letter;
    return &letter->msg;
}

void script_complain(const struct script *script, enum sl_msg_type type)
{
    bool said = script->closed;
    for (const struct letter *letter = script->letters; letter; letter = letter->next)
        said |= letter->msg.type == SL_MSG_ERROR || letter->msg.type == SL_MSG_BYE;
    if (script->tolerant && said)
        _exit(SCRIPT_REFUSED);
    fprintf(stderr, "waited in vain for %s, control %s\n", sl_msg_name((int)type),
            sl_code_name(script->closed));
    for (const struct letter *letter = script->letters; letter; letter = letter->next)
        fprintf(stderr, "  there is %s %s\n", sl_msg_name((int)letter->msg.type),
                letter->msg.type == SL_MSG_ERROR ? letter->msg.error.text : "");
    abort();
}

struct sl_msg script_await(struct script *script, enum sl_msg_type type)
{
    sl_deadline deadline = sl_deadline_in_ms(WAIT_MS);
    for (;;) {
        struct letter **at = script_find(script, type);
        if (*at)
            return *script_take(script, at);
        if (script->closed || sl_deadline_passed(deadline) ||
            (type != SL_MSG_ERROR && script_has(script, SL_MSG_ERROR)))
            script_complain(script, type);
        script_turn(script, 100);
    }
}

struct sl_msg script_await_error(struct script *script, enum sl_about about, int code)
{
    struct sl_msg msg = script_await(script, SL_MSG_ERROR);
    if (msg.error.kind != about || msg.error.code != -code)
        fprintf(stderr, "error is about %u, %s: %s\n", msg.error.kind,
                sl_code_name(-(int)msg.error.code), msg.error.text);
    must(msg.error.kind == about && msg.error.code == -code);
    return msg;
}

void script_await_close(struct script *script)
{
    sl_deadline deadline = sl_deadline_in_ms(WAIT_MS);
    while (!script->closed) {
        must(!sl_deadline_passed(deadline));
        script_turn(script, 100);
    }
}

void script_send(struct script *script, const struct sl_msg *msg)
{
    must(sl_control_send(script->control, msg) == 0 || script->closed);
    turn_control(script);
}

/* --- opening --------------------------------------------------------------------------------- */

static void connect_control(struct script *script, const struct script_options *options)
{
    struct sl_control *target;
    struct sl_err err = {0};
    int rc;
    if (options->listening) {
        rc = sl_control_connect(script->world->client, "127.0.0.1", script->world->port,
                                "127.0.0.1", sl_deadline_in_ms(WAIT_MS), &script->control, &err);
    } else {
        rc = sl_control_pair(options->client ? options->client : "db1", &script->control, &target,
                             &err);
        if (!rc)
            rc = sl_target_attach(script->world->target, target, &err);
    }
    if (rc && script->tolerant)
        _exit(SCRIPT_REFUSED);
    if (rc)
        fprintf(stderr, "%s\n", err.msg);
    must(rc == 0);
}

bool script_hello(struct script *script, struct world *world, const struct script_options *options)
{
    *script = (struct script){
        .world = world, .listening = options->listening, .tolerant = options->tolerant};
    script->letters_end = &script->letters;
    script->slots = options->slots ? options->slots : SLOTS;
    connect_control(script, options);
    struct sl_msg msg = {.type = SL_MSG_HELLO};
    msg.hello.version = msg.hello.version_min = SL_WIRE_VERSION;
    snprintf(msg.hello.software, sizeof msg.hello.software, "scripted");
    snprintf(msg.hello.stanza, sizeof msg.hello.stanza, "%s",
             options->stanza ? options->stanza : "main");
    msg.hello.seal = (uint8_t)options->seal;
    msg.hello.slots = 2 * script->slots;
    msg.hello.slots_pulled = script->slots;
    msg.hello.slot_bytes = SL_BLOCK_BYTES;
    script_send(script, &msg);
    sl_deadline deadline = sl_deadline_in_ms(WAIT_MS);
    while (!script->letters && !script->closed && !sl_deadline_passed(deadline))
        script_turn(script, 100);
    if (!script_has(script, SL_MSG_WELCOME))
        return false;
    script->welcome = script_await(script, SL_MSG_WELCOME).welcome;
    sl_control_heartbeat(script->control, script->welcome.heartbeat_ms, script->welcome.dead_ms);
    script->sealed = sl_seal_decided(options->seal, (enum sl_seal_kind)script->welcome.seal,
                                     options->listening ? SL_TRANSPORT_TCP : SL_TRANSPORT_LOCAL);
    uint8_t secret[SL_SEAL_SECRET_BYTES];
    const struct sl_id *id = &script->welcome.session;
    must(!sl_control_export(script->control, SL_EXPORT_LANE, id, script->lane_key,
                            sizeof script->lane_key, NULL));
    must(!sl_control_export(script->control, SL_EXPORT_SEAL_CLIENT, id, secret, sizeof secret,
                            NULL));
    must(!sl_sealer_new(secret, &script->sealer, NULL));
    must(!sl_control_export(script->control, SL_EXPORT_SEAL_TARGET, id, secret, sizeof secret,
                            NULL));
    must(!sl_sealer_new(secret, &script->unsealer, NULL));
    return true;
}

static struct sl_connect route(const struct script *script)
{
    return (struct sl_connect){.host = "127.0.0.1",
                               .port = script->world->port,
                               .depth = 16,
                               .deadline = sl_deadline_in_ms(WAIT_MS),
                               .traffic_class = -1};
}

static int lane_over_tcp(struct script *script, uint16_t id, struct sl_lane **ret_lane)
{
    struct sl_lane_hello hello = {.version = SL_WIRE_VERSION,
                                  .session = script->welcome.session,
                                  .lane = id,
                                  .depth = 16,
                                  .nonce = id};
    uint8_t bytes[SL_LANE_HELLO_BYTES], reply[SL_LANE_HELLO_BYTES];
    struct sl_connect to = route(script);
    sl_lane_hello_sign(&hello, script->lane_key, 'c');
    sl_lane_hello_encode(&hello, bytes);
    to.hello = bytes;
    int rc = script->rail->ops->connect(script->rail, script->domain, &to, reply, ret_lane, NULL);
    if (rc)
        return rc;
    must(sl_lane_hello_decode(reply, sizeof reply, &hello) == 0);
    must(sl_lane_hello_verify(&hello, script->lane_key, 't') && hello.lane == id);
    return 0;
}

int script_lane(struct script *script)
{
    uint16_t id = script->next_lane++;
    int index = 0;
    while (script->lanes[index])
        must(++index < LANES_MAX);
    int rc = script->listening
                 ? lane_over_tcp(script, id, &script->lanes[index])
                 : sl_target_local_lane(script->world->target, &script->welcome.session,
                                        script->domain, id, &script->lanes[index], NULL);
    if (rc)
        return rc;
    must(script_await(script, SL_MSG_LANE_UP).lane_up.lane == id);
    script->any_lane = true;
    return index;
}

void script_lane_end(struct script *script, int index)
{
    sl_lane_free(script->lanes[index]);
    script->lanes[index] = NULL;
}

void script_memory(struct script *script)
{
    for (int pushed = 0; pushed < 2; pushed++) {
        const struct sl_remote *remote = &script->regions[pushed]->remote;
        struct sl_msg msg = {.type = SL_MSG_MEMORY};
        msg.memory.access = pushed ? SL_ACCESS_PUSHED : SL_ACCESS_PULLED;
        msg.memory.address = remote->address;
        msg.memory.key = remote->key;
        msg.memory.length = remote->length;
        script_send(script, &msg);
    }
}

void script_open(struct script *script, struct world *world, const struct script_options *options)
{
    static const struct script_options none = {0};
    options = options ? options : &none;
    if (!script_hello(script, world, options))
        script_complain(script, SL_MSG_WELCOME);
    struct sl_connect to = route(script);
    must((options->listening ? sl_tcp_rail_ops.resolve(&to, &script->rail, NULL)
                             : sl_loopback_rail_new(&script->rail, NULL)) == 0);
    const struct sl_rail_ops *ops = script->rail->ops;
    size_t bytes = (size_t)script->slots * SL_BLOCK_BYTES;
    script->memory = sl_pages_alloc(2 * bytes);
    must(script->memory);
    must(ops->domain_new(script->rail, &script->domain, NULL) == 0);
    must(ops->region_new(script->domain, script->memory, bytes, SL_ACCESS_PULLED,
                         &script->regions[0], NULL) == 0);
    must(ops->region_new(script->domain, script->memory + bytes, bytes, SL_ACCESS_PUSHED,
                         &script->regions[1], NULL) == 0);
    if (!options->no_memory)
        script_memory(script);
    for (unsigned i = 0; i < (options->lanes ? options->lanes : 2) && !options->no_lanes; i++)
        if (script_lane(script) < 0) {
            must(script->tolerant);
            _exit(SCRIPT_REFUSED);
        }
}

void script_close(struct script *script)
{
    for (int i = 0; i < LANES_MAX; i++)
        sl_lane_free(script->lanes[i]);
    sl_control_free(script->control);
    while (script->letters) {
        struct letter *next = script->letters->next;
        letter_free(script->letters);
        script->letters = next;
    }
    letter_free(script->last);
    sl_sealer_free(script->sealer);
    sl_sealer_free(script->unsealer);
    if (script->rail) {
        const struct sl_rail_ops *ops = script->rail->ops;
        ops->region_free(script->regions[0]);
        ops->region_free(script->regions[1]);
        ops->domain_free(script->domain);
        ops->rail_free(script->rail);
    }
    if (script->memory)
        sl_pages_free(script->memory, 2 * (size_t)script->slots * SL_BLOCK_BYTES);
    *script = (struct script){0};
}

void script_bye(struct script *script)
{
    struct sl_msg msg = {.type = SL_MSG_BYE};
    script_send(script, &msg);
    script_await_close(script);
    script_close(script);
}
