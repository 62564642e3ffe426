/* See the headers: the content of objects, and the steps of writing and of reading them. */
#include "tests/unit/core/target/scripted_internal.h"

#include <string.h>

/* --- content --------------------------------------------------------------------------------- */

struct content content_new(const struct world *world, unsigned seed, uint64_t length, bool holes)
{
    struct content content = {.bytes = malloc(length ? length : 1), .length = length};
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    must(content.bytes);
    for (uint64_t i = 0; i < length; i += sizeof state) {
        uint64_t left = length - i, word = (state ^ state >> 32) | 1; /* never all zero */
        state = state * 6364136223846793005u + 1442695040888963407u;
        if (holes && i / SL_BLOCK_BYTES % 3 == 1)
            word = 0;
        memcpy(content.bytes + i, &word, left < sizeof word ? left : sizeof word);
    }
    uint32_t blocks = sl_blocks_of(length);
    struct sl_id *leaves = calloc(blocks + 1, sizeof *leaves);
    must(leaves);
    for (uint32_t i = 0; i < blocks; i++)
        leaves[i] =
            sl_digest(world->repo->digest_seed, content.bytes + (uint64_t)i * SL_BLOCK_BYTES,
                      sl_block_length(length, i));
    content.digest = sl_digest_content(world->repo->digest_seed, leaves, blocks);
    free(leaves);
    return content;
}

void content_free(struct content *content)
{
    free(content->bytes);
    content->bytes = NULL;
}

/* --- writing --------------------------------------------------------------------------------- */

void script_create(struct script *script, uint32_t object, const char *name)
{
    struct sl_msg msg = {.type = SL_MSG_CREATE};
    msg.create.object = object;
    snprintf(msg.create.name, sizeof msg.create.name, "%s", name);
    script_send(script, &msg);
}

static bool find_slot(const struct script *script, uint32_t *ret_slot)
{
    for (uint32_t i = 0; i < script->slots; i++)
        if (script->use[i] == SLOT_FREE) {
            *ret_slot = i;
            return true;
        }
    return false;
}

uint32_t script_slot(struct script *script)
{
    sl_deadline deadline = sl_deadline_in_ms(WAIT_MS);
    uint32_t slot = 0;
    while (!find_slot(script, &slot)) {
        if (script->closed || sl_deadline_passed(deadline))
            script_complain(script, SL_MSG_TAKEN);
        script_turn(script, 100);
    }
    return slot;
}

struct sl_offer script_fill(struct script *script, uint32_t object, const struct content *content,
                            uint32_t block)
{
    uint64_t seed = script->world->repo->digest_seed;
    const uint8_t *bytes = content->bytes + (uint64_t)block * SL_BLOCK_BYTES;
    uint32_t length = sl_block_length(content->length, block);
    struct sl_offer offer = {.object = object, .block = block, .plain_bytes = length};
    offer.plain_digest = offer.stored_digest = sl_digest(seed, bytes, length);
    if (sl_bytes_are_zero(bytes, length)) {
        offer.slot = SL_SLOT_NONE;
        offer.flags = SL_BLOCK_ZERO;
        return offer;
    }
    offer.slot = script_slot(script);
    offer.stored_bytes = length;
    uint8_t *to = script->memory + (size_t)offer.slot * SL_BLOCK_BYTES;
    if (script->sealed) {
        offer.seal_number = ++script->seals;
        must(sl_seal(script->sealer, &offer, bytes, to, NULL) == 0);
    } else {
        memcpy(to, bytes, length);
    }
    return offer;
}

void script_offer(struct script *script, const struct sl_offer *offer)
{
    uint8_t body[SL_OFFER_BYTES];
    struct sl_writer w = sl_writer_on(body, sizeof body);
    sl_offer_write(&w, offer);
    if (offer->slot < script->slots)
        script->use[offer->slot] = SLOT_OFFERED;
    struct sl_msg msg = {.type = SL_MSG_OFFER};
    msg.offer.offers = body;
    msg.offer.offers_bytes = sizeof body;
    script_send(script, &msg);
}

void script_commit(struct script *script, uint32_t object, const struct content *content)
{
    struct sl_msg msg = {.type = SL_MSG_COMMIT};
    msg.commit.object = object;
    msg.commit.length = content->length;
    msg.commit.digest = content->digest;
    script_send(script, &msg);
}

