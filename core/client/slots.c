/* Slots: who has which piece of the staging memory, and the blocks that wait to be offered. Knows
 * nothing of files or threads beyond waiting its turn. All with session->lock held, but making and
 * freeing. */
#include "core/base/alloc.h"
#include "core/client/client_internal.h"

#include <linux/capability.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLOTS_DEFAULT_BYTES (64u * 1024 * 1024)
#define SLOTS_MIN           4u
#define SLOTS_MAX           1024u
#define MEMLOCK_RESERVE     (1024u * 1024) /* queue pairs, completion queues, small buffers */

/* --- how many -------------------------------------------------------------------------------- */

/* The kernel does not count pinned pages of who has CAP_IPC_LOCK (ib_umem_get() in
 * drivers/infiniband/core/umem.c). */
static bool may_lock_any(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};
    if (syscall(SYS_capget, &header, data))
        return false;
    return data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK);
}

int sl_slots_choose(bool rdma, size_t wanted_bytes, uint32_t *ret_slots, struct sl_err *err)
{
    size_t count = (wanted_bytes ? wanted_bytes : SLOTS_DEFAULT_BYTES) / SL_BLOCK_BYTES;
    if (count < SLOTS_MIN)
        count = SLOTS_MIN;
    if (count > SLOTS_MAX)
        count = SLOTS_MAX;
    struct rlimit limit;
    if (rdma && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        !may_lock_any()) {
        size_t fit = limit.rlim_cur > MEMLOCK_RESERVE
                         ? (size_t)(limit.rlim_cur - MEMLOCK_RESERVE) / SL_BLOCK_BYTES
                         : 0;
        if (fit < SLOTS_MIN) {
            size_t need = (SLOTS_MIN * (size_t)SL_BLOCK_BYTES + MEMLOCK_RESERVE) >> 10;
            sl_err_set(
                err, SL_ERR_LIMIT,
                "RDMA needs %zu KiB of locked memory, the limit (RLIMIT_MEMLOCK) is %llu KiB", need,
                (unsigned long long)limit.rlim_cur >> 10);
            sl_err_hint(err, "ulimit -l %zu, or LimitMEMLOCK=%zuK in the systemd unit", need, need);
            return SL_ERR_LIMIT;
        }
        count = fit < count ? fit : count;
    }
    *ret_slots = (uint32_t)count;
    return 0;
}

/* --- making ---------------------------------------------------------------------------------- */

static void pool_init(struct slots *slots, enum slot_kind kind, uint32_t first, uint32_t count)
{
    struct slot_pool *pool = &slots->pools[kind];
    *pool = (struct slot_pool){.first = first,
                               .count = count,
                               .stack = slots->stacks + first,
                               .last_waiter = &pool->waiters};
    /* the lowest numbers are used first: an idle client touches few pages */
    for (uint32_t i = 0; i < count; i++)
        pool->stack[pool->free++] = first + count - 1 - i;
}

int sl_client_slots_init(struct slots *slots, uint32_t count, uint32_t pulled, struct sl_err *err)
{
    slots->early_room = count * 4;
    slots->memory = sl_pages_alloc((size_t)count * SL_BLOCK_BYTES);
    slots->all = sl_calloc(count, sizeof *slots->all);
    slots->stacks = sl_calloc(count, sizeof *slots->stacks);
    slots->early = sl_calloc(slots->early_room, sizeof *slots->early);
    slots->count = count;
    if (!slots->memory || !slots->all || !slots->stacks || !slots->early)
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory for %u slots", count);
    pool_init(slots, SLOT_PULLED, 0, pulled);
    pool_init(slots, SLOT_PUSHED, pulled, count - pulled);
    return 0;
}

void sl_client_slots_fini(struct slots *slots)
{
    sl_pages_free(slots->memory, (size_t)slots->count * SL_BLOCK_BYTES);
    sl_free(slots->all);
    sl_free(slots->stacks);
    sl_free(slots->early);
}

uint8_t *sl_client_slot_memory(const struct slots *slots, uint32_t slot)
{
    return slots->memory + (size_t)slot * SL_BLOCK_BYTES;
}

/* --- taking and giving back ------------------------------------------------------------------ */

static uint32_t pop(struct slots *slots, struct slot_pool *pool)
{
    uint32_t slot = pool->stack[--pool->free];
    slots->all[slot] = (struct slot){.state = SLOT_OURS};
    return slot;
}

