/* See the header. */
#include "tests/unit/core/client/fake_target.h"

void say(struct fake *fake, const struct sl_msg *msg)
{
    (void)sl_control_send(fake->control, msg);
}

void say_taken(struct fake *fake, uint32_t slot)
{
    uint8_t bytes[4];
    struct sl_writer w = sl_writer_on(bytes, sizeof bytes);
    sl_write_u32(&w, slot);
    struct sl_msg msg = {.type = SL_MSG_TAKEN};
    msg.taken = (struct sl_msg_taken){bytes, sizeof bytes};
    say(fake, &msg);
}

void say_sent(struct fake *fake, const struct sl_sent *sent)
{
    uint8_t bytes[SL_SENT_BYTES];
    struct sl_writer w = sl_writer_on(bytes, sizeof bytes);
    sl_sent_write(&w, sent);
    struct sl_msg msg = {.type = SL_MSG_SENT};
    msg.sent = (struct sl_msg_sent){bytes, sizeof bytes};
    say(fake, &msg);
}

void say_error(struct fake *fake, enum sl_about kind, uint32_t about, int code)
{
    struct sl_msg msg = {.type = SL_MSG_ERROR};
    msg.error = (struct sl_msg_error){
        .code = (uint16_t)-code, .kind = (uint8_t)kind, .about = about, .text = "it is \033[31mso"};
    say(fake, &msg);
}

static void process_lanes(struct fake *fake)
{
    struct sl_lane_event events[16];
    for (unsigned i = 0; i < fake->lane_count; i++)
        while (fake->lanes[i] && sl_lane_process(fake->lanes[i], events, 16) == 16)
            ;
}

/* Pushes bytes to a slot over a lane; returns the push's number. */
uint64_t push(struct fake *fake, unsigned lane, uint32_t slot, const void *bytes, size_t count,
              bool notice)
{
    uint8_t text[SL_NOTICE_BYTES] = {0};
    struct sl_writer w = sl_writer_on(text, sizeof text);
    pthread_mutex_lock(&fake->lock);
    uint64_t number = (uint64_t)fake->lanes[lane]->id << 48 | ++fake->pushes;
    memcpy(fake->memory, bytes, count);
    MUST(sl_lane_push(fake->lanes[lane], (struct sl_local){fake->region, fake->memory},
                      &fake->slots[1], (uint64_t)(slot - fake->slots[0].length / MiB) * MiB,
                      (uint32_t)count, 1) == 0);
    process_lanes(fake);
    sl_write_u64(&w, number);
    if (notice)
        MUST(sl_lane_notice(fake->lanes[lane], text) == 0);
    process_lanes(fake);
    pthread_mutex_unlock(&fake->lock);
    return number;
}

struct sl_sent answer_for(struct fake *fake, const struct sl_get *get)
{
    uint32_t length = sl_block_length(fake->content_bytes, get->block);
    struct sl_sent sent = {.block = {.object = get->object,
                                     .block = get->block,
                                     .slot = get->slot,
                                     .stored_bytes = length,
                                     .plain_bytes = length,
                                     .plain_digest = fake->leaves[get->block],
                                     .stored_digest = fake->leaves[get->block]}};
    return sent;
}

void serve_get(struct fake *fake, const struct sl_get *get)
{
    struct sl_sent sent = answer_for(fake, get);
    sent.push = push(fake, 0, get->slot, fake->content + (size_t)get->block * MiB,
                     sent.block.stored_bytes, true);
    say_sent(fake, &sent);
}

static void welcome(struct fake *fake)
{
    struct sl_msg msg = {.type = SL_MSG_WELCOME};
    msg.welcome = (struct sl_msg_welcome){.version = 1,
                                          .session = {{1}},
                                          .repository = fake->repository,
                                          .lanes = 2,
                                          .depth = 16,
                                          .objects = 8,
                                          .heartbeat_ms = 1000,
                                          .dead_ms = 3000};
    say(fake, &msg);
}

static void serve(struct fake *fake, const struct sl_msg *msg)
{
    struct sl_msg answer = {0};
    struct sl_reader r;
    switch (msg->type) {
    case SL_MSG_HELLO:
        welcome(fake);
        break;
    case SL_MSG_MEMORY:
        fake->slots[msg->memory.access == SL_ACCESS_PUSHED] =
            (struct sl_remote){msg->memory.address, msg->memory.key, msg->memory.length};
        break;
    case SL_MSG_OFFER:
        r = sl_reader_on(msg->offer.offers, msg->offer.offers_bytes);
        while (sl_reader_left(&r)) {
            struct sl_offer offer;
            sl_offer_read(&r, &offer);
            if (offer.slot != SL_SLOT_NONE)
                say_taken(fake, offer.slot);
        }
        break;
    case SL_MSG_COMMIT:
        answer.type = SL_MSG_STORED;
        answer.stored =
            (struct sl_msg_stored){msg->commit.object, SL_STORED_CREATED, msg->commit.digest};
        say(fake, &answer);
        break;
    case SL_MSG_OPEN:
        answer.type = SL_MSG_OPENED;
        answer.opened = (struct sl_msg_opened){
            .object = msg->open.object, .length = fake->content_bytes, .digest = fake->digest};
        say(fake, &answer);
        break;
    case SL_MSG_TABLE:
        answer.type = SL_MSG_TABLED;
        answer.tabled = (struct sl_msg_tabled){msg->table.object, msg->table.first,
                                               fake->leaves[msg->table.first].bytes,
                                               msg->table.count * sizeof(struct sl_id)};
        say(fake, &answer);
        break;
    case SL_MSG_GET:
        r = sl_reader_on(msg->get.gets, msg->get.gets_bytes);
        while (sl_reader_left(&r)) {
            struct sl_get get;
            sl_get_read(&r, &get);
            serve_get(fake, &get);
        }
        break;
    default:
        break;
    }
}