void script_write(struct script *script, uint32_t object, const char *name,
                  const struct content *content)
{
    script_create(script, object, name);
    for (uint32_t i = 0; i < sl_blocks_of(content->length); i++) {
        struct sl_offer offer = script_fill(script, object, content, i);
        script_offer(script, &offer);
    }
    script_commit(script, object, content);
}

static bool is_outcome(const struct sl_msg *msg, uint32_t object)
{
    return msg->type == SL_MSG_STORED
               ? msg->stored.object == object
               : msg->type == SL_MSG_ERROR && msg->error.kind == SL_ABOUT_OBJECT &&
                     msg->error.about == object;
}

int script_outcome(struct script *script, uint32_t object, enum sl_outcome *ret_outcome)
{
    sl_deadline deadline = sl_deadline_in_ms(WAIT_MS);
    for (;;) {
        struct letter **at = &script->letters;
        while (*at && !is_outcome(&(*at)->msg, object))
            at = &(*at)->next;
        if (*at) {
            const struct sl_msg *msg = script_take(script, at);
            if (msg->type == SL_MSG_ERROR)
                return -(int)msg->error.code;
            if (ret_outcome)
                *ret_outcome = (enum sl_outcome)msg->stored.outcome;
            return 0;
        }
        if (script->closed || sl_deadline_passed(deadline))
            script_complain(script, SL_MSG_STORED);
        script_turn(script, 100);
    }
}

void script_put(struct script *script, uint32_t object, const char *name,
                const struct content *content, enum sl_outcome outcome)
{
    enum sl_outcome got = 0;
    script_write(script, object, name, content);
    int rc = script_outcome(script, object, &got);
    if (rc)
        fprintf(stderr, "\"%s\" was not stored: %s\n", name, sl_code_name(rc));
    must(rc == 0 && got == outcome);
}

void script_all_slots_free(struct script *script)
{
    sl_deadline deadline = sl_deadline_in_ms(WAIT_MS);
    for (uint32_t i = 0; i < script->slots;) {
        if (script->use[i] == SLOT_FREE) {
            i++;
            continue;
        }
        must(!script->closed && !sl_deadline_passed(deadline));
        script_turn(script, 100);
    }
}

/* --- reading --------------------------------------------------------------------------------- */

void script_get_block(struct script *script, uint32_t object, uint32_t block, uint32_t slot)
{
    uint8_t body[SL_GET_BYTES];
    struct sl_writer w = sl_writer_on(body, sizeof body);
    struct sl_get get = {object, block, script->slots + slot};
    sl_get_write(&w, &get);
    script->use[slot] = SLOT_ASKED;
    struct sl_msg msg = {.type = SL_MSG_GET};
    msg.get.gets = body;
    msg.get.gets_bytes = sizeof body;
    script_send(script, &msg);
}

/* A download: what is on its way, by slot. */
struct wanted {
    bool asked, sent;
    struct sl_sent block;
};

struct download {
    struct script *script;
    const struct content *content;
    uint32_t object, next, blocks, done;
    struct wanted wanted[256];
    int code;
};

static bool take_notice(struct script *script, uint64_t push)
{
    for (size_t i = 0; i < script->notice_count; i++)
        if (script->notices[i] == push) {
            script->notices[i] = script->notices[--script->notice_count];
            return true;
        }
    return false;
}

static bool lane_is_down(const struct script *script, uint16_t id)
{
    for (int i = 0; i < LANES_MAX; i++)
        if (script->lanes[i] && script->lanes[i]->id == id)
            return false;
    return true;
}

/* The block is there: unseals it, and compares it with what it should be. */
static void arrived(struct download *d, uint32_t slot)
{
    struct script *script = d->script;
    struct sl_offer *block = &d->wanted[slot].block.block;
    uint8_t *bytes = script->memory + (size_t)(script->slots + slot) * SL_BLOCK_BYTES;
    uint32_t length = sl_block_length(d->content->length, block->block);
    must(block->stored_bytes == length && block->plain_bytes == length);
    if (script->sealed)
        must(sl_unseal(script->unsealer, block, bytes, bytes, NULL) == 0);
    must(!memcmp(bytes, d->content->bytes + (uint64_t)block->block * SL_BLOCK_BYTES, length));
}