static void leave_queue(struct slot_pool *pool, struct slot_waiter *waiter)
{
    for (struct slot_waiter **at = &pool->waiters; *at; at = &(*at)->next)
        if (*at == waiter) {
            *at = waiter->next;
            break;
        }
    pool->last_waiter = &pool->waiters;
    while (*pool->last_waiter)
        pool->last_waiter = &(*pool->last_waiter)->next;
}

int sl_client_slot_take(struct session *session, enum slot_kind kind, sl_deadline deadline,
                        uint32_t *ret_slot, struct sl_err *err)
{
    struct slots *slots = &session->slots;
    struct slot_pool *pool = &slots->pools[kind];
    int rc = sl_client_session_check(session, err);
    if (rc)
        return rc;
    if (pool->free && !pool->waiters) {
        *ret_slot = pop(slots, pool);
        return 0;
    }
    sl_client_offers_flush(session); /* what is not offered never comes back */
    struct slot_waiter waiter = {.slot = SL_SLOT_NONE};
    if (sl_cond_init(&waiter.changed))
        return sl_err_set(err, SL_ERR_NO_MEMORY, "out of memory");
    *pool->last_waiter = &waiter;
    pool->last_waiter = &waiter.next;
    while (!rc && waiter.slot == SL_SLOT_NONE)
        rc = sl_client_session_wait(session, &waiter.changed, deadline, err);
    if (waiter.slot == SL_SLOT_NONE)
        leave_queue(pool, &waiter);
    pthread_cond_destroy(&waiter.changed);
    if (waiter.slot != SL_SLOT_NONE) {
        *ret_slot = waiter.slot;
        return 0;
    }
    if (rc == SL_ERR_TIMEOUT)
        sl_err_prefix(err, "no slot came free: the target takes no blocks");
    return rc;
}

bool sl_client_slot_try(struct session *session, enum slot_kind kind, uint32_t *ret_slot)
{
    struct slot_pool *pool = &session->slots.pools[kind];
    uint32_t reserve = pool->count / 4 ? pool->count / 4 : 1;
    if (pool->waiters || pool->free <= reserve || session->failure.code)
        return false;
    *ret_slot = pop(&session->slots, pool);
    return true;
}

void sl_client_slot_release(struct session *session, uint32_t slot)
{
    struct slots *slots = &session->slots;
    struct slot_pool *pool =
        &slots->pools[slot < slots->pools[SLOT_PUSHED].first ? SLOT_PULLED : SLOT_PUSHED];
    struct slot_waiter *first = pool->waiters;
    slots->all[slot] = (struct slot){.state = first ? SLOT_OURS : SLOT_FREE};
    if (!first) {
        pool->stack[pool->free++] = slot;
        return;
    }
    pool->waiters = first->next;
    if (!pool->waiters)
        pool->last_waiter = &pool->waiters;
    first->slot = slot;
    pthread_cond_signal(&first->changed);
}

void sl_client_slots_wake(struct session *session)
{
    for (int kind = 0; kind < SLOT_KINDS; kind++)
        for (struct slot_waiter *waiter = session->slots.pools[kind].waiters; waiter;
             waiter = waiter->next)
            pthread_cond_signal(&waiter->changed);
}

/* --- offers ---------------------------------------------------------------------------------- */

void sl_client_offers_flush(struct session *session)
{
    struct slots *slots = &session->slots;
    uint8_t bytes[OFFERS_BATCH * SL_OFFER_BYTES];
    struct sl_writer w = sl_writer_on(bytes, sizeof bytes);
    if (!slots->offers_count)
        return;
    for (uint32_t i = 0; i < slots->offers_count; i++) {
        sl_offer_write(&w, &slots->offers[i]);
        slots->offered += slots->offers[i].slot != SL_SLOT_NONE;
    }
    slots->offers_count = 0;
    struct sl_msg msg = {.type = SL_MSG_OFFER};
    msg.offer = (struct sl_msg_offer){bytes, sl_writer_used(&w)};
    sl_client_session_send(session, &msg);
}

void sl_client_offers_add(struct session *session, const struct sl_offer *offer)
{
    struct slots *slots = &session->slots;
    if (offer->slot != SL_SLOT_NONE)
        slots->all[offer->slot] =
            (struct slot){.state = SLOT_OFFERED, .bytes = offer->stored_bytes};
    slots->offers[slots->offers_count++] = *offer;
    /* a block that finds the wire idle goes at once (a WAL segment's latency); with many under way
     * the next TAKEN, which is sure to come, sends what has gathered */
    if (slots->offers_count == OFFERS_BATCH || slots->offered < OFFERS_AT_ONCE)
        sl_client_offers_flush(session);
}