static int on_message(void *arg, struct sl_control *control, const struct sl_msg *msg,
                      struct sl_err *err)
{
    struct fake *fake = arg;
    (void)control;
    (void)err;
    fake_script script = atomic_load(&fake->script);
    if (!script || !script(fake, msg))
        serve(fake, msg);
    return 0;
}

static void *fake_run(void *arg)
{
    struct fake *fake = arg;
    while (!atomic_load(&fake->stop) &&
           sl_control_process(fake->control, on_message, fake, NULL) == 0) {
        struct pollfd wait = {.fd = sl_control_fd(fake->control), .events = POLLIN};
        int ms = sl_control_next_ms(fake->control);
        poll(&wait, 1, ms < 0 || ms > 20 ? 20 : ms);
        pthread_mutex_lock(&fake->lock);
        process_lanes(fake);
        pthread_mutex_unlock(&fake->lock);
    }
    return NULL;
}

static void fake_end_session(struct fake *fake)
{
    if (!fake->runs)
        return;
    atomic_store(&fake->stop, true);
    pthread_join(fake->thread, NULL);
    for (unsigned i = 0; i < fake->lane_count; i++)
        sl_lane_free(fake->lanes[i]);
    fake->lane_count = 0;
    sl_control_free(fake->control);
    fake->runs = false;
    atomic_store(&fake->stop, false);
}

static int fake_attach(struct sl_target *target, struct sl_control *control, struct sl_err *err)
{
    struct fake *fake = (struct fake *)target;
    (void)err;
    fake_end_session(fake);
    fake->control = control;
    fake->runs = true;
    sl_control_heartbeat(control, 1000, 3000);
    MUST(pthread_create(&fake->thread, NULL, fake_run, fake) == 0);
    return 0;
}

void say_lane(struct fake *fake, enum sl_msg_type type, uint16_t lane)
{
    struct sl_msg msg = {.type = type};
    if (type == SL_MSG_LANE_UP)
        msg.lane_up.lane = lane;
    else
        msg.lane_down.lane = lane;
    say(fake, &msg);
}

static int fake_lane(struct sl_target *target, const struct sl_id *session,
                     struct sl_domain *client_domain, uint16_t lane_id,
                     struct sl_lane **ret_passive, struct sl_err *err)
{
    struct fake *fake = (struct fake *)target;
    struct sl_lane *active;
    (void)session;
    int rc = sl_loopback_pair(client_domain, fake->domain, lane_id, 16, ret_passive, &active, err);
    if (rc)
        return rc;
    pthread_mutex_lock(&fake->lock);
    MUST(fake->lane_count < 8);
    fake->lanes[fake->lane_count++] = active;
    pthread_mutex_unlock(&fake->lock);
    say_lane(fake, SL_MSG_LANE_UP, lane_id);
    return 0;
}

void fake_open(struct fake *fake, struct sl_client_config *config, struct sl_embedded *embedded,
               size_t content_bytes)
{
    *fake = (struct fake){.repository = {{7}}, .content_bytes = content_bytes};
    pthread_mutex_init(&fake->lock, NULL);
    MUST(sl_loopback_rail_new(&fake->rail, NULL) == 0);
    MUST(fake->rail->ops->domain_new(fake->rail, &fake->domain, NULL) == 0);
    fake->memory = malloc(MiB);
    MUST(fake->rail->ops->region_new(fake->domain, fake->memory, MiB, SL_ACCESS_LOCAL,
                                     &fake->region, NULL) == 0);
    fake->content = content_new(11, content_bytes, false);
    for (uint32_t i = 0; i < sl_blocks_of(content_bytes); i++)
        fake->leaves[i] =
            sl_digest(0, fake->content + (size_t)i * MiB, sl_block_length(content_bytes, i));
    fake->digest = sl_digest_content(0, fake->leaves, sl_blocks_of(content_bytes));
    *embedded = (struct sl_embedded){(struct sl_target *)fake, fake_attach, fake_lane};
    *config = (struct sl_client_config){.stanza = "main",
                                        .embedded = embedded,
                                        .slot_bytes_total = 8 * MiB,
                                        .connect_ms = 2000,
                                        .io_ms = 20000};
}

void fake_close(struct fake *fake)
{
    fake_end_session(fake);
    fake->rail->ops->region_free(fake->region);
    fake->rail->ops->domain_free(fake->domain);
    fake->rail->ops->rail_free(fake->rail);
    pthread_mutex_destroy(&fake->lock);
    free(fake->memory);
    free(fake->content);
}