static void step_slot(struct download *d, uint32_t slot)
{
    struct script *script = d->script;
    struct wanted *wanted = &d->wanted[slot];
    if (!wanted->asked || !wanted->sent)
        return;
    bool zero = wanted->block.block.flags & SL_BLOCK_ZERO;
    if (wanted->block.code) {
        d->code = wanted->block.code;
    } else if (!zero && take_notice(script, wanted->block.push)) {
        arrived(d, slot);
    } else if (!zero && lane_is_down(script, (uint16_t)(wanted->block.push >> 48))) {
        wanted->sent = false; /* lost on its way: ask anew */
        script_get_block(script, d->object, wanted->block.block.block, slot);
        return;
    } else if (!zero) {
        return;
    }
    *wanted = (struct wanted){0};
    script->use[slot] = SLOT_FREE;
    d->done++;
}

static void take_sents(struct download *d)
{
    for (;;) {
        struct letter **at = script_find(d->script, SL_MSG_SENT);
        if (!*at)
            return;
        const struct sl_msg *msg = script_take(d->script, at);
        struct sl_reader r = sl_reader_on(msg->sent.blocks, msg->sent.blocks_bytes);
        while (sl_reader_left(&r)) {
            struct sl_sent sent;
            sl_sent_read(&r, &sent);
            uint32_t slot = sent.block.slot - d->script->slots;
            must(slot < d->script->slots && sent.block.object == d->object);
            struct wanted *wanted = &d->wanted[slot];
            must(wanted->asked && !wanted->sent);
            wanted->sent = true;
            wanted->block = sent;
        }
    }
}

static void check_table(struct script *script, uint32_t object, uint32_t blocks,
                        const struct content *content)
{
    struct sl_msg msg = {.type = SL_MSG_TABLE};
    msg.table.object = object;
    msg.table.count = blocks;
    script_send(script, &msg);
    struct sl_msg_tabled tabled = script_await(script, SL_MSG_TABLED).tabled;
    must(tabled.object == object && tabled.digests_bytes == blocks * sizeof(struct sl_id));
    struct sl_id *leaves = calloc(blocks + 1, sizeof *leaves);
    must(leaves);
    memcpy(leaves, tabled.digests, tabled.digests_bytes);
    struct sl_id digest = sl_digest_content(script->world->repo->digest_seed, leaves, blocks);
    must(sl_id_equal(&digest, &content->digest));
    free(leaves);
}

/* Ends a lane in the middle, and opens another for it. */
static void kill_lane(struct script *script)
{
    int index = script->lanes[0] ? 0 : 1;
    script->kill_lane_at = 0;
    script_lane_end(script, index);
    must(script_lane(script) >= 0);
}

static void download(struct download *d)
{
    struct script *script = d->script;
    sl_deadline deadline = sl_deadline_in_ms(WAIT_MS);
    while (d->done < d->blocks) {
        uint32_t slot;
        while (d->next < d->blocks && find_slot(script, &slot)) {
            d->wanted[slot].asked = true;
            script_get_block(script, d->object, d->next++, slot);
        }
        if (script->closed || sl_deadline_passed(deadline))
            script_complain(script, SL_MSG_SENT);
        script_turn(script, 100);
        take_sents(d);
        for (uint32_t i = 0; i < script->slots; i++)
            step_slot(d, i);
        if (script->kill_lane_at && d->done >= script->kill_lane_at)
            kill_lane(script);
    }
}

int script_read(struct script *script, uint32_t object, const char *name,
                const struct content *content)
{
    struct sl_msg msg = {.type = SL_MSG_OPEN};
    msg.open.object = object;
    snprintf(msg.open.name, sizeof msg.open.name, "%s", name);
    script_send(script, &msg);
    while (!script_has(script, SL_MSG_OPENED) && !script_has(script, SL_MSG_ERROR) &&
           !script->closed)
        script_turn(script, 100);
    if (script_has(script, SL_MSG_ERROR))
        return -(int)script_await(script, SL_MSG_ERROR).error.code;
    struct sl_msg_opened opened = script_await(script, SL_MSG_OPENED).opened;
    must(opened.object == object && opened.length == content->length);
    must(sl_id_equal(&opened.digest, &content->digest));
    struct download d = {.script = script,
                         .content = content,
                         .object = object,
                         .blocks = sl_blocks_of(content->length)};
    check_table(script, object, d.blocks, content);
    download(&d);
    msg = (struct sl_msg){.type = SL_MSG_CLOSE};
    msg.close.object = object;
    script_send(script, &msg);
    return d.code;
}