int sl_client_slots_taken(struct session *session, const struct sl_msg_taken *taken,
                          struct sl_err *err)
{
    struct slots *slots = &session->slots;
    struct sl_reader r = sl_reader_on(taken->slots, taken->slots_bytes);
    while (sl_reader_left(&r)) {
        uint32_t slot = sl_read_u32(&r);
        if (r.failed || slot >= slots->count || slots->all[slot].state != SLOT_OFFERED ||
            !slots->offered)
            return sl_err_set(err, SL_ERR_PROTOCOL, "the target took slot %u, which it has not",
                              slot);
        slots->offered--;
        session->moved |= slots->all[slot].bytes > LARGE_BYTES;
        sl_client_slot_release(session, slot);
    }
    session->progress_ns = sl_now_ns();
    if (slots->offered < OFFERS_AT_ONCE)
        sl_client_offers_flush(session);
    return 0;
}

/* --- blocks that come ------------------------------------------------------------------------ */

/* The target is done with a slot that was given with GET. */
static void arrived(struct session *session, uint32_t number)
{
    struct slot *slot = &session->slots.all[number];
    struct sl_download *download = slot->download;
    struct sl_sent about = slot->about;
    if (!download) {
        sl_client_slot_release(session, number);
        return;
    }
    *slot = (struct slot){.state = SLOT_OURS};
    sl_client_download_arrived(download, number, &about);
}

static bool take_early(struct slots *slots, uint64_t push)
{
    for (uint32_t i = 0; i < slots->early_room; i++)
        if (slots->early[i] == push) {
            slots->early[i] = 0;
            return true;
        }
    return false;
}

static int one_sent(struct session *session, const struct sl_sent *sent, struct sl_err *err)
{
    struct slots *slots = &session->slots;
    const struct sl_offer *block = &sent->block;
    struct slot *slot = block->slot < slots->count ? &slots->all[block->slot] : NULL;
    if (!slot || slot->state != SLOT_GOT || slot->sent || slot->object != block->object ||
        slot->block != block->block || block->stored_bytes > SL_BLOCK_BYTES)
        return sl_err_set(
            err, SL_ERR_PROTOCOL,
            "the target sent block %u of object %u to slot %u, which was not asked for",
            block->block, block->object, block->slot);
    slot->about = *sent;
    slot->sent = true;
    /* push numbers are never 0 when there is a push: their upper half is a lane's number, and 0 in
     * `early` is an empty place */
    bool noticed = sent->push && take_early(slots, sent->push);
    session->moved |= noticed && block->stored_bytes > LARGE_BYTES;
    if (sent->code || (block->flags & SL_BLOCK_ZERO) || noticed)
        arrived(session, block->slot);
    return 0;
}

int sl_client_slots_sent(struct session *session, const struct sl_msg_sent *msg, struct sl_err *err)
{
    struct sl_reader r = sl_reader_on(msg->blocks, msg->blocks_bytes);
    while (sl_reader_left(&r)) {
        struct sl_sent sent;
        sl_sent_read(&r, &sent);
        if (r.failed)
            return sl_err_set(err, SL_ERR_PROTOCOL, "malformed SENT");
        int rc = one_sent(session, &sent, err);
        if (rc)
            return rc;
    }
    return 0;
}

void sl_client_slots_noticed(struct session *session, uint64_t push)
{
    struct slots *slots = &session->slots;
    for (uint32_t i = 0; i < slots->count; i++)
        if (slots->all[i].state == SLOT_GOT && slots->all[i].sent &&
            slots->all[i].about.push == push) {
            session->moved |= slots->all[i].about.block.stored_bytes > LARGE_BYTES;
            arrived(session, i);
            return;
        }
    slots->early[slots->early_next++ % slots->early_room] = push;
}

/* What was SENT over a lane that is down, and not noticed, is lost: asked for anew. */
void sl_client_slots_lane_lost(struct session *session, uint16_t lane)
{
    struct slots *slots = &session->slots;
    for (uint32_t i = 0; i < slots->count; i++) {
        struct slot *slot = &slots->all[i];
        if (slot->state != SLOT_GOT || !slot->sent || slot->about.push >> 48 != lane)
            continue;
        if (!slot->download) {
            sl_client_slot_release(session, i);
            continue;
        }
        slot->sent = false;
        uint8_t bytes[SL_GET_BYTES];
        struct sl_writer w = sl_writer_on(bytes, sizeof bytes);
        sl_get_write(&w, &(struct sl_get){slot->object, slot->block, i});
        struct sl_msg msg = {.type = SL_MSG_GET};
        msg.get = (struct sl_msg_get){bytes, sizeof bytes};
        sl_client_session_send(session, &msg);
    }
}
